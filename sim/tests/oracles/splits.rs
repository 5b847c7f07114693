//! Sources whose splits are assigned to readers that ask.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::config::{JobConfig, OnLoss};
use cofferdam::connector::log::TruncatedLog;
use cofferdam::connector::memory::VecSource;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::split_source::Pieces;
use cofferdam::time::EventTime;
use cofferdam::trace::TraceEvent;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::options::Options;
use cofferdam_sim::world::Ending;

use crate::case::*;
use crate::jobs::{Alarm, alarms_from, count, time_of};

const OF_SPLITS: Case = Case { make: counting_splits, ..COUNTING };

/// As [`crate::jobs::counting`], in more splits than there are readers.
fn counting_splits(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| builder.split_source("numbers", Pieces::new(numbers, 12, 4));
    count(begin, options, options.job_config(mechanism), sink, true)
}

/// As [`counting_splits`], of a source that always waits for another split.
fn counting_endless_splits(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| {
        builder.split_source("numbers", Pieces::new(numbers, 12, 4).endless())
    };
    count(begin, options, options.job_config(mechanism), sink, true)
}

/// As [`counting_splits`], of a log that drops its oldest records: the job goes on without them.
fn counting_what_is_left(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let log = TruncatedLog::from(Arc::new((0..RECORDS).collect()));
    let begin = |builder: &JobBuilder| builder.split_source("numbers", Pieces::new(log, 12, 4));
    let config = JobConfig { on_loss: OnLoss::GoOn, ..options.job_config(mechanism) };
    count(begin, options, config, sink, true)
}

/// As [`crate::jobs::counting`], of a source that always waits for another record.
fn counting_endlessly(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| builder.source("numbers", numbers.endless());
    count(begin, options, options.job_config(mechanism), sink, true)
}

/// As [`Alarm`], and says a number again at once that comes too late.
#[derive(Clone)]
struct Punctual;

impl KeyedProcess for Punctual {
    type Key = u64;
    type In = u64;
    type State = <Alarm as KeyedProcess>::State;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, Self::State>,
        out: &mut impl Emit<u64>,
    ) {
        if time_of(&number) <= context.watermark() {
            out.emit(number);
        }
        Alarm.process(number, context, out);
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, Self::State>,
        out: &mut impl Emit<u64>,
    ) {
        Alarm.on_timer(time, context, out);
    }
}

/// As [`crate::jobs::alarms`], over splits that are assigned in the order of `numbers`.
fn alarms_over(
    numbers: impl Iterator<Item = u64>,
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job {
    let pieces = Pieces::new(VecSource::new(numbers.collect()), 12, 4);
    let begin = |builder: &JobBuilder| {
        builder.split_source_with_event_time("numbers", pieces, time_of, Duration::ZERO)
    };
    alarms_from(begin, Punctual, options, mechanism, sink)
}

fn alarms_of_splits(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    alarms_over(0..RECORDS, options, mechanism, sink)
}

/// Against the order of time, so that all but the first are late.
fn alarms_backwards(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    alarms_over((0..RECORDS).rev(), options, mechanism, sink)
}

#[test]
fn event_time_over_assigned_splits_leaves_no_record_late() {
    let alarms = Case { make: alarms_of_splits, ..ALARMS };
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout] {
        assert_held(Case { mechanism, ..alarms });
    }
    assert_caught(alarms, Variant::WatermarksLeftOut, "recovery");
    assert_caught(alarms, Variant::ReturnedSplitsLast, "split-order");
    let late = refuted(Case { make: alarms_backwards, ..alarms }, None, Some("values"));
    assert!(late.contains_key("values"), "{late:?}");
}

#[test]
fn what_an_endless_source_has_given_is_all_there_without_a_last_checkpoint() {
    for make in [counting_endlessly, counting_endless_splits] {
        let endless = Case { make, ..COUNTING };
        for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout] {
            assert_held(Case { mechanism, ..endless });
        }
        assert_held(Case { sink: SinkContract::WriteAhead, ..endless });
        assert_held(Case { sink: SinkContract::Plain, mechanism: Mechanism::Tracked, ..endless });
        assert_eq!(endless.run(0, None).ending(), Some(&Ending::Stopped));
    }
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
fn splits_of_a_log_that_drops_records_lose_what_is_reported_and_nothing_else() {
    let left = Case { make: counting_what_is_left, ..OF_SPLITS };
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned] {
        assert_held(Case { mechanism, ..left });
    }
    let lossy = (0..SEEDS).filter(|seed| left.judge(*seed, None).lost > 0);
    assert!(lossy.count() > 5);
    assert_caught(left, Variant::GapSkipped, "loss-report");
}

#[test]
fn rule_081_splits_that_come_back_behind_newer_ones_are_caught() {
    assert_caught(OF_SPLITS, Variant::ReturnedSplitsLast, "split-order");
}

#[test]
fn rule_081_splits_of_a_failed_attempt_are_assigned_again() {
    let comes_back = (0..SEEDS).filter(|seed| {
        let world = OF_SPLITS.run(*seed, None);
        let assigned = world.trace().iter().filter_map(|traced| {
            let TraceEvent::Assigned { split, .. } = traced.event else { return None };
            Some(split)
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

#[test]
fn rule_081_splits_that_do_not_come_back_after_a_failure_are_caught_by_what_is_lost() {
    for variant in [
        Variant::ReturnedSplitsLost,
        Variant::SplitForTheDeadLost,
        Variant::ReassignedSplitsLost,
        Variant::SplitBeforeRegistered,
        Variant::GivenForgottenAtCompletion,
    ] {
        assert_caught_by_delivery(OF_SPLITS, variant);
    }
}

#[test]
fn rule_080_parts_of_coordinator_and_readers_that_do_not_fit_are_caught() {
    for variant in [
        Variant::SplitsFoundAgain,
        Variant::EmptyReturnForgets,
        Variant::UnassignedLeftOut,
        Variant::PoolBeforeAssignment,
        Variant::UnreadSplitsLeftOut,
    ] {
        assert_caught_by_delivery(OF_SPLITS, variant);
    }
}
