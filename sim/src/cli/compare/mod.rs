//! `compare`: the real engine under every mode on the same input, and what each costs and buys:
//! records a second, the latency of rows, checkpoints, and what comes of a kill.

mod baseline;
mod latency;
mod measure;
mod pace;
mod page;
mod plot;
mod row;
mod runs;
mod select;
mod table;
mod trials;
mod workload;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{Console, millis, seconds};
use crate::cli::signals::stop_flag;
use crate::cli::simulated::build;
use crate::cli::torture::{Judge, read_input};
use crate::cli::values::{JobParameters, find_job, interval, positive, positive_size};
use crate::jobs::{BuiltinJob, Files, Format, Output, parse_count};

use baseline::{Baselines, Changes, Settings, percent};
use measure::{Measured, Target, measure};
use row::Row;
use runs::{Common, Contender, Input, Runs};
use select::SelectArgs;
use trials::Trials;
use workload::Workload;

pub(crate) use pace::Pace;

/// Measure what each guarantee costs and buys, on the real engine
///
/// Every mode reads the same input, in rounds of alternating order. Its throughput is also given as
/// a ratio to no guarantee (at-most-once by none), taken within each round. Runs at a pace that is
/// the same for all show how long it takes from when a record is due until its rows can be seen.
/// Runs that are killed by SIGKILL and resumed show how long nothing new comes, and what is read
/// again, lost or repeated. Each run is a process of its own.
#[derive(Debug, Args)]
#[command(
    mut_arg(RECORDS, |arg| arg.help(RECORDS_HELP).value_name("N").help_heading("Measuring")),
    mut_arg(SPLITS, |arg| arg.hide(true))
)]
pub(crate) struct CompareArgs {
    /// The job
    #[arg(long, value_name = "JOB", default_value = "wordcount")]
    job: String,
    /// What it reads: again and again if it is short, and as much as it has time for if it is long
    /// [default: a generated text, for a job that reads text]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Subtasks of each operator
    #[arg(long, value_name = "N", value_parser = positive_size, default_value = "2")]
    parallelism: usize,
    /// The time between two checkpoints
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "200ms")]
    checkpoint_interval: Duration,
    #[command(flatten)]
    selected: SelectArgs,
    #[command(flatten)]
    measuring: MeasureArgs,
    #[command(flatten)]
    kept: KeepArgs,
    #[command(flatten)]
    parameters: JobParameters,
}

/// How it is measured.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Measuring")]
struct MeasureArgs {
    /// How many rounds there are
    #[arg(long, value_name = "N", value_parser = positive_size, default_value = "5")]
    repeats: usize,
    /// About how long each run for throughput takes, unless --records says how many records it
    /// reads; runs at a pace take twice that
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "1s")]
    length: Duration,
    /// How many records a second are due in the runs at a pace [default: a quarter of what the
    /// slowest mode can take, at most 2000]
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<u64>,
    /// How often each mode is killed, each time in another run
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "2")]
    failures: u64,
    /// Where inputs and outputs lie while it is measured: on the disk whose speed counts [default:
    /// the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// What is kept of the results, and what they are compared with.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Results")]
struct KeepArgs {
    /// A folder for a page with plots, and for the rows as JSON
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Keep the rows under this name
    #[arg(long, value_name = "NAME", value_parser = baseline::name)]
    save: Option<String>,
    /// Compare with the rows of this name; exit code 1 if a mode is slower, against no guarantee,
    /// than it was
    #[arg(long, value_name = "NAME", value_parser = baseline::name)]
    against: Option<String>,
    /// By how much it may be slower
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "10%")]
    regression: f64,
    /// Where rows are kept
    #[arg(long, value_name = "DIR", default_value = ".cofferdam/compare")]
    baselines: PathBuf,
}

/// What all of it came to.
#[derive(Serialize)]
struct Summary<'a> {
    schema: &'static str,
    #[serde(flatten)]
    settings: &'a Settings,
    rows: usize,
    repeats: usize,
    failures: u64,
    /// How many records were due in a second in the runs at a pace.
    rate_records_per_s: u64,
    build: String,
    machine: String,
    /// Rows whose runs failed or whose output was wrong.
    failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a Changes>,
    wall_s: f64,
}

pub(crate) fn compare(args: &CompareArgs, console: &Console) -> Result<Exit, Failure> {
    let started = Instant::now();
    let job = find_job("compare", &args.job)?;
    let workload = args.workload(job)?;
    let settings = args.settings(job, &workload)?;
    let parameters = args.of_job().without(&["keys"]).words().collect();
    let common = Common {
        job: job.name(),
        parallelism: args.parallelism,
        interval: args.checkpoint_interval,
        state_latency: args.selected.state_latency,
        parameters,
    };
    let runs = Runs::new(common, args.measuring.scratch.as_deref(), stop_flag()?)?;
    let contenders = args.contenders(job, &runs, &workload, console)?;
    let baselines = Baselines::new(&args.kept.baselines);
    // What can not be compared is refused before minutes are spent.
    let before = args.kept.against.as_deref().map(|name| baselines.read(name)).transpose()?;
    if let Some(before) = &before {
        before.check(&settings, &contenders)?;
        before.warn(console);
    }
    let results = args.results(job, &runs, &workload, &contenders, console)?;
    let rows = &results.rows;
    let changes = before.as_ref().map(|before| before.changes(rows, args.kept.regression));
    let summary = Summary {
        schema: "cofferdam.compare/1",
        settings: &settings,
        rows: rows.len(),
        repeats: args.measuring.repeats,
        failures: args.measuring.failures,
        rate_records_per_s: results.rate,
        build: build(),
        machine: baseline::machine(),
        failed: rows.iter().filter(|row| row.has_failed()).count(),
        changes: changes.as_ref(),
        wall_s: seconds(started.elapsed()),
    };
    match console.is_json() {
        true => {
            rows.iter().for_each(|row| console.row(row));
            console.row(&summary);
        }
        false => table::tell(rows, &summary, console),
    }
    if let Some(folder) = &args.kept.out {
        page::write(folder, rows, &summary, console)?;
    }
    if let Some(name) = &args.kept.save {
        baselines.save(name, &settings, rows, console)?;
    }
    conclude(rows, changes.as_ref())
}

/// The exit code: what failed comes first, since nothing else can be said of it.
fn conclude(rows: &[Row], changes: Option<&Changes>) -> Result<Exit, Failure> {
    if let Some(row) = rows.iter().find(|row| row.has_failed()) {
        let text = format!("{}: {}", row.contender.mode, row.why_failed());
        return Err(Failure::again(Exit::Violated, text));
    }
    if let Some(text) = changes.and_then(Changes::slower) {
        return Err(Failure::again(Exit::Violated, text));
    }
    match rows.iter().find_map(|row| Some((row, row.unjudged.as_ref()?))) {
        Some((row, reason)) => {
            let text = format!("{}: its output was not judged: {reason}", row.contender.mode);
            Err(Failure::again(Exit::Unknown, text))
        }
        None => Ok(Exit::Done),
    }
}

/// What was measured.
struct Results {
    rows: Vec<Row>,
    rate: u64,
}

impl CompareArgs {
    fn results(
        &self,
        job: &'static dyn BuiltinJob,
        runs: &Runs,
        workload: &Workload,
        contenders: &[Contender],
        console: &Console,
    ) -> Result<Results, Failure> {
        let MeasureArgs { repeats, length, failures, .. } = self.measuring;
        let target = match self.records()? {
            Some(records) => Target::Records(records),
            None => Target::Length(length),
        };
        let steps = (1 + repeats as u64 + 1 + failures) * contenders.len() as u64;
        let progress = Progress::new(console, steps);
        let measured = measure(runs, workload, contenders, (repeats, target), &progress)?;
        let rate = self.measuring.rate.unwrap_or_else(|| rate_for(&measured));
        let parameters = self.of_job().of(job)?;
        let trials = Trials { runs, workload, job, parameters, rate, length: length * 2 };
        let mut rows: Vec<Row> = Vec::new();
        for of in &measured {
            rows.push(Row::new(of, &measured[0], trials.claim(of.contender)?));
        }
        for row in rows.iter_mut().filter(|row| row.can_be_tried()) {
            progress.tell(&format!("at {rate} records a second: {}", row.contender.mode));
            row.take_calm(trials.calm(row.contender)?);
            progress.step();
        }
        for nth in 0..failures as usize {
            for place in measure::order(nth, rows.len()) {
                let row = &mut rows[place];
                if row.can_be_tried() {
                    progress.tell(&format!("kill {}: {}", nth + 1, row.contender.mode));
                    row.take_struck(trials.struck(row.contender, nth)?);
                }
                progress.step();
            }
        }
        Ok(Results { rows, rate })
    }

    /// What is compared, behind what it is compared with.
    fn contenders(
        &self,
        job: &dyn BuiltinJob,
        runs: &Runs,
        workload: &Workload,
        console: &Console,
    ) -> Result<Vec<Contender>, Failure> {
        let parameters = self.of_job().of(job)?;
        let place = runs.place(workload.input(runs, SAMPLE_RECORDS)?);
        let inputs = match place.input {
            Input::File(path) => vec![path],
            Input::Numbers { .. } => Vec::new(),
        };
        let files = Files { inputs, output: Output::Folder(place.output), origins: true };
        self.selected.contenders(console, |contender| {
            let mut setup = contender.mode.setup(self.parallelism, parameters.clone());
            setup.config.state = contender.state;
            job.over_files(&files, &setup).err().map(|error| error.to_string())
        })
    }

    fn workload(&self, job: &'static dyn BuiltinJob) -> Result<Workload, Failure> {
        let refuse = |text: String| Err(Failure::usage("compare", text));
        if self.parameters.given(SPLITS).is_some() {
            return refuse("--splits: parts that tasks ask for have no pace: leave it out".into());
        }
        let parameters = self.of_job().of(job)?;
        match (job.reads(), &self.input) {
            (Some(format), Some(path)) => {
                let lines = read_input(path)?;
                let at = |error: String| Failure::input(format!("{}: {error}", path.display()));
                let setup = self.selected.base().mode.setup(self.parallelism, parameters);
                // What is wrong in the input is no fault of a mode.
                Judge::of_lines(job, &setup, format, lines.clone())
                    .map_err(|error| at(error.to_string()))?;
                Workload::of_lines(format, lines).ok_or_else(|| at("it holds no record".into()))
            }
            (Some(Format::Text), None) => Ok(Workload::text(GENERATED_LINES)),
            (Some(format), None) => refuse(format!("--input is missing: the job reads {format}")),
            (None, Some(path)) => {
                refuse(format!("--input {}: the job makes its own input", path.display()))
            }
            (None, None) => Ok(Workload::Numbers { keys: parameters.read("keys", parse_count)? }),
        }
    }

    /// How many records each run for throughput reads, if that was said.
    fn records(&self) -> Result<Option<u64>, Failure> {
        let read = |text| {
            positive(text)
                .map_err(|reason| Failure::usage("compare", format!("--records {text}: {reason}")))
        };
        self.parameters.given(RECORDS).map(read).transpose()
    }

    /// The parameters of the job: how many records there are is said to each run.
    fn of_job(&self) -> JobParameters {
        self.parameters.without(&[RECORDS])
    }

    fn settings(&self, job: &dyn BuiltinJob, workload: &Workload) -> Result<Settings, Failure> {
        Ok(Settings {
            job: job.name().to_owned(),
            input: workload.contents(),
            parameters: self.of_job().of(job)?.changed(job),
            parallelism: self.parallelism,
            checkpoint_interval_ms: millis(self.checkpoint_interval),
            state_latency_ms: self.selected.state_latency.map(millis),
        })
    }
}

/// A pace that every contender keeps with ease.
fn rate_for(measured: &[Measured]) -> u64 {
    let rates = measured.iter().filter_map(|of| Some(of.rate()?.median));
    let slowest = rates.fold(f64::INFINITY, f64::min);
    ((slowest / 4.0) as u64).clamp(1, RATE_MAX)
}

/// How far it has come: a bar on a terminal, a line now and then elsewhere.
struct Progress<'a> {
    console: &'a Console,
    bar: ProgressBar,
    steps: u64,
    begun: Instant,
    done: Cell<u64>,
    /// How often a line has been due.
    told: Cell<u64>,
}

impl<'a> Progress<'a> {
    fn new(console: &'a Console, steps: u64) -> Self {
        let (bar, begun) = (console.bar(steps), Instant::now());
        Self { console, bar, steps, begun, done: Cell::new(0), told: Cell::new(0) }
    }

    /// What is done now.
    fn tell(&self, text: &str) {
        self.bar.set_message(text.to_owned());
        let due = self.begun.elapsed().as_secs() / LINE_EVERY_SECONDS;
        if self.bar.is_hidden() && self.told.replace(due) < due {
            let (done, all) = (self.done.get(), self.steps);
            self.console.note(format!("{done} of {all} steps; {text}"));
        }
    }

    /// That is done.
    fn step(&self) {
        self.done.set(self.done.get() + 1);
        self.bar.inc(1);
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

const RECORDS: &str = "records";
const RECORDS_HELP: &str = "How many records each run for throughput reads [default: as many as \
                            take about --length]";
/// A parameter that the comparison has no use for.
const SPLITS: &str = "splits";
/// Enough to look at a job.
const SAMPLE_RECORDS: u64 = 16;
const GENERATED_LINES: usize = 20_000;
/// What comes of more is more than can be judged in the time.
const RATE_MAX: u64 = 2_000;
const LINE_EVERY_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cli::output::ConsoleArgs;
    use crate::cli::torture::Verdict;
    use crate::jobs::Parameters;

    /// The program that a test runs in knows no `run`: all its runs fail.
    #[test]
    fn a_mode_whose_runs_fail_has_a_row_that_says_so() {
        let common = Common {
            job: "wordcount",
            parallelism: 1,
            interval: Duration::from_millis(50),
            state_latency: None,
            parameters: Vec::new(),
        };
        let runs = Runs::new(common, None, Arc::default()).unwrap();
        let workload = Workload::text(10);
        let console = Console::new(&ConsoleArgs::default());
        let job = find_job("compare", "wordcount").unwrap();
        let select = SelectArgs::default();
        let contenders = select.contenders(&console, |_| None).unwrap();
        let progress = Progress::new(&console, 1);
        let target = (2, Target::Records(10));
        let measured = measure(&runs, &workload, &contenders[..2], target, &progress).unwrap();
        let parameters = Parameters::of(job);
        let (rate, length) = (rate_for(&measured), Duration::from_millis(100));
        let trials = Trials { runs: &runs, workload: &workload, job, parameters, rate, length };
        let claim = trials.claim(contenders[1]).unwrap();
        let row = Row::new(&measured[1], &measured[0], claim);
        assert!(row.has_failed() && !row.can_be_tried(), "{row:?}");
        assert_eq!((row.records_per_s, row.output_verdict), (None, Verdict::Unknown));
        let failure = conclude(&[row], None).unwrap_err();
        assert_eq!(failure.exit, Exit::Violated);
        assert!(failure.text.starts_with("at-least-once, tracked, plain: "), "{failure:?}");
    }
}
