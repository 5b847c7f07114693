//! `suite`: many simulated runs of many jobs in many modes, each claim put to the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use cofferdam::guarantee::{Claim, Guarantee, Mechanism, SinkContract};
use serde::Serialize;
use serde_json::Value;

use crate::campaign::{self, Conduct, Outcome, Row, Seeds, Tally, windows_of};
use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, sample};
use crate::cli::output::{Console, Paint, Painted, Table, grouped, seconds};
use crate::cli::simulated::{SimulationArgs, build};
use crate::cli::values::{find_job, interval, positive, positive_size, seed, word};
use crate::cli::{replay, signals};
use crate::jobs::{self, BuiltinJob, Parameters};
use crate::oracle::Subject;
use crate::run;
use crate::story;

/// Simulate jobs under failures and put their claims to the test
#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    /// The job; may be given several times [default: every job]
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,
    /// The guarantee; may be given several times [default: all three]
    #[arg(long = "guarantee", value_name = "LEVEL", value_parser = word::<Guarantee>())]
    guarantees: Vec<Guarantee>,
    /// The mechanism; may be given several times [default: the guarantee's own]
    #[arg(long = "mechanism", value_parser = word::<Mechanism>())]
    mechanisms: Vec<Mechanism>,
    /// The sink; may be given several times [default: the guarantee's own]
    #[arg(long = "sink", value_parser = word::<SinkContract>())]
    sinks: Vec<SinkContract>,
    /// Seeds in each row
    #[arg(long, value_name = "N", value_parser = positive, default_value_t = SEEDS_DEFAULT)]
    seeds: u64,
    /// The first seed
    #[arg(long, value_name = "S", value_parser = seed, default_value = "0")]
    first_seed: u64,
    #[command(flatten)]
    simulation: SimulationArgs,
    /// Threads [default: one a core]
    #[arg(long, value_name = "N", value_parser = positive_size)]
    threads: Option<usize>,
    /// Run only the seeds of part K of N, by seed modulo N
    #[arg(long, value_name = "K/N", value_parser = partition)]
    partition: Option<(u64, u64)>,
    /// Begin no further run after this time
    #[arg(long, value_name = "DURATION", value_parser = interval)]
    time_limit: Option<Duration>,
    /// Write a scenario file for the first refuting seed of each row into this folder
    #[arg(long, value_name = "DIR")]
    repros: Option<PathBuf>,
    /// Fail if a window that a claim depends on was never hit; always on in a suite without flags
    #[arg(long)]
    require_coverage: bool,
}

/// One row, for scripts.
#[derive(Serialize)]
struct RowOut<'a> {
    job: &'a str,
    #[serde(flatten)]
    mode: Mode,
    seeds: u64,
    claim: Claim,
    held: bool,
    refuted_in: Vec<&'static str>,
    lost: u64,
    duplicated: u64,
    unexpected: u64,
    wrong: u64,
    stuck: u64,
    unknown: u64,
    refuting_seeds: u64,
    faults_injected: u64,
    windows: BTreeMap<String, u64>,
    missed_windows: Vec<String>,
    disturbances: BTreeMap<String, u64>,
    oracles: &'a BTreeMap<&'static str, u64>,
    first_refuting_seed: Option<u64>,
    reproduce: Option<String>,
}

#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    build: String,
    rows: usize,
    runs: u64,
    events: u64,
    refuted: usize,
    unknown: u64,
    not_deterministic: usize,
    stopped: bool,
    seeds_per_s: f64,
    events_per_s: f64,
    wall_s: f64,
}

struct Planned {
    job: &'static dyn BuiltinJob,
    mode: run::Mode,
    claim: Claim,
}

pub(crate) fn suite(args: &SuiteArgs, console: &Console) -> Result<Exit, Failure> {
    let planned = plan(args)?;
    if planned.is_empty() {
        console.note("nothing was selected: no guarantee, mechanism and sink go together");
        return Ok(Exit::Nothing);
    }
    let rows: Vec<Row<'_>> =
        planned.iter().map(|row| Row { source: &row.job, mode: row.mode.clone() }).collect();
    let seeds = Seeds {
        first: args.first_seed,
        count: args.seeds,
        part: args.partition.map_or((0, 1), |(part, parts)| (part - 1, parts)),
    };
    let stop = signals::stop_flag()?;
    let begun = Instant::now();
    let mut outcome = conduct(args, &rows, seeds, &stop, console)?;
    if !outcome.stopped {
        replay_elsewhere(args, &planned, &mut outcome)?;
    }
    let took = begun.elapsed();
    tell(args, &planned, &outcome, console);
    write_repros(args, &planned, &outcome, console)?;
    let exit = exit_of(args, &planned, &outcome, stop.load(Ordering::Relaxed), console);
    summarize(args, &planned, &outcome, took, console);
    Ok(exit)
}

/// The rows: every selected job in every selected mode whose parts go together.
fn plan(args: &SuiteArgs) -> Result<Vec<Planned>, Failure> {
    let jobs = match args.jobs.as_slice() {
        [] => jobs::all().to_vec(),
        names => names.iter().map(|name| find_job("suite", name)).collect::<Result<_, _>>()?,
    };
    let guarantees = if args.guarantees.is_empty() { Guarantee::ALL } else { &args.guarantees };
    let lines = args.simulation.lines()?;
    let mut planned = Vec::new();
    for job in jobs {
        for mode in Mode::all().filter(|mode| guarantees.contains(&mode.guarantee)) {
            let Mode { guarantee, mechanism, sink } = mode;
            let is_named = |given: bool, usual: bool, none: bool| if none { usual } else { given };
            let wanted = is_named(
                args.mechanisms.contains(&mechanism),
                mechanism == guarantee.default_mechanism(),
                args.mechanisms.is_empty(),
            ) && is_named(
                args.sinks.contains(&sink),
                sink == guarantee.default_sink(),
                args.sinks.is_empty(),
            );
            if !wanted {
                continue;
            }
            let parameters = Parameters::of(job);
            let claim = sample(job, &mode.setup(2, parameters.clone()), 0)?.claim().claim();
            let mut row = run::Mode { mechanism, sink, ..run::Mode::of(guarantee, parameters) };
            args.simulation.apply(&mut row, lines.clone(), claim);
            planned.push(Planned { job, claim: row.claim.unwrap_or(claim), mode: row });
        }
    }
    Ok(planned)
}

/// Runs all rows, with a bar on a terminal and a line now and then elsewhere.
fn conduct(
    args: &SuiteArgs,
    rows: &[Row<'_>],
    seeds: Seeds,
    stop: &AtomicBool,
    console: &Console,
) -> Result<Outcome, Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.unwrap_or(cores);
    let all = seeds.count * rows.len() as u64;
    console.explain(format!(
        "{} rows of {} seeds from {} on {threads} threads",
        rows.len(),
        seeds.count,
        seeds.first
    ));
    let bar = console.bar(all);
    let begun = Instant::now();
    let told = AtomicU64::new(0);
    let progress = |runs: u64| {
        bar.set_position(runs);
        let elapsed = begun.elapsed();
        bar.set_message(format!("{:.0} seeds/s", runs as f64 / elapsed.as_secs_f64()));
        if args.time_limit.is_some_and(|limit| elapsed >= limit) {
            stop.store(true, Ordering::Relaxed);
        }
        let due = elapsed.as_secs() / LINE_EVERY_SECONDS;
        if bar.is_hidden() && told.fetch_max(due, Ordering::Relaxed) < due {
            console.note(format!("{} of {} runs", grouped(runs), grouped(all)));
        }
    };
    let outcome = campaign::run(rows, seeds, &Conduct { threads, stop, progress: &progress })?;
    bar.finish_and_clear();
    Ok(outcome)
}

/// One seed of each row once more, in another process: its trace must be the same (ORACLES C15).
fn replay_elsewhere(
    args: &SuiteArgs,
    planned: &[Planned],
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::input(error.to_string()))?;
    let seed = args.first_seed;
    for (row, tally) in planned.iter().zip(&mut outcome.tallies) {
        let words = args.simulation.replay_words(row.job.name(), &row.mode, seed);
        let done = Command::new(&own).args(words).args(["--format", "json", "-q"]).output();
        let done = done.map_err(|error| Failure::input(format!("{}: {error}", own.display())))?;
        let text = String::from_utf8_lossy(&done.stdout);
        let summary: Option<Value> = text.lines().last().and_then(|l| serde_json::from_str(l).ok());
        let there = summary.as_ref().and_then(|s| s["trace_hash"].as_str().map(str::to_owned));
        let here = run::Run::new(&row.job, &row.mode, seed, None, false)?.finish();
        if there != Some(replay::hash_text(here.trace_hash)) {
            tally.not_deterministic.insert(seed);
        }
    }
    Ok(())
}

fn tell(args: &SuiteArgs, planned: &[Planned], outcome: &Outcome, console: &Console) {
    let columns =
        ["JOB", "GUARANTEE", "SINK", "CLAIM: STATE", "OUTPUT", "SEEDS", "FAULTS", "LOST", "TWICE"];
    let mut table = Table::under(console.paint, &[&columns[..], &["VERDICT"]].concat());
    for (row, tally) in planned.iter().zip(&outcome.tallies) {
        let out = RowOut::of(args, row, tally);
        if console.is_json() {
            console.row(&out);
            continue;
        }
        let output = row.claim.output.map_or("-".to_owned(), |level| level.to_string());
        let verdict = if !out.held {
            format!("REFUTED in {}, seed {}", out.refuted_in.join(" and "), first(tally))
        } else if tally.unknown > 0 {
            format!("unknown in {} runs", tally.unknown)
        } else {
            "held".to_owned()
        };
        let painted: Painted = if out.held { Paint::good } else { Paint::bad };
        let cells: [(String, Painted); 10] = [
            (out.job.to_owned(), Paint::bold),
            (row.mode.guarantee.to_string(), Paint::plain),
            (row.mode.sink.to_string(), Paint::plain),
            (row.claim.state.to_string(), Paint::plain),
            (output, Paint::plain),
            (grouped(tally.runs), Paint::plain),
            (grouped(tally.faults()), Paint::plain),
            (grouped(tally.lost), Paint::plain),
            (grouped(tally.duplicated), Paint::plain),
            (verdict, painted),
        ];
        table.row(console.paint, cells.iter().map(|(text, paint)| (text.as_str(), *paint)));
    }
    if !console.is_json() {
        table.lines().for_each(|line| console.say(line));
    }
}

fn first(tally: &Tally) -> u64 {
    tally.first_refuting_seed.expect("a refuted row has a first refuting seed")
}

impl<'a> RowOut<'a> {
    fn of(args: &SuiteArgs, row: &'a Planned, tally: &'a Tally) -> Self {
        let run::Mode { guarantee, mechanism, sink, .. } = row.mode;
        let words = |windows: Vec<_>| windows.into_iter().map(story::word).collect();
        Self {
            job: row.job.name(),
            mode: Mode { guarantee, mechanism, sink },
            seeds: tally.runs,
            claim: row.claim,
            held: tally.is_held(),
            refuted_in: tally.refuted_in.iter().map(|subject| subject_word(*subject)).collect(),
            lost: tally.lost,
            duplicated: tally.duplicated,
            unexpected: tally.unexpected,
            wrong: tally.wrong,
            stuck: tally.stuck,
            unknown: tally.unknown,
            refuting_seeds: tally.refuted,
            faults_injected: tally.faults(),
            windows: tally.windows.iter().map(|(w, count)| (story::word(w), *count)).collect(),
            missed_windows: words(tally.missed(&windows_of(mechanism, sink, row.claim))),
            disturbances: tally.disturbances.iter().map(|(d, n)| (story::word(d), *n)).collect(),
            oracles: &tally.oracles,
            first_refuting_seed: tally.first_refuting_seed,
            reproduce: tally
                .first_refuting_seed
                .map(|seed| args.simulation.replay_command(row.job.name(), &row.mode, seed)),
        }
    }
}

/// The word for a side of a job.
pub(crate) const fn subject_word(subject: Subject) -> &'static str {
    match subject {
        Subject::State => "state",
        Subject::Output => "output",
    }
}

fn write_repros(
    args: &SuiteArgs,
    planned: &[Planned],
    outcome: &Outcome,
    console: &Console,
) -> Result<(), Failure> {
    let Some(folder) = &args.repros else { return Ok(()) };
    let failed = |error| Failure::input(format!("--repros {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    for (row, tally) in planned.iter().zip(&outcome.tallies) {
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

fn exit_of(
    args: &SuiteArgs,
    planned: &[Planned],
    outcome: &Outcome,
    interrupted: bool,
    console: &Console,
) -> Exit {
    let rows = || planned.iter().zip(&outcome.tallies);
    for (row, tally) in rows() {
        for seed in &tally.not_deterministic {
            let command = args.simulation.replay_command(row.job.name(), &row.mode, *seed);
            console.note(format!("not deterministic, two runs of one seed differ: {command}"));
        }
    }
    let missed = uncovered(args, planned, outcome, console);
    let runs: u64 = outcome.tallies.iter().map(|tally| tally.runs).sum();
    let timed_out = args.time_limit.is_some() && outcome.stopped;
    if rows().any(|(_, tally)| !tally.not_deterministic.is_empty()) {
        Exit::NotDeterministic
    } else if rows().any(|(_, tally)| !tally.is_held()) {
        Exit::Violated
    } else if interrupted && !timed_out {
        Exit::Interrupted
    } else if runs == 0 {
        Exit::Nothing
    } else if missed || rows().any(|(_, tally)| tally.runs > 0 && tally.unknown == tally.runs) {
        Exit::Unknown
    } else {
        Exit::Done
    }
}

/// Lists the windows that no fault has hit; whether that makes the suite a vacuous one.
fn uncovered(args: &SuiteArgs, planned: &[Planned], outcome: &Outcome, console: &Console) -> bool {
    let without_flags = args.jobs.is_empty()
        && args.guarantees.is_empty()
        && args.mechanisms.is_empty()
        && args.sinks.is_empty()
        && args.seeds == SEEDS_DEFAULT
        && args.simulation.is_default();
    let strict = args.require_coverage || (without_flags && !outcome.stopped);
    let wants_faults = !args.simulation.is_without_faults() && args.partition.is_none();
    let mut vacuous = false;
    for (row, tally) in planned.iter().zip(&outcome.tallies) {
        let run::Mode { guarantee, mechanism, sink, .. } = row.mode;
        let wanted = windows_of(mechanism, sink, row.claim);
        let missed = tally.missed(&wanted);
        if missed.is_empty() || !wants_faults {
            continue;
        }
        let names: BTreeSet<String> = missed.iter().map(story::word).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        console.note(format!("{} {guarantee}: no fault hit {names}", row.job.name()));
        vacuous |= strict || missed.len() == wanted.len();
    }
    vacuous
}

fn summarize(
    args: &SuiteArgs,
    planned: &[Planned],
    outcome: &Outcome,
    took: Duration,
    console: &Console,
) {
    let sum = |of: fn(&Tally) -> u64| outcome.tallies.iter().map(of).sum::<u64>();
    let per_second = |count: u64| (count as f64 / took.as_secs_f64().max(1e-9)).round();
    let runs = sum(|tally| tally.runs);
    let refuted = outcome.tallies.iter().filter(|tally| !tally.is_held()).count();
    if console.is_json() {
        let events = sum(|tally| tally.events);
        return console.row(&Summary {
            schema: "cofferdam.suite/1",
            build: build(),
            rows: planned.len(),
            runs,
            events,
            refuted,
            unknown: sum(|tally| tally.unknown),
            not_deterministic: outcome.tallies.iter().map(|t| t.not_deterministic.len()).sum(),
            stopped: outcome.stopped,
            seeds_per_s: per_second(runs),
            events_per_s: per_second(events),
            wall_s: seconds(took),
        });
    }
    let verdict = match refuted {
        0 => "no claim was refuted".to_owned(),
        1 => "1 row was refuted".to_owned(),
        rows => format!("{rows} rows were refuted"),
    };
    console.say(format!(
        "\n{verdict} in {} runs ({} seeds/s, {:.1} s)",
        grouped(runs),
        grouped(per_second(runs) as u64),
        took.as_secs_f64()
    ));
    for (row, tally) in planned.iter().zip(&outcome.tallies) {
        if let Some(seed) = tally.first_refuting_seed {
            console.say(args.simulation.replay_command(row.job.name(), &row.mode, seed));
        }
    }
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
/// How often progress is told where there is no terminal.
const LINE_EVERY_SECONDS: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_counts_from_one() {
        assert_eq!(partition("2/4"), Ok((2, 4)));
        assert!(partition("0/4").is_err() && partition("5/4").is_err() && partition("x").is_err());
    }
}
