//! Timers by the clock of the machine, as a task keeps them.

use super::*;

/// As [`relay`], but each number is said again when the clock has passed it.
fn echoes() -> Job {
    let builder = JobBuilder::new("echoes", 2);
    builder
        .source("numbers", Numbers::up_to(9))
        .key_by(|number| *number)
        .parallelism(1)
        .process("echo", Echo)
        .rebalance()
        .parallelism(1)
        .sink("out", Collect::default());
    builder.build(config(Mechanism::Aligned)).expect("the graph is right")
}

#[derive(Clone)]
struct Echo;

impl KeyedProcess for Echo {
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
        context.register_processing_timer(ProcessingTime::from_millis(number as i64));
    }

    fn on_processing_timer(
        &mut self,
        _time: ProcessingTime,
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<u64>,
    ) {
        out.emit(*context.key());
    }

    fn uses_clock(&self) -> bool {
        true
    }
}

impl Probe {
    fn clock(&mut self, millis: i64) -> Vec<String> {
        self.task.handle_clock(ProcessingTime::from_millis(millis));
        self.task.flush();
        self.said()
    }

    /// The barriers of a checkpoint that the job is to stop at.
    fn stop(&mut self, checkpoint: u64) {
        for channel in [0, 1] {
            let checkpoint = CheckpointId::new(checkpoint);
            let barrier = Barrier { checkpoint, overtakes: false, triggered_at: Instant::MAX };
            self.element(channel, Element::Barrier(barrier));
        }
    }
}

#[test]
fn a_task_asks_to_be_woken_for_its_earliest_timer_and_only_if_that_is_new() {
    let mut task = Probe::fresh(&echoes(), RELAY);
    assert!(task.task.uses_clock() && !Probe::fresh(&alarms(), RELAY).task.uses_clock());
    assert_eq!(task.records(0, &[40]), ["wake at 41ms"]);
    assert_eq!(task.records(0, &[50]), [""; 0]);
    assert_eq!(task.records(1, &[30]), ["wake at 31ms"]);
    assert_eq!(task.clock(20), [""; 0]);
    assert_eq!(task.clock(31), ["out0: [30]", "wake at 41ms"]);
    assert_eq!(task.clock(60), ["out0: [40, 50]"]);
}

#[test]
fn rule_088_a_restored_task_asks_at_once_to_be_woken() {
    let mut before = Probe::fresh(&echoes(), RELAY);
    before.records(0, &[40, 30]);
    before.checkpoint(1);
    let mut task = Probe::restored(&echoes(), RELAY, before.state());
    assert_eq!(task.said(), ["running", "wake at 31ms"]);
    assert_eq!(task.clock(100), ["out0: [30, 40]"]);
    assert_eq!(task.clock(200), [""; 0]);
}

#[test]
fn rule_104_where_the_job_stops_no_timer_fires_behind_the_cut_unless_it_goes_on() {
    let mut task = Probe::fresh(&echoes(), RELAY);
    task.records(0, &[40]);
    task.stop(1);
    assert_eq!(task.clock(50), [""; 0], "it is in the savepoint");
    let mut again = Probe::restored(&echoes(), RELAY, task.state());
    assert_eq!(again.said(), ["running", "wake at 41ms"]);
    assert_eq!(task.aborted(1), ["wake at 41ms"]);
    assert_eq!(task.clock(50), ["out0: [40]"]);
}

#[test]
fn at_the_end_of_data_no_timer_is_left() {
    let mut task = Probe::fresh(&echoes(), RELAY);
    task.records(0, &[40]);
    task.end(0);
    assert_eq!(task.end(1), ["out0: [40]", "out0: end of data", "end of data"]);
    assert_eq!(task.clock(50), [""; 0]);
}

#[test]
fn state_that_is_dropped_at_a_barrier_does_not_take_the_time_with_it() {
    let builder = JobBuilder::new("echoes", 1);
    builder
        .source("numbers", Numbers::up_to(9))
        .key_by(|number| *number)
        .process("echo", Echo)
        .sink("out", Collect::default());
    let job = builder.build(config(Mechanism::MiniBatch)).expect("the graph is right");
    let mut task = Probe::fresh(&job, 1);
    task.clock(50);
    task.barrier(0, 1);
    assert_eq!(task.records(0, &[40]), ["wake at 41ms"]);
    assert_eq!(task.clock(50), ["write [40]"]);
}
