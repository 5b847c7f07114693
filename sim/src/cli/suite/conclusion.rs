//! How a suite ends: what is said beside its rows, the exit code, and the command to paste.

use std::collections::BTreeSet;

use crate::campaign::{Tally, windows_of};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{Console, grouped};
use crate::cli::suite::{Finished, Planned, SEEDS_DEFAULT};
use crate::oracle::Verdict;
use crate::run;
use crate::story;

/// Says what is good to know about the rows, and how the suite ends.
pub(super) fn conclude(finished: &Finished<'_>, console: &Console) -> Result<Exit, Failure> {
    tell_seeds(finished, console);
    let is_vacuous = tell_missed_windows(finished, console);
    finished.summarize(console);
    let replay = |exit, row: &Planned, seed, text| {
        let command = finished.args.simulation.replay_command(row.job.name(), &row.mode, seed);
        Err(Failure { exit, text, command })
    };
    let seed_of = |of: fn(&Tally) -> Option<u64>| {
        finished.rows().find_map(|(row, tally)| Some((row, of(tally)?)))
    };
    if let Some((row, seed)) = seed_of(|tally| tally.not_deterministic.first().copied()) {
        let text = format!("two runs of seed {seed} of {} differ", row.job.name());
        return replay(Exit::NotDeterministic, row, seed, text);
    }
    if let Some((row, seed)) = seed_of(|tally| tally.first_refuting_seed) {
        let text = format!("{}, first {} by seed {seed}", finished.refuted_text(), row.job.name());
        return replay(Exit::Violated, row, seed, text);
    }
    let runs = finished.sum(|tally| tally.runs);
    if finished.is_interrupted {
        let text = format!("interrupted after {} runs", grouped(runs));
        return Err(Failure::again(Exit::Interrupted, text));
    }
    if runs == 0 && !finished.outcome.stopped {
        return Err(Failure::again(Exit::Nothing, "nothing was selected: the part has no seed"));
    }
    let unknown = finished.rows().filter(|(_, tally)| tally.verdict() == Verdict::Unknown).count();
    if unknown > 0 {
        let text = format!("nothing can be said about {unknown} rows: no run of them was judged");
        return Err(Failure::again(Exit::Unknown, text));
    }
    if is_vacuous {
        let text = if finished.args.simulation.is_without_faults() {
            "nothing was put to the test: --faults none injects none"
        } else {
            "windows that a claim depends on were missed, see above: give more --seeds"
        };
        return Err(Failure::again(Exit::Unknown, text));
    }
    Ok(Exit::Done)
}

/// Names the seeds that have something to say beside a verdict.
fn tell_seeds(finished: &Finished<'_>, console: &Console) {
    for (row, tally) in finished.rows() {
        let tell = |seeds: &BTreeSet<u64>, what: &str| {
            for seed in seeds {
                let simulation = &finished.args.simulation;
                let command = simulation.replay_command(row.job.name(), &row.mode, *seed);
                console.note(format!("{what}: {command}"));
            }
        };
        tell(&tally.not_deterministic, "not deterministic, two runs of one seed differ");
        tell(&tally.given_up, "given up while it ran, it counts nowhere");
    }
}

/// Lists the windows that no fault has hit; whether that makes the suite a vacuous one.
fn tell_missed_windows(finished: &Finished<'_>, console: &Console) -> bool {
    let args = finished.args;
    // The parts of a partition cover the windows together.
    if args.partition.is_some() {
        return false;
    }
    let without_flags = args.jobs.is_empty()
        && args.guarantees.is_empty()
        && args.mechanisms.is_empty()
        && args.sinks.is_empty()
        && args.seeds == SEEDS_DEFAULT
        && args.simulation.is_default();
    let strict = args.require_coverage || (without_flags && !finished.outcome.stopped);
    let mut vacuous = false;
    for (row, tally) in finished.rows() {
        let run::Mode { guarantee, mechanism, sink, .. } = row.mode;
        let wanted = windows_of(mechanism, sink, row.claim, row.job.merges());
        let missed = tally.missed(&wanted);
        if missed.is_empty() || tally.runs == 0 {
            continue;
        }
        let names: BTreeSet<String> = missed.iter().map(story::word).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        console.note(format!("{} {guarantee}: no fault hit {names}", row.job.name()));
        vacuous |= strict || missed.len() == wanted.len();
    }
    vacuous
}
