//! Jobs with several checkpoints in flight.

use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{Range, VecSource};
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::trace::TraceEvent;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::options::Options;
use cofferdam_sim::world::World;

use crate::case::*;
use crate::jobs::count;

/// A source that has nothing for now more often than not, so that there is time for checkpoints.
#[derive(Clone)]
struct Slow {
    numbers: VecSource<u64>,
    reads: u32,
}

impl Source for Slow {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        self.reads += 1;
        match self.reads.is_multiple_of(4) {
            true => self.numbers.read(split, records_max),
            false => Ok(Fetch::Nothing),
        }
    }
}

/// As [`crate::jobs::counting`], with time for many checkpoints, several of them at once.
fn counting_slowly(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let source = Slow { numbers: VecSource::new((0..RECORDS).collect()), reads: 0 };
    let config = JobConfig {
        checkpoint_interval: Duration::from_nanos(1),
        checkpoint_pause_min: Duration::ZERO,
        checkpoints_concurrent: 4,
        ..options.job_config(mechanism)
    };
    count(|builder: &JobBuilder| builder.source("numbers", source), options, config, sink, true)
}

pub(crate) const SLOWLY: Case = Case { make: counting_slowly, ..COUNTING };

/// How many checkpoints were in flight at the most.
fn in_flight_max(world: &World) -> usize {
    let mut in_flight = Vec::new();
    let mut most = 0;
    for traced in world.trace().iter() {
        let event = traced.event;
        if let TraceEvent::Triggered { checkpoint } = event {
            in_flight.push(checkpoint);
        } else if let TraceEvent::Completed { checkpoint, .. }
        | TraceEvent::Aborted { checkpoint, .. } = event
        {
            in_flight.retain(|other| *other != checkpoint);
        } else if let TraceEvent::Deployed { .. } = event {
            in_flight.clear();
        }
        most = most.max(in_flight.len());
    }
    most
}

#[test]
fn several_checkpoints_in_flight_are_exactly_once() {
    for sink in [SinkContract::TwoPhase, SinkContract::WriteAhead] {
        assert_held(Case { sink, ..SLOWLY });
    }
    let several = (0..SEEDS).filter(|seed| in_flight_max(&SLOWLY.run(*seed, None)) > 1);
    assert!(several.count() > 100);
}

#[test]
fn rule_049_a_checkpoint_that_is_complete_after_a_newer_one_is_caught() {
    assert_caught(SLOWLY, Variant::SubsumedCompletes, "recovery");
}

#[test]
fn rule_049_a_completion_whose_metadata_is_not_stored_is_caught() {
    for case in [COUNTING, SLOWLY] {
        assert_caught(case, Variant::CompletedBeforeStored, "recovery");
        assert_caught(case, Variant::CompletedBeforeStored, "output-delivery");
    }
}

#[test]
fn rule_058_transactions_of_older_checkpoints_that_a_completion_leaves_out_are_caught() {
    assert_caught(SLOWLY, Variant::OlderTransactionsDropped, "two-phase");
    assert_caught(SLOWLY, Variant::OlderTransactionsDropped, "output-delivery");
}

#[test]
fn a_snapshot_that_is_taken_after_that_of_the_next_checkpoint_is_caught() {
    assert_caught(SLOWLY, Variant::SnapshotAfterNext, "recovery");
    assert_caught(SLOWLY, Variant::SnapshotAfterNext, "values");
}

/// With one checkpoint in flight a notice has to be late by a whole checkpoint; here the one before
/// the last is often complete when the input has ended.
#[test]
fn rule_071_a_late_notice_that_commits_what_is_not_covered_is_caught() {
    assert_caught(SLOWLY, Variant::EndIsHighest, "two-phase");
    assert_caught(SLOWLY, Variant::EndIsHighest, "output-delivery");
}

#[test]
fn sp_03_a_checkpoint_that_was_given_up_and_has_no_successor_is_caught() {
    assert_caught_at_once(COUNTING, Variant::AbortEndsTriggers, "liveness");
}
