//! The process of session windows: a key's records less than a gap apart share a window.

use std::marker::PhantomData;
use std::time::Duration;

use crate::element::Record;
use crate::operator::Emit;
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::operator::window::fixed::{fire, settle};
use crate::operator::window::{Lateness, Panes, Window, Windowed};
use crate::state::key_group::Key;
use crate::time::{EventTime, whole_millis};

/// Brings the records of each key's sessions to one value each.
///
/// A record alone is a session from its time to `gap` later. Sessions that share a millisecond are
/// one: so whether two records are of one session does not depend on when the watermark comes.
pub struct Sessions<K, T, V, TimeOf, Fold, Merge> {
    gap_ms: i64,
    lateness: Lateness,
    time_of: TimeOf,
    init: V,
    fold: Fold,
    merge: Merge,
    types: PhantomData<fn(K, T)>,
}

impl<K, T, V, TimeOf, Fold, Merge> Sessions<K, T, V, TimeOf, Fold, Merge> {
    /// A session's value begins as `init` and takes each record in by `fold`; where a record joins
    /// two sessions, `merge` adds the value of the later one to that of the earlier one. `time_of`
    /// reads a record's event time.
    pub fn new(
        gap: Duration,
        lateness: Duration,
        time_of: TimeOf,
        init: V,
        fold: Fold,
        merge: Merge,
    ) -> Self {
        let (gap_ms, lateness) = (whole_millis(gap), Lateness::new(lateness));
        Self { gap_ms, lateness, time_of, init, fold, merge, types: PhantomData }
    }
}

impl<K, T, V: Clone, TimeOf: Clone, Fold: Clone, Merge: Clone> Clone
    for Sessions<K, T, V, TimeOf, Fold, Merge>
{
    fn clone(&self) -> Self {
        Self {
            gap_ms: self.gap_ms,
            lateness: self.lateness,
            time_of: self.time_of.clone(),
            init: self.init.clone(),
            fold: self.fold.clone(),
            merge: self.merge.clone(),
            types: PhantomData,
        }
    }
}

impl<K, T, V, TimeOf, Fold, Merge> KeyedProcess for Sessions<K, T, V, TimeOf, Fold, Merge>
where
    K: Key,
    T: Record,
    V: Record,
    TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
    Fold: FnMut(&mut V, &T) + Clone + Send + 'static,
    Merge: FnMut(&mut V, V) + Clone + Send + 'static,
{
    type Key = K;
    type In = T;
    type State = Panes<V>;
    type Out = Windowed<K, V, T>;

    fn process(
        &mut self,
        record: T,
        context: &mut KeyedContext<'_, K, Panes<V>>,
        out: &mut impl Emit<Windowed<K, V, T>>,
    ) {
        let start = (self.time_of)(&record);
        let mut session = Window { start, end: start.saturating_add(self.gap_ms) };
        let mut panes = context.state().take().unwrap_or_default();
        let mut merged: Option<V> = None;
        for (window, value) in panes.take_touched(session) {
            session.start = session.start.min(window.start);
            session.end = session.end.max(window.end);
            self.forget(window, &panes, context);
            match &mut merged {
                Some(merged) => (self.merge)(merged, value),
                None => merged = Some(value),
            }
        }
        let watermark = context.watermark();
        // Only a record that joins no session can be late: a session that is there is not gone.
        if self.lateness.is_gone(session, watermark) {
            out.emit(Windowed::Late(record));
        } else {
            let value = panes.entry(session, || merged.unwrap_or_else(|| self.init.clone()));
            (self.fold)(value, &record);
            settle(self.lateness, session, value, context, out);
        }
        context.state().put((!panes.is_empty()).then_some(panes));
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, K, Panes<V>>,
        out: &mut impl Emit<Windowed<K, V, T>>,
    ) {
        fire(self.lateness, time, context, out);
    }
}

impl<K: Key, T, V: Record, TimeOf, Fold, Merge> Sessions<K, T, V, TimeOf, Fold, Merge> {
    /// Takes back the timers of a session that has become part of another, as far as no session
    /// that is left needs them.
    fn forget(&self, window: Window, left: &Panes<V>, context: &mut KeyedContext<'_, K, Panes<V>>) {
        for time in [window.last(), self.lateness.drop_at(window)] {
            if !self.lateness.is_awaited(left, time) {
                context.delete_timer(time);
            }
        }
    }
}
