//! What users write: operators, keyed processes, sources and sinks, one trait each. None of them
//! knows which driver runs it. Chained operators are fused by the compiler into one loop.

pub mod chain;
pub mod join;
pub mod keyed;
pub mod pattern;
pub mod queue;
pub(crate) mod read_ahead;
pub mod route;
pub mod sink;
pub mod source;
mod split_progress;
pub mod split_source;
pub mod stage;
pub mod stateless;
pub(crate) mod unacknowledged;
pub mod window;

use std::sync::Arc;
use std::vec::IntoIter;

use crate::element::Record;
use crate::graph::Subtask;
use crate::state::RestoreError;
use crate::state::snapshot::{ListShare, OperatorState, Share};
use crate::time::{EventTime, ProcessingTime};

/// Where an operator's output records go.
pub trait Emit<T> {
    /// Hands one record on.
    fn emit(&mut self, record: T);
}

impl<T> Emit<T> for Vec<T> {
    #[inline]
    fn emit(&mut self, record: T) {
        self.push(record);
    }
}

/// An operator: receives a record, updates its state, emits records.
///
/// It must be deterministic: the same state and the same input give the same output (ORACLES C15
/// D4). Without state of its own only [`Operator::process`] is to be written. State by key is
/// better kept by a [`keyed::KeyedProcess`].
pub trait Operator: Clone + Send + 'static {
    /// The records it receives.
    type In: Record;
    /// The records it emits.
    type Out: Record;

    /// Handles one record.
    fn process(&mut self, record: Self::In, out: &mut impl Emit<Self::Out>);

    /// Handles many records, in their order. State that they need may be looked at all at once, so
    /// that the memory of one is not waited for behind that of another.
    #[inline]
    fn process_all(&mut self, records: IntoIter<Self::In>, out: &mut impl Emit<Self::Out>) {
        records.for_each(|record| self.process(record, out));
    }

    /// Called once before anything else: where this copy of the operator runs.
    fn open(&mut self, _subtask: &Subtask) {}

    /// The event time of all inputs has reached `watermark`. [`EventTime::MAX`] at the end of data.
    fn on_watermark(&mut self, _watermark: EventTime, _out: &mut impl Emit<Self::Out>) {}

    /// What the clock of the machine says, if the operator
    /// [uses it](OperatorTraits::uses_clock): before it gets records, and when
    /// [`Operator::next_wake`] has come. It never goes back.
    fn on_clock(&mut self, _now: ProcessingTime, _out: &mut impl Emit<Self::Out>) {}

    /// When the operator is to be told the time although it gets no record.
    fn next_wake(&self) -> Option<ProcessingTime> {
        None
    }

    /// All inputs have ended; called once over all attempts, after the last watermark.
    fn on_end_of_data(&mut self, _out: &mut impl Emit<Self::Out>) {}

    /// The operator's state at the barrier. Must not take long: shares are encoded later.
    fn snapshot(&mut self) -> StateParts {
        StateParts::default()
    }

    /// Takes over the state that [`Operator::snapshot`] gave. Called after `open`, if at all.
    ///
    /// # Errors
    /// If the bytes are not a state of this operator.
    fn restore(&mut self, _state: &OperatorState) -> Result<(), RestoreError> {
        Ok(())
    }

    /// From now on [`Operator::changes`] is asked for.
    fn track_changes(&mut self) {}

    /// What has changed of the state since the last call. Unless an operator keeps account of that,
    /// it is all of it.
    fn changes(&mut self) -> StateParts {
        self.snapshot()
    }

    /// Takes over changes on top of the state that they were made to.
    ///
    /// # Errors
    /// If the bytes are not changes of this operator's state.
    fn apply(&mut self, changes: &OperatorState) -> Result<(), RestoreError> {
        self.restore(changes)
    }

    /// What the operator does with state.
    fn traits(&self) -> OperatorTraits {
        OperatorTraits::default()
    }

    /// The cell of keyed state that `record` belongs to: its key in the checkpoint encoding.
    fn cell_of(&self, _record: &Self::In) -> Option<Vec<u8>> {
        None
    }

    /// Every cell of keyed state: key and value in the checkpoint encoding, in a fixed order.
    fn cells(&self) -> Vec<Cell> {
        Vec::new()
    }
}

/// A cell of keyed state: the key and the value in the checkpoint encoding.
pub type Cell = (Vec<u8>, Vec<u8>);

/// The parts of one operator's snapshot.
#[derive(Clone, Default)]
pub struct StateParts {
    /// Keyed state.
    pub keyed: Option<Arc<dyn Share>>,
    /// Event-time timers.
    pub timers: Option<Arc<dyn Share>>,
    /// Processing-time timers.
    pub processing_timers: Option<Arc<dyn Share>>,
    /// How far event time was, if that is part of the state.
    pub watermark: Option<EventTime>,
    /// State that is not keyed (see [`OperatorList`](crate::state::operator::OperatorList)).
    pub lists: Vec<ListShare>,
}

impl StateParts {
    /// Whether there is no state.
    pub fn is_empty(&self) -> bool {
        let Self { keyed, timers, processing_timers, watermark, lists } = self;
        let has_groups = [keyed, timers, processing_timers].into_iter().any(Option::is_some);
        !has_groups && watermark.is_none() && lists.is_empty()
    }
}

/// What the rows of an operator depend on of all that its state has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsRestOn {
    /// On which records, and on how often each.
    #[default]
    Counts,
    /// On which records, and not on how often each: that says only how often there is a row.
    Records,
    /// On none of them: whatever the state holds, no row is another one. It may be missing, or be
    /// there again.
    Nothing,
}

/// What an operator declares about itself, for the claim that is inferred from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperatorTraits {
    /// It keeps state.
    pub stateful: bool,
    /// Its state is the same however often a record was processed, as long as it was once.
    pub idempotent: bool,
    /// It is idempotent, and gives nothing for a record that it has processed before.
    pub absorbs: bool,
    /// It keeps state, and gives all that comes of a record when it handles the record, each time.
    pub answers: bool,
    /// What its rows depend on of what its state has taken in.
    pub rows: RowsRestOn,
    /// Its output may differ between two runs over the same state and input: it reads a clock,
    /// draws numbers, or depends on the order of a hash map.
    pub varies: bool,
    /// It is to be told what the clock of the machine says.
    pub uses_clock: bool,
}
