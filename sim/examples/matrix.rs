//! scratch
use cofferdam::guarantee::*;
use cofferdam_sim::campaign::*;
use cofferdam_sim::jobs;
use cofferdam_sim::run::*;
use std::sync::atomic::AtomicBool;
fn main() {
    let seeds: u64 = std::env::args().nth(1).map_or(100, |s| s.parse().unwrap());
    let only = std::env::args().nth(2);
    let jobs: Vec<&'static dyn jobs::BuiltinJob> = jobs::all().to_vec();
    let mut rows = Vec::new();
    for job in &jobs {
        if only.as_ref().is_some_and(|o| o != job.name()) {
            continue;
        }
        for g in Guarantee::ALL {
            for sink in [SinkContract::Plain, SinkContract::Idempotent, SinkContract::TwoPhase] {
                if sink == SinkContract::TwoPhase && *g == Guarantee::AtMostOnce {
                    continue;
                }
                let mut mode = Mode::of(*g, jobs::Parameters::of(*job));
                mode.sink = sink;
                rows.push(Row { source: job, mode });
            }
        }
    }
    let start = std::time::Instant::now();
    let out = run(
        &rows,
        Seeds { first: 0, count: seeds, part: (0, 1) },
        &Conduct { threads: 2, stop: &AtomicBool::new(false), progress: &|_| () },
    )
    .unwrap();
    let mut runs = 0;
    for (row, t) in rows.iter().zip(&out.tallies) {
        runs += t.runs;
        println!(
            "{:14} {:14} {:12} held {:5} lost {:5} dup {:5} wrong {} unexp {} stuck {} unknown {} refuted {} first {:?} oracles {:?} {:?} nd {:?}",
            row.source.name(),
            row.mode.guarantee,
            row.mode.sink,
            t.is_held(),
            t.lost,
            t.duplicated,
            t.wrong,
            t.unexpected,
            t.stuck,
            t.unknown,
            t.refuted,
            t.first_refuting_seed,
            t.oracles,
            t.refuted_in,
            t.not_deterministic
        );
    }
    println!("{runs} runs {:?}", start.elapsed());
}
