//! Several checkpoints in flight.

use super::*;

/// With checkpoints 1 and 2 triggered, at time 200.
fn with_two_in_flight(config: JobConfig) -> Bench {
    let mut bench = Bench::running(JobConfig { checkpoints_concurrent: 2, ..config });
    bench.at(INTERVAL);
    bench.at(2 * INTERVAL);
    assert_eq!(bench.outputs(), [triggered(1, 1), triggered(2, 1)].concat());
    bench
}

#[test]
fn rule_043_a_due_trigger_waits_while_as_many_are_in_flight_as_may_be() {
    let mut bench = with_two_in_flight(config());
    bench.at(5 * INTERVAL);
    assert_eq!(bench.outputs(), [""; 0]);
    bench.decline(0, 1, 1);
    assert_eq!(bench.outputs(), [given_up(1, 2), triggered(3, 1)].concat());
}

#[test]
fn rule_049_a_completion_subsumes_older_checkpoints_and_no_newer_ones() {
    let config = JobConfig { checkpoints_concurrent: 3, ..config() };
    let mut bench = Bench::running(config);
    for due in 1..=3 {
        bench.at(due * INTERVAL);
    }
    bench.outputs();
    bench.acknowledge_one(0, 1, 1, false);
    bench.acknowledge_one(0, 3, 1, false);
    bench.acknowledge(2, 1, false);
    assert_eq!(bench.outputs(), ["put chk-2/metadata"]);
    bench.metadata(2, stored(StoreKey::Attempt));
    let discard = vec!["discard chk-1".to_owned()];
    assert_eq!(bench.outputs(), [discard, completed(2)].concat());
    assert_eq!(bench.aborted(), [(1, AbortReason::Subsumed)]);
    bench.acknowledge_one(1, 1, 1, false);
    assert_eq!(bench.outputs(), ["discard chk-1"], "a late part of what is subsumed");
    bench.acknowledge(3, 1, false);
    assert_eq!(bench.outputs(), ["put chk-3/metadata"]);
}

#[test]
fn rule_049_checkpoints_complete_in_the_order_of_their_ids() {
    let mut bench = with_two_in_flight(config());
    bench.acknowledge(2, 1, false);
    bench.acknowledge(1, 1, false);
    assert_eq!(bench.outputs(), ["put chk-2/metadata"], "one write at a time");
    bench.at(4 * TIMEOUT);
    assert_eq!(bench.outputs(), [""; 0], "what is whole does not expire");
    bench.metadata(2, stored(StoreKey::Attempt));
    let discard = vec!["discard chk-1".to_owned()];
    assert_eq!(bench.outputs(), [discard, completed(2)].concat());
    assert_eq!(bench.aborted(), [(1, AbortReason::Subsumed)]);

    let mut bench = with_two_in_flight(config());
    bench.acknowledge(1, 1, false);
    bench.acknowledge(2, 1, false);
    assert_eq!(bench.outputs(), ["put chk-1/metadata"]);
    bench.metadata(1, stored(StoreKey::Attempt));
    assert_eq!(bench.outputs(), [completed(1), vec!["put chk-2/metadata".to_owned()]].concat());
}

#[test]
fn rule_050_metadata_that_was_not_written_leaves_older_checkpoints_in_flight() {
    let mut bench = with_two_in_flight(config());
    bench.acknowledge(2, 1, false);
    bench.acknowledge(1, 1, false);
    bench.outputs();
    bench.metadata(2, failed());
    let put = vec!["put chk-1/metadata".to_owned()];
    assert_eq!(bench.outputs(), [given_up(2, 1), put].concat());
}

#[test]
fn rule_052_each_checkpoint_has_a_timeout_of_its_own() {
    let config = JobConfig { checkpoint_failures_tolerable: 9, ..config() };
    let mut bench = with_two_in_flight(config);
    assert_eq!(bench.deadline, Some(Instant::from_millis(INTERVAL + TIMEOUT)));
    bench.acknowledge(1, 1, false);
    bench.outputs();
    assert_eq!(bench.deadline, Some(Instant::from_millis(2 * INTERVAL + TIMEOUT)));
    bench.at(2 * INTERVAL + TIMEOUT);
    assert_eq!(bench.outputs(), [given_up(2, 1), triggered(3, 1)].concat());
    assert_eq!(bench.aborted(), [(2, AbortReason::Expired)]);
}

#[test]
fn rule_053_a_failure_ends_all_that_collect_parts() {
    let mut bench = with_two_in_flight(config());
    bench.acknowledge(1, 1, false);
    bench.outputs();
    bench.say(0, 1, crashed());
    assert_eq!(bench.outputs(), ["discard chk-2", "cancel a1"]);
    bench.cancelled(1);
    assert_eq!(bench.outputs(), [""; 0], "whether chk-1 is complete is not known");
    bench.metadata(1, stored(StoreKey::Attempt));
    bench.at(10 * INTERVAL);
    assert_eq!(bench.deploy(), ["put attempt a2", "deploy a2 from chk-1"]);
}

#[test]
fn rule_057_a_completion_does_not_clear_failures_of_newer_checkpoints() {
    let mut bench = with_two_in_flight(config());
    bench.decline(0, 2, 1);
    bench.acknowledge(1, 1, false);
    bench.metadata(1, stored(StoreKey::Attempt));
    assert!(bench.coordinator.phase().is_live(), "one failure is tolerable");
    bench.at(3 * INTERVAL);
    bench.decline(0, 3, 1);
    assert!(!bench.coordinator.phase().is_live(), "2 and 3 failed in a row");
}

#[test]
fn rule_102_a_final_checkpoint_ends_those_behind_it() {
    let mut bench = Bench::running(JobConfig { checkpoints_concurrent: 2, ..config() });
    bench.all(&FromTask::EndOfData);
    bench.at(INTERVAL);
    assert_eq!(bench.outputs(), [triggered(1, 1), triggered(2, 1)].concat());
    bench.acknowledge(1, 1, true);
    bench.metadata(1, stored(StoreKey::Attempt));
    let finish = (0..TASKS).map(|task| format!("t{task} a1 Finish chk-1"));
    let expected = ["put chk-1/metadata".to_owned(), "discard chk-2".to_owned()];
    assert_eq!(bench.outputs(), expected.into_iter().chain(finish).collect::<Vec<_>>());
    assert_eq!(bench.aborted(), [(2, AbortReason::Suspended)]);
    bench.all(&FromTask::Finished);
    assert_eq!(bench.outputs(), ["finished"]);
}
