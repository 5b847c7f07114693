//! Each kind by itself, and the clean-up of all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;
use crate::state::codec::{self, Format};
use crate::time::{EventTime, ProcessingTime};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Parts {
    value: ValueCell<u64>,
    list: ListCell<u64>,
    map: MapCell<u64, u64>,
    sum: ValueCell<u64>,
    mean: ValueCell<(u64, u64)>,
}

const VALUE: ValueDescriptor<Parts, u64> = ValueDescriptor::new("value", |parts| &mut parts.value);
const LIST: ListDescriptor<Parts, u64> = ListDescriptor::new("list", |parts| &mut parts.list);
const MAP: MapDescriptor<Parts, u64, u64> = MapDescriptor::new("map", |parts| &mut parts.map);
const SUM: ReducingDescriptor<Parts, u64> =
    ReducingDescriptor::new("sum", |parts| &mut parts.sum, |sum, number| *sum += number);
const MEAN: AggregatingDescriptor<Parts, (u64, u64), u64, u64> = AggregatingDescriptor::new(
    "mean",
    |parts| &mut parts.mean,
    |(sum, count), number| (*sum, *count) = (*sum + number, *count + 1),
    |(sum, count)| sum / count,
);

fn ttl() -> Ttl {
    Ttl::event_time(Duration::from_millis(10))
}

fn at(millis: i64) -> Times {
    Times { event: EventTime::from_millis(millis), processing: ProcessingTime::MIN }
}

fn clock_at(millis: i64) -> Times {
    Times { event: EventTime::MIN, processing: ProcessingTime::from_millis(millis) }
}

fn listed(list: &ListDescriptor<Parts, u64>, parts: &mut Parts, now: Times) -> Vec<u64> {
    list.view(parts, now).iter().copied().collect()
}

fn mapped(map: &MapDescriptor<Parts, u64, u64>, parts: &mut Parts, now: Times) -> Vec<(u64, u64)> {
    map.view(parts, now).iter().map(|(key, value)| (*key, *value)).collect()
}

/// Sweeps a state until all of it has been looked at; how many calls that took.
fn swept(kinds: &mut Kinds<Parts>, state: &mut Option<Parts>, now: Times, budget: usize) -> usize {
    let Some(value) = state else { return 1 };
    let mut calls = 1;
    while !kinds.sweep(value, now, &mut Work::new(budget)) {
        calls += 1;
    }
    state.take_if(|state| kinds.is_blank(state));
    calls
}

#[test]
fn without_a_time_to_live_kinds_keep_what_they_are_given() {
    let (mut parts, far) = (Parts::default(), at(i64::MAX));
    VALUE.view(&mut parts, at(0)).set(7);
    LIST.view(&mut parts, at(0)).push(1);
    LIST.view(&mut parts, at(0)).push(2);
    assert_eq!(MAP.view(&mut parts, at(0)).insert(1, 10), None);
    assert_eq!(MAP.view(&mut parts, at(0)).insert(1, 11), Some(10));
    for number in [2, 4] {
        SUM.view(&mut parts, at(0)).add(number);
        MEAN.view(&mut parts, at(0)).add(number);
    }
    assert_eq!(VALUE.view(&mut parts, far).get(), Some(&7));
    assert_eq!(listed(&LIST, &mut parts, far), [1, 2]);
    assert_eq!(mapped(&MAP, &mut parts, far), [(1, 11)]);
    assert_eq!(SUM.view(&mut parts, far).get(), Some(&6));
    assert_eq!(MEAN.view(&mut parts, far).get(), Some(3));

    VALUE.view(&mut parts, far).clear();
    LIST.view(&mut parts, far).clear();
    assert_eq!(MAP.view(&mut parts, far).remove(&1), Some(11));
    SUM.view(&mut parts, far).clear();
    MEAN.view(&mut parts, far).clear();
    assert_eq!(parts, Parts::default(), "an empty state is like the default one");
}

#[test]
fn rule_090_what_is_as_old_as_its_time_to_live_is_never_seen_again() {
    let (value, sum, mean) = (VALUE.ttl(ttl()), SUM.ttl(ttl()), MEAN.ttl(ttl()));
    let mut parts = Parts::default();
    value.view(&mut parts, at(0)).set(7);
    sum.view(&mut parts, at(0)).add(7);
    mean.view(&mut parts, at(0)).add(7);
    assert_eq!(value.view(&mut parts, at(9)).get(), Some(&7));
    assert_eq!(value.view(&mut parts, at(10)).get(), None);
    sum.view(&mut parts, at(9)).add(1);
    assert_eq!(sum.view(&mut parts, at(18)).get(), Some(&8), "what is added renews the whole");
    sum.view(&mut parts, at(19)).add(1);
    assert_eq!(sum.view(&mut parts, at(19)).get(), Some(&1), "and does not revive what is over");
    mean.view(&mut parts, at(10)).add(1);
    assert_eq!(mean.view(&mut parts, at(10)).get(), Some(1));
}

#[test]
fn rule_090_elements_and_entries_expire_one_by_one() {
    let (list, map) = (LIST.ttl(ttl()), MAP.ttl(ttl()));
    let mut parts = Parts::default();
    for (time, number) in [(0, 1), (5, 2)] {
        list.view(&mut parts, at(time)).push(number);
        map.view(&mut parts, at(time)).insert(number, number);
    }
    assert_eq!(listed(&list, &mut parts, at(9)), [1, 2]);
    assert_eq!(listed(&list, &mut parts, at(10)), [2]);
    assert_eq!(mapped(&map, &mut parts, at(10)), [(2, 2)]);
    assert_eq!(map.view(&mut parts, at(10)).get(&1), None);
    assert_eq!(map.view(&mut parts, at(10)).remove(&1), None, "nobody gets what is over");
    assert_eq!(map.view(&mut parts, at(15)).insert(2, 3), None);
    assert_eq!(listed(&list, &mut parts, at(15)), [0; 0]);
}

#[test]
fn rule_090_what_was_changed_while_nothing_expired_is_not_as_old_as_before_that() {
    let mut parts = Parts::default();
    SUM.ttl(ttl()).view(&mut parts, at(0)).add(7);
    // A changed program without the time to live, and then the first one again.
    SUM.view(&mut parts, at(5)).add(1);
    assert_eq!(SUM.ttl(ttl()).view(&mut parts, at(12)).get(), Some(&8));
    assert_eq!(SUM.ttl(ttl()).view(&mut parts, at(22)).get(), None, "it lives from that look on");
}

#[test]
fn rule_090_no_time_to_live_overflows() {
    let value = VALUE.ttl(Ttl::event_time(Duration::MAX));
    let mut parts = Parts::default();
    value.view(&mut parts, at(i64::MAX - 1)).set(7);
    assert_eq!(value.view(&mut parts, at(i64::MAX - 1)).get(), Some(&7));
}

#[test]
fn reads_renew_what_they_see_if_they_are_to() {
    let map = MAP.ttl(ttl().renewed_by_reads());
    let mut parts = Parts::default();
    map.view(&mut parts, at(0)).insert(1, 1);
    map.view(&mut parts, at(0)).insert(2, 2);
    assert_eq!(map.view(&mut parts, at(9)).get(&1), Some(&1));
    assert_eq!(mapped(&map, &mut parts, at(10)), [(1, 1)]);
    assert_eq!(mapped(&map, &mut parts, at(19)), [(1, 1)]);
    assert_eq!(mapped(&map, &mut parts, at(29)), []);
}

#[test]
fn the_clock_of_the_machine_and_event_time_do_not_mix() {
    let by_clock = VALUE.ttl(Ttl::processing_time(Duration::from_millis(10)));
    let mut parts = Parts::default();
    by_clock.view(&mut parts, clock_at(0)).set(7);
    assert_eq!(by_clock.view(&mut parts, clock_at(9)).get(), Some(&7));
    let mut expired = parts.clone();
    assert_eq!(by_clock.view(&mut expired, clock_at(10)).get(), None);
    let by_event = VALUE.ttl(ttl());
    assert_eq!(by_event.view(&mut parts, at(1_000)).get(), Some(&7), "its time is another's");
    assert_eq!(by_event.view(&mut parts, at(1_010)).get(), None, "it began with the look at it");
}

#[test]
fn time_begins_with_the_first_watermark() {
    let value = VALUE.ttl(ttl());
    let mut parts = Parts::default();
    value.view(&mut parts, Times::MIN).set(7);
    assert_eq!(value.view(&mut parts, at(1_000_000)).get(), Some(&7));
    assert_eq!(value.view(&mut parts, at(1_000_010)).get(), None);

    value.view(&mut parts, Times::MIN).set(7);
    let (mut kinds, mut state) = (Kinds::new().with(&value), Some(parts));
    swept(&mut kinds, &mut state, at(2_000_000), 5);
    swept(&mut kinds, &mut state, at(2_000_010), 5);
    assert_eq!(state, None, "a clean-up is a look as well");
}

#[test]
fn a_clean_up_looks_at_no_more_than_it_may_and_removes_all_that_is_over_in_the_end() {
    let (list, map) = (LIST.ttl(ttl()), MAP.ttl(ttl()));
    let mut parts = Parts::default();
    for number in 0..20 {
        list.view(&mut parts, at(0)).push(number);
        map.view(&mut parts, at(0)).insert(number, number);
    }
    map.view(&mut parts, at(5)).insert(13, 0);
    let mut kinds = Kinds::new().with(&list).with(&map);
    let mut state = Some(parts);
    assert_eq!(swept(&mut kinds, &mut state, at(5), 4), 6, "one element, twenty entries");
    assert_eq!(swept(&mut kinds, &mut state, at(10), 4), 10);
    let mut left = Parts::default();
    map.view(&mut left, at(5)).insert(13, 0);
    assert_eq!(state, Some(left));
    swept(&mut kinds, &mut state, at(15), 4);
    assert_eq!(state, None, "what holds nothing vanishes");
}

#[test]
fn what_can_be_seen_does_not_depend_on_how_far_the_clean_up_is() {
    let map = MAP.ttl(ttl());
    let mut parts = Parts::default();
    for number in 0..20 {
        map.view(&mut parts, at(0)).insert(number, number);
    }
    let mut kinds = Kinds::new().with(&map);
    kinds.sweep(&mut parts, at(5), &mut Work::new(7));
    let mut state = Some(parts);
    kinds.purge(&mut state, at(10));
    assert_eq!(state, None);
}

#[test]
fn a_state_with_anything_else_in_it_stays() {
    let value = VALUE.ttl(ttl());
    let mut parts = Parts::default();
    value.view(&mut parts, at(0)).set(7);
    SUM.view(&mut parts, at(0)).add(1);
    let (mut kinds, mut state) = (Kinds::new().with(&value), Some(parts));
    swept(&mut kinds, &mut state, at(10), 5);
    let mut left = Parts::default();
    SUM.view(&mut left, at(0)).add(1);
    assert_eq!(state, Some(left), "although the sum was not declared");
}

#[test]
fn a_name_that_is_given_twice_is_found() {
    assert_eq!(Kinds::new().with(&VALUE).with(&SUM).name_twice(), None);
    let other = ListDescriptor::new("value", |parts: &mut Parts| &mut parts.list);
    assert_eq!(Kinds::new().with(&VALUE).with(&SUM).with(&other).name_twice(), Some("value"));
}

#[test]
fn times_are_kept_by_both_encodings_and_may_be_missing_in_a_savepoint() {
    let map = MAP.ttl(ttl());
    let mut parts = Parts::default();
    map.view(&mut parts, at(3)).insert(1, 2);
    VALUE.view(&mut parts, at(3)).set(7);
    for format in [Format::Binary, Format::Portable] {
        assert_eq!(format.decode::<Parts>(&format.encode(&parts)), Ok(parts.clone()));
    }
    assert!(codec::encode(&parts).len() < 12, "a cell without a time costs a byte more");

    #[derive(Serialize)]
    struct Bare {
        value: u64,
    }
    let bare = Format::Portable.encode(&Some(Bare { value: 7 }));
    let mut parts = Parts { value: Format::Portable.decode(&bare).unwrap(), ..Parts::default() };
    assert_eq!(VALUE.view(&mut parts, at(0)).get(), Some(&7));
}
