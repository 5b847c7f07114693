//! `replay`: one simulated run again, from a scenario file or a seed, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cofferdam::guarantee::Level;
use cofferdam::trace::TraceEvent;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{LevelArgs, Mode};
use crate::cli::output::Console;
use crate::cli::simulated::{SimulationArgs, build};
use crate::cli::values::{CaseParameters, find_job, positive, seed};
use crate::decide::Divergence;
use crate::jobs::{BuiltinJob, Parameters};
use crate::oracle::{Anomaly, Judgement, Levels, Seen, Subject, Verdict};
use crate::run::{self, Report, Run, Script};
use crate::scenario::{ClaimText, Matched, Scenario, Seed, VERSION, subject_name};
use crate::story;

/// Run one simulation again, byte for byte
#[derive(Debug, Args)]
#[command(override_usage = "cofferdam replay [OPTIONS] <SCENARIO>\n       \
                      cofferdam replay [OPTIONS] --job <JOB> --seed <SEED>")]
pub(crate) struct ReplayArgs {
    /// The scenario file; it says all that the flags of the mode and of the simulation say
    #[arg(conflicts_with_all = said_by_scenario())]
    scenario: Option<PathBuf>,
    /// The job
    #[arg(long)]
    job: Option<String>,
    /// The seed
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// Print every event, a line each
    #[arg(long)]
    trace: bool,
    /// Stop after this many events of the simulation; nothing is judged before the end
    #[arg(long, value_name = "N", value_parser = positive)]
    until: Option<u64>,
    /// Print the options that were drawn from the seed
    #[arg(long)]
    options: bool,
    /// Fail if a decision of the scenario no longer applies
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    level: LevelArgs,
    #[command(flatten)]
    simulation: SimulationArgs,
}

/// The flags whose part a scenario file has, beside the parameters of the jobs.
const SAID_BY_SCENARIO: [&str; 13] = [
    "job",
    "seed",
    "guarantee",
    "mechanism",
    "sink",
    "input",
    "records",
    "parallelism",
    "faults",
    "state",
    "alignment_timeout",
    "concurrent_checkpoints",
    "claim",
];

fn said_by_scenario() -> Vec<&'static str> {
    SAID_BY_SCENARIO.into_iter().chain(CaseParameters::flags()).collect()
}

/// The run, for scripts.
#[derive(Serialize)]
struct Out<'a> {
    schema: &'static str,
    job: &'a str,
    #[serde(flatten)]
    mode: Mode,
    seed: u64,
    events: u64,
    trace_hash: String,
    state_hash: String,
    output_hash: String,
    state_verdict: String,
    output_verdict: Option<String>,
    /// None if it was not judged in full.
    state_level: Option<Seen>,
    output_level: Option<Seen>,
    unjudged: Vec<UnjudgedOut<'a>>,
    lost: usize,
    duplicated: usize,
    unexpected: usize,
    wrong: usize,
    stuck: bool,
    seen_again: u64,
    diverged: Vec<String>,
    violation: Option<ViolationOut>,
}

/// A side of the job that was not judged in full.
#[derive(Serialize)]
struct UnjudgedOut<'a> {
    subject: &'static str,
    reason: &'a str,
}

/// What broke the claim.
#[derive(Serialize)]
struct ViolationOut {
    what: &'static str,
    r#where: &'static str,
    record: Option<RecordOut>,
    why: String,
    oracle: &'static str,
    /// The first rule of the protocol that was broken, if one was.
    rule: Option<String>,
}

#[derive(Serialize)]
struct RecordOut {
    source: u32,
    offset: u64,
    text: String,
}

#[derive(Serialize)]
struct EventOut {
    event: String,
}

/// What is to be run.
struct Plan {
    job: &'static dyn BuiltinJob,
    mode: run::Mode,
    seed: u64,
    script: Option<Script>,
    /// Faults and decisions of a scenario about what does not exist here.
    unknown: Vec<String>,
    /// Nothing of the scenario is about anything that exists.
    is_vacuous: bool,
    /// What the scenario says about the run that it was written from.
    written: Option<Written>,
}

/// What a scenario says about the run that it was written from.
struct Written {
    build: Option<String>,
    trace_hash: Option<String>,
    /// It is no longer as it was written.
    is_edited: bool,
}

/// What came of it.
#[derive(Clone, Copy)]
struct Replayed<'a> {
    plan: &'a Plan,
    run: &'a Run,
    report: &'a Report,
    /// The decisions that did not apply.
    diverged: &'a [String],
    /// It was not run to its end.
    is_paused: bool,
}

pub(crate) fn replay(args: &ReplayArgs, console: &Console) -> Result<Exit, Failure> {
    let plan = match &args.scenario {
        Some(path) => of_scenario(path)?,
        None => of_seed(args)?,
    };
    console.note(format!("seed {} of {}, {}", plan.seed, plan.job.name(), mode_of(&plan.mode)));
    let mut run = Run::new(&plan.job, &plan.mode, plan.seed, plan.script.clone(), false)?;
    if args.options {
        console.say(run.world().plan().options.to_string());
    }
    let is_paused = args.until.is_some_and(|until| stops_at(&mut run, until));
    let report = if is_paused { run.pause() } else { run.finish() };
    if args.trace {
        print_trace(&run, console);
    }
    let diverged = diverged(&plan, &run, &report.diverged);
    let replayed =
        Replayed { plan: &plan, run: &run, report: &report, diverged: &diverged, is_paused };
    replayed.tell(console);
    replayed.conclude(args, console)
}

fn levels(judgement: &Judgement) -> Levels {
    judgement.levels.expect("a run that is played again is judged in full")
}

fn unjudged(judgement: &Judgement) -> Vec<UnjudgedOut<'_>> {
    let open = judgement.unjudged.iter();
    open.map(|(subject, reason)| UnjudgedOut { subject: subject.word(), reason }).collect()
}

/// Lets so many events happen; whether there would be more.
fn stops_at(run: &mut Run, until: u64) -> bool {
    while run.world().events() < until {
        if !run.world_mut().step() {
            return false;
        }
    }
    true
}

/// The scenario of a run that is drawn from a seed, with all its decisions.
pub(crate) fn scenario_of(
    job: &'static dyn BuiltinJob,
    mode: &run::Mode,
    seed: u64,
) -> Result<Scenario, Failure> {
    let mut run = Run::new(&job, mode, seed, None, true)?;
    run.world_mut().run();
    let mut scenario = Scenario {
        version: VERSION,
        job: job.name().to_owned(),
        guarantee: mode.guarantee,
        mechanism: Some(mode.mechanism),
        sink: Some(mode.sink),
        state: Some(mode.state).filter(|home| home.is_external()),
        seed: Seed(seed),
        build: Some(build()),
        trace_hash: Some(hash_text(run.world().trace_hash())),
        content_hash: None,
        claim: mode.claim.map(|claim| ClaimText { state: claim.state, output: claim.output }),
        parameters: mode.parameters.changed(job),
        lines: mode.lines.as_ref().map(|lines| lines.to_vec()),
        options: None,
        records: Vec::new(),
        faults: None,
        decisions: None,
    };
    scenario.take_from(&run);
    scenario.content_hash = Some(hash_text(scenario.content()));
    Ok(scenario)
}

/// A hash as it is printed.
pub(crate) fn hash_text(hash: u64) -> String {
    format!("{hash:016x}")
}

fn of_seed(args: &ReplayArgs) -> Result<Plan, Failure> {
    let (Some(name), Some(seed)) = (&args.job, args.seed) else {
        return Err(Failure::usage("replay", "give a scenario file, or --job and --seed"));
    };
    let job = find_job("replay", name)?;
    let Mode { guarantee, mechanism, sink } = args.level.mode("replay")?;
    args.simulation.check("replay", &[mechanism])?;
    let parameters = args.simulation.parameters(job)?;
    let of_mode = Mode { guarantee, mechanism, sink };
    let lines = args.simulation.lines()?;
    let setup = of_mode.setup(2, parameters.clone());
    let inferred = args.simulation.inferred_claim(job, setup, lines.as_ref())?;
    let mut mode = run::Mode { mechanism, sink, ..run::Mode::of(guarantee, parameters) };
    args.simulation.apply(&mut mode, lines, inferred);
    let (unknown, is_vacuous) = (Vec::new(), false);
    Ok(Plan { job, mode, seed, script: None, unknown, is_vacuous, written: None })
}

fn of_scenario(path: &Path) -> Result<Plan, Failure> {
    let wrong = |text: String| Failure::input(format!("{}: {text}", path.display()));
    let bytes = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8 text".to_owned()))?;
    let scenario = Scenario::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let job = crate::jobs::find(&scenario.job)
        .ok_or_else(|| wrong(format!("no job '{}' is built in", scenario.job)))?;
    let given = scenario.parameters.iter().map(|(flag, value)| (flag.as_str(), value.as_str()));
    let parameters = Parameters::given(job, given).map_err(|error| wrong(error.to_string()))?;
    let guarantee = scenario.guarantee;
    let mut mode = run::Mode::of(guarantee, parameters);
    mode.mechanism = scenario.mechanism.unwrap_or(mode.mechanism);
    mode.sink = scenario.sink.unwrap_or(mode.sink);
    if let Some(reason) = mode_of(&mode).refusal() {
        return Err(wrong(reason));
    }
    mode.state = scenario.state.unwrap_or(mode.state);
    mode.claim = scenario.claim();
    mode.lines = scenario.lines.clone().map(Arc::from);
    mode.records = scenario.options.as_ref().map_or(mode.records, |options| options.records);
    let seed = scenario.seed.0;
    let drawn = Run::new(&job, &mode, seed, options_only(&scenario), false)?;
    let matched = scenario.script(drawn.world().plan());
    let Matched { script, unknown, known } = matched.map_err(|error| wrong(error.to_string()))?;
    let is_vacuous = known == 0 && !unknown.is_empty();
    let is_edited =
        scenario.content_hash.as_ref().is_some_and(|hash| *hash != hash_text(scenario.content()));
    let Scenario { build, trace_hash, .. } = scenario;
    let written = Some(Written { build, trace_hash, is_edited });
    Ok(Plan { job, mode, seed, script: Some(script), unknown, is_vacuous, written })
}

/// The scenario's options alone: they shape the graph that gives its names a meaning.
fn options_only(scenario: &Scenario) -> Option<Script> {
    let options = scenario.options.clone()?;
    Some(Script { options, faults: None, decisions: None })
}

fn mode_of(mode: &run::Mode) -> Mode {
    Mode { guarantee: mode.guarantee, mechanism: mode.mechanism, sink: mode.sink }
}

fn print_trace(run: &Run, console: &Console) {
    let mut graphs = run.graphs();
    let mut graph = graphs.next().expect("there is a first layout");
    for traced in run.world().trace().iter() {
        if let TraceEvent::LaidOut { .. } = traced.event {
            graph = graphs.next().unwrap_or(graph);
        }
        let event = story::line(traced, graph);
        if console.is_json() { console.row(&EventOut { event }) } else { console.say(event) }
    }
}

/// The decisions that did not apply, in words.
fn diverged(plan: &Plan, run: &Run, diverged: &[Divergence]) -> Vec<String> {
    let graph = run.case().job.graph();
    let decisions = diverged.iter().map(|divergence| {
        let Divergence { choice, subject, occurrence } = *divergence;
        let subject = subject_name(choice, subject, graph);
        format!("{} of {subject}, occurrence {}", story::word(choice), occurrence + 1)
    });
    plan.unknown.iter().cloned().chain(decisions).collect()
}

fn violation(run: &Run, report: &Report) -> Option<ViolationOut> {
    let finding = report.judgement.violation()?;
    let record = finding.record.map(|record| RecordOut {
        source: record.source,
        offset: record.offset,
        text: (run.case().inputs[record.source as usize].text)(record.offset),
    });
    Some(ViolationOut {
        what: anomaly_word(finding.anomaly),
        r#where: finding.subject.word(),
        record,
        why: finding.text.clone(),
        oracle: finding.oracle,
        rule: report.judgement.broken_rule().map(|rule| format!("{}: {}", rule.oracle, rule.text)),
    })
}

const fn anomaly_word(anomaly: Anomaly) -> &'static str {
    match anomaly {
        Anomaly::Lost => "lost",
        Anomaly::Duplicated => "duplicated",
        Anomaly::Unexpected => "unexpected",
        Anomaly::Wrong => "wrong",
        Anomaly::Stuck => "stuck",
        Anomaly::Protocol => "protocol",
    }
}

impl Replayed<'_> {
    fn tell(&self, console: &Console) {
        let Self { plan, run, report, diverged, is_paused } = *self;
        let judgement = &report.judgement;
        let violation = violation(run, report);
        if console.is_json() {
            let (hashes, levels) = (run.hashes(), levels(judgement));
            return console.row(&Out {
                schema: "cofferdam.replay/1",
                job: plan.job.name(),
                mode: mode_of(&plan.mode),
                seed: plan.seed,
                events: report.events,
                trace_hash: hash_text(hashes.trace),
                state_hash: hash_text(hashes.state),
                output_hash: hash_text(hashes.output),
                state_verdict: judgement.state.to_string(),
                output_verdict: judgement.output.map(|verdict| verdict.to_string()),
                state_level: levels.state,
                output_level: levels.output,
                unjudged: unjudged(judgement),
                lost: judgement.lost,
                duplicated: judgement.duplicated,
                unexpected: judgement.unexpected,
                wrong: judgement.wrong,
                stuck: judgement.stuck,
                seen_again: report.seen_again,
                diverged: diverged.to_vec(),
                violation,
            });
        }
        if !is_paused {
            self.tell_verdicts(violation, console);
        }
        tell_diverged(diverged, console);
        let hash = hash_text(run.world().trace_hash());
        console.say(format!("\n{} events, trace {hash}", report.events));
    }

    fn tell_verdicts(&self, violation: Option<ViolationOut>, console: &Console) {
        let (report, judgement) = (self.report, &self.report.judgement);
        let levels = levels(judgement);
        let paint = console.paint;
        let side = |subject: Subject, verdict: Verdict, claim: Level, seen: Option<Seen>| {
            let (name, word) = (subject.word(), verdict.to_string());
            let word = if verdict == Verdict::Held { paint.good(&word) } else { paint.bad(&word) };
            let seen = seen.map_or("not known".to_owned(), |seen| seen.to_string());
            console.say(format!("{name:7} {word}: the claim is {claim}, what was seen is {seen}"));
            for (_, reason) in judgement.unjudged.iter().filter(|(of, _)| *of == subject) {
                console.say(format!("        not judged: {reason}"));
            }
        };
        side(Subject::State, judgement.state, report.claim.state, levels.state);
        if let Some((verdict, claim)) = judgement.output.zip(report.claim.output) {
            side(Subject::Output, verdict, claim, levels.output);
        }
        if report.seen_again > 0 {
            console.say(format!(
                "        until the replay had caught up, readers saw {} rows again that had been \
                 replaced",
                report.seen_again
            ));
        }
        if let Some(ViolationOut { what, r#where, record, why, rule, .. }) = violation {
            console.say(format!("\n{} in the {where}: {why}", paint.bad(what), where = r#where));
            if let Some(RecordOut { source, offset, text }) = record {
                console.say(format!("  record {offset} of source {source}: {text}"));
            }
            if let Some(rule) = rule {
                console.say(format!("  broken rule: {rule}"));
            }
        }
    }

    /// The exit code, and what it is for.
    fn conclude(&self, args: &ReplayArgs, console: &Console) -> Result<Exit, Failure> {
        let Self { plan, run, report, diverged, is_paused } = *self;
        if let Some(first) = diverged.first() {
            console.note(format!("a decision no longer applies: {first}"));
        }
        let mut is_other_run = false;
        if let Some(Written { build: of_build, trace_hash, is_edited }) = &plan.written {
            let same_build = of_build.as_ref() == Some(&build());
            let same_trace =
                trace_hash.as_ref().is_none_or(|hash| *hash == hash_text(run.world().trace_hash()));
            if *is_edited {
                console.note("the scenario was edited: its run need not be the one it was");
            } else if !same_build {
                let writer = of_build.as_deref().unwrap_or("an unknown build");
                console.note(format!("the scenario was written by {writer}, this is {}", build()));
            }
            is_other_run =
                same_build && !same_trace && !is_edited && diverged.is_empty() && !is_paused;
        }
        let judgement = &report.judgement;
        let sides = [(Subject::State, Some(judgement.state)), (Subject::Output, judgement.output)];
        let has = |verdict| sides.iter().find(|(_, of_side)| *of_side == Some(verdict));
        let (exit, text) = if is_other_run {
            let text = "not deterministic: the same build has given another trace";
            (Exit::NotDeterministic, text.to_owned())
        } else if args.strict && !diverged.is_empty() {
            (Exit::NotDeterministic, "--strict: decisions of the scenario do not apply".to_owned())
        } else if let Some((side, _)) = has(Verdict::Violated) {
            (Exit::Violated, format!("the claim for the {} is violated", side.word()))
        } else if is_paused {
            let text = format!("stopped after {} events, nothing is judged", report.events);
            (Exit::Unknown, text)
        } else if let Some((side, _)) = has(Verdict::Unknown) {
            let reason = judgement.unjudged.iter().find(|(of, _)| of == side);
            let reason = reason.map_or(String::new(), |(_, reason)| format!(": {reason}"));
            (Exit::Unknown, format!("nothing can be said about the {}{reason}", side.word()))
        } else if plan.is_vacuous {
            let text = "nothing of the scenario applies, so the run shows nothing of it";
            (Exit::Unknown, text.to_owned())
        } else {
            return Ok(Exit::Done);
        };
        let mut failure = Failure::again(exit, text);
        if !args.trace {
            failure.command.push_str(" --trace");
        }
        Err(failure)
    }
}

/// Says in full what did not apply, up to a screenful.
fn tell_diverged(diverged: &[String], console: &Console) {
    if diverged.is_empty() {
        return;
    }
    console.say("\nthese faults and decisions do not apply:");
    diverged.iter().take(DIVERGED_SHOWN).for_each(|text| console.say(format!("  {text}")));
    if let Some(others @ 1..) = diverged.len().checked_sub(DIVERGED_SHOWN) {
        console.say(format!("  and {others} others"));
    }
}

/// As many as one looks at.
const DIVERGED_SHOWN: usize = 20;
