//! C10, loss in the input: what a log has dropped is reported, and nothing else is. Where the claim
//! allows no loss one that is hidden is the business of the delivery judges; where it does, each
//! record that is lost has to be in a gap that a source has reported.
//!
//! The false alarms it avoids: a log may be truncated further between a read and its report. Where
//! state dies on the way a record that is not in it need not be lost in the input.

use std::collections::BTreeMap;
use std::ops::Range;

use cofferdam::id::{SplitId, TaskId};
use cofferdam::trace::TraceEvent;

use super::c10_state::lost_records;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "loss-report",
    property: "C10: records are reported as lost only if their log has dropped them",
    judge,
    scope: Scope::Run,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut firsts: BTreeMap<(TaskId, SplitId), u64> = BTreeMap::new();
    let mut findings = Vec::new();
    let mut gaps: Vec<Range<u64>> = Vec::new();
    for traced in facts.control {
        match traced.event {
            TraceEvent::Truncated { task, split, first } => {
                firsts.insert((task, split), first);
            }
            TraceEvent::LossReported { task, split, wanted, first, .. } => {
                gaps.push(wanted..first);
                let kept = firsts.get(&(task, split)).copied().unwrap_or_default();
                if wanted >= first || first > kept {
                    let text = format!(
                        "{task} reports that records {wanted} to {first} of {split} are lost, and \
                         the log has dropped those before {kept}"
                    );
                    findings.push(Finding::protocol(ORACLE.name, Subject::State, text));
                }
            }
            _ => {}
        }
    }
    let may_pass_over = facts.mechanism.restores() && !facts.mechanism.drops_state();
    if facts.is_finished && may_pass_over && facts.state_claim.may_lose() {
        let mut lost = lost_records(facts);
        lost.retain(|record| !gaps.iter().any(|gap| gap.contains(&record.offset)));
        findings.extend(lost.into_iter().map(|record| {
            let text = format!("{record} is lost, and no source has reported that");
            Finding::protocol(ORACLE.name, Subject::State, text)
        }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::guarantee::{Level, Mechanism};

    const SPLIT: SplitId = SplitId::new(0);

    #[test]
    fn a_loss_that_a_claim_allows_is_not_to_be_hidden() {
        let task = task(0);
        let (attempt, split) = (att(1), SPLIT);
        let dropped = TraceEvent::Truncated { task, split, first: 7 };
        let report = TraceEvent::LossReported { task, attempt, split, wanted: 5, first: 7 };
        let records = [(record(6), 1, 0)];
        let (state_claim, records) = (Level::AtMostOnce, &records[..]);
        let [reported, hidden] = [trace(&[dropped, report]), trace(&[dropped])];
        let allowed = |trace| Facts { records, state_claim, ..facts(trace) };
        check(&ORACLE, &allowed(&reported), "");
        check(&ORACLE, &allowed(&hidden), "record 6 of source 0 is lost, and no source");
        check(&ORACLE, &Facts { mechanism: Mechanism::None, ..allowed(&hidden) }, "");
        check(&ORACLE, &Facts { state_claim: Level::ExactlyOnce, ..allowed(&hidden) }, "");
    }

    #[test]
    fn only_what_was_dropped_is_lost() {
        let task = task(0);
        let dropped = TraceEvent::Truncated { task, split: SPLIT, first: 7 };
        let lost = |wanted, first| TraceEvent::LossReported {
            task,
            attempt: att(1),
            split: SPLIT,
            wanted,
            first,
        };
        check(&ORACLE, &facts(&trace(&[dropped, lost(5, 7)])), "");
        check(&ORACLE, &facts(&trace(&[dropped, lost(5, 6)])), "");
        check(&ORACLE, &facts(&trace(&[dropped, lost(5, 9)])), "those before 7");
        check(&ORACLE, &facts(&trace(&[lost(5, 7)])), "those before 0");
        check(&ORACLE, &facts(&trace(&[dropped, lost(7, 7)])), "records 7 to 7 of split-0");
    }
}
