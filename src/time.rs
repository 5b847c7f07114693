//! Time as a number that is handed in. The core never asks a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment on the driver's clock, in nanoseconds since the driver's start. Tests start at 0.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Instant(u64);

impl Instant {
    /// Later than any other time.
    pub const MAX: Self = Self(u64::MAX);

    /// The driver's start.
    pub const ZERO: Self = Self(0);

    /// The moment this many nanoseconds after the driver's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment this many milliseconds after the driver's start.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Nanoseconds since the driver's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time that has passed since `earlier`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates after 584 years.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}ms", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Event time, in milliseconds; what its zero means is the job's own affair. Also the value of a
/// watermark: no record with a time at or below it follows, unless it is late.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct EventTime(i64);

impl EventTime {
    /// Before every record: the watermark of a channel that has sent none yet.
    pub const MIN: Self = Self(i64::MIN);
    /// After every record: the watermark at the end of data.
    pub const MAX: Self = Self(i64::MAX);

    /// The time at this many milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time `millis` later (earlier, if negative), kept within the range.
    pub const fn saturating_add(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MIN => f.write_str("min"),
            Self::MAX => f.write_str("max"),
            Self(millis) => write!(f, "{millis}ms"),
        }
    }
}

/// Processing time: what the clock of the machine says, in milliseconds since the start of 1970. It
/// is told to the core like all else, and never goes back within an attempt.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ProcessingTime(i64);

impl ProcessingTime {
    /// Before every time that a clock says: none has been told yet.
    pub const MIN: Self = Self(i64::MIN);
    /// After every time that a clock says.
    pub const MAX: Self = Self(i64::MAX);

    /// The time at this many milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time `millis` later (earlier, if negative), kept within the range.
    pub const fn saturating_add(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

/// A duration in whole milliseconds, as event time and processing time count; the most that they
/// hold, if it is longer.
pub fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// How far event time has come, over several inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// To here; [`EventTime::MAX`] if all have ended.
    Watermark(EventTime),
    /// All that have not ended are idle: none is waited for, so event time has come to where the
    /// farthest of them is, if that is new.
    Idle(Option<EventTime>),
}
