//! The levels that a run has shown. They follow from the run alone: by provenance, which is the
//! same under every claim, and by the values.
//!
//! Who shows another value than is due has not shown exactly-once. What was lost or doubled in the
//! state explains wrong rows; what nothing explains keeps no level.

use cofferdam::guarantee::{Level, SinkContract};

use super::c10_output::{shows_only_fired_rows, unexplained};
use super::delivery::{are_same_rows, count_rows};
use super::given::{of_fired, of_table};
use super::values::{differing_cells, differing_table};
use super::{Anomaly, Facts, Finding, SinkFacts, Subject};

/// What a run has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// In the state.
    pub state: Level,
    /// In the output; none if no sink shows anything.
    pub output: Option<Level>,
}

/// What the state and the output have shown; `findings` are those of all judges.
pub(super) fn levels(facts: &Facts<'_>, findings: &[Finding]) -> Levels {
    let state = state_level(facts, findings);
    Levels { state, output: facts.output_claim.map(|_| output_level(facts, findings, state)) }
}

fn state_level(facts: &Facts<'_>, findings: &[Finding]) -> Level {
    let counted = counted(facts, findings, Subject::State);
    let due = match counted {
        Level::ExactlyOnce => Some(facts.state.expected),
        Level::None | Level::AtMostOnce | Level::AtLeastOnce => facts.state.expected_of_applied,
    };
    let is_wrong = |due| !differing_cells(facts.state.cells, due).is_empty();
    if facts.is_finished && due.is_some_and(is_wrong) { Level::None } else { counted }
}

fn output_level(facts: &Facts<'_>, findings: &[Finding], state: Level) -> Level {
    let mut shown = counted(facts, findings, Subject::Output);
    if facts.sinks.iter().any(|sink| !unexplained(sink, shown).is_empty()) {
        return Level::None;
    }
    if !facts.is_finished {
        return shown;
    }
    for sink in facts.sinks {
        if shows_only_fired_rows(facts, sink) && state == Level::ExactlyOnce {
            shown = shown.weakest(fired_level(sink));
        } else if let Some(level) = level_behind(sink) {
            shown = shown.weakest(level);
        } else if !shows_what_is_due(sink, shown) {
            shown = match shown.weakest(state) {
                Level::ExactlyOnce => Level::None,
                weaker @ (Level::None | Level::AtMostOnce | Level::AtLeastOnce) => weaker,
            };
        }
    }
    shown
}

/// The level by provenance. A run without an end has shown no more than that nothing is there too
/// often.
fn counted(facts: &Facts<'_>, findings: &[Finding], subject: Subject) -> Level {
    let of_records = |anomaly| {
        let mut of_subject = findings.iter().filter(|finding| finding.subject == subject);
        of_subject.any(|finding| finding.record.is_some() && finding.anomaly == anomaly)
    };
    let loses = of_records(Anomaly::Lost) || !facts.is_finished;
    Level::of(loses, of_records(Anomaly::Duplicated))
}

/// That of rows that timers fired over right state, which are known by their values.
fn fired_level(sink: &SinkFacts<'_>) -> Level {
    let visible = count_rows(sink.rows.iter().map(|row| row.bytes));
    let due = count_rows(sink.expected.iter().copied());
    if visible.keys().any(|row| !due.contains_key(row)) {
        return Level::None;
    }
    let often = |row: &&[u8]| visible.get(*row).copied().unwrap_or_default();
    let loses = due.iter().any(|(row, expected)| often(row) < *expected);
    Level::of(loses, due.iter().any(|(row, expected)| often(row) > *expected))
}

/// What the values show beside what the state behind them has given, if they are not those that
/// are due.
fn level_behind(sink: &SinkFacts<'_>) -> Option<Level> {
    let mut found = of_table(sink);
    found.extend(sink.fired.into_iter().flat_map(|fired| of_fired(sink, fired)));
    let is = |anomaly| found.iter().any(|(of, _)| *of == anomaly);
    (!found.is_empty()).then(|| match is(Anomaly::Unexpected) {
        true => Level::None,
        false => Level::of(is(Anomaly::Lost), is(Anomaly::Duplicated)),
    })
}

/// Whether all rows are there, if none is lost or doubled, else whether there are no others.
fn shows_what_is_due(sink: &SinkFacts<'_>, shown: Level) -> bool {
    match sink.contract {
        SinkContract::Idempotent => differing_table(sink).is_empty(),
        SinkContract::Discard => true,
        SinkContract::Plain | SinkContract::TwoPhase | SinkContract::WriteAhead => {
            are_same_rows(sink.rows, sink.expected)
                || shown != Level::ExactlyOnce && {
                    let due = count_rows(sink.expected.iter().copied());
                    sink.rows.iter().all(|row| due.contains_key(row.bytes))
                }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::testing::*;
    use super::super::{AppliedFact, Cells, RowFact, StateFacts, judge};
    use super::*;

    fn cells(value: u8) -> Cells {
        BTreeMap::from([("count".to_owned(), BTreeMap::from([(b"k".to_vec(), vec![value])]))])
    }

    /// The levels of a run whose record 0 was taken in so often and has shown this row, when 1 time
    /// and the row 'a' are due; they must not depend on the claim.
    fn shown(taken: usize, row: &'static [u8]) -> (Level, Option<Level>) {
        let applied = vec![AppliedFact { origin: origin(0, 1), cell: 9 }; taken];
        let incarnations = [(att(1), applied)];
        let [found, one] = [taken as u8, 1].map(cells);
        let rows = [RowFact { origin: origin(0, 1), attempt: att(1), bytes: row, key: None }];
        let sinks = [SinkFacts { expected: &[b"a"], ..sink(SinkContract::TwoPhase, &rows) }];
        let state = StateFacts {
            incarnations: &incarnations,
            cells: &found,
            expected: &one,
            expected_of_applied: Some(&found),
        };
        let records = [(record(0), 1, 1)];
        let levels = Level::ALL.iter().map(|claim| {
            let facts = Facts { state: StateFacts { ..state }, sinks: &sinks, ..facts(&[]) };
            let (state_claim, output_claim) = (*claim, Some(*claim));
            let judgement = judge(&Facts { state_claim, output_claim, records: &records, ..facts });
            judgement.levels.map(|levels| (levels.state, levels.output)).unwrap()
        });
        let levels: Vec<_> = levels.collect();
        assert!(levels.iter().all(|level| *level == levels[0]), "by claim: {levels:?}");
        levels[0]
    }

    #[test]
    fn what_was_seen_is_the_same_under_every_claim() {
        assert_eq!(shown(1, b"a"), (Level::ExactlyOnce, Some(Level::ExactlyOnce)));
        assert_eq!(shown(1, b"b"), (Level::ExactlyOnce, Some(Level::None)));
        assert_eq!(shown(2, b"b"), (Level::AtLeastOnce, Some(Level::AtLeastOnce)));
        assert_eq!(shown(0, b"a"), (Level::AtMostOnce, Some(Level::ExactlyOnce)));
    }
}
