//! The interval join: records of one key whose event times are near enough to each other.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::operator::join::Either;
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::operator::{Emit, RowsRestOn};
use crate::state::key_group::Key;
use crate::time::EventTime;

/// By how much the right record of a pair is younger than the left one, in milliseconds; negative
/// if it is older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// At least.
    pub from_ms: i64,
    /// At most.
    pub to_ms: i64,
}

/// Pairs each left record with each right record of the same key in the interval around it. A pair
/// goes out when the second of the two comes; a record is kept until the watermark says that no
/// partner follows. One that is late still meets the partners that are kept.
pub struct IntervalJoin<K, L, R, LeftTime, RightTime> {
    interval: Interval,
    left_time: LeftTime,
    right_time: RightTime,
    types: PhantomData<fn(K, L, R)>,
}

impl<K, L, R, LeftTime, RightTime> IntervalJoin<K, L, R, LeftTime, RightTime> {
    /// `left_time` and `right_time` read the records' event times.
    pub const fn new(interval: Interval, left_time: LeftTime, right_time: RightTime) -> Self {
        Self { interval, left_time, right_time, types: PhantomData }
    }
}

impl<K, L, R, A: Clone, B: Clone> Clone for IntervalJoin<K, L, R, A, B> {
    fn clone(&self) -> Self {
        Self::new(self.interval, self.left_time.clone(), self.right_time.clone())
    }
}

/// The records of one key that partners may still come for, by event time, each in the order of
/// arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "L: Record, R: Record")]
pub struct Partners<L, R> {
    left: BTreeMap<EventTime, Vec<L>>,
    right: BTreeMap<EventTime, Vec<R>>,
}

impl<L, R> Default for Partners<L, R> {
    fn default() -> Self {
        Self { left: BTreeMap::new(), right: BTreeMap::new() }
    }
}

impl<K, L, R, LeftTime, RightTime> KeyedProcess for IntervalJoin<K, L, R, LeftTime, RightTime>
where
    K: Key,
    L: Record,
    R: Record,
    LeftTime: Fn(&L) -> EventTime + Clone + Send + 'static,
    RightTime: Fn(&R) -> EventTime + Clone + Send + 'static,
{
    type Key = K;
    type In = Either<L, R>;
    type State = Partners<L, R>;
    type Out = (L, R);

    fn process(
        &mut self,
        record: Either<L, R>,
        context: &mut KeyedContext<'_, K, Partners<L, R>>,
        out: &mut impl Emit<(L, R)>,
    ) {
        let Interval { from_ms, to_ms } = self.interval;
        let watermark = context.watermark();
        let mut kept = context.state().take().unwrap_or_default();
        let needed_until = match record {
            Either::Left(left) => {
                let time = (self.left_time)(&left);
                let first = time.saturating_add(from_ms);
                let last = time.saturating_add(to_ms);
                for right in within(&kept.right, first, last) {
                    out.emit((left.clone(), right.clone()));
                }
                if last > watermark {
                    kept.left.entry(time).or_default().push(left);
                }
                last
            }
            Either::Right(right) => {
                let time = (self.right_time)(&right);
                let first = time.saturating_add(-to_ms);
                let last = time.saturating_add(-from_ms);
                for left in within(&kept.left, first, last) {
                    out.emit((left.clone(), right.clone()));
                }
                if last > watermark {
                    kept.right.entry(time).or_default().push(right);
                }
                last
            }
        };
        if needed_until > watermark {
            context.register_timer(needed_until);
        }
        keep(kept, context);
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, K, Partners<L, R>>,
        _out: &mut impl Emit<(L, R)>,
    ) {
        let Interval { from_ms, to_ms } = self.interval;
        let Some(mut kept) = context.state().take() else { return };
        drop_while(&mut kept.left, |left| left.saturating_add(to_ms) <= time);
        drop_while(&mut kept.right, |right| right.saturating_add(-from_ms) <= time);
        keep(kept, context);
    }

    /// A pair is one whatever else is kept.
    fn rows_rest_on(&self) -> RowsRestOn {
        RowsRestOn::Nothing
    }
}

/// The records from `first` to `last`, both included; none if that is no span.
fn within<T>(
    kept: &BTreeMap<EventTime, Vec<T>>,
    first: EventTime,
    last: EventTime,
) -> impl Iterator<Item = &T> {
    let span = (first <= last).then(|| kept.range(first..=last));
    span.into_iter().flatten().flat_map(|(_, records)| records)
}

fn drop_while<T>(kept: &mut BTreeMap<EventTime, Vec<T>>, is_done: impl Fn(EventTime) -> bool) {
    while let Some(first) = kept.first_entry().filter(|first| is_done(*first.key())) {
        first.remove();
    }
}

fn keep<K: Key, L, R>(kept: Partners<L, R>, context: &mut KeyedContext<'_, K, Partners<L, R>>) {
    let is_empty = kept.left.is_empty() && kept.right.is_empty();
    context.state().put((!is_empty).then_some(kept));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Operator;
    use crate::operator::join::EitherKey;
    use crate::operator::keyed::{ByValue, Keyed};

    type Join = IntervalJoin<(), i64, i64, fn(&i64) -> EventTime, fn(&i64) -> EventTime>;

    fn time_of(time: &i64) -> EventTime {
        EventTime::from_millis(*time)
    }

    fn join(from_ms: i64, to_ms: i64) -> impl Operator<In = Either<i64, i64>, Out = (i64, i64)> {
        let join: Join = IntervalJoin::new(Interval { from_ms, to_ms }, time_of, time_of);
        let key = EitherKey::new(ByValue(|_: &i64| ()), ByValue(|_: &i64| ()));
        Keyed::new(join, key)
    }

    /// The pairs that come of left and right records in this order of arrival.
    fn pairs(from_ms: i64, to_ms: i64, records: &[Either<i64, i64>]) -> Vec<(i64, i64)> {
        let (mut join, mut out) = (join(from_ms, to_ms), Vec::new());
        records.iter().for_each(|record| join.process(*record, &mut out));
        out.sort_unstable();
        out
    }

    #[test]
    fn pairs_are_those_in_the_interval_whichever_comes_first() {
        use Either::{Left, Right};
        let mut records = vec![Left(10), Right(7), Right(8), Right(12), Right(13), Left(11)];
        let expected = [(10, 8), (10, 12), (11, 12), (11, 13)];
        for _ in 0..records.len() {
            records.rotate_left(1);
            assert_eq!(pairs(-2, 2, &records), expected, "{records:?}");
        }
        assert_eq!(pairs(3, 3, &records), [(10, 13)]);
        assert_eq!(pairs(-3, -3, &records), [(10, 7), (11, 8)]);
    }

    #[test]
    fn a_record_is_kept_as_long_as_partners_can_come_and_no_longer() {
        use Either::{Left, Right};
        for (from_ms, to_ms) in [(-2, 2), (3, 5), (-5, -3), (0, 0)] {
            let (mut join, mut out) = (join(from_ms, to_ms), Vec::new());
            join.process(Left(10), &mut out);
            join.process(Right(20), &mut out);
            let until = (10 + to_ms).max(20 - from_ms);
            join.on_watermark(EventTime::from_millis(until - 1), &mut out);
            assert_eq!(join.cells().len(), 1, "from {from_ms} to {to_ms}");
            join.on_watermark(EventTime::from_millis(until), &mut out);
            assert_eq!(join.cells().len(), 0, "from {from_ms} to {to_ms}");
            join.process(Left(0), &mut out);
            assert_eq!(join.cells().len(), 0, "what no partner can come for is not kept");
            assert_eq!(out, []);
        }
    }
}
