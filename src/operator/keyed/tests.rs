//! The rules that keyed operators keep, and what becomes of their state when a program changes.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;
use crate::config::JobConfig;
use crate::connector::memory::{Collect, VecSource};
use crate::job::JobBuilder;
use crate::operator::chain::{Named, Segment};
use crate::state::codec::Format;
use crate::state::kinds::{
    MapCell, MapDescriptor, ReducingDescriptor, Times, Ttl, ValueCell, ValueDescriptor,
};
use crate::state::snapshot::{Extent, Share};

/// Says how far event time is.
#[derive(Clone)]
struct Clock;

impl KeyedProcess for Clock {
    type Key = u64;
    type In = u64;
    type State = ();
    type Out = EventTime;

    fn process(
        &mut self,
        _record: u64,
        context: &mut KeyedContext<'_, u64, ()>,
        out: &mut impl Emit<EventTime>,
    ) {
        out.emit(context.watermark());
    }
}

#[test]
fn rule_031_a_record_in_flight_meets_the_watermark_of_the_cut_after_a_restore() {
    let at = EventTime::from_millis;
    let mut out = Vec::new();
    let mut clock = Keyed::new(Clock, ByValue(|record: &u64| *record));
    clock.on_watermark(at(7), &mut out);
    let watermark = clock.snapshot().watermark;

    let mut restored = Keyed::new(Clock, ByValue(|record: &u64| *record));
    restored.restore(&OperatorState { watermark, ..OperatorState::default() }).unwrap();
    restored.process(1, &mut out);
    restored.on_watermark(at(3), &mut out);
    restored.process(1, &mut out);
    restored.on_watermark(at(9), &mut out);
    restored.process(1, &mut out);
    assert_eq!(out, [at(7), at(7), at(9)]);
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Visitor {
    pages: MapCell<u64, u64>,
    total: ValueCell<u64>,
}

/// Counts the visits of each page, and those of all pages as long as any goes on.
#[derive(Clone)]
struct Visits {
    pages: MapDescriptor<Visitor, u64, u64>,
    total: ReducingDescriptor<Visitor, u64>,
}

impl Visits {
    fn by_event_time() -> Self {
        let ttl = Ttl::event_time(Duration::from_millis(10));
        let sum = |sum: &mut u64, number| *sum += number;
        Self {
            pages: MapDescriptor::new("pages", |of: &mut Visitor| &mut of.pages).ttl(ttl),
            total: ReducingDescriptor::new("total", |of: &mut Visitor| &mut of.total, sum).ttl(ttl),
        }
    }
}

impl KeyedProcess for Visits {
    type Key = u64;
    /// Who visits, and which page.
    type In = (u64, u64);
    type State = Visitor;
    type Out = (u64, u64);

    fn process(
        &mut self,
        (_, page): (u64, u64),
        context: &mut KeyedContext<'_, u64, Visitor>,
        out: &mut impl Emit<(u64, u64)>,
    ) {
        let mut pages = context.map(&self.pages);
        let count = pages.get(&page).copied().unwrap_or(0) + 1;
        pages.insert(page, count);
        let mut total = context.reducing(&self.total);
        total.add(1);
        out.emit((count, total.get().copied().unwrap_or(0)));
    }

    fn kinds(&self) -> Kinds<Visitor> {
        Kinds::new().with(&self.pages).with(&self.total)
    }
}

type VisitsOperator = Keyed<Visits, ByValue<fn(&(u64, u64)) -> u64>>;

fn visits() -> VisitsOperator {
    Keyed::new(Visits::by_event_time(), ByValue(|(visitor, _)| *visitor))
}

fn at(millis: i64) -> EventTime {
    EventTime::from_millis(millis)
}

fn visit(operator: &mut VisitsOperator, visitor: u64, page: u64) -> (u64, u64) {
    let mut out = Vec::new();
    operator.process((visitor, page), &mut out);
    out[0]
}

/// The operator's state as it is stored.
fn stored(operator: &mut impl Operator, format: Format) -> OperatorState {
    let StateParts { keyed, timers, processing_timers, watermark, lists } = operator.snapshot();
    let groups = |share: Option<Arc<dyn Share>>| share.map(|share| share.encode_groups(format));
    OperatorState {
        uid: "visits".to_owned(),
        format,
        keyed: groups(keyed),
        timers: groups(timers),
        processing_timers: groups(processing_timers),
        watermark,
        lists: lists.iter().map(|list| list.to_state(format)).collect(),
    }
}

#[test]
fn rule_090_an_entry_expires_by_the_watermark_of_its_operator_also_after_a_restore() {
    let mut before = visits();
    before.on_watermark(at(0), &mut Vec::new());
    assert_eq!(visit(&mut before, 1, 7), (1, 1));
    before.on_watermark(at(6), &mut Vec::new());
    assert_eq!(visit(&mut before, 1, 8), (1, 2));
    before.on_watermark(at(10), &mut Vec::new());
    let state = stored(&mut before, Format::Binary);
    let mut restored = visits();
    restored.restore(&state).unwrap();
    for mut operator in [before, restored] {
        assert_eq!(visit(&mut operator, 1, 7), (1, 3), "page 7 is over and the total is not");
        assert_eq!(visit(&mut operator, 1, 8), (2, 4));
        operator.on_watermark(at(20), &mut Vec::new());
        assert_eq!(visit(&mut operator, 1, 8), (1, 1));
    }
}

#[test]
fn rule_090_what_expires_is_removed_bit_by_bit_while_records_come() {
    let mut operator = visits();
    operator.on_watermark(at(0), &mut Vec::new());
    let visitors = 1_000;
    for visitor in 0..visitors {
        visit(&mut operator, visitor, 0);
    }
    operator.on_watermark(at(10), &mut Vec::new());
    let mut records = 0;
    while operator.state.len() > 1 {
        let before = operator.state.len();
        visit(&mut operator, visitors, 0);
        assert!(before <= operator.state.len() + ENTRIES_LOOKED_AT, "more work than is allowed");
        records += 1;
        assert!(records < visitors, "expired entries are left");
    }
    assert_eq!(operator.cells().len(), 1);
}

#[test]
fn what_the_clean_up_removes_is_a_change_of_the_state() {
    let mut operator = visits();
    operator.on_watermark(at(0), &mut Vec::new());
    for visitor in 0..20 {
        visit(&mut operator, visitor, 0);
    }
    let mut other = visits();
    other.restore(&stored(&mut operator, Format::Binary)).unwrap();
    operator.track_changes();
    operator.on_watermark(at(10), &mut Vec::new());
    while operator.state.len() > 1 {
        visit(&mut operator, 99, 0);
        let keyed = operator.changes().keyed.map(|share| share.encode_groups(Format::Binary));
        other.apply(&OperatorState { keyed, ..OperatorState::default() }).unwrap();
    }
    visit(&mut operator, 99, 0);
    let keyed = operator.changes().keyed.map(|share| share.encode_groups(Format::Binary));
    other.apply(&OperatorState { keyed, ..OperatorState::default() }).unwrap();
    assert_eq!(
        stored(&mut other, Format::Binary).keyed,
        stored(&mut operator, Format::Binary).keyed
    );
}

#[test]
fn what_can_be_seen_of_the_state_does_not_depend_on_the_clean_up() {
    let mut operator = visits();
    operator.on_watermark(at(0), &mut Vec::new());
    for visitor in 0..20 {
        visit(&mut operator, visitor, 0);
    }
    assert_eq!(operator.cells().len(), 20);
    operator.on_watermark(EventTime::MAX, &mut Vec::new());
    assert_eq!((operator.cells(), operator.state.len()), (Vec::new(), 20));
}

#[test]
fn a_look_at_a_key_without_state_leaves_none() {
    #[derive(Clone)]
    struct Look(Visits);

    impl KeyedProcess for Look {
        type Key = u64;
        type In = u64;
        type State = Visitor;
        type Out = bool;

        fn process(
            &mut self,
            page: u64,
            context: &mut KeyedContext<'_, u64, Visitor>,
            out: &mut impl Emit<bool>,
        ) {
            out.emit(context.map(&self.0.pages).get(&page).is_some());
        }

        fn kinds(&self) -> Kinds<Visitor> {
            self.0.kinds()
        }
    }

    let (mut operator, mut out) =
        (Keyed::new(Look(Visits::by_event_time()), ByValue(|page: &u64| *page)), Vec::new());
    operator.process(7, &mut out);
    assert_eq!((out, operator.state.len()), (vec![false], 0));
}

/// A process that keeps its last record as `S`.
#[derive(Clone)]
struct Keep<S>(PhantomData<S>);

impl<S: Record> KeyedProcess for Keep<S> {
    type Key = u64;
    type In = S;
    type State = S;
    type Out = S;

    fn process(
        &mut self,
        record: S,
        context: &mut KeyedContext<'_, u64, S>,
        _out: &mut impl Emit<S>,
    ) {
        context.state().set(record);
    }
}

type KeepOperator<S> = Keyed<Keep<S>, ByValue<fn(&S) -> u64>>;

fn keep<S: Record>() -> KeepOperator<S> {
    Keyed::new(Keep(PhantomData), ByValue(|_| 1))
}

/// What a program that keeps `After` finds of what one that kept `Before` had in its savepoint.
fn evolved<Before: Record, After: Record>(value: Before) -> Result<After, String> {
    let mut before = keep::<Before>();
    before.process(value, &mut Vec::new());
    let state = stored(&mut before, Format::Portable);
    let mut after = Named::new("visits", keep::<After>());
    after.restore(Extent::Whole, &[state]).map_err(|error| error.to_string())?;
    let mut snapshots = Vec::new();
    after.snapshot(Extent::Whole, &mut snapshots);
    let state = snapshots[0].to_state(Format::Portable);
    let groups = state.keyed.unwrap();
    let mut entries: Vec<(u64, After)> = Format::Portable.decode(&groups[0].1).unwrap();
    Ok(entries.remove(0).1)
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Narrow {
    count: u32,
    name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Wide {
    count: u64,
    #[serde(default)]
    pages: MapCell<u64, u64>,
    #[serde(default)]
    rank: Option<u8>,
}

#[test]
fn rule_116_a_field_may_come_with_a_default_go_and_widen() {
    let before = Narrow { count: u32::MAX, name: "a".to_owned() };
    let after = Wide { count: u64::from(u32::MAX), ..Wide::default() };
    assert_eq!(evolved(before), Ok(after));
}

#[test]
fn rule_116_the_values_of_a_kind_may_widen_and_keep_their_times() {
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Cells<V> {
        value: ValueCell<V>,
    }
    let mut value: ValueCell<u32> = ValueCell::default();
    let ttl = Ttl::event_time(Duration::from_millis(10));
    let descriptor = ValueDescriptor::new("value", |of| of).ttl(ttl);
    let times = |event| Times { event, ..Times::MIN };
    descriptor.view(&mut value, times(at(5))).set(7);
    let mut after = evolved::<_, Cells<u64>>(Cells { value }).unwrap();
    let descriptor = ValueDescriptor::new("value", |of| of).ttl(ttl);
    assert_eq!(descriptor.view(&mut after.value, times(at(14))).get(), Some(&7));
    assert_eq!(descriptor.view(&mut after.value, times(at(15))).get(), None);
}

#[test]
fn rule_116_an_incompatible_change_is_refused_by_the_name_of_the_operator() {
    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Numbered {
        count: u32,
        name: u64,
    }
    let before = Narrow { count: 1, name: "a".to_owned() };
    let error = evolved::<_, Numbered>(before.clone()).unwrap_err();
    assert!(error.starts_with("the state of 'visits': kg"), "{error}");
    assert!(error.contains("'name' of a key's state"), "{error}");
    assert!(error.contains("invalid type: string"), "{error}");

    #[derive(Clone, Debug, Serialize, Deserialize)]
    struct Demanding {
        count: u32,
        rank: u8,
    }
    let error = evolved::<_, Demanding>(before).unwrap_err();
    assert!(error.contains("'rank' of a key's state"), "{error}");
    assert!(error.contains("missing field `rank`"), "{error}");
}

#[test]
fn two_states_of_one_name_are_refused_when_the_job_is_built() {
    let mut visits = Visits::by_event_time();
    let sum = |sum: &mut u64, number| *sum += number;
    visits.total = ReducingDescriptor::new("pages", |of: &mut Visitor| &mut of.total, sum);
    let builder = JobBuilder::new("job", 1);
    builder
        .source("visits", VecSource::new(vec![(1_u64, 1_u64)]))
        .key_by(|(visitor, _)| *visitor)
        .process("count", visits)
        .sink("out", Collect::default());
    let error = builder.build(JobConfig::default()).map(|_| ()).unwrap_err();
    let sentence = "operator 'count': two of its states are called 'pages': give each its own name";
    assert_eq!(error.to_string(), sentence);
}

/// Says a number again when the clock has passed it, and registers a timer ten later then.
#[derive(Clone)]
struct Echo;

impl KeyedProcess for Echo {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = (u64, i64);

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        _out: &mut impl Emit<(u64, i64)>,
    ) {
        context.register_processing_timer(ProcessingTime::from_millis(number as i64));
    }

    fn on_processing_timer(
        &mut self,
        time: ProcessingTime,
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<(u64, i64)>,
    ) {
        out.emit((*context.key(), time.as_millis()));
        context.register_processing_timer(time.saturating_add(10));
    }

    fn uses_clock(&self) -> bool {
        true
    }
}

type EchoOperator = Keyed<Echo, ByValue<fn(&u64) -> u64>>;

fn echo() -> EchoOperator {
    Keyed::new(Echo, ByValue(|number| *number))
}

/// What fires when the clock says this.
fn fired(operator: &mut EchoOperator, now: i64) -> Vec<(u64, i64)> {
    let mut out = Vec::new();
    operator.on_clock(ProcessingTime::from_millis(now), &mut out);
    out
}

#[test]
fn rule_088_a_timer_of_the_clock_fires_a_millisecond_later_and_once() {
    let mut operator = echo();
    [5, 7, 5].into_iter().for_each(|number| operator.process(number, &mut Vec::new()));
    assert_eq!(operator.next_wake(), Some(ProcessingTime::from_millis(6)));
    assert_eq!(fired(&mut operator, 5), []);
    assert_eq!(fired(&mut operator, 6), [(5, 5)]);
    assert_eq!(fired(&mut operator, 6), []);
    assert_eq!(operator.next_wake(), Some(ProcessingTime::from_millis(8)));
    assert_eq!(fired(&mut operator, 16), [(7, 7), (5, 15)]);
}

#[test]
fn rule_088_a_restored_timer_of_the_clock_fires_late_in_its_order_and_once() {
    for format in [Format::Binary, Format::Portable] {
        let mut before = echo();
        [9, 5].into_iter().for_each(|number| before.process(number, &mut Vec::new()));
        let state = stored(&mut before, format);
        let mut restored = echo();
        restored.restore(&state).unwrap();
        assert_eq!(restored.next_wake(), Some(ProcessingTime::from_millis(6)));
        assert_eq!(fired(&mut restored, 12), [(5, 5), (9, 9)]);
        assert_eq!(fired(&mut restored, 15), []);
    }
}

#[test]
fn changes_of_timers_of_the_clock_on_top_of_earlier_ones_give_the_later_ones() {
    let (mut operator, mut other) = (echo(), echo());
    [9, 5].into_iter().for_each(|number| operator.process(number, &mut Vec::new()));
    other.restore(&stored(&mut operator, Format::Binary)).unwrap();
    operator.track_changes();
    fired(&mut operator, 6);
    let share = operator.changes().processing_timers.unwrap();
    let processing_timers = Some(share.encode_groups(Format::Binary));
    other.apply(&OperatorState { processing_timers, ..OperatorState::default() }).unwrap();
    assert_eq!(fired(&mut other, 20), [(9, 9), (5, 15), (9, 19)]);
}

#[test]
fn at_the_end_of_data_each_timer_of_the_clock_fires_and_those_that_they_register_do_not() {
    let (mut operator, mut out) = (echo(), Vec::new());
    [9, 5].into_iter().for_each(|number| operator.process(number, &mut Vec::new()));
    operator.on_end_of_data(&mut out);
    assert_eq!((out, operator.next_wake()), (vec![(5, 5), (9, 9)], None));
}

#[test]
fn the_clock_does_not_go_back_within_an_attempt() {
    let mut operator = echo();
    operator.process(15, &mut Vec::new());
    assert_eq!(fired(&mut operator, 20), [(15, 15)]);
    operator.process(8, &mut Vec::new());
    assert_eq!(fired(&mut operator, 5), [(8, 8), (8, 18)], "it has been 20 before");
    assert_eq!(operator.timing.now.processing, ProcessingTime::from_millis(20));
}

#[test]
#[should_panic(expected = "KeyedProcess::uses_clock")]
fn a_process_that_does_not_say_that_it_uses_the_clock_has_none() {
    #[derive(Clone)]
    struct Sly;

    impl KeyedProcess for Sly {
        type Key = u64;
        type In = u64;
        type State = u64;
        type Out = u64;

        fn process(
            &mut self,
            _number: u64,
            context: &mut KeyedContext<'_, u64, u64>,
            _out: &mut impl Emit<u64>,
        ) {
            context.processing_time();
        }
    }

    Keyed::new(Sly, ByValue(|number: &u64| *number)).process(1, &mut Vec::new());
}

#[test]
fn an_operator_that_uses_the_clock_varies() {
    let traits = |operator: OperatorTraits| (operator.uses_clock, operator.varies);
    assert_eq!(traits(echo().traits()), (true, true));
    assert_eq!(traits(visits().traits()), (false, false));
    let mut by_clock = Visits::by_event_time();
    by_clock.pages = by_clock.pages.ttl(Ttl::processing_time(Duration::from_millis(10)));
    let by_clock = Keyed::new(by_clock, ByValue(|(visitor, _): &(u64, u64)| *visitor));
    assert_eq!(traits(by_clock.traits()), (true, true));
}
