//! Kinds of state that expire against plain collections of values and times, with restores in
//! between, by event time and by the clock of the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::operator::keyed::{KeySelector, Keyed, KeyedContext, KeyedProcess};
use cofferdam::operator::{Emit, Operator};
use cofferdam::state::codec::Format;
use cofferdam::state::kinds::{
    Kinds, ListCell, ListDescriptor, MapCell, MapDescriptor, ReducingDescriptor, Ttl, ValueCell,
    ValueDescriptor,
};
use cofferdam::state::snapshot::OperatorState;
use cofferdam::time::{EventTime, ProcessingTime};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

proptest! {
    #[test]
    fn rule_090_nothing_expired_is_ever_seen_and_nothing_else_is_missing(
        lives in [life(), life(), life(), life()],
        steps in vec(step(), 1..120),
    ) {
        let process = Process::new(&lives);
        let mut operator = begin(&process);
        let mut model = Model::new(lives);
        advance(&mut operator, model.now);
        for step in steps {
            match step {
                Step::Do(key, action) => {
                    let mut seen = Vec::new();
                    operator.process((key, action), &mut seen);
                    prop_assert_eq!(seen, [model.act(key, action)]);
                }
                Step::Advance(event, clock) => {
                    model.now = [model.now[0] + event, model.now[1] + clock];
                    advance(&mut operator, model.now);
                }
                Step::Restore(format) => {
                    let state = stored(&mut operator, format);
                    operator = begin(&process);
                    prop_assert_eq!(operator.restore(&state), Ok(()));
                    advance(&mut operator, model.now);
                }
            }
        }
    }

    #[test]
    fn rule_090_all_that_is_expired_is_removed_in_the_end(
        lives in [life(), life(), life(), life()],
        actions in vec((0_u8..20, action()), 1..120),
    ) {
        let process = Process::new(&lives);
        let mut operator = begin(&process);
        advance(&mut operator, [0, 0]);
        for action in actions {
            operator.process(action, &mut Vec::new());
        }
        advance(&mut operator, [1_000, 1_000]);
        for _ in 0..600 {
            operator.process((0, Action::Look), &mut Vec::new());
        }
        let left = stored(&mut operator, Format::Binary).keyed.unwrap_or_default();
        prop_assert!(left.is_empty(), "{} groups are left", left.len());
    }
}

/// How long a kind's entries live: by event time or by the clock, how many milliseconds, and
/// whether reads renew them.
#[derive(Clone, Copy, Debug)]
struct Life {
    by_clock: bool,
    millis: i64,
    reads_renew: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Action {
    Set(u8),
    Push(u8),
    Insert(u8, u8),
    Remove(u8),
    Add(u8),
    Clear,
    Look,
}

#[derive(Clone, Debug)]
enum Step {
    Do(u8, Action),
    Advance(i64, i64),
    Restore(Format),
}

fn life() -> impl Strategy<Value = Life> {
    (any::<bool>(), 1_i64..20, any::<bool>()).prop_map(|(by_clock, millis, reads_renew)| Life {
        by_clock,
        millis,
        reads_renew,
    })
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0_u8..9).prop_map(Action::Set),
        (0_u8..9).prop_map(Action::Push),
        (0_u8..5, 0_u8..9).prop_map(|(key, value)| Action::Insert(key, value)),
        (0_u8..5).prop_map(Action::Remove),
        (0_u8..9).prop_map(Action::Add),
        Just(Action::Clear),
        Just(Action::Look),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u8..4, action()).prop_map(|(key, action)| Step::Do(key, action)),
        3 => (0_i64..8, 0_i64..8).prop_map(|(event, clock)| Step::Advance(event, clock)),
        1 => prop_oneof![Just(Format::Binary), Just(Format::Portable)].prop_map(Step::Restore),
    ]
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Parts {
    value: ValueCell<u8>,
    list: ListCell<u8>,
    map: MapCell<u8, u8>,
    sum: ValueCell<u32>,
}

/// All that can be seen of a key.
type View = (Option<u8>, Vec<u8>, Vec<(u8, u8)>, Option<u32>);

#[derive(Clone)]
struct Process {
    value: ValueDescriptor<Parts, u8>,
    list: ListDescriptor<Parts, u8>,
    map: MapDescriptor<Parts, u8, u8>,
    sum: ReducingDescriptor<Parts, u32>,
}

impl Process {
    fn new(lives: &[Life; 4]) -> Self {
        let [value, list, map, sum] = lives.map(|Life { by_clock, millis, reads_renew }| {
            let millis = Duration::from_millis(millis.unsigned_abs());
            let ttl = match by_clock {
                true => Ttl::processing_time(millis),
                false => Ttl::event_time(millis),
            };
            if reads_renew { ttl.renewed_by_reads() } else { ttl }
        });
        Self {
            value: ValueDescriptor::new("value", |of: &mut Parts| &mut of.value).ttl(value),
            list: ListDescriptor::new("list", |of: &mut Parts| &mut of.list).ttl(list),
            map: MapDescriptor::new("map", |of: &mut Parts| &mut of.map).ttl(map),
            sum: ReducingDescriptor::new(
                "sum",
                |of: &mut Parts| &mut of.sum,
                |sum, number| *sum += number,
            )
            .ttl(sum),
        }
    }
}

impl KeyedProcess for Process {
    type Key = u8;
    type In = (u8, Action);
    type State = Parts;
    type Out = View;

    fn process(
        &mut self,
        (_, action): (u8, Action),
        context: &mut KeyedContext<'_, u8, Parts>,
        out: &mut impl Emit<View>,
    ) {
        match action {
            Action::Set(value) => context.value(&self.value).set(value),
            Action::Push(value) => context.list(&self.list).push(value),
            Action::Insert(key, value) => drop(context.map(&self.map).insert(key, value)),
            Action::Remove(key) => drop(context.map(&self.map).remove(&key)),
            Action::Add(number) => context.reducing(&self.sum).add(number.into()),
            Action::Clear => {
                context.value(&self.value).clear();
                context.list(&self.list).clear();
                context.map(&self.map).clear();
                context.reducing(&self.sum).clear();
            }
            Action::Look => {}
        }
        let value = context.value(&self.value).get().copied();
        let list = context.list(&self.list).iter().copied().collect();
        let map = context.map(&self.map).iter().map(|(key, value)| (*key, *value)).collect();
        let sum = context.reducing(&self.sum).get().copied();
        out.emit((value, list, map, sum));
    }

    fn kinds(&self) -> Kinds<Parts> {
        Kinds::new().with(&self.value).with(&self.list).with(&self.map).with(&self.sum)
    }
}

/// The key stands first.
#[derive(Clone)]
struct First;

impl KeySelector<(u8, Action)> for First {
    type Key = u8;

    fn with_key<R>(&self, (key, _): &(u8, Action), then: impl FnOnce(&u8) -> R) -> R {
        then(key)
    }
}

type ProcessOperator = Keyed<Process, First>;

fn begin(process: &Process) -> ProcessOperator {
    Keyed::new(process.clone(), First)
}

fn advance(operator: &mut ProcessOperator, [event, clock]: [i64; 2]) {
    operator.on_watermark(EventTime::from_millis(event), &mut Vec::new());
    operator.on_clock(ProcessingTime::from_millis(clock), &mut Vec::new());
}

fn stored(operator: &mut ProcessOperator, format: Format) -> OperatorState {
    let parts = operator.snapshot();
    let keyed = parts.keyed.map(|share| share.encode_groups(format));
    OperatorState { format, keyed, watermark: parts.watermark, ..OperatorState::default() }
}

/// Everything with the time it was written at; nothing is ever removed because of its age.
struct Model {
    lives: [Life; 4],
    /// Event time and clock.
    now: [i64; 2],
    keys: BTreeMap<u8, Held>,
}

#[derive(Default)]
struct Held {
    value: Option<(u8, i64)>,
    list: Vec<(u8, i64)>,
    map: BTreeMap<u8, (u8, i64)>,
    sum: Option<(u32, i64)>,
}

impl Model {
    fn new(lives: [Life; 4]) -> Self {
        Self { lives, now: [0, 0], keys: BTreeMap::new() }
    }

    fn act(&mut self, key: u8, action: Action) -> View {
        let [value, list, map, sum] = self.lives;
        let now = |life: Life| self.now[usize::from(life.by_clock)];
        let held = self.keys.entry(key).or_default();
        match action {
            Action::Set(given) => held.value = Some((given, now(value))),
            Action::Push(given) => held.list.push((given, now(list))),
            Action::Insert(at, given) => drop(held.map.insert(at, (given, now(map)))),
            Action::Remove(at) => drop(held.map.remove(&at)),
            Action::Add(given) => {
                let before = held.sum.filter(|(_, at)| at + sum.millis > now(sum));
                let before = before.map_or(0, |(before, _)| before);
                held.sum = Some((before + u32::from(given), now(sum)));
            }
            Action::Clear => *held = Held::default(),
            Action::Look => {}
        }
        let keeps = |life: Life, at: &mut i64| {
            let is_there = *at + life.millis > now(life);
            if is_there && life.reads_renew {
                *at = now(life);
            }
            is_there
        };
        let seen = |(given, at): &mut (u8, i64), life| keeps(life, at).then_some(*given);
        (
            held.value.as_mut().and_then(|entry| seen(entry, value)),
            held.list.iter_mut().filter_map(|entry| seen(entry, list)).collect(),
            held.map.iter_mut().filter_map(|(at, entry)| Some((*at, seen(entry, map)?))).collect(),
            held.sum.as_mut().and_then(|(total, at)| keeps(sum, at).then_some(*total)),
        )
    }
}
