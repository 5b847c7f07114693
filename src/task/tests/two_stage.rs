//! Two-stage sinks: tasks that write, and one that commits.

use super::*;
use crate::element::Committables;
use crate::id::SubtaskIndex;

const COMMITTER: u32 = 4;

fn two_stage() -> Job {
    let builder = JobBuilder::new("two-stage", 2);
    let numbers = builder.source("numbers", Numbers::up_to(9)).rebalance();
    numbers.two_stage_sink("out", CollectTransactions::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

/// What a committer hears on the channel of a writer, then the writer's barrier.
fn prepared(task: &mut Probe, writer: u32, checkpoint: u64, sequence: Option<u64>) -> Vec<String> {
    let told = Committables {
        writer: SubtaskIndex::new(writer),
        checkpoint: CheckpointId::new(checkpoint),
        transaction: sequence.map(|sequence| transaction(1, sequence)),
    };
    assert_eq!(task.element(writer, Element::Committables(told)), [""; 0]);
    task.barrier(writer, checkpoint)
}

#[test]
fn rule_033_a_writer_tells_what_it_has_prepared_ahead_of_its_barrier_and_commits_nothing() {
    let mut task = Probe::running(&two_stage(), SINK);
    assert_eq!(task.records(0, &[7]), ["write 1-0: [7]"]);
    task.barrier(0, 1);
    let said = task.barrier(1, 1);
    let [told, barrier, prepare, ..] = &said[..] else { panic!("{said:?}") };
    assert_eq!(told, "out0: writer 0 has 1-0 for chk-1");
    assert_eq!((&barrier[..], &prepare[..]), ("out0: barrier chk-1", "prepare 1-0 for chk-1"));
    assert_eq!(task.stored(1), [""; 0], "the prepare is not confirmed");
    assert_eq!(task.prepared(0, 1), ["acknowledge chk-1"]);
    assert_eq!(task.completed(1), [""; 0]);
    assert_eq!(task.pending(), [""; 0], "the committer has it");
    task.barrier(0, 2);
    assert_eq!(task.barrier(1, 2)[0], "out0: writer 0 has nothing for chk-2");
}

#[test]
fn rule_070_a_committer_commits_what_all_writers_have_prepared_when_it_is_covered() {
    let mut task = Probe::fresh(&two_stage(), COMMITTER);
    assert_eq!(task.sink(SinkReply::DanglingAborted), ["running"]);
    assert_eq!(prepared(&mut task, 0, 1, Some(0)), ["block in0"]);
    prepared(&mut task, 1, 1, Some(1));
    assert_eq!(task.pending(), ["1-0 of chk-1", "1-1 of chk-1"]);
    assert_eq!(task.completed(1), ["commit 1-0"]);
    assert_eq!(task.committed(0), ["commit 1-1"]);

    let mut next = Probe::restored(&two_stage(), COMMITTER, task.state());
    assert_eq!(next.said(), ["commit 1-0"], "nobody knows whether it is committed");
}

#[test]
fn a_committer_that_has_not_heard_from_a_writer_takes_no_snapshot() {
    let mut task = Probe::fresh(&two_stage(), COMMITTER);
    task.sink(SinkReply::DanglingAborted);
    prepared(&mut task, 0, 1, Some(0));
    let said = task.barrier(1, 1);
    assert!(said.iter().any(|line| line.contains("only 1 of 2 writers")), "{said:?}");
    assert_eq!(task.task.phase(), Phase::Failed);
}
