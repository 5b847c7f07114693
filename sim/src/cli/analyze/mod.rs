//! `analyze`: the claim that follows from a job's parts, and, if asked, a trial of it.

mod trial;

use clap::Args;
use cofferdam::guarantee::{Claim, Level, Mechanism, StateHome};
use cofferdam::job::InferredClaim;
use serde::Serialize;

use crate::check::{self, Variation};
use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, ModeArgs, sample};
use crate::cli::output::{Console, Paint, Painted, Table};
use crate::cli::simulated::Faults;
use crate::cli::state::check_home;
use crate::cli::values::{CaseParameters, find_job, positive, seed, word};
use crate::jobs::{self, BuiltinJob, CaseData, Setup};

use trial::{Trial, conclude, try_all};

/// Say what a job promises in a mode, and why
#[derive(Debug, Args)]
#[command(override_usage = "cofferdam analyze [OPTIONS] <JOB>\n       \
                      cofferdam analyze [OPTIONS] --matrix [JOB]")]
pub(crate) struct AnalyzeArgs {
    /// The job; with --matrix every job if it is left out
    #[arg(required_unless_present = "matrix")]
    job: Option<String>,
    /// Every guarantee, mechanism and sink, for JOB or for all jobs: what each combination
    /// promises, or why it can not be
    #[arg(long, conflicts_with_all = ["guarantee", "mechanism", "sink"])]
    matrix: bool,
    /// Where keyed state lives
    #[arg(long, value_name = "WHERE", value_parser = word::<StateHome>(), default_value = "heap")]
    state: StateHome,
    /// Put each claim to the test over so many seeds, and look for a counter-example to the next
    /// stronger one
    #[arg(long, value_name = "N", value_parser = positive)]
    seeds: Option<u64>,
    /// The faults of that test
    #[arg(long, value_enum, default_value_t = Faults::Default, requires = "seeds")]
    faults: Faults,
    /// What random-graph is drawn from
    #[arg(long, value_parser = seed, default_value = "0")]
    seed: u64,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    parameters: CaseParameters,
}

/// The claim of one job in one mode, or why there is none.
#[derive(Serialize)]
struct ClaimRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    job: &'static str,
    #[serde(flatten)]
    mode: Mode,
    /// Where keyed state lives.
    state_home: StateHome,
    /// None if the parts do not go together.
    claim: Option<Claim>,
    sinks: Vec<SinkRow>,
    because: Vec<String>,
    /// What differs between two runs of one schedule; it is not looked for in a matrix.
    #[serde(skip_serializing_if = "Option::is_none")]
    varies: Option<Variation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
}

#[derive(Serialize)]
struct SinkRow {
    uid: String,
    level: Option<Level>,
}

#[derive(Serialize)]
struct MatrixSummary {
    schema: &'static str,
    rows: usize,
    refused: usize,
}

pub(crate) fn analyze(args: &AnalyzeArgs, console: &Console) -> Result<Exit, Failure> {
    let job = args.job.as_deref().map(|name| find_job("analyze", name)).transpose()?;
    let jobs = job.as_ref().map_or(jobs::all(), std::slice::from_ref);
    jobs.iter().try_for_each(|job| args.parameters.of(*job).map(|_| ()))?;
    let mut rows = match job {
        Some(job) if !args.matrix => {
            let mode = args.mode.mode("analyze")?;
            check_home("analyze", args.state, mode.mechanism)?;
            args.faults.check("analyze", args.state, &[mode.mechanism])?;
            let varies = Some(probe(job, mode, args)?);
            vec![ClaimRow { schema: Some(SCHEMA), varies, ..ClaimRow::of(job, mode, args)? }]
        }
        Some(_) | None => {
            args.faults.check("analyze", args.state, Mechanism::ALL)?;
            matrix(jobs, args)
        }
    };
    if let Some(seeds) = args.seeds {
        try_all(&mut rows, args, seeds, console)?;
    }
    match (console.is_json(), args.matrix) {
        (true, _) => {
            rows.iter().for_each(|row| console.row(row));
            if args.matrix {
                let refused = rows.iter().filter(|row| row.claim.is_none()).count();
                console.row(&MatrixSummary { schema: SCHEMA, rows: rows.len(), refused });
            }
        }
        (false, true) => show_matrix(&rows, console),
        (false, false) => rows.iter().for_each(|row| tell(row, console)),
    }
    conclude(&rows, args)
}

/// Looks for operators that are not deterministic.
fn probe(
    job: &'static dyn BuiltinJob,
    mode: Mode,
    args: &AnalyzeArgs,
) -> Result<Variation, Failure> {
    let data = CaseData { seed: args.seed, records: PROBE_RECORDS, lines: None };
    Ok(check::variation(&job, &data, &setup(job, mode, args)?)?)
}

fn setup(job: &dyn BuiltinJob, mode: Mode, args: &AnalyzeArgs) -> Result<Setup, Failure> {
    let mut setup = mode.setup(args.mode.parallelism, args.parameters.of(job)?);
    setup.config.state = args.state;
    Ok(setup)
}

/// A row for every combination.
fn matrix(jobs: &[&'static dyn BuiltinJob], args: &AnalyzeArgs) -> Vec<ClaimRow> {
    let modes = jobs.iter().flat_map(|job| Mode::every().map(|mode| (*job, mode)));
    let row = |(job, mode): (&'static dyn BuiltinJob, Mode)| match mode.refusal() {
        Some(reason) => ClaimRow::refused(job, mode, args.state, reason),
        None => ClaimRow::of(job, mode, args)
            .unwrap_or_else(|failure| ClaimRow::refused(job, mode, args.state, failure.text)),
    };
    modes.map(row).collect()
}

/// The table leaves out the combinations whose mechanism is not one of the guarantee's.
fn show_matrix(rows: &[ClaimRow], console: &Console) {
    let is_tried = rows.iter().any(|row| row.trial.is_some());
    let mut columns = vec!["JOB", "GUARANTEE", "MECHANISM", "SINK", "STATE", "OUTPUT"];
    if is_tried {
        columns.extend(["CLAIM", "MORE FOR STATE", "MORE FOR OUTPUT"]);
    }
    columns.push("WEAKEST LINK");
    let mut table = Table::under(console.paint, &columns);
    let (shown, mixed): (Vec<_>, Vec<_>) =
        rows.iter().partition(|row| row.mode.mechanism.guarantee() == row.mode.guarantee);
    for row in shown {
        let Mode { guarantee, mechanism, sink } = row.mode;
        let words = [row.job, guarantee.word(), mechanism.word(), sink.word()];
        let mut cells: Vec<(&str, Painted)> =
            words.into_iter().map(|word| (word, Paint::plain as Painted)).collect();
        match row.claim {
            Some(claim) => {
                cells.extend([painted_level(Some(claim.state)), painted_level(claim.output)]);
            }
            None => cells.extend([("refused", Paint::dim as Painted), ("", Paint::dim)]),
        }
        let tried = row.trial.as_ref().map(Trial::words).unwrap_or_default();
        if is_tried {
            cells.extend(tried.iter().map(|word| (word.as_str(), Paint::plain as Painted)));
        }
        cells.push((row.weakest_link(), Paint::dim));
        table.row(console.paint, cells);
    }
    table.lines().for_each(|line| console.say(line));
    for (row, why) in rows.iter().filter_map(|row| Some((row, row.unjudged()?))) {
        console.say(format!("{}, {}: not judged: {why}", row.job, row.mode));
    }
    if !mixed.is_empty() {
        let count = mixed.len();
        console.say(format!(
            "\n{count} more are refused: their mechanism is one of another guarantee"
        ));
    }
}

fn tell(row: &ClaimRow, console: &Console) {
    let paint = console.paint;
    let ClaimRow { job, mode, state_home, .. } = row;
    let home = if state_home.is_external() { format!(", {state_home}") } else { String::new() };
    console.say(format!("{}  {mode}{home}", paint.bold(job)));
    let mut table = Table::default();
    let state = painted_level(row.claim.map(|claim| claim.state));
    table.row(paint, [("  state", Paint::plain as Painted), state]);
    for sink in &row.sinks {
        let name = format!("  output '{}'", sink.uid);
        table.row(paint, [(name.as_str(), Paint::plain as Painted), painted_level(sink.level)]);
    }
    table.lines().for_each(|line| console.say(line));
    console.say("because, the weakest link first:");
    row.because.iter().for_each(|reason| console.say(format!("  - {reason}")));
    if let Some(variation) = &row.varies {
        console.say(format!("probe: {variation}"));
    }
    if let Some(trial) = &row.trial {
        let [claim, state, output] = trial.words();
        console.say(format!(
            "over {} seeds: {claim}; more for the state: {state}; more for the output: {output}",
            trial.seeds
        ));
    }
    if let Some(why) = row.unjudged() {
        console.say(format!("not judged: {why}"));
    }
}

/// Green for exactly-once, red for nothing.
fn painted_level(level: Option<Level>) -> (&'static str, Painted) {
    match level {
        Some(Level::ExactlyOnce) => (Level::ExactlyOnce.word(), Paint::good),
        Some(level @ (Level::AtLeastOnce | Level::AtMostOnce)) => (level.word(), Paint::plain),
        Some(Level::None) => (Level::None.word(), Paint::bad),
        None => ("no output", Paint::dim),
    }
}

impl ClaimRow {
    /// The first reason in short: what stands before its colon.
    fn weakest_link(&self) -> &str {
        let reason = self.because.first().map_or("", String::as_str);
        reason.split(':').next().unwrap_or(reason)
    }

    /// Why nothing could be said of some runs of its trial.
    fn unjudged(&self) -> Option<&str> {
        self.trial.as_ref()?.unjudged.as_deref()
    }

    fn of(job: &'static dyn BuiltinJob, mode: Mode, args: &AnalyzeArgs) -> Result<Self, Failure> {
        let inferred = sample(job, &setup(job, mode, args)?, args.seed)?.claim();
        let claim = Some(inferred.claim());
        let InferredClaim { sinks, because, .. } = inferred;
        let sinks =
            sinks.iter().map(|sink| SinkRow { uid: sink.uid.to_string(), level: sink.level });
        let sinks = sinks.collect();
        let (job, state_home) = (job.name(), args.state);
        let (schema, varies, trial) = (None, None, None);
        Ok(Self { schema, job, mode, state_home, claim, sinks, because, varies, trial })
    }

    fn refused(
        job: &'static dyn BuiltinJob,
        mode: Mode,
        state_home: StateHome,
        reason: String,
    ) -> Self {
        let (job, because, sinks) = (job.name(), vec![reason], Vec::new());
        let (schema, claim, varies, trial) = (None, None, None, None);
        Self { schema, job, mode, state_home, claim, sinks, because, varies, trial }
    }
}

const SCHEMA: &str = "cofferdam.analyze/1";

/// Enough for every operator to have something to do.
const PROBE_RECORDS: usize = 100;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use cofferdam::connector::memory::{CollectTransactions, VecSource};
    use cofferdam::guarantee::Guarantee;
    use cofferdam::job::JobBuilder;
    use cofferdam::state::codec::DecodeError;

    use super::*;
    use crate::jobs::{Case, FileJob, Files, JobError, Parameter};

    /// The input of wordcount, each line with a reading of a clock that goes on.
    struct Stamping;

    impl BuiltinJob for Stamping {
        fn name(&self) -> &'static str {
            "stamping"
        }

        fn about(&self) -> &'static str {
            "reads a clock"
        }

        fn parameters(&self) -> &'static [Parameter] {
            jobs::find("wordcount").unwrap().parameters()
        }

        fn case_parameters(&self) -> &'static [Parameter] {
            jobs::find("wordcount").unwrap().case_parameters()
        }

        fn row_json(&self, _uid: &str, _row: &[u8]) -> Result<Vec<u8>, DecodeError> {
            unreachable!("nobody looks at its rows")
        }

        fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
            static CLOCK: AtomicU64 = AtomicU64::new(0);
            let builder = JobBuilder::new("stamping", setup.shape.parallelism);
            builder
                .source("numbers", VecSource::new((0..data.records as u64).collect()))
                .key_by(|number| number % 3)
                .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
                .map("stamp", |(key, _)| (key, CLOCK.fetch_add(1, Ordering::Relaxed)))
                .transactional_sink("out", CollectTransactions::default());
            let job = builder.build(setup.config.clone())?;
            Ok(Case { job, ..jobs::find("wordcount").unwrap().case(data, setup)? })
        }

        fn over_files(&self, _files: &Files, _setup: &Setup) -> Result<FileJob, JobError> {
            unreachable!("it is only analyzed")
        }
    }

    #[test]
    fn an_operator_that_reads_a_clock_is_told_beside_the_claim() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: AnalyzeArgs,
        }
        let Line { args } = clap::Parser::parse_from(["analyze", "stamping"]);
        let mode = args.mode.mode("analyze").unwrap();
        let claim = ClaimRow::of(&Stamping, mode, &args).unwrap().claim.unwrap();
        assert_eq!((claim.state, mode.guarantee), (Level::ExactlyOnce, Guarantee::ExactlyOnce));
        let told = probe(&Stamping, mode, &args).unwrap().to_string();
        assert!(told.starts_with("exactly-once state, output may differ"), "{told}");
        for job in jobs::all() {
            let variation = probe(*job, mode, &args).unwrap();
            assert!(variation.is_none(), "{}: {variation}", job.name());
        }
    }
}
