//! The process of tumbling and sliding windows.

use std::marker::PhantomData;
use std::time::Duration;

use crate::element::Record;
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::operator::window::{Lateness, Panes, Window, WindowRow, Windowed, Windows};
use crate::operator::{Emit, RowsRestOn};
use crate::state::key_group::Key;
use crate::time::EventTime;

/// Brings the records of each key and window to one value.
pub struct FixedWindows<K, T, V, TimeOf, Fold> {
    windows: Windows,
    lateness: Lateness,
    time_of: TimeOf,
    init: V,
    fold: Fold,
    is_idempotent: bool,
    types: PhantomData<fn(K, T)>,
}

impl<K, T, V, TimeOf, Fold> FixedWindows<K, T, V, TimeOf, Fold> {
    /// A window's value begins as `init` and takes each record in by `fold`; `time_of` reads a
    /// record's event time.
    pub fn new(windows: Windows, lateness: Duration, time_of: TimeOf, init: V, fold: Fold) -> Self {
        let lateness = Lateness::new(lateness);
        let is_idempotent = false;
        Self { windows, lateness, time_of, init, fold, is_idempotent, types: PhantomData }
    }

    /// Declares that `fold` changes nothing when it takes the same record in again. Late records
    /// are left out then: one that comes again is late if its window is gone.
    pub fn idempotent(self) -> Self {
        Self { is_idempotent: true, ..self }
    }
}

impl<K, T, V: Clone, TimeOf: Clone, Fold: Clone> Clone for FixedWindows<K, T, V, TimeOf, Fold> {
    fn clone(&self) -> Self {
        Self {
            windows: self.windows,
            lateness: self.lateness,
            time_of: self.time_of.clone(),
            init: self.init.clone(),
            fold: self.fold.clone(),
            is_idempotent: self.is_idempotent,
            types: PhantomData,
        }
    }
}

impl<K, T, V, TimeOf, Fold> KeyedProcess for FixedWindows<K, T, V, TimeOf, Fold>
where
    K: Key,
    T: Record,
    V: Record,
    TimeOf: Fn(&T) -> EventTime + Clone + Send + 'static,
    Fold: FnMut(&mut V, &T) + Clone + Send + 'static,
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
        let time = (self.time_of)(&record);
        let watermark = context.watermark();
        let mut is_in_any = false;
        let mut is_missed = false;
        let mut panes = context.state().take().unwrap_or_default();
        for window in self.windows.of(time) {
            if self.lateness.is_gone(window, watermark) {
                is_missed = true;
                continue;
            }
            is_in_any = true;
            let value = panes.entry(window, || self.init.clone());
            (self.fold)(value, &record);
            settle(self.lateness, window, value, context, out);
        }
        context.state().put((!panes.is_empty()).then_some(panes));
        if is_missed && !is_in_any && !self.is_idempotent {
            out.emit(Windowed::Late(record));
        }
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, K, Panes<V>>,
        out: &mut impl Emit<Windowed<K, V, T>>,
    ) {
        fire(self.lateness, time, context, out);
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// Within the allowed lateness a record that comes again sends the row of its window again.
    fn absorbs_repeats(&self) -> bool {
        self.is_idempotent && self.lateness.is_none()
    }

    fn rows_rest_on(&self) -> RowsRestOn {
        if self.is_idempotent { RowsRestOn::Records } else { RowsRestOn::Counts }
    }
}

/// A window has taken a record in: its row goes out when it is complete, or now if it is.
pub(super) fn settle<K: Key, V: Record, T>(
    lateness: Lateness,
    window: Window,
    value: &V,
    context: &mut KeyedContext<'_, K, Panes<V>>,
    out: &mut impl Emit<Windowed<K, V, T>>,
) {
    if window.last() <= context.watermark() {
        let (key, value) = (context.key().clone(), value.clone());
        out.emit(Windowed::Row(WindowRow { key, window, value }));
    } else {
        context.register_timer(window.last());
    }
    context.register_timer(lateness.drop_at(window));
}

/// Sends the rows of the windows that are complete at `time`, and drops those that are gone then.
pub(super) fn fire<K: Key, V: Record, T>(
    lateness: Lateness,
    time: EventTime,
    context: &mut KeyedContext<'_, K, Panes<V>>,
    out: &mut impl Emit<Windowed<K, V, T>>,
) {
    let key = context.key().clone();
    let Some(panes) = context.state().get_mut() else { return };
    for (window, value) in panes.ending_with(time) {
        let (key, value) = (key.clone(), value.clone());
        out.emit(Windowed::Row(WindowRow { key, window, value }));
    }
    panes.drop_gone(lateness, time);
    if panes.is_empty() {
        context.state().take();
    }
}
