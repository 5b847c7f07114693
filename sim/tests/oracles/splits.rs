//! Sources whose splits are assigned to readers that ask.

use cofferdam::connector::memory::VecSource;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::Job;
use cofferdam::operator::split_source::Pieces;
use cofferdam::trace::TraceEvent;
use cofferdam_sim::options::Options;

use crate::case::*;
use crate::jobs::count;

const OF_SPLITS: Case = Case { make: counting_splits, ..COUNTING };

/// As [`crate::jobs::counting`], in more splits than there are readers.
fn counting_splits(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &cofferdam::job::JobBuilder| {
        builder.split_source("numbers", Pieces::new(numbers, 12, 2))
    };
    count(begin, options, options.job_config(mechanism), sink, true)
}

#[test]
fn rule_080_splits_that_are_assigned_on_the_way_count_once() {
    for mechanism in
        [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout, Mechanism::FullReplay]
    {
        assert_held(Case { mechanism, ..OF_SPLITS });
    }
    let plain = Case { sink: SinkContract::Plain, ..OF_SPLITS };
    assert_held(Case { mechanism: Mechanism::Tracked, ..plain });
    assert_held(Case { mechanism: Mechanism::MiniBatch, ..plain });
}

#[test]
fn rule_081_splits_of_a_failed_attempt_are_assigned_again() {
    let comes_back = (0..SEEDS).filter(|seed| {
        let world = OF_SPLITS.run(*seed, None);
        let assigned = world.trace().iter().filter_map(|traced| match traced.event {
            TraceEvent::Assigned { split, .. } => Some(split),
            _ => None,
        });
        let mut assigned: Vec<_> = assigned.collect();
        let all = assigned.len();
        assigned.sort();
        assigned.dedup();
        assert_eq!(assigned.len(), 12, "seed {seed}");
        all > 12
    });
    assert!(comes_back.count() > 100);
}
