//! What was found of one contender.

use std::time::Duration;

use cofferdam::guarantee::{Claim, SinkContract};
use serde::Serialize;

use super::latency::Percentiles;
use super::measure::{Measured, Spread};
use super::runs::Contender;
use super::trials::{Calm, Struck};
use crate::cli::torture::Verdict;

/// One row, for scripts. What could not be measured is null, and `notes` or `problems` say why.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) contender: Contender,
    pub(super) backend: &'static str,
    /// How many records each run for throughput reads.
    pub(super) records: u64,
    /// The median over all rounds.
    pub(super) records_per_s: Option<f64>,
    /// The slowest and the fastest round.
    pub(super) min_records_per_s: Option<f64>,
    pub(super) max_records_per_s: Option<f64>,
    /// The median of the ratios to no guarantee, each taken within a round.
    pub(super) relative: Option<f64>,
    pub(super) relative_min: Option<f64>,
    pub(super) relative_max: Option<f64>,
    /// From when a record is due until each of its rows can be seen.
    pub(super) latency_ms: Option<Percentiles>,
    pub(super) checkpoint: Checkpoint,
    /// From a kill until a row is seen of a record that was due after it: the median.
    pub(super) recovery_ms: Option<f64>,
    pub(super) min_recovery_ms: Option<f64>,
    pub(super) max_recovery_ms: Option<f64>,
    /// How many kills there were; the counts are over all of them.
    pub(super) kills: u64,
    /// Records that were read again. Without a guarantee they had been read, and not handed out.
    pub(super) replayed: Option<u64>,
    pub(super) lost: Option<u64>,
    pub(super) duplicated: Option<u64>,
    pub(super) wrong: Option<u64>,
    /// How many rows there should have been, over all runs that were killed.
    pub(super) rows_expected: u64,
    pub(super) claim: Claim,
    pub(super) state_verdict: Verdict,
    pub(super) output_verdict: Verdict,
    /// Why nothing can be said of what a kill did to the output, if so.
    pub(super) unjudged: Option<&'static str>,
    pub(super) notes: Vec<&'static str>,
    /// What failed, or was wrong.
    pub(super) problems: Vec<String>,
    #[serde(skip)]
    recoveries: Vec<Duration>,
}

/// What checkpoints cost while the input is read as fast as it can be.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Checkpoint {
    /// In one run.
    pub(super) count: u64,
    pub(super) mean_ms: Option<f64>,
    /// Of one checkpoint, on average.
    pub(super) bytes: Option<u64>,
}

impl Row {
    /// What is known from the runs for throughput.
    pub(super) fn new(of: &Measured, base: &Measured, claim: Claim) -> Self {
        let (rate, relative) = (of.rate(), of.relative_to(base));
        let is_discarded = of.contender.mode.sink == SinkContract::Discard;
        let notes = is_discarded.then_some(DISCARDED).into_iter().collect();
        Self {
            contender: of.contender,
            backend: "fs",
            records: of.records,
            records_per_s: rate.map(|spread| spread.median.round()),
            min_records_per_s: rate.map(|spread| spread.min.round()),
            max_records_per_s: rate.map(|spread| spread.max.round()),
            relative: relative.map(|spread| to_thousandths(spread.median)),
            relative_min: relative.map(|spread| to_thousandths(spread.min)),
            relative_max: relative.map(|spread| to_thousandths(spread.max)),
            latency_ms: None,
            checkpoint: Checkpoint::of(of),
            recovery_ms: None,
            min_recovery_ms: None,
            max_recovery_ms: None,
            kills: 0,
            replayed: None,
            lost: None,
            duplicated: None,
            wrong: None,
            rows_expected: 0,
            claim,
            state_verdict: Verdict::Unknown,
            output_verdict: Verdict::Unknown,
            unjudged: None,
            notes,
            problems: of.problems.clone(),
            recoveries: Vec::new(),
        }
    }

    /// Whether runs at a pace can tell anything: not where all runs fail or nothing can be seen.
    pub(super) fn can_be_tried(&self) -> bool {
        self.problems.is_empty() && self.contender.mode.sink != SinkContract::Discard
    }

    pub(super) fn take_calm(&mut self, calm: Result<Calm, String>) {
        match calm {
            Ok(Calm { latency }) => {
                self.latency_ms = latency;
                self.notes.extend(latency.is_none().then_some(NAMELESS));
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Adds what came of another kill.
    pub(super) fn take_struck(&mut self, struck: Result<Struck, String>) {
        let Struck { recovery, replayed, rows, findings } = match struck {
            Ok(struck) => struck,
            Err(problem) => return self.problems.push(problem),
        };
        self.kills += 1;
        self.recoveries.extend(recovery);
        let spread = Spread::of(self.recoveries.iter().map(|time| millis(*time)));
        self.recovery_ms = spread.map(|spread| to_thousandths(spread.median));
        self.min_recovery_ms = spread.map(|spread| spread.min);
        self.max_recovery_ms = spread.map(|spread| spread.max);
        self.state_verdict = worse(self.kills, self.state_verdict, findings.state);
        self.output_verdict = worse(self.kills, self.output_verdict, findings.output);
        let add = |sum: &mut Option<u64>, more| *sum = Some(sum.unwrap_or(0) + more);
        add(&mut self.replayed, replayed);
        if findings.unjudged.is_some() {
            self.unjudged = findings.unjudged;
            return;
        }
        self.rows_expected += rows;
        add(&mut self.lost, findings.lost);
        add(&mut self.duplicated, findings.duplicated);
        add(&mut self.wrong, findings.wrong);
        if [findings.state, findings.output].contains(&Verdict::Violated) {
            let example = findings.examples.first().map_or("", String::as_str);
            self.problems.push(format!("after a kill its claim is violated, as in: {example}"));
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        !self.problems.is_empty()
    }

    /// The first thing that was wrong.
    pub(super) fn why_failed(&self) -> &str {
        self.problems.first().map_or("nothing", String::as_str)
    }

    /// Which part of all rows was lost when it was killed, and which came twice.
    pub(super) fn shares(&self) -> Option<[f64; 2]> {
        let of_all = |count: u64| count as f64 / self.rows_expected.max(1) as f64;
        Some([of_all(self.lost?), of_all(self.duplicated?)])
    }
}

impl Checkpoint {
    fn of(of: &Measured) -> Self {
        let count = of.median(|report| Some(report.checkpoints as f64)).unwrap_or(0.0);
        let taken = |of: f64, checkpoints: u64| (checkpoints > 0).then_some(of);
        let mean_ms = of.median(|report| taken(report.checkpoint_mean_ms, report.checkpoints));
        let bytes = of.median(|report| {
            let each = report.checkpoint_bytes as f64 / report.checkpoints.max(1) as f64;
            taken(each, report.checkpoints)
        });
        Self {
            count: count.round() as u64,
            mean_ms: mean_ms.map(to_thousandths),
            bytes: bytes.map(|bytes| bytes.round() as u64),
        }
    }
}

/// What holds of several runs together, of which this is the `nth`.
fn worse(nth: u64, before: Verdict, now: Verdict) -> Verdict {
    match (before, now) {
        (Verdict::Violated, _) | (_, Verdict::Violated) => Verdict::Violated,
        (Verdict::Unknown, now) if nth == 1 => now,
        (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
        (Verdict::Held, Verdict::Held) => Verdict::Held,
    }
}

fn millis(duration: Duration) -> f64 {
    to_thousandths(duration.as_secs_f64() * 1000.0)
}

fn to_thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

const DISCARDED: &str = "the sink shows no rows: neither latency nor loss can be seen";
const NAMELESS: &str = "its rows do not say which record they come from: no latency can be told";
