//! `analyze`: the claim that follows from a job's parts.

use clap::Args;
use cofferdam::guarantee::{Claim, Level};
use cofferdam::job::InferredClaim;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, ModeArgs, sample};
use crate::cli::output::{Console, Paint, Painted, Table};
use crate::cli::values::{find_job, seed};
use crate::jobs::{self, BuiltinJob, Parameters};

/// Say what a job promises in a mode, and why
#[derive(Debug, Args)]
pub(crate) struct AnalyzeArgs {
    /// The job
    #[arg(required_unless_present = "matrix")]
    job: Option<String>,
    /// Every guarantee, mechanism and sink that go together, for JOB or for all jobs
    #[arg(long, conflicts_with_all = ["guarantee", "mechanism", "sink"])]
    matrix: bool,
    /// What random-graph is drawn from
    #[arg(long, value_parser = seed, default_value = "0")]
    seed: u64,
    #[command(flatten)]
    mode: ModeArgs,
}

/// The claim of one job in one mode.
#[derive(Serialize)]
struct ClaimRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'static str>,
    job: &'static str,
    #[serde(flatten)]
    mode: Mode,
    claim: Claim,
    sinks: Vec<SinkRow>,
    because: Vec<String>,
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
}

pub(crate) fn analyze(args: &AnalyzeArgs, console: &Console) -> Result<Exit, Failure> {
    let job = args.job.as_deref().map(|name| find_job("analyze", name)).transpose()?;
    match job {
        Some(job) if !args.matrix => {
            let mode = args.mode.mode("analyze")?;
            let row = ClaimRow { schema: Some(SCHEMA), ..ClaimRow::of(job, mode, args)? };
            if console.is_json() { console.row(&row) } else { tell(&row, console) }
        }
        Some(job) => matrix(&[job], args, console)?,
        None => matrix(jobs::all(), args, console)?,
    }
    Ok(Exit::Done)
}

fn matrix(
    jobs: &[&'static dyn BuiltinJob],
    args: &AnalyzeArgs,
    console: &Console,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for job in jobs {
        for mode in Mode::all() {
            rows.push(ClaimRow::of(*job, mode, args)?);
        }
    }
    if console.is_json() {
        rows.iter().for_each(|row| console.row(row));
        console.row(&MatrixSummary { schema: SCHEMA, rows: rows.len() });
        return Ok(());
    }
    let columns = ["JOB", "MECHANISM", "SINK", "STATE", "OUTPUT", "WEAKEST LINK"];
    let mut table = Table::under(console.paint, &columns);
    for row in &rows {
        let cells = [
            (row.job, Paint::plain as Painted),
            (row.mode.mechanism.word(), Paint::plain),
            (row.mode.sink.word(), Paint::plain),
            painted_level(Some(row.claim.state)),
            painted_level(row.claim.output),
            (row.weakest_link(), Paint::dim),
        ];
        table.row(console.paint, cells);
    }
    table.lines().for_each(|line| console.say(line));
    Ok(())
}

fn tell(row: &ClaimRow, console: &Console) {
    let paint = console.paint;
    let ClaimRow { job, mode, .. } = row;
    console.say(format!("{}  {mode}", paint.bold(job)));
    let mut table = Table::default();
    table.row(paint, [("  state", Paint::plain as Painted), painted_level(Some(row.claim.state))]);
    for sink in &row.sinks {
        let name = format!("  output '{}'", sink.uid);
        table.row(paint, [(name.as_str(), Paint::plain as Painted), painted_level(sink.level)]);
    }
    table.lines().for_each(|line| console.say(line));
    console.say("because, the weakest link first:");
    row.because.iter().for_each(|reason| console.say(format!("  - {reason}")));
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
        let setup = mode.setup(args.mode.parallelism, Parameters::of(job));
        let inferred = sample(job, &setup, args.seed)?.claim();
        let claim = inferred.claim();
        let InferredClaim { sinks, because, .. } = inferred;
        let sinks =
            sinks.iter().map(|sink| SinkRow { uid: sink.uid.to_string(), level: sink.level });
        Ok(Self { schema: None, job: job.name(), mode, claim, sinks: sinks.collect(), because })
    }
}

const SCHEMA: &str = "cofferdam.analyze/1";
