//! How long checkpoints take when the queues before a slow sink are full: as long as the queues
//! are, if barriers wait in them, and no longer for a longer queue if barriers overtake.

#![expect(clippy::unwrap_used, reason = "a test says by its name what failed")]

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::connector::memory::{CollectTransactions, Range, VecSource};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::VertexId;
use cofferdam::job::JobBuilder;
use cofferdam::state::codec;
use cofferdam::trace::TraceEvent;
use cofferdam_sim::decide::Decider;
use cofferdam_sim::jobs::OffsetAt;
use cofferdam_sim::options::{FaultProfile, Options};
use cofferdam_sim::world::{Ending, Plan, World};

/// For each step of the source, each sink has to take so many.
const SLOWER: u64 = 100;
const SINKS: usize = 2;
const RECORDS: u64 = 40;

/// The mean time from trigger to completion, and how many checkpoints were complete before the
/// input had ended.
fn checkpoints(mechanism: Mechanism, channel_batches: usize) -> (Duration, u32) {
    let mut options = Options::draw(1, RECORDS as usize, FaultProfile::None);
    options.parallelism = 1;
    options.batch_records_max = 1;
    options.channel_batches = channel_batches;
    (options.channel_delay_us, options.step_us, options.external_delay_us) = (5, 10, 20);
    (options.message_delay_us, options.start_us) = (10, 10);
    (options.checkpoint_interval_us, options.checkpoint_pause_us) = (300, 0);
    options.checkpoint_timeout_us = 100_000_000;
    options.alignment_timeout_us = 200;
    let builder = JobBuilder::new("slow-sink", 1);
    builder
        .source("numbers", VecSource::new((0..RECORDS).collect()))
        .flat_map("more", |number: u64, out| {
            (0..SINKS as u64 * SLOWER).for_each(|copy| out.emit((number, copy)));
        })
        // By key to more than one, so that each record is an element of its own.
        .key_by(|record| *record)
        .parallelism(SINKS)
        .aggregate("count", 0_u64, |count, _| *count += 1)
        .transactional_sink("out", CollectTransactions::default());
    let job = builder.build(options.job_config(mechanism)).unwrap();
    let initial = job.discover().unwrap();
    let offset = |cursor: &[u8]| codec::decode::<Range>(cursor).unwrap().next;
    let sources = vec![(VertexId::new(0), Arc::new(offset) as OffsetAt)];
    let plan = Plan {
        job,
        sources,
        initial,
        options,
        faults: Vec::new(),
        variant: None,
        events_max: u64::MAX,
        next: None,
    };
    let mut world = World::new(Rc::new(plan), Decider::new(1, false));
    world.run();
    assert_eq!(world.ending(), Some(&Ending::Finished));
    let rows = world.external().visible(VertexId::new(1)).count() as u64;
    assert_eq!(rows, RECORDS * SLOWER * SINKS as u64);
    let mut triggered = BTreeMap::new();
    let mut total = Duration::ZERO;
    let mut count = 0;
    for traced in world.trace().iter() {
        if let TraceEvent::Triggered { checkpoint } = traced.event {
            triggered.insert(checkpoint, traced.at);
        }
        if let TraceEvent::Completed { checkpoint, .. } = traced.event {
            total += traced.at.since(triggered[&checkpoint]);
            count += 1;
        }
    }
    (total / count, count)
}

#[test]
fn rule_020_checkpoints_take_no_longer_for_a_longer_queue_where_barriers_overtake() {
    let queues = [1, 10, 100, 1000];
    println!("mean time of a checkpoint in microseconds, sink {SLOWER} times slower than source");
    println!("{:>16} {:>8} {:>8} {:>8} {:>8}", "queue, batches", 1, 10, 100, 1000);
    let mut means = BTreeMap::new();
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout] {
        let of_queues = queues.map(|queue| checkpoints(mechanism, queue));
        let micros = of_queues.map(|(mean, _)| mean.as_micros());
        print!("{:>16}", mechanism.word());
        micros.iter().for_each(|micros| print!(" {micros:>8}"));
        println!();
        assert!(of_queues.iter().all(|(_, count)| *count > 0));
        means.insert(mechanism.word(), micros);
    }
    let (aligned, unaligned) = (means["aligned"], means["unaligned"]);
    let timeout = means["aligned-timeout"];
    assert!(aligned[3] > 3 * aligned[0], "the barrier waits in the queue: {means:?}");
    assert!(unaligned[3] < 2 * unaligned[0], "and here it does not: {means:?}");
    assert!(timeout[3] < 2 * timeout[0], "nor here, after a while: {means:?}");
}
