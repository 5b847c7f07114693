//! What always holds between two calls. A simulator checks it after every step.

use super::pending::InFlight;
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
                    self.failures <= self.config.checkpoint_failures_tolerable,
                    "too many checkpoint failures are a failure of the attempt"
                );
            }
            Phase::Finishing { .. } => {
                assert!(
                    self.restore_point().is_some_and(|latest| latest.finished),
                    "a job is finishing only by a final checkpoint"
                );
            }
            Phase::AwaitingMetadata { .. } => {
                assert!(self.in_flight.is_some(), "recovery waits for metadata in doubt alone");
            }
            Phase::AwaitingAttempt
            | Phase::AwaitingCancelled { .. }
            | Phase::AwaitingRestart { .. }
            | Phase::Ended => {}
        }
    }

    fn check_in_flight(&self) {
        let Some(in_flight) = &self.in_flight else { return };
        let checkpoint = in_flight.checkpoint();
        assert_eq!(checkpoint.next(), self.checkpoint_next, "the one in flight is the newest");
        assert!(!self.completed.contains(checkpoint), "what is complete is not in flight");
        let mechanism = self.config.mechanism;
        assert!(mechanism.takes_checkpoints(), "no mechanism, no checkpoint");
        assert!(
            !mechanism.awaits_end() || self.reports.all_at_end() || !self.phase.is_live(),
            "where only the end is covered a checkpoint begins at the end"
        );
        match in_flight {
            InFlight::AwaitingAcks(_) => {
                assert!(
                    matches!(self.phase, Phase::Running { .. }),
                    "parts are collected only while every task runs (rules 39, 53)"
                );
            }
            InFlight::AwaitingMetadata(_) => {
                assert!(
                    matches!(
                        self.phase,
                        Phase::Running { .. }
                            | Phase::AwaitingCancelled { .. }
                            | Phase::AwaitingMetadata { .. }
                    ),
                    "no attempt begins while metadata is in flight or in doubt (rules 121, 122)"
                );
            }
        }
    }
}
