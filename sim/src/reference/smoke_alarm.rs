//! The reference of smoke-alarm: a sensor's readings sorted, then one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::state::codec;

use crate::jobs::seconds::Seconds;
use crate::jobs::smoke_alarm::{Alarm, Expired, Pattern, Reading, Sensor};
use crate::reference::{Effects, Outcome, RecordId, Reference};

/// Repeated records count once: the same reading again says nothing new.
pub(crate) struct SmokeAlarmReference {
    readings: Arc<[Reading]>,
    pattern: Pattern,
}

impl SmokeAlarmReference {
    pub(crate) fn new(readings: Arc<[Reading]>, pattern: Pattern) -> Self {
        Self { readings, pattern }
    }

    fn apply(&self, records: impl Iterator<Item = usize>) -> Outcome {
        let mut sensors: BTreeMap<&str, BTreeMap<(Seconds, u64), &Reading>> = BTreeMap::new();
        for reading in records.map(|record| &self.readings[record]) {
            let order = (reading.at, reading.offset);
            sensors.entry(&reading.sensor).or_default().insert(order, reading);
        }
        let mut outcome = Outcome::default();
        for (sensor, readings) in sensors {
            let handled = readings.last_key_value().map(|((at, _), _)| *at);
            outcome.cell("detect", sensor, &Sensor { handled, ..Sensor::default() });
            self.watch(sensor, readings.into_values(), &mut outcome);
        }
        outcome
    }

    fn watch<'a>(
        &self,
        sensor: &str,
        readings: impl Iterator<Item = &'a Reading>,
        outcome: &mut Outcome,
    ) {
        let key = codec::encode(sensor);
        let mut armed: Option<Seconds> = None;
        let expired = |hot_at| Expired { key: sensor.to_owned(), hot_at };
        for reading in readings {
            if let Some(hot_at) = armed
                && reading.at.as_millis() - hot_at.as_millis() > self.pattern.within_ms
            {
                outcome.row("expired", key.clone(), &expired(hot_at));
                armed = None;
            }
            if let Some(hot_at) = armed {
                if reading.smoke {
                    let alarm = Alarm { key: sensor.to_owned(), hot_at, smoke_at: reading.at };
                    outcome.row("out", key.clone(), &alarm);
                    armed = None;
                }
            } else if reading.temperature > self.pattern.hot {
                armed = Some(reading.at);
            }
        }
        if let Some(hot_at) = armed {
            outcome.row("expired", key, &expired(hot_at));
        }
    }
}

impl Reference for SmokeAlarmReference {
    /// Every row is fired by a timer.
    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        Some(self.apply(applied.iter().map(|record| record.offset as usize)))
    }

    fn run_all(&self) -> Outcome {
        self.apply(0..self.readings.len())
    }
}
