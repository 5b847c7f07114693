//! How much of a hand-written loop's speed the engine keeps: keyed-count, `(splitmix64(i) % keys,
//! i)` to a running sum per key, every update emitted into a checksum.
//!
//! `cargo bench --bench throughput -- [RECORDS] [KEYS] [ROUNDS] [WORKERS]` runs the loop and the
//! engine (exactly once with a checkpoint a second into files, and at most once) in turn, on one
//! worker and on two, and prints the medians and those of the ratios of exactly once to the loop
//! and of at most once to exactly once.
//!
//! `cargo bench --bench throughput -- matrix [RECORDS]` runs every mechanism with few keys and
//! many, on one worker and on two: RECORDS at the most, fewer where that would take more than a
//! second.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]

#[path = "common/exchange.rs"]
mod exchange;
#[path = "common/figures.rs"]
mod figures;
#[path = "common/mixed.rs"]
mod mixed;
#[path = "common/rate.rs"]
mod rate;

use std::time::Instant;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::guarantee::Mechanism;
use cofferdam::job::JobBuilder;
use cofferdam::runtime::{FileStore, RunOptions, run};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::exchange::{Peer, Shard, peers};
use crate::figures::{arguments, median};
use crate::mixed::splitmix64;
use crate::rate::rate;

fn main() {
    let numbers = arguments();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    if std::env::args().any(|word| word == "matrix") {
        return matrix(number(0, 10_000_000));
    }
    let (records, keys, rounds) = (number(0, 100_000_000), number(1, 100_000), number(2, 5));
    let title = ["workers", "by hand", "exactly-once", "ratio", "at-most-once", "ratio"];
    println!("{keys} keys, medians of {rounds} rounds, in million records a second:");
    println!("{}", title.map(|word| format!("{word:>13}")).concat());
    let only = number(3, 0) as usize;
    for parallelism in [1, 2].into_iter().filter(|workers| [0, *workers].contains(&only)) {
        let mut columns = [const { Vec::new() }; 5];
        for _ in 0..rounds {
            let (hand, expected) = by_hand(parallelism, records, keys);
            let (exactly, checksum) = by_engine(Mechanism::Aligned, parallelism, records, keys);
            assert!(parallelism > 1 || checksum == expected, "both fold the same updates");
            let (at_most, _) = by_engine(Mechanism::None, parallelism, records, keys);
            let row = [hand, exactly, exactly / hand, at_most, at_most / exactly];
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        let [hand, exactly, of_hand, at_most, of_exactly] = columns.map(median);
        println!(
            "{parallelism:>13}{hand:>13.1}{exactly:>13.1}{of_hand:>13.3}{at_most:>13.1}\
             {of_exactly:>13.3}"
        );
    }
}

/// Every mechanism with every number of keys.
fn matrix(records: u64) {
    println!("million records a second, with so many workers and keys:\n");
    let columns = [1, 2].into_iter().flat_map(|workers| MATRIX_KEYS.map(|keys| (workers, keys)));
    let title = columns.clone().map(|(workers, keys)| format!(" x{workers}, {keys} |"));
    println!("| guarantee | mechanism |{}", title.collect::<String>());
    println!("| --- | --- |{}", " --- |".repeat(columns.clone().count()));
    for mechanism in Mechanism::ALL {
        let cells = columns.clone().map(|(workers, keys)| {
            // First so few that no mechanism takes long, which says how many take a second.
            let (first, _) = by_engine(*mechanism, workers, records.min(PROBE_RECORDS), keys);
            let in_a_second = ((first * 1e6) as u64).clamp(PROBE_RECORDS, records);
            let (rate, _) = by_engine(*mechanism, workers, in_a_second, keys);
            format!(" {rate:.2} |")
        });
        println!("| {} | {mechanism} |{}", mechanism.guarantee(), cells.collect::<String>());
    }
}

/// Million records a second, and the checksum.
type Outcome = (f64, u64);

fn by_engine(mechanism: Mechanism, parallelism: usize, records: u64, keys: u64) -> Outcome {
    let sink = DiscardSink::new(|(key, sum): &(u64, u64)| key ^ sum);
    let builder = JobBuilder::new("keyed-count", parallelism);
    builder
        .source("numbers", Numbers::up_to(records))
        .map("record", move |number| record(number, keys))
        .key_by(|(key, _)| *key)
        .aggregate("sum", 0, |sum: &mut u64, (_, number)| *sum = sum.wrapping_add(number))
        .sink("out", sink.clone());
    let job = builder.build(JobConfig { mechanism, ..JobConfig::default() }).expect("it can work");
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let store = FileStore::open(folder.path()).expect("the folder is new");
    let started = Instant::now();
    let options = RunOptions { workers: parallelism, ..RunOptions::new(store) };
    let report = run(&job, options).expect("nothing fails here");
    let rate = rate(records, started);
    eprintln!("{mechanism} x{parallelism}: {rate:.1} ({:?})", report.checkpoints);
    (rate, sink.checksum())
}

fn by_hand(parallelism: usize, records: u64, keys: u64) -> Outcome {
    let started = Instant::now();
    let checksum = match parallelism {
        1 => one_thread(records, keys),
        _ => two_threads(records, keys),
    };
    let rate = rate(records, started);
    eprintln!("by hand x{parallelism}: {rate:.1}");
    (rate, checksum)
}

type Records = Vec<(u64, u64)>;

/// The state of one thread, with the updates of one batch.
struct Sums {
    sums: HashMap<u64, u64, FixedState>,
    updates: Records,
    checksum: u64,
}

impl Sums {
    fn new() -> Self {
        let sums = HashMap::with_capacity_and_hasher(1024, FixedState::default());
        Self { sums, updates: Vec::with_capacity(BATCH_RECORDS), checksum: 0 }
    }
}

impl Shard for Sums {
    type Batch = Records;

    fn is_empty(batch: &Records) -> bool {
        batch.is_empty()
    }

    fn is_full(batch: &Records) -> bool {
        batch.len() == BATCH_RECORDS
    }

    fn clear(batch: &mut Records) {
        batch.clear();
    }

    fn take(&mut self, batch: &Records) {
        let Self { sums, updates, checksum } = self;
        updates.clear();
        updates.extend(batch.iter().map(|&(key, number)| {
            let sum = sums.entry(key).or_insert(0);
            *sum = sum.wrapping_add(number);
            (key, *sum)
        }));
        for (key, sum) in std::hint::black_box(&*updates) {
            *checksum = checksum.wrapping_add(key ^ sum);
        }
    }
}

fn one_thread(records: u64, keys: u64) -> u64 {
    let mut state = Sums::new();
    let mut batch = Records::with_capacity(BATCH_RECORDS);
    for first in (0..records).step_by(BATCH_RECORDS) {
        let end = records.min(first + BATCH_RECORDS as u64);
        batch.clear();
        batch.extend((first..end).map(|number| record(number, keys)));
        state.take(&batch);
    }
    state.checksum
}

/// Each thread makes half of the records and sends the other those whose key is not its own.
fn two_threads(records: u64, keys: u64) -> u64 {
    let half = records / 2;
    let [first, second] = peers([Sums::new(), Sums::new()]);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || make_half(second, half..records, keys));
        make_half(first, 0..half, keys).wrapping_add(other.join().expect("the other thread ends"))
    })
}

fn make_half(mut peer: Peer<Sums>, numbers: std::ops::Range<u64>, keys: u64) -> u64 {
    for number in numbers {
        let (key, number) = record(number, keys);
        let target = (key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40) as usize & 1;
        peer.push(target, |batch| batch.push((key, number)));
    }
    peer.finish().checksum
}

fn record(number: u64, keys: u64) -> (u64, u64) {
    (splitmix64(number) % keys, number)
}

const MATRIX_KEYS: [u64; 4] = [1_000, 100_000, 1_000_000, 10_000_000];
const PROBE_RECORDS: u64 = 200_000;
const BATCH_RECORDS: usize = 1024;
