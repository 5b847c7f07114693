//! How far a source has come in one split: what was emitted of it, and what was read.

use crate::config::OnLoss;
use crate::element::Batch;
use crate::operator::source::{ReadOutcome, WatermarkStrategy};
use crate::state::snapshot::SplitState;

#[derive(Clone)]
pub(super) struct SplitProgress {
    /// What was emitted of it.
    pub(super) state: SplitState,
    /// What was read of it, if that is more.
    ahead: Option<SplitState>,
    /// Reads in a row that gave nothing.
    pub(super) empty_reads: u32,
    pub(super) ended: bool,
}

impl SplitProgress {
    pub(super) fn new(state: SplitState) -> Self {
        Self { state, ahead: None, empty_reads: 0, ended: false }
    }

    /// Where it is read on.
    pub(super) fn read_to(&self) -> &SplitState {
        self.ahead.as_ref().unwrap_or(&self.state)
    }

    /// An answer to a read of it is going to wait. If a gap ends the job it is not passed over.
    pub(super) fn read_ahead(&mut self, outcome: &ReadOutcome, on_loss: OnLoss) {
        let ahead = self.ahead.get_or_insert_with(|| self.state.clone());
        match outcome {
            ReadOutcome::Records { records, cursor } => {
                ahead.cursor.clone_from(cursor);
                ahead.records += records.len() as u64;
            }
            ReadOutcome::Gone { wanted, first, cursor } if on_loss == OnLoss::GoOn => {
                ahead.pass_over(*wanted, *first, cursor.clone());
            }
            ReadOutcome::Gone { .. }
            | ReadOutcome::Messages { .. }
            | ReadOutcome::Nothing
            | ReadOutcome::End
            | ReadOutcome::Failed(_) => {}
        }
    }

    /// Records of the split are being emitted.
    pub(super) fn note(&mut self, records: &Batch, watermarks: Option<&WatermarkStrategy>) {
        self.state.records += records.len() as u64;
        self.empty_reads = 0;
        if let Some(strategy) = watermarks
            && let Some(latest) = strategy.times.latest(records)
        {
            let behind = latest.saturating_add(-1 - strategy.disorder_ms);
            self.state.watermark = self.state.watermark.max(Some(behind));
        }
    }
}
