//! Heat followed by smoke within a time: a pattern with a time-out, over event time.
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

mod model;

use std::sync::Arc;
use std::time::Duration;

use cofferdam::connector::memory::VecSource;
use cofferdam::job::Job;
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::source::Source;
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::dice::{Dice, Purpose};
use crate::jobs::ends::{Ends, Watched, builder};
use crate::jobs::lines::{Format, cycle_lines};
use crate::jobs::parameters::parse_duration;
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup};
use crate::reference::smoke_alarm::SmokeAlarmReference;
use crate::workload::readings;

pub use model::{Alarm, Expired, Pattern, Reading, Sample, Sensor};

/// The job.
pub(crate) struct SmokeAlarm;

impl BuiltinJob for SmokeAlarm {
    fn name(&self) -> &'static str {
        "smoke-alarm"
    }

    fn about(&self) -> &'static str {
        "raises an alarm when smoke follows heat in time, for CSV rows sensor,time_s,temperature,smoke"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { flag: "hot", default: "40", help: "a reading above this is hot" },
            Parameter { flag: "within", default: "10m", help: "how long heat waits for smoke" },
            Parameter {
                flag: "disorder",
                default: "end",
                help: "by how much a reading may be older than one before it; end: by any time, \
                       nothing is decided before the end of input",
            },
        ]
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let pattern = pattern(setup)?;
        let mut disorder = disorder(setup)?;
        let readings = Arc::new(match &data.lines {
            Some(lines) => cycle_lines(lines, FORMAT, data, parse)?,
            None => {
                let mut dice = Dice::new(data.seed, Purpose::Workload);
                let drawn = readings::disorder(&mut dice, pattern);
                let declared = dice.chance(750).then_some(drawn);
                let actual = disorder.unwrap_or(drawn);
                disorder = disorder.or(declared);
                readings::readings(&mut dice, data.records, pattern, actual)
            }
        });
        if let Some(disorder) = disorder {
            check_disorder(&readings, disorder)?;
        }
        let job = graph(
            VecSource::from(readings.clone()),
            pattern,
            disorder,
            &Watched(setup.sink),
            setup,
        )?;
        let reference = Box::new(SmokeAlarmReference::new(readings.clone(), pattern));
        let inputs = CaseInput::of(&job, vec![readings]);
        Ok(Case { job, reference, inputs })
    }
}

fn graph(
    source: impl Source<Record = Reading>,
    pattern: Pattern,
    disorder: Option<Duration>,
    ends: &impl Ends,
    setup: &Setup,
) -> Result<Job, JobError> {
    let builder = builder("smoke-alarm", setup.shape);
    let readings = match disorder {
        Some(disorder) => {
            let time = |reading: &Reading| reading.at.event_time();
            builder.source_with_event_time("readings", source, time, disorder)
        }
        None => builder.source("readings", source),
    };
    let verdicts =
        readings.key_by_ref(|reading| &reading.sensor).process("detect", Detect(pattern));
    let (alarms, expired) = verdicts.fork();
    ends.end(alarms.filter_map("alarms", Verdict::alarm), "out");
    ends.end(expired.filter_map("expirations", Verdict::expired), "expired");
    Ok(builder.build(setup.config.clone())?)
}

/// What comes of heat.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Verdict {
    Alarm(Alarm),
    Expired(Expired),
}

impl Verdict {
    fn alarm(self) -> Option<Alarm> {
        match self {
            Self::Alarm(alarm) => Some(alarm),
            Self::Expired(_) => None,
        }
    }

    fn expired(self) -> Option<Expired> {
        match self {
            Self::Expired(expired) => Some(expired),
            Self::Alarm(_) => None,
        }
    }
}

#[derive(Clone)]
struct Detect(Pattern);

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
}

/// The first reading that is older than one before it by more than `disorder` is an error.
fn check_disorder(readings: &[Reading], disorder: Duration) -> Result<(), JobError> {
    let allowed = i64::try_from(disorder.as_millis()).unwrap_or(i64::MAX);
    let mut latest = i64::MIN;
    for reading in readings {
        latest = latest.max(reading.at.as_millis());
        if latest - reading.at.as_millis() > allowed {
            return Err(JobError::Input(format!(
                "line {}: the reading of {} at {} s comes {} ms after a later one, --disorder allows \
                 {allowed} ms",
                reading.offset + 1,
                reading.sensor,
                reading.at,
                latest - reading.at.as_millis()
            )));
        }
    }
    Ok(())
}

fn pattern(setup: &Setup) -> Result<Pattern, JobError> {
    let hot = setup.parameters.read("hot", finite)?;
    let within = setup.parameters.read("within", parse_duration)?;
    Ok(Pattern { hot, within_ms: i64::try_from(within.as_millis()).unwrap_or(i64::MAX) })
}

fn disorder(setup: &Setup) -> Result<Option<Duration>, JobError> {
    setup.parameters.read("disorder", |text| match text {
        "end" => Ok(None),
        text => parse_duration(text).map(Some),
    })
}

fn parse(offset: u64, fields: &[&str]) -> Result<Reading, String> {
    let smoke = match fields[3] {
        "0" => false,
        "1" => true,
        other => return Err(format!("smoke '{other}' is neither 0 nor 1")),
    };
    let temperature = finite(fields[2]).map_err(|reason| format!("temperature: {reason}"))?;
    Ok(Reading { sensor: fields[0].to_owned(), at: fields[1].parse()?, temperature, smoke, offset })
}

fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| format!("'{text}' is not a finite number"))
}

const FORMAT: Format = Format::Csv(&["sensor", "time_s", "temperature", "smoke"]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::row::Row;
    use crate::jobs::seconds::Seconds;
    use crate::jobs::{Parameters, Shape};
    use cofferdam::config::JobConfig;
    use cofferdam::guarantee::SinkContract;

    fn error(lines: &[&str], given: &[(&str, &str)]) -> String {
        let setup = Setup {
            shape: Shape { parallelism: 2, key_groups: None },
            sink: SinkContract::Plain,
            config: JobConfig::default(),
            parameters: Parameters::given(&SmokeAlarm, given.iter().copied()).unwrap(),
        };
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let data = CaseData { seed: 0, records: lines.len() - 1, lines: Some(lines.into()) };
        SmokeAlarm.case(&data, &setup).err().unwrap().to_string()
    }

    const HEADER: &str = "sensor,time_s,temperature,smoke";

    #[test]
    fn a_bad_reading_is_refused_in_one_sentence() {
        for (line, sentence) in [
            ("d,0,NaN,0", "line 2: temperature: 'NaN' is not a finite number"),
            ("d,0,inf,0", "line 2: temperature: 'inf' is not a finite number"),
            ("d,x,20,0", "line 2: time_s 'x' is not a number of seconds to the millisecond"),
            ("d,0,20,2", "line 2: smoke '2' is neither 0 nor 1"),
            ("d,0,20", "line 2: 3 fields, the header promises at least 4"),
        ] {
            assert_eq!(error(&[HEADER, line], &[]), sentence);
        }
    }

    #[test]
    fn a_reading_beyond_the_declared_disorder_is_refused_and_not_dropped() {
        let lines = [HEADER, "a,10,20,0", "b,8,20,0", "a,7.999,41,0"];
        assert_eq!(
            error(&lines, &[("disorder", "2s")]),
            "line 4: the reading of a at 7.999 s comes 2001 ms after a later one, \
             --disorder allows 2000 ms"
        );
    }

    #[test]
    fn parameters_are_refused_by_name() {
        assert_eq!(error(&[HEADER], &[("hot", "NaN")]), "--hot NaN: 'NaN' is not a finite number");
        assert_eq!(
            error(&[HEADER], &[("within", "10")]),
            "--within 10: not a duration such as 250ms, 1s, 10m or 1h"
        );
        let unknown = Parameters::given(&SmokeAlarm, [("cold", "3")]).unwrap_err();
        assert_eq!(unknown.to_string(), "job 'smoke-alarm' has no parameter --cold");
    }

    #[test]
    fn rows_are_written_as_the_page_says() {
        let (hot_at, smoke_at) = (Seconds::from_millis(7_000), Seconds::from_millis(9_500));
        let mut out = Vec::new();
        Alarm { key: "d".into(), hot_at, smoke_at }.write_json(&mut out);
        Expired { key: "d".into(), hot_at }.write_json(&mut out);
        let text = r#"{"key":"d","hot_at":7,"smoke_at":9.5}{"key":"d","hot_at":7}"#;
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}
