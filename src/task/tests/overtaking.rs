//! The rules of barriers that overtake.

use super::*;

impl Probe {
    /// Hands in a barrier ahead of batches of these numbers.
    fn ahead(&mut self, channel: u32, checkpoint: u64, overtaken: &[u64]) -> Vec<String> {
        let barrier = overtaking(checkpoint);
        self.task.handle_overtaking(ChannelIndex::new(channel), barrier, batches(overtaken));
        self.said()
    }

    fn announce(&mut self, channel: u32, checkpoint: u64) -> Vec<String> {
        let barrier = Barrier { overtakes: false, ..overtaking(checkpoint) };
        self.task.handle_announcement(ChannelIndex::new(channel), barrier);
        self.said()
    }

    fn sent(&mut self, outlet: u32, checkpoint: u64, overtaken: &[u64]) -> Vec<String> {
        let (outlet, checkpoint) = (OutletIndex::new(outlet), CheckpointId::new(checkpoint));
        self.task.handle_barrier_sent(outlet, checkpoint, batches(overtaken));
        self.said()
    }

    fn time(&mut self, millis: u64) -> Vec<String> {
        self.task.handle_time(Instant::from_millis(millis));
        self.said()
    }

    /// The numbers in flight in the last snapshot: by input, then by output.
    fn in_flight(&mut self) -> (Vec<Vec<u64>>, Vec<Vec<u64>>) {
        let InFlight { inputs, outputs } = self.state().in_flight;
        let numbers = |batches: &Vec<Bytes>| {
            let records =
                batches.iter().map(|bytes| self.task.stage().decode_input(Format::Binary, bytes));
            records.flat_map(|batch| batch.expect("numbers").into_records::<u64>()).collect()
        };
        let of_inputs = [0, 1].map(|channel| inputs.get(&ChannelIndex::new(channel)));
        let of_inputs = of_inputs.map(|batches| batches.map(numbers).unwrap_or_default());
        (of_inputs.to_vec(), outputs.values().map(numbers).collect())
    }
}

fn overtaking(checkpoint: u64) -> Barrier {
    let checkpoint = CheckpointId::new(checkpoint);
    Barrier { checkpoint, overtakes: true, triggered_at: Instant::ZERO }
}

fn batches(numbers: &[u64]) -> Vec<Batch> {
    numbers.iter().map(|number| Batch::new(vec![*number])).collect()
}

/// What a task says at its cut.
const CUT: [&str; 2] = ["out0: barrier chk-1, ahead", "cut chk-1"];

#[test]
fn rules_020_to_023_the_snapshot_is_cut_at_the_first_barrier_and_holds_what_was_in_flight() {
    let mut task = Probe::fresh(&relay_by(Mechanism::Unaligned), RELAY);
    assert_eq!(task.ahead(0, 1, &[5, 6]), CUT);
    assert_eq!(task.sent(0, 1, &[1, 2]), [""; 0], "the other barrier is awaited");
    for number in [5, 6] {
        assert_eq!(task.records(0, &[number]), [format!("out0: [{number}]")], "not held back");
    }
    task.records(1, &[7]);
    task.records(1, &[8]);
    assert_eq!(task.ahead(1, 1, &[9]), ["put chk-1/t2-a1"]);
    task.records(1, &[9]);
    assert_eq!(task.in_flight(), (vec![vec![5, 6], vec![7, 8, 9]], vec![vec![1, 2]]));
}

#[test]
fn rule_027_no_barrier_overtakes_where_the_job_stops() {
    let stop = Barrier { overtakes: false, triggered_at: Instant::MAX, ..overtaking(1) };
    let mut task = Probe::fresh(&relay_by(Mechanism::Unaligned), RELAY);
    assert_eq!(task.element(0, Element::Barrier(stop)), ["block in0"]);
    let said = task.element(1, Element::Barrier(stop));
    assert_eq!(said[..2], ["out0: barrier chk-1", "cut chk-1"]);
}

#[test]
fn rule_021_the_snapshot_waits_for_what_the_barrier_overtakes_at_the_sender() {
    let mut task = Probe::fresh(&source(Mechanism::Unaligned), SOURCE);
    assert_eq!(task.trigger(1), CUT);
    assert_eq!(task.sent(0, 1, &[3]), ["put chk-1/t0-a1"]);
    assert_eq!(task.in_flight().1, [vec![3]]);
    assert_eq!(task.sent(0, 1, &[4]), [""; 0], "it is asked once");
}

#[test]
fn rule_008_a_checkpoint_that_was_aborted_before_its_barrier_records_nothing() {
    let mut task = Probe::fresh(&relay_by(Mechanism::Unaligned), RELAY);
    task.aborted(1);
    assert_eq!(task.ahead(0, 1, &[5]), ["out0: cancel chk-1"]);
    assert!(!task.task.is_recording(ChannelIndex::new(1)));
    assert_eq!(task.ahead(1, 1, &[6]), [""; 0]);
}

#[test]
fn rules_024_and_025_a_newer_or_an_aborted_checkpoint_ends_the_recording() {
    let mut task = Probe::fresh(&relay_by(Mechanism::Unaligned), RELAY);
    task.ahead(0, 1, &[5]);
    task.sent(0, 1, &[]);
    let said = task.ahead(0, 2, &[6]);
    assert_eq!(said[..2], ["out0: cancel chk-1", "decline chk-1: Subsumed"]);
    task.sent(0, 2, &[]);
    assert_eq!(task.ahead(1, 1, &[7]), [""; 0], "fault UN-04: the older one is over");
    assert_eq!(task.ahead(1, 2, &[8]), ["put chk-2/t2-a1"]);
    assert_eq!(task.in_flight().0, [vec![6], vec![8]]);

    task.ahead(0, 3, &[5]);
    task.aborted(3);
    assert!(!task.task.is_recording(ChannelIndex::new(1)));
    assert_eq!(task.ahead(1, 3, &[6]), [""; 0]);
    assert_eq!(task.sent(0, 3, &[6]), [""; 0]);
}

#[test]
fn rule_028_a_task_behind_a_forward_edge_aligns_and_its_barriers_may_overtake_again() {
    let builder = JobBuilder::new("union", 1);
    let numbers = || builder.source("a", Numbers::up_to(9));
    let other = builder.source("b", Numbers::up_to(9));
    let same = numbers().union(other).map("same", |number| number).rebalance();
    same.parallelism(1).sink("out", Collect::default());
    let job = builder.build(config(Mechanism::Unaligned)).expect("the graph is right");
    let mut task = Probe::fresh(&job, RELAY);
    assert_eq!(task.barrier(0, 1), ["block in0"]);
    let said = task.barrier(1, 1);
    assert_eq!(said, [CUT[0], CUT[1], "unblock in0"]);
    let mut source = Probe::fresh(&job, SOURCE);
    assert_eq!(source.trigger(1)[0], "out0: barrier chk-1", "not over the forward edge");
}

#[test]
fn rules_034_and_035_an_alignment_that_takes_too_long_is_switched_over() {
    let mut task = Probe::fresh(&relay_by(Mechanism::AlignedTimeout), RELAY);
    assert_eq!(task.announce(0, 1), ["wait until 100.000000ms"]);
    assert_eq!(task.barrier(0, 1), ["block in0"]);
    assert_eq!(task.time(99), [""; 0]);
    task.announce(1, 1);
    assert_eq!(task.time(100), [CUT[0], CUT[1], "unblock in0", "overtake in1 chk-1"]);
    task.sent(0, 1, &[]);
    assert_eq!(task.ahead(1, 1, &[7]), ["put chk-1/t2-a1"]);
    assert_eq!(task.in_flight(), (vec![vec![], vec![7]], vec![]));
}

#[test]
fn rule_035_an_alignment_in_time_stores_nothing_in_flight() {
    let mut task = Probe::fresh(&relay_by(Mechanism::AlignedTimeout), RELAY);
    task.announce(0, 1);
    task.barrier(0, 1);
    task.announce(1, 1);
    let said = task.barrier(1, 1);
    let wait = "wait until 100.000000ms";
    assert_eq!(said, ["out0: barrier chk-1", "cut chk-1", wait, "unblock in0"]);
    assert_eq!(task.sent(0, 1, &[]), ["put chk-1/t2-a1"]);
    assert_eq!(task.in_flight(), (vec![vec![]; 2], vec![]));
    assert_eq!(task.time(100), [""; 0]);
}

#[test]
fn rule_037_a_barrier_that_waits_for_room_too_long_overtakes() {
    let mut task = Probe::fresh(&source(Mechanism::AlignedTimeout), SOURCE);
    let wait = "wait until 100.000000ms";
    assert_eq!(task.trigger(1), ["out0: barrier chk-1", "cut chk-1", wait]);
    assert_eq!(task.time(99), [""; 0]);
    assert_eq!(task.time(100), ["hurry out0 chk-1"]);
    assert_eq!(task.sent(0, 1, &[4]), ["put chk-1/t0-a1"]);
    assert_eq!(task.in_flight().1, [vec![4]]);
}

#[test]
fn rule_030_channels_begin_with_the_receivers_part_and_then_the_senders() {
    let job = relay_by(Mechanism::Unaligned);
    let mut states = Vec::new();
    for task in job.graph().tasks() {
        let start = job.discover().expect("memory can be read")[task.index()].clone();
        let fresh = job.task(task, AttemptId::new(1), TaskStart::Fresh(start));
        states.push(
            fresh.expect("it is fresh").capture(CheckpointId::new(1)).to_state(Format::Binary),
        );
    }
    let channel = job.graph().channels()[0];
    let bytes = |number: u64| vec![Bytes::from(Batch::new(vec![number]).encode(Format::Binary))];
    states[channel.to.index()].in_flight.inputs.insert(channel.index, bytes(1));
    states[channel.from.index()].in_flight.outputs.insert(channel.outlet, bytes(2));
    let filled = job.in_flight(&states).expect("they are numbers");
    let numbers = filled[0].iter().map(|batch| batch.records::<u64>()[0]);
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
    assert!(filled[1..].iter().all(Vec::is_empty));
    states[0].in_flight.outputs.insert(channel.outlet, vec![Bytes::from(vec![1, 2, 3])]);
    assert!(job.in_flight(&states).is_err());
}
