//! A vertex's fused operators with their types erased: once per batch, never per record.

use std::sync::Arc;

use crate::element::Batch;
use crate::graph::Subtask;
use crate::operator::chain::Segment;
use crate::operator::{Cell, OperatorTraits};
use crate::state::RestoreError;
use crate::state::codec::{DecodeError, Format};
use crate::state::snapshot::{Extent, OperatorSnapshot, OperatorState};
use crate::time::{EventTime, ProcessingTime};

/// What a task runs between its gate and its outlet.
pub trait Stage: Send {
    /// As [`crate::operator::Operator::open`].
    fn open(&mut self, subtask: &Subtask);
    /// Handles a batch; what the last operator emitted comes back.
    fn process(&mut self, batch: Batch) -> Batch;
    /// As [`crate::operator::Operator::on_watermark`].
    fn on_watermark(&mut self, watermark: EventTime) -> Batch;
    /// As [`crate::operator::Operator::on_clock`].
    fn on_clock(&mut self, now: ProcessingTime) -> Batch;
    /// As [`crate::operator::Operator::next_wake`], the earliest of all.
    fn next_wake(&self) -> Option<ProcessingTime>;
    /// As [`crate::operator::Operator::on_end_of_data`].
    fn on_end_of_data(&mut self) -> Batch;
    /// The snapshot of each operator that keeps state, in chain order.
    fn snapshot(&mut self) -> Vec<OperatorSnapshot>;
    /// As [`crate::operator::Operator::track_changes`].
    fn track_changes(&mut self);
    /// What has changed of each operator's state since the last call.
    fn changes(&mut self) -> Vec<OperatorSnapshot>;
    /// The records that arrive here, from their bytes.
    ///
    /// # Errors
    /// If they are not such records.
    fn decode_input(&self, format: Format, bytes: &[u8]) -> Result<Batch, DecodeError>;
    /// Restores every operator.
    ///
    /// # Errors
    /// If an operator can not read its state.
    fn restore(&mut self, states: &[OperatorState]) -> Result<(), RestoreError>;
    /// Applies changes to every operator.
    ///
    /// # Errors
    /// If an operator can not read its changes.
    fn apply(&mut self, changes: &[OperatorState]) -> Result<(), RestoreError>;
    /// Uid and traits of each operator.
    fn describe(&self) -> Vec<(Arc<str>, OperatorTraits)>;
    /// The cell of keyed state that a record of `batch` belongs to.
    fn cell_of(&self, batch: &Batch, position: usize) -> Option<Vec<u8>>;
    /// Uid and cells of each operator that keeps keyed state.
    fn cells(&self) -> Vec<(Arc<str>, Vec<Cell>)>;
    /// A copy that shares nothing that can be seen.
    fn clone_box(&self) -> Box<dyn Stage>;
}

impl Clone for Box<dyn Stage> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// Erases the types of a segment.
#[derive(Clone)]
pub struct Fused<S>(
    /// The segment.
    pub S,
);

impl<S: Segment> Stage for Fused<S> {
    fn open(&mut self, subtask: &Subtask) {
        self.0.open(subtask);
    }

    fn process(&mut self, batch: Batch) -> Batch {
        Batch::new(self.0.process_batch(batch.into_records()))
    }

    fn on_watermark(&mut self, watermark: EventTime) -> Batch {
        let mut out = Vec::new();
        self.0.on_watermark(watermark, &mut out);
        Batch::new(out)
    }

    fn on_clock(&mut self, now: ProcessingTime) -> Batch {
        let mut out = Vec::new();
        self.0.on_clock(now, &mut out);
        Batch::new(out)
    }

    fn next_wake(&self) -> Option<ProcessingTime> {
        self.0.next_wake()
    }

    fn on_end_of_data(&mut self) -> Batch {
        let mut out = Vec::new();
        self.0.on_end_of_data(&mut out);
        Batch::new(out)
    }

    fn snapshot(&mut self) -> Vec<OperatorSnapshot> {
        let mut parts = Vec::new();
        self.0.snapshot(Extent::Whole, &mut parts);
        parts
    }

    fn track_changes(&mut self) {
        self.0.track_changes();
    }

    fn changes(&mut self) -> Vec<OperatorSnapshot> {
        let mut parts = Vec::new();
        self.0.snapshot(Extent::Changes, &mut parts);
        parts
    }

    fn restore(&mut self, states: &[OperatorState]) -> Result<(), RestoreError> {
        self.0.restore(Extent::Whole, states)
    }

    fn apply(&mut self, changes: &[OperatorState]) -> Result<(), RestoreError> {
        self.0.restore(Extent::Changes, changes)
    }

    fn decode_input(&self, format: Format, bytes: &[u8]) -> Result<Batch, DecodeError> {
        Batch::decode::<S::In>(format, bytes)
    }

    fn describe(&self) -> Vec<(Arc<str>, OperatorTraits)> {
        let mut operators = Vec::new();
        self.0.describe(&mut operators);
        operators
    }

    fn cell_of(&self, batch: &Batch, position: usize) -> Option<Vec<u8>> {
        self.0.cell_of(&batch.records()[position])
    }

    fn cells(&self) -> Vec<(Arc<str>, Vec<Cell>)> {
        let mut cells = Vec::new();
        self.0.cells(&mut cells);
        cells
    }

    fn clone_box(&self) -> Box<dyn Stage> {
        Box::new(self.clone())
    }
}
