//! Sinks whose rows become visible when a checkpoint is complete, in one transaction of the
//! database with the note that they are.

use crate::connector::sqlite::{Client, Durability, SqliteTable, number};
use crate::element::Record;
use crate::id::TransactionId;
use crate::operator::sink::{
    CommitError, Committed, SinkError, SinkPlace, TransactionalSink, WriteAheadSink,
};

/// Keeps the rows of a transaction in a table beside and moves them when it is committed.
pub struct SqliteTransactionalSink<T>(Client<T>);

/// Inserts a portion of rows and marks it as sent, both or neither.
pub struct SqliteWriteAheadSink<T>(Client<T>);

impl<T> SqliteTransactionalSink<T> {
    /// Writes into `table`.
    pub fn new(table: SqliteTable<T>) -> Self {
        Self(Client::new(table))
    }
}

impl<T> SqliteWriteAheadSink<T> {
    /// Writes into `table`.
    pub fn new(table: SqliteTable<T>) -> Self {
        Self(Client::new(table))
    }
}

impl<T> Clone for SqliteTransactionalSink<T> {
    /// The copy has no connection.
    fn clone(&self) -> Self {
        Self::new(self.0.table.clone())
    }
}

impl<T> Clone for SqliteWriteAheadSink<T> {
    /// The copy has no connection.
    fn clone(&self) -> Self {
        Self::new(self.0.table.clone())
    }
}

impl<T: Record> TransactionalSink for SqliteTransactionalSink<T> {
    type Record = T;

    fn destination(&self) -> Option<String> {
        Some(self.0.table.destination())
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place, self.0.table.columns[0])
    }

    fn write(&mut self, id: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let table = &self.0.table;
        let places = vec!["?"; table.columns.len() + 3].join(", ");
        let statement = format!("INSERT INTO {}_pending VALUES ({places})", table.table);
        let first = [i64::from(id.subtask.get()), number(id.attempt.get()), number(id.sequence)];
        self.0.change(Durability::Lazy, |writer| writer.insert(&statement, &first, &records))
    }

    fn prepare(&mut self, _transaction: TransactionId) -> Result<(), SinkError> {
        self.0.flush()
    }

    fn commit(&mut self, id: TransactionId) -> Result<Committed, CommitError> {
        let (table, columns) = (self.0.table.table.clone(), self.0.table.columns());
        let of = "WHERE subtask = ? AND attempt = ? AND sequence = ?";
        let show = format!(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {table}_pending {of}
             ORDER BY rowid"
        );
        let forget = format!("DELETE FROM {table}_pending {of}");
        let (attempt, sequence) = (number(id.attempt.get()), number(id.sequence));
        let outcome = self.0.change(Durability::Full, |writer| {
            if writer.is_visible(id)? {
                return Ok(Committed::Before);
            }
            let rows = writer.execute(&show, &[&id.subtask.get(), &attempt, &sequence])?;
            if rows == 0 {
                let database = writer.table.database.display();
                return Err(SinkError::Damaged(format!(
                    "{database}: the rows of transaction {id} are gone, and the checkpoint says \
                     that they are there: put the database back as it was, or begin anew with \
                     other places for output and checkpoints"
                )));
            }
            writer.execute(&forget, &[&id.subtask.get(), &attempt, &sequence])?;
            writer.note_visible(id)?;
            Ok(Committed::Now)
        })?;
        Ok(outcome)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        let table = &self.0.table.table;
        let statement =
            format!("DELETE FROM {table}_pending WHERE subtask % ? = ? AND attempt < ?");
        self.0.change(Durability::Full, |writer| {
            let SinkPlace { subtask, parallelism, attempt, .. } = &writer.place;
            let (parallelism, attempt) = (number(*parallelism as u64), number(attempt.get()));
            writer.execute(&statement, &[&parallelism, &subtask.get(), &attempt]).map(drop)
        })
    }
}

impl<T: Record> WriteAheadSink for SqliteWriteAheadSink<T> {
    type Record = T;

    fn destination(&self) -> Option<String> {
        Some(self.0.table.destination())
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place, self.0.table.columns[0])
    }

    fn send(&mut self, id: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let statement = self.0.table.insert("");
        self.0.change(Durability::Full, |writer| {
            if writer.is_visible(id)? {
                return Ok(());
            }
            writer.insert(&statement, &[], &records)?;
            writer.note_visible(id)
        })
    }

    /// The portion was marked when it was sent.
    fn mark(&mut self, _id: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn is_marked(&mut self, id: TransactionId) -> Result<bool, SinkError> {
        self.0.change(Durability::Lazy, |writer| writer.is_visible(id))
    }
}
