//! Keyed state against the yardstick, a flat hashbrown table with foldhash: a running sum per key
//! over pseudo-random keys, as in the job keyed-count. Compare ratios taken in one run.

#[path = "common/mixed.rs"]
mod mixed;

use std::hint::black_box;
use std::time::Duration;

use cofferdam::state::codec::Format;
use cofferdam::state::heap::KeyedState;
use cofferdam::state::key_group::{KeyGroupCount, KeyGroupRange};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use crate::mixed::splitmix64;

const RECORDS: u64 = 1 << 20;

fn key(record: u64, keys: u64) -> u64 {
    splitmix64(record) % keys
}

fn state(groups: u32, keys: u64) -> KeyedState<u64, u64> {
    let max = KeyGroupCount::new(groups).expect("a number of groups that there can be");
    let mut state = KeyedState::new(KeyGroupRange::all(max), max);
    for key in 0..keys {
        state.update(&key, |_, mut sum| sum.set(0));
    }
    state
}

fn sum_into(state: &mut KeyedState<u64, u64>, records: std::ops::Range<u64>, keys: u64) -> u64 {
    records.fold(0, |check, record| {
        let key = key(record, keys);
        let sum = state.update(&key, |_, mut slot| {
            let sum = slot.get_or_insert(0);
            *sum = sum.wrapping_add(record);
            *sum
        });
        check ^ sum
    })
}

fn update(c: &mut Criterion) {
    for keys in [100_000, 1_000_000] {
        let mut group = c.benchmark_group(format!("update/{keys}"));
        group.throughput(Throughput::Elements(RECORDS));
        let mut map: hashbrown::HashMap<u64, u64, foldhash::fast::FixedState> =
            (0..keys).map(|key| (key, 0)).collect();
        let mut from = 0;
        group.bench_function("flat hashbrown", |b| {
            b.iter(|| {
                from += RECORDS;
                (from..from + RECORDS).fold(0, |check, record| {
                    let sum = map.entry(key(record, keys)).or_insert(0);
                    *sum = sum.wrapping_add(record);
                    check ^ *sum
                })
            });
        });
        for groups in [64, 128] {
            let mut state = state(groups, keys);
            group.bench_function(format!("{groups} groups"), |b| {
                b.iter(|| {
                    from += RECORDS;
                    sum_into(&mut state, from..from + RECORDS, keys)
                });
            });
        }
        group.finish();
    }
}

fn snapshot(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot/1000000");
    let mut state = state(128, 1_000_000);
    group.bench_function("share", |b| b.iter(|| black_box(state.snapshot())));
    group.bench_function("encode", |b| {
        let share = state.snapshot();
        b.iter(|| black_box(share.encode_groups(Format::Binary)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = update, snapshot
}
criterion_main!(benches);
