//! What sinks have left in a SQLite database, read without their help.

use std::path::{self, Path};

use cofferdam::connector::sqlite;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, TransactionBehavior};

use crate::cli::exit::Failure;

/// A row of a sink's table, each value as people read it.
pub(crate) struct Stored {
    pub(crate) key: Value,
    pub(crate) value: Value,
    /// `_offset` and `_position`, if the table has them.
    pub(crate) origin: Option<(u64, u32)>,
}

/// Checks that sinks can write into the database.
pub(crate) fn check(file: &Path) -> Result<(), Failure> {
    sqlite::check(file).map_err(|error| Failure::input(format!("--output sqlite:{error}")))
}

/// The tables of sinks that have rows, as far as the database can be read.
pub(crate) fn tables(file: &Path) -> Vec<String> {
    let Ok(database) = open(file) else { return Vec::new() };
    let tables = sink_tables(&database).unwrap_or_default();
    tables.into_iter().filter(|table| has_rows(&database, table).unwrap_or(false)).collect()
}

/// How many rows a table has, as far as the database can be read.
pub(crate) fn count(file: &Path, table: &str) -> u64 {
    let query = format!("SELECT count(*) FROM {table}");
    let count = |database: Connection| database.query_row(&query, [], |row| row.get(0));
    open(file).and_then(count).unwrap_or_default()
}

/// A table that a sink has ever opened, if there is one.
pub(crate) fn first_opened_table(file: &Path) -> Option<String> {
    sink_tables(&open(file).ok()?).ok()?.into_iter().next()
}

/// The first of these tables that is there, but was not made by a sink.
pub(crate) fn foreign_table<'a>(
    file: &Path,
    mut tables: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let database = open(file).ok()?;
    let made = sink_tables(&database).ok()?;
    let query = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE)";
    let is_there = |name: &str| database.query_row(query, [name], |row| row.get(0));
    tables.find(|name| !made.iter().any(|made| made == name) && is_there(name).unwrap_or(false))
}

/// The rows of a table in the order of writing; none if there is no such table.
pub(crate) fn read(file: &Path, table: &str) -> Result<Vec<Stored>, Failure> {
    let read = || {
        let database = open(file)?;
        if !sink_tables(&database)?.iter().any(|found| found == table) {
            return Ok(Vec::new());
        }
        let mut query = database.prepare(&format!("SELECT * FROM {table} ORDER BY rowid"))?;
        query.query_map([], stored)?.collect()
    };
    read().map_err(|error: rusqlite::Error| Failure::input(format!("{}: {error}", file.display())))
}

/// Notes durably which run writes into the database.
pub(crate) fn note_run(file: &Path, run: &str) -> Result<(), Failure> {
    let note = || {
        let mut database = open(file)?;
        let change = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
        change.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {RUN} (run TEXT NOT NULL); DELETE FROM {RUN}"
        ))?;
        change.execute(&format!("INSERT INTO {RUN} VALUES (?)"), [run])?;
        change.commit()
    };
    note().map_err(|error: rusqlite::Error| Failure::input(format!("{}: {error}", file.display())))
}

/// Whether this run has last begun to write into the database, as far as it can be read.
pub(crate) fn is_of_run(file: &Path, run: &str) -> bool {
    let query = format!("SELECT EXISTS (SELECT 1 FROM {RUN} WHERE run = ?)");
    let is_of = |database: Connection| database.query_row(&query, [run], |row| row.get(0));
    open(file).and_then(is_of).unwrap_or(false)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    let has_origin = row.as_ref().column_count() > 2;
    let origin = match has_origin {
        true => row.get::<_, Option<u64>>(2)?.zip(row.get::<_, Option<u32>>(3)?),
        false => None,
    };
    Ok(Stored { key: row.get(0)?, value: row.get(1)?, origin })
}

fn open(file: &Path) -> rusqlite::Result<Connection> {
    // As for the sinks, so that no name is taken for a URI.
    let file = path::absolute(file).unwrap_or_else(|_| file.to_owned());
    Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// The tables beside which a table of progress stands.
fn sink_tables(database: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = database.prepare(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name || '_progress' IN
             (SELECT name FROM sqlite_master) ORDER BY name",
    )?;
    query.query_map([], |row| row.get(0))?.collect()
}

fn has_rows(database: &Connection, table: &str) -> rusqlite::Result<bool> {
    database.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {table})"), [], |row| row.get(0))
}

/// The table that says which run writes into the database.
const RUN: &str = "cofferdam_run";
