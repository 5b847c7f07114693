//! By how much records may be out of order, as a user declares it.

use std::time::Duration;

use cofferdam::element::Record;
#[cfg(feature = "cli")]
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::time::whole_millis;

use crate::dice::Dice;
use crate::jobs::parameters::parse_duration;
use crate::jobs::seconds::Seconds;
use crate::jobs::{JobError, Parameter, Setup};
use crate::workload;

/// The parameter that declares it.
pub(crate) const PARAMETER: Parameter = Parameter {
    flag: "disorder",
    default: "end",
    help: "by how much a record may be older than one before it; end: by any time, nothing is \
           decided before the end of input",
};

/// What was declared; nothing if only the end of input says that no older record follows.
pub(crate) fn declared(setup: &Setup) -> Result<Option<Duration>, JobError> {
    setup.parameters.read("disorder", |text| match text {
        "end" => Ok(None),
        text => parse_duration(text).map(Some),
    })
}

/// Draws by how much an input is out of order that looks ahead by `span_ms`, unless it is declared;
/// most of what is drawn is declared then.
pub(crate) fn draw(dice: &mut Dice, span_ms: i64, declared: &mut Option<Duration>) -> Duration {
    let drawn = workload::disorder(dice, span_ms);
    let is_told = dice.chance(750);
    let actual = declared.unwrap_or(drawn);
    *declared = declared.or(is_told.then_some(drawn));
    actual
}

/// A record of something that happened at a time.
pub(crate) trait Happened: Record {
    /// When.
    fn at(&self) -> Seconds;
    /// Its place in the input.
    fn offset(&self) -> u64;
    /// What it is, for people, as in *the reading of s*.
    fn what(&self) -> String;
}

/// Finds the first record that is older than one before it by more than was declared.
pub(crate) struct Disorder<'a> {
    allowed_ms: i64,
    latest: Seconds,
    input: &'a str,
}

impl<'a> Disorder<'a> {
    pub(crate) fn new(allowed: Duration, input: &'a str) -> Self {
        let allowed_ms = whole_millis(allowed);
        Self { allowed_ms, latest: Seconds::from_millis(i64::MIN / 2), input }
    }

    /// By how many milliseconds a record of this time is behind a later one, if that is more than
    /// was declared.
    pub(crate) fn behind(&mut self, at: Seconds) -> Option<i64> {
        self.latest = self.latest.max(at);
        let behind = self.latest.as_millis() - at.as_millis();
        (behind > self.allowed_ms).then_some(behind)
    }

    pub(crate) fn check(&mut self, records: &[impl Happened]) -> Result<(), JobError> {
        for record in records {
            if let Some(behind) = self.behind(record.at()) {
                return Err(JobError::Input(format!(
                    "{}, line {}: {} at {} s comes {behind} ms after a later one, --disorder \
                     allows {} ms",
                    self.input,
                    record.offset() + 1,
                    record.what(),
                    record.at(),
                    self.allowed_ms
                )));
            }
        }
        Ok(())
    }

    #[cfg(feature = "cli")]
    pub(crate) fn check_file<R: Happened>(
        &mut self,
        mut source: impl Source<Record = R>,
    ) -> Result<(), JobError> {
        let wrong = |error: SourceError| JobError::Input(error.to_string());
        for mut part in source.discover(1).map_err(wrong)? {
            while let Fetch::Records(records) = source.read(&mut part, 1024).map_err(wrong)? {
                self.check(&records)?;
            }
        }
        Ok(())
    }
}
