//! When the next attempt begins after a failure, and whether there is one: restart strategies (rule
//! 119). It looks at times and counts alone; what failed and where the job goes on is not its
//! concern.
//!
//! There is no jitter: a job is one region and does not restart in step with others.

use std::collections::VecDeque;
use std::time::Duration;

use crate::config::RestartStrategy;
use crate::time::Instant;

/// The restarts of a job, as far as a strategy looks back. It is lost with its coordinator, as a
/// process that is started anew is a fresh try.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RestartHistory {
    /// Restarts since a checkpoint completed.
    in_a_row: u32,
    /// When attempts failed, the oldest first; only those that a failure rate may still count.
    failures: VecDeque<Instant>,
    /// When the latest restart was due, and how long it was put off.
    latest: Option<(Instant, Duration)>,
}

/// What a strategy makes of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartVerdict {
    /// Another attempt, after this time.
    Restart(Duration),
    /// None: so many restarts did not lead to another complete checkpoint.
    Exhausted,
    /// None: attempts fail too often.
    TooOften {
        /// The failures, this one among them.
        failures: u32,
        /// The time within which they happened.
        interval: Duration,
    },
}

impl RestartHistory {
    /// A checkpoint is complete: the restarts were not in vain.
    pub(super) fn progress(&mut self) {
        self.in_a_row = 0;
    }

    /// Restarts since a checkpoint completed.
    pub(super) const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// An attempt has failed `now`: what `strategy` says.
    pub(super) fn fail(&mut self, strategy: RestartStrategy, now: Instant) -> RestartVerdict {
        let verdict = match strategy {
            RestartStrategy::None => RestartVerdict::Exhausted,
            RestartStrategy::FixedDelay { attempts, delay } => match self.in_a_row < attempts {
                true => RestartVerdict::Restart(delay),
                false => RestartVerdict::Exhausted,
            },
            RestartStrategy::Exponential { first, max, quiet } => {
                RestartVerdict::Restart(match self.latest {
                    Some((at, delay)) if now.since(at) < quiet => delay.saturating_mul(2).min(max),
                    Some(_) | None => first.min(max),
                })
            }
            RestartStrategy::FailureRate { failures, interval, delay } => {
                self.count(now, interval);
                match self.failures.len() as u32 {
                    counted if counted > failures => {
                        RestartVerdict::TooOften { failures: counted, interval }
                    }
                    _ => RestartVerdict::Restart(delay),
                }
            }
        };
        if let RestartVerdict::Restart(delay) = verdict {
            self.in_a_row += 1;
            self.latest = Some((now + delay, delay));
        }
        verdict
    }

    /// Counts a failure, and forgets those that are `interval` ago.
    fn count(&mut self, now: Instant, interval: Duration) {
        while self.failures.front().is_some_and(|at| now.since(*at) >= interval) {
            self.failures.pop_front();
        }
        self.failures.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The verdicts on failures at these times, in milliseconds.
    fn verdicts(strategy: RestartStrategy, times: &[u64]) -> Vec<RestartVerdict> {
        let mut history = RestartHistory::default();
        times.iter().map(|at| history.fail(strategy, Instant::from_millis(*at))).collect()
    }

    fn restarts(delays: &[u64]) -> Vec<RestartVerdict> {
        delays.iter().map(|delay| RestartVerdict::Restart(ms(*delay))).collect()
    }

    #[test]
    fn rule_119_no_strategy_never_restarts() {
        assert_eq!(verdicts(RestartStrategy::None, &[0]), [RestartVerdict::Exhausted]);
    }

    #[test]
    fn rule_119_a_fixed_delay_counts_restarts_until_a_checkpoint_completes() {
        let strategy = RestartStrategy::FixedDelay { attempts: 2, delay: ms(10) };
        let seen = verdicts(strategy, &[0, 1, 2]);
        assert_eq!(seen, [&restarts(&[10, 10])[..], &[RestartVerdict::Exhausted]].concat());
        let mut history = RestartHistory::default();
        for at in 0..9 {
            assert_eq!(
                history.fail(strategy, Instant::from_millis(at)),
                RestartVerdict::Restart(ms(10))
            );
            history.progress();
        }
    }

    #[test]
    fn rule_119_an_exponential_delay_doubles_up_to_its_limit_and_begins_anew_when_all_is_quiet() {
        let strategy = RestartStrategy::Exponential { first: ms(10), max: ms(35), quiet: ms(100) };
        // Quiet is counted from the moment at which the restart was due: 5 + 20, not 5.
        assert_eq!(verdicts(strategy, &[0, 5, 124, 158]), restarts(&[10, 20, 35, 35]));
        assert_eq!(verdicts(strategy, &[0, 5, 125, 126]), restarts(&[10, 20, 10, 20]));
        let small = RestartStrategy::Exponential { first: ms(10), max: ms(3), quiet: ms(100) };
        assert_eq!(verdicts(small, &[0]), restarts(&[3]));
    }

    #[test]
    fn rule_119_a_failure_rate_ends_the_job_at_one_failure_more_within_the_interval() {
        let strategy =
            RestartStrategy::FailureRate { failures: 2, interval: ms(100), delay: ms(7) };
        let too_often = RestartVerdict::TooOften { failures: 3, interval: ms(100) };
        assert_eq!(
            verdicts(strategy, &[0, 50, 99]),
            [&restarts(&[7, 7])[..], &[too_often]].concat()
        );
        assert_eq!(verdicts(strategy, &[0, 50, 100, 151, 201]), restarts(&[7, 7, 7, 7, 7]));
    }

    #[test]
    fn a_failure_rate_does_not_care_for_progress_in_between() {
        let strategy =
            RestartStrategy::FailureRate { failures: 1, interval: ms(100), delay: ms(7) };
        let mut history = RestartHistory::default();
        history.fail(strategy, Instant::ZERO);
        history.progress();
        let verdict = history.fail(strategy, Instant::from_millis(1));
        assert_eq!(verdict, RestartVerdict::TooOften { failures: 2, interval: ms(100) });
    }
}
