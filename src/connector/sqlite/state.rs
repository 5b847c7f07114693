//! A store of keyed state in a database: a row for each key group of an operator, in as many
//! versions as a restore may ask for.
//!
//! ```text
//!  state        task, operator, part, key_group, follows, value
//!  state_tasks  task, attempt, floor
//! ```
//! `follows` is the checkpoint that a value follows, -1 if none; a store that does not roll back
//! writes -1 always. `value` is NULL for a group that has become empty. `attempt` is the newest
//! that has opened the task: older ones are refused. What a task held at `floor`, a complete
//! checkpoint, and since then is there; older versions are given up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::connector::sqlite::{connect, failed, keep_log, number};
use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::operator::sink::SinkError;
use crate::state::codec::{self, DecodeError, Format};
use crate::state::key_group::KeyGroup;
use crate::state::snapshot::{Bytes, OperatorState, StoredList};
use crate::state::store::{OpenedState, SavedState, StateSaver, StateStore, StateStoreError};
use crate::time::EventTime;

/// The store.
#[derive(Clone, Debug)]
pub struct SqliteStateStore {
    database: PathBuf,
    rolls_back: bool,
}

/// What a row is of: the operator's uid, a kind of state, and a key group.
type Place = (String, Part, u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Keyed,
    Timers,
    /// What is not keyed, in one row.
    Unkeyed,
    ProcessingTimers,
}

type Unkeyed = (Option<EventTime>, Vec<StoredList>);

struct Saver {
    database: PathBuf,
    connection: Connection,
    rolls_back: bool,
    task: i64,
    attempt: i64,
    /// The checkpoint that the task was restored from.
    restored: i64,
    /// What the rows hold: only what has changed is written.
    held: BTreeMap<Place, Vec<u8>>,
}

impl SqliteStateStore {
    /// Keeps state in this file, which is made if it is not there; its folder is not. With
    /// `rolls_back` it keeps what a restore may ask for.
    pub fn new(database: PathBuf, rolls_back: bool) -> Self {
        Self { database, rolls_back }
    }

    /// Whether a run has left state in the database.
    pub fn is_used(database: &Path) -> bool {
        let count = |connection: Connection| {
            connection.query_row("SELECT EXISTS (SELECT 1 FROM state_tasks)", [], |row| row.get(0))
        };
        database.exists() && connect(database).is_ok_and(|found| count(found).unwrap_or(false))
    }

    fn open_database(&self) -> Result<Connection, StateStoreError> {
        let failed = |error| refused(&self.database, error);
        let mut connection = connect(&self.database).map_err(said)?;
        keep_log(&mut connection).map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        connection
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS state (
                     task, operator, part, key_group, follows, value,
                     PRIMARY KEY (task, operator, part, key_group, follows)) WITHOUT ROWID;
                 CREATE TABLE IF NOT EXISTS state_tasks (
                     task INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, floor INTEGER NOT NULL);",
            )
            .map_err(failed)?;
        Ok(connection)
    }
}

impl StateStore for SqliteStateStore {
    fn open(
        &self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<CheckpointId>,
    ) -> Result<OpenedState, StateStoreError> {
        let failed = |error| refused(&self.database, error);
        let mut connection = self.open_database()?;
        let (task, attempt) = (i64::from(task.get()), number(attempt.get()));
        let restored = follows(restored);
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed)?;
        let known = transaction
            .query_row("SELECT attempt, floor FROM state_tasks WHERE task = ?", [task], |row| {
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
            })
            .optional()
            .map_err(failed)?;
        let (newest, floor) = known.unwrap_or((attempt, -1));
        if newest > attempt {
            return Err(fenced());
        }
        if self.rolls_back && restored >= 0 && restored < floor {
            return Err(StateStoreError::Gone(format!(
                "{}: it does not hold state as it was at chk-{restored} any more, only from \
                 chk-{floor} on: resume from that or a later one",
                self.database.display()
            )));
        }
        let floor = if restored < 0 { -1 } else { floor };
        transaction
            .execute("REPLACE INTO state_tasks VALUES (?, ?, ?)", [task, attempt, floor])
            .map_err(failed)?;
        if self.rolls_back {
            transaction
                .execute("DELETE FROM state WHERE task = ? AND follows >= ?", [task, restored])
                .map_err(failed)?;
        }
        let held = rows(&transaction, task).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        let operators = operators(&held).map_err(|error| {
            StateStoreError::Gone(format!("{}: table state: {error}", self.database.display()))
        })?;
        let (database, rolls_back) = (self.database.clone(), self.rolls_back);
        let saver = Saver { database, connection, rolls_back, task, attempt, restored, held };
        Ok(OpenedState { saver: Box::new(saver), operators })
    }
}

impl StateSaver for Saver {
    fn save(&mut self, state: &SavedState) -> Result<(), StateStoreError> {
        let now: BTreeMap<Place, Vec<u8>> = state
            .operators
            .iter()
            .flat_map(|operator| places(operator.to_state(Format::Binary)))
            .collect();
        let written = now.iter().filter(|(place, value)| self.held.get(*place) != Some(*value));
        let emptied = self.held.keys().filter(|place| !now.contains_key(*place));
        let changes: Vec<(&Place, Option<&Vec<u8>>)> = written
            .map(|(place, value)| (place, Some(value)))
            .chain(emptied.map(|place| (place, None)))
            .collect();
        if changes.is_empty() {
            return Ok(());
        }
        let follows = match self.rolls_back {
            true => follows(state.follows).max(self.restored),
            false => -1,
        };
        let floor = state.completed.filter(|_| self.rolls_back).map(|of| number(of.get()));
        self.connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let fence = "UPDATE state_tasks SET floor = max(floor, ?) WHERE task = ? AND \
                             attempt = ?";
                let floor = floor.unwrap_or(-1);
                let is_ours = transaction.execute(fence, [floor, self.task, self.attempt])? > 0;
                if is_ours {
                    for (place, value) in changes {
                        write(&transaction, self.task, place, follows, value, floor)?;
                    }
                    transaction.commit()?;
                }
                Ok(is_ours)
            })
            .map_err(|error| refused(&self.database, error))
            .and_then(|is_ours| if is_ours { Ok(()) } else { Err(fenced()) })?;
        self.held = now;
        Ok(())
    }
}

/// Writes a version of a row, and drops those that lie before the one of `floor`.
fn write(
    database: &Connection,
    task: i64,
    (operator, part, group): &Place,
    follows: i64,
    value: Option<&Vec<u8>>,
    floor: i64,
) -> rusqlite::Result<()> {
    let part = *part as i64;
    database
        .prepare_cached("REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)")?
        .execute((task, operator, part, group, follows, value))?;
    let drop = "DELETE FROM state WHERE task = ?1 AND operator = ?2 AND part = ?3 AND \
                key_group = ?4 AND follows < (SELECT max(follows) FROM state WHERE task = ?1 AND \
                operator = ?2 AND part = ?3 AND key_group = ?4 AND follows < ?5)";
    database.prepare_cached(drop)?.execute((task, operator, part, group, floor))?;
    Ok(())
}

/// The newest version of each row of a task.
fn rows(database: &Connection, task: i64) -> rusqlite::Result<BTreeMap<Place, Vec<u8>>> {
    // SQLite takes the other columns from the row with the maximum.
    let mut query = database.prepare(
        "SELECT operator, part, key_group, max(follows), value FROM state WHERE task = ?
         GROUP BY operator, part, key_group",
    )?;
    let found = query.query_map([task], |row| {
        let part = match row.get::<_, i64>(1)? {
            0 => Part::Keyed,
            1 => Part::Timers,
            2 => Part::Unkeyed,
            _ => Part::ProcessingTimers,
        };
        Ok(((row.get(0)?, part, row.get(2)?), row.get::<_, Option<Vec<u8>>>(4)?))
    })?;
    let found: Vec<(Place, Option<Vec<u8>>)> = found.collect::<rusqlite::Result<_>>()?;
    Ok(found.into_iter().filter_map(|(place, value)| Some((place, value?))).collect())
}

/// The rows that an operator's state comes to.
fn places(state: OperatorState) -> Vec<(Place, Vec<u8>)> {
    let OperatorState { uid, format: _, keyed, timers, processing_timers, watermark, lists } =
        state;
    let of_groups = |part, groups: Option<Vec<(KeyGroup, Bytes)>>| {
        let row = |(group, value): (KeyGroup, Bytes)| {
            ((uid.clone(), part, group.get()), value.into_vec())
        };
        groups.unwrap_or_default().into_iter().map(row).collect::<Vec<_>>()
    };
    let unkeyed = (watermark.is_some() || !lists.is_empty())
        .then(|| ((uid.clone(), Part::Unkeyed, 0), codec::encode::<Unkeyed>(&(watermark, lists))));
    let unkeyed = Vec::from_iter(unkeyed);
    let timers = of_groups(Part::Timers, timers);
    let by_clock = of_groups(Part::ProcessingTimers, processing_timers);
    [of_groups(Part::Keyed, keyed), timers, by_clock, unkeyed].concat()
}

/// The states that rows come from.
fn operators(held: &BTreeMap<Place, Vec<u8>>) -> Result<Vec<OperatorState>, DecodeError> {
    let mut operators: BTreeMap<&str, OperatorState> = BTreeMap::new();
    for ((uid, part, group), value) in held {
        let state = operators
            .entry(uid)
            .or_insert_with(|| OperatorState { uid: uid.clone(), ..OperatorState::default() });
        let of_group = (KeyGroup::new(*group), Bytes::from(value.clone()));
        match part {
            Part::Keyed => state.keyed.get_or_insert_default().push(of_group),
            Part::Timers => state.timers.get_or_insert_default().push(of_group),
            Part::ProcessingTimers => {
                state.processing_timers.get_or_insert_default().push(of_group);
            }
            Part::Unkeyed => (state.watermark, state.lists) = codec::decode::<Unkeyed>(value)?,
        }
    }
    Ok(operators.into_values().collect())
}

fn follows(checkpoint: Option<CheckpointId>) -> i64 {
    checkpoint.map_or(-1, |checkpoint| number(checkpoint.get()))
}

fn fenced() -> StateStoreError {
    StateStoreError::Refused("a newer attempt has taken over".to_owned())
}

fn refused(database: &Path, error: rusqlite::Error) -> StateStoreError {
    said(failed(database, error))
}

fn said(error: SinkError) -> StateStoreError {
    StateStoreError::Refused(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::state::operator::{OperatorList, Redistribution};
    use crate::state::snapshot::OperatorSnapshot;

    const TASK: TaskId = TaskId::new(3);

    fn chk(id: u64) -> Option<CheckpointId> {
        Some(CheckpointId::new(id))
    }

    /// State that is one value, not keyed.
    fn state(follows: Option<CheckpointId>, value: &[u8]) -> SavedState {
        let mut list = OperatorList::new("value", Redistribution::Split);
        list.get_mut().extend_from_slice(value);
        let (uid, lists) = ("count".into(), vec![list.share()]);
        let operator = OperatorSnapshot {
            uid,
            keyed: None,
            timers: None,
            processing_timers: None,
            watermark: None,
            lists,
        };
        SavedState { follows, completed: None, operators: vec![operator] }
    }

    /// What takes the next values, and the value that was found.
    type Found = (Box<dyn StateSaver>, Option<Vec<u8>>);

    fn opened(
        store: &SqliteStateStore,
        attempt: u64,
        restored: Option<CheckpointId>,
    ) -> Result<Found, StateStoreError> {
        let OpenedState { saver, operators } =
            store.open(TASK, AttemptId::new(attempt), restored)?;
        let found = operators.first().map(|state| {
            let mut list = OperatorList::new("value", Redistribution::Split);
            list.restore(state).unwrap();
            list.get().to_vec()
        });
        Ok((saver, found))
    }

    /// A store that an attempt has left behind: `a` before any barrier, `b` behind 4, `c` behind 7.
    fn left(folder: &Path, rolls_back: bool) -> SqliteStateStore {
        let store = SqliteStateStore::new(folder.join("state.db"), rolls_back);
        let (mut saver, found) = opened(&store, 1, None).unwrap();
        assert_eq!(found, None);
        for (follows, value) in [(None, b"x"), (None, b"a"), (chk(4), b"b"), (chk(7), b"c")] {
            saver.save(&state(follows, value)).unwrap();
        }
        store
    }

    #[test]
    fn only_a_store_that_rolls_back_takes_back_what_follows_the_restored_checkpoint() {
        for (restored, expected) in [(chk(9), b"c"), (chk(7), b"b"), (chk(4), b"a")] {
            let folder = tempfile::tempdir().unwrap();
            let store = left(folder.path(), true);
            let (mut saver, found) = opened(&store, 2, restored).unwrap();
            assert_eq!(found.as_deref(), Some(&expected[..]));
            // What the task saves before its first barrier follows what it was restored from.
            saver.save(&state(None, b"d")).unwrap();
            let (_, found) = opened(&store, 3, restored).unwrap();
            assert_eq!(found.as_deref(), Some(&expected[..]));

            let folder = tempfile::tempdir().unwrap();
            let store = left(folder.path(), false);
            let (_, found) = opened(&store, 2, restored).unwrap();
            assert_eq!(found.as_deref(), Some(&b"c"[..]));
        }
        let folder = tempfile::tempdir().unwrap();
        let (_, found) = opened(&left(folder.path(), true), 2, None).unwrap();
        assert_eq!(found, None, "nothing is complete");
    }

    #[test]
    fn tasks_that_open_a_new_database_at_once_wait_for_each_other() {
        for _ in 0..40 {
            let folder = tempfile::tempdir().unwrap();
            let store = SqliteStateStore::new(folder.path().join("state.db"), true);
            let together = Barrier::new(8);
            let open = &|task| {
                together.wait();
                store.open(TaskId::new(task), AttemptId::new(1), None).err()
            };
            let errors: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|n| scope.spawn(move || open(n))).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(errors, []);
        }
    }

    #[test]
    fn an_older_attempt_changes_nothing_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let store = left(folder.path(), false);
        let (mut older, _) = opened(&store, 2, None).unwrap();
        opened(&store, 3, None).unwrap();
        assert_eq!(older.save(&state(None, b"z")), Err(fenced()));
        assert_eq!(opened(&store, 2, None).err(), Some(fenced()));
        assert_eq!(opened(&store, 3, None).unwrap().1.as_deref(), Some(&b"c"[..]));
    }

    #[test]
    fn versions_before_a_complete_checkpoint_are_given_up_and_that_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let store = left(folder.path(), true);
        let (mut saver, _) = opened(&store, 2, chk(8)).unwrap();
        saver.save(&SavedState { completed: chk(8), ..state(chk(9), b"d") }).unwrap();
        let error = opened(&store, 3, chk(4)).err().unwrap();
        assert!(matches!(&error, StateStoreError::Gone(text) if text.contains("chk-8")));
        let (_, found) = opened(&store, 3, chk(9)).unwrap();
        assert_eq!(found.as_deref(), Some(&b"c"[..]));
        let database = Connection::open(folder.path().join("state.db")).unwrap();
        let count: i64 =
            database.query_row("SELECT count(*) FROM state", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1, "the versions before chk-8's and behind chk-9 are gone");
    }
}
