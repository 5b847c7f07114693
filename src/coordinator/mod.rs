//! The coordinator's machine: it starts attempts of a job, triggers checkpoints, collects their
//! parts, makes them complete, tells the tasks, and after a failure begins again at the latest one.
//!
//! It does not know what tasks do, what their state looks like, how messages travel, or where bytes
//! go; it never reads the store, but is told at its start what is there.
//!
//! ```text
//!              not stored
//!     +------------------------------+
//!     v                              |          Deploy
//! AwaitingRestart --pause--> AwaitingAttempt --stored--> AwaitingTasks
//!     ^                                                   |        | all run, restored
//!     | restart                                   all run |        | from a final checkpoint
//!     |                                                   v        v
//! (decision) --> Failed                              Running --> Finishing --> Finished
//!     ^                                                   final     all tasks have
//!     | nothing in flight                            checkpoint     committed
//!     |
//! AwaitingMetadata <--tasks stopped-- AwaitingCancelled <--failure-- AwaitingTasks, Running,
//!                                                       Cancel       Finishing
//! ```
//!
//! The methods are of four kinds: getters ([`phase`](Coordinator::phase), ...), facts
//! (`handle_*`), commands ([`cancel`](Coordinator::cancel)) and
//! [`poll_output`](Coordinator::poll_output), which is to be drained after each of the others.
//!
//! Invariants ([`check_invariants`](Coordinator::check_invariants)):
//! - Attempts strictly increase, and one is deployed only when its number is durable; so a later
//!   coordinator, too, starts a higher one, and messages of an older attempt are dropped.
//! - Checkpoint ids strictly increase within this coordinator and lie above every complete one. The
//!   id of a checkpoint that an earlier coordinator left incomplete may be used again: it was never
//!   complete, so nobody relies on it, and its parts have other names, which carry the attempt.
//! - Checkpoints in flight are newer than every complete one, and no more than the user allows.
//!   They collect parts only while the job runs; the metadata of one may still be on its way while
//!   the attempt is being stopped.
//! - A checkpoint is complete when the store has said `Stored` for its metadata, and only then are
//!   older ones discarded, is a task told, or is it restored.
//! - Where to begin again is decided when no metadata write is in flight or in doubt (rules 50,
//!   121, 122). Otherwise the job could begin at an older checkpoint, which aborts all later
//!   transactions, and a later coordinator could find the newer one complete and rely on them.
//! - What a reader is told of splits between the trigger of a checkpoint and its own part of it
//!   waits until that part is there, or the checkpoint is over (rule 80): the coordinator's part is
//!   taken at the trigger.

mod attempts;
mod checkpoints;
mod completed;
mod enumerator;
mod invariants;
mod output;
mod pending;
mod phase;
mod recovery;
mod restarts;
mod splits;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use self::completed::CompletedCheckpoints;
use self::enumerator::Enumerator;
pub use self::output::{
    CoordinatorNote, CoordinatorOutput, CoordinatorStats, Plan, Readers, Recovered,
};
use self::pending::InFlight;
pub use self::phase::Phase;
use self::phase::Reports;
pub use self::recovery::{
    FailureCause, JobError, RecoveryDecision, RecoveryFacts, decide_recovery,
};
use self::restarts::RestartHistory;
pub use self::restarts::RestartVerdict;
use crate::config::JobConfig;
use crate::id::{AttemptId, CheckpointId, TaskId, VertexId};
use crate::message::{Found, FromTask, TaskError, TaskMessage, ToTask};
use crate::storage::{CheckpointMetadata, StoreKey, StoreReply, StoreRequest, StoreValue};
use crate::time::Instant;

/// The coordinator of one job. See the [module](self).
#[derive(Clone, Debug)]
pub struct Coordinator {
    job: String,
    plan: Plan,
    config: JobConfig,
    phase: Phase,
    /// The highest attempt so far: deployed, over, or on its way into the store.
    attempt: AttemptId,
    /// The highest attempt of earlier coordinators.
    attempt_recovered: AttemptId,
    /// Of the current attempt.
    reports: Reports,
    /// The sources whose splits are assigned, in the order of the plan.
    enumerators: Vec<Enumerator>,
    in_flight: InFlight,
    /// The id of the next checkpoint.
    checkpoint_next: CheckpointId,
    completed: CompletedCheckpoints,
    /// The next checkpoint is the one that the job stops at.
    stops: bool,
    /// The checkpoint that the job has stopped at.
    stopped_at: Option<CheckpointId>,
    /// Checkpoints of this attempt that have failed and are newer than the last complete one.
    failed: BTreeSet<CheckpointId>,
    restarts: RestartHistory,
    stats: CoordinatorStats,
    outputs: VecDeque<CoordinatorOutput>,
    /// The deadline that the driver knows.
    deadline_told: Option<Instant>,
}

impl Coordinator {
    /// The coordinator of `job`, which goes on from what earlier ones left.
    ///
    /// # Panics
    /// If the plan has no task.
    pub fn new(
        job: String,
        plan: Plan,
        config: JobConfig,
        recovered: Recovered,
        now: Instant,
    ) -> Self {
        assert!(plan.tasks > 0, "a job has at least one task");
        let Recovered { checkpoints, attempt } = recovered;
        let foreign = checkpoints.iter().find_map(|metadata| plan.refuse(&job, metadata));
        let of_checkpoints = checkpoints.iter().map(|metadata| metadata.attempt).max();
        let attempt = attempt.max(of_checkpoints).unwrap_or_default();
        let completed = CompletedCheckpoints::new(checkpoints, config.checkpoints_retained);
        let latest = completed.latest().map(|metadata| metadata.checkpoint);
        let readers = plan.assigned.iter().enumerate();
        let enumerators = readers.map(|(place, Readers { source, tasks })| {
            let pool = completed.latest().and_then(|metadata| metadata.pools.get(place).cloned());
            Enumerator::new(*source, tasks.clone(), pool)
        });
        let mut coordinator = Self {
            job,
            config,
            phase: Phase::AwaitingRestart { at: now },
            attempt,
            attempt_recovered: attempt,
            reports: Reports::new(plan.tasks),
            enumerators: enumerators.collect(),
            plan,
            in_flight: InFlight::default(),
            checkpoint_next: latest.unwrap_or_default().next(),
            completed,
            stops: false,
            stopped_at: None,
            failed: BTreeSet::new(),
            restarts: RestartHistory::default(),
            stats: CoordinatorStats::default(),
            outputs: VecDeque::new(),
            deadline_told: None,
        };
        match foreign {
            Some(text) => coordinator.end(CoordinatorOutput::Failed(JobError::Restore(text))),
            None => coordinator.advance(now),
        }
        coordinator
    }

    /// The highest attempt so far; whether it is deployed is a matter of the phase.
    pub const fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// Where the job stands.
    pub const fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The complete checkpoints that are kept, the oldest first.
    pub fn completed(&self) -> &[CheckpointMetadata] {
        self.completed.as_slice()
    }

    /// Whether a checkpoint is in flight.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight.checkpoints().next().is_some()
    }

    /// Counters.
    pub const fn stats(&self) -> CoordinatorStats {
        self.stats
    }

    /// A task has said something. What belongs to another attempt is dropped.
    pub fn handle_message(&mut self, now: Instant, message: TaskMessage) {
        let TaskMessage { task, attempt, body } = message;
        let is_of_plan = task.get() < self.plan.tasks;
        if attempt != self.attempt || !self.phase.is_live() || !is_of_plan {
            self.stats.messages_fenced += 1;
            if let FromTask::Acknowledged { checkpoint, .. } = body {
                self.discard_stray(attempt, checkpoint);
            }
            return;
        }
        match body {
            FromTask::Running => {
                self.reports.running.insert(task);
            }
            FromTask::Acknowledged { checkpoint, state, finished } => {
                self.acknowledge(task, checkpoint, state, finished);
            }
            FromTask::Declined { checkpoint, reason } => self.decline(checkpoint, reason),
            FromTask::WantsSplit => self.enumerators.iter_mut().for_each(|of| of.ask(task)),
            FromTask::EndOfData => self.reach_end(now, task),
            FromTask::Finished => {
                self.reports.finished.insert(task);
            }
            FromTask::Lost(loss) => self.note(CoordinatorNote::RecordsLost { task, loss }),
            FromTask::Failed(error) => self.fail(FailureCause::Task { task, error }),
        }
        self.advance(now);
    }

    /// The store has answered a put.
    pub fn handle_stored(&mut self, now: Instant, reply: StoreReply) {
        let StoreReply { key, outcome } = reply;
        match key {
            StoreKey::Attempt => self.attempt_stored(now, outcome),
            StoreKey::Metadata(checkpoint) => self.metadata_stored(now, checkpoint, outcome),
            // Puts of tasks: not asked for from here.
            StoreKey::State { .. } | StoreKey::Reservation { .. } | StoreKey::Progress { .. } => {}
        }
        self.advance(now);
    }

    /// A search for splits of `source` has ended.
    pub fn handle_found(
        &mut self,
        now: Instant,
        source: VertexId,
        found: Result<Found<Vec<u8>>, TaskError>,
    ) {
        self.end_search(source, found);
        self.advance(now);
    }

    /// All tasks of the attempt are stopped: nothing of it runs any more.
    pub fn handle_cancelled(&mut self, now: Instant, attempt: AttemptId) {
        if attempt == self.attempt
            && let Phase::AwaitingCancelled { cause } = &self.phase
        {
            self.phase = Phase::AwaitingMetadata { cause: cause.clone() };
        }
        self.advance(now);
    }

    /// It is `now`.
    pub fn handle_time(&mut self, now: Instant) {
        self.advance(now);
    }

    /// The user wants the job to stop. No checkpoint is waited for: the job can be started again
    /// from the latest one.
    pub fn cancel(&mut self, now: Instant) {
        match self.phase {
            Phase::AwaitingTasks | Phase::Running { .. } | Phase::Finishing { .. } => {
                self.fail(FailureCause::Cancelled);
            }
            Phase::AwaitingCancelled { ref mut cause } => *cause = FailureCause::Cancelled,
            Phase::AwaitingAttempt
            | Phase::AwaitingMetadata { .. }
            | Phase::AwaitingRestart { .. } => {
                self.end(CoordinatorOutput::Failed(JobError::Cancelled));
            }
            Phase::Ended => {}
        }
        self.advance(now);
    }

    /// The user wants the job to stop at a checkpoint that is taken for it: the sources read
    /// nothing more, and all that came before is committed (rule 51). It is taken at once, whatever
    /// the pause between checkpoints (rule 44), and again if it fails. To be said to every attempt;
    /// saying it again changes nothing.
    pub fn stop(&mut self, now: Instant) {
        if let Phase::Running { trigger_at } = &mut self.phase
            && !self.stops
            && self.config.mechanism.takes_checkpoints()
        {
            self.stops = true;
            *trigger_at = now;
        }
        self.advance(now);
    }

    /// The user wants a checkpoint, whatever the pause between two of them (rule 44). It is begun
    /// when none is in flight that has to be waited for, and not again if it fails.
    pub fn take_checkpoint(&mut self, now: Instant) {
        if let Phase::Running { trigger_at } = &mut self.phase {
            *trigger_at = now.min(*trigger_at);
        }
        self.advance(now);
    }

    /// The next thing to do, until there is none.
    pub fn poll_output(&mut self) -> Option<CoordinatorOutput> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let deadline = self.deadline();
        if deadline == self.deadline_told {
            return None;
        }
        self.deadline_told = deadline;
        deadline.map(CoordinatorOutput::WaitUntil)
    }

    /// Takes every step that the facts known by now allow. Each `handle_*` ends here.
    fn advance(&mut self, now: Instant) {
        self.advance_checkpoints(now);
        if self.phase == Phase::AwaitingTasks && self.reports.all_running() {
            self.begin_running(now);
        }
        if self.is_done() {
            self.end(CoordinatorOutput::Finished);
        }
        // Before the next trigger, or a reader might never hear of a split.
        if self.phase.is_live() {
            self.assign_splits();
        }
        match &self.phase {
            Phase::Running { trigger_at } => {
                if *trigger_at <= now && self.may_trigger() {
                    self.trigger(now);
                }
            }
            Phase::Finishing { notify_at } => {
                if *notify_at <= now {
                    self.tell_to_finish(now);
                }
            }
            Phase::AwaitingMetadata { cause } => {
                // A user who cancels does not wait for the store.
                if self.in_flight.finalizing.is_none() || *cause == FailureCause::Cancelled {
                    let cause = cause.clone();
                    self.recover(now, &cause);
                }
            }
            Phase::AwaitingRestart { at } => {
                if *at <= now {
                    self.begin_attempt();
                }
            }
            Phase::AwaitingAttempt
            | Phase::AwaitingTasks
            | Phase::AwaitingCancelled { .. }
            | Phase::Ended => {}
        }
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let of_phase = match self.phase {
            Phase::Running { trigger_at } if self.may_trigger() => Some(trigger_at),
            Phase::Finishing { notify_at } => Some(notify_at),
            Phase::AwaitingRestart { at } => Some(at),
            Phase::Running { .. }
            | Phase::AwaitingAttempt
            | Phase::AwaitingTasks
            | Phase::AwaitingCancelled { .. }
            | Phase::AwaitingMetadata { .. }
            | Phase::Ended => None,
        };
        let of_checkpoints = self.in_flight.deadline();
        of_phase.into_iter().chain(of_checkpoints).min()
    }

    fn end(&mut self, last: CoordinatorOutput) {
        self.in_flight = InFlight::default();
        self.phase = Phase::Ended;
        self.emit(last);
    }

    /// The time between two triggers (rule 44), and between two repetitions of a last notice.
    fn interval(&self) -> Duration {
        self.config.checkpoint_interval.max(self.config.checkpoint_pause_min).max(INTERVAL_MIN)
    }

    fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.plan.tasks).map(TaskId::new)
    }

    fn send(&mut self, task: TaskId, message: ToTask) {
        self.emit(CoordinatorOutput::Send { task, attempt: self.attempt, message });
    }

    fn put(&mut self, key: StoreKey, value: StoreValue) {
        self.emit(CoordinatorOutput::Store(StoreRequest::Put { key, value }));
    }

    fn note(&mut self, note: CoordinatorNote) {
        self.emit(CoordinatorOutput::Note(note));
    }

    fn emit(&mut self, output: CoordinatorOutput) {
        self.outputs.push_back(output);
    }
}

/// The pause before a put is tried again.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(100);

/// An interval of zero would keep the coordinator busy without any time passing.
const INTERVAL_MIN: Duration = Duration::from_millis(1);
