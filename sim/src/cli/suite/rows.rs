//! What a suite shows of its rows, and of all of them together.
use std::collections::BTreeMap;

use cofferdam::guarantee::Claim;
use serde::Serialize;

use crate::campaign::{Tally, windows_of};
use crate::cli::mode::Mode;
use crate::cli::output::{Console, Paint, Painted, Table, grouped, seconds};
use crate::cli::simulated::build;
use crate::cli::suite::{Finished, Planned, SuiteArgs};
use crate::oracle::Verdict;
use crate::run;
use crate::story;

/// One row, for scripts.
#[derive(Serialize)]
struct RowOut<'a> {
    job: &'a str,
    #[serde(flatten)]
    mode: Mode,
    seeds: u64,
    claim: Claim,
    held: bool,
    verdict: String,
    refuted_in: Vec<&'static str>,
    lost: u64,
    duplicated: u64,
    unexpected: u64,
    wrong: u64,
    stuck: u64,
    unknown: u64,
    /// The first reason why, if runs are unknown.
    unjudged: Option<String>,
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
    /// Rows that are not held.
    refuted: usize,
    unknown: u64,
    not_judged: usize,
    given_up: u64,
    not_deterministic: u64,
    stopped: bool,
    seeds_per_s: f64,
    events_per_s: f64,
    wall_s: f64,
}

impl Finished<'_> {
    /// Shows every row.
    pub(super) fn tell(&self, console: &Console) {
        let columns = [
            "JOB",
            "GUARANTEE",
            "MECHANISM",
            "SINK",
            "CLAIM: STATE",
            "OUTPUT",
            "SEEDS",
            "FAULTS",
            "LOST",
            "TWICE",
        ];
        let mut table = Table::under(console.paint, &[&columns[..], &["VERDICT"]].concat());
        for (row, tally) in self.rows() {
            let out = RowOut::of(self.args, row, tally);
            if console.is_json() {
                console.row(&out);
                continue;
            }
            let output = row.claim.output.map_or("-".to_owned(), |level| level.to_string());
            let (verdict, painted) = verdict_cell(&out);
            let cells: [(String, Painted); 11] = [
                (out.job.to_owned(), Paint::bold),
                (row.mode.guarantee.to_string(), Paint::plain),
                (row.mode.mechanism.to_string(), Paint::plain),
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
            self.tell_unjudged(console);
        }
    }

    /// Says why runs are unknown, once a row.
    fn tell_unjudged(&self, console: &Console) {
        for (row, tally) in self.rows() {
            if let Some(why) = tally.unjudged_texts().next() {
                let run::Mode { guarantee, mechanism, sink, .. } = row.mode;
                let mode = Mode { guarantee, mechanism, sink };
                console.say(format!("{}, {mode}: not judged: {why}", row.job.name()));
            }
        }
    }

    /// Shows what the rows come to together.
    pub(super) fn summarize(&self, console: &Console) {
        let took = self.took;
        let per_second = |count: u64| (count as f64 / took.as_secs_f64().max(1e-9)).round();
        let runs = self.sum(|tally| tally.runs);
        if console.is_json() {
            let events = self.sum(|tally| tally.events);
            return console.row(&Summary {
                schema: "cofferdam.suite/1",
                build: build(),
                rows: self.planned.len(),
                runs,
                events,
                refuted: self.planned.len() - self.count(Verdict::Held),
                unknown: self.sum(|tally| tally.unknown),
                not_judged: self.count(Verdict::Unknown),
                given_up: self.sum(|tally| tally.given_up.len() as u64),
                not_deterministic: self.sum(|tally| tally.not_deterministic.len() as u64),
                stopped: self.outcome.stopped,
                seeds_per_s: per_second(runs),
                events_per_s: per_second(events),
                wall_s: seconds(took),
            });
        }
        console.say(format!(
            "\n{} in {} runs ({} seeds/s, {:.1} s)",
            self.refuted_text(),
            grouped(runs),
            grouped(per_second(runs) as u64),
            took.as_secs_f64()
        ));
        for (row, tally) in self.rows() {
            if let Some(seed) = tally.first_refuting_seed {
                console.say(self.args.simulation.replay_command(row.job.name(), &row.mode, seed));
            }
        }
    }

    /// How many rows were refuted, in words.
    pub(super) fn refuted_text(&self) -> String {
        match self.count(Verdict::Violated) {
            0 => "no claim was refuted".to_owned(),
            1 => "1 row was refuted".to_owned(),
            rows => format!("{rows} rows were refuted"),
        }
    }
}

/// A row's verdict for people.
fn verdict_cell(out: &RowOut<'_>) -> (String, Painted) {
    match (out.first_refuting_seed, out.held) {
        (Some(seed), _) => {
            (format!("REFUTED in {}, seed {seed}", out.refuted_in.join(" and ")), Paint::bad)
        }
        (None, false) if out.seeds == 0 => ("unknown, nothing was run".to_owned(), Paint::bad),
        (None, false) => ("unknown".to_owned(), Paint::bad),
        (None, true) if out.unknown > 0 => {
            (format!("held, unknown in {} runs", out.unknown), Paint::good)
        }
        (None, true) => ("held".to_owned(), Paint::good),
    }
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
            verdict: tally.verdict().to_string(),
            refuted_in: tally.refuted_in.iter().map(|subject| subject.word()).collect(),
            lost: tally.lost,
            duplicated: tally.duplicated,
            unexpected: tally.unexpected,
            wrong: tally.wrong,
            stuck: tally.stuck,
            unknown: tally.unknown,
            unjudged: tally.unjudged_texts().next(),
            refuting_seeds: tally.refuted,
            faults_injected: tally.faults(),
            windows: tally.windows.iter().map(|(w, count)| (story::word(w), *count)).collect(),
            missed_windows: words(tally.missed(&windows_of(
                mechanism,
                sink,
                row.claim,
                row.job.merges(),
            ))),
            disturbances: tally.disturbances.iter().map(|(d, n)| (story::word(d), *n)).collect(),
            oracles: &tally.oracles,
            first_refuting_seed: tally.first_refuting_seed,
            reproduce: tally
                .first_refuting_seed
                .map(|seed| args.simulation.replay_command(row.job.name(), &row.mode, seed)),
        }
    }
}
