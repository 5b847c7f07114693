//! C10, loss in the input: what a log has dropped is reported, and nothing else is. That a hidden
//! loss is a loss like any other is the business of the delivery judges.
//!
//! The false alarm it avoids: a log may be truncated further between a read and its report.

use std::collections::BTreeMap;

use cofferdam::id::{SplitId, TaskId};
use cofferdam::trace::TraceEvent;

use super::{Facts, Finding, Oracle, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "loss-report",
    property: "C10: records are reported as lost only if their log has dropped them",
    judge,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut firsts: BTreeMap<(TaskId, SplitId), u64> = BTreeMap::new();
    let mut findings = Vec::new();
    for traced in facts.control {
        match traced.event {
            TraceEvent::Truncated { task, split, first } => {
                firsts.insert((task, split), first);
            }
            TraceEvent::LossReported { task, split, wanted, first, .. } => {
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
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const SPLIT: SplitId = SplitId::new(0);

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
