//! What a user can set about checkpoints and restarts.

use std::time::Duration;

use crate::guarantee::{Mechanism, StateHome};

/// How and when checkpoints are taken and what happens after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobConfig {
    /// How the guarantee is reached.
    pub mechanism: Mechanism,
    /// Where keyed state lives.
    pub state: StateHome,
    /// The time between two triggers; raised to `checkpoint_pause_min` if that is longer (rule 44).
    pub checkpoint_interval: Duration,
    /// The least time between the completion of one checkpoint and the trigger of the next.
    pub checkpoint_pause_min: Duration,
    /// A checkpoint that is not complete after this time is aborted.
    pub checkpoint_timeout: Duration,
    /// Under aligned-timeout: an alignment that is not done this long after the checkpoint was
    /// triggered is switched to unaligned (rule 34).
    pub alignment_timeout: Duration,
    /// How many checkpoints in a row may fail before the job is restarted (rule 55).
    pub checkpoint_failures_tolerable: u32,
    /// How many checkpoints may be in flight: the next one is triggered although this many less one
    /// are not complete (rule 43). Barriers of several follow one another on a channel, so only
    /// where they do not overtake (rule 27).
    pub checkpoints_concurrent: usize,
    /// How many complete checkpoints are kept.
    pub checkpoints_retained: usize,
    /// What happens after a task failure.
    pub restart: RestartStrategy,
    /// How many records a source hands on at a time, and the least that a channel collects before
    /// it sends.
    pub batch_records: usize,
    /// Under at-most-once: how many records behind the last reserved position make a source reserve
    /// the next one while it still has some to hand out. It reads twice as many ahead, and up to
    /// sixteen times as many if the store is so slow that nothing is left to hand out meanwhile.
    pub reservation_records: usize,
    /// How many batches a channel holds before its sender has to wait.
    pub channel_batches: usize,
    /// How many records a source subtask has open at the most, where they are acknowledged.
    pub unacknowledged_max: usize,
    /// What a source has read is read again if it is not acknowledged in full after this time, or
    /// after twice that at the most (rule 82).
    pub acknowledge_timeout: Duration,
    /// Under transactional updates: a task writes all of its state anew when the changes written
    /// since it last did so are larger than that was, and than so many bytes.
    pub changes_min_bytes: u64,
    /// How a commit is asked for again that the external system has refused (rule 69).
    pub commit_retry: CommitRetry,
    /// What follows when a log has dropped records that are still needed.
    pub on_loss: OnLoss,
}

impl JobConfig {
    /// How long what a sink has prepared may have to wait for its commit: for as many checkpoints
    /// as may fail and the one that completes, then for a restart (rule 67).
    pub fn commit_within(&self) -> Duration {
        let restart = match self.restart {
            RestartStrategy::None => Duration::ZERO,
            RestartStrategy::FixedDelay { delay, .. }
            | RestartStrategy::FailureRate { delay, .. } => delay,
            RestartStrategy::Exponential { max, .. } => max,
        };
        let interval = self.checkpoint_interval.max(self.checkpoint_pause_min);
        let checkpoints = self.checkpoint_failures_tolerable.saturating_add(1);
        let each = interval.saturating_add(self.checkpoint_timeout);
        each.saturating_mul(checkpoints).saturating_add(restart)
    }
}

impl Default for JobConfig {
    fn default() -> Self {
        Self {
            mechanism: Mechanism::Aligned,
            state: StateHome::Heap,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_pause_min: Duration::ZERO,
            checkpoint_timeout: Duration::from_secs(600),
            alignment_timeout: Duration::from_millis(100),
            checkpoint_failures_tolerable: 0,
            checkpoints_concurrent: 1,
            checkpoints_retained: 1,
            restart: RestartStrategy::FixedDelay { attempts: 3, delay: Duration::from_millis(100) },
            batch_records: 1024,
            reservation_records: 65_536,
            channel_batches: 8,
            unacknowledged_max: 65_536,
            acknowledge_timeout: Duration::from_secs(30),
            changes_min_bytes: 1 << 16,
            commit_retry: CommitRetry::default(),
            on_loss: OnLoss::Fail,
        }
    }
}

/// What happens after a task failure that another attempt may get past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartStrategy {
    /// The job fails.
    None,
    /// The job is restarted after `delay`, at most `attempts` times without a completed checkpoint
    /// in between.
    FixedDelay {
        /// How many restarts in a row.
        attempts: u32,
        /// The time before each.
        delay: Duration,
    },
    /// The job is always restarted; the delay doubles with each restart.
    Exponential {
        /// The first delay.
        first: Duration,
        /// The longest.
        max: Duration,
        /// After this time without a failure the next delay is the first again.
        quiet: Duration,
    },
    /// The job is restarted unless it fails more often than this.
    FailureRate {
        /// The most failures within the interval.
        failures: u32,
        /// The interval.
        interval: Duration,
        /// The time before each restart.
        delay: Duration,
    },
}

/// What follows when a log has dropped records that are still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The job fails and says which records are gone.
    Fail,
    /// The source goes on behind the gap. The records are counted as part of its state and
    /// reported, and the claim allows their loss. Where records are acknowledged the job fails all
    /// the same: what is to be read again is gone.
    GoOn,
}

/// How a commit is asked for again that was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRetry {
    /// How often it is asked for in one attempt, the first time among them. Then the task fails,
    /// and its successor begins to count anew.
    pub tries: u32,
    /// The time before it is asked for again.
    pub pause: Duration,
}

impl Default for CommitRetry {
    fn default() -> Self {
        Self { tries: 5, pause: Duration::from_millis(100) }
    }
}
