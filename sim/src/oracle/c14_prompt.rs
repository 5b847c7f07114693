//! C14, a checkpoint begins in time: a source cuts as soon as it hears of it, whether it has
//! records or waits for some, so no later than a trigger may take.
//!
//! The false alarms it avoids: a checkpoint that is triggered again under the same number begins
//! anew; tasks behind sources cut when their barriers come, which may take any time.

use std::collections::BTreeMap;

use cofferdam::id::{CheckpointId, TaskId};
use cofferdam::time::Instant;
use cofferdam::trace::TraceEvent;

use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "prompt",
    property: "C14: a source cuts as soon as it hears of a checkpoint",
    judge,
    scope: Scope::LastLayout,
};

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let is_source = |task: TaskId| facts.channels.iter().all(|(_, receiver)| *receiver != task);
    let mut triggered: BTreeMap<CheckpointId, Instant> = BTreeMap::new();
    let mut findings = Vec::new();
    for traced in facts.control {
        match traced.event {
            TraceEvent::Triggered { checkpoint } => {
                triggered.insert(checkpoint, traced.at);
            }
            TraceEvent::Snapshot { task, checkpoint, .. } if is_source(task) => {
                let Some(begun) = triggered.get(&checkpoint) else { continue };
                let took = traced.at - *begun;
                if took > facts.trigger_delay_max {
                    let text = format!(
                        "{task} took snapshot {checkpoint} {took:?} after its trigger, which takes \
                         {:?} at the most",
                        facts.trigger_delay_max
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
    use std::time::Duration;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_source_cuts_no_later_than_a_trigger_may_take() {
        let at = |task, millis| {
            let mut events = trace(&[triggered(1), snapshot_of(1, task, 1, 7)]);
            events[1].at = Instant::from_millis(millis);
            events
        };
        let judged = |task, millis, expected| {
            let events = at(task, millis);
            let trigger_delay_max = Duration::from_millis(3);
            check(&ORACLE, &Facts { trigger_delay_max, ..facts(&events) }, expected);
        };
        judged(0, 3, "");
        judged(0, 4, "t0 took snapshot chk-1 4ms after its trigger");
        judged(2, 4, "");
    }
}
