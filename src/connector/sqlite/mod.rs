//! SQLite: a store of keyed state, and sinks that write into a table of a database. Every call is
//! one transaction of the database, so that no subtask keeps another one waiting longer than that.
//!
//! Beside the table `T` of a sink stand two more:
//! ```text
//!  T_progress  subtask, epoch, attempt, sequence, flushes
//!  T_pending   subtask, attempt, sequence, then the columns of T
//! ```
//! `epoch` is the newest attempt that has opened the subtask: older ones are refused. `attempt` and
//! `sequence` name the last transaction that became visible, and change in the same transaction of
//! the database as the table itself; they come in order, so that all earlier ones are visible too.
//!
//! Rows that a checkpoint does not rest on yet are written without waiting for the disk. A change
//! that has to be durable waits, and makes all earlier ones durable with it: they lie before it in
//! the same log. A flush is such a change; `flushes` counts them.

mod direct;
mod staged;
mod state;

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, Transaction, TransactionBehavior};

use crate::id::{SubtaskIndex, TransactionId};
use crate::operator::sink::{SinkError, SinkPlace};

pub use direct::{SqliteSink, SqliteTableSink};
pub use staged::{SqliteTransactionalSink, SqliteWriteAheadSink};
pub use state::SqliteStateStore;

/// A value in a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// A number.
    Integer(i64),
    /// A text.
    Text(String),
    /// No value.
    Null,
}

impl ToSql for SqlValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Integer(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
            Self::Null => rusqlite::types::Null.to_sql(),
        }
    }
}

/// A table, and how records become its rows.
pub struct SqliteTable<T> {
    /// The file of the database; it is made if it is not there, its folder is not.
    pub database: PathBuf,
    /// The table's name.
    pub table: String,
    /// The names of its columns. The first is the key.
    pub columns: &'static [&'static str],
    /// The values of a record, one a column.
    pub values: fn(&T) -> Vec<SqlValue>,
}

impl<T> Clone for SqliteTable<T> {
    fn clone(&self) -> Self {
        let Self { database, table, columns, values } = self;
        Self { database: database.clone(), table: table.clone(), columns, values: *values }
    }
}

impl<T> SqliteTable<T> {
    fn destination(&self) -> String {
        let database = std::path::absolute(&self.database);
        let database = database.unwrap_or_else(|_| self.database.clone());
        format!("table {} of {}", self.table, database.display())
    }

    fn columns(&self) -> String {
        self.columns.join(", ")
    }

    /// Puts a row into the table; what follows the values can say what to do with an equal key.
    fn insert(&self, more: &str) -> String {
        let places = vec!["?"; self.columns.len()].join(", ");
        format!("INSERT INTO {} ({}) VALUES ({places}) {more}", self.table, self.columns())
    }
}

impl<T> SqliteTable<T> {
    /// Checks that the table is of the wanted kind, and that it has what was shown.
    fn check(
        &self,
        database: &Connection,
        place: &SinkPlace,
        is_keyed: bool,
    ) -> Result<(), SinkError> {
        let failed = |error| failed(&self.database, error);
        let lost = |what: String| {
            let (table, database) = (&self.table, self.database.display());
            Err(SinkError::Damaged(format!("table {table} of {database}: {what}")))
        };
        let key = "SELECT pk > 0 FROM pragma_table_info(?) WHERE name = ?";
        let of = [self.table.as_str(), self.columns[0]];
        let has_key: bool = database.query_row(key, of, |row| row.get(0)).map_err(failed)?;
        if has_key != is_keyed {
            return lost(
                "another kind of sink has made it: only that of an idempotent one has a key, and \
                 one row for each: name another database"
                    .to_owned(),
            );
        }
        for id in &place.shown {
            if !is_visible(database, &self.table, *id).map_err(failed)? {
                return lost(format!(
                    "it lacks the rows of transaction {id}, which were shown: put the database \
                     back as it was, its -wal file too, or begin anew with other places for \
                     output and checkpoints"
                ));
            }
        }
        Ok(())
    }
}

/// A subtask's connection; none before it is opened.
struct Client<T> {
    table: SqliteTable<T>,
    open: Option<(Connection, SinkPlace)>,
    record: PhantomData<fn(T)>,
}

impl<T> Client<T> {
    fn new(table: SqliteTable<T>) -> Self {
        Self { table, open: None, record: PhantomData }
    }

    /// Makes the tables that are not there, and fences older attempts. `key` is said of the column
    /// of the key.
    fn open(&mut self, place: &SinkPlace, key: &str) -> Result<(), SinkError> {
        let mut connection = connect(&self.table.database)?;
        let failed = |error| failed(&self.table.database, error);
        keep_log(&mut connection).map_err(failed)?;
        let (table, columns) = (&self.table.table, self.table.columns());
        let keyed = columns.replacen(self.table.columns[0], key, 1);
        let tables = format!(
            "CREATE TABLE IF NOT EXISTS {table} ({keyed});
             CREATE TABLE IF NOT EXISTS {table}_progress (
                 subtask INTEGER PRIMARY KEY, epoch INTEGER NOT NULL,
                 attempt INTEGER NOT NULL, sequence INTEGER NOT NULL,
                 flushes INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS {table}_pending (subtask, attempt, sequence, {columns});"
        );
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = begun.map_err(failed)?;
        let is_there = |name: &str| -> rusqlite::Result<bool> {
            let query = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?)";
            transaction.query_row(query, [name], |row| row.get(0))
        };
        // All are made in one transaction.
        if is_there(&format!("{table}_progress")).map_err(failed)?
            && !is_there(table).map_err(failed)?
        {
            return Err(SinkError::Damaged(format!(
                "table {table} of {}: it is gone: put the database back as it was, or begin anew \
                 with other places for output and checkpoints",
                self.table.database.display()
            )));
        }
        transaction.execute_batch(&tables).map_err(failed)?;
        self.table.check(&transaction, place, key != self.table.columns[0])?;
        let progress = format!(
            "INSERT INTO {table}_progress VALUES (?, ?, -1, -1, 0)
             ON CONFLICT (subtask) DO UPDATE SET epoch = excluded.epoch
             WHERE excluded.epoch >= epoch"
        );
        let epoch = (place.subtask.get(), number(place.attempt.get()));
        if transaction.execute(&progress, epoch).map_err(failed)? == 0 {
            return Err(fenced());
        }
        // Subtasks that are no more, of a time with a greater parallelism (rule 65).
        let others = format!(
            "UPDATE {table}_progress SET epoch = ?2 WHERE subtask % ?3 = ?1 AND epoch < ?2"
        );
        let parallelism = number(place.parallelism as u64);
        transaction.execute(&others, (epoch.0, epoch.1, parallelism)).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        self.open = Some((connection, place.clone()));
        Ok(())
    }

    /// Makes all that was changed durable.
    fn flush(&mut self) -> Result<(), SinkError> {
        let statement = format!(
            "UPDATE {}_progress SET flushes = flushes + 1 WHERE subtask = ?",
            self.table.table
        );
        self.change(Durability::Full, |writer| {
            writer.execute(&statement, &[&writer.place.subtask.get()]).map(drop)
        })
    }

    /// Runs `change` in a transaction of the database, unless a newer attempt has taken over.
    fn change<R>(
        &mut self,
        durability: Durability,
        change: impl FnOnce(&Writer<'_, T>) -> Result<R, SinkError>,
    ) -> Result<R, SinkError> {
        let (connection, place) = self.open.as_mut().expect("a sink is opened first");
        let failed = |error| failed(&self.table.database, error);
        let word = match durability {
            Durability::Lazy => "NORMAL",
            Durability::Full => "FULL",
        };
        connection.pragma_update(None, "synchronous", word).map_err(failed)?;
        let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let writer = Writer { transaction: begun.map_err(failed)?, table: &self.table, place };
        if writer.progress(place.subtask, "epoch")? != number(place.attempt.get()) {
            return Err(fenced());
        }
        let result = change(&writer)?;
        writer.transaction.commit().map_err(failed)?;
        Ok(result)
    }
}

/// Whether a change waits for the disk.
#[derive(Clone, Copy)]
enum Durability {
    /// No: a crash of the machine may take the change back, and what came after it.
    Lazy,
    /// Yes.
    Full,
}

/// A transaction of the database that is under way.
struct Writer<'a, T> {
    transaction: Transaction<'a>,
    table: &'a SqliteTable<T>,
    place: &'a SinkPlace,
}

impl<T> Writer<'_, T> {
    /// Runs a statement; how many rows it has changed.
    fn execute(&self, statement: &str, values: &[&dyn ToSql]) -> Result<usize, SinkError> {
        let failed = |error| failed(&self.table.database, error);
        self.transaction.prepare_cached(statement).map_err(failed)?.execute(values).map_err(failed)
    }

    /// Inserts records by a statement that takes `first` and then the columns of the table.
    fn insert(&self, statement: &str, first: &[i64], records: &[T]) -> Result<(), SinkError> {
        for record in records {
            let values = (self.table.values)(record);
            let first = first.iter().map(|value| value as &dyn ToSql);
            let values: Vec<_> = first.chain(values.iter().map(|value| value as _)).collect();
            self.execute(statement, &values)?;
        }
        Ok(())
    }

    /// A field of a subtask's row of progress.
    fn progress(&self, subtask: SubtaskIndex, field: &str) -> Result<i64, SinkError> {
        let query = format!("SELECT {field} FROM {}_progress WHERE subtask = ?", self.table.table);
        let row = self.transaction.query_row(&query, [subtask.get()], |row| row.get(0));
        row.map_err(|error| failed(&self.table.database, error))
    }

    fn is_visible(&self, id: TransactionId) -> Result<bool, SinkError> {
        is_visible(&self.transaction, &self.table.table, id)
            .map_err(|error| failed(&self.table.database, error))
    }

    /// Notes that the rows of a transaction are visible.
    fn note_visible(&self, id: TransactionId) -> Result<(), SinkError> {
        let statement = format!(
            "UPDATE {}_progress SET attempt = ?, sequence = ? WHERE subtask = ?",
            self.table.table
        );
        let (attempt, sequence) = (number(id.attempt.get()), number(id.sequence));
        self.execute(&statement, &[&attempt, &sequence, &id.subtask.get()]).map(drop)
    }
}

/// Whether the rows of a transaction are visible.
fn is_visible(database: &Connection, table: &str, id: TransactionId) -> rusqlite::Result<bool> {
    let query = format!(
        "SELECT EXISTS (SELECT 1 FROM {table}_progress WHERE subtask = ?
                        AND (attempt, sequence) >= (?, ?))"
    );
    let (attempt, sequence) = (number(id.attempt.get()), number(id.sequence));
    database.query_row(&query, (id.subtask.get(), attempt, sequence), |row| row.get(0))
}

/// Checks that the database can be written, which is made if it is not there.
///
/// # Errors
/// If it can not: it is no database, another process has locked it, it may not be written.
pub fn check(database: &Path) -> Result<(), SinkError> {
    check_within(database, PATIENCE)
}

fn check_within(database: &Path, patience: Duration) -> Result<(), SinkError> {
    let mut connection = connect_within(database, patience)?;
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let writes = begun.and_then(|transaction| {
        transaction.execute_batch("PRAGMA user_version = 0")?;
        transaction.commit()
    });
    writes.map_err(|error| failed(database, error))
}

fn connect(database: &Path) -> Result<Connection, SinkError> {
    connect_within(database, PATIENCE)
}

fn connect_within(database: &Path, patience: Duration) -> Result<Connection, SinkError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite takes some names for a URI or for memory: none that begins at the root.
    let file = std::path::absolute(database);
    let file = file.map_err(|error| {
        SinkError::Refused(format!("{}: {error}: name a file", database.display()))
    })?;
    let connection = Connection::open_with_flags(file, flags);
    let connection = connection.map_err(|error| failed(database, error))?;
    connection.busy_timeout(patience).map_err(|error| failed(database, error))?;
    Ok(connection)
}

/// Gives the database a write-ahead log, which it keeps. SQLite refuses at once who changes that
/// while another connection does, whatever its patience; to begin a write it waits until that is
/// done.
fn keep_log(connection: &mut Connection) -> rusqlite::Result<()> {
    let mut kept = Ok(());
    for _ in 0..LOG_TRIES {
        kept = connection.pragma_update(None, "journal_mode", "WAL");
        match &kept {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?.rollback()?;
            }
            Ok(()) | Err(_) => break,
        }
    }
    kept
}

/// Attempts and sequences are counted from 0 and never come near the end of an `i64`.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn fenced() -> SinkError {
    SinkError::Refused("a newer attempt has taken over".to_owned())
}

fn failed(database: &Path, error: rusqlite::Error) -> SinkError {
    let at = database.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => SinkError::Damaged(format!(
            "{at}: it is not a SQLite database, or it is damaged: put it back as it was, or name \
             another file"
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => SinkError::Refused(format!(
            "{at}: another process has locked the database and holds it: end its transaction, or \
             the process, and try again"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => SinkError::Refused(format!(
            "{at}: the database may not be written: allow it, or name another file"
        )),
        Some(ErrorCode::CannotOpen) => SinkError::Refused(format!(
            "{at}: it can not be opened: its folder has to be there, and both have to be \
             writable: make it so, or name another file"
        )),
        _ => SinkError::Refused(format!("{at}: {error}")),
    }
}

/// How long to wait for another connection's transaction.
const PATIENCE: Duration = Duration::from_secs(10);

/// Who is refused finds the log there the next time.
const LOG_TRIES: u32 = 3;

#[cfg(test)]
mod tests;
