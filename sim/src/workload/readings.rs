//! Readings for smoke-alarm: little scenes of heat and smoke at and around the deadline, several
//! sensors at a time, out of order by no more than a bound.

use std::time::Duration;

use crate::dice::Dice;
use crate::jobs::seconds::Seconds;
use crate::jobs::smoke_alarm::{Alert, Reading};
use crate::workload::{SPAN_MS_MAX, signed};

/// `records` readings; one is older than another before it by at most `disorder`.
pub(crate) fn readings(
    dice: &mut Dice,
    records: usize,
    alert: Alert,
    disorder: Duration,
) -> Vec<Reading> {
    let bound = u64::try_from(disorder.as_millis()).unwrap_or(u64::MAX).min(SPAN_MS_MAX);
    let within = alert.within_ms().min(SPAN_MS_MAX as i64);
    let sensors = dice.below(4) + 1;
    let mut clocks = vec![0_i64; sensors as usize];
    let mut arrivals = Vec::with_capacity(records + SCENE_READINGS_MAX);
    while arrivals.len() < records {
        let sensor = dice.below(sensors) as usize;
        for (pause, is_hot, smoke) in scene(dice, within) {
            clocks[sensor] += pause;
            let at = clocks[sensor];
            let temperature = alert.hot + if is_hot { 0.5 } else { *dice.pick(&[0.0, -20.0]) };
            let jitter = dice.below(bound + 1) as i64;
            arrivals.push((at + jitter, sensor, at, temperature, smoke));
        }
    }
    arrivals.truncate(records);
    arrivals.sort_by_key(|(arrival, sensor, at, ..)| (*arrival, *sensor, *at));
    let reading = |(offset, (_, sensor, at, temperature, smoke))| Reading {
        sensor: format!("s{sensor}"),
        at: Seconds::from_millis(at),
        temperature,
        smoke,
        offset,
    };
    (0..).zip(arrivals).map(reading).collect()
}

/// Some readings of one sensor: the time since the one before, whether it is hot, whether there is
/// smoke. A pause of zero ties two readings.
fn scene(dice: &mut Dice, within: i64) -> Vec<(i64, bool, bool)> {
    let pause = signed(dice, 0, within / 3 + 1);
    match dice.below(9) {
        0 => vec![(pause, true, false), (within, false, true)],
        1 => vec![(pause, true, false), (within + 1, false, true)],
        2 => vec![(pause, true, false), (0, false, true)],
        3 => vec![(pause, false, true), (0, true, false)],
        4 => vec![(pause, true, true), (1, true, true)],
        5 => vec![(pause, true, false), (within, true, false), (1, true, false)],
        6 => vec![(pause, true, false), (within / 2, false, true)],
        7 => vec![(pause, true, false)],
        _ => vec![(pause, false, false)],
    }
}

const SCENE_READINGS_MAX: usize = 3;
