//! Judges the lines of a run that was killed (ORACLES C10): by provenance where they name the
//! record they come from, by value against the job's sequential reference, and both where both can
//! be had.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use cofferdam::guarantee::{Claim, Level, SinkContract};
use cofferdam::id::VertexId;
use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::output::{Paint, Painted};
use crate::cli::simulated::ClaimArg;
use crate::cli::torture::lines::{Line, read_sink};
use crate::jobs::{BuiltinJob, Case, CaseData, Format, JobError, Output, Setup};
use crate::oracle::Seen;
use crate::reference::{Outcome, RecordId, Rows};

/// What is known about a job and its input.
pub(in crate::cli) struct Judge {
    job: &'static dyn BuiltinJob,
    contract: SinkContract,
    case: Case,
    /// The line number of each record, in order.
    offsets: Vec<u64>,
    claim: Claim,
}

/// What was found.
#[derive(Debug)]
pub(in crate::cli) struct Findings {
    pub(in crate::cli) state: Verdict,
    pub(in crate::cli) output: Verdict,
    pub(in crate::cli) lost: u64,
    pub(in crate::cli) duplicated: u64,
    pub(in crate::cli) wrong: u64,
    /// Rows that a run without failures does not have, or has and are not there: whatever the claim
    /// allows of them.
    pub(in crate::cli) differing: u64,
    /// Why nothing can be said, if that is so.
    pub(in crate::cli) unjudged: Option<&'static str>,
    /// The first few findings in sentences.
    pub(in crate::cli) examples: Vec<String>,
}

/// What can be said about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::cli) enum Verdict {
    Held,
    Violated,
    Unknown,
}

/// An output: the line of its record, and which of the record's outputs it is.
type Identity = (u64, u32);

/// How often each row is there.
type Counts = BTreeMap<String, u64>;

impl Judge {
    /// A judge of a job over these lines of a file.
    pub(in crate::cli) fn of_lines(
        job: &'static dyn BuiltinJob,
        setup: &Setup,
        format: Format,
        lines: Vec<String>,
    ) -> Result<Self, JobError> {
        let offsets = format.record_lines(&lines);
        let records = lines.len() - usize::from(format.has_header() && !lines.is_empty());
        let data = CaseData { seed: 0, records, lines: Some(lines.into()) };
        Ok(Self::new(job, setup.sink, job.case(&data, setup)?, offsets))
    }

    /// A judge of a job over so many records that it makes itself.
    pub(in crate::cli) fn of_records(
        job: &'static dyn BuiltinJob,
        setup: &Setup,
        records: u64,
    ) -> Result<Self, JobError> {
        let data = CaseData { seed: 0, records: records as usize, lines: None };
        Ok(Self::new(job, setup.sink, job.case(&data, setup)?, (0..records).collect()))
    }

    pub(super) fn new(
        job: &'static dyn BuiltinJob,
        contract: SinkContract,
        case: Case,
        offsets: Vec<u64>,
    ) -> Self {
        let claim = case.job.claim().claim();
        Self { job, contract, case, offsets, claim }
    }

    /// Judges by a claim that somebody makes, in place of what the job promises in this mode.
    pub(in crate::cli) fn claiming(self, claim: Option<ClaimArg>) -> Self {
        let claim = claim.map_or(self.claim, |claim| claim.over(self.claim));
        Self { claim, ..self }
    }

    /// How many records there are.
    pub(in crate::cli) fn records(&self) -> usize {
        self.offsets.len()
    }

    /// How many rows a run without failures has, over all sinks.
    pub(in crate::cli) fn rows_expected(&self) -> u64 {
        let outcome = self.case.reference.run_all();
        match self.contract {
            SinkContract::Idempotent => outcome.tables.values().map(|rows| rows.len() as u64).sum(),
            SinkContract::Plain
            | SinkContract::WriteAhead
            | SinkContract::TwoPhase
            | SinkContract::Discard => {
                outcome.outputs.values().map(|rows| rows.iter().count() as u64).sum()
            }
        }
    }

    /// What it judges by.
    pub(in crate::cli) fn claim(&self) -> Claim {
        self.claim
    }

    fn claims_exact_rows(&self) -> bool {
        self.claim.output == Some(Level::ExactlyOnce)
    }

    /// Judges what the sinks in `output` show.
    pub(in crate::cli) fn judge(&self, output: &Output) -> Result<Findings, Failure> {
        let mut findings = Findings::default();
        let outcome = self.case.reference.run_all();
        for uid in self.sinks() {
            let lines = read_sink(output, &uid, self.contract)?;
            self.judge_sink(&uid, &lines, &outcome, &mut findings);
        }
        let claim = self.claim();
        let output_claim = claim.output.unwrap_or(Level::None);
        if findings.output == Verdict::Held {
            findings.output = findings.verdict_on(output_claim);
        }
        Ok(findings)
    }

    fn sinks(&self) -> Vec<String> {
        let vertices = 0..self.case.job.graph().vertices().len() as u32;
        let sinks = vertices.filter_map(|vertex| self.case.job.sink(VertexId::new(vertex)));
        sinks.map(|(uid, _)| uid.to_string()).collect()
    }

    fn judge_sink(&self, uid: &str, lines: &[Line], outcome: &Outcome, findings: &mut Findings) {
        let identities = self.identities();
        if identities.is_empty() && self.claim().state != Level::ExactlyOnce {
            // Rows that timers fire tell nothing of records; what fires follows from the state.
            (findings.state, findings.output) = (Verdict::Unknown, Verdict::Unknown);
            findings.unjudged = Some(OF_TIMERS);
        } else if self.contract == SinkContract::Idempotent {
            self.judge_table(uid, lines, outcome, findings);
        } else if !identities.is_empty() {
            self.judge_origins(uid, lines, &identities, findings);
        } else {
            self.judge_rows(uid, lines, outcome, findings);
        }
    }

    /// The identity of every output that a record triggers.
    fn identities(&self) -> BTreeSet<Identity> {
        let of_record = |(record, offset): (usize, &u64)| {
            let offset = *offset;
            let outputs = self.case.reference.effects(record_id(record)).outputs;
            (0..outputs).map(move |position| (offset, position))
        };
        self.offsets.iter().enumerate().flat_map(of_record).collect()
    }

    /// A table shows one row a key: the last one.
    fn judge_table(&self, uid: &str, lines: &[Line], outcome: &Outcome, findings: &mut Findings) {
        let expected = self.last_rows(uid, outcome);
        let mut shown: BTreeMap<&str, u64> = BTreeMap::new();
        for line in lines {
            *shown.entry(&line.key).or_default() += 1;
        }
        for key in expected.keys().filter(|key| !shown.contains_key(key.as_str())) {
            findings.lost(1, || format!("the key '{key}' has no row"));
        }
        for (key, times) in &shown {
            match expected.contains_key(*key) {
                true => {
                    findings.duplicated(times - 1, || format!("the key '{key}' has {times} rows"))
                }
                false => findings.wrong(*times, || format!("no record has the key '{key}'")),
            }
        }
        let last = last_lines(lines);
        for (key, line) in &last {
            let Some(row) = expected.get(*key).filter(|row| row.row != line.row) else { continue };
            findings.differing += 1;
            let text = || format!("{} stands where {} should", line.row, row.row);
            match self.compare(line, row) {
                _ if self.claims_exact_rows() => findings.wrong(1, text),
                Some(Ordering::Less) => findings.lost(1, text),
                Some(Ordering::Greater) => findings.duplicated(1, text),
                Some(Ordering::Equal) | None => findings.example(text),
            }
        }
        self.judge_state(&expected, &last, findings);
    }

    /// Lines that say which record they come from.
    fn judge_origins(
        &self,
        uid: &str,
        lines: &[Line],
        identities: &BTreeSet<Identity>,
        findings: &mut Findings,
    ) {
        let keys = self.keys_by_offset(uid);
        let mut seen: BTreeMap<Identity, u64> = BTreeMap::new();
        let mut unexplained = 0;
        for line in lines {
            let identity = line.origin.map(|origin| (origin.offset, origin.position));
            let explained = identity.filter(|identity| {
                identities.contains(identity) && keys[&identity.0].contains(&line.key)
            });
            match explained {
                Some(identity) => *seen.entry(identity).or_default() += 1,
                None => {
                    unexplained += 1;
                    findings.example(|| format!("no source record explains {}", line.row));
                }
            }
        }
        let name =
            |(offset, position): &Identity| format!("output {position} of line {}", offset + 1);
        for identity in identities.iter().filter(|identity| !seen.contains_key(identity)) {
            findings.lost(1, || format!("{} is lost", name(identity)));
        }
        for (identity, times) in seen.iter().filter(|(_, times)| **times > 1) {
            findings.duplicated(times - 1, || format!("{} is there {times} times", name(identity)));
        }
        let expected = self.outcome_in_order_of(lines);
        let differing = self.compare_rows(uid, lines, &expected, findings);
        findings.wrong += if self.claims_exact_rows() { differing } else { unexplained };
        self.judge_state(&self.last_rows(uid, &expected), &last_lines(lines), findings);
    }

    /// Rows of right state that do not say which record they come from.
    fn judge_rows(&self, uid: &str, lines: &[Line], outcome: &Outcome, findings: &mut Findings) {
        let expected = self.rows(uid, outcome);
        let shown = counts(lines);
        for (row, times) in &expected {
            let there = shown.get(row).copied().unwrap_or(0);
            findings.lost(times.saturating_sub(there), || format!("{row} is lost"));
            findings.duplicated(there.saturating_sub(*times), || {
                format!("{row} is there {there} times")
            });
        }
        for (row, times) in shown.iter().filter(|(row, _)| !expected.contains_key(*row)) {
            findings.wrong(*times, || format!("{row} should not be there"));
            findings.differing += times;
            findings.state = Verdict::Violated;
        }
    }

    /// Counts by how much the lines differ from the rows of the reference.
    fn compare_rows(
        &self,
        uid: &str,
        lines: &[Line],
        outcome: &Outcome,
        findings: &mut Findings,
    ) -> u64 {
        let mut differing = 0;
        let (expected, shown) = (self.rows(uid, outcome), counts(lines));
        for row in expected.keys().chain(shown.keys()).collect::<BTreeSet<_>>() {
            let [wanted, there] =
                [&expected, &shown].map(|rows| rows.get(row).copied().unwrap_or(0));
            let text = || format!("{row} is there {there} times, {wanted} would be right");
            differing += wanted.abs_diff(there);
            findings.example_if(wanted.abs_diff(there), text);
        }
        findings.differing += differing;
        differing
    }

    /// What the last row of each key says about the state behind it.
    fn judge_state(
        &self,
        expected: &BTreeMap<String, Line>,
        last: &BTreeMap<&str, &Line>,
        findings: &mut Findings,
    ) {
        let claim = self.claim().state;
        for (key, right) in expected {
            let order = match last.get(key.as_str()) {
                None => Ordering::Less,
                Some(line) if line.row == right.row => Ordering::Equal,
                Some(line) if self.grows() => compare_values(line, right),
                Some(_) if claim == Level::ExactlyOnce => Ordering::Greater,
                Some(_) => continue,
            };
            let level = Level::of(order == Ordering::Less, order == Ordering::Greater);
            if !level.satisfies(claim) {
                findings.state = Verdict::Violated;
                let row = last.get(key.as_str()).map_or("nothing", |line| line.row.as_str());
                findings.example(|| format!("{row} comes last where {} should", right.row));
            }
        }
    }

    /// A running count grows with every record; of others nothing is known but whether they are
    /// equal.
    fn grows(&self) -> bool {
        !self.case.reference.rows_depend_on_order()
    }

    /// Whether a row has taken in less or more than the one that should be there, if that shows.
    fn compare(&self, line: &Line, right: &Line) -> Option<Ordering> {
        let (shown, right) = (number(line)?, number(right)?);
        self.grows().then(|| shown.cmp(&right))
    }

    /// The reference for the order in which the records of a key came to their sink: that order is
    /// free between source subtasks. Records that never came are taken last.
    fn outcome_in_order_of(&self, lines: &[Line]) -> Outcome {
        if !self.case.reference.rows_depend_on_order() {
            return self.case.reference.run_all();
        }
        let mut left: BTreeSet<usize> = (0..self.offsets.len()).collect();
        let came = lines.iter().filter_map(|line| {
            let record = self.offsets.binary_search(&line.origin?.offset).ok()?;
            left.remove(&record).then(|| record_id(record))
        });
        let mut order: Vec<RecordId> = came.collect();
        order.extend(left.into_iter().map(record_id));
        self.case.reference.run(&order).unwrap_or_else(|| self.case.reference.run_all())
    }

    /// The keys of the rows that each record triggers, by the number of its line.
    fn keys_by_offset(&self, uid: &str) -> BTreeMap<u64, BTreeSet<String>> {
        let keys = |record: usize| {
            let outcome = self.case.reference.run(&[record_id(record)]).unwrap_or_default();
            self.last_rows(uid, &outcome).into_keys().collect()
        };
        let records = self.offsets.iter().enumerate();
        records.map(|(record, offset)| (*offset, keys(record))).collect()
    }

    /// The rows of a sink.
    fn rows(&self, uid: &str, outcome: &Outcome) -> Counts {
        let rows = outcome.outputs.get(uid).into_iter().flat_map(Rows::counts);
        rows.map(|(row, times)| (self.line(uid, row).row, times)).collect()
    }

    /// The last row of each key of a sink.
    fn last_rows(&self, uid: &str, outcome: &Outcome) -> BTreeMap<String, Line> {
        let rows = outcome.tables.get(uid).into_iter().flatten();
        let lines = rows.map(|(_, row)| self.line(uid, row));
        lines.map(|line| (line.key.clone(), line)).collect()
    }

    fn line(&self, uid: &str, row: &[u8]) -> Line {
        let json = self.job.row_json(uid, row).expect("the reference makes rows of this sink");
        let text = String::from_utf8(json).expect("JSON is text");
        Line::parse(&text).expect("a row is an object with a key")
    }
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            state: Verdict::Held,
            output: Verdict::Held,
            lost: 0,
            duplicated: 0,
            wrong: 0,
            differing: 0,
            unjudged: None,
            examples: Vec::new(),
        }
    }
}

impl Findings {
    /// What readers saw, if that was judged.
    pub(in crate::cli) fn output_level(&self) -> Option<Seen> {
        let (loses, repeats) =
            (self.lost > 0 || self.wrong > 0, self.duplicated > 0 || self.wrong > 0);
        let level = Level::of(loses, repeats);
        let seen = match level == Level::ExactlyOnce && self.differing > 0 {
            true => Seen::BothInTheMiddle,
            false => Seen::Only(level),
        };
        self.unjudged.is_none().then_some(seen)
    }

    /// A count, if that was judged.
    pub(in crate::cli) fn judged(&self, count: u64) -> Option<u64> {
        self.unjudged.is_none().then_some(count)
    }

    fn verdict_on(&self, claim: Level) -> Verdict {
        let broken = (self.lost > 0 && !claim.may_lose())
            || (self.duplicated > 0 && !claim.may_duplicate())
            || self.wrong > 0;
        if broken { Verdict::Violated } else { Verdict::Held }
    }

    fn lost(&mut self, times: u64, text: impl FnOnce() -> String) {
        self.lost += times;
        self.example_if(times, text);
    }

    fn duplicated(&mut self, times: u64, text: impl FnOnce() -> String) {
        self.duplicated += times;
        self.example_if(times, text);
    }

    fn wrong(&mut self, times: u64, text: impl FnOnce() -> String) {
        self.wrong += times;
        self.example_if(times, text);
    }

    fn example_if(&mut self, times: u64, text: impl FnOnce() -> String) {
        if times > 0 {
            self.example(text);
        }
    }

    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

impl Verdict {
    pub(in crate::cli) fn painted(self) -> (&'static str, Painted) {
        match self {
            Self::Held => ("held", Paint::good),
            Self::Violated => ("violated", Paint::bad),
            Self::Unknown => ("unknown", Paint::bold),
        }
    }
}

fn record_id(record: usize) -> RecordId {
    RecordId { source: 0, offset: record as u64 }
}

fn counts(lines: &[Line]) -> Counts {
    let mut counts = Counts::new();
    for line in lines {
        *counts.entry(line.row.clone()).or_default() += 1;
    }
    counts
}

fn last_lines(lines: &[Line]) -> BTreeMap<&str, &Line> {
    lines.iter().map(|line| (line.key.as_str(), line)).collect()
}

/// Compares what can be compared; other values are taken for too much, which only exactly-once and
/// at-most-once refuse.
fn compare_values(line: &Line, right: &Line) -> Ordering {
    match (number(line), number(right)) {
        (Some(shown), Some(right)) => shown.cmp(&right),
        (None, _) | (_, None) => Ordering::Greater,
    }
}

fn number(line: &Line) -> Option<i128> {
    line.value.as_ref().and_then(|value| value.parse().ok())
}

const OF_TIMERS: &str = "rows that timers fire name no record, and what fires follows from state \
                         that is not exactly-once here";
const EXAMPLES_MAX: usize = 5;
