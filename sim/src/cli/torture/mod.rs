//! `torture`: runs a job in a child process, kills it at drawn moments, resumes it, lets it finish,
//! and judges what it wrote.

mod judge;
mod lines;
mod victim;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use cofferdam::guarantee::{Claim, Guarantee, Level, Mechanism, SinkContract};
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, ModeArgs};
use crate::cli::output::{Console, Paint, Painted, Table, seconds};
use crate::cli::run::Backend;
use crate::cli::values::{JobParameters, find_job, interval, positive, seed};
use crate::jobs::{BuiltinJob, CaseData};

use judge::{Findings, Judge, Verdict};
use victim::Victim;

/// Kill a running job at drawn moments, resume it, and judge its output
#[derive(Debug, Args)]
pub(crate) struct TortureArgs {
    /// The job
    job: String,
    /// The file that it reads
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// How often it is killed with SIGKILL
    #[arg(long, value_name = "N", value_parser = positive)]
    kills: u64,
    /// What the moments are drawn from
    #[arg(long, value_name = "SEED", value_parser = seed, default_value = "1")]
    seed: u64,
    /// An empty folder for its output [default: one that is removed if all claims hold]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The time between two checkpoints
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "20ms")]
    checkpoint_interval: Duration,
    /// Where checkpoints lie
    #[arg(long, value_enum, default_value_t = Backend::Fs)]
    backend: Backend,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    parameters: JobParameters,
}

#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    job: &'static str,
    guarantee: Guarantee,
    mechanism: Mechanism,
    sink: SinkContract,
    seed: u64,
    kills: u64,
    restores: u64,
    claim: Claim,
    state_verdict: Verdict,
    output_verdict: Verdict,
    output_level: Level,
    lost: u64,
    duplicated: u64,
    wrong: u64,
    wall_s: f64,
}

pub(crate) fn torture(args: &TortureArgs, console: &Console) -> Result<Exit, Failure> {
    let started = Instant::now();
    let job = find_job("torture", &args.job)?;
    let mode = args.mode.mode("torture")?;
    refuse(args, mode)?;
    let judge = judge(args, job, mode)?;
    let (output, is_own) = args.output_folder()?;
    console.note(format!("seed {}", args.seed));
    let mut victim = Victim::new(args, mode, &output, judge.records())?;
    let bar = console.bar(args.kills);
    for kill in 1..=args.kills {
        let moment = victim.kill_next()?;
        bar.inc(1);
        bar.suspend(|| console.explain(format!("kill {kill}: {moment}")));
    }
    bar.finish_and_clear();
    victim.finish()?;
    let findings = judge.judge(&output)?;
    let summary = Summary {
        schema: "cofferdam.torture/1",
        job: job.name(),
        guarantee: mode.guarantee,
        mechanism: mode.mechanism,
        sink: mode.sink,
        seed: args.seed,
        kills: args.kills,
        restores: victim.restores(),
        claim: judge.claim(),
        state_verdict: findings.state,
        output_verdict: findings.output,
        output_level: findings.output_level(),
        lost: findings.lost,
        duplicated: findings.duplicated,
        wrong: findings.wrong,
        wall_s: seconds(started.elapsed()),
    };
    tell(&summary, &findings, console);
    conclude(&summary, &output, is_own)
}

/// What can not be tortured, with the reason.
fn refuse(args: &TortureArgs, mode: Mode) -> Result<(), Failure> {
    let reason = if args.backend == Backend::Memory {
        "--backend memory: checkpoints in memory die with the process, nothing could be resumed"
    } else if mode.sink == SinkContract::Discard {
        "--sink discard writes nothing that could be judged"
    } else {
        return Ok(());
    };
    Err(Failure::usage("torture", reason))
}

/// Reads the input and makes the reference of it.
fn judge(args: &TortureArgs, job: &'static dyn BuiltinJob, mode: Mode) -> Result<Judge, Failure> {
    let Some(format) = job.reads() else {
        let text = format!("job '{}' reads no file: torture needs one that does", job.name());
        return Err(Failure::usage("torture", text));
    };
    let lines = lines::read_input(&args.input)?;
    let numbers = format.record_lines(&lines);
    let body = lines.len() - usize::from(format.has_header() && !lines.is_empty());
    let data = CaseData { seed: 0, records: body, lines: Some(lines.into()) };
    let setup = mode.setup(args.mode.parallelism, args.parameters.of(job)?);
    let case = job
        .case(&data, &setup)
        .map_err(|error| Failure::input(format!("{}: {error}", args.input.display())))?;
    Ok(Judge::new(job, mode.sink, case, numbers))
}

impl TortureArgs {
    /// The folder to write into, and whether it is one of our own.
    fn output_folder(&self) -> Result<(PathBuf, bool), Failure> {
        let name = format!("cofferdam-torture-{}", std::process::id());
        let (folder, is_own) = match &self.output {
            Some(folder) => (folder.clone(), false),
            None => (std::env::temp_dir().join(name), true),
        };
        let failed = |error| Failure::input(format!("--output {}: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        match fs::read_dir(&folder).map_err(failed)?.next() {
            None => Ok((folder, is_own)),
            Some(_) => {
                Err(Failure::input(format!("--output {}: it is not empty", folder.display())))
            }
        }
    }
}

fn tell(summary: &Summary, findings: &Findings, console: &Console) {
    if console.is_json() {
        return console.row(summary);
    }
    let paint = console.paint;
    let Summary { job, guarantee, mechanism, sink, kills, restores, wall_s, .. } = summary;
    console.say(format!("{}  {guarantee}, {mechanism}, {sink}", paint.bold(job)));
    console.say(format!("  {kills} kills, {restores} runs resumed from a checkpoint, {wall_s} s"));
    let claim = summary.claim;
    let output_claim = claim.output.map_or("-", Level::word);
    let mut table =
        Table::under(paint, &["  SUBJECT", "CLAIM", "VERDICT", "LOST", "DUPLICATED", "WRONG"]);
    let counts = [summary.lost, summary.duplicated, summary.wrong].map(|count| count.to_string());
    table.row(
        paint,
        [
            ("  state", Paint::plain as Painted),
            (claim.state.word(), Paint::plain),
            summary.state_verdict.painted(),
        ],
    );
    let output = [
        ("  output", Paint::plain as Painted),
        (output_claim, Paint::plain),
        summary.output_verdict.painted(),
    ];
    table.row(
        paint,
        output
            .into_iter()
            .chain(counts.iter().map(|text| (text.as_str(), Paint::plain as Painted))),
    );
    table.lines().for_each(|line| console.say(line));
    if !findings.examples.is_empty() {
        let is_allowed =
            summary.state_verdict == Verdict::Held && summary.output_verdict == Verdict::Held;
        let head = if is_allowed { "the claims allow that, for example:" } else { "for example:" };
        console.say(head);
    }
    findings.examples.iter().for_each(|text| console.say(format!("  - {text}")));
}

/// The exit code; what was written stays if somebody will want to look at it.
fn conclude(summary: &Summary, output: &Path, is_own: bool) -> Result<Exit, Failure> {
    let verdicts = [("state", summary.state_verdict), ("output", summary.output_verdict)];
    let found = |wanted| verdicts.iter().find(|(_, verdict)| *verdict == wanted);
    let at = output.display();
    if let Some((subject, _)) = found(Verdict::Violated) {
        let text = format!("the claim for the {subject} is violated; the output is in {at}");
        return Err(Failure::again(Exit::Violated, text));
    }
    if let Some((subject, _)) = found(Verdict::Unknown) {
        let text = format!("nothing can be said about the {subject}; the output is in {at}");
        return Err(Failure::again(Exit::Unknown, text));
    }
    if is_own {
        fs::remove_dir_all(output).map_err(|error| Failure::input(format!("{at}: {error}")))?;
    }
    Ok(Exit::Done)
}
