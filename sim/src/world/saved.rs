//! The store of keyed state that lives outside of the tasks, as a model: what it holds outlives
//! every crash. One that is transactional keeps beside each value the checkpoint that it follows,
//! and earlier values with theirs, and takes back what follows the checkpoint that a task is
//! restored from; the other keeps the newest value and rolls nothing back.

use std::collections::BTreeMap;

use cofferdam::guarantee::StateHome;
use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::state::snapshot::OperatorState;

use super::Applied;
use crate::interpose::Variant;
use crate::log::Log;

/// The store.
#[derive(Clone)]
pub(super) struct Saved {
    is_transactional: bool,
    tasks: BTreeMap<TaskId, OfTask>,
}

/// All state of one task, and where its records come from.
#[derive(Clone, Default)]
pub(super) struct Value {
    pub(super) operators: Vec<OperatorState>,
    pub(super) applied: Log<Applied>,
}

#[derive(Clone, Default)]
struct OfTask {
    /// The newest attempt that reads and writes here: older ones change nothing any more.
    attempt: AttemptId,
    /// The checkpoint that it was restored from.
    restored: Option<CheckpointId>,
    /// By the checkpoint that each follows; the last one holds.
    values: BTreeMap<Option<CheckpointId>, Value>,
}

impl Saved {
    pub(super) fn new(home: StateHome, variant: Option<Variant>) -> Self {
        let is_transactional = home == StateHome::ExternalTransactional
            && variant != Some(Variant::ChangesNotRolledBack);
        Self { is_transactional, tasks: BTreeMap::new() }
    }

    /// What a task begins with that is restored from `restored`, or begins at the start.
    pub(super) fn open(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<CheckpointId>,
    ) -> Value {
        let of_task = self.tasks.entry(task).or_default();
        of_task.attempt = attempt;
        of_task.restored = restored;
        if self.is_transactional {
            of_task.values.retain(|follows, _| *follows < restored);
        }
        of_task.values.last_key_value().map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Holds `value` for a task, unless it is one of an older attempt; whether it does.
    pub(super) fn save(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        follows: Option<CheckpointId>,
        value: Value,
    ) -> bool {
        let of_task = self.tasks.entry(task).or_default();
        let is_newest = of_task.attempt == attempt;
        if is_newest {
            let follows = follows.max(of_task.restored).filter(|_| self.is_transactional);
            of_task.values.insert(follows, value);
        }
        is_newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: TaskId = TaskId::new(3);

    fn chk(id: u64) -> Option<CheckpointId> {
        Some(CheckpointId::new(id))
    }

    fn value(uid: &str) -> Value {
        let operator = OperatorState { uid: uid.to_owned(), ..OperatorState::default() };
        Value { operators: vec![operator], applied: Log::new() }
    }

    /// What a second attempt finds that is restored from `restored`, after a first one that has
    /// saved a value before and behind each of two barriers.
    fn found(home: StateHome, restored: Option<CheckpointId>) -> Vec<String> {
        let mut saved = Saved::new(home, None);
        let (first, second) = (AttemptId::new(1), AttemptId::new(2));
        assert!(saved.open(TASK, first, None).operators.is_empty());
        for (follows, uid) in [(None, "a"), (None, "b"), (chk(4), "c"), (chk(7), "d")] {
            assert!(saved.save(TASK, first, follows, value(uid)));
        }
        let found = saved.open(TASK, second, restored);
        assert!(!saved.save(TASK, first, chk(9), value("of an older attempt")));
        assert_eq!(saved.open(TASK, second, restored).operators, found.operators);
        found.operators.into_iter().map(|operator| operator.uid).collect()
    }

    #[test]
    fn only_a_transactional_store_takes_back_what_follows_the_restored_checkpoint() {
        let transactional = |restored| found(StateHome::ExternalTransactional, restored);
        assert_eq!(transactional(None), [""; 0]);
        assert_eq!(transactional(chk(4)), ["b"]);
        assert_eq!(transactional(chk(7)), ["c"]);
        assert_eq!(transactional(chk(8)), ["d"]);
        for restored in [None, chk(4)] {
            assert_eq!(found(StateHome::External, restored), ["d"]);
        }
    }
}
