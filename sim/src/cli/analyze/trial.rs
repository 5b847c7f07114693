//! A claim on trial: it has to hold over many seeds, and the next stronger one should not. If no
//! seed refutes that, the claim may be too weak, or the seeds too few; both are said.

use std::sync::atomic::Ordering;
use std::thread;

use cofferdam::guarantee::{Claim, Level};
use serde::Serialize;

use super::{AnalyzeArgs, ClaimRow};
use crate::campaign::{self, Conduct, Row, Seeds, Tally};
use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::Mode;
use crate::cli::output::{Console, command_line};
use crate::cli::signals;
use crate::jobs::{self, BuiltinJob, Parameters};
use crate::oracle::{Subject, Verdict};
use crate::run;

/// What a trial came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trial {
    pub(super) seeds: u64,
    held: bool,
    #[serde(serialize_with = "as_text")]
    verdict: Verdict,
    /// Runs of which nothing could be said.
    unknown: u64,
    /// The first reason why, if there are such.
    pub(super) unjudged: Option<String>,
    /// The least seed that refutes the claim.
    refuting_seed: Option<u64>,
    stronger: Vec<Stronger>,
}

/// A stronger claim for one side, and the least seed that refutes it.
#[derive(Clone, Copy, Debug, Serialize)]
struct Stronger {
    #[serde(serialize_with = "as_word")]
    subject: Subject,
    level: Level,
    refuting_seed: Option<u64>,
}

/// Tries every row that has a claim, over the seeds of a suite: the parallelism is drawn too, and
/// each run is held to what its own graph claims.
pub(super) fn try_all(
    rows: &mut [ClaimRow],
    args: &AnalyzeArgs,
    seeds: u64,
    console: &Console,
) -> Result<(), Failure> {
    let state = args.state;
    let mut planned = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let Some(claim) = row.claim else { continue };
        planned.push((index, None, claim));
        planned.extend(stronger(claim).map(|(side, more)| (index, Some(side), more)));
    }
    let found: Vec<&dyn BuiltinJob> = planned
        .iter()
        .map(|(index, ..)| jobs::find(rows[*index].job).expect("rows name jobs that were found"))
        .collect();
    let parameters: Vec<Parameters> =
        found.iter().map(|job| args.parameters.of(*job)).collect::<Result<_, _>>()?;
    let of_rows = found.iter().zip(parameters).zip(&planned);
    let campaign_rows = of_rows.map(|((job, parameters), (index, side, claim))| {
        let Mode { guarantee, mechanism, sink } = rows[*index].mode;
        let usual = run::Mode::of(guarantee, parameters);
        let faults = args.faults.of(mechanism, state).profile();
        let claim = side.map(|_| *claim);
        let mode = run::Mode { mechanism, sink, state, claim, faults, ..usual };
        Row { source: job, mode, until_refuted: side.is_some() }
    });
    let campaign_rows: Vec<Row<'_>> = campaign_rows.collect();
    let tallies = conduct(&campaign_rows, seeds, console)?;
    for ((index, side, _), tally) in planned.iter().zip(tallies) {
        let row = &mut rows[*index];
        match (side, &mut row.trial) {
            (Some((subject, level)), Some(trial)) => trial.stronger.push(Stronger {
                subject: *subject,
                level: *level,
                refuting_seed: tally.first_refuting_seed,
            }),
            (None, trial) | (Some(_), trial @ None) => {
                *trial = Some(Trial {
                    seeds,
                    held: tally.is_held(),
                    verdict: tally.verdict(),
                    unknown: tally.unknown,
                    unjudged: tally.unjudged_texts().next(),
                    refuting_seed: tally.first_refuting_seed,
                    stronger: Vec::new(),
                });
            }
        }
    }
    Ok(())
}

/// The claims with the next stronger level for one side, each with that side.
fn stronger(claim: Claim) -> impl Iterator<Item = ((Subject, Level), Claim)> {
    let state = claim.state.next_stronger().iter();
    let state =
        state.map(move |level| ((Subject::State, *level), Claim { state: *level, ..claim }));
    let output = claim.output.map_or(&[][..], Level::next_stronger).iter();
    let output = output
        .map(move |level| ((Subject::Output, *level), Claim { output: Some(*level), ..claim }));
    state.chain(output)
}

fn conduct(rows: &[Row<'_>], seeds: u64, console: &Console) -> Result<Vec<Tally>, Failure> {
    let stop = signals::stop_flag()?;
    let progress = console.campaign(seeds * rows.len() as u64);
    let conduct = Conduct {
        threads: thread::available_parallelism().map_or(1, usize::from),
        stop: &stop,
        is_given_up: &|| stop.load(Ordering::Relaxed),
        progress: &|done| progress.tell(done),
    };
    let seeds = Seeds { first: 0, count: seeds, part: (0, 1) };
    let outcome = campaign::run(rows, seeds, &conduct)?;
    match outcome.stopped {
        true => Err(Failure::again(Exit::Interrupted, "interrupted before all seeds were run")),
        false => Ok(outcome.tallies),
    }
}

/// The exit code, and for a claim that does not hold the command that shows it.
pub(super) fn conclude(rows: &[ClaimRow], args: &AnalyzeArgs) -> Result<Exit, Failure> {
    let is_open = |row: &&ClaimRow| row.trial.as_ref().is_some_and(|trial| !trial.held);
    let Some(row) = rows.iter().find(is_open) else { return Ok(Exit::Done) };
    let Mode { guarantee, mechanism, sink } = row.mode;
    let seed = row.trial.as_ref().and_then(|trial| trial.refuting_seed).unwrap_or_default();
    let words = [
        ("--job", row.job.to_owned()),
        ("--guarantee", guarantee.to_string()),
        ("--mechanism", mechanism.to_string()),
        ("--sink", sink.to_string()),
        ("--state", args.state.to_string()),
        ("--seed", seed.to_string()),
    ];
    let words = words.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    let faults = args.faults.of(mechanism, args.state);
    let words = words.chain(faults.words()).chain(args.parameters.words());
    let is_refuted = row.trial.as_ref().is_some_and(|trial| trial.verdict == Verdict::Violated);
    let (exit, what) = match is_refuted {
        true => (Exit::Violated, "does not hold"),
        false => (Exit::Unknown, "could not be judged"),
    };
    Err(Failure {
        exit,
        text: format!("the claim of {}, {}, {what}", row.job, row.mode),
        command: command_line(std::iter::once("replay".to_owned()).chain(words)),
    })
}

impl Trial {
    /// In words: the claim itself, then what came of more for the state and for the output.
    pub(super) fn words(&self) -> [String; 3] {
        let claim = match (self.verdict, self.unknown) {
            (Verdict::Held, 1..) => format!("held, unknown in {} runs", self.unknown),
            (verdict, _) => verdict.to_string(),
        };
        [claim, self.tightness(Subject::State), self.tightness(Subject::Output)]
    }

    fn tightness(&self, subject: Subject) -> String {
        let mut of_side = self.stronger.iter().filter(|more| more.subject == subject).peekable();
        if of_side.peek().is_none() {
            return "-".to_owned();
        }
        match of_side.find(|more| more.refuting_seed.is_none()) {
            Some(_) => format!("no refutation in {}", self.seeds),
            None => "refuted".to_owned(),
        }
    }
}

fn as_text<S: serde::Serializer>(verdict: &Verdict, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(verdict)
}

fn as_word<S: serde::Serializer>(subject: &Subject, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(subject.word())
}
