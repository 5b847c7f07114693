//! Moments in seconds as sensor files write them, kept exact.

use std::fmt;
use std::str::FromStr;

use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

/// A moment in seconds, exact to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Seconds {
    millis: i64,
}

impl Seconds {
    /// The moment at this many milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self { millis }
    }

    /// Milliseconds.
    pub const fn as_millis(self) -> i64 {
        self.millis
    }

    /// The same moment as the engine counts it.
    pub const fn event_time(self) -> EventTime {
        EventTime::from_millis(self.millis)
    }
}

impl fmt::Display for Seconds {
    /// As JSON writes a number: `12`, `-0.5`, `3.001`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.millis < 0 { "-" } else { "" };
        let (whole, rest) = (self.millis.unsigned_abs() / 1000, self.millis.unsigned_abs() % 1000);
        match rest {
            0 => write!(f, "{sign}{whole}"),
            _ => write!(f, "{sign}{whole}.{}", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("time_s '{text}' is not a number of seconds to the millisecond");
        let (sign, digits) = match text.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let fraction = match fraction.split_at_checked(3) {
            Some((millis, rest)) if rest.bytes().all(|byte| byte == b'0') => millis,
            Some(_) => return Err(refused()),
            None => fraction,
        };
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(refused());
        }
        let millis = format!("{whole}{fraction:0<3}").parse::<i64>().ok();
        let millis = millis.filter(|millis| *millis < MILLIS_END).ok_or_else(refused)?;
        Ok(Self { millis: sign * millis })
    }
}

/// Room is left for durations to be added, and for the ends of event time.
const MILLIS_END: i64 = i64::MAX / 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_and_written_exactly() {
        for (text, millis, written) in [
            ("12", 12_000, "12"),
            ("12.0", 12_000, "12"),
            ("-0.5", -500, "-0.5"),
            ("3.001000", 3_001, "3.001"),
            ("1654733331", 1_654_733_331_000, "1654733331"),
        ] {
            let seconds: Seconds = text.parse().unwrap();
            assert_eq!((seconds.as_millis(), seconds.to_string().as_str()), (millis, written));
        }
    }

    #[test]
    fn what_is_no_moment_is_refused() {
        for text in ["", "x", "1e3", "-", "1.", ".5", "0.0001", "NaN", "9223372036854775", "+1"] {
            let error = text.parse::<Seconds>().unwrap_err();
            assert!(error.contains(&format!("'{text}'")), "{error}");
        }
    }
}
