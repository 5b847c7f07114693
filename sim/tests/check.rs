//! A job of one's own under the simulator: operators that are not deterministic are told.

#![expect(clippy::disallowed_types, reason = "the order of such a map is what is to be found")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam::connector::memory::{CollectTransactions, VecSource};
use cofferdam::job::{GraphError, Job, JobBuilder};
use cofferdam::operator::split_source::Pieces;
use cofferdam_sim::check::Check;
use cofferdam_sim::jobs::Setup;

/// Counts numbers by what `change` makes of them, and shows what `show` makes of the counts.
fn counting(
    setup: &Setup,
    change: impl FnMut(u64) -> u64 + Clone + Send + 'static,
    show: impl FnMut((u64, u64)) -> u64 + Clone + Send + 'static,
) -> Result<Job, GraphError> {
    let builder = JobBuilder::new("counting", setup.shape.parallelism);
    builder
        .source("numbers", VecSource::new((0..60_u64).collect()))
        .map("change", change)
        .key_by(|number| number % 3)
        .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
        .map("show", show)
        .transactional_sink("out", CollectTransactions::default());
    builder.build(setup.config.clone())
}

#[test]
fn a_deterministic_job_comes_to_the_same_twice() {
    let check = Check::new("same", |setup| counting(setup, |number| number, |(key, _)| key));
    let variation = check.variation().unwrap();
    assert!(variation.is_none(), "{variation}");
}

#[test]
fn a_job_whose_splits_are_assigned_is_tried_with_all_its_records() {
    let check = Check::new("splits", |setup| {
        let builder = JobBuilder::new("splits", setup.shape.parallelism);
        let numbers = VecSource::new((0..40_u64).collect());
        builder
            .split_source("numbers", Pieces::new(numbers, 7, 3))
            .key_by(|number| number % 3)
            .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let tally = check.seeds(0..20).run().unwrap();
    assert!(tally.is_held(), "seed {:?}", tally.first_refuting_seed);
}

#[test]
fn an_operator_that_depends_on_hash_order_is_told_by_its_output() {
    let first = |(key, count): (u64, u64)| {
        let numbers: HashSet<u64> = (0..100).map(|number| number + key + count).collect();
        numbers.into_iter().next().unwrap()
    };
    let check = Check::new("hashes", move |setup| counting(setup, |number| number, first));
    let variation = check.variation().unwrap();
    assert_eq!((variation.state.len(), &variation.output[..]), (0, &["out".to_owned()][..]));
    assert!(variation.to_string().starts_with("exactly-once state, output may differ"));
}

#[test]
fn an_operator_that_reads_a_clock_into_a_key_is_told_by_the_state_behind_it() {
    // A clock that goes on while the test runs, as any clock does.
    let clock = Arc::new(AtomicU64::new(0));
    let check = Check::new("clock", move |setup| {
        let clock = clock.clone();
        let read = move |_| clock.fetch_add(7, Ordering::Relaxed) / 100;
        counting(setup, read, |(key, _)| key)
    });
    let variation = check.variation().unwrap();
    assert_eq!(variation.state, ["count"]);
    assert!(variation.to_string().starts_with("state may differ: 'count'"), "{variation}");
}
