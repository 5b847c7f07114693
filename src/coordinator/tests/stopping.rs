//! Stopping at a checkpoint.

use super::*;

fn trigger_and_stop(checkpoint: u64, attempt: u64) -> Vec<String> {
    let told = |task: u32| format!("t{task} a{attempt} Trigger chk-{checkpoint} and stop");
    vec![told(0), told(1)]
}

fn finish(checkpoint: u64, attempt: u64) -> Vec<String> {
    (0..TASKS).map(|task| format!("t{task} a{attempt} Finish chk-{checkpoint}")).collect()
}

/// With the checkpoint 1 on its way that the job is to stop at, at time 0.
fn stopping() -> Bench {
    let mut bench = Bench::running(config());
    bench.coordinator.stop(bench.now);
    assert_eq!(bench.outputs(), trigger_and_stop(1, 1), "whatever the pause (rule 44)");
    bench
}

#[test]
fn rule_051_the_job_stops_at_a_checkpoint_that_is_taken_for_it_and_commits() {
    let mut bench = stopping();
    bench.coordinator.stop(bench.now);
    assert_eq!(bench.outputs(), [""; 0], "it is on its way already");
    bench.acknowledge(1, 1, false);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.metadata(1, stored(StoreKey::Attempt));
    assert_eq!(bench.outputs(), finish(1, 1));
    bench.at(10 * INTERVAL);
    assert_eq!(bench.outputs(), finish(1, 1), "again, for a notice can be lost; and no trigger");
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn a_checkpoint_to_stop_at_that_fails_is_taken_again() {
    let mut bench = Bench::running(JobConfig { checkpoint_failures_tolerable: 1, ..config() });
    bench.coordinator.stop(bench.now);
    bench.outputs();
    bench.decline(0, 1, 1);
    assert_eq!(bench.outputs(), given_up(1, 2));
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), trigger_and_stop(2, 1));
}

#[test]
fn nothing_is_triggered_behind_a_checkpoint_to_stop_at() {
    let mut bench = Bench::running(JobConfig { checkpoints_concurrent: 3, ..config() });
    bench.coordinator.stop(bench.now);
    assert_eq!(bench.outputs(), trigger_and_stop(1, 1));
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.acknowledge(1, 1, false);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.at(2 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
}

#[test]
fn an_attempt_that_begins_where_the_job_has_stopped_only_commits() {
    let mut bench = stopping();
    bench.acknowledge(1, 1, false);
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.outputs();
    bench.say(0, 1, FromTask::Failed(TaskError::Crashed("killed".to_owned())));
    bench.outputs();
    let deployed = ["put attempt a2".to_owned(), "deploy a2 from chk-1 and halt".to_owned()];
    assert_eq!(bench.restart(1), [&deployed[..], &finish(1, 2)].concat());
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}

#[test]
fn an_attempt_that_begins_before_where_the_job_was_to_stop_is_to_be_told_again() {
    let mut bench = stopping();
    bench.say(0, 1, FromTask::Failed(TaskError::Crashed("killed".to_owned())));
    bench.outputs();
    let deployed = ["put attempt a2", "deploy a2 from the start"];
    assert_eq!(bench.restart(1), deployed);
    bench.coordinator.stop(bench.now);
    assert_eq!(bench.outputs(), trigger_and_stop(2, 2));
}
