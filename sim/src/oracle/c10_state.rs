//! C10, delivery into state: how often each source record is in each cell of the state, by
//! provenance. Lost: in fewer cells than without failures. Duplicated: more than once in one.
//!
//! The false alarms it avoids: the records of a state are those of the last incarnation, since a
//! recovery takes back what came after its checkpoint; only where nothing is restored do the
//! incarnations add up, each holding what no other may hold. State that is declared idempotent is a
//! set. Nothing is lost before the run has ended.

use cofferdam::trace::RecordId;

use super::delivery::{Count, Effect, count, distinct};
use super::{Anomaly, AppliedFact, Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "state-delivery",
    property: "C10: each record is in each cell as often as the claim for the state allows",
    judge,
    scope: Scope::Run,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let in_state = last_counts(facts);
    let mut findings = Vec::new();
    if facts.is_finished {
        findings.extend(lost(facts, &in_state).map(|(record, found, expected)| {
            let text = format!("{record} is in {found} of the {expected} cells it belongs in");
            finding(facts, Anomaly::Lost, record, text)
        }));
    }
    if !facts.state_is_idempotent {
        let counts = if facts.mechanism.restores() {
            in_state
        } else {
            let all = facts.state.incarnations.iter().flat_map(|(_, applied)| applied);
            count(all.filter_map(effect).collect())
        };
        findings.extend(counts.iter().filter(|count| count.repeated > 0).map(|count| {
            let (record, repeated) = (count.record, count.repeated);
            let text = format!("{record} was taken into the state {repeated} times too often");
            finding(facts, Anomaly::Duplicated, record, text)
        }));
    }
    findings
}

/// The records that are not in the last state as they would be without failures.
pub(super) fn lost_records(facts: &Facts<'_>) -> Vec<RecordId> {
    lost(facts, &last_counts(facts)).map(|(record, ..)| record).collect()
}

/// How often the last state holds each record.
fn last_counts(facts: &Facts<'_>) -> Vec<Count> {
    let last = facts.state.incarnations.last().map_or(&[][..], |(_, applied)| applied);
    count(last.iter().filter_map(effect).collect())
}

/// The records that are in fewer cells than they should be, with both numbers.
fn lost<'a>(
    facts: &'a Facts<'_>,
    in_state: &'a [Count],
) -> impl Iterator<Item = (RecordId, u32, u32)> + 'a {
    let found = facts
        .records
        .iter()
        .map(|(record, expected, _)| (*record, distinct(in_state, *record), *expected));
    found.filter(|(_, found, expected)| found < expected)
}

fn effect(applied: &AppliedFact) -> Option<Effect> {
    Some(Effect::new(applied.origin.record?, [applied.origin.path, applied.cell]))
}

fn finding(facts: &Facts<'_>, anomaly: Anomaly, record: RecordId, text: String) -> Finding {
    Finding {
        oracle: ORACLE.name,
        subject: Subject::State,
        anomaly,
        allowed: anomaly.is_allowed(facts.state_claim),
        record: Some(record),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::StateFacts;
    use super::super::testing::*;
    use super::*;
    use cofferdam::guarantee::{Level, Mechanism};
    use cofferdam::id::AttemptId;

    const RECORDS: &[(RecordId, u32, u32)] =
        &[(RecordId { source: 0, offset: 0 }, 1, 0), (RecordId { source: 0, offset: 1 }, 2, 0)];

    fn applied(effects: &[(u64, u64)]) -> Vec<AppliedFact> {
        let fact =
            |(offset, path): &(u64, u64)| AppliedFact { origin: origin(*offset, *path), cell: 9 };
        effects.iter().map(fact).collect()
    }

    fn of<'a>(incarnations: &'a [(AttemptId, Vec<AppliedFact>)]) -> Facts<'a> {
        let facts = facts(&[]);
        let state = StateFacts { incarnations, ..facts.state };
        Facts { state, records: RECORDS, ..facts }
    }

    #[test]
    fn each_record_is_where_it_belongs_once() {
        let whole = [(att(1), applied(&[(0, 1)])), (att(2), applied(&[(0, 1), (1, 1), (1, 2)]))];
        check(&ORACLE, &of(&whole), "");
        let lost = [(att(1), applied(&[(0, 1), (1, 2)]))];
        check(&ORACLE, &of(&lost), "record 1 of source 0 is in 1 of the 2 cells");
        check(&ORACLE, &Facts { is_finished: false, ..of(&lost) }, "");
        let twice = [(att(1), applied(&[(0, 1), (1, 1), (1, 2), (0, 1)]))];
        check(&ORACLE, &of(&twice), "record 0 of source 0 was taken into the state 1 times");
        check(&ORACLE, &Facts { state_is_idempotent: true, ..of(&twice) }, "");
    }

    #[test]
    fn what_a_claim_allows_is_counted_and_breaks_nothing() {
        let bad = [(att(1), applied(&[(1, 1), (1, 1), (1, 2)]))];
        let allowed = |claim| {
            let facts = Facts { state_claim: claim, ..of(&bad) };
            judge(&facts).iter().map(|finding| finding.allowed).collect::<Vec<bool>>()
        };
        assert_eq!(allowed(Level::ExactlyOnce), [false, false]);
        assert_eq!(allowed(Level::AtMostOnce), [true, false]);
        assert_eq!(allowed(Level::AtLeastOnce), [false, true]);
    }

    #[test]
    fn incarnations_add_up_where_nothing_is_restored() {
        let parts = [(att(1), applied(&[(0, 1)])), (att(2), applied(&[(0, 1), (1, 1), (1, 2)]))];
        let facts = Facts { mechanism: Mechanism::None, ..of(&parts) };
        check(&ORACLE, &facts, "record 0 of source 0 was taken into the state 1 times too often");
    }
}
