//! `analyze`: the claim that follows from a job's parts, and, if asked, a trial of it.

mod trial;

use clap::Args;
use cofferdam::guarantee::{Claim, Level, StateHome};
use cofferdam::job::InferredClaim;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, ModeArgs, sample};
use crate::cli::output::{Console, Paint, Painted, Table};
use crate::cli::values::{find_job, positive, seed, word};
use crate::jobs::{self, BuiltinJob, Parameters};

use trial::{Trial, conclude, try_all};

/// Say what a job promises in a mode, and why
#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// The job
    #[arg(required_unless_present = "matrix")]
    job: Option<String>,
    /// Every guarantee, mechanism and sink, for JOB or for all jobs: what each combination
    /// promises, or why it can not be
    #[arg(long, conflicts_with_all = ["guarantee", "mechanism", "sink"])]
    matrix: bool,
    /// Where keyed state lives: in the tasks, or in a store of its own that no failure rolls back,
    /// or that rolls back with the checkpoint
    #[arg(long, value_parser = word::<StateHome>(), default_value = "heap")]
    state: StateHome,
    /// Put each claim to the test over so many seeds, and look for a counter-example to the next
    /// stronger one
    #[arg(long, value_name = "N", value_parser = positive)]
    seeds: Option<u64>,
    /// What random-graph is drawn from
    #[arg(long, value_parser = seed, default_value = "0")]
    seed: u64,
    #[command(flatten)]
    mode: ModeArgs,
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
    let mut rows = match job {
        Some(job) if !args.matrix => {
            let mode = args.mode.mode("analyze")?;
            vec![ClaimRow { schema: Some(SCHEMA), ..ClaimRow::of(job, mode, args)? }]
        }
        Some(job) => matrix(&[job], args),
        None => matrix(jobs::all(), args),
    };
    if let Some(seeds) = args.seeds {
        try_all(&mut rows, args.state, seeds, console)?;
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
    conclude(&rows)
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
    if let Some(trial) = &row.trial {
        let [claim, state, output] = trial.words();
        console.say(format!(
            "over {} seeds: {claim}; more for the state: {state}; more for the output: {output}",
            trial.seeds
        ));
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

    fn of(job: &'static dyn BuiltinJob, mode: Mode, args: &AnalyzeArgs) -> Result<Self, Failure> {
        let mut setup = mode.setup(args.mode.parallelism, Parameters::of(job));
        setup.config.state = args.state;
        let inferred = sample(job, &setup, args.seed)?.claim();
        let claim = Some(inferred.claim());
        let InferredClaim { sinks, because, .. } = inferred;
        let sinks =
            sinks.iter().map(|sink| SinkRow { uid: sink.uid.to_string(), level: sink.level });
        let sinks = sinks.collect();
        let (job, state_home) = (job.name(), args.state);
        Ok(Self { schema: None, job, mode, state_home, claim, sinks, because, trial: None })
    }

    fn refused(
        job: &'static dyn BuiltinJob,
        mode: Mode,
        state_home: StateHome,
        reason: String,
    ) -> Self {
        let (job, because, sinks) = (job.name(), vec![reason], Vec::new());
        Self { schema: None, job, mode, state_home, claim: None, sinks, because, trial: None }
    }
}

const SCHEMA: &str = "cofferdam.analyze/1";
