//! C13 and C3, durable before acknowledged: a task acknowledges a checkpoint only when its part is
//! durable, and a checkpoint is complete only when every task of its attempt has acknowledged it.
//!
//! The false alarm it avoids: a checkpoint whose coordinator died is judged only if the next
//! attempt begins there; until then nobody relies on it.

use cofferdam::id::{CheckpointId, TaskId};
use cofferdam::trace::TraceEvent;

use super::by_attempt::ByAttempt;
use super::completions::Completions;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "durable-before-ack",
    property: "C13, C3: parts are durable before they are acknowledged, all before completion",
    judge,
    scope: Scope::Layout,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut parts: ByAttempt<Vec<(TaskId, CheckpointId)>> = ByAttempt::new(Vec::new());
    let mut completions = Completions::new(facts.tasks);
    let mut findings = Vec::new();
    for traced in facts.control {
        let problem = match traced.event {
            TraceEvent::StateStored { task, attempt, checkpoint } => {
                parts.at(attempt).push((task, checkpoint));
                None
            }
            TraceEvent::Acknowledged { task, attempt, checkpoint } => {
                let is_durable = parts.at(attempt).iter().rev().any(|p| *p == (task, checkpoint));
                (!is_durable)
                    .then(|| format!("{task} acknowledged {checkpoint} before it was durable"))
            }
            TraceEvent::Completed { checkpoint, .. } => (!completions.is_acknowledged(checkpoint))
                .then(|| format!("{checkpoint} is complete without every acknowledgement")),
            _ => None,
        };
        completions.note(&traced.event);
        let finding = |text| Finding::protocol(ORACLE.name, Subject::State, text);
        findings.extend(problem.map(finding));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn part(task: u32) -> [TraceEvent; 2] {
        [stored(1, task, 1), acknowledged(1, task, 1)]
    }

    #[test]
    fn all_is_durable_before_it_is_said() {
        let begun = [deployed(1, None), triggered(1)];
        let good = [&begun[..], &part(0), &part(1), &part(2), &[completed(1, 1)]].concat();
        check(&ORACLE, &facts(&trace(&good)), "");

        let early = [acknowledged(1, 0, 1), stored(1, 0, 1)];
        let early = [&begun[..], &early].concat();
        check(&ORACLE, &facts(&trace(&early)), "t0 acknowledged chk-1 before it was durable");

        let other_attempt = [&begun[..], &[stored(2, 0, 1), acknowledged(1, 0, 1)]].concat();
        check(&ORACLE, &facts(&trace(&other_attempt)), "t0 acknowledged chk-1");

        let partial = [&begun[..], &part(0), &part(2), &[completed(1, 1)]].concat();
        check(&ORACLE, &facts(&trace(&partial)), "without every acknowledgement");
    }
}
