//! A store of keyed state in a database: a row for each key group of an operator, in as many
//! versions as a restore may ask for.
//!
//! ```text
//!  state        task, operator, part, key_group, follows, checksum, value
//!  state_tasks  task, attempt, floor, cut, checksum
//!  state_run    run
//! ```
//! `follows` is the checkpoint that a value follows, -1 if none; a store that does not roll back
//! writes -1 always. `value` is NULL for a group that has become empty. Of the attempts that have
//! opened a task all but the newest are refused. What a task held at `floor`, a complete
//! checkpoint, and since then is there; older versions are given up.
//!
//! The rest tells a database that is not the one that a checkpoint rests on. `run` is whose it is.
//! `cut` is the newest checkpoint that an attempt has made its cut for: a database that does not
//! know of a cut is older than the checkpoint. The checksum of a task is the sum of those of its
//! rows, and changes with them: a file that was copied while a log was moved into it, and that is
//! read without the log, has pages of several moments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::connector::sqlite::{PATIENCE, connect, connect_within, failed, keep_log, number};
use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::operator::sink::SinkError;
use crate::state::codec::{self, DecodeError, Format};
use crate::state::key_group::KeyGroup;
use crate::state::snapshot::{Bytes, OperatorState, StoredList};
use crate::state::store::{Cut, OpenedState, SavedState, StateSaver, StateStore, StateStoreError};
use crate::time::EventTime;

/// The store.
#[derive(Clone, Debug)]
pub struct SqliteStateStore {
    database: PathBuf,
    rolls_back: bool,
    run: Option<String>,
    patience: Duration,
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
    database: Fenced,
    rolls_back: bool,
    /// The checkpoint that the task was restored from.
    restored: i64,
    /// What the rows hold: only what has changed is written.
    held: BTreeMap<Place, Vec<u8>>,
}

/// The database as one attempt of a task may change it.
struct Fenced {
    path: PathBuf,
    connection: Connection,
    task: i64,
    attempt: i64,
}

impl SqliteStateStore {
    /// Keeps state in this file, which is made if it is not there; its folder is not. With
    /// `rolls_back` it keeps what a restore may ask for.
    pub fn new(database: PathBuf, rolls_back: bool) -> Self {
        Self { database, rolls_back, run: None, patience: PATIENCE }
    }

    /// Of the run of this name, which no other run has and which goes on under it: a database that
    /// another run has begun is refused.
    #[must_use]
    pub fn of_run(self, run: String) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Waits so long for a process that has locked the database, in place of 10 seconds.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether a run has left state in the database.
    pub fn is_used(database: &Path) -> bool {
        let is_used = |found: Connection| is_used(&found).unwrap_or(false);
        database.exists() && connect(database).is_ok_and(is_used)
    }

    fn connect(&self) -> Result<Connection, StateStoreError> {
        let failed = |error| refused(&self.database, error);
        let mut connection = connect_within(&self.database, self.patience).map_err(said)?;
        keep_log(&mut connection).map_err(failed)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
        Ok(connection)
    }

    /// The error of a database that is not the one that a checkpoint rests on.
    fn lost(&self, restored: Option<Cut>, what: &str) -> StateStoreError {
        let rests = restored.map(|Cut { checkpoint, .. }| {
            format!(", but {checkpoint} rests on the state as it was in the store")
        });
        StateStoreError::Gone(format!(
            "{}: {what}{}: put the store back as it was, its -wal file too, or begin anew with \
             another one and other places for output and checkpoints",
            self.database.display(),
            rests.unwrap_or_default()
        ))
    }

    /// Checks that the database is that of the run; a run that begins at the start makes it so.
    fn claim(&self, database: &Connection, restored: Option<Cut>) -> Result<(), StateStoreError> {
        let failed = |error| refused(&self.database, error);
        let Some(run) = &self.run else { return Ok(()) };
        let found = database.query_row("SELECT run FROM state_run", [], |row| row.get(0));
        let found: Option<String> = found.optional().map_err(failed)?;
        if found.as_ref() == Some(run) {
            return Ok(());
        }
        if is_used(database).map_err(failed)? {
            return Err(self.lost(restored, "it holds the state of another run"));
        }
        if restored.is_some() {
            return Err(self.lost(restored, "it holds no state, or lacks its -wal file"));
        }
        database.execute("INSERT INTO state_run VALUES (?)", [run]).map(drop).map_err(failed)
    }

    /// Checks that the database holds what a task had saved when it made the cut, and that all that
    /// it holds is of one moment.
    fn check(
        &self,
        database: &Connection,
        task: i64,
        known: &Known,
        restored: Option<Cut>,
    ) -> Result<(), StateStoreError> {
        let failed = |error| refused(&self.database, error);
        if checksum(database, task).map_err(failed)? != Some(known.checksum) {
            return Err(self.lost(restored, "it is damaged, or lacks its -wal file"));
        }
        let Some(Cut { checkpoint, attempt }) = restored else { return Ok(()) };
        if self.rolls_back && number(checkpoint.get()) < known.floor {
            return Err(StateStoreError::Gone(format!(
                "{}: it does not hold state as it was at {checkpoint} any more, only from chk-{} \
                 on: resume from that or a later one",
                self.database.display(),
                known.floor
            )));
        }
        let cut = database
            .query_row(
                "SELECT cut FROM state_tasks WHERE task = ? AND attempt = ?",
                [task, number(attempt.get())],
                |row| row.get(0),
            )
            .optional()
            .map_err(failed)?;
        match cut.is_some_and(|cut: i64| cut >= number(checkpoint.get())) {
            true => Ok(()),
            false => {
                Err(self.lost(restored, "it is older than the checkpoint, or lacks its -wal file"))
            }
        }
    }
}

impl StateStore for SqliteStateStore {
    fn open(
        &self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<Cut>,
    ) -> Result<OpenedState, StateStoreError> {
        let failed = |error| refused(&self.database, error);
        if restored.is_some() && !self.database.exists() {
            return Err(self.lost(restored, "it is gone"));
        }
        let mut connection = self.connect()?;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed)?;
        transaction.execute_batch(TABLES).map_err(failed)?;
        self.claim(&transaction, restored)?;
        let task = i64::from(task.get());
        let known = Known::of(&transaction, task).map_err(failed)?;
        if known.newest > number(attempt.get()) {
            return Err(fenced());
        }
        self.check(&transaction, task, &known, restored)?;
        let (attempt, restored) =
            (number(attempt.get()), follows(restored.map(|cut| cut.checkpoint)));
        if self.rolls_back {
            take_back(&transaction, task, restored).map_err(failed)?;
        }
        let floor = if restored < 0 { -1 } else { known.floor };
        transaction
            .execute(
                "INSERT INTO state_tasks VALUES (?1, ?2, ?3, -1, 0)
                 ON CONFLICT DO UPDATE SET floor = ?3",
                [task, attempt, floor],
            )
            .and_then(|_| seal(&transaction, task, attempt, floor))
            .map_err(failed)?;
        let held = rows(&transaction, task).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        let operators = operators(&held).map_err(|error| {
            StateStoreError::Gone(format!("{}: table state: {error}", self.database.display()))
        })?;
        let database = Fenced { path: self.database.clone(), connection, task, attempt };
        let saver = Saver { database, rolls_back: self.rolls_back, restored, held };
        Ok(OpenedState { saver: Box::new(saver), operators })
    }
}

/// What a database holds of a task.
struct Known {
    /// The newest attempt that has opened it.
    newest: i64,
    floor: i64,
    checksum: i64,
}

impl Known {
    fn of(database: &Connection, task: i64) -> rusqlite::Result<Self> {
        let mut query = database.prepare_cached(
            "SELECT attempt, floor, checksum FROM state_tasks WHERE task = ?
             ORDER BY attempt DESC LIMIT 1",
        )?;
        let known = query.query_row([task], |row| {
            Ok(Self { newest: row.get(0)?, floor: row.get(1)?, checksum: row.get(2)? })
        });
        Ok(known.optional()?.unwrap_or(Self { newest: -1, floor: -1, checksum: 0 }))
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
        let floor = state.completed.filter(|_| self.rolls_back).map_or(-1, |of| number(of.get()));
        let Fenced { task, attempt, .. } = self.database;
        self.database.change(|transaction| {
            let mut more = 0;
            for (place, value) in changes {
                more += write(transaction, task, place, follows, value, floor)?;
            }
            let advance = "UPDATE state_tasks SET floor = max(floor, ?3), checksum = checksum + ?4
                           WHERE task = ?1 AND attempt = ?2";
            transaction.prepare_cached(advance)?.execute([task, attempt, floor, more]).map(drop)
        })?;
        self.held = now;
        Ok(())
    }

    fn note_cut(&mut self, checkpoint: CheckpointId) -> Result<(), StateStoreError> {
        let Fenced { task, attempt, .. } = self.database;
        self.database.change(|transaction| {
            let note = "UPDATE state_tasks SET cut = ? WHERE task = ? AND attempt = ?";
            transaction.execute(note, [number(checkpoint.get()), task, attempt]).map(drop)
        })
    }
}

impl Fenced {
    /// Runs `change` in a transaction of the database, unless a newer attempt has taken over.
    fn change(
        &mut self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), StateStoreError> {
        let Self { path, connection, task, attempt } = self;
        let is_ours = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                let is_ours = Known::of(&transaction, *task)?.newest == *attempt;
                if is_ours {
                    change(&transaction)?;
                    transaction.commit()?;
                }
                Ok(is_ours)
            })
            .map_err(|error| refused(path, error))?;
        if is_ours { Ok(()) } else { Err(fenced()) }
    }
}

fn is_used(database: &Connection) -> rusqlite::Result<bool> {
    database.query_row("SELECT EXISTS (SELECT 1 FROM state_tasks)", [], |row| row.get(0))
}

/// Takes back all of a task that follows a checkpoint; no cut behind it counts any more.
fn take_back(database: &Connection, task: i64, restored: i64) -> rusqlite::Result<()> {
    let delete = "DELETE FROM state WHERE task = ? AND follows >= ?";
    database.execute(delete, [task, restored])?;
    let cap = "UPDATE state_tasks SET cut = min(cut, ?2) WHERE task = ?1";
    database.execute(cap, [task, restored]).map(drop)
}

/// Notes what a task's rows come to when an attempt opens them. While it goes on the sum is kept up
/// row by row: to add up all rows for each change would cost what the state is large, and would
/// take a row that has gone since for one that never was.
fn seal(database: &Connection, task: i64, attempt: i64, floor: i64) -> rusqlite::Result<()> {
    let seal = "UPDATE state_tasks SET floor = max(floor, ?3), checksum =
                    (SELECT coalesce(sum(checksum), 0) FROM state WHERE task = ?1)
                WHERE task = ?1 AND attempt = ?2";
    database.execute(seal, [task, attempt, floor]).map(drop)
}

/// The sum over all rows of a task, none if a row is not what it was.
fn checksum(database: &Connection, task: i64) -> rusqlite::Result<Option<i64>> {
    let mut query = database.prepare(
        "SELECT operator, part, key_group, follows, checksum, value FROM state WHERE task = ?",
    )?;
    let found = query.query_map([task], |row| {
        let operator: String = row.get(0)?;
        let value: Option<Vec<u8>> = row.get(5)?;
        let sum = row_checksum(&operator, row.get(1)?, row.get(2)?, row.get(3)?, value.as_deref());
        Ok((sum, row.get::<_, i64>(4)?))
    })?;
    let found: Vec<(i64, i64)> = found.collect::<rusqlite::Result<_>>()?;
    let is_whole = found.iter().all(|(sum, written)| sum == written);
    Ok(is_whole.then(|| found.iter().map(|(sum, _)| sum).sum()))
}

fn row_checksum(operator: &str, part: i64, group: u16, follows: i64, value: Option<&[u8]>) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(operator.as_bytes());
    // A byte that no text has ends the name.
    hasher.update(&[0xff, u8::from(value.is_some())]);
    hasher.update(&[part, i64::from(group), follows].map(i64::to_le_bytes).concat());
    hasher.update(value.unwrap_or_default());
    i64::from(hasher.finalize())
}

/// Writes a version of a row, and drops those that lie before the one of `floor`: by how much the
/// sum of the task's rows grows.
fn write(
    database: &Connection,
    task: i64,
    (operator, part, group): &Place,
    follows: i64,
    value: Option<&Vec<u8>>,
    floor: i64,
) -> rusqlite::Result<i64> {
    let part = *part as i64;
    let remove = |statement: &str, moment: i64| -> rusqlite::Result<i64> {
        let mut remove = database.prepare_cached(statement)?;
        let of = (task, operator, part, group, moment);
        let removed = remove.query_map(of, |row| row.get::<_, i64>(0))?;
        removed.sum()
    };
    let replaced = remove(
        "DELETE FROM state WHERE task = ?1 AND operator = ?2 AND part = ?3 AND key_group = ?4 AND
         follows = ?5 RETURNING checksum",
        follows,
    )?;
    let checksum = row_checksum(operator, part, *group, follows, value.map(Vec::as_slice));
    database
        .prepare_cached("INSERT INTO state VALUES (?, ?, ?, ?, ?, ?, ?)")?
        .execute((task, operator, part, group, follows, checksum, value))?;
    let dropped = remove(
        "DELETE FROM state WHERE task = ?1 AND operator = ?2 AND part = ?3 AND key_group = ?4 AND
         follows < (SELECT max(follows) FROM state WHERE task = ?1 AND operator = ?2 AND
                    part = ?3 AND key_group = ?4 AND follows < ?5) RETURNING checksum",
        floor,
    )?;
    Ok(checksum - replaced - dropped)
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
    match error {
        SinkError::Refused(text) => StateStoreError::Refused(text),
        SinkError::Damaged(text) => StateStoreError::Gone(text),
    }
}

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS state (
        task, operator, part, key_group, follows, checksum, value,
        PRIMARY KEY (task, operator, part, key_group, follows)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS state_tasks (
        task INTEGER NOT NULL, attempt INTEGER NOT NULL, floor INTEGER NOT NULL,
        cut INTEGER NOT NULL, checksum INTEGER NOT NULL,
        PRIMARY KEY (task, attempt)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS state_run (run TEXT NOT NULL);";

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

    /// Opens the store for an attempt that begins at what the first one has cut.
    fn opened(
        store: &SqliteStateStore,
        attempt: u64,
        restored: Option<CheckpointId>,
    ) -> Result<Found, StateStoreError> {
        let restored = restored.map(|checkpoint| cut(checkpoint.get(), 1));
        opened_at(store, attempt, restored)
    }

    fn cut(checkpoint: u64, attempt: u64) -> Cut {
        Cut { checkpoint: CheckpointId::new(checkpoint), attempt: AttemptId::new(attempt) }
    }

    fn opened_at(
        store: &SqliteStateStore,
        attempt: u64,
        restored: Option<Cut>,
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
            follows.into_iter().for_each(|cut| saver.note_cut(cut).unwrap());
            saver.save(&state(follows, value)).unwrap();
        }
        saver.note_cut(CheckpointId::new(9)).unwrap();
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
        saver.note_cut(CheckpointId::new(9)).unwrap();
        saver.save(&SavedState { completed: chk(8), ..state(chk(9), b"d") }).unwrap();
        let error = opened(&store, 3, chk(4)).err().unwrap();
        assert!(matches!(&error, StateStoreError::Gone(text) if text.contains("chk-8")));
        let (_, found) = opened_at(&store, 3, Some(cut(9, 2))).unwrap();
        assert_eq!(found.as_deref(), Some(&b"c"[..]));
        let database = Connection::open(folder.path().join("state.db")).unwrap();
        let count: i64 =
            database.query_row("SELECT count(*) FROM state", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1, "the versions before chk-8's and behind chk-9 are gone");
    }

    fn is_gone(found: Result<Found, StateStoreError>, word: &str) {
        let error = found.err().unwrap();
        let is_said = |text: &str| text.contains(word) && text.contains("state.db");
        assert!(matches!(&error, StateStoreError::Gone(text) if is_said(text)), "{error}");
    }

    #[test]
    fn a_store_that_lacks_what_a_checkpoint_rests_on_is_refused() {
        for rolls_back in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let store = left(folder.path(), rolls_back);
            is_gone(opened(&store, 2, chk(10)), "older than the checkpoint");
            is_gone(opened_at(&store, 3, Some(cut(4, 2))), "older than the checkpoint");
            opened(&store, 2, chk(9)).unwrap();
            let nothing = SqliteStateStore::new(folder.path().join("nothing/state.db"), rolls_back);
            is_gone(opened(&nothing, 2, chk(4)), "it is gone");
            assert!(opened(&nothing, 2, None).is_err(), "its folder is not there");
        }
    }

    #[test]
    fn a_cut_that_was_taken_back_is_not_restored_from() {
        let folder = tempfile::tempdir().unwrap();
        let store = left(folder.path(), true);
        opened(&store, 2, chk(4)).unwrap();
        is_gone(opened(&store, 3, chk(7)), "older than the checkpoint");
        let (mut saver, _) = opened(&store, 3, chk(4)).unwrap();
        saver.note_cut(CheckpointId::new(7)).unwrap();
        opened_at(&store, 4, Some(cut(7, 3))).unwrap();
    }

    #[test]
    fn the_store_of_another_run_is_refused_and_left_as_it_is() {
        for restored in [None, chk(4)] {
            let folder = tempfile::tempdir().unwrap();
            let named = |name: &str| {
                SqliteStateStore::new(folder.path().join("state.db"), true).of_run(name.to_owned())
            };
            is_gone(opened(&named("b"), 1, chk(4)), "it is gone");
            let (mut saver, _) = opened(&named("a"), 1, None).unwrap();
            saver.save(&state(None, b"a")).unwrap();
            saver.note_cut(CheckpointId::new(4)).unwrap();
            is_gone(opened(&named("b"), 2, restored), "another run");
            let (_, found) = opened(&named("a"), 2, chk(4)).unwrap();
            assert_eq!(found.as_deref(), Some(&b"a"[..]));
            let empty = SqliteStateStore::new(folder.path().join("empty-state.db"), true);
            Connection::open(&empty.database).unwrap().execute_batch("VACUUM").unwrap();
            is_gone(opened(&empty.of_run("a".to_owned()), 2, chk(4)), "it holds no state");
        }
    }

    #[test]
    fn rows_that_are_of_several_moments_are_refused() {
        for change in [
            "DELETE FROM state WHERE follows = 4",
            "UPDATE state SET value = x'00' WHERE follows = 4",
            "UPDATE state SET follows = 5 WHERE follows = 4",
            "UPDATE state_tasks SET checksum = checksum + 1",
            "DELETE FROM state_tasks",
        ] {
            let folder = tempfile::tempdir().unwrap();
            let store = left(folder.path(), true);
            let database = Connection::open(folder.path().join("state.db")).unwrap();
            assert!(database.execute(change, []).unwrap() > 0);
            is_gone(opened(&store, 2, chk(9)), "damaged");
        }
    }

    #[test]
    fn a_row_that_goes_while_an_attempt_goes_on_is_missed_behind_later_saves_too() {
        let folder = tempfile::tempdir().unwrap();
        let store = left(folder.path(), true);
        let (mut saver, _) = opened(&store, 2, chk(9)).unwrap();
        let database = Connection::open(folder.path().join("state.db")).unwrap();
        assert_eq!(database.execute("DELETE FROM state WHERE follows = 4", []), Ok(1));
        saver.note_cut(CheckpointId::new(10)).unwrap();
        saver.save(&state(chk(10), b"d")).unwrap();
        is_gone(opened_at(&store, 3, Some(cut(10, 2))), "damaged");
    }

    #[test]
    fn a_database_that_another_process_has_locked_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store = left(folder.path(), true).with_patience(Duration::from_millis(20));
        let (mut saver, _) = opened(&store, 2, chk(9)).unwrap();
        let other = Connection::open(folder.path().join("state.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        for error in [saver.save(&state(None, b"z")), opened(&store, 3, chk(9)).map(drop)] {
            let error = error.unwrap_err();
            let is_said = |text: &str| text.contains("state.db: another process has locked");
            assert!(matches!(&error, StateStoreError::Refused(text) if is_said(text)), "{error}");
        }
        other.execute_batch("ROLLBACK").unwrap();
        saver.save(&state(None, b"z")).unwrap();
    }
}
