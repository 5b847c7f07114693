//! Windows: spans of event time over which the records of a key are brought to one value. They are
//! keyed state and timers and nothing else: a snapshot, a restore or a rescale treats them as such.
//!
//! A window's row goes out when the watermark says that no record of it follows; then its state is
//! dropped, or with allowed lateness so much later. A record that comes when the state of all its
//! windows is dropped is late: it is left out, or handed to a stream of its own.

mod fixed;
mod session;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::time::{EventTime, whole_millis};

pub use fixed::FixedWindows;
pub use session::Sessions;

/// A span of event time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Its first millisecond.
    pub start: EventTime,
    /// The first millisecond behind it.
    pub end: EventTime,
}

impl Window {
    /// Its last millisecond: it is complete when the watermark has come here.
    pub const fn last(self) -> EventTime {
        self.end.saturating_add(-1)
    }
}

/// Windows that lie fixed on the axis of time, whatever the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    size_ms: i64,
    slide_ms: i64,
}

impl Windows {
    /// One behind the other: `[0, size)`, `[size, 2 * size)` and so on. Durations are counted in
    /// whole milliseconds, here and below.
    pub fn tumbling(size: Duration) -> Self {
        Self::sliding(size, size)
    }

    /// A new one every `slide`, each `size` long: a record lies in several if they overlap, and in
    /// none if it falls between two.
    pub fn sliding(size: Duration, slide: Duration) -> Self {
        Self { size_ms: whole_millis(size), slide_ms: whole_millis(slide) }
    }

    /// Whether they have any length and do not all begin at the same time.
    pub(crate) const fn are_possible(self) -> bool {
        self.size_ms > 0 && self.slide_ms > 0
    }

    /// Those that `time` lies in, the latest first.
    pub fn of(self, time: EventTime) -> impl Iterator<Item = Window> {
        let last_start = time.saturating_add(-time.as_millis().rem_euclid(self.slide_ms));
        let starts = std::iter::successors(Some(last_start), move |start| {
            let earlier = start.saturating_add(-self.slide_ms);
            (earlier < *start).then_some(earlier)
        });
        let windows =
            starts.map(move |start| Window { start, end: start.saturating_add(self.size_ms) });
        windows.take_while(move |window| window.end > time)
    }
}

/// What came of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowRow<K, V> {
    /// The key.
    pub key: K,
    /// The window.
    pub window: Window,
    /// The value. If records came within the allowed lateness, the same window has a row for each
    /// of them, with the value so far.
    pub value: V,
}

/// What a window operator emits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Windowed<K, V, T> {
    /// What came of a window.
    Row(WindowRow<K, V>),
    /// A record that came too late for all its windows.
    Late(T),
}

impl<K, V, T> Windowed<K, V, T> {
    /// What came of a window, if that is what it is.
    pub fn row(self) -> Option<WindowRow<K, V>> {
        if let Self::Row(row) = self { Some(row) } else { None }
    }

    /// The late record, if it is one.
    pub fn late(self) -> Option<T> {
        if let Self::Late(record) = self { Some(record) } else { None }
    }
}

/// The windows of one key that have records, each with its value so far, by end and start: they are
/// fired and dropped in that order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
#[serde(bound = "V: Record")]
pub struct Panes<V>(std::collections::BTreeMap<(EventTime, EventTime), V>);

impl<V> Default for Panes<V> {
    fn default() -> Self {
        Self(std::collections::BTreeMap::new())
    }
}

impl<V: Record> Panes<V> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of `window`, which begins as `init`.
    fn entry(&mut self, window: Window, init: impl FnOnce() -> V) -> &mut V {
        self.0.entry((window.end, window.start)).or_insert_with(init)
    }

    /// Those whose last millisecond is `time`.
    fn ending_with(&self, time: EventTime) -> impl Iterator<Item = (Window, &V)> {
        let end = time.saturating_add(1);
        let panes = self.0.range((end, EventTime::MIN)..=(end, EventTime::MAX));
        panes.map(|(&(end, start), value)| (Window { start, end }, value))
    }

    /// Drops those that no record is taken into any more.
    fn drop_gone(&mut self, lateness: Lateness, watermark: EventTime) {
        while let Some(first) = self.0.first_entry() {
            let (end, start) = *first.key();
            if !lateness.is_gone(Window { start, end }, watermark) {
                break;
            }
            first.remove();
        }
    }

    /// Takes out those that share a millisecond with `window`, which no two of them do, the
    /// earliest first.
    fn take_touched(&mut self, window: Window) -> Vec<(Window, V)> {
        let behind = (window.start.saturating_add(1), EventTime::MIN);
        let touched = self.0.range(behind..).take_while(|((_, start), _)| *start < window.end);
        let keys: Vec<_> = touched.map(|(key, _)| *key).collect();
        let take = |key| {
            let value = self.0.remove(&key).expect("its key was just found");
            (Window { start: key.1, end: key.0 }, value)
        };
        keys.into_iter().map(take).collect()
    }
}

/// For how long a window takes records in that come after it is complete, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness(i64);

impl Lateness {
    fn new(lateness: Duration) -> Self {
        Self(whole_millis(lateness))
    }

    /// Whether nothing is taken in by a window that is complete.
    const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// The watermark at which the state of `window` is dropped.
    fn drop_at(self, window: Window) -> EventTime {
        window.last().saturating_add(self.0)
    }

    fn is_gone(self, window: Window, watermark: EventTime) -> bool {
        self.drop_at(window) <= watermark
    }

    /// Whether any of `panes` wants to be woken at `time`.
    fn is_awaited<V: Record>(self, panes: &Panes<V>, time: EventTime) -> bool {
        let dropped = time.saturating_add(-self.0);
        panes.ending_with(time).next().is_some() || panes.ending_with(dropped).next().is_some()
    }
}

#[cfg(test)]
mod tests;
