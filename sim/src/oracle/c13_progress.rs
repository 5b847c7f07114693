//! C13 in its form for transactional updates: what a task had at its cut is what becomes durable,
//! each attempt goes on from the last durable write, and nothing is sent that is not durable
//! (strong productions).
//!
//! The false alarms it avoids: a write whose outcome nobody knows is durable if the store has it,
//! whatever its writer hears; and a write of a task that was stopped is no one's.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::trace::{Carried, TraceEvent};

use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "progress",
    property: "C13: a task's writes hold its state at their cut, attempts go on from the last one, \
               and nothing is sent before it is durable",
    judge,
    scope: Scope::Run,
};

#[derive(Default)]
struct Progress {
    /// The digest at each cut.
    cuts: BTreeMap<(TaskId, AttemptId, CheckpointId), u64>,
    /// The last durable write of each task, its digest, and the records produced by then.
    stored: BTreeMap<TaskId, (CheckpointId, u64, u64)>,
    /// How many records each task has sent, over all attempts.
    sent: BTreeMap<(TaskId, AttemptId), u64>,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    if facts.mechanism != cofferdam::guarantee::Mechanism::Transactional {
        return Vec::new();
    }
    let mut progress = Progress::default();
    let problems = facts.trace.iter().filter_map(|traced| progress.note(facts, &traced.event));
    let finding = |text| Finding::protocol(ORACLE.name, Subject::State, text);
    problems.map(finding).collect()
}

impl Progress {
    fn note(&mut self, facts: &Facts<'_>, event: &TraceEvent) -> Option<String> {
        match *event {
            TraceEvent::ProgressCut { task, attempt, write, digest } => {
                self.cuts.insert((task, attempt, write), digest);
                None
            }
            TraceEvent::ProgressStored { task, attempt, write, digest, produced } => {
                self.stored.insert(task, (write, digest, produced));
                let cut = self.cuts.get(&(task, attempt, write));
                (cut != Some(&digest)).then(|| {
                    format!("write {} of {task} does not hold its state at the cut", write.get())
                })
            }
            TraceEvent::Resumed { task, attempt, restored, sent } => {
                self.sent.insert((task, attempt), sent);
                let due = self.stored.get(&task).map(|(write, digest, _)| (*write, *digest));
                (restored != due).then(|| {
                    let [from, due] = [restored, due].map(name);
                    format!("{task} goes on from {from} in attempt {attempt} and not from {due}")
                })
            }
            TraceEvent::Sent { channel, attempt, what: Carried::Records(records), .. } => {
                let (task, _) = facts.channels[channel.index()];
                let sent = self.sent.entry((task, attempt)).or_default();
                *sent += u64::from(records);
                let durable = self.stored.get(&task).map_or(0, |(.., produced)| *produced);
                (*sent > durable).then(|| {
                    format!("{task} has sent {sent} records in all, and {durable} were durable")
                })
            }
            _ => None,
        }
    }
}

fn name(of: Option<(CheckpointId, u64)>) -> String {
    of.map_or("nothing".to_owned(), |(write, digest)| {
        format!("write {} with state {digest:016x}", write.get())
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::guarantee::Mechanism;

    fn resumed(attempt: u64, write: Option<(u64, u64)>, sent: u64) -> TraceEvent {
        let restored = write.map(|(write, digest)| (CheckpointId::new(write), digest));
        TraceEvent::Resumed { task: task(0), attempt: att(attempt), restored, sent }
    }

    fn cut(write: u64, digest: u64) -> TraceEvent {
        let write = CheckpointId::new(write);
        TraceEvent::ProgressCut { task: task(0), attempt: att(1), write, digest }
    }

    fn stored(write: u64, digest: u64, produced: u64) -> TraceEvent {
        let write = CheckpointId::new(write);
        TraceEvent::ProgressStored { task: task(0), attempt: att(1), write, digest, produced }
    }

    fn found(events: &[TraceEvent], expected: &str) {
        let trace = trace(events);
        let mechanism = Mechanism::Transactional;
        check(&ORACLE, &Facts { mechanism, ..facts(&trace) }, expected);
    }

    #[test]
    fn an_attempt_goes_on_from_the_last_durable_write() {
        let begun = [resumed(1, None, 0), cut(1, 7), stored(1, 7, 2), cut(2, 8)];
        let after = |last: TraceEvent| [&begun[..], &[last]].concat();
        found(&after(resumed(2, Some((1, 7)), 1)), "");
        found(&after(resumed(2, None, 0)), "goes on from nothing in attempt a2");
        found(&after(resumed(2, Some((1, 9)), 1)), "with state 0000000000000009 in attempt a2");
        found(&after(stored(2, 9, 2)), "write 2 of t0 does not hold its state at the cut");
    }

    #[test]
    fn nothing_is_sent_that_is_not_durable() {
        let begun = [resumed(1, None, 0), cut(1, 7), stored(1, 7, 2)];
        let send = |records| sent(1, 0, 0, Carried::Records(records));
        let after = |last: &[TraceEvent]| [&begun[..], last].concat();
        found(&after(&[send(2)]), "");
        found(&after(&[send(2), send(1)]), "t0 has sent 3 records in all, and 2 were durable");
        // What may not have arrived is sent again.
        let again = [send(2), resumed(2, Some((1, 7)), 1), sent(2, 0, 0, Carried::Records(1))];
        found(&after(&again), "");
    }
}
