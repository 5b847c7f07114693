//! How fast all sources together may read.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows so many records a second, over all source subtasks, in portions of ten milliseconds.
pub(super) struct Throttle {
    limit: Option<Limit>,
}

struct Limit {
    per_second: u64,
    /// When the records read so far will have been due.
    due: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(records_per_second: Option<u64>) -> Self {
        let limit = records_per_second.map(|per_second| Limit {
            per_second: per_second.max(1),
            due: Mutex::new(Instant::now()),
        });
        Self { limit }
    }

    /// How many records may be read at once by now, or when to ask again.
    pub(super) fn allow(&self, wanted: usize) -> Result<usize, Instant> {
        let Some(limit) = &self.limit else { return Ok(wanted) };
        let due = *limit.due.lock().unwrap_or_else(PoisonError::into_inner);
        if due > Instant::now() {
            return Err(due);
        }
        let portion = limit.per_second / PORTIONS_PER_SECOND;
        Ok(wanted.min(usize::try_from(portion).unwrap_or(usize::MAX).max(1)))
    }

    /// So many were read. Time that was not used is not saved up.
    pub(super) fn count(&self, records: usize) {
        let Some(limit) = &self.limit else { return };
        let mut due = limit.due.lock().unwrap_or_else(PoisonError::into_inner);
        let nanos = records as u128 * 1_000_000_000 / u128::from(limit.per_second);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        *due = (*due).max(Instant::now()) + Duration::from_nanos(nanos);
    }
}

const PORTIONS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_small_and_at_least_one() {
        assert_eq!(Throttle::new(None).allow(500), Ok(500));
        assert_eq!(Throttle::new(Some(1_000)).allow(500), Ok(10));
        assert_eq!(Throttle::new(Some(3)).allow(500), Ok(1));
    }

    #[test]
    fn what_was_read_is_due_before_more_may_be() {
        let throttle = Throttle::new(Some(1));
        throttle.count(3_600);
        let due = throttle.allow(1).unwrap_err();
        assert!(due > Instant::now() + Duration::from_secs(3_000));
    }
}
