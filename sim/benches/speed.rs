//! How fast the simulator is: judged runs, and copies of a world in the middle of a run.

use std::hint::black_box;

use cofferdam::guarantee::Guarantee;
use cofferdam_sim::jobs::{self, Parameters};
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::run::{CaseSource, Mode, Run};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

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
        group.throughput(Throughput::Elements(64));
        group.bench_function(guarantee.word(), |bencher| {
            let mut seed = 0;
            bencher.iter(|| {
                for _ in 0..64 {
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

criterion_group!(speed, runs, clones);
criterion_main!(speed);
