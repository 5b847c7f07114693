//! What all judges together say of a run.

use std::collections::BTreeSet;
use std::fmt;

use cofferdam::guarantee::Level;
use cofferdam::trace::{RecordId, TraceEvent, Traced};

use super::seen::{Levels, Seen, levels};
use super::{Anomaly, Facts, Finding, ORACLES, Oracle, Scope, Subject, c10_output};

/// Whether a promise was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It was.
    Held,
    /// It was not.
    Violated,
    /// Nothing can be said.
    Unknown,
}

/// The judgement of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Everything that was found, allowed or not, in the order of [`ORACLES`].
    pub findings: Vec<Finding>,
    /// Whether the state keeps its claim.
    pub state: Verdict,
    /// Whether the output does; none if no sink shows anything.
    pub output: Option<Verdict>,
    /// What was shown, whatever the claim; none if only the claims were judged.
    pub levels: Option<Levels>,
    /// How many records and fired rows are lost, allowed or not, in the state or the output.
    pub lost: usize,
    /// As many are there too often.
    pub duplicated: usize,
    /// How many cells and rows have a wrong value.
    pub wrong: usize,
    /// How many rows nothing explains.
    pub unexpected: usize,
    /// The run did not come to its end.
    pub stuck: bool,
    /// What was not judged, and why; a claim with such a side is not held.
    pub unjudged: Vec<(Subject, String)>,
}

/// Asks every judge, and says which levels the run has shown.
pub fn judge(facts: &Facts<'_>) -> Judgement {
    Judgement { levels: Some(levels(facts)), ..judge_claims(facts) }
}

/// Asks every judge. Thousands of runs need no more than that.
pub fn judge_claims(facts: &Facts<'_>) -> Judgement {
    let findings: Vec<Finding> = ORACLES.iter().flat_map(|oracle| ask(oracle, facts)).collect();
    let of = |anomaly: Anomaly| findings.iter().filter(move |found| found.anomaly == anomaly);
    let mut judgement = Judgement {
        state: verdict(facts, &findings, Subject::State),
        output: facts.output_claim.map(|_| verdict(facts, &findings, Subject::Output)),
        levels: None,
        lost: subjects(of(Anomaly::Lost)),
        duplicated: subjects(of(Anomaly::Duplicated)),
        wrong: of(Anomaly::Wrong).count(),
        unexpected: of(Anomaly::Unexpected).count(),
        stuck: !facts.is_finished,
        unjudged: Vec::new(),
        findings,
    };
    for (subject, reason) in c10_output::unjudged(facts) {
        judgement.leave_open(subject, reason);
    }
    judgement
}

/// Asks a judge about what it speaks of.
fn ask(oracle: &Oracle, facts: &Facts<'_>) -> Vec<Finding> {
    if oracle.scope == Scope::Run || facts.layouts.len() < 2 {
        return (oracle.judge)(facts);
    }
    let (mut trace, mut control) = (facts.trace, facts.control);
    let mut findings = Vec::new();
    for layout in facts.layouts {
        let own = Facts {
            trace: cut_layout(&mut trace),
            control: cut_layout(&mut control),
            channels: &layout.channels,
            tasks: layout.tasks,
            ..facts.clone()
        };
        let is_last = trace.is_empty();
        if is_last || oracle.scope == Scope::Layout {
            findings.extend((oracle.judge)(&own));
        }
        if is_last {
            break;
        }
    }
    findings
}

/// Cuts off what happened in the first of the layouts that are left.
fn cut_layout<'a>(rest: &mut &'a [Traced]) -> &'a [Traced] {
    let begins = |traced: &Traced| matches!(traced.event, TraceEvent::LaidOut { .. });
    let next = rest.iter().skip(1).position(begins).map_or(rest.len(), |place| place + 1);
    let (own, behind) = rest.split_at(next);
    *rest = behind;
    own
}

const NOTHING: Seen = Seen::Only(Level::None);

impl Judgement {
    /// That of a run which has not come to its end: nothing can be said yet.
    pub fn pending(output_claim: Option<Level>) -> Self {
        Self {
            findings: Vec::new(),
            state: Verdict::Unknown,
            output: output_claim.map(|_| Verdict::Unknown),
            levels: Some(Levels { state: Some(NOTHING), output: output_claim.map(|_| NOTHING) }),
            lost: 0,
            duplicated: 0,
            wrong: 0,
            unexpected: 0,
            stuck: false,
            unjudged: Vec::new(),
        }
    }

    /// Notes that a side was not judged in full: unless something was found, nothing can be said of
    /// it.
    pub(crate) fn leave_open(&mut self, subject: Subject, reason: String) {
        let open = |verdict| if verdict == Verdict::Held { Verdict::Unknown } else { verdict };
        match subject {
            Subject::State => self.state = open(self.state),
            Subject::Output => self.output = self.output.map(open),
        }
        self.unjudged.push((subject, reason));
    }

    /// The finding that tells most of those that break a claim: what a user sees, and of which
    /// record, before the rule that was broken on the way there.
    pub fn violation(&self) -> Option<&Finding> {
        self.violations().min_by_key(|finding| match finding.anomaly {
            Anomaly::Lost | Anomaly::Duplicated if finding.record.is_some() => 0,
            Anomaly::Lost | Anomaly::Duplicated | Anomaly::Unexpected => 1,
            Anomaly::Wrong => 2,
            Anomaly::Protocol => 3,
            Anomaly::Stuck => 4,
        })
    }

    /// The first rule of the protocol that was broken: it explains the rest.
    pub fn broken_rule(&self) -> Option<&Finding> {
        self.violations().find(|finding| finding.anomaly == Anomaly::Protocol)
    }

    /// Every finding that breaks a claim.
    pub fn violations(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !finding.allowed)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Held => "held",
            Self::Violated => "violated",
            Self::Unknown => "unknown",
        })
    }
}

fn verdict(facts: &Facts<'_>, findings: &[Finding], subject: Subject) -> Verdict {
    if findings.iter().any(|finding| finding.subject == subject && !finding.allowed) {
        Verdict::Violated
    } else if facts.is_finished {
        Verdict::Held
    } else {
        Verdict::Unknown
    }
}

/// How many records, and rows without one, findings are about.
fn subjects<'a>(findings: impl Iterator<Item = &'a Finding>) -> usize {
    let mut records: BTreeSet<RecordId> = BTreeSet::new();
    let mut fired = 0;
    for finding in findings {
        match finding.record {
            Some(record) => {
                records.insert(record);
            }
            None => fired += 1,
        }
    }
    records.len() + fired
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{AppliedFact, StateFacts};
    use super::*;
    use cofferdam::id::AttemptId;

    fn incarnation(offsets: &[u64]) -> [(AttemptId, Vec<AppliedFact>); 1] {
        let fact = |offset: &u64| AppliedFact { origin: origin(*offset, 1), cell: 1 };
        [(att(1), offsets.iter().map(fact).collect())]
    }

    #[test]
    fn the_user_s_loss_comes_before_the_rule_that_explains_it() {
        let (incarnations, records) = (incarnation(&[1, 1]), [0, 1].map(|n| (record(n), 1, 0)));
        let trace = trace(&[deployed(1, Some(4))]);
        let facts = facts(&trace);
        let state = StateFacts { incarnations: &incarnations, ..facts.state };
        let facts = Facts { state, records: &records, ..facts };
        let judgement = judge(&facts);
        assert_eq!((judgement.lost, judgement.duplicated, judgement.stuck), (1, 1, false));
        assert_eq!(judgement.levels.unwrap().state, Some(NOTHING));
        assert_eq!(judgement.state, Verdict::Violated);
        assert_eq!(
            (judgement.output, judgement.levels.unwrap().output),
            (Some(Verdict::Held), Some(Seen::Only(Level::ExactlyOnce)))
        );
        assert_eq!(judgement.violation().unwrap().record, Some(record(0)));
        assert_eq!(judgement.broken_rule().unwrap().oracle, "recovery");
    }

    #[test]
    fn what_is_allowed_lowers_the_level_and_breaks_no_claim() {
        let incarnations = incarnation(&[0, 0]);
        let facts = facts(&[]);
        let state = StateFacts { incarnations: &incarnations, ..facts.state };
        let facts = Facts { state, state_claim: Level::AtLeastOnce, output_claim: None, ..facts };
        let judgement = judge(&facts);
        assert_eq!(
            (judgement.state, judgement.levels.unwrap().state),
            (Verdict::Held, Some(Seen::Only(Level::AtLeastOnce)))
        );
        assert_eq!((judgement.output, judgement.levels.unwrap().output), (None, None));
        assert_eq!(judgement.violation(), None);
    }

    #[test]
    fn a_run_without_an_end_keeps_no_claim() {
        let judgement = judge(&Facts { is_finished: false, ..facts(&[]) });
        assert_eq!((judgement.stuck, judgement.lost), (true, 0));
        assert_eq!(
            (judgement.state, judgement.output),
            (Verdict::Violated, Some(Verdict::Violated))
        );
        assert_eq!(judgement.levels.unwrap().state, Some(Seen::Only(Level::AtMostOnce)));
        assert_eq!(Verdict::Unknown.to_string(), "unknown");
    }
}
