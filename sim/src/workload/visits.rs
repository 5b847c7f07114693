//! Visits: a few visitors who come back to a few pages at and around the time at which they are
//! forgotten, out of order by no more than a bound.

use std::time::Duration;

use crate::dice::Dice;
use crate::jobs::seconds::Seconds;
use crate::jobs::visits::Visit;
use crate::workload::{SPAN_MS_MAX, signed};

/// `records` visits; one is older than another before it by at most `disorder`.
pub(crate) fn visits(
    dice: &mut Dice,
    records: usize,
    forget_ms: i64,
    disorder: Duration,
) -> Vec<Visit> {
    let bound = u64::try_from(disorder.as_millis()).unwrap_or(u64::MAX).min(SPAN_MS_MAX);
    let forget = forget_ms.clamp(0, SPAN_MS_MAX as i64);
    let visitors = dice.below(4) + 1;
    let mut clocks = vec![0_i64; visitors as usize];
    let arrival = |_| {
        let visitor = dice.below(visitors) as usize;
        let pause = signed(dice, 0, forget / 3 + 1);
        clocks[visitor] += *dice.pick(&[0, 1, pause, pause, forget - 1, forget, forget + 1]);
        let at = clocks[visitor].max(0);
        (at + dice.below(bound + 1) as i64, visitor, at, dice.below(PAGES))
    };
    let mut arrivals: Vec<_> = (0..records).map(arrival).collect();
    arrivals.sort_by_key(|(arrival, visitor, at, _)| (*arrival, *visitor, *at));
    let visit = |(offset, (_, visitor, at, page))| Visit {
        visitor: format!("v{visitor}"),
        at: Seconds::from_millis(at),
        page: format!("p{page}"),
        offset,
    };
    (0..).zip(arrivals).map(visit).collect()
}

const PAGES: u64 = 3;
