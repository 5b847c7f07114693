//! Event time: what holds it back, what fires by it, and what comes too late.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::connector::memory::{Range, VecSource};
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::{Emit, Operator};
use cofferdam::state::codec;
use cofferdam::time::EventTime;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::options::Options;

use crate::case::*;
use crate::jobs::{Alarm, Echo, alarmed, alarms_from, time_of};

/// What an endless source has beside its numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    /// A split that never has anything.
    Silence,
    /// A split that has ended.
    AnEnd,
}

#[derive(Clone)]
struct Endless {
    numbers: VecSource<u64>,
    beside: Beside,
}

const OTHER: Range = Range { next: u64::MAX, end: u64::MAX };

impl Beside {
    /// How many splits have numbers.
    fn spoken(self, parallelism: usize) -> usize {
        parallelism - usize::from(self.has_other(parallelism))
    }

    fn has_other(self, parallelism: usize) -> bool {
        self != Self::Nothing && parallelism > 1
    }
}

impl Source for Endless {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        let mut splits = self.numbers.discover(self.beside.spoken(parallelism))?;
        splits.extend(self.beside.has_other(parallelism).then_some(OTHER));
        Ok(splits)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        match (*split == OTHER, self.beside) {
            (true, Beside::AnEnd) => Ok(Fetch::End),
            (true, Beside::Silence | Beside::Nothing) => Ok(Fetch::Nothing),
            (false, _) => self.numbers.read(split, records_max),
        }
    }

    fn is_endless(&self) -> bool {
        true
    }
}

/// As [`crate::jobs::alarms`], endless: all timers are due by the time of the last number of each
/// split.
fn endless(beside: Beside, options: &Options, of: Mechanism, sink: SinkContract) -> Job {
    let mut numbers = VecSource::new((0..RECORDS).collect()).endless();
    let splits = numbers.discover(beside.spoken(options.parallelism)).unwrap();
    let time_of = move |number: &u64| match splits.iter().any(|split| split.end == number + 1) {
        true => EventTime::from_millis(10 * RECORDS as i64),
        false => time_of(number),
    };
    let source = Endless { numbers, beside };
    let begin = |builder: &JobBuilder| {
        builder.source_that_may_idle("numbers", source, time_of, Duration::ZERO, 3)
    };
    alarms_from(begin, Alarm, options, of, sink)
}

const ENDLESS: Case =
    Case { make: |options, of, sink| endless(Beside::Nothing, options, of, sink), ..ALARMS };
const BESIDE_AN_END: Case =
    Case { make: |options, of, sink| endless(Beside::AnEnd, options, of, sink), ..ALARMS };
const BESIDE_SILENCE: Case =
    Case { make: |options, of, sink| endless(Beside::Silence, options, of, sink), ..ALARMS };

#[test]
fn inputs_that_are_idle_or_have_ended_hold_back_no_timer() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned] {
        for case in [ENDLESS, BESIDE_AN_END, BESIDE_SILENCE] {
            assert_held(Case { mechanism, ..case });
        }
    }
}

#[test]
fn timers_that_wait_for_the_next_record_of_a_restored_source_are_caught() {
    let overtaken = Case { mechanism: Mechanism::Unaligned, ..ENDLESS };
    assert_caught(overtaken, Variant::SourceWatermarksLeftOut, "values");
}

#[test]
fn inputs_that_hold_back_event_time_are_caught_by_the_timers_that_do_not_fire() {
    assert_caught(BESIDE_SILENCE, Variant::IdleUnheard, "values");
    assert_caught(BESIDE_AN_END, Variant::EndedInputHoldsTime, "values");
    assert_caught(ENDLESS, Variant::LowerWatermarkStops, "values");
}

#[test]
fn timers_that_are_restored_for_another_time_are_caught() {
    assert_caught(ALARMS, Variant::TimersRetimed, "recovery");
    assert_caught(ALARMS, Variant::TimersRetimed, "output-delivery");
}

#[test]
fn timers_that_fire_in_a_task_that_was_stopped_are_caught() {
    for case in [ALARMS, ECHOES] {
        assert_caught(case, Variant::OldAttemptNotFenced, "recovery");
    }
}

/// As [`crate::jobs::echoes`], over queues.
fn echoes_of_queues(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers: Vec<u64> = (0..RECORDS).collect();
    let queues = MemoryQueue::new(&numbers, options.parallelism);
    let begin = |builder: &JobBuilder| builder.queue("numbers", queues);
    alarms_from(begin, Echo::new(), options, mechanism, sink)
}

#[test]
fn messages_that_are_acknowledged_when_they_wait_for_a_timer_are_caught() {
    let case = Case { make: echoes_of_queues, ..ECHOES };
    assert_held(case);
    assert_caught(case, Variant::AcknowledgedWhenEmitted, "output-delivery");
}

/// Comes with a time that has always passed.
fn is_late(number: u64) -> bool {
    number % 10 == 4
}

/// Leaves late records out; if it gives up, then also those that come behind one before event time
/// goes on.
#[derive(Clone)]
struct Sieve {
    gives_up: bool,
    has_given_up: bool,
}

impl Operator for Sieve {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        if is_late(number) {
            self.has_given_up = self.gives_up;
        } else if !self.has_given_up {
            out.emit(number);
        }
    }

    fn on_watermark(&mut self, _watermark: EventTime, _out: &mut impl Emit<u64>) {
        self.has_given_up = false;
    }
}

fn alarms_behind(gives_up: bool, options: &Options, of: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let time_of = |number: &u64| if is_late(*number) { EventTime::MIN } else { time_of(number) };
    let sieve = Sieve { gives_up, has_given_up: false };
    let begin = |builder: &JobBuilder| {
        let numbers =
            builder.source_with_event_time("numbers", numbers, time_of, Duration::from_secs(1));
        numbers.operator("sieve", sieve)
    };
    alarms_from(begin, Alarm, options, of, sink)
}

fn on_time(numbers: &[u64]) -> Reference {
    let on_time = numbers.iter().copied().filter(|number| !is_late(*number));
    alarmed(&on_time.collect::<Vec<_>>())
}

const SIEVED: Case = Case {
    make: |options, mechanism, sink| alarms_behind(false, options, mechanism, sink),
    reference: on_time,
    is_taken: |number| !is_late(number),
    ..ALARMS
};

#[test]
fn a_late_record_that_ends_the_work_on_its_batch_is_caught() {
    assert_held(SIEVED);
    let broken =
        Case { make: |options, of, sink| alarms_behind(true, options, of, sink), ..SIEVED };
    assert_speaks(broken, "output-delivery");
}

/// Counts of the last three slides, told at the end of each; the slides are shared by the windows
/// that they lie in.
#[derive(Clone)]
struct Slides {
    /// How many slides before its last use a count is dropped.
    dropped_before: i64,
}

const SLIDE: i64 = 10;
const SLIDES: i64 = 3;

/// The last millisecond of a slide.
fn last_of(slide: i64) -> EventTime {
    EventTime::from_millis((slide + 1) * SLIDE - 1)
}

fn slide_of(time: EventTime) -> i64 {
    time.as_millis().div_euclid(SLIDE)
}

/// A row: what window, and how many records.
fn told(key: u64, slide: i64, count: u64) -> u64 {
    (slide as u64 * 1_000 + count) * 7 + key
}

impl KeyedProcess for Slides {
    type Key = u64;
    type In = u64;
    type State = BTreeMap<i64, u64>;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, BTreeMap<i64, u64>>,
        _out: &mut impl Emit<u64>,
    ) {
        let slide = slide_of(time_of(&number));
        *context.state().get_or_insert_default().entry(slide).or_default() += 1;
        (slide..slide + SLIDES).for_each(|end| context.register_timer(last_of(end)));
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, BTreeMap<i64, u64>>,
        out: &mut impl Emit<u64>,
    ) {
        let (key, end) = (*context.key(), slide_of(time));
        let Some(counts) = context.state().get_mut() else { return };
        let count = counts.range(end + 1 - SLIDES..=end).map(|(_, count)| count).sum();
        out.emit(told(key, end, count));
        counts.retain(|slide, _| *slide > end + self.dropped_before - (SLIDES - 1));
        if counts.is_empty() {
            context.state().take();
        }
    }
}

fn slides(dropped_before: i64, options: &Options, of: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| {
        builder.source_with_event_time("numbers", numbers, time_of, Duration::ZERO)
    };
    alarms_from(begin, Slides { dropped_before }, options, of, sink)
}

fn slid(numbers: &[u64]) -> Reference {
    let mut reference = Reference::default();
    let ends = RECORDS as i64 / SLIDE + SLIDES;
    for (key, end) in (0..7).flat_map(|key| (0..ends).map(move |end| (key, end))) {
        let is_in = |number: &&u64| {
            let slide = **number as i64 / SLIDE;
            **number % 7 == key && (end - 2..=end).contains(&slide)
        };
        let count = numbers.iter().filter(is_in).count() as u64;
        reference.rows.extend((count > 0).then(|| codec::encode(&told(key, end, count))));
    }
    reference
}

const SLIDING: Case =
    Case { make: |options, of, sink| slides(0, options, of, sink), reference: slid, ..ALARMS };

#[test]
fn state_of_windows_that_is_dropped_before_its_last_use_is_caught() {
    assert_held(SLIDING);
    let broken = Case { make: |options, of, sink| slides(1, options, of, sink), ..SLIDING };
    assert_speaks(broken, "values");
}
