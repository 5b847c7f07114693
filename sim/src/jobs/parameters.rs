//! The parameters of the built-in jobs: texts as users give them, read when a job asks for them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::jobs::{BuiltinJob, JobError};

/// Something about a job that users can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name, without dashes.
    pub flag: &'static str,
    /// What holds if it is not set, as a user would write it.
    pub default: &'static str,
    /// What it is for, in one line.
    pub help: &'static str,
}

/// The values of a job's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    values: BTreeMap<&'static str, String>,
}

impl Parameters {
    /// Those of a job that has none.
    pub const fn none() -> Self {
        Self { values: BTreeMap::new() }
    }

    /// The defaults of `job`.
    pub fn of(job: &dyn BuiltinJob) -> Self {
        let defaults = job.parameters().iter().chain(job.case_parameters());
        Self { values: defaults.map(|known| (known.flag, known.default.to_owned())).collect() }
    }

    /// The defaults of `job`, but for what is `given` as (flag, value).
    ///
    /// # Errors
    /// If the job has no such parameter.
    pub fn given<'a>(
        job: &dyn BuiltinJob,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, JobError> {
        let mut parameters = Self::of(job);
        for (flag, value) in given {
            let Some(slot) = parameters.values.get_mut(flag) else {
                return Err(JobError::UnknownParameter { job: job.name(), flag: flag.to_owned() });
            };
            value.clone_into(slot);
        }
        Ok(parameters)
    }

    /// Every parameter and its value.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(flag, value)| (*flag, value.as_str()))
    }

    /// What differs from the defaults of `job`.
    pub fn changed(&self, job: &dyn BuiltinJob) -> BTreeMap<String, String> {
        let defaults = Self::of(job);
        let changed = self.values.iter().filter(|(flag, value)| {
            defaults.values.get(*flag).is_none_or(|default| default != *value)
        });
        changed.map(|(flag, value)| ((*flag).to_owned(), value.clone())).collect()
    }

    /// The text of a parameter.
    ///
    /// # Panics
    /// If the job did not list it.
    pub(crate) fn text(&self, flag: &'static str) -> &str {
        &self.values[flag]
    }

    /// A parameter read by `parse`.
    pub(crate) fn read<T>(
        &self,
        flag: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, JobError> {
        let value = self.text(flag);
        parse(value).map_err(|reason| JobError::Parameter { flag, value: value.to_owned(), reason })
    }
}

/// Reads a count: `1000`, `1_000`, `10k`, `1M`.
///
/// # Errors
/// If it is none, with the reason.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1_000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    let number = digits.replace('_', "").parse::<u64>().ok();
    number
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| "not a count such as 1000, 1_000, 10k or 1M".to_owned())
}

/// Reads a duration: `250ms`, `1s`, `10m`, `1h`.
///
/// # Errors
/// If it is none, with the reason.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(unit_at);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    millis
        .and_then(|millis| number?.checked_mul(millis))
        .map(Duration::from_millis)
        .ok_or_else(|| "not a duration such as 250ms, 1s, 10m or 1h".to_owned())
}
