//! Heat followed by smoke within a time: a pattern with a time-out, over event time.

mod model;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cli")]
use cofferdam::connector::file::LineSource;
use cofferdam::connector::memory::VecSource;
use cofferdam::job::Job;
use cofferdam::operator::pattern::Pattern;
use cofferdam::operator::source::Source;
use cofferdam::state::codec::DecodeError;

use crate::dice::{Dice, Purpose};
use crate::jobs::disorder::{self, Disorder};
use crate::jobs::ends::{Ends, Watched, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FieldParser, FileJob, Files, IntoOutput};
use crate::jobs::lines::{Format, ReadsLines, cycle_lines};
use crate::jobs::parameters::parse_duration;
use crate::jobs::row::encoded_json;
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup};
use crate::reference::smoke_alarm::SmokeAlarmReference;
use crate::workload::readings;

pub use model::{Alarm, Alert, Expired, Reading};

/// The job.
pub(crate) struct SmokeAlarm;

impl BuiltinJob for SmokeAlarm {
    fn name(&self) -> &'static str {
        "smoke-alarm"
    }

    fn about(&self) -> &'static str {
        "raises an alarm when smoke follows heat in time, for CSV rows \
         sensor,time_s,temperature,smoke"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { flag: "hot", default: "40", help: "a reading above this is hot" },
            Parameter { flag: "within", default: "10m", help: "how long heat waits for smoke" },
            disorder::PARAMETER,
        ]
    }

    fn reads(&self) -> Option<Format> {
        Some(Self::FORMAT)
    }

    fn row_json(&self, uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        match uid {
            "expired" => encoded_json::<Expired>(row),
            _ => encoded_json::<Alarm>(row),
        }
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let alert = alert(setup)?;
        let mut disorder = disorder::declared(setup)?;
        let readings = Arc::new(match &data.lines {
            Some(lines) => cycle_lines(lines, Self::FORMAT, data, parse)?,
            None => {
                let mut dice = Dice::new(data.seed, Purpose::Workload);
                let actual = disorder::draw(&mut dice, alert.within_ms(), &mut disorder);
                readings::readings(&mut dice, data.records, alert, actual)
            }
        });
        if let Some(disorder) = disorder {
            Disorder::new(disorder, "the input").check(&readings)?;
        }
        let job =
            graph(VecSource::from(readings.clone()), alert, disorder, &Watched(setup.sink), setup)?;
        let reference = Box::new(SmokeAlarmReference::new(readings.clone(), alert));
        let inputs = CaseInput::of(&job, vec![readings], Reading::to_string);
        Ok(Case { job, reference, inputs })
    }

    /// A declared disorder is checked by reading the file once before the job starts.
    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        let (alert, disorder) = (alert(setup)?, disorder::declared(setup)?);
        let input = files.input()?;
        let source = LineSource::new([input], FieldParser::<Self, _>::new(parse));
        if let Some(disorder) = disorder {
            let input = input.display().to_string();
            Disorder::new(disorder, &input).check_file(source.clone())?;
        }
        let ends = IntoOutput::new(files, setup.sink);
        let job = graph(source, alert, disorder, &ends, setup)?;
        Ok(ends.finish(job))
    }
}

fn graph(
    source: impl Source<Record = Reading>,
    alert: Alert,
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
    let Alert { hot, within } = alert;
    let smoke_after_heat =
        Pattern::begin("heat", move |reading: &Reading| reading.temperature > hot)
            .followed_by("smoke", |reading| reading.smoke)
            .within(within);
    let place_of = |reading: &Reading| (reading.at.event_time(), reading.offset);
    let found = readings.key_by_ref(|reading| &reading.sensor);
    let (alarms, expired) = found.pattern("detect", smoke_after_heat, place_of).fork();
    ends.end(alarms.filter_map("alarms", Alarm::of), "out");
    ends.end(expired.filter_map("expirations", Expired::of), "expired");
    Ok(builder.build(setup.config.clone())?)
}

fn alert(setup: &Setup) -> Result<Alert, JobError> {
    let hot = setup.parameters.read("hot", finite)?;
    let within = setup.parameters.read("within", parse_duration)?;
    Ok(Alert { hot, within })
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

impl ReadsLines for SmokeAlarm {
    const FORMAT: Format = Format::Csv(&["sensor", "time_s", "temperature", "smoke"]);
}

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
            shape: Shape { parallelism: 2, key_groups: None, first: None },
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
            ("d,0,20", "line 2: column 4: it is missing, the header names 4"),
        ] {
            assert_eq!(error(&[HEADER, line], &[]), sentence);
        }
    }

    #[test]
    fn a_reading_beyond_the_declared_disorder_is_refused_and_not_dropped() {
        let lines = [HEADER, "a,10,20,0", "b,8,20,0", "a,7.999,41,0"];
        assert_eq!(
            error(&lines, &[("disorder", "2s")]),
            "the input, line 3: the reading of a at 7.999 s comes 2001 ms after a later one, \
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
