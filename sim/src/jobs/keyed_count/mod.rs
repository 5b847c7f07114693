//! The measuring job: numbers spread over keys, and their running sum by key. Nothing on its way
//! allocates.

#[cfg(feature = "cli")]
mod origins;

use std::sync::Arc;

use cofferdam::connector::memory::Numbers;
use cofferdam::job::Job;
use cofferdam::state::codec::DecodeError;

use crate::jobs::ends::{Ends, Watched, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FileJob, Files, IntoOutput};
use crate::jobs::parameters::parse_count;
use crate::jobs::row::encoded_json;
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup};
use crate::reference::running::RunningReference;
use crate::workload::splitmix64;

/// The job.
pub(crate) struct KeyedCount;

impl BuiltinJob for KeyedCount {
    fn name(&self) -> &'static str {
        "keyed-count"
    }

    fn about(&self) -> &'static str {
        "sums up generated numbers by key: the measuring job"
    }

    fn parameters(&self) -> &'static [Parameter] {
        &[
            Parameter { flag: "records", default: "1M", help: "how many numbers are generated" },
            Parameter { flag: "keys", default: "100k", help: "how many keys they are spread over" },
        ]
    }

    fn row_json(&self, _uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<(u64, u64)>(row)
    }

    /// A case has at most an eighth as many keys as records, so that keys come again.
    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let keys = keys(setup)?.min((data.records as u64 / 8).max(1));
        let numbers = Arc::new((0..data.records as u64).collect::<Vec<_>>());
        let job = graph(Numbers::up_to(data.records as u64), keys, &Watched(setup.sink), setup)?;
        let pairs = numbers.iter().map(|number| (splitmix64(*number) % keys, *number));
        let reference = Box::new(RunningReference::of_pairs(pairs));
        let inputs = CaseInput::of(&job, vec![numbers], u64::to_string);
        Ok(Case { job, reference, inputs })
    }

    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        files.refuse_inputs()?;
        let records = setup.parameters.read("records", |text| match parse_count(text)? {
            records if records <= RECORDS_MAX => Ok(records),
            _ => Err(format!("at most {RECORDS_MAX}, so that no sum overflows")),
        })?;
        let (keys, source) = (keys(setup)?, Numbers::up_to(records));
        let ends = IntoOutput::new(files, setup.sink);
        let job = match files.origins {
            true => origins::graph(source, keys, &ends, setup)?,
            false => graph(source, keys, &ends, setup)?,
        };
        Ok(ends.finish(job))
    }
}

fn graph(source: Numbers, keys: u64, ends: &impl Ends, setup: &Setup) -> Result<Job, JobError> {
    let builder = builder("keyed-count", setup.shape);
    let sums = builder
        .source("numbers", source)
        .map("spread", move |number| (splitmix64(number) % keys, number))
        .key_by_ref(|pair: &(u64, u64)| &pair.0)
        .aggregate("fold", 0, |sum: &mut u64, pair| *sum += pair.1);
    ends.end(sums, "out");
    Ok(builder.build(setup.config.clone())?)
}

fn keys(setup: &Setup) -> Result<u64, JobError> {
    setup.parameters.read("keys", |text| match parse_count(text)? {
        0 => Err("there must be at least one key".to_owned()),
        keys => Ok(keys),
    })
}

/// The numbers below this sum up to less than 2^63.
#[cfg(feature = "cli")]
const RECORDS_MAX: u64 = 1 << 32;
