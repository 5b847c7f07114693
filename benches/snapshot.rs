//! A snapshot of much keyed state: how long it keeps the records, what the first writes after it
//! cost, and how fast it is written and read. `cargo bench --bench snapshot -- ENTRIES ROUNDS`.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

use std::time::{Duration, Instant};

use cofferdam::state::codec::Format;
use cofferdam::state::heap::KeyedState;
use cofferdam::state::key_group::{KeyGroupCount, KeyGroupRange};

/// Numbers that look random, each once: most take eight bytes.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

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
    (0..entries).for_each(|number| state.update(&mixed(number), |_, slot| *slot = Some(number)));
    println!("{} entries of (u64, u64), medians of {rounds} rounds", state.len());

    let (mut shares, mut copies, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
    for round in 0..rounds {
        let (share, took) = timed(|| state.snapshot());
        shares.push(took);
        let updates = (0..entries.min(100_000)).map(|number| {
            let write = || state.update(&mixed(number), |_, slot| *slot = Some(number ^ round));
            timed(write).1
        });
        let updates: Vec<Duration> = updates.collect();
        copies.push(updates.iter().sum());
        longest = longest.max(updates.into_iter().max().unwrap_or_default());
        drop(share);
    }
    println!(
        "synchronous part: {:?}, at the most {:?}",
        median(shares.clone()),
        shares.into_iter().max().unwrap_or_default()
    );
    println!(
        "the first 100,000 writes after it: {:?}, one at the most {longest:?}",
        median(copies)
    );

    let share = state.snapshot();
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut bytes = 0;
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
        for (times, time) in times.iter_mut().zip([encoded, decoding, restoring]) {
            times.push(time);
        }
    }
    println!("{bytes} bytes");
    for (what, times) in ["encode", "decode alone", "restore"].into_iter().zip(times) {
        let time = median(times);
        println!("{what}: {time:?}, {:.2} GB/s", speed(bytes, time));
    }
}
