//! The complete checkpoints that are kept. It does not know why one completes, nor how one is
//! deleted; it says which are too old.
//!
//! Invariant: ids strictly increase, and the latest one is never given up.

use crate::id::CheckpointId;
use crate::storage::CheckpointMetadata;

/// The retained checkpoints of a job, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct CompletedCheckpoints {
    checkpoints: Vec<CheckpointMetadata>,
    /// At least one (rule 110).
    retained: usize,
}

impl CompletedCheckpoints {
    /// What an earlier coordinator left, in any order. Nothing of it is given up before a newer
    /// checkpoint completes.
    pub(super) fn new(mut recovered: Vec<CheckpointMetadata>, retained: usize) -> Self {
        recovered.sort_by_key(|metadata| metadata.checkpoint);
        recovered.dedup_by_key(|metadata| metadata.checkpoint);
        Self { checkpoints: recovered, retained: retained.max(1) }
    }

    /// Adds a newer checkpoint and returns those that are no longer kept, the oldest first.
    ///
    /// # Panics
    /// If the checkpoint is not newer than all others.
    pub(super) fn add(&mut self, metadata: CheckpointMetadata) -> Vec<CheckpointId> {
        let newer = self.latest().is_none_or(|latest| latest.checkpoint < metadata.checkpoint);
        assert!(newer, "{} completes after a newer checkpoint", metadata.checkpoint);
        self.checkpoints.push(metadata);
        let excess = self.checkpoints.len().saturating_sub(self.retained);
        self.checkpoints.drain(..excess).map(|metadata| metadata.checkpoint).collect()
    }

    pub(super) fn latest(&self) -> Option<&CheckpointMetadata> {
        self.checkpoints.last()
    }

    pub(super) fn contains(&self, checkpoint: CheckpointId) -> bool {
        self.checkpoints.iter().any(|metadata| metadata.checkpoint == checkpoint)
    }

    pub(super) fn as_slice(&self) -> &[CheckpointMetadata] {
        &self.checkpoints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::JobShape;
    use crate::id::AttemptId;

    fn metadata(checkpoint: u64) -> CheckpointMetadata {
        CheckpointMetadata {
            checkpoint: CheckpointId::new(checkpoint),
            attempt: AttemptId::new(1),
            job: "job".to_owned(),
            shape: JobShape::default(),
            tasks: Vec::new(),
            pools: Vec::new(),
            finished: false,
        }
    }

    #[test]
    fn the_oldest_go_when_a_newer_one_completes_and_the_latest_stays_whatever_is_configured() {
        let found = [3, 1, 2].map(metadata).to_vec();
        let mut completed = CompletedCheckpoints::new(found, 0);
        assert_eq!(completed.latest(), Some(&metadata(3)));
        assert_eq!(completed.add(metadata(4)), [1, 2, 3].map(CheckpointId::new));
        assert_eq!(completed.as_slice(), [metadata(4)]);

        let mut completed = CompletedCheckpoints::new(vec![metadata(1)], 2);
        assert_eq!(completed.add(metadata(2)), []);
        assert_eq!(completed.add(metadata(3)), [CheckpointId::new(1)]);
    }

    #[test]
    #[should_panic(expected = "chk-2 completes after a newer checkpoint")]
    fn an_older_checkpoint_can_not_become_the_latest() {
        CompletedCheckpoints::new(vec![metadata(3)], 1).add(metadata(2));
    }
}
