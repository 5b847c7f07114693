//! C13, the two-phase sink: a transaction is prepared before its checkpoint is acknowledged,
//! becomes visible only when a checkpoint that covers it is complete, and ends in exactly one way.
//!
//! A transaction belongs to the first checkpoint whose snapshot its sink takes after its first row.
//! A complete checkpoint covers it if it is that one or a later one *of the same attempt*. Under
//! transactional updates the durable writes of the sink's own task take the place of checkpoints.
//!
//! The false alarms it avoids: a checkpoint that is aborted ends no transaction, the next one
//! covers it as well; whoever restores a checkpoint may commit again, under a later attempt, what
//! was committed before; what no complete checkpoint covers may be rolled back although it was
//! prepared; and what the external system rolls back by itself is a loss that a job may have, but
//! none that it may end well with.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, CheckpointId, TaskId, TransactionId};
use cofferdam::trace::TraceEvent;

use super::covered::Covered;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "two-phase",
    property: "C13: prepared before acknowledged, visible only once covered and in order, \
               committed or rolled back and never both, and no loss is hidden",
    judge,
    scope: Scope::Run,
};

#[derive(Clone, Copy)]
struct Transaction {
    task: TaskId,
    /// The checkpoint it belongs to, once it takes no more rows.
    checkpoint: Option<CheckpointId>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Prepared,
    Committed,
    RolledBack,
    TimedOut,
}

struct TwoPhase {
    transactions: BTreeMap<TransactionId, Transaction>,
    covered: Covered,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let covered = Covered::new(facts.tasks);
    let mut sinks = TwoPhase { transactions: BTreeMap::new(), covered };
    let mut problems = Vec::new();
    for traced in facts.control {
        sinks.covered.note(&traced.event);
        problems.extend(sinks.note(&traced.event));
    }
    if facts.is_finished {
        problems.extend(sinks.unsettled());
    }
    let finding = |text| Finding::protocol(ORACLE.name, Subject::Output, text);
    problems.into_iter().map(finding).collect()
}

impl TwoPhase {
    fn note(&mut self, event: &TraceEvent) -> Option<String> {
        match *event {
            TraceEvent::Written { task, transaction: Some(transaction), .. } => {
                self.write(task, transaction)
            }
            TraceEvent::Snapshot { task, attempt, checkpoint, .. }
            | TraceEvent::ProgressCut { task, attempt, write: checkpoint, .. } => {
                for (_, open) in self.of_task(task, attempt) {
                    open.checkpoint.get_or_insert(checkpoint);
                }
                None
            }
            TraceEvent::Acknowledged { task, attempt, checkpoint } => {
                let unprepared = self.of_task(task, attempt).find(|(_, transaction)| {
                    transaction.state == State::Open
                        && transaction.checkpoint.is_some_and(|of| of <= checkpoint)
                });
                unprepared.map(|(id, _)| {
                    format!("{task} acknowledged {checkpoint} before transaction {id} was prepared")
                })
            }
            TraceEvent::Prepared { transaction, checkpoint } => {
                self.prepare(transaction, checkpoint)
            }
            TraceEvent::Committed { transaction, attempt, .. } => self.commit(transaction, attempt),
            TraceEvent::RolledBack { transaction, attempt } => self.roll_back(transaction, attempt),
            TraceEvent::TimedOut { transaction } => {
                self.transactions.get_mut(&transaction)?.state = State::TimedOut;
                None
            }
            _ => None,
        }
    }

    fn of_task(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
    ) -> impl Iterator<Item = (&TransactionId, &mut Transaction)> {
        let all = self.transactions.iter_mut();
        all.filter(move |(id, of)| of.task == task && id.attempt == attempt)
    }

    fn write(&mut self, task: TaskId, id: TransactionId) -> Option<String> {
        let open = Transaction { task, checkpoint: None, state: State::Open };
        let checkpoint = self.transactions.entry(id).or_insert(open).checkpoint?;
        Some(format!("{task} wrote in transaction {id} after the snapshot {checkpoint} it is in"))
    }

    fn prepare(&mut self, id: TransactionId, checkpoint: CheckpointId) -> Option<String> {
        let transaction = self.transactions.get_mut(&id)?;
        transaction.state = State::Prepared;
        // A task can die after it has asked for the prepare and before its snapshot is taken.
        let of = *transaction.checkpoint.get_or_insert(checkpoint);
        (of != checkpoint).then(|| {
            format!(
                "transaction {id} was prepared for {checkpoint}, and the snapshot of {of} has it"
            )
        })
    }

    fn commit(&mut self, id: TransactionId, attempt: AttemptId) -> Option<String> {
        let Transaction { task, checkpoint, state } = *self.transactions.get(&id)?;
        let is_covered = self.covered.covers(id.attempt, task, checkpoint);
        self.transactions.get_mut(&id)?.state = State::Committed;
        let first = TransactionId { sequence: 0, ..id };
        let passed = self.transactions.range(first..id).find(|(_, of)| of.state == State::Prepared);
        if let Some((earlier, _)) = passed {
            return Some(format!("transaction {id} was committed before transaction {earlier}"));
        }
        match state {
            State::Open => Some(format!("transaction {id} was committed and never prepared")),
            State::RolledBack => Some(format!("transaction {id} was committed after a rollback")),
            State::TimedOut => Some(format!("transaction {id} was committed after it timed out")),
            State::Prepared | State::Committed if attempt < id.attempt => {
                Some(format!("attempt {attempt} committed transaction {id} of a later one"))
            }
            State::Prepared | State::Committed => (!is_covered).then(|| {
                format!(
                    "transaction {id} was committed before a checkpoint that covers it was complete"
                )
            }),
        }
    }

    fn roll_back(&mut self, id: TransactionId, attempt: AttemptId) -> Option<String> {
        let Transaction { task, checkpoint, state } = *self.transactions.get(&id)?;
        let is_covered = self.covered.covers(id.attempt, task, checkpoint);
        self.transactions.get_mut(&id)?.state = State::RolledBack;
        if state == State::Committed {
            Some(format!("transaction {id} was rolled back after its commit"))
        } else if attempt < id.attempt {
            Some(format!("attempt {attempt} rolled back transaction {id} of a later one"))
        } else if is_covered {
            Some(format!(
                "transaction {id} was rolled back although a complete checkpoint covers it"
            ))
        } else {
            None
        }
    }

    /// What is wrong with transactions at the end of a job that says that all is well.
    fn unsettled(&self) -> impl Iterator<Item = String> {
        self.transactions.iter().filter_map(|(id, of)| match of.state {
            State::Prepared => {
                Some(format!("transaction {id} is neither committed nor rolled back"))
            }
            State::TimedOut => {
                Some(format!("transaction {id} has timed out, and the job does not say so"))
            }
            State::Open | State::Committed | State::RolledBack => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    /// An attempt whose transaction is prepared and acknowledged, and its checkpoint complete.
    fn story() -> Vec<TraceEvent> {
        let id = transaction(1, 0);
        vec![
            deployed(1, None),
            written(1, Some(id)),
            triggered(1),
            snapshot(1, 2, 1),
            prepared(id, 1),
            acknowledged(1, 2, 1),
            completed(1, 1),
            committed(1, id),
        ]
    }

    #[test]
    fn a_transaction_lives_by_the_rules() {
        check(&ORACLE, &facts(&trace(&story())), "");
        // Committed again by a later attempt.
        let again = [&story()[..], &[deployed(2, Some(1)), committed(2, transaction(1, 0))]];
        check(&ORACLE, &facts(&trace(&again.concat())), "");
        // Rolled back by a later attempt, since nothing covers it.
        let mut uncovered = story();
        uncovered.truncate(6);
        uncovered.extend([deployed(2, None), rolled_back(2, transaction(1, 0))]);
        check(&ORACLE, &facts(&trace(&uncovered)), "");
        // Its task died between the prepare and the snapshot.
        uncovered.retain(|event| !matches!(event, TraceEvent::Snapshot { .. }));
        uncovered.retain(|event| !matches!(event, TraceEvent::Acknowledged { .. }));
        check(&ORACLE, &facts(&trace(&uncovered)), "");
    }

    #[test]
    fn events_out_of_their_order_are_seen() {
        let swapped = |left: usize, right: usize| {
            let mut events = story();
            events.swap(left, right);
            trace(&events)
        };
        check(&ORACLE, &facts(&swapped(4, 5)), "acknowledged chk-1 before transaction v1-0-1-0");
        check(&ORACLE, &facts(&swapped(6, 7)), "before a checkpoint that covers it");
        let mut other = story();
        other[4] = prepared(transaction(1, 0), 2);
        check(&ORACLE, &facts(&trace(&other)), "prepared for chk-2, and the snapshot of chk-1");
    }

    #[test]
    fn a_transaction_ends_in_one_way_by_its_own_attempt_or_a_later_one() {
        let id = transaction(1, 0);
        let table = [
            (7, vec![], "neither committed nor rolled back"),
            (7, vec![rolled_back(2, id)], "although a complete checkpoint covers it"),
            (8, vec![rolled_back(2, id)], "rolled back after its commit"),
            (6, vec![rolled_back(2, id), committed(2, id)], "committed after a rollback"),
            (7, vec![committed(0, id)], "attempt a0 committed transaction v1-0-1-0"),
            (6, vec![rolled_back(0, id)], "attempt a0 rolled back transaction v1-0-1-0"),
            (8, vec![written(1, Some(id))], "wrote in transaction v1-0-1-0 after the snapshot"),
            (2, vec![committed(1, id)], "never prepared"),
            (7, vec![timed_out(id)], "has timed out, and the job does not say so"),
            (7, vec![timed_out(id), committed(1, id)], "committed after it timed out"),
        ];
        for (kept, more, expected) in table {
            let events = [&story()[..kept], &more].concat();
            check(&ORACLE, &facts(&trace(&events)), expected);
        }
    }

    #[test]
    fn rule_070_a_transaction_that_passes_an_earlier_one_is_seen() {
        let later = transaction(1, 1);
        let mut events = story();
        events.truncate(6);
        events.extend([written(1, Some(later)), snapshot(1, 2, 2), prepared(later, 2)]);
        events.extend([acknowledged(1, 2, 2), completed(1, 2)]);
        events.extend([committed(1, later), committed(1, transaction(1, 0))]);
        check(&ORACLE, &facts(&trace(&events)), "v1-0-1-1 was committed before transaction");
    }

    #[test]
    fn rule_067_a_loss_that_the_job_reports_is_not_hidden() {
        let mut events = story();
        events[7] = timed_out(transaction(1, 0));
        check(&ORACLE, &Facts { is_finished: false, ..facts(&trace(&events)) }, "");
    }

    #[test]
    fn a_completion_of_another_attempt_covers_nothing() {
        let mut events = story();
        events.insert(6, deployed(2, None));
        events[7] = completed(2, 5);
        events[8] = committed(2, transaction(1, 0));
        check(&ORACLE, &facts(&trace(&events)), "before a checkpoint that covers it");
    }

    #[test]
    fn nothing_is_unsettled_before_the_end() {
        let mut events = story();
        events.pop();
        check(&ORACLE, &Facts { is_finished: false, ..facts(&trace(&events)) }, "");
    }
}
