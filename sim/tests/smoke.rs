//! scratch
use std::collections::BTreeMap;
use std::rc::Rc;
use cofferdam::connector::memory::{Collect, CollectTransactions, VecSource, Range};
use cofferdam::guarantee::*;
use cofferdam::id::VertexId;
use cofferdam::job::JobBuilder;
use cofferdam_sim::decide::Decider;
use cofferdam_sim::fault;
use cofferdam_sim::options::*;
use cofferdam_sim::world::*;

fn world(seed: u64, mechanism: Mechanism) -> World {
    let options = Options::draw(seed, 100, FaultProfile::Default);
    let builder = JobBuilder::new("count", options.parallelism);
    builder.key_groups(cofferdam::state::key_group::KeyGroupCount::new(options.key_groups).unwrap());
    let stream = builder
        .source("numbers", VecSource::new((0..100u64).collect()))
        .flat_map("split", |n: u64, out| { out.emit(n % 7); if n % 3 == 0 { out.emit(n % 5); } })
        .key_by(|n| *n)
        .aggregate("count", 0u64, |c: &mut u64, _| *c += 1);
    if mechanism == Mechanism::None { stream.sink("out", Collect::default()) } else { stream.transactional_sink("out", CollectTransactions::default()) }
    let job = builder.build(options.job_config(mechanism)).unwrap();
    let faults = fault::plan(seed, &options, job.graph());
    let initial = job.discover().unwrap();
    let offset: fn(&[u8]) -> u64 = |cursor| cofferdam::state::codec::decode::<Range>(cursor).unwrap().next;
    let plan = Plan { job, sources: vec![(VertexId::new(0), offset)], initial, options, faults, variant: None };
    World::new(Rc::new(plan), Decider::new(seed, false))
}

#[test]
fn smoke() {
    let mut events = 0;
    let start = std::time::Instant::now();
    let n = 3000;
    for mechanism in [Mechanism::Aligned, Mechanism::Tracked, Mechanism::None] {
        let mut bad = 0;
        let mut endings = BTreeMap::new();
        for seed in 0..n {
            let mut world = world(seed, mechanism);
            world.run();
            events += world.events();
            *endings.entry(format!("{:?}", world.ending().unwrap())).or_insert(0) += 1;
            let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for row in world.external().visible(VertexId::new(1)) {
                *seen.entry(row.bytes.to_vec()).or_default() += 1;
            }
            let mut want: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            for n in 0..100u64 {
                let mut add = |k| { let c = counts.entry(k).or_default(); *c += 1; *want.entry(cofferdam::state::codec::encode(&(k, *c))).or_default() += 1; };
                add(n % 7); if n % 3 == 0 { add(n % 5); }
            }
            if seen != want { bad += 1; if bad < 4 { println!("{mechanism} seed {seed}: {} rows vs {}", seen.len(), want.len()); } }
        }
        println!("{mechanism}: bad {bad} endings {endings:?}");
    }
    println!("{} runs, {} events, {:?}", 3 * n, events, start.elapsed());
}

#[test]
fn stuck() {
    let mut world = world(71, Mechanism::Aligned);
    println!("{}", world.plan().options);
    println!("{:?}", world.plan().faults);
    world.run();
    let trace = world.trace();
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for t in trace { let s = format!("{:?}", t.event); *kinds.entry(s.split([' ', '{']).next().unwrap().to_owned()).or_default() += 1; }
    println!("{kinds:?} {}", world.events());
    for t in trace.iter().take(400).rev().take(100).rev() { println!("{} {:?}", t.at, t.event); }
    for t in trace.iter().rev().take(40).rev() { println!("{} {:?}", t.at, t.event); }
}
