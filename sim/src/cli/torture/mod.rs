//! `torture`: runs a job in a child process, kills it at drawn moments, resumes it, lets it finish,
//! and judges what it wrote.

mod judge;
mod lines;
#[cfg(test)]
mod tests;
mod victim;

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::Instant;

use clap::Args;
use cofferdam::guarantee::{Claim, Level, SinkContract};
use serde::Serialize;

use crate::cli::barriers::with_default;
use crate::cli::exit::{Exit, Failure};
use crate::cli::leaks::leaks;
use crate::cli::mode::{Backend, CHECKPOINT_INTERVAL, EngineArgs, Mode};
use crate::cli::output::{Console, Paint, Painted, Table, seconds};
use crate::cli::simulated::{ClaimArg, claim};
use crate::cli::values::{find_job, positive, seed};
use crate::jobs::{BuiltinJob, Format, Output};

use victim::Victim;

pub(super) use judge::{Findings, Judge, Verdict};
pub(super) use lines::read_input;

/// Kill a running job at drawn moments, resume it, and judge its output
#[derive(Debug, Args)]
#[command(
    override_usage = "cofferdam torture [OPTIONS] --input <FILE> --kills <N> <JOB>",
    mut_arg(CHECKPOINT_INTERVAL, |arg| with_default(arg, "20ms"))
)]
pub(crate) struct TortureArgs {
    /// The job; it has to be one that reads a file
    job: String,
    /// The file that it reads
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// How often it is killed with SIGKILL
    #[arg(long, value_name = "N", value_parser = positive)]
    kills: u64,
    /// What the moments are drawn from
    #[arg(long, value_name = "SEED", value_parser = seed, default_value = "1")]
    seed: u64,
    /// An empty folder for its output, or sqlite:FILE with a file that is not there yet [default: a
    /// folder that is removed if all claims hold]
    #[arg(long, value_name = "DIR|sqlite:FILE")]
    output: Option<Output>,
    /// The claim to judge by: LEVEL, or state=LEVEL,output=LEVEL [default: it follows from the job]
    #[arg(long, value_name = "CLAIM", value_parser = claim)]
    claim: Option<ClaimArg>,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    job: &'static str,
    #[serde(flatten)]
    mode: Mode,
    seed: u64,
    kills: u64,
    restores: u64,
    claim: Claim,
    state_verdict: Verdict,
    output_verdict: Verdict,
    output_level: Option<String>,
    /// Why nothing can be said, if that is so.
    unjudged: Option<&'static str>,
    lost: Option<u64>,
    duplicated: Option<u64>,
    /// Under a claim of exactly-once whatever differs, else what no record explains.
    wrong: Option<u64>,
    /// Rows that are not those of a run without failures.
    differing: Option<u64>,
    /// Files that nothing needs, or that are missing.
    leaked: usize,
    wall_s: f64,
}

pub(crate) fn torture(args: &TortureArgs, console: &Console) -> Result<Exit, Failure> {
    let started = Instant::now();
    let job = find_job("torture", &args.job)?;
    let mode = args.engine.mode.mode("torture")?;
    refuse(args, mode)?;
    args.engine.checkpoints.barriers.check("torture", &[mode.mechanism])?;
    args.engine.checkpoints.tell_unused(mode.mechanism, console);
    args.engine.state.check("torture", mode.mechanism)?;
    let (input, format) = input(args, job)?;
    let judge = judge(args, input, format, job, mode)?;
    let mut place = OutputPlace::new(args.output.as_ref())?;
    console.note(format!("seed {}", args.seed));
    let mut victim = Victim::new(args, input, mode, &place.output, judge.records())?;
    let bar = console.bar(args.kills).with_message("kills");
    for kill in 1..=args.kills {
        let moment = victim.kill_next()?;
        bar.inc(1);
        bar.suspend(|| console.explain(format!("kill {kill}: {moment}")));
    }
    bar.finish_and_clear();
    victim.finish()?;
    let checkpoints = args.engine.checkpoints.folder(&place.output);
    let leaks = leaks(&checkpoints, &place.output, args.engine.checkpoints.retain)?;
    let findings = judge.judge(&place.output)?;
    let summary = Summary {
        schema: "cofferdam.torture/1",
        job: job.name(),
        mode,
        seed: args.seed,
        kills: args.kills,
        restores: victim.restores(),
        claim: judge.claim(),
        state_verdict: findings.state,
        output_verdict: findings.output,
        output_level: findings.output_level().map(|seen| seen.to_string()),
        unjudged: findings.unjudged,
        lost: findings.judged(findings.lost),
        duplicated: findings.judged(findings.duplicated),
        wrong: findings.judged(findings.wrong),
        differing: findings.judged(findings.differing),
        leaked: leaks.len(),
        wall_s: seconds(started.elapsed()),
    };
    tell(&summary, &findings, console);
    leaks.iter().for_each(|text| console.note(text));
    conclude(&summary, &mut place)
}

/// What can not be tortured, with the reason.
fn refuse(args: &TortureArgs, mode: Mode) -> Result<(), Failure> {
    let reason = if args.engine.checkpoints.backend == Backend::Memory {
        "--backend memory: checkpoints in memory die with the process, nothing could be resumed"
    } else if mode.sink == SinkContract::Discard {
        "--sink discard writes nothing that could be judged"
    } else {
        return Ok(());
    };
    Err(Failure::usage("torture", reason))
}

/// The file that the job reads, and what it holds.
fn input<'a>(args: &'a TortureArgs, job: &dyn BuiltinJob) -> Result<(&'a Path, Format), Failure> {
    let Some(format) = job.reads() else {
        let text = format!("job '{}' reads no file: torture needs one that does", job.name());
        return Err(Failure::usage("torture", text));
    };
    let missing = || Failure::usage("torture", "--input is missing: the job reads a file");
    Ok((args.input.as_deref().ok_or_else(missing)?, format))
}

/// Reads the input and makes the reference of it.
fn judge(
    args: &TortureArgs,
    input: &Path,
    format: Format,
    job: &'static dyn BuiltinJob,
    mode: Mode,
) -> Result<Judge, Failure> {
    let lines = lines::read_input(input)?;
    let mut setup = mode.setup(args.engine.mode.parallelism, args.engine.parameters.of(job)?);
    setup.config.state = args.engine.state.home;
    let judge = Judge::of_lines(job, &setup, format, lines)
        .map_err(|error| Failure::input(format!("{}: {error}", input.display())))?;
    Ok(judge.claiming(args.claim))
}

/// Where the job writes.
struct OutputPlace {
    output: Output,
    /// A folder that is removed at the end.
    temporary: Option<PathBuf>,
}

impl OutputPlace {
    /// What was `asked` for, or a folder of its own.
    fn new(asked: Option<&Output>) -> Result<Self, Failure> {
        let own = std::env::temp_dir().join(format!("cofferdam-torture-{}", process::id()));
        let output = asked.cloned().unwrap_or_else(|| Output::Folder(own.clone()));
        let failed = |error| Failure::input(format!("--output {output}: {error}"));
        let is_taken = match &output {
            Output::Folder(path) => {
                fs::create_dir_all(path).map_err(failed)?;
                fs::read_dir(path).map_err(failed)?.next().map(|_| "it is not empty")
            }
            #[cfg(feature = "sqlite")]
            Output::Sqlite(file) => file.exists().then_some("it is there already"),
        };
        match is_taken {
            None => Ok(Self { output, temporary: asked.is_none().then_some(own) }),
            Some(reason) => Err(Failure::input(format!("--output {output}: {reason}"))),
        }
    }
}

impl Drop for OutputPlace {
    fn drop(&mut self) {
        if let Some(folder) = &self.temporary {
            // Nothing depends on it, and there is nobody left to tell.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn tell(summary: &Summary, findings: &Findings, console: &Console) {
    if console.is_json() {
        return console.row(summary);
    }
    let paint = console.paint;
    let Summary { job, mode, kills, restores, wall_s, .. } = summary;
    console.say(format!("{}  {mode}", paint.bold(job)));
    console.say(format!("  {kills} kills, {restores} runs resumed from a checkpoint, {wall_s} s"));
    let claim = summary.claim;
    let output_claim = claim.output.map_or("-", Level::word);
    let mut table =
        Table::under(paint, &["  SUBJECT", "CLAIM", "VERDICT", "LOST", "DUPLICATED", "WRONG"]);
    let counts = [summary.lost, summary.duplicated, summary.wrong];
    let counts = counts.map(|count| count.map_or("-".to_owned(), |count| count.to_string()));
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
    if let Some(reason) = summary.unjudged {
        console.say(format!("not judged: {reason}"));
    }
    if let Some(rows) = summary.differing.filter(|rows| *rows > 0 && claim.output != EXACT) {
        console.say(format!(
            "{rows} rows are not as in a run without failures; under this claim only those count \
             as wrong that no record explains"
        ));
    }
    if !findings.examples.is_empty() {
        let is_allowed =
            summary.state_verdict == Verdict::Held && summary.output_verdict == Verdict::Held;
        let head = if is_allowed { "the claims allow that, for example:" } else { "for example:" };
        console.say(head);
    }
    findings.examples.iter().for_each(|text| console.say(format!("  - {text}")));
}

const EXACT: Option<Level> = Some(Level::ExactlyOnce);

/// The exit code. What was written stays if somebody will want to look at it.
fn conclude(summary: &Summary, place: &mut OutputPlace) -> Result<Exit, Failure> {
    let verdicts = [("state", summary.state_verdict), ("output", summary.output_verdict)];
    let found = |wanted| verdicts.iter().find(|(_, verdict)| *verdict == wanted);
    let (exit, text) = match (found(Verdict::Violated), found(Verdict::Unknown)) {
        (Some((subject, _)), _) => {
            (Exit::Violated, format!("the claim for the {subject} is violated"))
        }
        (None, Some((subject, _))) => {
            let reason = summary.unjudged.expect("an unknown verdict has a reason");
            (Exit::Unknown, format!("nothing can be said about the {subject}: {reason}"))
        }
        (None, None) if summary.leaked > 0 => {
            (Exit::Violated, format!("{} files are left over or missing", summary.leaked))
        }
        (None, None) => return Ok(Exit::Done),
    };
    place.temporary = None;
    let text = format!("{text}; the output is in {}", place.output);
    Err(Failure::again(exit, text))
}
