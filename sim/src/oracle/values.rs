//! C10 in its value form: the state and the output have the values that the records give.
//! Provenance can be right while a value is wrong, and the reverse where writing again changes
//! nothing.
//!
//! The false alarms it avoids: values are compared only when the run has ended. Below exactly-once
//! the whole input does not say what the values have to be: state is then compared with what its
//! last incarnation has taken in, if the reference can say that, and the output is not.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use cofferdam::guarantee::{Level, SinkContract};

use super::delivery::{are_same_rows, count_rows};
use super::{Anomaly, Cells, Facts, Finding, Oracle, Scope, SinkFacts, Subject, Table};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "values",
    property: "C10, value form: state and output are what the reference makes of the input",
    judge,
    scope: Scope::Run,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    if !facts.is_finished {
        return Vec::new();
    }
    let expected = match facts.state_claim {
        Level::ExactlyOnce => Some(facts.state.expected),
        Level::None | Level::AtMostOnce | Level::AtLeastOnce => facts.state.expected_of_applied,
    };
    let mut findings = Vec::new();
    if let Some(expected) = expected {
        let texts = differing_cells(facts.state.cells, expected);
        findings.extend(texts.into_iter().map(|text| wrong(Subject::State, text)));
    }
    if facts.output_claim == Some(Level::ExactlyOnce) {
        let texts = facts.sinks.iter().flat_map(|sink| match sink.contract {
            SinkContract::Plain | SinkContract::TwoPhase | SinkContract::WriteAhead => {
                differing_rows(sink)
            }
            SinkContract::Idempotent => differing_table(sink),
            SinkContract::Discard => Vec::new(),
        });
        findings.extend(texts.map(|text| wrong(Subject::Output, text)));
    }
    findings
}

/// Bytes for people: as text if they are some, else in hexadecimal.
pub(super) fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => format!("'{text}'"),
        Ok(_) | Err(_) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn wrong(subject: Subject, text: String) -> Finding {
    let anomaly = Anomaly::Wrong;
    Finding { oracle: ORACLE.name, subject, anomaly, allowed: false, record: None, text }
}

pub(super) fn differing_cells(cells: &Cells, expected: &Cells) -> Vec<String> {
    let none = Table::new();
    let operators: BTreeSet<&String> = cells.keys().chain(expected.keys()).collect();
    let texts = operators.into_iter().flat_map(|operator| {
        let [found, expected] = [cells, expected].map(|all| all.get(operator).unwrap_or(&none));
        differences(found, expected, |key, found, expected| {
            let (key, found, expected) = (readable(key), or_none(found), or_none(expected));
            format!("state of '{operator}' for key {key} is {found} and not {expected}")
        })
    });
    texts.collect()
}

fn differing_rows(sink: &SinkFacts<'_>) -> Vec<String> {
    if are_same_rows(sink.rows, sink.expected) {
        return Vec::new();
    }
    let visible = count_rows(sink.rows.iter().map(|row| row.bytes));
    let expected = count_rows(sink.expected.iter().copied());
    differences(&visible, &expected, |row, found, expected| {
        let (found, expected) = (found.unwrap_or(&0), expected.unwrap_or(&0));
        let row = readable(row);
        format!("sink '{}' shows row {row} {found} times and not {expected} times", sink.uid)
    })
}

fn differing_table(sink: &SinkFacts<'_>) -> Vec<String> {
    let rows = sink.rows.iter().filter_map(|row| Some((row.key?, row.bytes)));
    let table: BTreeMap<&[u8], &[u8]> = rows.collect();
    differences(&table, sink.expected_table, |key, found, expected| {
        let key = readable(key);
        let (found, expected) = (or_none(found), or_none(expected));
        format!("sink '{}' shows {found} for key {key} and not {expected}", sink.uid)
    })
}

/// Describes each key at which two maps differ.
fn differences<F: PartialEq<E>, E>(
    found: &BTreeMap<impl Borrow<[u8]> + Ord, F>,
    expected: &BTreeMap<impl Borrow<[u8]> + Ord, E>,
    describe: impl Fn(&[u8], Option<&F>, Option<&E>) -> String,
) -> Vec<String> {
    // Nearly always they do not, and that is found out faster.
    let mut pairs = found.iter().zip(expected);
    if found.len() == expected.len()
        && pairs.all(|((key, value), (due, value_due))| {
            key.borrow() == due.borrow() && value == value_due
        })
    {
        return Vec::new();
    }
    let missing = expected.iter().filter(|(key, _)| !found.contains_key((*key).borrow()));
    let missing = missing.map(|(key, value)| describe(key.borrow(), None, Some(value)));
    let other = found.iter().filter_map(|(key, value)| {
        let due = expected.get(key.borrow());
        let differs = due.is_none_or(|due| value != due);
        differs.then(|| describe(key.borrow(), Some(value), due))
    });
    missing.chain(other).collect()
}

fn or_none(bytes: Option<impl AsRef<[u8]>>) -> String {
    bytes.map_or("nothing".to_owned(), |bytes| readable(bytes.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{RowFact, StateFacts};
    use super::*;

    fn cells(value: &[u8]) -> Cells {
        BTreeMap::from([("count".to_owned(), Table::from([(b"the".to_vec(), value.to_vec())]))])
    }

    #[test]
    fn state_is_what_the_reference_says() {
        let (found, expected) = (cells(&[2]), cells(&[1]));
        let of = |cells, expected, of_applied, state_claim| {
            let facts = facts(&[]);
            let state =
                StateFacts { cells, expected, expected_of_applied: of_applied, ..facts.state };
            Facts { state, state_claim, ..facts }
        };
        let exactly_once = Level::ExactlyOnce;
        check(&ORACLE, &of(&found, &found, None, exactly_once), "");
        let wrong = of(&found, &expected, None, exactly_once);
        check(&ORACLE, &wrong, "state of 'count' for key 'the' is 02 and not 01");
        check(&ORACLE, &Facts { is_finished: false, ..wrong }, "");
        let gone = of(&NO_CELLS, &expected, None, exactly_once);
        check(&ORACLE, &gone, "is nothing and not 01");
        check(&ORACLE, &of(&found, &NO_CELLS, None, exactly_once), "is 02 and not nothing");
        check(&ORACLE, &of(&found, &expected, Some(&found), Level::AtLeastOnce), "");
        let of_applied = of(&found, &found, Some(&expected), Level::AtLeastOnce);
        check(&ORACLE, &of_applied, "is 02 and not 01");
        check(&ORACLE, &of(&found, &expected, None, Level::AtMostOnce), "");
    }

    #[test]
    fn output_is_what_the_reference_says() {
        let row = |bytes: &'static [u8]| RowFact {
            origin: origin(0, 1),
            attempt: att(1),
            bytes,
            key: Some(b"k"),
        };
        let table = [
            (SinkContract::TwoPhase, vec![row(b"a"), row(b"b")], ""),
            (SinkContract::TwoPhase, vec![row(b"b")], "shows row 'a' 0 times and not 1 times"),
            (SinkContract::TwoPhase, vec![row(b"a"), row(b"b"), row(b"b")], "'b' 2 times"),
            (SinkContract::Idempotent, vec![row(b"a"), row(b"b")], ""),
            (SinkContract::Idempotent, vec![row(b"b"), row(b"a")], "'a' for key 'k' and not 'b'"),
            (SinkContract::Plain, vec![row(b"a"), row(b"b"), row(b"b")], "'b' 2 times"),
            (SinkContract::Discard, vec![], ""),
        ];
        for (contract, rows, expected) in table {
            let sinks = [SinkFacts {
                expected: &[b"a", b"b"],
                expected_table: &BTreeMap::from([(b"k".to_vec(), b"b".to_vec())]),
                ..sink(contract, &rows)
            }];
            let facts = Facts { sinks: &sinks, ..facts(&[]) };
            check(&ORACLE, &facts, expected);
            check(&ORACLE, &Facts { output_claim: Some(Level::AtLeastOnce), ..facts }, "");
        }
    }
}
