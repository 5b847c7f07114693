//! `suite`: many simulated runs of many jobs in many modes, each claim put to the test.

mod conclusion;
mod rows;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use cofferdam::guarantee::{Claim, Guarantee, Mechanism, SinkContract};
use serde_json::Value;

use crate::campaign::{self, Conduct, Outcome, Row, Seeds, Tally};
use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::Mode;
use crate::cli::output::{Console, command_line};
use crate::cli::simulated::SimulationArgs;
use crate::cli::values::{find_job, interval, positive, positive_size, seed, word};
use crate::cli::{replay, signals};
use crate::jobs::{self, BuiltinJob};
use crate::oracle::Verdict;
use crate::run;

/// Simulate jobs under failures and put their claims to the test
#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    /// The job; may be given several times [default: every job]
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,
    /// How often each source record may count; may be given several times [default: all three]
    #[arg(long = "guarantee", value_name = "LEVEL", value_parser = word::<Guarantee>())]
    guarantees: Vec<Guarantee>,
    /// How the guarantee is reached; may be given several times. analyze --matrix shows what goes
    /// with what [default: none for at-most-once, tracked for at-least-once, aligned for
    /// exactly-once]
    #[arg(long = "mechanism", value_name = "MECHANISM", value_parser = word::<Mechanism>())]
    mechanisms: Vec<Mechanism>,
    /// What the sinks promise about their writes; may be given several times [default: two-phase
    /// for exactly-once, else plain]
    #[arg(long = "sink", value_name = "SINK", value_parser = word::<SinkContract>())]
    sinks: Vec<SinkContract>,
    /// Seeds in each row
    #[arg(long, value_name = "N", value_parser = positive, default_value_t = SEEDS_DEFAULT)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "SEED", value_parser = seed, default_value = "0")]
    first_seed: u64,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = positive_size)]
    threads: Option<usize>,
    /// Run only the seeds of part K of N, by seed modulo N
    #[arg(long, value_name = "K/N", value_parser = partition)]
    partition: Option<(u64, u64)>,
    /// Begin no further run after this time, and soon give up those that are under way
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    time_limit: Option<Duration>,
    /// Write a scenario file for the first refuting seed of each row into this folder
    #[arg(long, value_name = "DIR")]
    repros: Option<PathBuf>,
    /// Fail if a window that a claim depends on was never hit; always on in a suite without flags
    #[arg(long)]
    require_coverage: bool,
    #[command(flatten)]
    simulation: SimulationArgs,
}

/// Ends a suite early.
struct Brake {
    time_limit: Option<Duration>,
    /// Set by Ctrl-C or at the time limit: no further run begins.
    stop: Arc<AtomicBool>,
    /// When a run that was under way first saw it.
    seen: OnceLock<Instant>,
}

impl Brake {
    fn new(time_limit: Option<Duration>) -> Result<Self, Failure> {
        let stop = signals::stop_flag()?;
        if let Some(limit) = time_limit {
            let stop = stop.clone();
            thread::spawn(move || {
                thread::sleep(limit);
                stop.store(true, Ordering::Relaxed);
            });
        }
        Ok(Self { time_limit, stop, seen: OnceLock::new() })
    }

    /// Whether a suite that took so long was ended by Ctrl-C and not by its time limit.
    fn is_interrupted(&self, took: Duration) -> bool {
        let had_time = self.time_limit.is_none_or(|limit| took < limit);
        had_time && self.stop.load(Ordering::Relaxed)
    }

    /// Whether what is under way has had its time to end by itself.
    fn is_given_up(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && self.seen.get_or_init(Instant::now).elapsed() >= GRACE
    }
}

struct Planned {
    job: &'static dyn BuiltinJob,
    mode: run::Mode,
    claim: Claim,
}

/// A suite that is over.
struct Finished<'a> {
    args: &'a SuiteArgs,
    planned: &'a [Planned],
    outcome: &'a Outcome,
    took: Duration,
    is_interrupted: bool,
}

impl Finished<'_> {
    fn rows(&self) -> impl Iterator<Item = (&Planned, &Tally)> {
        self.planned.iter().zip(&self.outcome.tallies)
    }

    fn sum(&self, of: impl Fn(&Tally) -> u64) -> u64 {
        self.outcome.tallies.iter().map(of).sum()
    }

    /// How many rows have this verdict.
    fn count(&self, verdict: Verdict) -> usize {
        self.outcome.tallies.iter().filter(|tally| tally.verdict() == verdict).count()
    }

    fn write_repros(&self, console: &Console) -> Result<(), Failure> {
        let Some(folder) = &self.args.repros else { return Ok(()) };
        let failed = |error| Failure::input(format!("--repros {}: {error}", folder.display()));
        for (row, tally) in self.rows() {
            let Some(seed) = tally.first_refuting_seed else { continue };
            let scenario = replay::scenario_of(row.job, &row.mode, seed)?;
            let (guarantee, sink) = (row.mode.guarantee, row.mode.sink);
            let name = format!("{}-{guarantee}-{sink}-{seed}.toml", row.job.name());
            let path = folder.join(name);
            fs::write(&path, scenario.text()).map_err(failed)?;
            console.note(format!("wrote {}", path.display()));
        }
        Ok(())
    }
}

pub(crate) fn suite(args: &SuiteArgs, console: &Console) -> Result<Exit, Failure> {
    let planned = plan(args)?;
    if planned.is_empty() {
        // Of a mechanism that does not reach the guarantee there are others to say something.
        let mut named = Mode::every().filter(|mode| {
            mode.mechanism.guarantee() == mode.guarantee && is_selected(args, *mode)
        });
        if let Some(reason) = named.find_map(Mode::refusal) {
            return Err(Failure::usage("suite", reason));
        }
        return Err(Failure {
            exit: Exit::Nothing,
            text: "nothing was selected: no guarantee, mechanism and sink go together".to_owned(),
            command: command_line(["analyze", "--matrix"].map(str::to_owned)),
        });
    }
    let rows = planned.iter().map(|Planned { job, mode, .. }| Row {
        source: job,
        mode: mode.clone(),
        until_refuted: false,
    });
    let rows: Vec<Row<'_>> = rows.collect();
    let seeds = Seeds {
        first: args.first_seed,
        count: args.seeds,
        part: args.partition.map_or((0, 1), |(part, parts)| (part - 1, parts)),
    };
    prepare_repros(args)?;
    let brake = Brake::new(args.time_limit)?;
    let begun = Instant::now();
    let mut outcome = conduct(args, &rows, seeds, &brake, console)?;
    if !outcome.stopped {
        replay_elsewhere(args, &planned, &mut outcome, &brake)?;
    }
    let took = begun.elapsed();
    let is_interrupted = brake.is_interrupted(took);
    let finished = Finished { args, planned: &planned, outcome: &outcome, took, is_interrupted };
    finished.tell(console);
    finished.write_repros(console)?;
    conclusion::conclude(&finished, console)
}

/// Sees to it that scenarios can be written, before hours are spent on what would be lost then.
fn prepare_repros(args: &SuiteArgs) -> Result<(), Failure> {
    let Some(folder) = &args.repros else { return Ok(()) };
    let probe = folder.join(format!(".probe-{}", process::id()));
    let tried = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe));
    tried.map_err(|error| Failure::input(format!("--repros {}: {error}", folder.display())))
}

/// The rows: every selected job in every selected mode whose parts go together.
fn plan(args: &SuiteArgs) -> Result<Vec<Planned>, Failure> {
    let mut jobs: Vec<&'static dyn BuiltinJob> = Vec::new();
    for name in &args.jobs {
        let job = find_job("suite", name)?;
        // A job that is named twice is still one.
        if jobs.iter().all(|other| other.name() != job.name()) {
            jobs.push(job);
        }
    }
    if jobs.is_empty() {
        jobs = jobs::all().to_vec();
    }
    let modes: Vec<Mode> = Mode::all().filter(|mode| is_selected(args, *mode)).collect();
    let mechanisms: Vec<_> = modes.iter().map(|mode| mode.mechanism).collect();
    args.simulation.check("suite", &mechanisms)?;
    let lines = args.simulation.lines()?;
    let mut planned = Vec::new();
    for job in jobs {
        for mode in &modes {
            let Mode { guarantee, mechanism, sink } = *mode;
            let parameters = args.simulation.parameters(job)?;
            let setup = mode.setup(2, parameters.clone());
            let claim = args.simulation.inferred_claim(job, setup, lines.as_ref())?;
            let mut row = run::Mode { mechanism, sink, ..run::Mode::of(guarantee, parameters) };
            args.simulation.apply(&mut row, lines.clone(), claim);
            planned.push(Planned { job, claim: row.claim.unwrap_or(claim), mode: row });
        }
    }
    Ok(planned)
}

/// Whether a mode is named; what is not named is every guarantee, and the mechanism and the sink
/// that are usual for it.
fn is_selected(args: &SuiteArgs, mode: Mode) -> bool {
    let Mode { guarantee, mechanism, sink } = mode;
    let is_named = |given: bool, usual: bool, none: bool| if none { usual } else { given };
    is_named(args.guarantees.contains(&guarantee), true, args.guarantees.is_empty())
        && is_named(
            args.mechanisms.contains(&mechanism),
            mechanism == guarantee.default_mechanism(),
            args.mechanisms.is_empty(),
        )
        && is_named(
            args.sinks.contains(&sink),
            sink == guarantee.default_sink(),
            args.sinks.is_empty(),
        )
}

/// Runs all rows.
fn conduct(
    args: &SuiteArgs,
    rows: &[Row<'_>],
    seeds: Seeds,
    brake: &Brake,
    console: &Console,
) -> Result<Outcome, Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(cores);
    console.explain(format!(
        "{} rows of {} seeds from {} on {threads} threads",
        rows.len(),
        seeds.count,
        seeds.first
    ));
    let progress = console.campaign(seeds.count * rows.len() as u64);
    let is_given_up = || brake.is_given_up();
    let progress = |done| progress.tell(done);
    let conduct =
        Conduct { threads, stop: &brake.stop, is_given_up: &is_given_up, progress: &progress };
    Ok(campaign::run(rows, seeds, &conduct)?)
}

/// One seed of each row once more, in another process: its trace must be the same (ORACLES C15).
fn replay_elsewhere(
    args: &SuiteArgs,
    planned: &[Planned],
    outcome: &mut Outcome,
    brake: &Brake,
) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::input(error.to_string()))?;
    let seed = args.first_seed;
    for (row, tally) in planned.iter().zip(&mut outcome.tallies) {
        let words = args.simulation.replay_words(row.job.name(), &row.mode, seed);
        let mut command = Command::new(&own);
        command.args(words).args(["--format", "json", "-q"]);
        let failed = |error| Failure::input(format!("{}: {error}", own.display()));
        let mut run = run::Run::new(&row.job, &row.mode, seed, None, false)?;
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let here = run.finish_unless(&|| brake.is_given_up());
        let text = output_unless(child.map_err(failed)?, brake).map_err(failed)?;
        let (Some(_), Some(text)) = (here, text) else { return Ok(()) };
        let summary: Option<Value> = text.lines().last().and_then(|l| serde_json::from_str(l).ok());
        let there = summary.as_ref().and_then(|s| s["trace_hash"].as_str().map(str::to_owned));
        if there != Some(replay::hash_text(run.world().trace_hash())) {
            tally.not_deterministic.insert(seed);
        }
    }
    Ok(())
}

/// What a child process writes, which must fit into a pipe; none if it was given up.
fn output_unless(mut child: Child, brake: &Brake) -> io::Result<Option<String>> {
    while child.try_wait()?.is_none() {
        if brake.is_given_up() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(GLANCE);
    }
    let text = child.wait_with_output()?.stdout;
    Ok(Some(String::from_utf8_lossy(&text).into_owned()))
}

fn partition(text: &str) -> Result<(u64, u64), String> {
    let parts = text
        .split_once('/')
        .and_then(|(part, parts)| Some((part.parse::<u64>().ok()?, parts.parse::<u64>().ok()?)));
    match parts {
        Some((part, parts)) if (1..=parts).contains(&part) => Ok((part, parts)),
        Some(_) | None => Err("not a part such as 1/4: K counts from 1 to N".to_owned()),
    }
}

/// Enough to hit every window in every row, in well under a minute on two cores.
const SEEDS_DEFAULT: u64 = 400;
/// How long runs that are under way may go on when a suite is stopped; nearly all end by then.
const GRACE: Duration = Duration::from_secs(2);
/// How often to look at another process.
const GLANCE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_counts_from_one() {
        assert_eq!(partition("2/4"), Ok((2, 4)));
        assert!(partition("0/4").is_err() && partition("5/4").is_err() && partition("x").is_err());
    }
}
