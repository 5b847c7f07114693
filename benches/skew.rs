//! What it costs that one channel of a receiver is slower than the other: two sources, each with
//! work to do in a task of its own, end in one sum; in one of them a record takes so many times as
//! long. All the work together is the same in every row.
//!
//! `cargo bench --bench skew -- [MILLISECONDS] [ROUNDS]`: about so long a run, on two workers; a
//! checkpoint each 200 ms, into files. Each mechanism is compared with the same job without
//! checkpoints in the same round; medians of the rounds.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/figures.rs"]
mod figures;
#[path = "common/mixed.rs"]
mod mixed;
#[path = "common/rate.rs"]
mod rate;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::guarantee::Mechanism;
use cofferdam::job::JobBuilder;
use cofferdam::runtime::{FileStore, RunOptions, RunReport, run};

use crate::figures::{arguments, median};
use crate::mixed::splitmix64;
use crate::rate::rate;

fn main() {
    let numbers = arguments();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (millis, tries) = (number(0, 1500), number(1, 3));
    let rounds = rounds_in(UNIT);
    // Both sources at once, on two cores.
    let records = millis * 1_000_000 / UNIT.as_nanos() as u64;
    println!("a record takes {} ns of work in the fast source\n", UNIT.as_nanos());
    println!(
        "| slower | mechanism | M records/s | share | checkpoints | ms each | ms at the most |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for skew in [1, 10, 100] {
        let work = Work { records, rounds, skew };
        let mut figures: [[Vec<f64>; 5]; 3] = Default::default();
        for _ in 0..tries {
            let (without, _) = work.measure(Mechanism::Aligned, NEVER);
            for (mechanism, figures) in MECHANISMS.into_iter().zip(&mut figures) {
                let (rate, report) = work.measure(mechanism, INTERVAL);
                let checkpoints = report.checkpoints;
                let [mean, most] = [checkpoints.duration_mean(), checkpoints.duration_max]
                    .map(|time| time.as_secs_f64() * 1e3);
                let found = [rate, rate / without, checkpoints.count as f64, mean, most];
                figures.iter_mut().zip(found).for_each(|(figures, found)| figures.push(found));
            }
        }
        for (mechanism, figures) in MECHANISMS.into_iter().zip(figures) {
            let [rate, share, count, mean, most] = figures.map(median);
            let of_checkpoints = format!("{count} | {mean:.1} | {most:.1}");
            println!("| {skew} x | {mechanism} | {rate:.2} | {share:.2} | {of_checkpoints} |");
        }
    }
}

const MECHANISMS: [Mechanism; 3] =
    [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout];

/// What is to be done.
#[derive(Clone, Copy)]
struct Work {
    /// Of the fast source; the slow one has fewer by as much as it is slower.
    records: u64,
    /// For each record of the fast source.
    rounds: u64,
    skew: u64,
}

impl Work {
    /// Million records a second, and what the engine says.
    fn measure(self, mechanism: Mechanism, checkpoint_interval: Duration) -> (f64, RunReport) {
        let Self { records, rounds, skew } = self;
        let builder = JobBuilder::new("skew", 1);
        let branch = |name: &str, records, rounds| {
            builder
                .source(name, Numbers::up_to(records))
                .rebalance()
                .map(&format!("{name} work"), move |number| (burn(number, rounds) % KEYS, number))
        };
        let slow = branch("slow", records / skew, rounds * skew);
        branch("fast", records, rounds)
            .union(slow)
            .key_by(|(key, _)| *key)
            .aggregate("sum", 0, |sum: &mut u64, (_, number)| *sum = sum.wrapping_add(number))
            .sink("out", DiscardSink::new(|(key, sum): &(u64, u64)| key ^ sum));
        let alignment_timeout = TIMEOUT;
        let config =
            JobConfig { mechanism, checkpoint_interval, alignment_timeout, ..JobConfig::default() };
        let job = builder.build(config).expect("it can work");
        let folder = tempfile::tempdir().expect("there is room for temporary files");
        let store = FileStore::open(folder.path()).expect("the folder is new");
        let started = Instant::now();
        let options = RunOptions { workers: 2, ..RunOptions::new(store) };
        let report = run(&job, options).expect("nothing fails here");
        (rate(records + records / skew, started), report)
    }
}

/// So many rounds of work, each of which needs the one before.
fn burn(number: u64, rounds: u64) -> u64 {
    (0..rounds).fold(number, |number, _| splitmix64(number))
}

/// How many rounds take so long: the least of some tries, since other work can only add to it.
fn rounds_in(time: Duration) -> u64 {
    const ROUNDS: u64 = 1_000_000;
    let once = || {
        let started = Instant::now();
        black_box(burn(black_box(1), ROUNDS));
        started.elapsed()
    };
    let least = (0..20).map(|_| once()).min().expect("there are tries");
    (time.as_nanos() as u64 * ROUNDS / least.as_nanos() as u64).max(1)
}

/// The work for a record of the fast source.
const UNIT: Duration = Duration::from_nanos(400);
const INTERVAL: Duration = Duration::from_millis(200);
const NEVER: Duration = Duration::from_secs(3600);
/// More than an alignment takes if no source is much slower.
const TIMEOUT: Duration = Duration::from_millis(50);
const KEYS: u64 = 1000;
