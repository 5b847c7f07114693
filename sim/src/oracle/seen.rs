//! The levels that a run has shown: the strongest claims that it keeps. So what was seen and the
//! verdicts agree, and it is the same whatever was claimed.

use std::fmt;

use cofferdam::guarantee::Level;
use serde::{Serialize, Serializer};

use super::{Facts, Oracle, Subject, c10_output, c10_state, values};

/// What a run has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// In the state; none if that was not judged in full.
    pub state: Option<Seen>,
    /// In the output; none if that was not judged in full, or no sink shows anything.
    pub output: Option<Seen>,
}

/// The strongest claims that one side of a run keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// This one.
    Only(Level),
    /// Nothing is lost, nothing is there twice, and yet a value is another one: at-most-once and
    /// at-least-once, and not exactly-once.
    BothInTheMiddle,
}

impl Seen {
    /// Whether it keeps a claim.
    pub const fn satisfies(self, claim: Level) -> bool {
        match self {
            Self::Only(level) => level.satisfies(claim),
            Self::BothInTheMiddle => !matches!(claim, Level::ExactlyOnce),
        }
    }

    /// The claim that has to be judged before one can say that this was seen.
    pub(crate) const fn rests_on(self) -> Level {
        match self {
            Self::Only(level) => level,
            Self::BothInTheMiddle => Level::AtLeastOnce,
        }
    }

    fn of(keeps: impl Fn(Level) -> bool) -> Self {
        if keeps(Level::ExactlyOnce) {
            return Self::Only(Level::ExactlyOnce);
        }
        match (keeps(Level::AtMostOnce), keeps(Level::AtLeastOnce)) {
            (true, true) => Self::BothInTheMiddle,
            (most, least) => Self::Only(Level::of(!least, !most)),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(level) => level.fmt(f),
            Self::BothInTheMiddle => {
                write!(f, "{} and {}", Level::AtMostOnce, Level::AtLeastOnce)
            }
        }
    }
}

impl Serialize for Seen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the state and the output have shown.
pub(super) fn levels(facts: &Facts<'_>) -> Levels {
    let state = Seen::of(|claim| {
        let facts = Facts { state_claim: claim, ..facts.clone() };
        keeps(&facts, claim, Subject::State, &[&c10_state::ORACLE, &values::ORACLE])
    });
    let output = facts.output_claim.map(|_| {
        Seen::of(|claim| {
            let facts = Facts { output_claim: Some(claim), ..facts.clone() };
            keeps(&facts, claim, Subject::Output, &[&c10_output::ORACLE, &values::ORACLE])
        })
    });
    Levels { state: Some(state), output }
}

/// Whether the judges of what came of a run find nothing that a claim forbids. A run without an end
/// has shown no more than that nothing is there too often.
fn keeps(facts: &Facts<'_>, claim: Level, subject: Subject, oracles: &[&Oracle]) -> bool {
    let findings = || oracles.iter().flat_map(|oracle| (oracle.judge)(facts));
    (facts.is_finished || claim.may_lose())
        && !findings().any(|found| found.subject == subject && !found.anomaly.is_allowed(claim))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cofferdam::guarantee::{Mechanism, SinkContract};

    use super::super::testing::*;
    use super::super::{AppliedFact, Cells, RowFact, SinkFacts, StateFacts, Verdict, judge};
    use super::*;

    fn cells(value: u8) -> Cells {
        BTreeMap::from([("count".to_owned(), BTreeMap::from([(b"k".to_vec(), vec![value])]))])
    }

    /// The levels of a run whose record 0 was taken in so often and has shown this row, when 1 time
    /// and the row 'a' are due; they must not depend on the claim, and say which claims are held.
    fn shown(taken: usize, row: &'static [u8]) -> (Seen, Seen) {
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
            let (state, mechanism) = (StateFacts { ..state }, Mechanism::None);
            let facts = Facts { state, mechanism, sinks: &sinks, ..facts(&[]) };
            let (state_claim, output_claim) = (*claim, Some(*claim));
            let judgement = judge(&Facts { state_claim, output_claim, records: &records, ..facts });
            let Levels { state, output } = judgement.levels.unwrap();
            let (state, output) = (state.unwrap(), output.unwrap());
            assert_eq!(judgement.state == Verdict::Held, state.satisfies(*claim), "{claim}");
            let is_held = judgement.output == Some(Verdict::Held);
            assert_eq!(is_held, output.satisfies(*claim), "{claim}");
            (state, output)
        });
        let levels: Vec<_> = levels.collect();
        assert!(levels.iter().all(|level| *level == levels[0]), "by claim: {levels:?}");
        levels[0]
    }

    #[test]
    fn what_was_seen_is_the_same_under_every_claim() {
        let [once, most, least] =
            [Level::ExactlyOnce, Level::AtMostOnce, Level::AtLeastOnce].map(Seen::Only);
        assert_eq!(shown(1, b"a"), (once, once));
        assert_eq!(shown(1, b"b"), (once, Seen::BothInTheMiddle));
        assert_eq!(shown(2, b"b"), (least, Seen::BothInTheMiddle));
        assert_eq!(shown(0, b"a"), (most, once));
    }
}
