//! The reference of smoke-alarm: a sensor's readings sorted, then one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::operator::pattern::Track;
use cofferdam::state::codec;

use crate::jobs::seconds::Seconds;
use crate::jobs::smoke_alarm::{Alarm, Alert, Expired, Reading};
use crate::reference::{ByCell, Effects, Outcome, RecordId, Reference, encoded_keys};

/// Repeated records count once: the same reading again says nothing new.
pub(crate) struct SmokeAlarmReference {
    readings: Arc<Vec<Reading>>,
    alert: Alert,
}

impl SmokeAlarmReference {
    pub(crate) fn new(readings: Arc<Vec<Reading>>, alert: Alert) -> Self {
        Self { readings, alert }
    }

    fn apply(&self, records: impl Iterator<Item = usize>) -> Outcome {
        let mut sensors: BTreeMap<&str, BTreeMap<(Seconds, u64), &Reading>> = BTreeMap::new();
        for reading in records.map(|record| &self.readings[record]) {
            let order = (reading.at, reading.offset);
            sensors.entry(&reading.sensor).or_default().insert(order, reading);
        }
        let mut outcome = Outcome::default();
        for (sensor, readings) in sensors {
            let seen = readings.last_key_value().map(|((at, _), _)| at.event_time());
            outcome.cell("detect", sensor, &Track::<Reading>::settled(seen));
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
                && u128::from(reading.at.as_millis().abs_diff(hot_at.as_millis()))
                    > self.alert.within.as_millis()
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
            } else if reading.temperature > self.alert.hot {
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

    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        self.run(applied)?.cells.get_mut(uid)?.remove(key)
    }

    fn run_all(&self) -> Outcome {
        self.apply(0..self.readings.len())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        Some(self)
    }
}

impl ByCell for SmokeAlarmReference {
    fn operator(&self) -> &'static str {
        "detect"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        encoded_keys(self.readings.iter().map(|reading| reading.sensor.as_str()))
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        self.apply(applied.iter().map(|record| record.offset as usize)).rows(sink)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Rows as text, for readings (time in ms, temperature, smoke) of one sensor, hot above 40,
    /// within 10 ms.
    fn verdicts(readings: &[(i64, f64, bool)]) -> Vec<String> {
        let reading = |(offset, (at, temperature, smoke)): (u64, &(i64, f64, bool))| Reading {
            sensor: "s".to_owned(),
            at: Seconds::from_millis(*at),
            temperature: *temperature,
            smoke: *smoke,
            offset,
        };
        let readings = Arc::new((0..).zip(readings).map(reading).collect());
        let reference = SmokeAlarmReference::new(
            readings,
            Alert { hot: 40.0, within: Duration::from_millis(10) },
        );
        let rows = reference.run_all().outputs;
        let text = |(uid, row): (&str, &[u8])| match uid {
            "out" => {
                let alarm: Alarm = codec::decode(row).unwrap();
                format!("{} -> {}", alarm.hot_at.as_millis(), alarm.smoke_at.as_millis())
            }
            _ => {
                let expired: Expired = codec::decode(row).unwrap();
                format!("{} expired", expired.hot_at.as_millis())
            }
        };
        let rows = rows.iter().flat_map(|(uid, rows)| {
            rows.counts().into_keys().map(move |row| (uid.as_str(), row)).collect::<Vec<_>>()
        });
        rows.map(text).collect()
    }

    #[test]
    fn smoke_at_the_deadline_counts_and_a_millisecond_later_does_not() {
        assert_eq!(verdicts(&[(0, 41.0, false), (10, 20.0, true)]), ["0 -> 10"]);
        assert_eq!(verdicts(&[(0, 41.0, false), (11, 20.0, true)]), ["0 expired"]);
        assert_eq!(verdicts(&[(0, 41.0, false)]), ["0 expired"]);
        assert!(
            verdicts(&[(0, 40.0, false), (1, 20.0, true)]).is_empty(),
            "40 is not hotter than 40"
        );
    }

    #[test]
    fn ties_go_by_input_order_and_other_disorder_by_time() {
        assert_eq!(verdicts(&[(5, 41.0, false), (5, 20.0, true)]), ["5 -> 5"]);
        assert_eq!(verdicts(&[(5, 20.0, true), (5, 41.0, false)]), ["5 expired"]);
        assert_eq!(verdicts(&[(7, 20.0, true), (5, 41.0, false)]), ["5 -> 7"]);
    }

    #[test]
    fn a_reading_that_disarms_does_not_arm_and_the_first_heat_counts() {
        assert_eq!(verdicts(&[(0, 41.0, false), (1, 50.0, true), (2, 20.0, true)]), ["0 -> 1"]);
        let again = [(0, 41.0, true), (9, 41.0, false), (11, 41.0, false), (12, 20.0, true)];
        assert_eq!(verdicts(&again), ["0 expired", "11 -> 12"]);
    }
}
