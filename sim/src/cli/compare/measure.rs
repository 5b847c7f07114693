//! How many records a second each contender takes in: rounds in alternating order, so that a
//! machine that grows slower or faster treats all alike, and ratios that are taken within a round.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Progress;
use super::runs::{Contender, Report, Runs};
use super::workload::Workload;
use crate::cli::exit::Failure;

/// The middle of several numbers, the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// That of some numbers, if there are any.
    pub(super) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len().is_multiple_of(2) {
            true => f64::midpoint(sorted[middle - 1], sorted[middle]),
            false => sorted[middle],
        };
        Some(Self { median, min, max })
    }
}

/// What came of a contender's runs.
pub(super) struct Measured {
    pub(super) contender: Contender,
    /// How many records each run reads.
    pub(super) records: u64,
    /// By round; none if the run failed.
    pub(super) reports: Vec<Option<Report>>,
    pub(super) problems: Vec<String>,
}

impl Measured {
    pub(super) fn rate(&self) -> Option<Spread> {
        Spread::of(self.rates().flatten())
    }

    /// The ratio to another contender, taken in each round.
    pub(super) fn relative_to(&self, base: &Self) -> Option<Spread> {
        let pairs = self.rates().zip(base.rates());
        Spread::of(pairs.filter_map(|(own, of_base)| Some(own? / of_base?)))
    }

    fn rates(&self) -> impl Iterator<Item = Option<f64>> {
        self.reports.iter().map(|report| report.as_ref().map(|report| report.records_per_s))
    }

    /// The median of something that runs report.
    pub(super) fn median(&self, of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
        Spread::of(self.reports.iter().flatten().filter_map(of)).map(|spread| spread.median)
    }
}

/// How much a run reads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Records(u64),
    /// What takes about so long.
    Length(Duration),
}

/// Measures how fast each contender is in `repeats` rounds; the first one is the one that the
/// others are compared with.
pub(super) fn measure(
    runs: &Runs,
    workload: &Workload,
    contenders: &[Contender],
    (repeats, target): (usize, Target),
    progress: &Progress<'_>,
) -> Result<Vec<Measured>, Failure> {
    let bench = Bench { runs, workload, target };
    let mut all = Vec::new();
    for contender in contenders {
        progress.tell(&format!("warming up {}", contender.mode));
        all.push(bench.warm_up(*contender)?);
        progress.step();
    }
    same_records(&mut all);
    for round in 0..repeats {
        for place in order(round, all.len()) {
            let of = &mut all[place];
            progress.tell(&format!("round {} of {repeats}: {}", round + 1, of.contender.mode));
            // One that has failed fails again, and its row says why.
            let report = match of.problems.is_empty() {
                true => Some(bench.run(of.contender, of.records)?),
                false => None,
            };
            match report {
                Some(Ok(report)) => of.reports.push(Some(report)),
                Some(Err(problem)) => {
                    of.reports.push(None);
                    of.problems.push(problem);
                }
                None => of.reports.push(None),
            }
            progress.step();
        }
    }
    Ok(all)
}

/// The order of a round: forwards and backwards in turn.
pub(super) fn order(round: usize, contenders: usize) -> Vec<usize> {
    match round.is_multiple_of(2) {
        true => (0..contenders).collect(),
        false => (0..contenders).rev().collect(),
    }
}

/// Lets all read as many records as the first one; fewer only who would take twice as long.
fn same_records(all: &mut [Measured]) {
    let Some(most) = all.first().map(|first| first.records) else { return };
    for of in all {
        of.records = if of.records >= most / 2 { most } else { of.records };
    }
}

struct Bench<'a> {
    runs: &'a Runs,
    workload: &'a Workload,
    target: Target,
}

impl Bench<'_> {
    /// Finds how many records a run is to read; on the way caches grow warm.
    fn warm_up(&self, contender: Contender) -> Result<Measured, Failure> {
        let (mut records, mut problems) = (RECORDS_FIRST, Vec::new());
        loop {
            let wanted = match (self.run(contender, records)?, self.target) {
                (Err(problem), _) => {
                    problems.push(problem);
                    break;
                }
                (Ok(_), Target::Records(wanted)) => wanted,
                (Ok(report), Target::Length(length)) => {
                    let wanted = (report.records_per_s * length.as_secs_f64()) as u64;
                    self.workload.at_most(wanted.max(1))
                }
            };
            let is_near = wanted / NEAR <= records;
            // What a short run says of a long one is not to be trusted.
            let most = records.saturating_mul(GROWTH_MAX);
            records = if is_near { wanted } else { wanted.min(most) };
            if is_near {
                break;
            }
        }
        Ok(Measured { contender, records, reports: Vec::new(), problems })
    }

    /// One run over so many records: its report, or what was wrong with it.
    fn run(&self, contender: Contender, records: u64) -> Result<Result<Report, String>, Failure> {
        let place = self.runs.place(self.workload.input(self.runs, records)?);
        let run = self.runs.start(contender, &place, &[])?;
        let ended = self.runs.finish(run)?;
        self.runs.clear(&place);
        // A run that has not read what it was given was not fast, and what it has read again, since
        // it was slow to acknowledge it, does not count.
        Ok(ended.and_then(|report| match report.records_in >= records {
            true => {
                let once = records as f64 / report.records_in as f64;
                Ok(Report { records_per_s: report.records_per_s * once, ..report })
            }
            false => Err(format!("{} of {records} records were read", report.records_in)),
        }))
    }
}

/// The first run of a contender reads so many.
const RECORDS_FIRST: u64 = 2_000;
/// A run grows at most by so much over the one before.
const GROWTH_MAX: u64 = 16;
/// A warm-up has come far enough when a run is to be less than so many times as long.
const NEAR: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_stands_in_the_middle() {
        let of = |numbers: &[f64]| Spread::of(numbers.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(of(&[4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn rounds_go_forwards_and_backwards() {
        assert_eq!([0, 1, 2].map(|round| order(round, 3)), [[0, 1, 2], [2, 1, 0], [0, 1, 2]]);
    }
}
