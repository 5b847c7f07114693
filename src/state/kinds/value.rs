//! One value: as it is, or folded from what is added.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sweep::{Kind, Sweeper, Work};
use super::ttl::{Entry, Lifetime, Times, Ttl};
use crate::element::Record;

/// A value in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ValueCell<T> {
    entry: Option<Entry<T>>,
}

impl<T> Default for ValueCell<T> {
    fn default() -> Self {
        Self { entry: None }
    }
}

/// Where a value stands in a state `S`, and how long it lives.
pub struct ValueDescriptor<S, T> {
    name: &'static str,
    cell: fn(&mut S) -> &mut ValueCell<T>,
    ttl: Option<Ttl>,
}

/// As [`ValueDescriptor`], of a value into which others are folded.
pub struct ReducingDescriptor<S, T> {
    value: ValueDescriptor<S, T>,
    reduce: fn(&mut T, T),
}

/// As [`ValueDescriptor`], of an accumulator `A` that takes in `In` and gives `Out`.
pub struct AggregatingDescriptor<S, A, In, Out> {
    value: ValueDescriptor<S, A>,
    accumulate: fn(&mut A, In),
    result: fn(&A) -> Out,
}

impl<S, T> ValueDescriptor<S, T> {
    /// The value that `cell` finds.
    pub const fn new(name: &'static str, cell: fn(&mut S) -> &mut ValueCell<T>) -> Self {
        Self { name, cell, ttl: None }
    }

    /// The value expires.
    pub const fn ttl(self, ttl: Ttl) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The value in `state` as it is `now`.
    #[inline]
    pub fn view<'a>(&self, state: &'a mut S, now: Times) -> ValueView<'a, T> {
        ValueView { entry: &mut (self.cell)(state).entry, life: Lifetime { ttl: self.ttl, now } }
    }
}

impl<S, T> ReducingDescriptor<S, T> {
    /// The value that `cell` finds; `reduce` folds what is added into it.
    pub const fn new(
        name: &'static str,
        cell: fn(&mut S) -> &mut ValueCell<T>,
        reduce: fn(&mut T, T),
    ) -> Self {
        Self { value: ValueDescriptor::new(name, cell), reduce }
    }

    /// The value expires; whatever is added lets it live on as a whole.
    pub const fn ttl(self, ttl: Ttl) -> Self {
        Self { value: self.value.ttl(ttl), reduce: self.reduce }
    }

    /// The value in `state` as it is `now`.
    #[inline]
    pub fn view<'a>(&self, state: &'a mut S, now: Times) -> ReducingView<'a, T> {
        ReducingView { value: self.value.view(state, now), reduce: self.reduce }
    }
}

impl<S, A, In, Out> AggregatingDescriptor<S, A, In, Out> {
    /// The accumulator that `cell` finds.
    pub const fn new(
        name: &'static str,
        cell: fn(&mut S) -> &mut ValueCell<A>,
        accumulate: fn(&mut A, In),
        result: fn(&A) -> Out,
    ) -> Self {
        Self { value: ValueDescriptor::new(name, cell), accumulate, result }
    }

    /// The accumulator expires; whatever is added lets it live on as a whole.
    pub const fn ttl(self, ttl: Ttl) -> Self {
        Self { value: self.value.ttl(ttl), ..self }
    }

    /// The accumulator in `state` as it is `now`.
    #[inline]
    pub fn view<'a>(&self, state: &'a mut S, now: Times) -> AggregatingView<'a, A, In, Out> {
        let (accumulate, result) = (self.accumulate, self.result);
        AggregatingView { value: self.value.view(state, now), accumulate, result }
    }
}

/// A value while one key is handled.
#[derive(Debug)]
pub struct ValueView<'a, T> {
    entry: &'a mut Option<Entry<T>>,
    life: Lifetime,
}

impl<T> ValueView<'_, T> {
    /// The value, if there is one.
    #[inline]
    pub fn get(&mut self) -> Option<&T> {
        self.life.read(self.entry.as_mut()?)
    }

    /// Puts a value in the place of what is there.
    #[inline]
    pub fn set(&mut self, value: T) {
        *self.entry = Some(self.life.begin(value));
    }

    /// Removes it.
    pub fn clear(&mut self) {
        *self.entry = None;
    }

    /// What is there for somebody who changes it.
    #[inline]
    fn get_mut(&mut self) -> Option<&mut T> {
        let entry = self.entry.as_mut().filter(|entry| self.life.keeps(entry))?;
        self.life.renew(entry);
        Some(&mut entry.value)
    }
}

/// A folded value while one key is handled.
pub struct ReducingView<'a, T> {
    value: ValueView<'a, T>,
    reduce: fn(&mut T, T),
}

impl<T> ReducingView<'_, T> {
    /// What has been folded, if anything.
    #[inline]
    pub fn get(&mut self) -> Option<&T> {
        self.value.get()
    }

    /// Folds `value` in.
    #[inline]
    pub fn add(&mut self, value: T) {
        match self.value.get_mut() {
            Some(folded) => (self.reduce)(folded, value),
            None => self.value.set(value),
        }
    }

    /// Removes it.
    pub fn clear(&mut self) {
        self.value.clear();
    }
}

/// An accumulator while one key is handled.
pub struct AggregatingView<'a, A, In, Out> {
    value: ValueView<'a, A>,
    accumulate: fn(&mut A, In),
    result: fn(&A) -> Out,
}

impl<A: Default, In, Out> AggregatingView<'_, A, In, Out> {
    /// What comes of all that was added, if anything was.
    #[inline]
    pub fn get(&mut self) -> Option<Out> {
        self.value.get().map(self.result)
    }

    /// Adds `value`.
    #[inline]
    pub fn add(&mut self, value: In) {
        match self.value.get_mut() {
            Some(accumulator) => (self.accumulate)(accumulator, value),
            None => {
                let mut accumulator = A::default();
                (self.accumulate)(&mut accumulator, value);
                self.value.set(accumulator);
            }
        }
    }

    /// Removes it.
    pub fn clear(&mut self) {
        self.value.clear();
    }
}

impl<S: 'static, T: Record> Kind<S> for ValueDescriptor<S, T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn time_to_live(&self) -> Option<Ttl> {
        self.ttl
    }

    fn sweeper(&self) -> Box<dyn Sweeper<S>> {
        Box::new(self.clone())
    }
}

impl<S: 'static, T: Record> Kind<S> for ReducingDescriptor<S, T> {
    fn name(&self) -> &'static str {
        self.value.name
    }

    fn time_to_live(&self) -> Option<Ttl> {
        self.value.ttl
    }

    fn sweeper(&self) -> Box<dyn Sweeper<S>> {
        self.value.sweeper()
    }
}

impl<S: 'static, A: Record, In, Out> Kind<S> for AggregatingDescriptor<S, A, In, Out> {
    fn name(&self) -> &'static str {
        self.value.name
    }

    fn time_to_live(&self) -> Option<Ttl> {
        self.value.ttl
    }

    fn sweeper(&self) -> Box<dyn Sweeper<S>> {
        self.value.sweeper()
    }
}

impl<S: 'static, T: Record> Sweeper<S> for ValueDescriptor<S, T> {
    fn sweep(&mut self, state: &mut S, now: Times, work: &mut Work) -> bool {
        let Some(entry) = &mut (self.cell)(state).entry else { return true };
        let life = Lifetime { ttl: self.ttl, now };
        if !work.take() {
            return false;
        }
        if life.keeps(entry) {
            work.has_changed |= life.begin_to_live(entry);
        } else {
            (self.cell)(state).entry = None;
            work.has_changed = true;
        }
        true
    }

    fn clone_box(&self) -> Box<dyn Sweeper<S>> {
        Box::new(self.clone())
    }
}

impl<S, T> Clone for ValueDescriptor<S, T> {
    fn clone(&self) -> Self {
        Self { name: self.name, cell: self.cell, ttl: self.ttl }
    }
}

impl<S, T> Clone for ReducingDescriptor<S, T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), reduce: self.reduce }
    }
}

impl<S, A, In, Out> Clone for AggregatingDescriptor<S, A, In, Out> {
    fn clone(&self) -> Self {
        let (accumulate, result) = (self.accumulate, self.result);
        Self { value: self.value.clone(), accumulate, result }
    }
}

impl<S, T> fmt::Debug for ValueDescriptor<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueDescriptor({})", self.name)
    }
}
