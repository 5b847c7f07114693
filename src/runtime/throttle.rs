//! How fast all sources together may read, and how much.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Allows so many records a second, over all source subtasks, in portions of ten milliseconds; and
/// so many in all.
pub(super) struct Throttle {
    limit: Option<Limit>,
    budget: Option<Budget>,
    /// When all is read that may be, the data ends.
    drains: bool,
    /// The data ends now.
    is_over: AtomicBool,
}

struct Limit {
    per_second: u64,
    /// When the records read so far will have been due.
    due: Mutex<Instant>,
}

struct Budget {
    whole: u64,
    /// Not yet given to a subtask that reads.
    left: AtomicU64,
    read: AtomicU64,
}

/// What a subtask may do that wants to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Read so many records, and say by [`Throttle::count`] how many there were.
    Now(usize),
    /// Ask again then.
    Later(Instant),
    /// Nothing: all has been given out, and some of it may come back.
    Nothing,
    /// Nothing ever again: the data ends here.
    End,
}

impl Throttle {
    /// `drains`: the data ends when `records_max` are read.
    pub(super) fn new(
        records_per_second: Option<u64>,
        records_max: Option<u64>,
        drains: bool,
    ) -> Self {
        let limit = records_per_second.map(|per_second| Limit {
            per_second: per_second.max(1),
            due: Mutex::new(Instant::now()),
        });
        let budget = records_max.map(|whole| Budget {
            whole,
            left: AtomicU64::new(whole),
            read: AtomicU64::new(0),
        });
        Self { limit, budget, drains, is_over: AtomicBool::new(false) }
    }

    /// What a subtask may do that wants to read this many records.
    pub(super) fn allow(&self, wanted: usize) -> Allowed {
        if self.is_over.load(Ordering::Relaxed) {
            return Allowed::End;
        }
        let portion = match &self.limit {
            None => wanted,
            Some(limit) => {
                let due = *limit.due.lock().unwrap_or_else(PoisonError::into_inner);
                if due > Instant::now() {
                    return Allowed::Later(due);
                }
                let portion = limit.per_second / PORTIONS_PER_SECOND;
                wanted.min(usize::try_from(portion).unwrap_or(usize::MAX).max(1))
            }
        };
        match self.budget.as_ref().map(|budget| budget.take(portion)) {
            None => Allowed::Now(portion),
            Some(0) if self.drains && self.is_spent() => Allowed::End,
            Some(0) => Allowed::Nothing,
            Some(taken) => Allowed::Now(taken),
        }
    }

    /// So many were read of those that were allowed. Time that was not used is not saved up.
    pub(super) fn count(&self, allowed: usize, records: usize) {
        if let Some(limit) = &self.limit {
            let mut due = limit.due.lock().unwrap_or_else(PoisonError::into_inner);
            let nanos = records as u128 * 1_000_000_000 / u128::from(limit.per_second);
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            *due = (*due).max(Instant::now()) + Duration::from_nanos(nanos);
        }
        if let Some(budget) = &self.budget {
            budget.left.fetch_add((allowed - records) as u64, Ordering::Relaxed);
            budget.read.fetch_add(records as u64, Ordering::Release);
        }
    }

    /// Whether as many records were read as may be in all. Never, if there is no such limit.
    pub(super) fn is_spent(&self) -> bool {
        let is_spent = |budget: &Budget| budget.read.load(Ordering::Acquire) >= budget.whole;
        self.budget.as_ref().is_some_and(is_spent)
    }

    /// Nothing more is read: the data ends wherever each subtask is, in later attempts too.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// An attempt begins behind so many records of those that may be read in all. Nobody reads
    /// while this is called.
    pub(super) fn begin_behind(&self, records: u64) {
        if let Some(budget) = &self.budget {
            budget.left.store(budget.whole.saturating_sub(records), Ordering::Relaxed);
            budget.read.store(records, Ordering::Release);
        }
    }
}

impl Budget {
    /// Takes so much, or what is left.
    fn take(&self, wanted: usize) -> usize {
        let wanted = wanted as u64;
        let rest = |left: u64| Some(left.saturating_sub(wanted));
        let before = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        before.unwrap_or_else(|left| left).min(wanted) as usize
    }
}

const PORTIONS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_small_and_at_least_one() {
        assert_eq!(Throttle::new(None, None, false).allow(500), Allowed::Now(500));
        assert_eq!(Throttle::new(Some(1_000), None, false).allow(500), Allowed::Now(10));
        assert_eq!(Throttle::new(Some(3), None, false).allow(500), Allowed::Now(1));
    }

    #[test]
    fn what_was_read_is_due_before_more_may_be() {
        let throttle = Throttle::new(Some(1), None, false);
        throttle.count(3_600, 3_600);
        let Allowed::Later(due) = throttle.allow(1) else { panic!("it is throttled") };
        assert!(due > Instant::now() + Duration::from_secs(3_000));
    }

    #[test]
    fn no_more_is_allowed_than_there_is_in_all_and_what_was_not_read_comes_back() {
        let throttle = Throttle::new(None, Some(100), false);
        assert_eq!(throttle.allow(80), Allowed::Now(80));
        assert_eq!(throttle.allow(80), Allowed::Now(20));
        assert_eq!(throttle.allow(80), Allowed::Nothing);
        throttle.count(20, 5);
        assert_eq!(throttle.allow(80), Allowed::Now(15));
        throttle.count(80, 80);
        assert!(!throttle.is_spent());
        throttle.count(15, 15);
        assert!(throttle.is_spent());
        throttle.begin_behind(40);
        assert!(!throttle.is_spent());
        assert_eq!(throttle.allow(80), Allowed::Now(60));
    }

    #[test]
    fn rule_104_the_data_ends_when_all_is_read_or_at_once() {
        let throttle = Throttle::new(None, Some(10), true);
        assert_eq!(throttle.allow(10), Allowed::Now(10));
        assert_eq!(throttle.allow(10), Allowed::Nothing, "some of it may come back");
        throttle.count(10, 10);
        assert_eq!(throttle.allow(10), Allowed::End);
        let throttle = Throttle::new(None, None, false);
        throttle.end();
        assert_eq!(throttle.allow(10), Allowed::End);
    }
}
