mod overlapping;
mod stopping;

use super::*;
use crate::config::RestartStrategy;
use crate::graph::JobShape;
use crate::guarantee::Mechanism;
use crate::message::{AbortReason, TaskError};
use crate::storage::{StateHandle, StoreOutcome};

const TASKS: u32 = 3;
const INTERVAL: u64 = 100;
const PAUSE: u64 = 40;
const TIMEOUT: u64 = 1000;
const DELAY: u64 = 10;

/// A coordinator with the time, and what it has asked for as short texts: the tests say what goes
/// in and compare what comes out.
struct Bench {
    coordinator: Coordinator,
    now: Instant,
    notes: Vec<CoordinatorNote>,
    deadline: Option<Instant>,
}

fn config() -> JobConfig {
    JobConfig {
        checkpoint_interval: Duration::from_millis(INTERVAL),
        checkpoint_pause_min: Duration::from_millis(PAUSE),
        checkpoint_timeout: Duration::from_millis(TIMEOUT),
        checkpoint_failures_tolerable: 1,
        restart: RestartStrategy::FixedDelay { attempts: 2, delay: Duration::from_millis(DELAY) },
        ..JobConfig::default()
    }
}

fn metadata(checkpoint: u64, attempt: u64, finished: bool) -> CheckpointMetadata {
    let tasks = (0..TASKS).map(|task| state(checkpoint, attempt, task)).collect();
    let (checkpoint, attempt) = (CheckpointId::new(checkpoint), AttemptId::new(attempt));
    let (job, pools) = ("job".to_owned(), Vec::new());
    let shape = JobShape::default();
    CheckpointMetadata { checkpoint, attempt, job, shape, tasks, pools, finished }
}

fn state(checkpoint: u64, attempt: u64, task: u32) -> StateHandle {
    let (checkpoint, attempt) = (CheckpointId::new(checkpoint), AttemptId::new(attempt));
    let key = StoreKey::State { checkpoint, attempt, task: TaskId::new(task) };
    StateHandle::of(key, b"state")
}

fn crashed() -> FromTask {
    FromTask::Failed(TaskError::Crashed("killed".to_owned()))
}

fn stored(key: StoreKey) -> StoreOutcome {
    StoreOutcome::Stored(StateHandle::of(key, b"value"))
}

fn failed() -> StoreOutcome {
    StoreOutcome::Failed("disk full".to_owned())
}

fn unknown() -> StoreOutcome {
    StoreOutcome::Unknown("no answer".to_owned())
}

/// What is asked for, in a few words; notes and deadlines are looked at on their own.
fn text(output: CoordinatorOutput) -> String {
    match output {
        CoordinatorOutput::Send { task, attempt, message } => match message {
            ToTask::Trigger { checkpoint, stops: false, .. } => {
                format!("{task} {attempt} Trigger {checkpoint}")
            }
            ToTask::Trigger { checkpoint, stops: true, .. } => {
                format!("{task} {attempt} Trigger {checkpoint} and stop")
            }
            ToTask::Completed(checkpoint) => format!("{task} {attempt} Completed {checkpoint}"),
            ToTask::Finish(checkpoint) => format!("{task} {attempt} Finish {checkpoint}"),
            ToTask::Aborted { checkpoint, oldest_in_flight } => {
                format!("{task} {attempt} Aborted {checkpoint}, oldest {oldest_in_flight}")
            }
            ToTask::Assign(assignment) => format!("{task} {attempt} Assign {}", assignment.split),
            ToTask::NoMoreSplits => format!("{task} {attempt} NoMoreSplits"),
        },
        CoordinatorOutput::Store(StoreRequest::Put {
            key,
            value: StoreValue::Attempt(attempt),
        }) => {
            format!("put {key} {attempt}")
        }
        CoordinatorOutput::Store(StoreRequest::Put { key, .. }) => format!("put {key}"),
        CoordinatorOutput::Store(StoreRequest::Discard(checkpoint)) => {
            format!("discard {checkpoint}")
        }
        CoordinatorOutput::Deploy { attempt, restore: Some(restore), halts: true } => {
            format!("deploy {attempt} from {} and halt", restore.checkpoint)
        }
        CoordinatorOutput::Deploy { attempt, restore, .. } => match restore {
            Some(metadata) => format!("deploy {attempt} from {}", metadata.checkpoint),
            None => format!("deploy {attempt} from the start"),
        },
        CoordinatorOutput::Search { source, known } => format!("search {source} behind {known}"),
        CoordinatorOutput::Cancel(attempt) => format!("cancel {attempt}"),
        CoordinatorOutput::Finished => "finished".to_owned(),
        CoordinatorOutput::Failed(error) => format!("failed: {error}"),
        CoordinatorOutput::WaitUntil(_) | CoordinatorOutput::Note(_) => unreachable!(),
    }
}

impl Bench {
    fn new(config: JobConfig, recovered: Recovered) -> Self {
        let sources = [0, 1].map(TaskId::new).to_vec();
        let plan = Plan { tasks: TASKS, sources, assigned: Vec::new(), shape: JobShape::default() };
        let now = Instant::ZERO;
        let coordinator = Coordinator::new("job".to_owned(), plan, config, recovered, now);
        Self { coordinator, now, notes: Vec::new(), deadline: None }
    }

    /// With a first attempt whose tasks all run, at time 0.
    fn running(config: JobConfig) -> Self {
        let mut bench = Self::new(config, Recovered::default());
        assert_eq!(bench.outputs(), ["put attempt a1"]);
        bench.deploy();
        bench
    }

    fn deploy(&mut self) -> Vec<String> {
        self.stored(StoreKey::Attempt, stored(StoreKey::Attempt));
        self.all(&FromTask::Running);
        self.outputs()
    }

    /// Lets the first checkpoint be triggered and acknowledged by all, at time 100.
    fn with_metadata_put(config: JobConfig) -> Self {
        let mut bench = Self::running(config);
        bench.at(INTERVAL);
        bench.acknowledge(1, 1, false);
        assert_eq!(
            bench.outputs(),
            ["t0 a1 Trigger chk-1", "t1 a1 Trigger chk-1", "put chk-1/metadata"]
        );
        bench
    }

    /// With checkpoint 1 complete, at time 100.
    fn with_checkpoint(config: JobConfig) -> Self {
        let mut bench = Self::with_metadata_put(config);
        bench.metadata(1, stored(StoreKey::Attempt));
        assert_eq!(bench.outputs(), completed(1));
        bench
    }

    fn say(&mut self, task: u32, attempt: u64, body: FromTask) {
        let (task, attempt) = (TaskId::new(task), AttemptId::new(attempt));
        self.coordinator.handle_message(self.now, TaskMessage { task, attempt, body });
    }

    /// Every task of the current attempt says the same.
    fn all(&mut self, body: &FromTask) {
        for task in 0..TASKS {
            self.say(task, self.coordinator.attempt().get(), body.clone());
        }
    }

    fn acknowledge_one(&mut self, task: u32, checkpoint: u64, attempt: u64, finished: bool) {
        let state = state(checkpoint, attempt, task);
        let checkpoint = CheckpointId::new(checkpoint);
        self.say(task, attempt, FromTask::Acknowledged { checkpoint, state, finished });
    }

    fn acknowledge(&mut self, checkpoint: u64, attempt: u64, finished: bool) {
        for task in 0..TASKS {
            self.acknowledge_one(task, checkpoint, attempt, finished);
        }
    }

    fn decline(&mut self, task: u32, checkpoint: u64, attempt: u64) {
        let checkpoint = CheckpointId::new(checkpoint);
        let reason = AbortReason::TaskNotReady;
        self.say(task, attempt, FromTask::Declined { checkpoint, reason });
    }

    fn stored(&mut self, key: StoreKey, outcome: StoreOutcome) {
        self.coordinator.handle_stored(self.now, StoreReply { key, outcome });
    }

    fn metadata(&mut self, checkpoint: u64, outcome: StoreOutcome) {
        self.stored(StoreKey::Metadata(CheckpointId::new(checkpoint)), outcome);
    }

    fn cancelled(&mut self, attempt: u64) {
        self.coordinator.handle_cancelled(self.now, AttemptId::new(attempt));
    }

    fn at(&mut self, millis: u64) {
        self.now = Instant::from_millis(millis);
        self.coordinator.handle_time(self.now);
    }

    /// From a failed attempt, whose `Cancel` is out, to the next one's running tasks.
    fn restart(&mut self, failed_attempt: u64) -> Vec<String> {
        self.cancelled(failed_attempt);
        self.coordinator.handle_time(self.now + Duration::from_millis(DELAY));
        self.deploy()
    }

    /// What came out since the last call.
    fn outputs(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                CoordinatorOutput::Note(note) => self.notes.push(note),
                CoordinatorOutput::WaitUntil(deadline) => self.deadline = Some(deadline),
                CoordinatorOutput::Send { .. }
                | CoordinatorOutput::Store(_)
                | CoordinatorOutput::Deploy { .. }
                | CoordinatorOutput::Search { .. }
                | CoordinatorOutput::Cancel(_)
                | CoordinatorOutput::Finished
                | CoordinatorOutput::Failed(_) => texts.push(text(output)),
            }
        }
        texts
    }

    fn aborted(&self) -> Vec<(u64, AbortReason)> {
        let aborted = |note: &CoordinatorNote| match *note {
            CoordinatorNote::CheckpointAborted { checkpoint, reason } => {
                Some((checkpoint.get(), reason))
            }
            CoordinatorNote::CheckpointTriggered(_)
            | CoordinatorNote::CheckpointCompleted { .. }
            | CoordinatorNote::AttemptNotStored { .. }
            | CoordinatorNote::RecordsLost { .. }
            | CoordinatorNote::AttemptFailed { .. }
            | CoordinatorNote::Restarting { .. } => None,
        };
        self.notes.iter().filter_map(aborted).collect()
    }
}

fn completed(checkpoint: u64) -> Vec<String> {
    (0..TASKS).map(|task| format!("t{task} a1 Completed chk-{checkpoint}")).collect()
}

fn triggered(checkpoint: u64, attempt: u64) -> Vec<String> {
    [0, 1].map(|task| format!("t{task} a{attempt} Trigger chk-{checkpoint}")).to_vec()
}

fn given_up(checkpoint: u64, oldest_in_flight: u64) -> Vec<String> {
    let discard = format!("discard chk-{checkpoint}");
    let notice = format!("a1 Aborted chk-{checkpoint}, oldest chk-{oldest_in_flight}");
    let notices = (0..TASKS).map(|task| format!("t{task} {notice}"));
    std::iter::once(discard).chain(notices).collect()
}

#[test]
fn rule_039_a_trigger_waits_until_every_task_runs_and_uses_up_no_id_before() {
    let mut bench = Bench::new(config(), Recovered::default());
    bench.stored(StoreKey::Attempt, stored(StoreKey::Attempt));
    bench.say(0, 1, FromTask::Running);
    bench.say(1, 1, FromTask::Running);
    bench.at(10 * INTERVAL);
    assert_eq!(bench.outputs(), ["put attempt a1", "deploy a1 from the start"]);
    bench.say(2, 1, FromTask::Running);
    bench.at(11 * INTERVAL - 1);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.at(11 * INTERVAL);
    assert_eq!(bench.outputs(), triggered(1, 1));
}

#[test]
fn rule_040_a_checkpoint_has_its_id_and_its_timeout_before_a_source_is_told() {
    let mut bench = Bench::running(config());
    bench.now = Instant::from_millis(INTERVAL);
    bench.coordinator.handle_time(bench.now);
    let outputs: Vec<_> = std::iter::from_fn(|| bench.coordinator.poll_output()).collect();
    let checkpoint = CheckpointId::new(1);
    assert!(matches!(
        outputs[..],
        [
            CoordinatorOutput::Note(CoordinatorNote::CheckpointTriggered(noted)),
            CoordinatorOutput::Send { message: ToTask::Trigger { .. }, .. },
            CoordinatorOutput::Send { message: ToTask::Trigger { .. }, .. },
            CoordinatorOutput::WaitUntil(deadline),
        ] if noted == checkpoint && deadline == Instant::from_millis(INTERVAL + TIMEOUT)
    ));
    assert!(bench.coordinator.is_in_flight());
}

#[test]
fn rule_041_ids_go_on_above_every_complete_checkpoint_and_over_restarts() {
    let checkpoints = vec![metadata(7, 2, false), metadata(4, 1, false)];
    let mut bench = Bench::new(config(), Recovered { checkpoints, attempt: None });
    assert_eq!(bench.outputs(), ["put attempt a3"], "the checkpoint's attempt is over, too");
    assert_eq!(bench.deploy(), ["deploy a3 from chk-7"]);
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), triggered(8, 3));

    bench.say(2, 3, crashed());
    assert_eq!(bench.outputs(), ["discard chk-8", "cancel a3"]);
    assert_eq!(bench.restart(3), ["put attempt a4", "deploy a4 from chk-7"]);
    bench.at(3 * INTERVAL);
    assert_eq!(bench.outputs(), triggered(9, 4));
}

#[test]
fn rule_044_minimum_pause_runs_from_the_last_completion() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.acknowledge(1, 1, false);
    bench.at(2 * INTERVAL - 10);
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.outputs();
    assert_eq!(bench.deadline, Some(Instant::from_millis(2 * INTERVAL - 10 + PAUSE)));
    bench.at(2 * INTERVAL - 11 + PAUSE);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.at(2 * INTERVAL - 10 + PAUSE);
    assert_eq!(bench.outputs(), triggered(2, 1));
}

#[test]
fn rule_044_a_longer_pause_raises_the_interval() {
    let pause = Duration::from_millis(3 * INTERVAL);
    let mut bench = Bench::running(JobConfig { checkpoint_pause_min: pause, ..config() });
    assert_eq!(bench.deadline, Some(Instant::from_millis(3 * INTERVAL)));
    bench.at(3 * INTERVAL - 1);
    assert_eq!(bench.outputs(), [""; 0]);
}

#[test]
fn a_due_trigger_waits_for_the_checkpoint_in_flight() {
    let mut bench = Bench::with_metadata_put(config());
    bench.at(5 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.metadata(1, failed());
    assert_eq!(bench.outputs(), [given_up(1, 2), triggered(2, 1)].concat());
}

#[test]
fn full_replay_takes_one_checkpoint_and_that_covers_the_end() {
    let config = JobConfig { mechanism: Mechanism::FullReplay, ..config() };
    let mut bench = Bench::running(config);
    bench.at(5 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.say(0, 1, crashed());
    assert_eq!(bench.outputs(), ["cancel a1"]);
    assert_eq!(bench.restart(1), ["put attempt a2", "deploy a2 from the start"]);
    bench.all(&FromTask::EndOfData);
    assert_eq!(bench.outputs(), triggered(1, 2));
    bench.acknowledge(1, 2, true);
    bench.metadata(1, stored(StoreKey::Attempt));
    let finish = (0..TASKS).map(|task| format!("t{task} a2 Finish chk-1"));
    let put = std::iter::once("put chk-1/metadata".to_owned());
    assert_eq!(bench.outputs(), put.chain(finish).collect::<Vec<_>>());
}

#[test]
fn rule_047_a_second_acknowledgement_of_a_task_does_not_stand_for_another_task() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.outputs();
    for task in [0, 0, 1, 1] {
        bench.acknowledge_one(task, 1, 1, false);
    }
    assert_eq!(bench.outputs(), [""; 0]);
    bench.acknowledge_one(2, 1, 1, false);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.acknowledge_one(2, 1, 1, false);
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.acknowledge_one(2, 1, 1, false);
    assert_eq!(bench.outputs(), completed(1), "what is complete is not discarded");
}

#[test]
fn rule_047_the_state_of_a_late_acknowledgement_is_discarded_and_completes_nothing() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.acknowledge_one(0, 1, 1, false);
    bench.at(INTERVAL + TIMEOUT);
    bench.outputs();
    bench.acknowledge_one(1, 1, 1, false);
    assert_eq!(bench.outputs(), ["discard chk-1"], "expired");
    bench.acknowledge_one(1, 9, 1, false);
    assert_eq!(bench.outputs(), [""; 0], "never triggered");

    bench.say(0, 1, crashed());
    assert_eq!(bench.outputs(), ["discard chk-2", "cancel a1"]);
    bench.restart(1);
    bench.acknowledge(2, 1, false);
    assert_eq!(bench.outputs(), ["discard chk-2"; 3], "of an attempt that is over");
    assert_eq!(bench.coordinator.stats().messages_fenced, 3);
    assert_eq!(bench.coordinator.completed(), []);
}

#[test]
fn rule_047_nothing_is_discarded_for_an_acknowledgement_from_before_this_coordinator() {
    let checkpoints = vec![metadata(7, 2, false)];
    let attempt = Some(AttemptId::new(3));
    let mut bench = Bench::new(config(), Recovered { checkpoints, attempt });
    bench.deploy();
    bench.at(INTERVAL);
    bench.outputs();
    bench.decline(0, 8, 4);
    bench.at(2 * INTERVAL);
    bench.outputs();
    bench.acknowledge_one(0, 8, 3, false);
    assert_eq!(bench.outputs(), [""; 0]);
}

#[test]
fn rule_049_only_stored_metadata_completes_a_checkpoint_and_only_then_older_ones_go() {
    let mut bench = Bench::with_metadata_put(config());
    assert_eq!(bench.coordinator.completed(), []);
    bench.metadata(1, stored(StoreKey::Attempt));
    assert_eq!(bench.outputs(), completed(1));
    assert_eq!(bench.coordinator.completed(), [metadata(1, 1, false)]);

    bench.at(2 * INTERVAL);
    bench.acknowledge(2, 1, false);
    assert_eq!(bench.outputs(), [triggered(2, 1), vec!["put chk-2/metadata".to_owned()]].concat());
    bench.metadata(2, stored(StoreKey::Attempt));
    let discard = vec!["discard chk-1".to_owned()];
    assert_eq!(bench.outputs(), [discard, completed(2)].concat());
    let duration = Duration::ZERO;
    let checkpoint = CheckpointId::new(2);
    let note = CoordinatorNote::CheckpointCompleted { checkpoint, duration, finished: false };
    assert_eq!(bench.notes.last(), Some(&note));
}

#[test]
fn rule_050_metadata_that_was_not_written_aborts_the_checkpoint_and_the_earlier_one_stays() {
    let mut bench = Bench::with_checkpoint(config());
    bench.at(2 * INTERVAL);
    bench.acknowledge(2, 1, false);
    bench.outputs();
    bench.metadata(2, failed());
    assert_eq!(bench.outputs(), given_up(2, 3));
    assert_eq!(bench.aborted(), [(2, AbortReason::FinalizeFailed)]);
    assert_eq!(bench.coordinator.completed(), [metadata(1, 1, false)]);
}

#[test]
fn rule_050_metadata_in_doubt_is_written_until_it_is_there_before_recovery_is_decided() {
    let mut bench = Bench::with_metadata_put(config());
    bench.metadata(1, unknown());
    assert_eq!(bench.outputs(), ["cancel a1"], "nothing deleted, nothing promised");
    bench.cancelled(1);
    bench.at(2 * INTERVAL);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.metadata(1, unknown());
    bench.at(3 * INTERVAL);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.metadata(1, failed());
    assert_eq!(bench.outputs(), [""; 0], "the failure says nothing about the first write");
    bench.at(4 * INTERVAL);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.metadata(1, stored(StoreKey::Attempt));
    assert_eq!(bench.outputs(), [""; 0], "the failed attempt is told nothing");
    bench.at(5 * INTERVAL);
    assert_eq!(bench.deploy(), ["put attempt a2", "deploy a2 from chk-1"]);
}

#[test]
fn rule_052_one_decline_aborts_the_checkpoint_and_every_task_is_told() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.acknowledge_one(0, 1, 1, false);
    bench.outputs();
    bench.decline(1, 1, 1);
    assert_eq!(bench.outputs(), given_up(1, 2));
    bench.decline(2, 1, 1);
    assert_eq!(bench.outputs(), [""; 0], "once");
    assert_eq!(bench.aborted(), [(1, AbortReason::TaskNotReady)]);
    bench.at(2 * INTERVAL);
    bench.decline(2, 1, 1);
    assert_eq!(bench.outputs(), triggered(2, 1), "a decline is for one checkpoint only");
}

#[test]
fn rule_052_a_checkpoint_that_takes_too_long_expires_unless_it_has_all_its_parts() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.outputs();
    bench.at(INTERVAL + TIMEOUT - 1);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.at(INTERVAL + TIMEOUT);
    assert_eq!(bench.outputs(), [given_up(1, 2), triggered(2, 1)].concat());
    assert_eq!(bench.aborted(), [(1, AbortReason::Expired)]);

    bench.acknowledge(2, 1, false);
    bench.at(10 * TIMEOUT);
    bench.metadata(2, stored(StoreKey::Attempt));
    bench.outputs();
    assert_eq!(bench.coordinator.completed(), [metadata(2, 1, false)]);
}

#[test]
fn rule_053_nothing_in_flight_survives_a_failure() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.acknowledge_one(0, 1, 1, false);
    bench.acknowledge_one(1, 1, 1, false);
    bench.outputs();
    bench.say(2, 1, crashed());
    bench.acknowledge_one(2, 1, 1, false);
    assert_eq!(bench.outputs(), ["discard chk-1", "cancel a1", "discard chk-1"]);
    assert_eq!(bench.aborted(), [(1, AbortReason::Suspended)]);
    bench.at(50 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0], "no trigger while tasks are being stopped");
    assert_eq!(bench.coordinator.completed(), []);
}

#[test]
fn rule_055_more_failed_checkpoints_in_a_row_than_tolerable_fail_the_attempt() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.decline(0, 1, 1);
    bench.at(2 * INTERVAL);
    bench.outputs();
    bench.decline(0, 2, 1);
    assert_eq!(bench.outputs(), [given_up(2, 3), vec!["cancel a1".to_owned()]].concat());
    assert_eq!(bench.restart(1), ["put attempt a2", "deploy a2 from the start"]);
    bench.at(4 * INTERVAL);
    bench.outputs();
    bench.decline(0, 3, 2);
    assert!(bench.coordinator.phase().is_live(), "a new attempt counts from zero");
}

#[test]
fn rule_057_a_completed_checkpoint_clears_the_count_and_late_failures_of_it_do_not_count() {
    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.decline(0, 1, 1);
    bench.at(2 * INTERVAL);
    bench.acknowledge(2, 1, false);
    bench.metadata(2, stored(StoreKey::Attempt));
    bench.decline(1, 2, 1);
    bench.decline(1, 1, 1);
    bench.at(3 * INTERVAL);
    bench.decline(0, 3, 1);
    assert!(bench.coordinator.phase().is_live(), "1 and 3 did not fail in a row");
    bench.at(4 * INTERVAL);
    bench.decline(0, 4, 1);
    assert!(!bench.coordinator.phase().is_live(), "3 and 4 did");
}

#[test]
fn rule_058_the_last_completion_is_told_again_until_every_task_has_finished() {
    let mut bench = Bench::running(config());
    bench.all(&FromTask::EndOfData);
    bench.acknowledge(1, 1, true);
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.outputs();
    bench.say(1, 1, FromTask::Finished);
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), ["t0 a1 Finish chk-1", "t2 a1 Finish chk-1"]);
    bench.say(0, 1, FromTask::Finished);
    bench.at(2 * INTERVAL);
    assert_eq!(bench.outputs(), ["t2 a1 Finish chk-1"]);
    bench.say(2, 1, FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn rule_059_a_task_that_dies_of_a_completion_notice_does_not_revoke_the_checkpoint() {
    let mut bench = Bench::with_checkpoint(config());
    bench.say(1, 1, FromTask::Failed(TaskError::External("commit refused".to_owned())));
    assert_eq!(bench.outputs(), ["cancel a1"]);
    assert_eq!(bench.restart(1), ["put attempt a2", "deploy a2 from chk-1"]);
}

#[test]
fn rule_102_the_end_of_all_data_makes_a_final_checkpoint_due_at_once() {
    let mut bench = Bench::with_checkpoint(config());
    bench.say(0, 1, FromTask::EndOfData);
    bench.say(1, 1, FromTask::EndOfData);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.say(2, 1, FromTask::EndOfData);
    assert_eq!(bench.outputs(), triggered(2, 1), "without interval or pause");
    bench.acknowledge(2, 1, true);
    bench.metadata(2, stored(StoreKey::Attempt));
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs().last().unwrap(), "finished");
    assert!(bench.coordinator.completed()[0].finished);
}

#[test]
fn rule_102_the_final_checkpoint_waits_for_the_one_in_flight_and_is_repeated_when_it_fails() {
    let mut bench = Bench::with_checkpoint(config());
    bench.at(2 * INTERVAL);
    bench.acknowledge_one(0, 2, 1, false);
    bench.outputs();
    bench.all(&FromTask::EndOfData);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.acknowledge_one(1, 2, 1, true);
    bench.acknowledge_one(2, 2, 1, true);
    bench.metadata(2, stored(StoreKey::Attempt));
    assert_eq!(bench.outputs().split_off(5), triggered(3, 1));
    bench.decline(0, 3, 1);
    bench.at(3 * INTERVAL - 1);
    assert_eq!(bench.outputs(), given_up(3, 4));
    bench.at(3 * INTERVAL);
    assert_eq!(bench.outputs(), triggered(4, 1));
}

#[test]
fn a_job_is_not_finished_by_tasks_that_no_final_checkpoint_covers() {
    let mut bench = Bench::with_checkpoint(config());
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs(), [""; 0]);
}

#[test]
fn rule_099_an_attempt_from_a_final_checkpoint_only_commits_and_takes_no_checkpoint() {
    let recovered = Recovered { checkpoints: vec![metadata(7, 2, true)], attempt: None };
    let mut bench = Bench::new(config(), recovered);
    bench.stored(StoreKey::Attempt, stored(StoreKey::Attempt));
    bench.say(0, 3, FromTask::Running);
    bench.say(0, 3, FromTask::Finished);
    bench.say(1, 3, FromTask::Running);
    bench.say(2, 3, FromTask::Running);
    let finish = ["t1 a3 Finish chk-7", "t2 a3 Finish chk-7"];
    let deploy = ["put attempt a3", "deploy a3 from chk-7"];
    assert_eq!(bench.outputs(), [deploy, finish].concat());
    bench.say(1, 3, FromTask::Finished);
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), ["t2 a3 Finish chk-7"]);
    bench.say(2, 3, FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn without_checkpoints_a_job_is_finished_when_all_tasks_are() {
    let none = JobConfig { mechanism: Mechanism::None, ..config() };
    let recovered = Recovered { checkpoints: vec![metadata(7, 2, true)], attempt: None };
    let mut bench = Bench::new(none, recovered);
    assert_eq!(bench.deploy(), ["put attempt a3", "deploy a3 from the start"]);
    bench.at(10 * INTERVAL);
    bench.all(&FromTask::EndOfData);
    bench.say(0, 3, FromTask::Finished);
    bench.say(1, 3, FromTask::Finished);
    assert_eq!((bench.outputs(), bench.deadline), (vec![], None));
    bench.say(2, 3, FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn rule_118_the_failure_of_one_task_restarts_the_whole_job_once() {
    let mut bench = Bench::with_checkpoint(config());
    bench.say(2, 1, crashed());
    bench.say(0, 1, crashed());
    bench.say(1, 1, FromTask::Failed(TaskError::Input("cut off".to_owned())));
    assert_eq!(bench.outputs(), ["cancel a1"]);
    bench.at(10 * INTERVAL);
    bench.cancelled(0);
    assert!(
        matches!(bench.coordinator.phase(), Phase::AwaitingCancelled { .. }),
        "the tasks of this attempt have not stopped yet"
    );
    assert_eq!(bench.outputs(), [""; 0]);
    bench.cancelled(1);
    bench.cancelled(1);
    bench.at(10 * INTERVAL + DELAY - 1);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.at(10 * INTERVAL + DELAY);
    assert_eq!(bench.deploy(), ["put attempt a2", "deploy a2 from chk-1"]);
    assert_eq!(bench.coordinator.stats().restarts, 1);
}

#[test]
fn rule_119_a_fixed_strategy_counts_restarts_since_the_last_completed_checkpoint() {
    let mut bench = Bench::running(config());
    bench.say(0, 1, crashed());
    bench.restart(1);
    bench.say(0, 2, crashed());
    bench.restart(2);
    bench.at(3 * INTERVAL);
    bench.acknowledge(1, 3, false);
    bench.metadata(1, stored(StoreKey::Attempt));
    for attempt in [3, 4] {
        bench.say(0, attempt, crashed());
        bench.restart(attempt);
    }
    bench.outputs();
    bench.say(0, 5, crashed());
    bench.cancelled(5);
    assert_eq!(
        bench.outputs(),
        ["cancel a5", "failed: failed after 2 restarts without progress: task t0: killed"]
    );
}

#[test]
fn rule_119_without_a_strategy_the_first_failure_ends_the_job() {
    let mut bench = Bench::running(JobConfig { restart: RestartStrategy::None, ..config() });
    bench.say(0, 1, crashed());
    assert_eq!(bench.outputs(), ["cancel a1"]);
    bench.cancelled(1);
    assert_eq!(
        bench.outputs(),
        ["failed: failed after 0 restarts without progress: task t0: killed"]
    );
    bench.at(10 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
}

#[test]
fn rule_121_a_failure_waits_for_the_metadata_on_its_way_and_begins_at_it() {
    let mut bench = Bench::with_metadata_put(config());
    bench.say(0, 1, crashed());
    bench.cancelled(1);
    bench.at(10 * INTERVAL);
    assert_eq!(bench.outputs(), ["cancel a1"], "the store's answer is awaited");
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.at(11 * INTERVAL);
    assert_eq!(bench.deploy(), ["put attempt a2", "deploy a2 from chk-1"]);
}

#[test]
fn rule_122_the_older_checkpoint_is_not_retired_under_an_attempt_that_begins_at_it() {
    let mut bench = Bench::with_checkpoint(config());
    bench.at(2 * INTERVAL);
    bench.acknowledge(2, 1, false);
    bench.outputs();
    bench.say(0, 1, crashed());
    bench.cancelled(1);
    bench.metadata(2, failed());
    assert_eq!(bench.outputs(), ["cancel a1", "discard chk-2"]);
    bench.at(3 * INTERVAL);
    assert_eq!(bench.deploy(), ["put attempt a2", "deploy a2 from chk-1"]);
    bench.metadata(2, stored(StoreKey::Attempt));
    bench.acknowledge(2, 1, false);
    assert_eq!(bench.outputs(), ["discard chk-2"; 3], "nothing late touches checkpoint 1");
    assert_eq!(bench.coordinator.completed(), [metadata(1, 1, false)]);
}

#[test]
fn an_attempt_whose_number_may_not_be_durable_is_skipped() {
    let mut bench = Bench::new(config(), Recovered::default());
    bench.stored(StoreKey::Attempt, unknown());
    assert_eq!(bench.outputs(), ["put attempt a1"]);
    bench.at(100);
    bench.stored(StoreKey::Attempt, failed());
    bench.at(200);
    assert_eq!(bench.deploy(), ["put attempt a2", "put attempt a3", "deploy a3 from the start"]);
    bench.stored(StoreKey::Attempt, failed());
    assert!(bench.coordinator.phase().is_live(), "no put was out");
}

#[test]
fn rule_119_an_attempt_whose_number_can_not_be_stored_counts_as_one_that_failed() {
    let mut bench = Bench::new(config(), Recovered::default());
    for attempt in 1..=2 {
        bench.stored(StoreKey::Attempt, failed());
        assert_eq!(bench.outputs(), [format!("put attempt a{attempt}")]);
        bench.at(attempt * DELAY);
    }
    bench.stored(StoreKey::Attempt, failed());
    let cause = "the number of attempt a3 could not be stored: disk full";
    let error = format!("failed: failed after 2 restarts without progress: {cause}");
    assert_eq!(bench.outputs(), ["put attempt a3".to_owned(), error]);
}

#[test]
fn a_failure_while_tasks_restore_or_commit_for_the_last_time_is_handled_as_any_other() {
    let mut bench = Bench::new(config(), Recovered::default());
    bench.stored(StoreKey::Attempt, stored(StoreKey::Attempt));
    bench.say(0, 1, FromTask::Running);
    bench.say(1, 1, crashed());
    assert_eq!(bench.outputs(), ["put attempt a1", "deploy a1 from the start", "cancel a1"]);
    bench.restart(1);
    bench.all(&FromTask::EndOfData);
    bench.acknowledge(1, 2, true);
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.say(0, 2, FromTask::Finished);
    bench.outputs();
    bench.say(1, 2, crashed());
    assert_eq!(bench.outputs(), ["cancel a2"]);
    let told: Vec<_> = (0..TASKS).map(|task| format!("t{task} a3 Finish chk-1")).collect();
    let mut outputs = bench.restart(2);
    assert_eq!(outputs.split_off(2), told);
    assert_eq!(outputs, ["put attempt a3", "deploy a3 from chk-1"]);
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn a_user_can_cancel_in_every_phase() {
    let cancelled = "failed: cancelled";
    let mut bench = Bench::new(config(), Recovered::default());
    bench.coordinator.cancel(bench.now);
    assert_eq!(bench.outputs(), ["put attempt a1", cancelled]);

    let mut bench = Bench::running(config());
    bench.at(INTERVAL);
    bench.outputs();
    bench.coordinator.cancel(bench.now);
    bench.at(10 * INTERVAL);
    assert_eq!(bench.outputs(), ["discard chk-1", "cancel a1"]);
    bench.cancelled(1);
    assert_eq!(bench.outputs(), [cancelled]);

    let mut bench = Bench::with_metadata_put(config());
    bench.metadata(1, unknown());
    bench.cancelled(1);
    bench.coordinator.cancel(bench.now);
    bench.coordinator.cancel(bench.now);
    assert_eq!(bench.outputs(), ["cancel a1", cancelled], "without waiting for the store");

    let mut bench = Bench::running(config());
    bench.say(0, 1, crashed());
    bench.coordinator.cancel(bench.now);
    bench.cancelled(1);
    assert_eq!(bench.outputs(), ["cancel a1", cancelled]);

    let mut bench = Bench::running(config());
    bench.say(0, 1, crashed());
    bench.cancelled(1);
    bench.coordinator.cancel(bench.now);
    assert_eq!(bench.outputs(), ["cancel a1", cancelled]);
}

#[test]
fn the_store_of_another_job_is_left_alone() {
    let other = CheckpointMetadata { job: "other".to_owned(), ..metadata(7, 2, false) };
    let mut bench = Bench::new(config(), Recovered { checkpoints: vec![other], attempt: None });
    assert_eq!(
        bench.outputs(),
        ["failed: state can not be restored: chk-7 belongs to the job 'other'"]
    );
}
