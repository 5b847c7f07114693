//! How fast something is.

#![expect(clippy::disallowed_types, reason = "it measures time")]

use std::time::Instant;

/// Million records a second.
pub(crate) fn rate(records: u64, started: Instant) -> f64 {
    records as f64 / started.elapsed().as_secs_f64() / 1e6
}
