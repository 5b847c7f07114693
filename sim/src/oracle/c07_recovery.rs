//! C7, recovery: checkpoints become complete in the order of their numbers, an attempt begins at
//! the greatest complete one with exactly the state that was snapshotted for it, and nothing of an
//! older attempt has an effect outside once a newer one has begun at the same place.
//!
//! The false alarms it avoids: a task that was declared dead may go on, taking records from its own
//! attempt's channels; that has no effect. Until the newer attempt's task has started it may even
//! write, for nobody could tell it from a task that is just slow; and it may commit what the
//! restored checkpoint holds. A checkpoint whose coordinator died before saying that it is complete
//! counts if an attempt begins there ([`Completions`]).

use cofferdam::id::{AttemptId, CheckpointId, SubtaskIndex, TaskId, TransactionId, VertexId};
use cofferdam::trace::TraceEvent;

use super::completions::{Completion, Completions};
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "recovery",
    property: "C7: checkpoints complete in order, attempts begin at the greatest, byte for byte, \
               and fence older ones",
    judge,
    scope: Scope::Layout,
};

struct Recovery<'a> {
    facts: &'a Facts<'a>,
    completions: Completions,
    /// The digest of each snapshot.
    snapshots: Vec<(Completion, TaskId, u64)>,
    /// Where each attempt begins.
    deployed: Vec<(AttemptId, Option<Completion>)>,
    /// The newest attempt that has started each task.
    started: Vec<Option<AttemptId>>,
    /// The checkpoint that state was dealt out to, which no task took a snapshot for.
    laid: Option<CheckpointId>,
    /// Which task each sink subtask is.
    sinks: Vec<(VertexId, SubtaskIndex, TaskId)>,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut recovery = Recovery {
        facts,
        completions: Completions::new(facts.tasks),
        snapshots: Vec::new(),
        deployed: Vec::new(),
        started: vec![None; facts.tasks],
        laid: None,
        sinks: Vec::new(),
    };
    let mut findings = Vec::new();
    for traced in facts.control {
        let before = recovery.completions.latest();
        recovery.completions.note(&traced.event);
        let problem = match traced.event {
            TraceEvent::LaidOut { dealt, .. } => {
                recovery.laid = dealt.map(|(_, checkpoint, _)| checkpoint);
                None
            }
            TraceEvent::Completed { checkpoint, .. } => {
                let newer = before.filter(|before| before.checkpoint > checkpoint);
                newer.map(|Completion { checkpoint: newer, .. }| {
                    let text = format!("{checkpoint} is complete after {newer}, which subsumes it");
                    (Subject::State, text)
                })
            }
            TraceEvent::Deployed { attempt, restored } => recovery.deploy(attempt, restored),
            TraceEvent::Snapshot { task, attempt, checkpoint, digest } => {
                recovery.snapshots.push((Completion { checkpoint, attempt }, task, digest));
                None
            }
            TraceEvent::Started { task, attempt, restored } => {
                recovery.started[task.index()] = recovery.started[task.index()].max(Some(attempt));
                recovery.start(task, attempt, restored).map(|text| (Subject::State, text))
            }
            TraceEvent::Reserved { task, attempt } => {
                let done = || "reserved positions".to_owned();
                recovery.fence(task, attempt, done).map(|text| (Subject::State, text))
            }
            event => recovery.outside(&event).map(|text| (Subject::Output, text)),
        };
        let finding = |(subject, text)| Finding::protocol(ORACLE.name, subject, text);
        findings.extend(problem.map(finding));
    }
    findings
}

impl Recovery<'_> {
    fn deploy(
        &mut self,
        attempt: AttemptId,
        restored: Option<CheckpointId>,
    ) -> Option<(Subject, String)> {
        let takes_checkpoints = self.facts.mechanism.takes_checkpoints();
        let latest = self.completions.latest().filter(|_| takes_checkpoints);
        self.deployed.push((attempt, latest));
        let latest = latest.map(|latest| latest.checkpoint);
        (restored != latest).then(|| {
            let text = format!(
                "attempt {attempt} begins at {} and not at {}",
                place(restored),
                place(latest)
            );
            (Subject::State, text)
        })
    }

    fn start(
        &self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<(CheckpointId, u64)>,
    ) -> Option<String> {
        let (_, from) = self.deployed.iter().rfind(|(deployed, _)| *deployed == attempt)?;
        let begun = restored.map(|(checkpoint, _)| checkpoint);
        let due = from.map(|from| from.checkpoint);
        if begun != due {
            let (begun, due) = (place(begun), place(due));
            return Some(format!("{task} begins attempt {attempt} at {begun} and not at {due}"));
        }
        let ((_, digest), from) = (restored?, (*from)?);
        if self.laid == Some(from.checkpoint) {
            return None;
        }
        let is_it = |(of, by, _): &&(Completion, TaskId, u64)| (*of, *by) == (from, task);
        let snapshot = self.snapshots.iter().rev().find(is_it);
        let (checkpoint, of) = (from.checkpoint, from.attempt);
        match snapshot {
            Some((_, _, taken)) if *taken == digest => None,
            Some(_) => Some(format!(
                "{task} begins attempt {attempt} with other state than its snapshot {checkpoint} \
                 of attempt {of} held"
            )),
            None => Some(format!("{task} begins at {checkpoint}, which it took no snapshot for")),
        }
    }

    /// What has an effect on external systems.
    fn outside(&mut self, event: &TraceEvent) -> Option<String> {
        match *event {
            TraceEvent::Written { task, attempt, transaction, rows } => {
                self.note_sink(task, transaction);
                self.fence(task, attempt, || format!("wrote {rows} rows"))
            }
            TraceEvent::Prepared { transaction, .. } => {
                let task = self.task_of(transaction)?;
                self.fence(task, transaction.attempt, || format!("prepared {transaction}"))
            }
            TraceEvent::Committed { transaction, attempt, .. } => {
                let task = self.task_of(transaction)?;
                self.fence(task, attempt, || format!("committed {transaction}"))
            }
            TraceEvent::RolledBack { transaction, attempt } => {
                let task = self.task_of(transaction)?;
                self.fence(task, attempt, || format!("rolled {transaction} back"))
            }
            TraceEvent::Logged { task, portion, .. } => {
                self.note_sink(task, Some(portion));
                None
            }
            TraceEvent::Delivered { portion, attempt, .. } => {
                let task = self.task_of(portion)?;
                self.fence(task, attempt, || format!("sent {portion}"))
            }
            TraceEvent::Marked { portion, attempt } => {
                let task = self.task_of(portion)?;
                self.fence(task, attempt, || format!("marked {portion}"))
            }
            _ => None,
        }
    }

    fn note_sink(&mut self, task: TaskId, transaction: Option<TransactionId>) {
        if let Some(TransactionId { vertex, subtask, .. }) = transaction
            && !self.sinks.contains(&(vertex, subtask, task))
        {
            self.sinks.push((vertex, subtask, task));
        }
    }

    fn task_of(&self, transaction: TransactionId) -> Option<TaskId> {
        let place = (transaction.vertex, transaction.subtask);
        let sink = self.sinks.iter().find(|(vertex, subtask, _)| (*vertex, *subtask) == place);
        sink.map(|(_, _, task)| *task)
    }

    fn fence(
        &self,
        task: TaskId,
        attempt: AttemptId,
        what: impl FnOnce() -> String,
    ) -> Option<String> {
        let newest = self.started[task.index()].filter(|newest| *newest > attempt)?;
        Some(format!("{task} of attempt {attempt} {} after attempt {newest} had begun", what()))
    }
}

fn place(checkpoint: Option<CheckpointId>) -> String {
    checkpoint.map_or("the start".to_owned(), |checkpoint| checkpoint.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::guarantee::Mechanism;
    use cofferdam::trace::Window;

    /// An attempt with a complete checkpoint.
    fn completed_once() -> Vec<TraceEvent> {
        let mut events = vec![deployed(1, None), triggered(1)];
        events.extend((0..3).map(|task| snapshot_of(1, task, 1, 70 + u64::from(task))));
        events.extend((0..3).map(|task| acknowledged(1, task, 1)));
        events.push(completed(1, 1));
        events
    }

    fn after_completion(more: &[TraceEvent]) -> Vec<cofferdam::trace::Traced> {
        trace(&[&completed_once()[..], more].concat())
    }

    #[test]
    fn attempts_begin_at_the_greatest_complete_checkpoint() {
        check(&ORACLE, &facts(&after_completion(&[deployed(2, Some(1))])), "");
        let broken = after_completion(&[deployed(2, None)]);
        check(&ORACLE, &facts(&broken), "attempt a2 begins at the start and not at chk-1");
        check(&ORACLE, &facts(&trace(&[deployed(1, Some(1))])), "at chk-1 and not at the start");
        let unchecked = Facts { mechanism: Mechanism::None, ..facts(&broken) };
        check(&ORACLE, &unchecked, "");
    }

    #[test]
    fn no_checkpoint_is_complete_after_a_newer_one() {
        let newer = [triggered(2), completed(1, 2)];
        check(&ORACLE, &facts(&after_completion(&newer)), "");
        let mut older = vec![deployed(1, None), triggered(1)];
        older.extend([triggered(2), completed(1, 2), completed(1, 1)]);
        let subsumed = "chk-1 is complete after chk-2, which subsumes it";
        check(&ORACLE, &facts(&trace(&older)), subsumed);
        older.push(deployed(2, Some(1)));
        let findings = judge(&facts(&trace(&older)));
        assert_eq!(findings[1].text, "attempt a2 begins at chk-1 and not at chk-2");
    }

    #[test]
    fn a_checkpoint_counts_that_its_coordinator_could_not_announce() {
        let mut events = completed_once();
        events.pop();
        let died = TraceEvent::CoordinatorCrashed { window: Window::Completing };
        events.push(died);
        for (restored, deaths) in [(None, 0), (Some(1), 0), (Some(1), 2)] {
            let later = std::iter::repeat_n(died, deaths).chain([deployed(2, restored)]);
            let events: Vec<TraceEvent> = events.iter().copied().chain(later).collect();
            check(&ORACLE, &facts(&trace(&events)), "");
        }
        // Not if a part was missing.
        events.retain(|event| *event != acknowledged(1, 1, 1));
        events.push(deployed(2, Some(1)));
        check(&ORACLE, &facts(&trace(&events)), "begins at chk-1 and not at the start");
    }

    #[test]
    fn tasks_begin_with_the_state_of_their_snapshot() {
        let begun = |restored| after_completion(&[deployed(2, Some(1)), started(2, 2, restored)]);
        check(&ORACLE, &facts(&begun(Some((1, 72)))), "");
        check(&ORACLE, &facts(&begun(Some((1, 71)))), "with other state than its snapshot chk-1");
        check(&ORACLE, &facts(&begun(None)), "t2 begins attempt a2 at the start and not at chk-1");
        let mut unknown = completed_once();
        unknown.retain(|event| *event != snapshot_of(1, 2, 1, 72));
        unknown.extend([deployed(2, Some(1)), started(2, 2, Some((1, 72)))]);
        check(&ORACLE, &facts(&trace(&unknown)), "which it took no snapshot for");
    }

    #[test]
    fn older_attempts_have_no_effect_once_their_successor_has_started() {
        let old = transaction(1, 0);
        let acts = [
            (written(1, Some(old)), "wrote 1 rows"),
            (prepared(old, 1), "prepared v1-0-1-0"),
            (committed(1, old), "committed v1-0-1-0"),
            (rolled_back(1, old), "rolled v1-0-1-0 back"),
        ];
        for (act, expected) in acts {
            let before = [deployed(1, None), written(1, Some(old)), deployed(2, None), act];
            check(&ORACLE, &facts(&trace(&before)), "");
            let mut after = before.to_vec();
            after.insert(3, started(2, 2, None));
            check(&ORACLE, &facts(&trace(&after)), expected);
        }
        let reserved = TraceEvent::Reserved { task: task(0), attempt: att(1) };
        let events = [deployed(1, None), deployed(2, None), started(2, 0, None), reserved];
        check(&ORACLE, &facts(&trace(&events)), "t0 of attempt a1 reserved positions");
    }
}
