//! What always holds between two calls. A simulator checks it after every step.

use super::{Coordinator, Phase};

impl Coordinator {
    /// Checks the invariants that can be seen in the machine's own state.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check_invariants(&self) {
        let ids = self.completed().iter().map(|metadata| metadata.checkpoint);
        assert!(ids.is_sorted_by(|older, newer| older < newer), "completed ids increase");
        let latest = self.completed().last();
        assert!(
            latest.is_none_or(|latest| latest.checkpoint < self.checkpoint_next),
            "the next id lies above every complete checkpoint"
        );
        assert!(
            latest.is_none_or(|latest| latest.attempt <= self.attempt),
            "no checkpoint was taken by an attempt to come"
        );
        self.check_in_flight();
        match self.phase {
            Phase::AwaitingTasks => {
                assert!(!self.reports.all_running(), "an attempt whose tasks all run is running");
            }
            Phase::Running { .. } => {
                assert!(self.reports.all_running(), "no running job waits for a task");
                assert!(
                    self.failed.len() <= self.config.checkpoint_failures_tolerable as usize,
                    "too many checkpoint failures are a failure of the attempt"
                );
            }
            Phase::Finishing { .. } => {
                assert!(
                    self.is_at_last_checkpoint(),
                    "a job is finishing only by a final checkpoint, or by the one it stops at"
                );
            }
            Phase::AwaitingMetadata { .. } => {
                assert!(
                    self.in_flight.finalizing.is_some(),
                    "recovery waits for metadata in doubt alone"
                );
            }
            Phase::AwaitingAttempt
            | Phase::AwaitingCancelled { .. }
            | Phase::AwaitingRestart { .. }
            | Phase::Ended => {}
        }
    }

    fn check_in_flight(&self) {
        if !self.is_in_flight() {
            return;
        }
        let latest = self.completed.latest().map(|latest| latest.checkpoint);
        for checkpoint in self.in_flight.checkpoints() {
            assert!(checkpoint < self.checkpoint_next, "what is in flight has begun");
            assert!(latest < Some(checkpoint), "older ones are subsumed (rule 49)");
        }
        let count = self.in_flight.checkpoints().count();
        assert!(count <= self.concurrent_max(), "{count} are in flight (rule 43)");
        let mechanism = self.config.mechanism;
        assert!(mechanism.takes_checkpoints(), "no mechanism, no checkpoint");
        assert!(
            !mechanism.awaits_end() || self.reports.all_at_end() || !self.phase.is_live(),
            "where only the end is covered a checkpoint begins at the end"
        );
        assert!(
            self.in_flight.collecting.is_empty() || matches!(self.phase, Phase::Running { .. }),
            "parts are collected only while every task runs (rules 39, 53)"
        );
        assert!(
            self.in_flight.finalizing.is_none()
                || matches!(
                    self.phase,
                    Phase::Running { .. }
                        | Phase::AwaitingCancelled { .. }
                        | Phase::AwaitingMetadata { .. }
                ),
            "no attempt begins while metadata is in flight or in doubt (rules 121, 122)"
        );
    }
}
