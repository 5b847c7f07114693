//! Fusing: operators that are chained become one type, so that the compiler makes one loop of them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::vec::IntoIter;

use crate::element::Record;
use crate::graph::Subtask;
use crate::operator::{Cell, Emit, Operator, OperatorTraits};
use crate::state::RestoreError;
use crate::state::snapshot::{Extent, OperatorSnapshot, OperatorState};
use crate::time::{EventTime, ProcessingTime};

/// One or more operators fused; what [`crate::operator::stage::Stage`] erases.
pub trait Segment: Clone + Send + 'static {
    /// The records the first operator receives.
    type In: Record;
    /// The records the last operator emits.
    type Out: Record;

    /// Handles one record.
    fn process(&mut self, record: Self::In, out: &mut impl Emit<Self::Out>);

    /// Handles many.
    fn process_all(&mut self, records: IntoIter<Self::In>, out: &mut impl Emit<Self::Out>);

    /// Handles a batch.
    fn process_batch(&mut self, records: Vec<Self::In>) -> Vec<Self::Out> {
        let mut out = Vec::with_capacity(records.len());
        self.process_all(records.into_iter(), &mut out);
        out
    }

    /// As [`Operator::open`], for each operator.
    fn open(&mut self, subtask: &Subtask);
    /// As [`Operator::on_watermark`], in chain order.
    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<Self::Out>);
    /// As [`Operator::on_clock`], in chain order.
    fn on_clock(&mut self, now: ProcessingTime, out: &mut impl Emit<Self::Out>);
    /// As [`Operator::next_wake`], the earliest of all.
    fn next_wake(&self) -> Option<ProcessingTime>;
    /// As [`Operator::on_end_of_data`], in chain order.
    fn on_end_of_data(&mut self, out: &mut impl Emit<Self::Out>);
    /// As [`Operator::track_changes`], for each operator.
    fn track_changes(&mut self);
    /// Appends the snapshot, or the changes, of each operator.
    fn snapshot(&mut self, extent: Extent, into: &mut Vec<OperatorSnapshot>);
    /// Gives each operator the state, or the changes, with its uid.
    fn restore(&mut self, extent: Extent, states: &[OperatorState]) -> Result<(), RestoreError>;
    /// Appends uid and traits of each operator.
    fn describe(&self, into: &mut Vec<(Arc<str>, OperatorTraits)>);
    /// As [`Operator::cell_of`], of the first operator: keyed state always stands first.
    fn cell_of(&self, record: &Self::In) -> Option<Vec<u8>>;
    /// The record as it leaves, if the segment does nothing to any.
    fn unchanged<'a>(&self, _record: &'a Self::In) -> Option<&'a Self::Out> {
        None
    }
    /// Appends uid and cells of each operator that keeps keyed state.
    fn cells(&self, into: &mut Vec<(Arc<str>, Vec<Cell>)>);
}

/// No operator: records pass through.
pub struct Pass<T>(PhantomData<fn(T) -> T>);

impl<T> Default for Pass<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> Clone for Pass<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T: Record> Segment for Pass<T> {
    type In = T;
    type Out = T;

    #[inline]
    fn process(&mut self, record: T, out: &mut impl Emit<T>) {
        out.emit(record);
    }

    fn process_all(&mut self, records: IntoIter<T>, out: &mut impl Emit<T>) {
        records.for_each(|record| out.emit(record));
    }

    fn process_batch(&mut self, records: Vec<T>) -> Vec<T> {
        records
    }

    fn open(&mut self, _subtask: &Subtask) {}

    fn on_watermark(&mut self, _watermark: EventTime, _out: &mut impl Emit<T>) {}

    fn on_clock(&mut self, _now: ProcessingTime, _out: &mut impl Emit<T>) {}

    fn next_wake(&self) -> Option<ProcessingTime> {
        None
    }

    fn on_end_of_data(&mut self, _out: &mut impl Emit<T>) {}

    fn track_changes(&mut self) {}

    fn snapshot(&mut self, _extent: Extent, _into: &mut Vec<OperatorSnapshot>) {}

    fn restore(&mut self, _extent: Extent, _states: &[OperatorState]) -> Result<(), RestoreError> {
        Ok(())
    }

    fn describe(&self, _into: &mut Vec<(Arc<str>, OperatorTraits)>) {}

    fn cell_of(&self, _record: &T) -> Option<Vec<u8>> {
        None
    }

    fn unchanged<'a>(&self, record: &'a T) -> Option<&'a T> {
        Some(record)
    }

    fn cells(&self, _into: &mut Vec<(Arc<str>, Vec<Cell>)>) {}
}

/// One operator under its uid.
#[derive(Clone)]
pub struct Named<O> {
    uid: Arc<str>,
    operator: O,
}

impl<O: Operator> Named<O> {
    /// `operator` under `uid`.
    pub fn new(uid: &str, operator: O) -> Self {
        Self { uid: uid.into(), operator }
    }
}

impl<O: Operator> Segment for Named<O> {
    type In = O::In;
    type Out = O::Out;

    #[inline]
    fn process(&mut self, record: O::In, out: &mut impl Emit<O::Out>) {
        self.operator.process(record, out);
    }

    #[inline]
    fn process_all(&mut self, records: IntoIter<O::In>, out: &mut impl Emit<O::Out>) {
        self.operator.process_all(records, out);
    }

    fn open(&mut self, subtask: &Subtask) {
        self.operator.open(subtask);
    }

    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<O::Out>) {
        self.operator.on_watermark(watermark, out);
    }

    fn on_clock(&mut self, now: ProcessingTime, out: &mut impl Emit<O::Out>) {
        self.operator.on_clock(now, out);
    }

    fn next_wake(&self) -> Option<ProcessingTime> {
        self.operator.next_wake()
    }

    fn on_end_of_data(&mut self, out: &mut impl Emit<O::Out>) {
        self.operator.on_end_of_data(out);
    }

    fn track_changes(&mut self) {
        self.operator.track_changes();
    }

    fn snapshot(&mut self, extent: Extent, into: &mut Vec<OperatorSnapshot>) {
        let parts = match extent {
            Extent::Whole => self.operator.snapshot(),
            Extent::Changes => self.operator.changes(),
        };
        if !parts.is_empty() {
            into.push(OperatorSnapshot {
                uid: self.uid.clone(),
                keyed: parts.keyed,
                timers: parts.timers,
                processing_timers: parts.processing_timers,
                watermark: parts.watermark,
                lists: parts.lists,
            });
        }
    }

    fn restore(&mut self, extent: Extent, states: &[OperatorState]) -> Result<(), RestoreError> {
        let restored = match (states.iter().find(|state| *state.uid == *self.uid), extent) {
            (Some(state), Extent::Whole) => self.operator.restore(state),
            (Some(changes), Extent::Changes) => self.operator.apply(changes),
            (None, _) => Ok(()),
        };
        let uid = || self.uid.to_string();
        restored.map_err(|error| RestoreError::Operator { uid: uid(), error: Box::new(error) })
    }

    fn describe(&self, into: &mut Vec<(Arc<str>, OperatorTraits)>) {
        into.push((self.uid.clone(), self.operator.traits()));
    }

    fn cell_of(&self, record: &O::In) -> Option<Vec<u8>> {
        self.operator.cell_of(record)
    }

    fn cells(&self, into: &mut Vec<(Arc<str>, Vec<Cell>)>) {
        if self.operator.traits().stateful {
            into.push((self.uid.clone(), self.operator.cells()));
        }
    }
}

/// Two segments, the second fed by the first.
#[derive(Clone)]
pub struct Chain<A, B> {
    first: A,
    second: B,
}

impl<A: Segment, B: Segment<In = A::Out>> Chain<A, B> {
    /// `second` behind `first`.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second }
    }
}

/// Emits into the next segment of a chain.
struct IntoNext<'a, B, E> {
    next: &'a mut B,
    out: &'a mut E,
}

impl<B: Segment, E: Emit<B::Out>> Emit<B::In> for IntoNext<'_, B, E> {
    #[inline]
    fn emit(&mut self, record: B::In) {
        self.next.process(record, self.out);
    }
}

impl<A: Segment, B: Segment<In = A::Out>> Segment for Chain<A, B> {
    type In = A::In;
    type Out = B::Out;

    #[inline]
    fn process(&mut self, record: A::In, out: &mut impl Emit<B::Out>) {
        self.first.process(record, &mut IntoNext { next: &mut self.second, out });
    }

    #[inline]
    fn process_all(&mut self, records: IntoIter<A::In>, out: &mut impl Emit<B::Out>) {
        self.first.process_all(records, &mut IntoNext { next: &mut self.second, out });
    }

    fn open(&mut self, subtask: &Subtask) {
        self.first.open(subtask);
        self.second.open(subtask);
    }

    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<B::Out>) {
        self.first.on_watermark(watermark, &mut IntoNext { next: &mut self.second, out });
        self.second.on_watermark(watermark, out);
    }

    fn on_clock(&mut self, now: ProcessingTime, out: &mut impl Emit<B::Out>) {
        self.first.on_clock(now, &mut IntoNext { next: &mut self.second, out });
        self.second.on_clock(now, out);
    }

    fn next_wake(&self) -> Option<ProcessingTime> {
        self.first.next_wake().into_iter().chain(self.second.next_wake()).min()
    }

    fn on_end_of_data(&mut self, out: &mut impl Emit<B::Out>) {
        self.first.on_end_of_data(&mut IntoNext { next: &mut self.second, out });
        self.second.on_end_of_data(out);
    }

    fn track_changes(&mut self) {
        self.first.track_changes();
        self.second.track_changes();
    }

    fn snapshot(&mut self, extent: Extent, into: &mut Vec<OperatorSnapshot>) {
        self.first.snapshot(extent, into);
        self.second.snapshot(extent, into);
    }

    fn restore(&mut self, extent: Extent, states: &[OperatorState]) -> Result<(), RestoreError> {
        self.first.restore(extent, states)?;
        self.second.restore(extent, states)
    }

    fn describe(&self, into: &mut Vec<(Arc<str>, OperatorTraits)>) {
        self.first.describe(into);
        self.second.describe(into);
    }

    fn cell_of(&self, record: &A::In) -> Option<Vec<u8>> {
        match self.first.unchanged(record) {
            Some(record) => self.second.cell_of(record),
            None => self.first.cell_of(record),
        }
    }

    fn cells(&self, into: &mut Vec<(Arc<str>, Vec<Cell>)>) {
        self.first.cells(into);
        self.second.cells(into);
    }
}
