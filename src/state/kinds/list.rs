//! A list, whose elements expire one by one.

use std::collections::VecDeque;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::sweep::{Kind, Sweeper, Work};
use super::ttl::{Entry, Lifetime, Times, Ttl};
use crate::element::Record;

/// A list in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListCell<T> {
    entries: VecDeque<Entry<T>>,
}

impl<T> Default for ListCell<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new() }
    }
}

/// Where a list stands in a state `S`, and how long its elements live.
pub struct ListDescriptor<S, T> {
    name: &'static str,
    cell: fn(&mut S) -> &mut ListCell<T>,
    ttl: Option<Ttl>,
}

impl<S, T> ListDescriptor<S, T> {
    /// The list that `cell` finds.
    pub const fn new(name: &'static str, cell: fn(&mut S) -> &mut ListCell<T>) -> Self {
        Self { name, cell, ttl: None }
    }

    /// Each element expires by itself.
    pub const fn ttl(self, ttl: Ttl) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The list in `state` as it is `now`.
    #[inline]
    pub fn view<'a>(&self, state: &'a mut S, now: Times) -> ListView<'a, T> {
        ListView { entries: &mut (self.cell)(state).entries, life: Lifetime { ttl: self.ttl, now } }
    }
}

/// A list while one key is handled.
#[derive(Debug)]
pub struct ListView<'a, T> {
    entries: &'a mut VecDeque<Entry<T>>,
    life: Lifetime,
}

impl<T> ListView<'_, T> {
    /// The elements, the oldest first.
    pub fn iter(&mut self) -> impl Iterator<Item = &T> {
        let life = self.life;
        self.entries.iter_mut().filter_map(move |entry| life.read(entry))
    }

    /// Puts an element behind all others.
    #[inline]
    pub fn push(&mut self, value: T) {
        self.entries.push_back(self.life.begin(value));
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<S: 'static, T: Record> Kind<S> for ListDescriptor<S, T> {
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

/// Elements are written in the order of the list, so the expired ones are the first ones. If the
/// clock was set back, an expired one waits for that before it.
impl<S: 'static, T: Record> Sweeper<S> for ListDescriptor<S, T> {
    fn sweep(&mut self, state: &mut S, now: Times, work: &mut Work) -> bool {
        let life = Lifetime { ttl: self.ttl, now };
        let entries = &mut (self.cell)(state).entries;
        while let Some(first) = entries.front_mut() {
            if !work.take() {
                return false;
            }
            if life.keeps(first) {
                work.has_changed |= life.begin_to_live(first);
                return true;
            }
            entries.pop_front();
            work.has_changed = true;
        }
        true
    }

    fn clone_box(&self) -> Box<dyn Sweeper<S>> {
        Box::new(self.clone())
    }
}

impl<S, T> Clone for ListDescriptor<S, T> {
    fn clone(&self) -> Self {
        Self { name: self.name, cell: self.cell, ttl: self.ttl }
    }
}

impl<S, T> fmt::Debug for ListDescriptor<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListDescriptor({})", self.name)
    }
}
