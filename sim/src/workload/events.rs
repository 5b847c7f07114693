//! Events at and around the ends of spans, several keys at a time, out of order by no more than a
//! bound.

use std::time::Duration;

use crate::dice::Dice;
use crate::jobs::seconds::Seconds;
use crate::jobs::timed::Event;
use crate::workload::{SPAN_MS_MAX, signed};

/// `records` events, of one or both sides; one is older than another before it by at most
/// `disorder`.
pub(crate) fn events(
    dice: &mut Dice,
    records: usize,
    span: Duration,
    disorder: Duration,
    has_sides: bool,
) -> Vec<Event> {
    let span = millis(span) as i64;
    let keys = dice.below(4) + 1;
    let mut clocks = vec![signed(dice, -span, span); keys as usize];
    let mut arrivals = Vec::with_capacity(records);
    for _ in 0..records {
        let key = dice.below(keys) as usize;
        let within = signed(dice, 0, span / 3 + 1);
        clocks[key] += *dice.pick(&[0, 1, within, within, span / 2, span - 1, span, span + 1]);
        let at = clocks[key];
        let jitter = dice.below(millis(disorder) + 1) as i64;
        let value = signed(dice, -9, 99);
        let is_right = has_sides && dice.chance(500);
        let event = Event { key: format!("k{key}"), at: Seconds::from_millis(at), value, is_right };
        arrivals.push((at + jitter, event));
    }
    arrivals.sort();
    arrivals.into_iter().map(|(_, event)| event).collect()
}

/// Generated times stay far from the ends of their range.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(SPAN_MS_MAX)
}
