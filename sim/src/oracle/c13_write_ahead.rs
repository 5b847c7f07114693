//! C13, the write-ahead sink: rows that wait in the state of their task become visible only when a
//! complete checkpoint covers them, none before an earlier portion of its sink (rule 73), and are
//! marked as sent only once they were; at the end all that is covered is visible.
//!
//! A portion belongs to the first checkpoint whose snapshot its sink takes after its first row. A
//! complete checkpoint covers it if it is that one or a later one *of the same attempt*.
//!
//! The false alarms it avoids: whoever restores a checkpoint may send again what was sent and not
//! marked; a portion that no complete checkpoint covers vanishes with its attempt, and holds none
//! back.

use std::collections::BTreeMap;

use cofferdam::id::{CheckpointId, TaskId, TransactionId};
use cofferdam::trace::TraceEvent;

use super::covered::Covered;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "write-ahead",
    property: "C13: logged rows are visible only once covered, in order, all of them, and marked \
               only then",
    judge,
    scope: Scope::Run,
};

struct Portion {
    task: TaskId,
    /// The checkpoint it belongs to, once it takes no more rows.
    checkpoint: Option<CheckpointId>,
    is_delivered: bool,
}

struct WriteAhead {
    portions: BTreeMap<TransactionId, Portion>,
    covered: Covered,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let covered = Covered::new(facts.tasks);
    let mut sinks = WriteAhead { portions: BTreeMap::new(), covered };
    let mut problems = Vec::new();
    for traced in facts.control {
        sinks.covered.note(&traced.event);
        problems.extend(sinks.note(&traced.event));
    }
    if facts.is_finished {
        let unsent = sinks.unsent();
        problems.extend(unsent.into_iter().map(|id| format!("portion {id} was never sent")));
    }
    let finding = |text| Finding::protocol(ORACLE.name, Subject::Output, text);
    problems.into_iter().map(finding).collect()
}

impl WriteAhead {
    fn note(&mut self, event: &TraceEvent) -> Option<String> {
        match *event {
            TraceEvent::Logged { task, portion, .. } => {
                let open = Portion { task, checkpoint: None, is_delivered: false };
                let of = self.portions.entry(portion).or_insert(open).checkpoint?;
                Some(format!("{task} logged rows in portion {portion} after the snapshot of {of}"))
            }
            TraceEvent::Snapshot { task, attempt, checkpoint, .. }
            | TraceEvent::ProgressCut { task, attempt, write: checkpoint, .. } => {
                for (id, portion) in &mut self.portions {
                    if portion.task == task && id.attempt == attempt {
                        portion.checkpoint.get_or_insert(checkpoint);
                    }
                }
                None
            }
            TraceEvent::Delivered { portion, .. } => self.deliver(portion),
            TraceEvent::Marked { portion, .. } => {
                let is_delivered = self.portions.get(&portion)?.is_delivered;
                (!is_delivered).then(|| format!("portion {portion} was marked and never sent"))
            }
            _ => None,
        }
    }

    fn deliver(&mut self, id: TransactionId) -> Option<String> {
        let Some(portion) = self.portions.get_mut(&id) else {
            return Some(format!("portion {id} was sent and never logged"));
        };
        portion.is_delivered = true;
        if !self.covered.covers(id.attempt, portion.task, portion.checkpoint) {
            return Some(format!(
                "portion {id} was sent before a checkpoint that covers it was complete"
            ));
        }
        let passed = self.unsent().into_iter().find(|earlier| {
            (earlier.vertex, earlier.subtask) == (id.vertex, id.subtask) && *earlier < id
        });
        passed.map(|earlier| format!("portion {id} was sent before portion {earlier}"))
    }

    /// What is covered and was not sent.
    fn unsent(&mut self) -> Vec<TransactionId> {
        let Self { portions, covered } = self;
        let waiting = portions.iter().filter(|(_, portion)| !portion.is_delivered);
        let due = waiting
            .filter(|(id, portion)| covered.covers(id.attempt, portion.task, portion.checkpoint));
        due.map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn logged(attempt: u64, sequence: u64) -> TraceEvent {
        TraceEvent::Logged { task: task(2), portion: transaction(attempt, sequence), rows: 1 }
    }

    fn delivered(attempt: u64, portion: TransactionId) -> TraceEvent {
        TraceEvent::Delivered { portion, attempt: att(attempt), again: false }
    }

    fn marked(attempt: u64, portion: TransactionId) -> TraceEvent {
        TraceEvent::Marked { portion, attempt: att(attempt) }
    }

    /// Two portions; the first one's checkpoint was given up.
    fn story() -> Vec<TraceEvent> {
        let (first, second) = (transaction(1, 0), transaction(1, 1));
        vec![
            deployed(1, None),
            logged(1, 0),
            snapshot(1, 2, 1),
            logged(1, 1),
            snapshot(1, 2, 2),
            completed(1, 2),
            delivered(1, first),
            marked(1, first),
            delivered(1, second),
            marked(1, second),
        ]
    }

    #[test]
    fn rows_live_by_the_rules() {
        check(&ORACLE, &facts(&trace(&story())), "");
        let mut again = story();
        again.pop();
        again.extend([deployed(2, Some(2)), delivered(2, transaction(1, 1)), logged(2, 0)]);
        check(&ORACLE, &facts(&trace(&again)), "");
    }

    #[test]
    fn rule_073_no_portion_is_sent_early_or_before_an_earlier_one() {
        let table = [
            ((5, 6), "before a checkpoint that covers it"),
            ((6, 8), "portion v1-0-1-1 was sent before portion v1-0-1-0"),
            ((6, 7), "marked and never sent"),
            ((1, 6), "sent and never logged"),
            ((3, 4), "before a checkpoint that covers it"),
        ];
        for ((left, right), expected) in table {
            let mut events = story();
            events.swap(left, right);
            check(&ORACLE, &facts(&trace(&events)), expected);
        }
        let mut events = story();
        events.insert(5, logged(1, 1));
        check(&ORACLE, &facts(&trace(&events)), "after the snapshot of chk-2");
        let mut events = story();
        events.truncate(8);
        check(&ORACLE, &facts(&trace(&events)), "portion v1-0-1-1 was never sent");
        check(&ORACLE, &Facts { is_finished: false, ..facts(&trace(&events)) }, "");
    }
}
