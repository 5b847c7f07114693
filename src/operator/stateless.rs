//! Operators without state, made from closures.

use std::marker::PhantomData;

use crate::element::Record;
use crate::operator::{Emit, Operator};

/// Calls a closure that emits any number of records for each record it receives.
pub struct FlatMap<In, Out, F> {
    function: F,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out, F> FlatMap<In, Out, F>
where
    In: Record,
    Out: Record,
    F: FnMut(In, &mut dyn Emit<Out>) + Clone + Send + 'static,
{
    /// The operator that calls `function`.
    pub fn new(function: F) -> Self {
        Self { function, types: PhantomData }
    }
}

impl<In, Out, F: Clone> Clone for FlatMap<In, Out, F> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), types: PhantomData }
    }
}

impl<In, Out, F> Operator for FlatMap<In, Out, F>
where
    In: Record,
    Out: Record,
    F: FnMut(In, &mut dyn Emit<Out>) + Clone + Send + 'static,
{
    type In = In;
    type Out = Out;

    #[inline]
    fn process(&mut self, record: In, out: &mut impl Emit<Out>) {
        (self.function)(record, out);
    }
}

/// Emits at most one record for each: what maps and filters are made of.
pub struct FilterMap<In, Out, F> {
    function: F,
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out, F> FilterMap<In, Out, F>
where
    In: Record,
    Out: Record,
    F: FnMut(In) -> Option<Out> + Clone + Send + 'static,
{
    /// The operator that calls `function`.
    pub fn new(function: F) -> Self {
        Self { function, types: PhantomData }
    }
}

impl<In, Out, F: Clone> Clone for FilterMap<In, Out, F> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), types: PhantomData }
    }
}

impl<In, Out, F> Operator for FilterMap<In, Out, F>
where
    In: Record,
    Out: Record,
    F: FnMut(In) -> Option<Out> + Clone + Send + 'static,
{
    type In = In;
    type Out = Out;

    #[inline]
    fn process(&mut self, record: In, out: &mut impl Emit<Out>) {
        if let Some(record) = (self.function)(record) {
            out.emit(record);
        }
    }
}
