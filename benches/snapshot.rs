//! A snapshot of much keyed state: how long it keeps the records, how long the first write to each
//! piece keeps them after it and after a restore, and how fast it is written and read, beside the
//! speed of the format.
//! `cargo bench --bench snapshot -- ENTRIES ROUNDS`.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/mixed.rs"]
mod mixed;

use std::thread;
use std::time::{Duration, Instant};

use cofferdam::id::SubtaskIndex;
use cofferdam::state::codec::Format;
use cofferdam::state::heap::KeyedState;
use cofferdam::state::key_group::{KeyGroup, KeyGroupAssigner, KeyGroupCount, KeyGroupRange};
use cofferdam::state::snapshot::Bytes;

use crate::mixed::splitmix64;

fn empty() -> KeyedState<u64, u64> {
    let max = KeyGroupCount::new(128).expect("a number of groups that there can be");
    KeyedState::new(KeyGroupRange::all(max), max)
}

fn timed<T>(step: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let done = step();
    (done, begun.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn speed(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

fn main() {
    // Cargo adds a flag of its own.
    let numbers: Vec<u64> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let entries = numbers.first().copied().unwrap_or(10_000_000);
    let rounds = numbers.get(1).copied().unwrap_or(5);
    let mut state = empty();
    (0..entries)
        .for_each(|number| state.update(&splitmix64(number), |_, mut slot| slot.set(number)));
    println!("{} entries of (u64, u64), medians of {rounds} rounds", state.len());
    stalls(&mut state, rounds);
    speeds(&mut state, rounds);
}

/// Writes that reach every piece, and how long each takes.
#[derive(Default)]
struct Writes(Vec<Vec<Duration>>);

impl Writes {
    fn make(&mut self, state: &mut KeyedState<u64, u64>) {
        let numbers = 0..(state.len() as u64).min(WRITES);
        self.0.resize(numbers.clone().count(), Vec::new());
        for (number, times) in numbers.zip(&mut self.0) {
            let write = || state.update(&splitmix64(number), |_, mut slot| slot.set(number));
            times.push(timed(write).1);
        }
    }

    /// Each round makes the same writes, so the same ones find a piece as the snapshot left it: the
    /// median of each leaves out what the machine did meanwhile.
    fn tell(self, what: &str) {
        let mut slow: Vec<Duration> = self.0.into_iter().map(median).collect();
        slow.retain(|took| *took > SLOW);
        let mean = slow.iter().sum::<Duration>() / slow.len().max(1) as u32;
        let longest = slow.iter().max().copied().unwrap_or_default();
        println!(
            "{what}: {} slow writes, {mean:?} on average, {longest:?} at the most",
            slow.len()
        );
    }
}

/// How long records wait for a snapshot and after it.
fn stalls(state: &mut KeyedState<u64, u64>, rounds: u64) {
    let (mut shares, mut drops) = (Vec::new(), Vec::new());
    let mut writes = Writes::default();
    for _ in 0..rounds {
        let (share, took) = timed(|| state.snapshot());
        shares.push(took);
        writes.make(state);
        drops.push(timed(|| drop(share)).1);
    }
    let longest = shares.iter().max().copied().unwrap_or_default();
    println!("synchronous part: {:?}, {longest:?} at the most", median(shares));
    writes.tell("behind it");
    println!("dropping it, wherever that is done: {:?}", median(drops));
}

fn speeds(state: &mut KeyedState<u64, u64>, rounds: u64) {
    let share = state.snapshot();
    let mut times: [Vec<Duration>; 4] = Default::default();
    let mut bytes = 0;
    let mut writes = Writes::default();
    for _ in 0..rounds {
        let (groups, encoded) = timed(|| share.encode_groups(Format::Binary));
        bytes = groups.iter().map(|(_, bytes)| bytes.len()).sum();
        let decode = || {
            let decoded = groups.iter().map(|(_, bytes)| {
                let entries: Vec<(u64, u64)> =
                    Format::Binary.decode(bytes).expect("it has just been encoded");
                entries.len()
            });
            decoded.sum::<usize>()
        };
        let (decoded, decoding) = timed(decode);
        assert_eq!(decoded, state.len());
        let mut restored = empty();
        let (outcome, restoring) = timed(|| restored.restore(Format::Binary, &groups));
        outcome.expect("it has just been encoded");
        assert_eq!(restored.len(), state.len());
        writes.make(&mut restored);
        drop(restored);
        let ((), both) = timed(|| restore_halves(&groups));
        for (times, time) in times.iter_mut().zip([encoded, decoding, restoring, both]) {
            times.push(time);
        }
    }
    println!("{bytes} bytes");
    let what = ["encode", "decode alone", "restore", "restore two subtasks at once"];
    for (what, times) in what.into_iter().zip(times) {
        let time = median(times);
        println!("{what}: {time:?}, {:.2} GB/s", speed(bytes, time));
    }
    writes.tell("behind the restore");
}

/// As the runtime restores the subtasks of two workers.
fn restore_halves(groups: &[(KeyGroup, Bytes)]) {
    let max = KeyGroupCount::new(128).expect("a number of groups that there can be");
    let assigner = KeyGroupAssigner::new(max, 2);
    thread::scope(|scope| {
        for subtask in [0, 1].map(SubtaskIndex::new) {
            let range = assigner.range(subtask);
            let own = groups.partition_point(|(group, _)| *group < range.first());
            let own = &groups[own..own + range.group_count()];
            scope.spawn(move || {
                let restored = KeyedState::<u64, u64>::new(range, max).restore(Format::Binary, own);
                restored.expect("it has just been encoded");
            });
        }
    });
}

/// Enough to reach every piece.
const WRITES: u64 = 1_000_000;
/// No write takes so long that copies nothing and makes no index.
const SLOW: Duration = Duration::from_micros(2);
