//! The part of the builder for what goes by event time: windows, joins, patterns.
#![expect(
    clippy::type_complexity,
    reason = "a chain's type names its operators: they are one loop"
)]

use std::time::Duration;

use crate::element::Record;
use crate::job::GraphError;
use crate::job::builder::{KeyedStream, Stream};
use crate::operator::chain::{Named, Pass, Segment};
use crate::operator::join::{BroadcastJoin, Either, Interval, IntervalJoin};
use crate::operator::keyed::{KeySelector, Keyed};
use crate::operator::pattern::{Detect, Pattern};
use crate::operator::window::{FixedWindows, Sessions, WindowRow, Windowed, Windows};
use crate::state::key_group::Key;
use crate::time::EventTime;

/// A keyed stream cut into windows.
#[must_use = "windows must be aggregated"]
pub struct WindowStream<T: Record, K, TimeOf> {
    keyed: KeyedStream<T, K>,
    uid: String,
    windows: Windows,
    lateness: Duration,
    time_of: TimeOf,
}

/// A keyed stream cut into sessions.
#[must_use = "sessions must be aggregated"]
pub struct SessionStream<T: Record, K, TimeOf> {
    keyed: KeyedStream<T, K>,
    uid: String,
    gap: Duration,
    lateness: Duration,
    time_of: TimeOf,
}

impl<T: Record, K: KeySelector<T>> KeyedStream<T, K> {
    /// Cuts each key's records into windows by their event time, which `time_of` reads.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cofferdam::config::JobConfig;
    /// use cofferdam::connector::memory::{Collect, VecSource};
    /// use cofferdam::job::JobBuilder;
    /// use cofferdam::operator::window::Windows;
    /// use cofferdam::time::EventTime;
    ///
    /// let time_of = |visit: &(String, i64)| EventTime::from_millis(visit.1);
    /// let visits = VecSource::new(vec![("a".to_owned(), 3), ("a".to_owned(), 12)]);
    /// let builder = JobBuilder::new("visits", 1);
    /// builder
    ///     .source_with_event_time("visits", visits, time_of, Duration::ZERO)
    ///     .key_by(|visit| visit.0.clone())
    ///     .window("each-10-ms", Windows::tumbling(Duration::from_millis(10)), time_of)
    ///     .aggregate(0, |count: &mut u64, _| *count += 1)
    ///     .map("line", |row| format!("{} {} {}", row.key, row.window.start, row.value))
    ///     .sink("out", Collect::default());
    /// builder.build(JobConfig::default())?;
    /// # Ok::<(), cofferdam::job::GraphError>(())
    /// ```
    pub fn window<TimeOf>(
        self,
        uid: &str,
        windows: Windows,
        time_of: TimeOf,
    ) -> WindowStream<T, K, TimeOf>
    where
        TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
    {
        if !windows.are_possible() {
            let reason = "windows are at least a millisecond long and apart";
            self.refuse(GraphError::Timing { uid: uid.to_owned(), reason });
        }
        let uid = uid.to_owned();
        WindowStream { keyed: self, uid, windows, lateness: Duration::ZERO, time_of }
    }

    /// Cuts each key's records into sessions: records less than `gap` apart share one.
    pub fn sessions<TimeOf>(
        self,
        uid: &str,
        gap: Duration,
        time_of: TimeOf,
    ) -> SessionStream<T, K, TimeOf>
    where
        TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
    {
        if gap < Duration::from_millis(1) {
            let reason = "the gap of sessions is at least a millisecond";
            self.refuse(GraphError::Timing { uid: uid.to_owned(), reason });
        }
        let uid = uid.to_owned();
        SessionStream { keyed: self, uid, gap, lateness: Duration::ZERO, time_of }
    }

    /// Looks for `pattern` in each key's records. `place_of` reads a record's event time and its
    /// position among those of the same time and key. What is found goes on, whether it is complete
    /// or its time ran out.
    pub fn pattern<Place>(
        self,
        uid: &str,
        pattern: Pattern<T>,
        place_of: Place,
    ) -> Stream<Named<Keyed<Detect<K::Key, T, Place>, K>>>
    where
        Place: Fn(&T) -> (EventTime, u64) + Clone + Send + 'static,
    {
        if let Some(reason) = pattern.fault() {
            self.refuse(GraphError::Timing { uid: uid.to_owned(), reason });
        }
        self.process(uid, Detect::new(pattern, place_of))
    }
}

impl<L: Record, R: Record, K: KeySelector<Either<L, R>>> KeyedStream<Either<L, R>, K> {
    /// Pairs each left record with each right record of the same key whose event time lies in the
    /// interval around its own.
    pub fn interval_join<LeftTime, RightTime>(
        self,
        uid: &str,
        interval: Interval,
        left_time: LeftTime,
        right_time: RightTime,
    ) -> Stream<Named<Keyed<IntervalJoin<K::Key, L, R, LeftTime, RightTime>, K>>>
    where
        LeftTime: Fn(&L) -> EventTime + Clone + Send + 'static,
        RightTime: Fn(&R) -> EventTime + Clone + Send + 'static,
    {
        if interval.from_ms > interval.to_ms {
            let reason = "the interval of a join ends before it begins";
            self.refuse(GraphError::Timing { uid: uid.to_owned(), reason });
        }
        self.process(uid, IntervalJoin::new(interval, left_time, right_time))
    }
}

impl<L: Record, S: Record + Ord> Stream<Pass<Either<L, S>>> {
    /// Gives each left record the right one of its key that counts at its event time; behind
    /// [`Connected::broadcast_right`](crate::job::Connected::broadcast_right). `of_large` reads key
    /// and event time of a left record, `of_small` those of a right one.
    pub fn broadcast_join<K: Key, OfLarge, OfSmall>(
        self,
        uid: &str,
        of_large: OfLarge,
        of_small: OfSmall,
    ) -> Stream<impl Segment<Out = (L, Option<S>)>>
    where
        OfLarge: Fn(&L) -> (K, EventTime) + Clone + Send + 'static,
        OfSmall: Fn(&S) -> (K, EventTime) + Clone + Send + 'static,
    {
        self.operator(uid, BroadcastJoin::new(of_large, of_small))
    }
}

impl<T: Record, K: KeySelector<T>, TimeOf> WindowStream<T, K, TimeOf>
where
    TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
{
    /// Takes records in that come so much later than the windows are complete; each of them sends
    /// the row of its window again, with the value so far.
    pub fn allowed_lateness(self, lateness: Duration) -> Self {
        Self { lateness, ..self }
    }

    /// A value for each window that has records, from `init`; takes each record in by `fold`. Late
    /// records are left out.
    pub fn aggregate<V: Record, F: FnMut(&mut V, &T) + Clone + Send + 'static>(
        self,
        init: V,
        fold: F,
    ) -> Stream<impl Segment<Out = WindowRow<K::Key, V>>> {
        let rows = rows_of(&self.uid);
        self.told_apart(init, fold).filter_map(&rows, Windowed::row)
    }

    /// As [`WindowStream::aggregate`], for a `fold` that changes nothing when it takes the same
    /// record in again, as a maximum does.
    pub fn aggregate_idempotent<V: Record, F: FnMut(&mut V, &T) + Clone + Send + 'static>(
        self,
        init: V,
        fold: F,
    ) -> Stream<impl Segment<Out = WindowRow<K::Key, V>>> {
        let Self { keyed, uid, windows, lateness, time_of } = self;
        let windows = FixedWindows::new(windows, lateness, time_of, init, fold).idempotent();
        keyed.process(&uid, windows).filter_map(&rows_of(&uid), Windowed::row)
    }

    /// As [`WindowStream::aggregate`], with the late records as a stream of their own.
    pub fn aggregate_keeping_late<V: Record, F: FnMut(&mut V, &T) + Clone + Send + 'static>(
        self,
        init: V,
        fold: F,
    ) -> (Stream<impl Segment<Out = WindowRow<K::Key, V>>>, Stream<impl Segment<Out = T>>) {
        with_late(self.uid.clone(), self.told_apart(init, fold))
    }

    fn told_apart<V: Record, F: FnMut(&mut V, &T) + Clone + Send + 'static>(
        self,
        init: V,
        fold: F,
    ) -> Stream<impl Segment<Out = Windowed<K::Key, V, T>>> {
        let Self { keyed, uid, windows, lateness, time_of } = self;
        keyed.process(&uid, FixedWindows::new(windows, lateness, time_of, init, fold))
    }
}

impl<T: Record, K: KeySelector<T>, TimeOf> SessionStream<T, K, TimeOf>
where
    TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
{
    /// As [`WindowStream::allowed_lateness`].
    pub fn allowed_lateness(self, lateness: Duration) -> Self {
        Self { lateness, ..self }
    }

    /// A value for each session, from `init`; takes each record in by `fold`. Where a record joins
    /// two sessions, `merge` adds the value of the later one to that of the earlier one. Late
    /// records are left out.
    pub fn aggregate<V, F, M>(
        self,
        init: V,
        fold: F,
        merge: M,
    ) -> Stream<impl Segment<Out = WindowRow<K::Key, V>>>
    where
        V: Record,
        F: FnMut(&mut V, &T) + Clone + Send + 'static,
        M: FnMut(&mut V, V) + Clone + Send + 'static,
    {
        let rows = rows_of(&self.uid);
        self.told_apart(init, fold, merge).filter_map(&rows, Windowed::row)
    }

    /// As [`SessionStream::aggregate`], with the late records as a stream of their own.
    pub fn aggregate_keeping_late<V, F, M>(
        self,
        init: V,
        fold: F,
        merge: M,
    ) -> (Stream<impl Segment<Out = WindowRow<K::Key, V>>>, Stream<impl Segment<Out = T>>)
    where
        V: Record,
        F: FnMut(&mut V, &T) + Clone + Send + 'static,
        M: FnMut(&mut V, V) + Clone + Send + 'static,
    {
        with_late(self.uid.clone(), self.told_apart(init, fold, merge))
    }

    fn told_apart<V, F, M>(
        self,
        init: V,
        fold: F,
        merge: M,
    ) -> Stream<impl Segment<Out = Windowed<K::Key, V, T>>>
    where
        V: Record,
        F: FnMut(&mut V, &T) + Clone + Send + 'static,
        M: FnMut(&mut V, V) + Clone + Send + 'static,
    {
        let Self { keyed, uid, gap, lateness, time_of } = self;
        keyed.process(&uid, Sessions::new(gap, lateness, time_of, init, fold, merge))
    }
}

fn rows_of(uid: &str) -> String {
    format!("{uid}-rows")
}

fn with_late<K: Key, V: Record, T: Record>(
    uid: String,
    windowed: Stream<impl Segment<Out = Windowed<K, V, T>>>,
) -> (Stream<impl Segment<Out = WindowRow<K, V>>>, Stream<impl Segment<Out = T>>) {
    let (rows, late) = windowed.fork();
    let rows = rows.filter_map(&rows_of(&uid), Windowed::row);
    (rows, late.filter_map(&format!("{uid}-late"), Windowed::late))
}
