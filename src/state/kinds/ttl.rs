//! How long what stands in a state lives: the time to live, and the time that an entry has.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::{EventTime, ProcessingTime, whole_millis};

/// How long an entry lives after it was written. What is expired is never seen again, whether or
/// not it has been removed yet (rule 90).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl {
    clock: Clock,
    millis: i64,
    is_renewed_by_reads: bool,
}

/// What a time to live goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Event,
    Processing,
}

impl Ttl {
    /// By event time: that is the watermark of the operator while it handles a record, and the time
    /// of the timer while it handles a timer, unless the watermark had been above that before. Time
    /// begins with the first watermark: what is written before that lives on until it is looked at
    /// after that.
    pub fn event_time(ttl: Duration) -> Self {
        Self { clock: Clock::Event, millis: whole_millis(ttl), is_renewed_by_reads: false }
    }

    /// By the clock of the machine. An operator with such a state counts as one that varies.
    pub fn processing_time(ttl: Duration) -> Self {
        Self { clock: Clock::Processing, millis: whole_millis(ttl), is_renewed_by_reads: false }
    }

    /// A read counts as a write: what is in use stays.
    pub const fn renewed_by_reads(self) -> Self {
        Self { is_renewed_by_reads: true, ..self }
    }

    pub(crate) const fn is_by_clock(self) -> bool {
        matches!(self.clock, Clock::Processing)
    }

    fn stamp(self, now: Times) -> Touched {
        match self.clock {
            Clock::Event if now.event > EventTime::MIN => Touched::Event(now.event),
            Clock::Processing if now.processing > ProcessingTime::MIN => {
                Touched::Processing(now.processing)
            }
            Clock::Event | Clock::Processing => Touched::Never,
        }
    }

    /// Whether an entry is over, if it has a time by this clock.
    fn is_over(self, touched: Touched, now: Times) -> Option<bool> {
        match (self.clock, touched) {
            (Clock::Event, Touched::Event(at)) => Some(at.saturating_add(self.millis) <= now.event),
            (Clock::Processing, Touched::Processing(at)) => {
                Some(at.saturating_add(self.millis) <= now.processing)
            }
            (Clock::Event, Touched::Never | Touched::Processing(_))
            | (Clock::Processing, Touched::Never | Touched::Event(_)) => None,
        }
    }
}

/// What the two clocks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How far event time is.
    pub event: EventTime,
    /// What the clock of the machine has said last.
    pub processing: ProcessingTime,
}

impl Times {
    /// No time has been told yet.
    pub const MIN: Self = Self { event: EventTime::MIN, processing: ProcessingTime::MIN };
}

/// When an entry was written, or read if that counts, by the clock of its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Touched {
    /// Its state had no time to live, or no time had been told.
    #[default]
    Never,
    Event(EventTime),
    Processing(ProcessingTime),
}

/// A value in a cell, with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry<T> {
    pub(super) value: T,
    #[serde(default)]
    touched: Touched,
}

/// By what a view judges entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub(super) ttl: Option<Ttl>,
    pub(super) now: Times,
}

impl Lifetime {
    /// A value that is written now.
    #[inline]
    pub(super) fn begin<T>(self, value: T) -> Entry<T> {
        Entry { value, touched: self.stamp() }
    }

    /// A value that is changed now.
    #[inline]
    pub(super) fn renew<T>(self, entry: &mut Entry<T>) {
        entry.touched = self.stamp();
    }

    /// When what is written now was written; what an earlier program has noted says nothing of it.
    #[inline]
    fn stamp(self) -> Touched {
        self.ttl.map_or(Touched::Never, |ttl| ttl.stamp(self.now))
    }

    /// Whether the entry is to be seen.
    #[inline]
    pub(super) fn keeps<T>(self, entry: &Entry<T>) -> bool {
        self.ttl.is_none_or(|ttl| ttl.is_over(entry.touched, self.now) != Some(true))
    }

    /// The value, if it is to be seen, for somebody who reads it.
    #[inline]
    pub(super) fn read<T>(self, entry: &mut Entry<T>) -> Option<&T> {
        self.keeps(entry).then(|| {
            if self.ttl.is_some_and(|ttl| ttl.is_renewed_by_reads) {
                self.renew(entry);
            } else {
                self.begin_to_live(entry);
            }
            &entry.value
        })
    }

    /// An entry without a time by the clock of its state, which may be new to it, gets one; whether
    /// it did. So a time to live that a changed program declares holds for what it finds.
    pub(super) fn begin_to_live<T>(self, entry: &mut Entry<T>) -> bool {
        let Some(ttl) = self.ttl else { return false };
        let before = entry.touched;
        if ttl.is_over(before, self.now).is_none() {
            entry.touched = ttl.stamp(self.now);
        }
        entry.touched != before
    }
}
