//! The rules that the task keeps, by number. What a task answers is read as lines of text.

mod clock;
mod overtaking;
mod progress;
mod two_stage;

use std::time::Duration;

use super::*;
use crate::config::JobConfig;
use crate::connector::memory::{Collect, CollectTransactions, Numbers};
use crate::element::Barrier;
use crate::id::{SplitId, SubtaskIndex, TransactionId, VertexId};
use crate::job::{Job, JobBuilder, TaskStart};
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::operator::sink::Committed;
use crate::operator::source::{ReadOutcome, ReadReply};
use crate::operator::{Emit, Operator};
use crate::state::codec::Format;
use crate::state::snapshot::{Bytes, InFlight, PendingTransaction, SourceState, TaskState};
use crate::storage::StateHandle;

#[test]
fn rule_001_no_record_of_a_blocked_channel_is_processed_and_others_go_on() {
    let mut task = Probe::fresh(&relay(), RELAY);
    assert_eq!(task.barrier(0, 1), ["block in0"]);
    assert!(task.task.is_blocked(ChannelIndex::new(0)));
    assert_eq!(task.records(1, &[7]), ["out0: [7]"]);
    assert_eq!(task.barrier(1, 1), ["out0: barrier chk-1", "put chk-1/t2-a1", "unblock in0"]);
    assert_eq!(task.records(0, &[8]), ["out0: [8]"]);
}

#[test]
#[should_panic(expected = "in0 of t2 is blocked")]
fn rule_001_a_driver_that_delivers_on_a_blocked_channel_is_stopped() {
    let mut task = Probe::fresh(&relay(), RELAY);
    task.barrier(0, 1);
    task.records(0, &[7]);
}

#[test]
fn rule_002_records_then_barriers_then_the_sink_then_the_store() {
    let mut task = Probe::fresh(&exchange(), RELAY);
    task.barrier(0, 1);
    let last = Element::Batch(Batch::new((0..8_u64).collect()));
    task.task.handle_element(ChannelIndex::new(1), last);
    assert_eq!(task.said(), [""; 0], "half full batches are collected");
    task.task.handle_element(ChannelIndex::new(1), barrier(1));
    let cut = task.said();
    assert!(cut[0].starts_with("out0: [") && cut[1].starts_with("out1: ["), "{cut:?}");
    let barriers = ["out0: barrier chk-1", "out1: barrier chk-1"];
    assert_eq!(cut[2..4], barriers);
    assert_eq!(cut[4..], ["put chk-1/t2-a1", "unblock in0"]);

    for (job, before, expected) in [
        (plain(), "write [7]", "flush chk-1"),
        (two_phase(), "write 1-0: [7]", "prepare 1-0 for chk-1"),
    ] {
        let mut task = Probe::running(&job, SINK);
        assert_eq!(task.records(0, &[7]), [before]);
        task.barrier(0, 1);
        assert_eq!(task.barrier(1, 1), [expected, "put chk-1/t2-a1", "unblock in0"]);
    }
}

#[test]
fn rule_007_a_task_that_takes_no_part_sends_cancel_markers() {
    let [first, second] = ["out0: cancel chk-1", "out1: cancel chk-1"];
    let mut task = Probe::fresh(&exchange(), RELAY);
    task.barrier(0, 1);
    let said = task.element(1, Element::Cancel(CheckpointId::new(1)));
    assert_eq!(said, [first, second, "decline chk-1: CancelledUpstream", "unblock in0"]);

    let mut task = Probe::fresh(&exchange(), RELAY);
    task.barrier(0, 1);
    let said = task.aborted(1);
    assert_eq!(said, ["unblock in0", first, second]);
}

#[test]
fn rule_008_an_abort_before_the_barrier_makes_it_a_cancel_marker() {
    let mut task = Probe::fresh(&source(Mechanism::Aligned), SOURCE);
    assert_eq!(task.aborted(2), [""; 0]);
    assert_eq!(task.trigger(1), ["out0: barrier chk-1", "put chk-1/t0-a1"]);
    assert_eq!(task.trigger(2), ["out0: cancel chk-2"]);
    assert_eq!(task.trigger(3), ["out0: barrier chk-3", "put chk-3/t0-a1"]);

    let mut task = Probe::fresh(&relay(), RELAY);
    task.aborted(1);
    task.barrier(0, 1);
    assert_eq!(task.barrier(1, 1), ["out0: cancel chk-1", "unblock in0"]);
}

#[test]
fn rule_058_a_notice_of_an_abort_makes_up_for_lost_ones_of_older_checkpoints() {
    let notice = |oldest| ToTask::Aborted {
        checkpoint: CheckpointId::new(5),
        oldest_in_flight: CheckpointId::new(oldest),
    };
    for (oldest, expected) in
        [(4, vec![]), (5, vec!["unblock in0", "out0: cancel chk-4", "out1: cancel chk-4"])]
    {
        let mut task = Probe::fresh(&exchange(), RELAY);
        assert_eq!(task.barrier(0, 4), ["block in0"]);
        assert_eq!(task.message(notice(oldest)), expected);
        assert_eq!(task.task.is_collecting_barriers(), oldest == 4);
    }
}

#[test]
fn rule_008_the_memory_of_aborted_checkpoints_is_bounded() {
    let mut task = Probe::fresh(&source(Mechanism::Aligned), SOURCE);
    let last = ABORTED_REMEMBERED_MAX as u64 + 5;
    for id in 1..=last {
        task.aborted(id);
    }
    assert_eq!(task.task.aborted.len(), ABORTED_REMEMBERED_MAX);
    assert_eq!(task.trigger(last), [format!("out0: cancel chk-{last}")]);
}

#[test]
fn rule_009_a_trigger_out_of_order_does_nothing() {
    let mut task = Probe::fresh(&source(Mechanism::Aligned), SOURCE);
    assert_eq!(task.trigger(5).len(), 2);
    for id in [5, 4] {
        assert_eq!(task.trigger(id), [""; 0]);
    }
}

#[test]
fn rule_012_a_task_that_is_not_ready_declines_and_cancels() {
    let mut task = Probe::fresh(&source_and_sink(), SOURCE);
    assert_eq!(task.task.phase(), Phase::AwaitingSinkRecovery);
    assert_eq!(task.trigger(1), ["decline chk-1: TaskNotReady"]);

    let mut task = Probe::fresh(&source(Mechanism::Aligned), SOURCE);
    task.task.phase = Phase::AwaitingLastCommits;
    assert_eq!(task.trigger(1), ["out0: cancel chk-1", "decline chk-1: TaskNotReady"]);
}

#[test]
fn rules_058_and_063_a_completion_commits_every_older_transaction_in_order() {
    let table: [(&[u64], &[&str]); 5] = [
        (&[1, 2, 3], &["commit 1-0", "commit 1-1", "commit 1-2"]),
        (&[3], &["commit 1-0", "commit 1-1", "commit 1-2"]),
        (&[1, 1], &["commit 1-0"]),
        (&[2, 1], &["commit 1-0", "commit 1-1"]),
        (&[2, 3, 2], &["commit 1-0", "commit 1-1", "commit 1-2"]),
    ];
    for (completions, expected) in table {
        let mut task = with_pending(3);
        let mut commits: Vec<_> = completions.iter().flat_map(|id| task.completed(*id)).collect();
        commits.extend((0..3).flat_map(|sequence| task.committed(sequence)));
        assert_eq!(commits, expected, "completed: {completions:?}");
    }
}

#[test]
fn rule_060_an_aborted_checkpoint_rolls_nothing_back() {
    let mut task = with_pending(1);
    assert_eq!(task.aborted(1), [""; 0]);
    task.records(0, &[20]);
    task.checkpoint(2);
    assert_eq!(task.pending(), ["1-0 of chk-1", "1-1 of chk-2"]);
    assert_eq!(task.completed(2), ["commit 1-0"]);
    assert_eq!(task.committed(0), ["commit 1-1"]);
}

#[test]
fn rule_060_the_next_acknowledgement_awaits_the_earlier_prepare() {
    for records in [true, false] {
        let mut task = with_pending(1);
        task.aborted(1);
        if records {
            task.records(0, &[20]);
        }
        task.checkpoint(2);
        assert_eq!(task.stored(2), [""; 0]);
        if records {
            assert_eq!(task.prepared(1, 2), [""; 0], "the earlier one is not prepared");
        }
        assert_eq!(task.prepared(0, 1), ["acknowledge chk-2"]);
    }
}

#[test]
fn rule_062_a_snapshot_holds_pending_and_unconfirmed_transactions() {
    let mut task = with_pending(2);
    assert_eq!(task.pending(), ["1-0 of chk-1", "1-1 of chk-2"]);
    task.completed(1);
    task.checkpoint(3);
    assert_eq!(task.pending(), ["1-0 of chk-1", "1-1 of chk-2"], "a commit may still fail");
    task.committed(0);
    task.checkpoint(4);
    assert_eq!(task.pending(), ["1-1 of chk-2"]);
}

#[test]
fn rule_064_a_restore_commits_all_then_aborts_the_dangling_then_runs() {
    let mut before = with_pending(2);
    let mut task = Probe::restored(&two_phase(), SINK, before.state());
    assert_eq!(task.said(), ["commit 1-0"]);
    assert!(!task.task.accepts_elements());
    assert_eq!(task.committed(0), ["commit 1-1"]);
    assert_eq!(task.committed(1), ["abort dangling"]);
    assert_eq!(task.sink(SinkReply::DanglingAborted), ["running"]);
    assert!(task.task.accepts_elements());
    assert_eq!(task.records(0, &[7]), ["write 2-0: [7]"], "a new name in each attempt");
}

#[test]
fn rule_071_a_late_notice_does_not_commit_what_belongs_to_a_later_checkpoint() {
    let mut task = with_pending(1);
    task.records(0, &[20]);
    assert_eq!(task.end(0), [""; 0]);
    assert_eq!(task.end(1), ["end of data"]);
    task.checkpoint(2);
    assert_eq!(task.completed(1), ["commit 1-0"]);
    assert_eq!(task.completed(1), [""; 0]);
    assert_eq!(task.committed(0), [""; 0]);
    assert_eq!(task.message(ToTask::Finish(CheckpointId::new(2))), ["commit 1-1"]);
}

#[test]
fn rule_077_the_cursor_stands_behind_the_last_record_before_the_barrier() {
    let mut task = Probe::fresh(&source(Mechanism::Aligned), SOURCE);
    assert_eq!(task.first, ["running", "read"]);
    task.trigger(1);
    assert_eq!(task.position(), 0, "a read is outstanding");
    assert_eq!(task.read(&[0, 1]), ["out0: [0, 1]", "read"]);
    task.trigger(2);
    assert_eq!(task.position(), 2);
    assert_eq!(task.read(&[2]), ["out0: [2]", "read"]);
    assert_eq!(task.position(), 2, "the snapshot was taken before");
}

#[test]
fn rule_089_the_watermark_starts_anew_after_a_restore() {
    let mut before = Probe::fresh(&alarms(), RELAY);
    before.records(0, &[40]);
    for channel in [0, 1] {
        before.watermark(channel, 30);
    }
    before.checkpoint(1);
    let mut task = Probe::restored(&alarms(), RELAY, before.state());
    assert_eq!(task.said(), ["running"]);
    assert_eq!(task.watermark(0, 50), [""; 0]);
    assert_eq!(task.watermark(1, 20), ["out0: watermark 20ms"]);
    let fired = ["out0: [40]", "out0: watermark 45ms"];
    assert_eq!(task.watermark(1, 45), fired);
}

#[test]
fn rule_089_a_restored_source_says_first_how_far_event_time_was() {
    let mut before = Probe::fresh(&alarms(), SOURCE);
    assert_eq!(before.read(&[7, 30]), ["out0: [7, 30]", "out0: watermark 29ms", "read"]);
    before.trigger(1);
    let mut task = Probe::restored(&alarms(), SOURCE, before.state());
    assert_eq!(task.said(), ["running", "out0: watermark 29ms", "read"]);
    // What was late is late again.
    assert_eq!(task.read(&[20]), ["out0: [20]", "read"]);
    assert_eq!(task.read(&[40]), ["out0: [40]", "out0: watermark 39ms", "read"]);
}

#[test]
fn timers_fire_by_the_least_watermark_over_the_channels() {
    let mut task = Probe::fresh(&alarms(), RELAY);
    task.records(0, &[40, 10]);
    assert_eq!(task.watermark(0, 50), [""; 0]);
    let fired = ["out0: [10]", "out0: watermark 10ms"];
    assert_eq!(task.watermark(1, 10), fired);
    let fired = ["out0: [40]", "out0: watermark 50ms"];
    assert_eq!(task.end(1), fired);
}

#[test]
fn rules_099_and_102_a_restored_finished_task_says_no_last_words_again() {
    let ends = ["out0: end of data", "end of data"];
    let mut before = Probe::fresh(&alarms(), RELAY);
    before.records(0, &[40]);
    before.end(0);
    assert_eq!(before.end(1), ["out0: [40]", "out0: [999]", ends[0], ends[1]]);
    assert_eq!(before.completed(0), [""; 0], "only what covers the end finishes it");
    before.checkpoint(1);
    assert_eq!(before.stored(1), ["acknowledge chk-1 finished"]);

    let mut task = Probe::restored(&alarms(), RELAY, before.state());
    assert_eq!(task.said(), ["running", ends[0], ends[1]]);
    for channel in [0, 1] {
        assert_eq!(task.end(channel), [""; 0]);
    }
    let finish = || ToTask::Finish(CheckpointId::new(1));
    assert_eq!(task.message(finish()), ["out0: end of partition", "finished"]);
    assert_eq!(task.message(finish()), ["finished"], "the first answer may be lost");
    assert_eq!(task.trigger(2), [""; 0]);
}

#[test]
fn rule_058_a_notice_of_an_abort_that_comes_behind_the_end_is_of_no_use() {
    let mut task = Probe::fresh(&alarms(), RELAY);
    task.end(0);
    task.end(1);
    task.checkpoint(1);
    task.stored(1);
    task.barrier(0, 2);
    task.message(ToTask::Finish(CheckpointId::new(1)));
    assert_eq!(task.aborted(2), [""; 0], "nothing may follow the end of the partition");
}

#[test]
fn rule_102_a_task_finishes_when_its_last_commit_is_confirmed() {
    let mut task = with_pending(1);
    task.end(0);
    task.end(1);
    let finish = || ToTask::Finish(CheckpointId::new(1));
    assert_eq!(task.message(finish()), ["commit 1-0"]);
    assert_eq!(task.message(finish()), [""; 0]);
    assert_eq!(task.committed(0), ["finished"]);
}

#[test]
fn a_checkpoint_is_acknowledged_when_store_and_sink_have_both_confirmed() {
    for sink_first in [true, false] {
        let mut task = with_pending(1);
        let (first, second) = match sink_first {
            true => (task.prepared(0, 1), task.stored(1)),
            false => (task.stored(1), task.prepared(0, 1)),
        };
        assert_eq!((first.len(), second), (0, vec!["acknowledge chk-1".to_owned()]));

        let mut task = Probe::running(&plain(), SINK);
        task.checkpoint(1);
        let flushed = SinkReply::Flushed(Some(CheckpointId::new(1)));
        let (first, second) = match sink_first {
            true => (task.sink(flushed), task.stored(1)),
            false => (task.stored(1), task.sink(flushed)),
        };
        assert_eq!((first.len(), second), (0, vec!["acknowledge chk-1".to_owned()]));
    }
}

#[test]
fn a_write_that_is_not_known_to_be_durable_declines() {
    let text = String::from("disk full");
    for outcome in [StoreOutcome::Failed(text.clone()), StoreOutcome::Unknown(text)] {
        let mut task = with_pending(1);
        let key = task.state_key(1);
        let declined = task.reply(key, outcome);
        assert_eq!(declined, ["decline chk-1: StoreFailed"]);
        assert_eq!(task.prepared(0, 1), [""; 0], "it is not acknowledged later");
    }
}

#[test]
fn at_most_once_hands_records_out_when_their_positions_are_durable() {
    let mut task = Probe::fresh(&source(Mechanism::None), SOURCE);
    assert_eq!(task.read(&[0, 1]), ["put reserved-v0-0", "read"]);
    assert_eq!((task.hand_out().len(), task.task.reserved().is_some()), (0, false));
    assert_eq!(task.reserved(), [""; 0]);
    assert_eq!(task.hand_out(), ["out0: [0, 1]"]);
    assert_eq!((task.hand_out().len(), task.task.reserved().is_some()), (0, false));
}

#[test]
fn at_most_once_reads_on_while_positions_are_on_their_way() {
    let mut task = Probe::fresh(&source(Mechanism::None), SOURCE);
    assert_eq!(task.read(&[0, 1]), ["put reserved-v0-0", "read"]);
    assert_eq!(task.read(&[2]), ["read"]);
    assert_eq!(task.read(&[3, 4, 5]), ["read"]);
    assert_eq!(task.reserved(), [""; 0], "there is something to hand out");
    assert_eq!(task.hand_out(), ["out0: [0, 1]", "put reserved-v0-0"]);
    let positions = task.last.iter().find_map(|output| {
        let TaskOutput::Store(StoreRequest::Put { value, .. }) = output else { return None };
        let StoreValue::Reservation(positions) = value else { return None };
        Some(positions)
    });
    assert_eq!(positions.map(SourceState::records), Some(6), "all that was read");
    assert_eq!(task.hand_out(), [""; 0], "the next one is not durable");
    assert_eq!(task.read(&[6]), ["read"]);
    assert_eq!(task.reserved(), [""; 0]);
    assert_eq!(task.hand_out(), ["out0: [2]"]);
    assert_eq!(task.hand_out(), ["out0: [3, 4, 5]", "put reserved-v0-0"]);
}

#[test]
fn at_most_once_data_ends_behind_what_waits_and_is_not_reserved_itself() {
    let end = ["out0: end of data", "out0: end of partition", "finished"];
    let mut task = Probe::fresh(&source(Mechanism::None), SOURCE);
    task.read(&[0, 1]);
    assert_eq!(task.end_of_split(), [""; 0]);
    assert_eq!((task.reserved().len(), task.hand_out()), (0, vec!["out0: [0, 1]".to_owned()]));
    assert_eq!(task.hand_out(), end);
    let mut empty = Probe::fresh(&source(Mechanism::None), SOURCE);
    assert_eq!(empty.end_of_split(), end);
}

/// A source task and the sink task behind it.
fn acknowledged() -> (Probe, Probe) {
    let job = source(Mechanism::Acks);
    (Probe::fresh(&job, SOURCE), Probe::fresh(&job, SOURCE + 1))
}

const WORD: &str = "tell t0: read 0 of t0";

#[test]
fn rule_082_a_read_is_done_when_what_came_of_it_is_written_and_flushed() {
    let (mut source, mut sink) = acknowledged();
    assert_eq!(source.read(&[0, 1]), ["alarm in 30s", "out0: [0, 1]", WORD, "read"]);
    let (batch, word) = (source.sent_batch(), source.told());
    assert_eq!(source.peer(word), [""; 0], "what it has sent is open");
    assert_eq!(sink.element(0, Element::Batch(batch)), ["write [0, 1]", "flush"]);
    assert_eq!(sink.sink(SinkReply::Flushed(None)), [WORD]);
    assert_eq!(source.peer(sink.told()), ["put reserved-v0-0"]);
}

#[test]
fn rule_082_one_flush_at_a_time_stands_for_all_that_was_written_before_it() {
    let (mut source, mut sink) = acknowledged();
    source.read(&[0]);
    let [first, second, third] = [(); 3].map(|()| source.sent_batch());
    assert_eq!(sink.element(0, Element::Batch(first)), ["write [0]", "flush"]);
    assert_eq!(sink.element(0, Element::Batch(second)), ["write [0]"]);
    assert_eq!(sink.element(0, Element::Batch(third)), ["write [0]"]);
    assert_eq!(sink.sink(SinkReply::Flushed(None)), [WORD]);
    sink.task.flush();
    assert_eq!(sink.said(), ["flush"]);
    assert_eq!(sink.sink(SinkReply::Flushed(None)), [WORD, WORD]);
}

#[test]
fn rule_082_what_is_not_acknowledged_in_time_is_read_again_by_the_same_source() {
    let (mut source, _) = acknowledged();
    source.read(&[0, 1]);
    let late = source.told();
    let begin = source.first.clone();
    assert_eq!(begin, ["running", "read"]);
    for _ in 0..2 {
        source.task.handle_alarm();
    }
    assert_eq!(source.said(), ["alarm in 30s"], "nothing is open any more after the second");
    assert_eq!(source.end_of_split(), ["read"]);
    let TaskOutput::Read(request) = source.last.remove(0) else { panic!("it reads") };
    assert_eq!(request.records_max, 2);
    assert_eq!(source.read(&[0, 1]), ["alarm in 30s", "out0: [0, 1]", "tell t0: read 1 of t0"]);
    assert_eq!(source.peer(late), [""; 0]);
}

#[test]
fn rule_082_a_source_ends_when_everything_is_acknowledged_and_that_is_durable() {
    let (mut source, mut sink) = acknowledged();
    source.read(&[0, 1]);
    let (batch, word) = (source.sent_batch(), source.told());
    assert_eq!(source.end_of_split(), [""; 0]);
    source.peer(word);
    sink.element(0, Element::Batch(batch));
    sink.sink(SinkReply::Flushed(None));
    assert_eq!(source.peer(sink.told()), ["put reserved-v0-0"]);
    assert_eq!(source.reserved(), ["out0: end of data", "out0: end of partition", "finished"]);
}

#[test]
fn rule_082_each_record_of_a_batch_that_is_split_waits_for_the_last_one() {
    let (mut source, mut sink) = acknowledged();
    source.read(&[0, 1]);
    let (batch, word) = (source.sent_batch(), source.told());
    source.peer(word);
    let [first, second] = <[Batch; 2]>::try_from(batch.split()).expect("it holds two records");
    assert_eq!(sink.element(0, Element::Batch(first)), ["write [0]"], "no flush is asked for yet");
    sink.element(0, Element::Batch(second));
    sink.sink(SinkReply::Flushed(None));
    assert_eq!(source.peer(sink.told()), ["put reserved-v0-0"]);
}

#[test]
fn at_most_once_a_reservation_that_is_not_durable_fails_the_task() {
    let text = String::from("disk full");
    for outcome in [StoreOutcome::Failed(text.clone()), StoreOutcome::Unknown(text)] {
        let mut task = Probe::fresh(&source(Mechanism::None), SOURCE);
        task.read(&[0, 1]);
        let key = task.reservation_key();
        assert_eq!(task.reply(key, outcome), ["failed: positions were not stored: disk full"]);
        assert_eq!(task.read(&[2]), [""; 0]);
        assert_eq!(task.reserved(), [""; 0]);
        assert_eq!(task.hand_out(), [""; 0], "a dead task hands nothing out");
    }
}

/// A task, and what it has asked for.
struct Probe {
    task: Task,
    /// What it said at its start.
    first: Vec<String>,
    /// The last snapshot that it put into the store.
    snapshot: Option<TaskSnapshot>,
    /// What it asked for last.
    last: Vec<TaskOutput>,
}

impl Probe {
    fn fresh(job: &Job, task: u32) -> Self {
        let start = job.discover().expect("memory can be read")[task as usize].clone();
        let mut probe = Self::start(job, task, 1, TaskStart::Fresh(start));
        probe.first = probe.said();
        probe
    }

    /// A fresh task whose sink is ready.
    fn running(job: &Job, task: u32) -> Self {
        let mut probe = Self::fresh(job, task);
        probe.sink(SinkReply::DanglingAborted);
        probe
    }

    /// In the second attempt.
    fn restored(job: &Job, task: u32, state: TaskState) -> Self {
        Self::start(job, task, 2, TaskStart::Restored(Box::new(state)))
    }

    fn start(job: &Job, task: u32, attempt: u64, start: TaskStart) -> Self {
        let task = job.task(TaskId::new(task), AttemptId::new(attempt), start);
        let task = task.expect("the state is the task's own");
        Self { task, first: Vec::new(), snapshot: None, last: Vec::new() }
    }

    fn said(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        self.last.clear();
        while let Some(output) = self.task.poll_output() {
            lines.push(line(&output));
            self.last.push(output.clone());
            if let TaskOutput::Store(StoreRequest::Put {
                value: StoreValue::State(state) | StoreValue::Progress(state, _),
                ..
            }) = output
            {
                self.snapshot = Some(*state);
            }
        }
        lines
    }

    fn element(&mut self, channel: u32, element: Element) -> Vec<String> {
        self.task.handle_element(ChannelIndex::new(channel), element);
        self.task.flush();
        self.said()
    }

    fn records(&mut self, channel: u32, records: &[u64]) -> Vec<String> {
        self.element(channel, Element::Batch(Batch::new(records.to_vec())))
    }

    fn barrier(&mut self, channel: u32, checkpoint: u64) -> Vec<String> {
        self.element(channel, barrier(checkpoint))
    }

    fn watermark(&mut self, channel: u32, millis: i64) -> Vec<String> {
        self.element(channel, Element::Watermark(EventTime::from_millis(millis)))
    }

    fn end(&mut self, channel: u32) -> Vec<String> {
        self.element(channel, Element::EndOfData)
    }

    fn checkpoint(&mut self, checkpoint: u64) {
        self.barrier(0, checkpoint);
        self.barrier(1, checkpoint);
    }

    fn message(&mut self, message: ToTask) -> Vec<String> {
        self.task.handle_message(message);
        self.said()
    }

    /// Nothing is said of older checkpoints.
    fn aborted(&mut self, checkpoint: u64) -> Vec<String> {
        let checkpoint = CheckpointId::new(checkpoint);
        let oldest_in_flight = CheckpointId::new(0);
        self.message(ToTask::Aborted { checkpoint, oldest_in_flight })
    }

    fn peer(&mut self, message: ToPeer) -> Vec<String> {
        self.task.handle_peer(message);
        self.said()
    }

    /// The batch that it has just sent.
    fn sent_batch(&self) -> Batch {
        let mut batches = self.last.iter().filter_map(|output| {
            let TaskOutput::Send(_, Element::Batch(records)) = output else { return None };
            Some(records.clone())
        });
        batches.next_back().expect("it has sent a batch")
    }

    /// What it has just told another task.
    fn told(&self) -> ToPeer {
        let mut messages = self.last.iter().filter_map(|output| {
            let TaskOutput::Tell(_, message) = output else { return None };
            Some(*message)
        });
        messages.next_back().expect("it has told something")
    }

    fn end_of_split(&mut self) -> Vec<String> {
        self.task.handle_read(ReadReply { split: SplitId::new(0), outcome: ReadOutcome::End });
        self.said()
    }

    fn trigger(&mut self, checkpoint: u64) -> Vec<String> {
        let checkpoint = CheckpointId::new(checkpoint);
        self.message(ToTask::Trigger { checkpoint, at: Instant::ZERO, stops: false })
    }

    fn completed(&mut self, checkpoint: u64) -> Vec<String> {
        self.message(ToTask::Completed(CheckpointId::new(checkpoint)))
    }

    fn sink(&mut self, reply: SinkReply) -> Vec<String> {
        self.task.handle_sink(reply);
        self.said()
    }

    fn committed(&mut self, sequence: u64) -> Vec<String> {
        let outcome = Ok(Committed::Now);
        self.sink(SinkReply::Commit { transaction: transaction(1, sequence), outcome })
    }

    fn prepared(&mut self, sequence: u64, checkpoint: u64) -> Vec<String> {
        let (checkpoint, transaction) = (CheckpointId::new(checkpoint), transaction(1, sequence));
        self.sink(SinkReply::Prepared(PendingTransaction { checkpoint, transaction }))
    }

    fn reply(&mut self, key: StoreKey, outcome: StoreOutcome) -> Vec<String> {
        self.task.handle_stored(StoreReply { key, outcome });
        self.said()
    }

    fn stored(&mut self, checkpoint: u64) -> Vec<String> {
        let key = self.state_key(checkpoint);
        self.reply(key, StoreOutcome::Stored(StateHandle::of(key, &[])))
    }

    fn state_key(&self, checkpoint: u64) -> StoreKey {
        let checkpoint = CheckpointId::new(checkpoint);
        StoreKey::State { checkpoint, attempt: self.task.attempt(), task: self.task.id() }
    }

    /// The positions that are on their way are durable.
    fn reserved(&mut self) -> Vec<String> {
        let key = self.reservation_key();
        self.reply(key, StoreOutcome::Stored(StateHandle::of(key, &[])))
    }

    fn hand_out(&mut self) -> Vec<String> {
        self.task.hand_out();
        self.task.flush();
        self.said()
    }

    fn reservation_key(&self) -> StoreKey {
        let Subtask { vertex, index, .. } = self.task.subtask;
        StoreKey::Reservation { vertex, subtask: index }
    }

    /// Answers a read; the cursor is the number of the next record.
    fn read(&mut self, records: &[u64]) -> Vec<String> {
        let cursor = vec![records.len() as u8];
        let outcome = ReadOutcome::Records { records: Batch::new(records.to_vec()), cursor };
        self.task.handle_read(ReadReply { split: SplitId::new(0), outcome });
        self.task.flush();
        self.said()
    }

    /// How many records lie before the cursor in the last snapshot.
    fn position(&mut self) -> u64 {
        self.state().source.expect("it has a source").splits[0].records
    }

    fn state(&mut self) -> TaskState {
        self.snapshot.as_ref().expect("a snapshot was taken").to_state(Format::Binary)
    }

    /// The transactions in the last snapshot.
    fn pending(&mut self) -> Vec<String> {
        let transactions = self.state().transactions;
        let text = |p: &PendingTransaction| format!("{} of {}", name(p.transaction), p.checkpoint);
        transactions.iter().map(text).collect()
    }
}

/// A two-phase sink that has taken a snapshot after each of `count` records and heard nothing more.
fn with_pending(count: u64) -> Probe {
    let mut task = Probe::running(&two_phase(), SINK);
    for id in 1..=count {
        task.records(0, &[id]);
        task.checkpoint(id);
    }
    task
}

fn line(output: &TaskOutput) -> String {
    match output {
        TaskOutput::Send(outlet, element) => format!("{outlet}: {}", element_text(element)),
        TaskOutput::Block(channel) => format!("block {channel}"),
        TaskOutput::Unblock(channel) => format!("unblock {channel}"),
        TaskOutput::Cut(checkpoint) => format!("cut {checkpoint}"),
        TaskOutput::Overtake(channel, checkpoint) => format!("overtake {channel} {checkpoint}"),
        TaskOutput::Save(SavedState { follows, .. }) => format!("save {follows:?}"),
        TaskOutput::Hurry(outlet, checkpoint) => format!("hurry {outlet} {checkpoint}"),
        TaskOutput::WaitUntil(at) => format!("wait until {at}"),
        TaskOutput::WakeAt(at) => format!("wake at {}ms", at.as_millis()),
        TaskOutput::Report(report) => report_text(report),
        TaskOutput::Store(StoreRequest::Put { key, .. }) => format!("put {key}"),
        TaskOutput::Store(StoreRequest::Discard(checkpoint)) => format!("discard {checkpoint}"),
        TaskOutput::Read(_) => "read".to_owned(),
        TaskOutput::Acknowledge(told) => format!("acknowledge {} messages", told.ids.len()),
        TaskOutput::Sink(request) => request_text(request),
        TaskOutput::Tell(to, ToPeer::Acknowledged { root, .. }) => {
            format!("tell {to}: read {} of {}", root.read, root.source)
        }
        TaskOutput::Tell(to, ToPeer::TakenIn { next, .. }) => {
            format!("tell {to}: taken in before {next}")
        }
        TaskOutput::Alarm(after) => format!("alarm in {after:?}"),
    }
}

fn barrier(checkpoint: u64) -> Element {
    let checkpoint = CheckpointId::new(checkpoint);
    Element::Barrier(Barrier { checkpoint, overtakes: false, triggered_at: Instant::ZERO })
}

fn element_text(element: &Element) -> String {
    match element {
        Element::Batch(records) => format!("{:?}", records.records::<u64>()),
        Element::Watermark(watermark) => format!("watermark {watermark}"),
        Element::Idle => "idle".to_owned(),
        Element::Barrier(Barrier { checkpoint, overtakes: false, .. }) => {
            format!("barrier {checkpoint}")
        }
        Element::Barrier(Barrier { checkpoint, .. }) => format!("barrier {checkpoint}, ahead"),
        Element::Committables(told) => {
            let transaction = told.transaction.map_or("nothing".to_owned(), name);
            format!("writer {} has {transaction} for {}", told.writer, told.checkpoint)
        }
        Element::Cancel(checkpoint) => format!("cancel {checkpoint}"),
        Element::EndOfData => "end of data".to_owned(),
        Element::EndOfPartition => "end of partition".to_owned(),
    }
}

fn report_text(report: &FromTask) -> String {
    match report {
        FromTask::Running => "running".to_owned(),
        FromTask::Acknowledged { checkpoint, finished: false, .. } => {
            format!("acknowledge {checkpoint}")
        }
        FromTask::Acknowledged { checkpoint, finished: true, .. } => {
            format!("acknowledge {checkpoint} finished")
        }
        FromTask::Declined { checkpoint, reason } => format!("decline {checkpoint}: {reason:?}"),
        FromTask::WantsSplit => "wants split".to_owned(),
        FromTask::EndOfData => "end of data".to_owned(),
        FromTask::Finished => "finished".to_owned(),
        FromTask::Lost(loss) => format!("lost {} of {}", loss.in_all, loss.split),
        FromTask::Failed(error) => format!("failed: {error}"),
    }
}

fn request_text(request: &SinkRequest) -> String {
    match request {
        SinkRequest::Write { transaction, records } => {
            let transaction = transaction.map(|id| format!(" {}:", name(id))).unwrap_or_default();
            format!("write{transaction} {:?}", records.records::<u64>())
        }
        SinkRequest::Flush(None) => "flush".to_owned(),
        SinkRequest::Flush(Some(checkpoint)) => format!("flush {checkpoint}"),
        SinkRequest::Prepare(pending) => {
            format!("prepare {} for {}", name(pending.transaction), pending.checkpoint)
        }
        SinkRequest::Commit(transaction) => format!("commit {}", name(*transaction)),
        SinkRequest::AbortDangling => "abort dangling".to_owned(),
        SinkRequest::LookUp(id) => format!("look up {}", id.sequence),
        SinkRequest::Send { id, .. } => format!("send {}", id.sequence),
        SinkRequest::Mark(id) => format!("mark {}", id.sequence),
    }
}

/// Attempt and sequence.
fn name(transaction: TransactionId) -> String {
    format!("{}-{}", transaction.attempt.get(), transaction.sequence)
}

/// One of the task [`SINK`].
fn transaction(attempt: u64, sequence: u64) -> TransactionId {
    let (vertex, subtask) = (VertexId::new(1), SubtaskIndex::new(0));
    TransactionId { vertex, subtask, attempt: AttemptId::new(attempt), sequence }
}

fn config(mechanism: Mechanism) -> JobConfig {
    JobConfig { mechanism, ..JobConfig::default() }
}

/// Its task [`SOURCE`] has one output.
fn source(mechanism: Mechanism) -> Job {
    let builder = JobBuilder::new("source", 1);
    builder.source("numbers", Numbers::up_to(9)).rebalance().sink("out", Collect::default());
    builder.build(config(mechanism)).expect("the graph is right")
}

/// One task that is source and two-phase sink.
fn source_and_sink() -> Job {
    let builder = JobBuilder::new("source-and-sink", 1);
    let numbers = builder.source("numbers", Numbers::up_to(9));
    numbers.transactional_sink("out", CollectTransactions::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

/// Its task [`RELAY`] has two inputs and one output, and hands everything on.
fn relay() -> Job {
    relay_by(Mechanism::Aligned)
}

fn relay_by(mechanism: Mechanism) -> Job {
    let builder = JobBuilder::new("relay", 2);
    let numbers = builder.source("numbers", Numbers::up_to(9)).rebalance();
    let same = numbers.map("same", |number| number).rebalance();
    same.parallelism(1).sink("out", Collect::default());
    builder.build(config(mechanism)).expect("the graph is right")
}

/// As [`relay`], but with two outputs that records are collected for, by key.
fn exchange() -> Job {
    let builder = JobBuilder::new("exchange", 2);
    let numbers = builder.source("numbers", Numbers::up_to(9)).rebalance();
    let keyed = numbers.map("same", |number| number).key_by(|number| *number);
    keyed.aggregate("count", 0, |n: &mut u64, _| *n += 1).sink("out", Collect::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

/// Its task [`SINK`] is a plain sink with two inputs.
fn plain() -> Job {
    let builder = JobBuilder::new("plain", 2);
    let numbers = builder.source("numbers", Numbers::up_to(9)).rebalance();
    numbers.map("same", |number| number).sink("out", Collect::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

/// As [`plain`], but two-phase.
fn two_phase() -> Job {
    let builder = JobBuilder::new("two-phase", 2);
    let numbers = builder.source("numbers", Numbers::up_to(9)).rebalance();
    numbers.map("same", |number| number).transactional_sink("out", CollectTransactions::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

/// As [`relay`], but each number waits for its own time, and there are last words.
fn alarms() -> Job {
    let builder = JobBuilder::new("alarms", 2);
    let times = |number: &u64| EventTime::from_millis(*number as i64);
    builder
        .source_with_event_time("numbers", Numbers::up_to(9), times, Duration::ZERO)
        .key_by(|number| *number)
        .parallelism(1)
        .process("alarm", Alarm)
        .operator("last", LastWords)
        .rebalance()
        .parallelism(1)
        .sink("out", Collect::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

#[derive(Clone)]
struct Alarm;

impl KeyedProcess for Alarm {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        _out: &mut impl Emit<u64>,
    ) {
        context.register_timer(EventTime::from_millis(number as i64));
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        _context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<u64>,
    ) {
        out.emit(time.as_millis() as u64);
    }
}

/// Hands everything on, and says 999 at the end.
#[derive(Clone)]
struct LastWords;

impl Operator for LastWords {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        out.emit(number);
    }

    fn on_end_of_data(&mut self, out: &mut impl Emit<u64>) {
        out.emit(999);
    }
}

const SOURCE: u32 = 0;
const RELAY: u32 = 2;
const SINK: u32 = 2;
