//! Sinks whose rows are visible at once: inserts, and upserts.

use crate::connector::sqlite::{Client, Durability, SqliteTable};
use crate::element::Record;
use crate::guarantee::SinkContract;
use crate::operator::sink::{Sink, SinkError, SinkPlace};

/// Inserts each record as a row, which can not be taken back.
pub struct SqliteSink<T>(Client<T>);

/// Keeps one row a key, the latest.
pub struct SqliteTableSink<T> {
    client: Client<T>,
    key_of: fn(&T) -> Vec<u8>,
}

impl<T> SqliteSink<T> {
    /// Writes into `table`.
    pub fn new(table: SqliteTable<T>) -> Self {
        Self(Client::new(table))
    }
}

impl<T> SqliteTableSink<T> {
    /// Writes into `table`. `key_of` gives equal bytes for records with equal values in the table's
    /// first column, and only for them.
    pub fn new(table: SqliteTable<T>, key_of: fn(&T) -> Vec<u8>) -> Self {
        Self { client: Client::new(table), key_of }
    }
}

impl<T> Clone for SqliteSink<T> {
    /// The copy has no connection.
    fn clone(&self) -> Self {
        Self::new(self.0.table.clone())
    }
}

impl<T> Clone for SqliteTableSink<T> {
    /// The copy has no connection.
    fn clone(&self) -> Self {
        Self::new(self.client.table.clone(), self.key_of)
    }
}

impl<T: Record> Sink for SqliteSink<T> {
    type Record = T;

    fn destination(&self) -> Option<String> {
        Some(self.0.table.destination())
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place, self.0.table.columns[0])
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        let statement = self.0.table.insert("");
        self.0.change(Durability::Lazy, |writer| writer.insert(&statement, &[], &records))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.0.flush()
    }
}

impl<T: Record> Sink for SqliteTableSink<T> {
    type Record = T;

    fn contract(&self) -> SinkContract {
        SinkContract::Idempotent
    }

    fn key_of(&self, record: &T) -> Vec<u8> {
        (self.key_of)(record)
    }

    fn destination(&self) -> Option<String> {
        Some(self.client.table.destination())
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        let key = format!("{} PRIMARY KEY", self.client.table.columns[0]);
        self.client.open(place, &key)
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        let [key, others @ ..] = self.client.table.columns else { return Ok(()) };
        let set: Vec<_> = others.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let more = format!("ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "));
        let statement = self.client.table.insert(&more);
        self.client.change(Durability::Lazy, |writer| writer.insert(&statement, &[], &records))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.client.flush()
    }
}
