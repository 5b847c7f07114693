//! Rule 81, the order of splits: of the splits that nobody has, a reader that asks is given the
//! oldest. So what comes back after a failure goes ahead of what was found later, and no split
//! waits for newer ones for ever.
//!
//! The false alarm it avoids: an attempt begins again with what has come back, so an older split
//! may follow a newer one of the attempt before.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, SplitId, VertexId};
use cofferdam::trace::TraceEvent;

use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "split-order",
    property: "rule 81: in an attempt the splits of a source are assigned oldest first",
    judge,
    scope: Scope::Layout,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut newest: BTreeMap<(VertexId, AttemptId), SplitId> = BTreeMap::new();
    let mut findings = Vec::new();
    for traced in facts.control {
        let TraceEvent::Assigned { attempt, source, split, .. } = traced.event else { continue };
        let newest = newest.entry((source, attempt)).or_insert(split);
        if split < *newest {
            let text = format!("attempt {attempt} assigns {split} after {newest}");
            findings.push(Finding::protocol(ORACLE.name, Subject::State, text));
        }
        *newest = split.max(*newest);
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn assigned(attempt: u64, source: u32, split: u32) -> TraceEvent {
        TraceEvent::Assigned {
            task: task(0),
            attempt: att(attempt),
            source: VertexId::new(source),
            split: SplitId::new(split),
        }
    }

    #[test]
    fn splits_are_assigned_oldest_first_in_each_attempt_and_source() {
        let ordered = [assigned(1, 0, 0), assigned(1, 0, 3), assigned(1, 1, 1), assigned(2, 0, 1)];
        check(&ORACLE, &facts(&trace(&ordered)), "");
        let last = [&ordered[..], &[assigned(2, 0, 4), assigned(2, 0, 3)]].concat();
        check(&ORACLE, &facts(&trace(&last)), "attempt a2 assigns split-3 after split-4");
    }
}
