//! How much of a hand-written loop's speed the engine keeps: keyed-count, `(splitmix64(i) % keys,
//! i)` to a running sum per key, every update emitted into a checksum.
//!
//! `cargo bench --bench throughput -- [RECORDS] [KEYS] [ROUNDS] [WORKERS]` runs the loop and the
//! engine (exactly once with a checkpoint a second into files, and at most once) in turn, on one
//! worker and on two, and prints the medians and those of the ratios of exactly once to the loop
//! and of at most once to exactly once.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::guarantee::Mechanism;
use cofferdam::job::JobBuilder;
use cofferdam::runtime::{FileStore, RunOptions, run};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
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

    fn take(&mut self, batch: &[(u64, u64)]) {
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

/// Each thread makes half of the records, keeps those whose key is its own and sends the others in
/// batches, which come back empty to be filled again.
fn two_threads(records: u64, keys: u64) -> u64 {
    let ((to_second, from_first), (to_first, from_second)) = (channel(), channel());
    let ((back_to_first, returned_first), (back_to_second, returned_second)) =
        (channel(), channel());
    let half = records / 2;
    let first = Peer::new(0, to_second, from_second, back_to_second, returned_first);
    let second = Peer::new(1, to_first, from_first, back_to_first, returned_second);
    std::thread::scope(|scope| {
        let other = scope.spawn(move || second.run(half..records, keys));
        first.run(0..half, keys).wrapping_add(other.join().expect("the other thread ends"))
    })
}

struct Peer {
    index: usize,
    state: Sums,
    give: SyncSender<Records>,
    take: Receiver<Records>,
    give_back: SyncSender<Records>,
    returned: Receiver<Records>,
    /// The other thread has sent its last batch, an empty one.
    is_over: bool,
}

impl Peer {
    fn new(
        index: usize,
        give: SyncSender<Records>,
        take: Receiver<Records>,
        give_back: SyncSender<Records>,
        returned: Receiver<Records>,
    ) -> Self {
        Self { index, state: Sums::new(), give, take, give_back, returned, is_over: false }
    }

    fn run(mut self, numbers: std::ops::Range<u64>, keys: u64) -> u64 {
        let mut batches = [Records::with_capacity(BATCH_RECORDS), self.empty()];
        for number in numbers {
            let (key, number) = record(number, keys);
            let target = (key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40) as usize & 1;
            batches[target].push((key, number));
            if batches[target].len() < BATCH_RECORDS {
                continue;
            }
            if target == self.index {
                self.state.take(&batches[target]);
                batches[target].clear();
            } else {
                let empty = self.empty();
                self.send(std::mem::replace(&mut batches[target], empty));
            }
            self.receive();
        }
        self.state.take(&batches[self.index]);
        self.send(std::mem::take(&mut batches[1 - self.index]));
        self.send(Records::new());
        while !self.is_over {
            if !self.receive() {
                std::thread::yield_now();
            }
        }
        self.state.checksum
    }

    fn empty(&self) -> Records {
        self.returned.try_recv().unwrap_or_else(|_| Records::with_capacity(BATCH_RECORDS))
    }

    fn send(&mut self, mut batch: Records) {
        while let Err(TrySendError::Full(refused)) = self.give.try_send(batch) {
            batch = refused;
            if !self.receive() {
                std::thread::yield_now();
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut found = false;
        while let Ok(mut batch) = self.take.try_recv() {
            found = true;
            self.is_over |= batch.is_empty();
            self.state.take(&batch);
            batch.clear();
            let _ = self.give_back.try_send(batch);
        }
        found
    }
}

fn channel() -> (SyncSender<Records>, Receiver<Records>) {
    sync_channel(64)
}

fn record(number: u64, keys: u64) -> (u64, u64) {
    (splitmix64(number) % keys, number)
}

fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn rate(records: u64, started: Instant) -> f64 {
    records as f64 / started.elapsed().as_secs_f64() / 1e6
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const BATCH_RECORDS: usize = 1024;
