//! The coordinator under tasks that say anything at any time, a store that may fail or not know,
//! and crashes of the coordinator itself. A judge sees only what goes in and out and what the store
//! holds; then everything heals and the job has to come to its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::coordinator::{
    Coordinator, CoordinatorNote, CoordinatorOutput, JobError, Phase, Plan, Recovered,
};
use cofferdam::graph::JobShape;
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::message::{AbortReason, FromTask, TaskError, TaskMessage, ToTask};
use cofferdam::storage::{
    CheckpointMetadata, StateHandle, StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue,
};
use cofferdam::time::Instant;
use proptest::prelude::*;

const TASKS: u32 = 2;
/// A healed job needs a few dozen; the rest is room for what was left over.
const STEPS_TO_END: usize = 200;

/// One thing that happens. Positions count back from the newest attempt or checkpoint.
#[derive(Clone, Debug)]
enum Step {
    Time { millis: u64 },
    Deadline,
    Say { task: u32, attempts_back: u64, what: What },
    StoreAnswers { outcome: Outcome },
    TasksStopped,
    StrayReply { checkpoint_back: u64, outcome: Outcome },
    CoordinatorCrash { put_lands: bool },
    Cancel,
}

#[derive(Clone, Debug)]
enum What {
    Running,
    Acknowledged { checkpoint_back: u64, finished: bool },
    Declined { checkpoint_back: u64 },
    EndOfData,
    Finished,
    Failed { recoverable: bool },
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Stored,
    Failed,
    Unknown { is_there: bool },
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        6 => Just(Outcome::Stored),
        1 => Just(Outcome::Failed),
        2 => any::<bool>().prop_map(|is_there| Outcome::Unknown { is_there }),
    ]
}

fn what() -> impl Strategy<Value = What> {
    let back = prop_oneof![9 => Just(0_u64), 1 => 1..4_u64];
    prop_oneof![
        8 => Just(What::Running),
        12 => (back.clone(), any::<bool>()).prop_map(|(checkpoint_back, finished)| {
            What::Acknowledged { checkpoint_back, finished }
        }),
        1 => back.prop_map(|checkpoint_back| What::Declined { checkpoint_back }),
        2 => Just(What::EndOfData),
        1 => Just(What::Finished),
        1 => prop::bool::weighted(0.95).prop_map(|recoverable| What::Failed { recoverable }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let attempts_back = prop_oneof![9 => Just(0_u64), 1 => 1..3_u64];
    prop_oneof![
        20 => (1..40_u64).prop_map(|millis| Step::Time { millis }),
        30 => Just(Step::Deadline),
        120 => (0..TASKS, attempts_back, what())
            .prop_map(|(task, attempts_back, what)| Step::Say { task, attempts_back, what }),
        50 => outcome().prop_map(|outcome| Step::StoreAnswers { outcome }),
        30 => Just(Step::TasksStopped),
        4 => (1..3_u64, outcome())
            .prop_map(|(checkpoint_back, outcome)| Step::StrayReply { checkpoint_back, outcome }),
        4 => any::<bool>().prop_map(|put_lands| Step::CoordinatorCrash { put_lands }),
        1 => prop::bool::weighted(0.1)
            .prop_map(|cancel| if cancel { Step::Cancel } else { Step::Deadline }),
    ]
}

fn config() -> impl Strategy<Value = JobConfig> {
    let mechanism = prop_oneof![1 => Just(Mechanism::None), 6 => Just(Mechanism::Aligned)];
    let attempts = prop_oneof![1 => 0..4_u32, 3 => Just(u32::MAX)];
    let restart = (attempts, 0..4_u64).prop_flat_map(|(attempts, millis)| {
        let delay = Duration::from_millis(millis);
        prop_oneof![
            2 => Just(RestartStrategy::FixedDelay { attempts, delay }),
            1 => Just(RestartStrategy::Exponential {
                first: delay,
                max: 4 * delay,
                quiet: 50 * delay,
            }),
            1 => Just(RestartStrategy::FailureRate {
                failures: attempts,
                interval: Duration::from_millis(100),
                delay,
            }),
        ]
    });
    (mechanism, restart, 0..4_u64, 0..3_u32, 0..3_usize, 1..4_usize).prop_map(
        |(mechanism, restart, tens, checkpoint_failures_tolerable, checkpoints_retained, most)| {
            JobConfig {
                mechanism,
                checkpoint_interval: Duration::from_millis(10 * tens),
                checkpoint_pause_min: Duration::from_millis(5),
                checkpoint_timeout: Duration::from_millis(60),
                checkpoint_failures_tolerable,
                checkpoints_concurrent: if mechanism.overlaps() { most } else { 1 },
                checkpoints_retained,
                restart,
                ..JobConfig::default()
            }
        },
    )
}

/// The coordinator, its store, and all that was ever promised.
struct World {
    config: JobConfig,
    coordinator: Coordinator,
    now: Instant,
    deadline: Option<Instant>,
    /// What is in the store, as a coordinator would find it.
    checkpoints: BTreeMap<CheckpointId, CheckpointMetadata>,
    attempt_durable: Option<AttemptId>,
    puts: VecDeque<(StoreKey, StoreValue)>,
    /// Checkpoints whose metadata was reported as stored, or found at a start.
    complete: BTreeSet<CheckpointId>,
    notified: Option<CheckpointId>,
    acknowledged: BTreeMap<(AttemptId, CheckpointId), BTreeMap<TaskId, bool>>,
    triggered: CheckpointId,
    in_flight: BTreeSet<CheckpointId>,
    deployed: AttemptId,
    live: Option<AttemptId>,
    cancelling: Option<AttemptId>,
    /// What the tasks have been told and not yet reacted to, once they are healed.
    told: Vec<(TaskId, ToTask)>,
    /// The attempt whose healed tasks have reached the end of their data.
    at_end: Option<AttemptId>,
    end: Option<Result<(), JobError>>,
}

impl World {
    fn new(config: JobConfig) -> Self {
        let coordinator = start(&config, Recovered::default(), Instant::ZERO);
        let mut world = Self {
            config,
            coordinator,
            now: Instant::ZERO,
            deadline: None,
            checkpoints: BTreeMap::new(),
            attempt_durable: None,
            puts: VecDeque::new(),
            complete: BTreeSet::new(),
            notified: None,
            acknowledged: BTreeMap::new(),
            triggered: CheckpointId::default(),
            in_flight: BTreeSet::new(),
            deployed: AttemptId::default(),
            live: None,
            cancelling: None,
            told: Vec::new(),
            at_end: None,
            end: None,
        };
        world.drain();
        world
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Time { millis } => self.pass(self.now + Duration::from_millis(millis)),
            Step::Deadline => self.pass(self.deadline.unwrap_or(self.now)),
            Step::Say { task, attempts_back, ref what } => {
                let attempt = self.coordinator.attempt().get().saturating_sub(attempts_back);
                self.say(TaskId::new(task), AttemptId::new(attempt), what);
            }
            Step::StoreAnswers { outcome } => self.answer_put(outcome),
            Step::TasksStopped => self.stop_tasks(),
            Step::StrayReply { checkpoint_back, outcome } => {
                let checkpoint = self.back(checkpoint_back);
                let key = StoreKey::Metadata(checkpoint);
                // Each put is answered once: a stray answer is for one that is not out.
                if self.puts.iter().all(|(put, _)| *put != key) {
                    self.reply(key, outcome);
                }
            }
            Step::CoordinatorCrash { put_lands } => self.crash(put_lands),
            Step::Cancel => self.coordinator.cancel(self.now),
        }
        self.drain();
    }

    fn back(&self, checkpoint_back: u64) -> CheckpointId {
        CheckpointId::new(self.triggered.get().saturating_sub(checkpoint_back))
    }

    fn pass(&mut self, to: Instant) {
        self.now = self.now.max(to);
        self.coordinator.handle_time(self.now);
    }

    fn say(&mut self, task: TaskId, attempt: AttemptId, what: &What) {
        let body = match *what {
            What::Running => FromTask::Running,
            What::Acknowledged { checkpoint_back, finished } => {
                let checkpoint = self.back(checkpoint_back);
                let parts = self.acknowledged.entry((attempt, checkpoint)).or_default();
                parts.entry(task).or_insert(finished);
                let key = StoreKey::State { checkpoint, attempt, task };
                let state = StateHandle::of(key, b"state");
                FromTask::Acknowledged { checkpoint, state, finished }
            }
            What::Declined { checkpoint_back } => FromTask::Declined {
                checkpoint: self.back(checkpoint_back),
                reason: AbortReason::TaskNotReady,
            },
            What::EndOfData => FromTask::EndOfData,
            What::Finished => FromTask::Finished,
            What::Failed { recoverable: true } => {
                FromTask::Failed(TaskError::Crashed(String::new()))
            }
            What::Failed { recoverable: false } => {
                FromTask::Failed(TaskError::Input(String::new()))
            }
        };
        self.coordinator.handle_message(self.now, TaskMessage { task, attempt, body });
    }

    fn answer_put(&mut self, outcome: Outcome) {
        let Some((key, value)) = self.puts.pop_front() else { return };
        match outcome {
            Outcome::Stored | Outcome::Unknown { is_there: true } => self.land(value),
            Outcome::Failed | Outcome::Unknown { is_there: false } => {}
        }
        if let (StoreKey::Metadata(checkpoint), Outcome::Stored) = (key, outcome) {
            self.complete.insert(checkpoint);
        }
        self.reply(key, outcome);
    }

    fn land(&mut self, value: StoreValue) {
        match value {
            StoreValue::Attempt(attempt) => self.attempt_durable = Some(attempt),
            StoreValue::Metadata(metadata) => {
                self.checkpoints.insert(metadata.checkpoint, *metadata);
            }
            StoreValue::State(_) | StoreValue::Reservation(_) | StoreValue::Progress(..) => {
                unreachable!("a task's put")
            }
        }
    }

    fn reply(&mut self, key: StoreKey, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Stored => StoreOutcome::Stored(StateHandle::of(key, b"value")),
            Outcome::Failed => StoreOutcome::Failed(String::new()),
            Outcome::Unknown { .. } => StoreOutcome::Unknown(String::new()),
        };
        self.coordinator.handle_stored(self.now, StoreReply { key, outcome });
    }

    fn stop_tasks(&mut self) {
        if let Some(attempt) = self.cancelling.take() {
            self.coordinator.handle_cancelled(self.now, attempt);
        }
    }

    /// The coordinator's process dies with all tasks; a put that is out lands or does not.
    fn crash(&mut self, put_lands: bool) {
        if self.end.is_some() {
            return;
        }
        for (_, value) in std::mem::take(&mut self.puts) {
            if put_lands {
                self.land(value);
            }
        }
        let checkpoints: Vec<_> = self.checkpoints.values().rev().cloned().collect();
        self.complete.extend(self.checkpoints.keys());
        self.triggered = checkpoints.first().map_or(CheckpointId::default(), |m| m.checkpoint);
        (self.live, self.cancelling, self.deadline) = (None, None, None);
        self.in_flight.clear();
        self.told.clear();
        let recovered = Recovered { checkpoints, attempt: self.attempt_durable };
        self.coordinator = start(&self.config, recovered, self.now);
    }

    /// Carries out what the coordinator asks for, and judges it.
    fn drain(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            assert!(self.end.is_none(), "nothing follows the end: {output:?}");
            match output {
                CoordinatorOutput::Send { task, attempt, message } => {
                    assert_eq!(self.live, Some(attempt), "{task} of it is not deployed");
                    self.judge_message(&message);
                    self.told.push((task, message));
                }
                CoordinatorOutput::Store(StoreRequest::Put { key, value }) => {
                    if let StoreValue::Metadata(metadata) = &value {
                        self.judge_metadata(metadata);
                    }
                    self.puts.push_back((key, value));
                    assert_eq!(self.puts.len(), 1, "one put at a time: {:?}", self.puts);
                }
                CoordinatorOutput::Store(StoreRequest::Discard(checkpoint)) => {
                    let newer_is_complete = self.complete.last().is_some_and(|c| *c > checkpoint);
                    let is_there = self.checkpoints.remove(&checkpoint).is_some();
                    assert!(!is_there || newer_is_complete, "the latest one is discarded");
                }
                CoordinatorOutput::Deploy { attempt, restore, .. } => {
                    self.judge_deploy(attempt, restore.as_ref());
                }
                CoordinatorOutput::Search { .. } => unreachable!("all splits are cut beforehand"),
                CoordinatorOutput::Cancel(attempt) => {
                    assert_eq!(self.live.take(), Some(attempt));
                    self.told.clear();
                    self.cancelling = Some(attempt);
                }
                CoordinatorOutput::WaitUntil(deadline) => self.deadline = Some(deadline),
                CoordinatorOutput::Note(note) => self.judge_note(&note),
                CoordinatorOutput::Finished => self.judge_finish(),
                CoordinatorOutput::Failed(error) => self.end = Some(Err(error)),
            }
        }
        self.coordinator.check_invariants();
    }

    fn judge_message(&mut self, message: &ToTask) {
        match *message {
            ToTask::Trigger { checkpoint, .. } => assert!(self.in_flight.contains(&checkpoint)),
            ToTask::Completed(checkpoint) | ToTask::Finish(checkpoint) => {
                assert!(self.complete.contains(&checkpoint), "promised before it was stored");
                assert!(self.notified <= Some(checkpoint), "an older one after a newer one");
                self.notified = Some(checkpoint);
            }
            ToTask::Aborted { checkpoint, oldest_in_flight } => {
                assert!(!self.checkpoints.contains_key(&checkpoint), "{checkpoint} is complete");
                let older = self.in_flight.range(..oldest_in_flight).next();
                assert_eq!(older, None, "in flight, and older than {oldest_in_flight}");
            }
            ToTask::Assign(_) | ToTask::NoMoreSplits => unreachable!("no task asks for a split"),
        }
    }

    fn judge_note(&mut self, note: &CoordinatorNote) {
        match *note {
            CoordinatorNote::CheckpointTriggered(checkpoint) => {
                let most = self.config.checkpoints_concurrent;
                assert!(self.in_flight.len() < most, "no more than {most} at a time");
                assert!(self.triggered < checkpoint, "ids increase");
                assert!(self.complete.last().is_none_or(|complete| *complete < checkpoint));
                self.in_flight.insert(checkpoint);
                self.triggered = checkpoint;
                // What was said before the trigger, in the name of an attempt to come, is void.
                self.acknowledged.remove(&(self.deployed, checkpoint));
            }
            CoordinatorNote::CheckpointCompleted { checkpoint, .. }
            | CoordinatorNote::CheckpointAborted { checkpoint, .. } => {
                assert!(self.in_flight.remove(&checkpoint), "{checkpoint} was not in flight");
            }
            CoordinatorNote::AttemptNotStored { .. }
            | CoordinatorNote::RecordsLost { .. }
            | CoordinatorNote::AttemptFailed { .. }
            | CoordinatorNote::Restarting { .. } => {}
        }
    }

    fn judge_metadata(&self, metadata: &CheckpointMetadata) {
        let parts = self.acknowledged.get(&(metadata.attempt, metadata.checkpoint));
        let parts = parts.expect("no checkpoint completes without acknowledgements");
        assert_eq!(parts.len(), TASKS as usize, "every task has acknowledged");
        assert_eq!(metadata.finished, parts.values().all(|finished| *finished));
    }

    fn judge_deploy(&mut self, attempt: AttemptId, restore: Option<&CheckpointMetadata>) {
        assert!(self.deployed < attempt, "attempts increase");
        assert!(Some(attempt) <= self.attempt_durable, "{attempt} is not durable");
        assert_eq!((self.live, self.cancelling), (None, None), "the old tasks are still there");
        let restored = restore.map(|metadata| metadata.checkpoint);
        assert!(restored >= self.notified, "{:?} was promised", self.notified);
        let found = self.checkpoints.last_key_value().map(|(checkpoint, _)| *checkpoint);
        assert_eq!(restored, found, "a later coordinator would find another one");
        self.deployed = attempt;
        self.live = Some(attempt);
    }

    fn judge_finish(&mut self) {
        if self.config.mechanism.takes_checkpoints() {
            let last = self.checkpoints.last_key_value();
            assert!(last.is_some_and(|(_, metadata)| metadata.finished), "no final checkpoint");
        }
        self.end = Some(Ok(()));
    }

    /// From here on the store works and the tasks do what they should: the job comes to its end.
    fn heal(&mut self) -> Result<(), JobError> {
        for _ in 0..STEPS_TO_END {
            if let Some(end) = self.end.clone() {
                return end;
            }
            if !self.puts.is_empty() {
                self.answer_put(Outcome::Stored);
            } else if self.cancelling.is_some() {
                self.stop_tasks();
            } else if !self.tasks_react() {
                let deadline = self.deadline.expect("no deadline and nothing to do: a deadlock");
                self.pass(deadline);
            }
            self.drain();
        }
        panic!("no end after {STEPS_TO_END} steps: {:?}", self.coordinator.phase());
    }

    /// Healed tasks say all they have to say, once more if need be, and answer what they are told.
    fn tasks_react(&mut self) -> bool {
        let Some(attempt) = self.live else { return false };
        let told = std::mem::take(&mut self.told);
        let has_news = !told.is_empty();
        let tasks = || (0..TASKS).map(TaskId::new);
        let mut replies: Vec<(TaskId, What)> = Vec::new();
        if *self.coordinator.phase() == Phase::AwaitingTasks {
            replies.extend(tasks().map(|task| (task, What::Running)));
        } else if self.config.mechanism == Mechanism::None {
            replies.extend(tasks().map(|task| (task, What::Finished)));
        } else if self.at_end != Some(attempt) {
            self.at_end = Some(attempt);
            replies.extend(tasks().map(|task| (task, What::EndOfData)));
        }
        if told.iter().any(|(_, message)| matches!(message, ToTask::Trigger { .. })) {
            let acknowledged = What::Acknowledged { checkpoint_back: 0, finished: true };
            replies.extend(tasks().map(|task| (task, acknowledged.clone())));
        }
        for (task, message) in told {
            if matches!(message, ToTask::Finish(_)) {
                replies.push((task, What::Finished));
            }
        }
        for (task, what) in &replies {
            if self.live == Some(attempt) {
                self.say(*task, attempt, what);
                self.drain();
            }
        }
        has_news || !replies.is_empty()
    }
}

fn start(config: &JobConfig, recovered: Recovered, now: Instant) -> Coordinator {
    let plan = Plan {
        tasks: TASKS,
        sources: vec![TaskId::new(0)],
        assigned: Vec::new(),
        shape: JobShape::default(),
    };
    Coordinator::new("job".to_owned(), plan, config.clone(), recovered, now)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_coordinator_keeps_its_promises_and_comes_to_an_end(
        config in config(),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new(config);
        for step in &steps {
            world.step(step);
        }
        match world.heal() {
            Ok(()) | Err(JobError::Cancelled | JobError::Input { .. } | JobError::Lost { .. }) => {}
            Err(JobError::RestartsExhausted { .. }) => {
                let restart = world.config.restart;
                let is_bounded = matches!(
                    restart,
                    RestartStrategy::FixedDelay { attempts, .. } if attempts < u32::MAX
                );
                prop_assert!(is_bounded, "{:?}", restart);
            }
            Err(JobError::TooManyFailures { failures, .. }) => {
                let restart = world.config.restart;
                let is_exceeded = matches!(
                    restart,
                    RestartStrategy::FailureRate { failures: most, .. } if failures > most
                );
                prop_assert!(is_exceeded, "{:?}", restart);
            }
            Err(JobError::Restore(text) | JobError::OutputLost(text)) => {
                prop_assert!(false, "{}", text);
            }
        }
    }
}
