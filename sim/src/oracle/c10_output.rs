//! C10, delivery to the outside: how often a reader of committed data sees each row. A row that a
//! record triggered is known by provenance, one that a timer fired by its value.
//!
//! The false alarms it avoids: rows of an idempotent sink replace each other, so seeing one again
//! is no duplicate. A fired row has its reference's value only if the state behind it is right, so
//! it is judged where the job promises that of its state or the final state shows it, or where the
//! output claims to be exactly-once, and where the sink shows nothing but fired rows. Where nothing
//! is restored, a fired row needs what its own attempt had taken in, and one that is nowhere is
//! lost. A sink that discards shows nothing, and the rows that it would have are in the expected
//! number of each record: with such a sink nothing is called lost by provenance. Nothing is lost
//! before the run has ended.

use std::collections::BTreeMap;

use cofferdam::guarantee::{Level, SinkContract};
use cofferdam::id::AttemptId;
use cofferdam::trace::RecordId;

use super::delivery::{Effect, are_among, are_same_rows, count, count_rows, distinct};
use super::given::{of_fired, of_table};
use super::values::{differing_cells, readable};
use super::{Anomaly, Facts, Finding, Oracle, Scope, SinkFacts, Subject, c10_state};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "output-delivery",
    property: "C10, C11: each row is visible as often as the claim for the output allows",
    judge,
    scope: Scope::Run,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let Some(claim) = facts.output_claim else { return Vec::new() };
    let mut findings = by_provenance(facts, claim);
    for sink in facts.sinks {
        findings.extend(unexplained(sink, claim));
        if facts.is_finished {
            let of_table = of_table(sink).into_iter();
            findings.extend(of_table.map(|(anomaly, text)| finding(claim, anomaly, None, text)));
        }
        if shows_only_fired_rows(facts, sink) {
            findings.extend(by_value(facts, sink, claim));
        }
    }
    findings
}

/// Rows that records triggered, over all sinks.
fn by_provenance(facts: &Facts<'_>, claim: Level) -> Vec<Finding> {
    let mut effects: Vec<Effect> = Vec::new();
    let mut upserts: Vec<Effect> = Vec::new();
    for (place, sink) in facts.sinks.iter().enumerate() {
        let into = match sink.contract {
            SinkContract::Idempotent => &mut upserts,
            SinkContract::Plain
            | SinkContract::TwoPhase
            | SinkContract::WriteAhead
            | SinkContract::Discard => &mut effects,
        };
        into.reserve(sink.rows.len());
        into.extend(sink.rows.iter().filter_map(|row| {
            Some(Effect::new(row.origin.record?, [row.origin.path, place as u64]))
        }));
    }
    upserts.sort_unstable();
    upserts.dedup();
    effects.append(&mut upserts);
    let visible = count(effects);
    let mut findings = Vec::new();
    let discards = facts.sinks.iter().any(|sink| sink.contract == SinkContract::Discard);
    if facts.is_finished && !discards {
        findings.extend(facts.records.iter().filter_map(|(record, _, expected)| {
            let found = distinct(&visible, *record);
            (found < *expected).then(|| {
                let text = format!("{found} of the {expected} rows of {record} are visible");
                finding(claim, Anomaly::Lost, Some(*record), text)
            })
        }));
    }
    findings.extend(visible.iter().filter(|count| count.repeated > 0).map(|count| {
        let (record, repeated) = (count.record, count.repeated);
        let text = format!("{repeated} rows of {record} are visible a second time");
        finding(claim, Anomaly::Duplicated, Some(record), text)
    }));
    findings
}

/// Whether rows that timers fired can be told from those of records, which provenance judges.
fn shows_only_fired_rows(facts: &Facts<'_>, sink: &SinkFacts<'_>) -> bool {
    let only_fired =
        || sink.fired.is_some() || sink.rows.iter().all(|row| row.origin.record.is_none());
    let shows_each_row = match sink.contract {
        SinkContract::Plain | SinkContract::TwoPhase | SinkContract::WriteAhead => true,
        SinkContract::Idempotent | SinkContract::Discard => false,
    };
    // If every expected row is triggered by a record, provenance has said all.
    let triggered: usize = facts.records.iter().map(|(_, _, rows)| *rows as usize).sum();
    let expected: usize = facts.sinks.iter().map(|sink| sink.expected.len()).sum();
    shows_each_row && triggered < expected && only_fired()
}

/// Rows that timers fired, by value.
fn by_value(facts: &Facts<'_>, sink: &SinkFacts<'_>, claim: Level) -> Vec<Finding> {
    if let Some(fired) = sink.fired.filter(|_| claim != Level::ExactlyOnce && facts.is_finished) {
        let of_state = of_fired(sink, fired).into_iter();
        return of_state.map(|(anomaly, text)| finding(claim, anomaly, None, text)).collect();
    }
    if are_same_rows(sink.rows, sink.expected) {
        return Vec::new();
    }
    let visible = count_rows(sink.rows.iter().map(|row| row.bytes));
    let due = count_rows(sink.expected.iter().copied());
    let was_always_right = [facts.state_promise, claim].contains(&Level::ExactlyOnce);
    let is_right = was_always_right || facts.is_finished && is_state_right(facts);
    let mut findings = Vec::new();
    for (row, often) in &visible {
        let expected = due.get(row).copied().unwrap_or_default();
        if *often > expected && (was_always_right || is_right && expected > 0) {
            let anomaly = if expected == 0 { Anomaly::Unexpected } else { Anomaly::Duplicated };
            findings.push(finding(claim, anomaly, None, differs(sink, row, *often, expected)));
        }
    }
    if facts.is_finished && (is_right || !facts.mechanism.restores()) {
        for (row, expected) in due {
            let often = visible.get(row).copied().unwrap_or_default();
            if often < expected {
                let text = differs(sink, row, often, expected);
                findings.push(finding(claim, Anomaly::Lost, None, text));
            }
        }
    }
    findings
}

/// What nobody can say of rows that timers fired over state that has not kept each record once.
pub(super) fn unjudged(facts: &Facts<'_>) -> Vec<(Subject, String)> {
    let claim = facts.output_claim.unwrap_or(Level::None);
    let is_by_value = matches!(claim, Level::AtMostOnce | Level::AtLeastOnce)
        && facts.state_promise != Level::ExactlyOnce;
    if !(is_by_value && facts.is_finished) {
        return Vec::new();
    }
    let is_open = |sink: &&SinkFacts<'_>| {
        let is_explained = sink.fired.is_some() || !sink.expected_of_attempt.is_empty();
        !is_explained
            && shows_only_fired_rows(facts, sink)
            && !are_same_rows(sink.rows, sink.expected)
            && !is_state_right(facts)
    };
    let text = |sink: &SinkFacts<'_>| {
        let uid = sink.uid;
        let text = format!(
            "timers fired rows of '{uid}' over state that has not taken in each record once, and \
             nobody can say which rows are due then"
        );
        (Subject::Output, text)
    };
    facts.sinks.iter().filter(is_open).map(text).collect()
}

/// Whether the final state is that of the whole input: rows that it has given are the reference's.
/// State that was taken back on the way may have given others.
fn is_state_right(facts: &Facts<'_>) -> bool {
    *facts.is_state_right.get_or_init(|| {
        (c10_state::ORACLE.judge)(facts).is_empty()
            && differing_cells(facts.state.cells, facts.state.expected).is_empty()
    })
}

/// Rows that nothing explains which their attempt has taken in, if anybody can say that.
fn unexplained(sink: &SinkFacts<'_>, claim: Level) -> Vec<Finding> {
    if sink.expected_of_attempt.is_empty() {
        return Vec::new();
    }
    let mut of_attempts: BTreeMap<AttemptId, Vec<&[u8]>> = BTreeMap::new();
    for row in sink.rows {
        of_attempts.entry(row.attempt).or_default().push(row.bytes);
    }
    let mut findings = Vec::new();
    for (attempt, rows) in of_attempts {
        let due = sink.expected_of_attempt.get(&attempt).map_or(&[][..], Vec::as_slice);
        if are_among(&rows, due) {
            continue;
        }
        let due = count_rows(due.iter().copied());
        for (row, often) in count_rows(rows.into_iter()) {
            let expected = due.get(row).copied().unwrap_or_default();
            if often > expected {
                let text = format!("{} in attempt {attempt}", differs(sink, row, often, expected));
                findings.push(finding(claim, Anomaly::Unexpected, None, text));
            }
        }
    }
    findings
}

pub(super) fn differs(sink: &SinkFacts<'_>, row: &[u8], often: u64, expected: u64) -> String {
    let row = readable(row);
    format!("sink '{}' shows row {row} {often} times and not {expected} times", sink.uid)
}

fn finding(claim: Level, anomaly: Anomaly, record: Option<RecordId>, text: String) -> Finding {
    let allowed = anomaly.is_allowed(claim);
    Finding { oracle: ORACLE.name, subject: Subject::Output, anomaly, allowed, record, text }
}

#[cfg(test)]
mod tests {
    use super::super::judge as judge_all;
    use super::super::testing::*;
    use super::super::{AppliedFact, RowFact, StateFacts, Verdict};
    use super::*;
    use cofferdam::guarantee::Mechanism;
    use cofferdam::trace::Origin;

    /// A row of a record, or one that a timer fired.
    fn row(offset: Option<u64>, path: u64, bytes: &'static [u8]) -> RowFact<'static> {
        let origin = match offset {
            Some(offset) => origin(offset, path),
            None => Origin { record: None, path },
        };
        RowFact { origin, attempt: att(1), bytes, key: None }
    }

    /// What is found where record 0 triggers `of_record` rows and the reference has the row 'a'.
    fn found(
        contract: SinkContract,
        of_record: u32,
        rows: &[RowFact<'_>],
        of_attempt: &BTreeMap<AttemptId, Vec<&[u8]>>,
    ) -> Vec<(Anomaly, Option<RecordId>)> {
        let sinks = [SinkFacts {
            expected: &[b"a"],
            expected_of_attempt: of_attempt,
            ..sink(contract, rows)
        }];
        let records = [(record(0), 1, of_record)];
        let mechanism = if of_attempt.is_empty() { Mechanism::Aligned } else { Mechanism::None };
        let facts = Facts { sinks: &sinks, records: &records, mechanism, ..facts(&[]) };
        assert!(judge(&Facts { output_claim: None, ..facts_like(&facts) }).is_empty());
        let unfinished = judge(&Facts { is_finished: false, ..facts_like(&facts) });
        assert!(unfinished.iter().all(|finding| finding.anomaly != Anomaly::Lost));
        judge(&facts).iter().map(|finding| (finding.anomaly, finding.record)).collect()
    }

    fn facts_like<'a>(of: &Facts<'a>) -> Facts<'a> {
        Facts { sinks: of.sinks, records: of.records, mechanism: of.mechanism, ..facts(&[]) }
    }

    #[test]
    fn rows_of_records_are_known_by_provenance() {
        let (one, other) = (row(Some(0), 1, b"a"), row(Some(0), 2, b"b"));
        let none = BTreeMap::new();
        let plain = |rows: &[RowFact<'_>]| found(SinkContract::Plain, 2, rows, &none);
        assert_eq!(plain(&[one, other]), []);
        assert_eq!(plain(&[one]), [(Anomaly::Lost, Some(record(0)))]);
        assert_eq!(plain(&[one, other, one]), [(Anomaly::Duplicated, Some(record(0)))]);
        assert_eq!(found(SinkContract::Idempotent, 2, &[one, other, one], &none), []);
        assert_eq!(found(SinkContract::Discard, 2, &[], &none), []);
    }

    #[test]
    fn fired_rows_are_known_by_value() {
        let none = BTreeMap::new();
        let fired = |rows: &[RowFact<'_>]| found(SinkContract::TwoPhase, 0, rows, &none);
        let (good, bad) = (row(None, 7, b"a"), row(None, 8, b"b"));
        assert_eq!(fired(&[good]), []);
        assert_eq!(fired(&[]), [(Anomaly::Lost, None)]);
        assert_eq!(fired(&[good, good]), [(Anomaly::Duplicated, None)]);
        assert_eq!(fired(&[good, bad]), [(Anomaly::Unexpected, None)]);
    }

    #[test]
    fn at_most_once_a_row_needs_what_its_own_attempt_has_taken_in() {
        let (with, without): (Vec<&[u8]>, Vec<&[u8]>) = (vec![b"a"], Vec::new());
        let of_attempt = |rows| BTreeMap::from([(att(1), rows)]);
        let rows = [row(None, 7, b"a")];
        assert_eq!(found(SinkContract::Plain, 0, &rows, &of_attempt(with)), []);
        let unexplained = [(Anomaly::Unexpected, None)];
        assert_eq!(found(SinkContract::Plain, 0, &rows, &of_attempt(without)), unexplained);
    }

    #[test]
    fn a_fired_row_is_lost_where_nothing_is_restored_and_where_the_output_claims_each() {
        let sinks = [SinkFacts { expected: &[b"a"], ..sink(SinkContract::Plain, &[]) }];
        // Record 0 is in the state twice.
        let applied = AppliedFact { origin: origin(0, 1), cell: 9 };
        let incarnations = [(att(1), vec![applied; 2])];
        let allowed = |mechanism, state_promise, claim| {
            let (output_claim, facts) = (Some(claim), facts(&[]));
            let state = StateFacts { incarnations: &incarnations, ..facts.state };
            let facts =
                Facts { sinks: &sinks, state, mechanism, state_promise, output_claim, ..facts };
            judge(&facts).iter().map(|finding| finding.allowed).collect::<Vec<bool>>()
        };
        let (once, most, least) = (Level::ExactlyOnce, Level::AtMostOnce, Level::AtLeastOnce);
        assert_eq!(allowed(Mechanism::None, most, most), [true]);
        assert_eq!(allowed(Mechanism::None, Level::None, once), [false]);
        assert_eq!(allowed(Mechanism::Tracked, least, once), [false]);
        // State that counts twice fires other rows, which nobody can tell from lost ones.
        assert!(allowed(Mechanism::Tracked, least, least).is_empty());
        let (output_claim, facts) = (Some(least), facts(&[]));
        let state = StateFacts { incarnations: &incarnations, ..facts.state };
        let facts = Facts { sinks: &sinks, state, state_promise: least, output_claim, ..facts };
        assert_eq!(unjudged(&facts).len(), 1);
        assert_eq!(judge_all(&facts).output, Some(Verdict::Unknown));
        assert_eq!(unjudged(&Facts { output_claim: Some(once), ..facts }), []);
    }

    #[test]
    fn where_the_final_state_is_right_a_fired_row_is_due_as_often_as_the_reference_has_it() {
        let rows = [row(None, 7, b"a"), row(None, 7, b"a"), row(None, 7, b"of a lost attempt")];
        let sinks = [SinkFacts { expected: &[b"a", b"b"], ..sink(SinkContract::Plain, &rows) }];
        let (state_promise, output_claim) = (Level::AtLeastOnce, Some(Level::AtLeastOnce));
        let facts = Facts { sinks: &sinks, state_promise, output_claim, ..facts(&[]) };
        let found: Vec<Anomaly> = judge(&facts).iter().map(|finding| finding.anomaly).collect();
        assert_eq!(found, [Anomaly::Duplicated, Anomaly::Lost]);
    }
}
