//! The process of smoke-alarm.
//!
//! Readings of a sensor wait in its state until the watermark passes them, and are then handled in
//! the order (time, line): so the result is the same whatever the parallelism and the order of
//! arrival. Each reading has a timer at its own time, each heat one at its deadline.
//!
//! The state is idempotent. A reading is repeated either while it waits, where it replaces itself,
//! or after it was handled, and then its time is not above `handled`: when a timer fires at t, the
//! watermark has reached t, so every reading up to t had come, and none that comes later is new.
//! That holds if no reading is later than the declared disorder, which is checked before a job over
//! a file starts; without a declaration the watermark waits for the end of input.

use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::jobs::smoke_alarm::{Alarm, Expired, Pattern, Reading, Sample, Sensor};

/// What comes of heat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    Alarm(Alarm),
    Expired(Expired),
}

impl Verdict {
    pub(super) fn alarm(self) -> Option<Alarm> {
        match self {
            Self::Alarm(alarm) => Some(alarm),
            Self::Expired(_) => None,
        }
    }

    pub(super) fn expired(self) -> Option<Expired> {
        match self {
            Self::Expired(expired) => Some(expired),
            Self::Alarm(_) => None,
        }
    }
}

#[derive(Clone)]
pub(super) struct Detect(pub(super) Pattern);

impl KeyedProcess for Detect {
    type Key = String;
    type In = Reading;
    type State = Sensor;
    type Out = Verdict;

    fn process(
        &mut self,
        reading: Reading,
        context: &mut KeyedContext<'_, String, Sensor>,
        _out: &mut impl Emit<Verdict>,
    ) {
        let sensor = context.state().get_or_insert_default();
        if sensor.handled >= Some(reading.at) {
            return;
        }
        let sample = Sample { hot: reading.temperature > self.0.hot, smoke: reading.smoke };
        sensor.waiting.insert((reading.at, reading.offset), sample);
        context.register_timer(reading.at.event_time());
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, String, Sensor>,
        out: &mut impl Emit<Verdict>,
    ) {
        let key = context.key().clone();
        let Some(sensor) = context.state() else { return };
        while let Some(first) = sensor.waiting.first_entry()
            && first.key().0.event_time() <= time
        {
            let ((at, _), sample) = first.remove_entry();
            sensor.handled = Some(at);
            match sensor.hot_at {
                Some(hot_at) if sample.smoke => {
                    out.emit(Verdict::Alarm(Alarm { key: key.clone(), hot_at, smoke_at: at }));
                    sensor.hot_at = None;
                }
                None if sample.hot => sensor.hot_at = Some(at),
                Some(_) | None => {}
            }
        }
        let Some(hot_at) = sensor.hot_at else { return };
        let deadline = hot_at.event_time().saturating_add(self.0.within_ms);
        if deadline <= time {
            sensor.hot_at = None;
            out.emit(Verdict::Expired(Expired { key, hot_at }));
        } else {
            context.register_timer(deadline);
        }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// Only timers emit, and a reading that comes again registers none that is not there already.
    fn absorbs_repeats(&self) -> bool {
        true
    }
}
