//! The rows of the built-in jobs as rows of a SQLite table: key, value, and where they come from if
//! that was asked for.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam::connector::sqlite::{
    SqlValue, SqliteSink, SqliteTable, SqliteTableSink, SqliteTransactionalSink,
    SqliteWriteAheadSink,
};
use cofferdam::guarantee::SinkContract;
use cofferdam::job::Stream;
use cofferdam::operator::chain::Segment;
use serde_json::value::RawValue;

use crate::jobs::row::Row;

/// The columns of every table; the last two only if rows say where they come from.
const COLUMNS: &[&str] = &["key", "value", "_offset", "_position"];

/// The table of the sink `uid`.
pub(crate) fn table_name(uid: &str) -> &str {
    if uid == "out" { "output" } else { uid }
}

/// Ends a stream in a sink that keeps `contract`, which is not discard.
pub(crate) fn end<S: Segment>(
    stream: Stream<S>,
    uid: &str,
    contract: SinkContract,
    database: &Path,
    origins: bool,
) where
    S::Out: Row,
{
    let values = if origins { values_with_origin } else { values };
    let table = SqliteTable {
        database: database.to_owned(),
        table: table_name(uid).to_owned(),
        columns: &COLUMNS[..if origins { 4 } else { 2 }],
        values,
    };
    match contract {
        SinkContract::Plain | SinkContract::Discard => stream.sink(uid, SqliteSink::new(table)),
        SinkContract::Idempotent => {
            stream.sink(uid, SqliteTableSink::new(table, S::Out::row_key));
        }
        SinkContract::TwoPhase => {
            stream.transactional_sink(uid, SqliteTransactionalSink::new(table));
        }
        SinkContract::WriteAhead => {
            stream.write_ahead_sink(uid, SqliteWriteAheadSink::new(table));
        }
    }
}

fn values<R: Row>(row: &R) -> Vec<SqlValue> {
    let mut values = values_with_origin(row);
    values.truncate(2);
    values
}

/// A row that has other fields than a key and a value is a value itself, as JSON.
fn values_with_origin<R: Row>(row: &R) -> Vec<SqlValue> {
    let mut json = Vec::new();
    row.write_json(&mut json);
    let json = String::from_utf8(json).expect("JSON is text");
    let fields: BTreeMap<String, &RawValue> =
        serde_json::from_str(&json).expect("a row is an object");
    let field = |name: &str| fields.get(name).map(|raw| value(raw.get()));
    let key = field("key").unwrap_or(SqlValue::Null);
    let is_entry = fields.keys().all(|name| COLUMNS.contains(&name.as_str()));
    let value = field("value").filter(|_| is_entry);
    let value = value.unwrap_or_else(|| SqlValue::Text(json.clone()));
    let origin = ["_offset", "_position"].map(|name| field(name).unwrap_or(SqlValue::Null));
    [key, value].into_iter().chain(origin).collect()
}

/// A field: integers that SQLite can hold as such, texts without quotes, all else as it stands.
fn value(json: &str) -> SqlValue {
    match serde_json::from_str(json) {
        Ok(text) => SqlValue::Text(text),
        Err(_) => match json.parse() {
            Ok(number) => SqlValue::Integer(number),
            Err(_) => SqlValue::Text(json.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::row::{Entry, Origin};
    use crate::jobs::seconds::Seconds;
    use crate::jobs::timed::WindowSum;

    #[test]
    fn rows_keep_their_values_to_the_digit() {
        let text = |text: &str| SqlValue::Text(text.to_owned());
        let row = Entry::new("a \"b\"", i64::MIN);
        assert_eq!(values(&row), [text("a \"b\""), SqlValue::Integer(i64::MIN)]);
        let great = i128::from(i64::MAX) + 1;
        assert_eq!(values(&Entry::new(String::new(), great))[1], text("9223372036854775808"));
        assert_eq!(values(&Entry::new(String::new(), true))[1], text("true"));
        let origin = Some(Origin { offset: 7, position: 1 });
        let row = Entry { key: "1".into(), value: 2_u64, origin };
        let [two, seven, one] = [2, 7, 1].map(SqlValue::Integer);
        assert_eq!(values_with_origin(&row), [text("1"), two, seven, one]);
        let [start, end] = [0, 10_000].map(Seconds::from_millis);
        let row = WindowSum { key: "a".to_owned(), start, end, value: 5 };
        let whole = r#"{"key":"a","start":0,"end":10,"value":5}"#;
        assert_eq!(values(&row), [text("a"), text(whole)], "nothing of a row is left out");
    }
}
