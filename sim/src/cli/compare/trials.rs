//! Runs at a pace that is the same for all contenders: one that nothing happens to, for the latency
//! of rows, and some that are killed, for how long nothing new comes and what is lost or repeated.

use std::path::Path;
use std::time::Duration;

use cofferdam::guarantee::Claim;

use super::latency::{Percentiles, Reader, Sight};
use super::pace::{Nanos, Pace, Schedule, nanos, noted, now};
use super::runs::{Contender, Place, Report, Running, Runs, failed};
use super::workload::Workload;
use crate::cli::exit::Failure;
use crate::cli::torture::{Findings, Judge};
use crate::jobs::{BuiltinJob, Output, Parameters};

/// What all paced runs have in common.
pub(super) struct Trials<'a> {
    pub(super) runs: &'a Runs,
    pub(super) workload: &'a Workload,
    pub(super) job: &'static dyn BuiltinJob,
    pub(super) parameters: Parameters,
    /// Records in a second, of all sources together.
    pub(super) rate: u64,
    pub(super) length: Duration,
}

/// What came of a run that nothing happened to.
pub(super) struct Calm {
    /// None if its rows do not say which record they come from.
    pub(super) latency: Option<Percentiles>,
}

/// What came of a run that was killed and resumed.
#[derive(Debug)]
pub(super) struct Struck {
    /// From the kill until a row of a record was seen that was due after the kill.
    pub(super) recovery: Option<Duration>,
    /// How many records that had been read before the kill were read again.
    pub(super) replayed: u64,
    /// How many rows a run without failures has.
    pub(super) rows: u64,
    pub(super) findings: Findings,
}

impl Trials<'_> {
    /// What a contender claims.
    pub(super) fn claim(&self, contender: Contender) -> Result<Claim, Failure> {
        Ok(self.judge(contender, CLAIM_RECORDS)?.claim())
    }

    /// A run from beginning to end.
    pub(super) fn calm(&self, contender: Contender) -> Result<Result<Calm, String>, Failure> {
        let trial = self.begin(contender)?;
        let mut reader = trial.reader();
        let mut run = trial.start(&[])?;
        self.runs.watch(&mut run, || reader.look().map(|()| false))?;
        reader.look().map_err(|error| failed(&error))?;
        if let Err(problem) = self.runs.finish(run)? {
            return Ok(Err(problem));
        }
        let findings = trial.judge.judge(&trial.output())?;
        self.runs.clear(&trial.place);
        if let Some(wrong) = wrong_without_failure(&findings) {
            return Ok(Err(wrong));
        }
        let begin = trial.schedule.pace.begin;
        let from = begin + nanos(self.length / WARM_UP_SHARE);
        let latency = Percentiles::of(&reader.sights(), &trial.schedule, from);
        Ok(Ok(Calm { latency }))
    }

    /// A run that is killed about half-way, the `nth` one somewhat later than the one before, and
    /// resumed at once.
    pub(super) fn struck(
        &self,
        contender: Contender,
        nth: usize,
    ) -> Result<Result<Struck, String>, Failure> {
        for _ in 0..TRIES {
            let trial = self.begin(contender)?;
            let mut reader = trial.reader();
            let killed = match self.kill(&trial, &mut reader, nth)? {
                Killed::At(killed) => killed,
                Killed::TooLate => continue,
                Killed::Died(problem) => return Ok(Err(problem)),
            };
            let mut run = trial.start(&[])?;
            self.runs.watch(&mut run, || reader.look().map(|()| false))?;
            reader.look().map_err(|error| failed(&error))?;
            return match self.runs.finish(run)? {
                Ok(report) => trial.judged(&reader, killed, &report).map(Ok),
                Err(problem) => Ok(Err(format!("killed, it could not go on: {problem}"))),
            };
        }
        let text = format!("it had come to its end before it was killed, {TRIES} times");
        Ok(Err(text))
    }

    /// Starts a run and kills it.
    fn kill(&self, trial: &Trial<'_>, reader: &mut Reader, nth: usize) -> Result<Killed, Failure> {
        let mut run = trial.start(&["--pace-log", &trial.log()])?;
        let later = self.runs.common.interval.min(self.length / 4) * (nth as u32 % PHASES) / PHASES;
        let moment = trial.schedule.pace.begin + nanos(self.length / 2 + later);
        self.runs.watch(&mut run, || reader.look().map(|()| now() >= moment))?;
        let has_ended = run.has_ended()?;
        run.kill()?;
        let killed = now();
        Ok(match self.runs.finish(run)? {
            Ok(_) => Killed::TooLate,
            Err(problem) if has_ended => Killed::Died(problem),
            Err(_) => Killed::At(killed),
        })
    }

    fn begin(&self, contender: Contender) -> Result<Trial<'_>, Failure> {
        let records = (self.rate as f64 * self.length.as_secs_f64()).max(1.0) as u64;
        let input = self.workload.input(self.runs, records)?;
        let firsts = self.workload.firsts(&input, self.runs.common.parallelism);
        let firsts = firsts.map_err(|error| Failure::input(error.to_string()))?;
        let judge = self.judge(contender, records)?;
        // The first record is due when the run will have started.
        let pace = Pace { per_second: self.rate, begin: now() + nanos(START) };
        let schedule = Schedule { pace, firsts };
        let place = self.runs.place(input);
        Ok(Trial { runs: self.runs, contender, schedule, place, judge, records })
    }

    fn judge(&self, contender: Contender, records: u64) -> Result<Judge, Failure> {
        let parameters = self.parameters.clone();
        let mut setup = contender.mode.setup(self.runs.common.parallelism, parameters);
        setup.config.state = contender.state;
        let judge = match self.workload {
            Workload::Lines { format, .. } => {
                let lines = self.workload.lines(records);
                Judge::of_lines(self.job, &setup, *format, lines)
            }
            Workload::Numbers { .. } => Judge::of_records(self.job, &setup, records),
        };
        Ok(judge?)
    }
}

/// One place, from the start of its schedule on.
struct Trial<'a> {
    runs: &'a Runs,
    contender: Contender,
    schedule: Schedule,
    place: Place,
    judge: Judge,
    records: u64,
}

/// What became of a run that was to be killed.
enum Killed {
    At(Nanos),
    /// It had done its work, on a machine with other things to do.
    TooLate,
    /// Of its own.
    Died(String),
}

impl Trial<'_> {
    /// What came of it, killed and resumed.
    fn judged(&self, reader: &Reader, killed: Nanos, report: &Report) -> Result<Struck, Failure> {
        let findings = self.judge.judge(&self.output())?;
        self.runs.clear(&self.place);
        let read = noted(Path::new(&self.log()), self.schedule.firsts.len() as u64);
        let resumed_at = self.records.saturating_sub(report.records_in);
        Ok(Struck {
            recovery: recovery(&reader.sights(), &self.schedule, killed),
            replayed: read.saturating_sub(resumed_at),
            rows: self.judge.rows_expected(),
            findings,
        })
    }

    /// Beside this the first run notes how far it has read.
    fn log(&self) -> String {
        self.place.output.to_string_lossy().into_owned()
    }

    fn start(&self, more: &[&str]) -> Result<Running, Failure> {
        let pace = self.schedule.pace.to_string();
        let words = [&["--origins", "--pace", &pace], more].concat();
        self.runs.start(self.contender, &self.place, &words)
    }

    fn reader(&self) -> Reader {
        Reader::new(self.place.output.clone(), self.contender.mode.sink)
    }

    fn output(&self) -> Output {
        Output::Folder(self.place.output.clone())
    }
}

/// From the kill until a row was seen of a record that was due behind it.
fn recovery(sights: &[Sight], schedule: &Schedule, killed: Nanos) -> Option<Duration> {
    let fresh = sights.iter().filter(|sight| schedule.due(sight.offset) > killed);
    let first = fresh.map(|sight| sight.at).min()?;
    Some(Duration::from_nanos(first.saturating_sub(killed)))
}

/// Without a failure nothing may be lost or repeated, whatever is claimed.
fn wrong_without_failure(findings: &Findings) -> Option<String> {
    let Findings { lost, duplicated, wrong, .. } = findings;
    (lost + duplicated + wrong > 0).then(|| {
        let example = findings.examples.first().map(|text| format!(", for example: {text}"));
        format!(
            "without any failure {lost} rows were lost, {duplicated} duplicated and {wrong} \
             wrong{}",
            example.unwrap_or_default()
        )
    })
}

/// How long a run has to start before its first record is due.
const START: Duration = Duration::from_millis(300);
/// The first part of a run does not count for latency: caches and files are new then.
const WARM_UP_SHARE: u32 = 5;
/// Kills fall on so many places between two checkpoints.
const PHASES: u32 = 3;
/// How often it is tried to kill a run before its end.
const TRIES: u32 = 3;
/// Enough to look at what a job claims.
const CLAIM_RECORDS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_ends_with_the_first_record_that_was_due_behind_the_kill() {
        let ms = 1_000_000;
        let pace = Pace { per_second: 1000, begin: 0 };
        let schedule = Schedule { pace, firsts: vec![0] };
        let sight = |offset, at: Nanos| Sight { at: at * ms, offset };
        // Record 90 waits for its commit at the kill and is committed before anything is read.
        let sights = [sight(10, 12), sight(90, 110), sight(99, 150), sight(101, 170)];
        let found = recovery(&sights, &schedule, 100 * ms);
        assert_eq!(found, Some(Duration::from_millis(70)));
        assert_eq!(recovery(&sights[..3], &schedule, 100 * ms), None);
    }
}
