//! Transactional updates: nothing is sent that is not durable, nothing is taken in twice.

use super::*;

fn merging() -> Job {
    relay_by(Mechanism::Transactional)
}

/// A source task with one output and the sink task behind it.
fn ends() -> (Probe, Probe) {
    let job = source(Mechanism::Transactional);
    (Probe::fresh(&job, SOURCE), Probe::fresh(&job, SOURCE + 1))
}

impl Probe {
    /// Delivers numbers, the first of which has this number on its channel.
    fn numbered(&mut self, channel: u32, first: u64, numbers: &[u64]) -> Vec<String> {
        let mut records = Batch::new(numbers.to_vec());
        records.set_number(first);
        self.element(channel, Element::Batch(records))
    }

    /// The last write is durable.
    fn written(&mut self) -> Vec<String> {
        let Subtask { vertex, index, .. } = self.task.subtask;
        let key = StoreKey::Progress { vertex, subtask: index };
        self.reply(key, StoreOutcome::Stored(StateHandle::of(key, &[])))
    }

    /// The task that goes on from the last write, and what it says first.
    fn restarted(&mut self, job: &Job) -> Self {
        let mut task = Self::restored(job, self.task.id().get(), self.state());
        task.first = task.said();
        task
    }
}

/// The relay's write.
const WRITE: [&str; 2] = ["cut chk-1", "put progress-v1-0"];

#[test]
fn what_is_produced_is_sent_when_it_is_durable_and_the_sender_hears_of_it() {
    let mut relay = Probe::fresh(&merging(), RELAY);
    assert_eq!(relay.numbered(0, 0, &[7, 8]), WRITE);
    assert_eq!(relay.written(), ["out0: [7, 8]", "tell t0: taken in before 2"]);
    let kept = relay.state();
    assert_eq!(kept.numbers.map(|numbers| numbers.inputs), Some(vec![2, 0]));
    assert_eq!(kept.in_flight.outputs.len(), 1, "it is kept until the receiver has it");
}

#[test]
fn what_comes_while_a_write_is_under_way_is_part_of_the_next_one() {
    let mut relay = Probe::fresh(&merging(), RELAY);
    relay.numbered(0, 0, &[7]);
    assert_eq!(relay.numbered(1, 0, &[8]), [""; 0]);
    let next = ["out0: [7]", "tell t0: taken in before 1", "cut chk-2", "put progress-v1-0"];
    assert_eq!(relay.written(), next);
    assert_eq!(relay.written(), ["out0: [8]", "tell t1: taken in before 1"]);
}

#[test]
fn what_was_taken_in_before_is_dropped_and_what_is_missing_is_reported() {
    let mut relay = Probe::fresh(&merging(), RELAY);
    relay.numbered(0, 0, &[7, 8]);
    relay.written();
    assert_eq!(relay.numbered(0, 0, &[7, 8]), [""; 0]);
    assert_eq!(relay.numbered(0, 1, &[8, 9]), ["cut chk-2", "put progress-v1-0"]);
    assert_eq!(relay.written(), ["out0: [9]", "tell t0: taken in before 3"]);
    let failed = relay.numbered(0, 5, &[12]).join("");
    assert!(failed.contains("goes on with record 5 and this task with record 3"), "{failed}");
}

#[test]
fn an_attempt_goes_on_from_the_last_write_and_sends_again_what_may_not_have_arrived() {
    let mut relay = Probe::fresh(&merging(), RELAY);
    relay.numbered(0, 0, &[7]);
    relay.written();
    relay.numbered(0, 1, &[8]);
    let mut again = relay.restarted(&merging());
    assert_eq!(again.first, ["running", "out0: [7]", "out0: [8]"]);
    again.peer(ToPeer::TakenIn { outlet: OutletIndex::new(0), next: 1 });
    assert_eq!(again.numbered(0, 0, &[7, 8]), [""; 0]);
    assert_eq!(again.numbered(0, 2, &[9]), ["cut chk-3", "put progress-v1-0"]);
    assert_eq!(again.restarted(&merging()).first, ["running", "out0: [8]", "out0: [9]"]);
}

#[test]
fn a_sink_flushes_or_prepares_before_its_write_and_commits_after_it() {
    let mut sink = ends().1;
    assert_eq!(sink.numbered(0, 0, &[7]), ["write [7]", "cut chk-1", "flush chk-1"]);
    let flushed = SinkReply::Flushed(Some(CheckpointId::new(1)));
    assert_eq!(sink.sink(flushed), ["put progress-v1-0"]);
    assert_eq!(sink.written(), ["tell t0: taken in before 1"]);
}

#[test]
fn the_end_is_part_of_the_last_write_and_comes_once() {
    let (mut source, _) = ends();
    assert_eq!(source.read(&[0, 1]), ["read", "cut chk-1", "put progress-v0-0"]);
    assert_eq!(source.end_of_split(), [""; 0], "the write is under way");
    assert_eq!(source.written(), ["out0: [0, 1]", "cut chk-2", "put progress-v0-0"]);
    let end = ["out0: end of data", "out0: end of partition", "finished"];
    assert_eq!(source.written(), end);
    let again = source.restarted(&self::source(Mechanism::Transactional));
    assert_eq!(again.first, [&["running", "out0: [0, 1]"][..], &end].concat());
}

#[test]
fn nothing_more_is_taken_in_while_too_much_is_not_durable() {
    let config = JobConfig { unacknowledged_max: 2, ..config(Mechanism::Transactional) };
    let builder = JobBuilder::new("source", 1);
    builder.source("numbers", Numbers::up_to(9)).rebalance().sink("out", Collect::default());
    let job = builder.build(config).expect("the graph is right");
    let mut sink = Probe::fresh(&job, SOURCE + 1);
    sink.numbered(0, 0, &[1]);
    assert!(sink.task.accepts_elements());
    sink.numbered(0, 1, &[2, 3]);
    assert!(!sink.task.accepts_elements(), "a write is under way");
    sink.sink(SinkReply::Flushed(Some(CheckpointId::new(1))));
    sink.written();
    assert!(sink.task.accepts_elements(), "the rest is part of the next write");
}
