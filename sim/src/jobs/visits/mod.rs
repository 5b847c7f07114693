//! Visits of pages that are counted as long as they are remembered: state with a time to live, over
//! event time.

mod count;
mod model;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cli")]
use cofferdam::connector::file::LineSource;
use cofferdam::connector::memory::VecSource;
use cofferdam::job::Job;
use cofferdam::operator::source::Source;
use cofferdam::state::codec::DecodeError;
use cofferdam::time::whole_millis;

use crate::dice::{Dice, Purpose};
use crate::jobs::disorder::{self, Disorder};
use crate::jobs::ends::{Ends, Watched, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FieldParser, FileJob, Files, IntoOutput};
use crate::jobs::lines::{Format, ReadsLines, cycle_lines};
use crate::jobs::parameters::parse_duration;
use crate::jobs::row::encoded_json;
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup};
use crate::reference::visits::VisitsReference;
use crate::workload::visits;

use count::Count;

pub use model::{Counted, Visit, Visitor};

/// The job.
pub(crate) struct Visits;

impl BuiltinJob for Visits {
    fn name(&self) -> &'static str {
        "visits"
    }

    fn about(&self) -> &'static str {
        "counts visits of pages until they are forgotten, for CSV rows visitor,time_s,page"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter {
                flag: "forget",
                default: "10m",
                help: "a page that was not visited for so long is forgotten",
            },
            disorder::PARAMETER,
        ]
    }

    fn reads(&self) -> Option<Format> {
        Some(Self::FORMAT)
    }

    fn row_json(&self, _uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Counted>(row)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let forget = forget(setup)?;
        let forget_ms = whole_millis(forget);
        let mut disorder = disorder::declared(setup)?;
        let visits = Arc::new(match &data.lines {
            Some(lines) => cycle_lines(lines, Self::FORMAT, data, parse)?,
            None => {
                let mut dice = Dice::new(data.seed, Purpose::Workload);
                let actual = disorder::draw(&mut dice, forget_ms, &mut disorder);
                visits::visits(&mut dice, data.records, forget_ms, actual)
            }
        });
        if let Some(disorder) = disorder {
            Disorder::new(disorder, "the input").check(&visits)?;
        }
        let source = VecSource::from(visits.clone());
        let job = graph(source, forget, disorder, &Watched(setup.sink), setup)?;
        let reference = Box::new(VisitsReference::new(visits.clone(), forget_ms));
        let inputs = CaseInput::of(&job, vec![visits], Visit::to_string);
        Ok(Case { job, reference, inputs })
    }

    /// A declared disorder is checked by reading the file once before the job starts.
    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        let (forget, disorder) = (forget(setup)?, disorder::declared(setup)?);
        let input = files.input()?;
        let source = LineSource::new([input], FieldParser::<Self, _>::new(parse));
        if let Some(disorder) = disorder {
            let input = input.display().to_string();
            Disorder::new(disorder, &input).check_file(source.clone())?;
        }
        let ends = IntoOutput::new(files, setup.sink);
        let job = graph(source, forget, disorder, &ends, setup)?;
        Ok(ends.finish(job))
    }
}

fn graph(
    source: impl Source<Record = Visit>,
    forget: Duration,
    disorder: Option<Duration>,
    ends: &impl Ends,
    setup: &Setup,
) -> Result<Job, JobError> {
    let builder = builder("visits", setup.shape);
    let visits = match disorder {
        Some(disorder) => {
            let time = |visit: &Visit| visit.at.event_time();
            builder.source_with_event_time("visits", source, time, disorder)
        }
        None => builder.source("visits", source),
    };
    let counted = visits.key_by_ref(|visit| &visit.visitor).process("count", Count::new(forget));
    ends.end(counted, "out");
    Ok(builder.build(setup.config.clone())?)
}

fn forget(setup: &Setup) -> Result<Duration, JobError> {
    setup.parameters.read("forget", parse_duration)
}

fn parse(offset: u64, fields: &[&str]) -> Result<Visit, String> {
    let (visitor, page) = (fields[0].to_owned(), fields[2].to_owned());
    Ok(Visit { visitor, at: fields[1].parse()?, page, offset })
}

impl ReadsLines for Visits {
    const FORMAT: Format = Format::Csv(&["visitor", "time_s", "page"]);
}
