//! How fast the simulator is: judged runs, what the judges take of them, and copies of a world in
//! the middle of a run.

use std::hint::black_box;

use cofferdam::guarantee::Guarantee;
use cofferdam::trace::TraceEvent;
use cofferdam_sim::jobs::{self, Parameters};
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::run::{CaseSource, Mode, Run};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// That of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many runs there are in one turn.
const RUNS: u64 = 64;

/// Word count over 100 lines at parallelism 2: six tasks, sources, counts and sinks.
fn wordcount(guarantee: Guarantee) -> (&'static dyn jobs::BuiltinJob, Mode) {
    let job = jobs::find("wordcount").expect("a built-in job");
    let mut mode = Mode::of(guarantee, Parameters::of(job));
    mode.parallelism = Some(2);
    (job, mode)
}

fn runs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("runs");
    for guarantee in Guarantee::ALL {
        let (job, mode) = wordcount(*guarantee);
        group.throughput(Throughput::Elements(RUNS));
        group.bench_function(guarantee.word(), |bencher| {
            let mut seed = 0;
            bencher.iter(|| {
                for _ in 0..RUNS {
                    seed += 1;
                    let source: &dyn CaseSource = &job;
                    let mut run = Run::new(source, &mode, seed, None, false).expect("it runs");
                    black_box(run.finish());
                }
            });
        });
    }
    group.finish();
}

/// A run of the shape that other simulators are compared by: two sources, two keyed workers with
/// their sinks, 100 records, exactly-once, faults drawn.
fn keyed_count(mode: &Mode, seed: u64) -> Run {
    let job = jobs::find("keyed-count").expect("a built-in job");
    let source: &dyn CaseSource = &job;
    Run::new(source, mode, seed, None, false).expect("it runs")
}

/// Makes the run of a seed.
type Turn<'a> = &'a dyn Fn(u64);

/// The same runs in every turn, so that their events can be counted: judged by runs and by events a
/// second, then without the judges, whose share is what is missing.
fn shape(criterion: &mut Criterion) {
    let job = jobs::find("keyed-count").expect("a built-in job");
    let mut mode = Mode::of(Guarantee::ExactlyOnce, Parameters::of(job));
    mode.parallelism = Some(2);
    let (mut events, mut checkpoints) = (0, 0);
    for seed in 0..RUNS {
        let mut run = keyed_count(&mode, seed);
        run.world_mut().run();
        events += run.world().events();
        let trace = run.world().trace().iter();
        let completed = |event| matches!(event, TraceEvent::Completed { .. });
        checkpoints += trace.filter(|traced| completed(traced.event)).count() as u64;
    }
    let a_run = |count: u64| count as f64 / RUNS as f64;
    println!("a run: {:.0} events, {:.1} checkpoints", a_run(events), a_run(checkpoints));
    assert!(checkpoints >= 2 * RUNS, "at least two checkpoints a run on average");
    let judged = |seed| {
        black_box(keyed_count(&mode, seed).finish_unless(&|| false));
    };
    let unjudged = |seed| keyed_count(&mode, seed).world_mut().run();
    let turns: [(_, _, Turn<'_>); 3] = [
        ("runs, judged", RUNS, &judged),
        ("events, judged", events, &judged),
        ("events, unjudged", events, &unjudged),
    ];
    let mut group = criterion.benchmark_group("keyed-count");
    for (name, elements, turn) in turns {
        group.throughput(Throughput::Elements(elements));
        group.bench_function(name, |bencher| bencher.iter(|| (0..RUNS).for_each(turn)));
    }
    group.finish();
}

fn clones(criterion: &mut Criterion) {
    let (job, mut mode) = wordcount(Guarantee::ExactlyOnce);
    mode.faults = FaultProfile::None;
    let source: &dyn CaseSource = &job;
    let mut run = Run::new(source, &mode, 7, None, false).expect("it runs");
    let events = Run::new(source, &mode, 7, None, false).expect("it runs").finish().events;
    let mut group = criterion.benchmark_group("clone");
    for quarter in 1..=3 {
        while run.world().events() < events * quarter / 4 {
            run.world_mut().step();
        }
        group.bench_function(format!("after {quarter} quarters of a run"), |bencher| {
            bencher.iter_with_large_drop(|| black_box(run.world_mut().fork()));
        });
    }
    group.finish();
}

criterion_group!(speed, runs, shape, clones);
criterion_main!(speed);
