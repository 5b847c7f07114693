//! Lines as they stand in files: the input's, and the rows that sinks wrote, in order.

use std::fs;
use std::path::Path;

use cofferdam::guarantee::SinkContract;
#[cfg(feature = "sqlite")]
use rusqlite::types::Value;

#[cfg(feature = "sqlite")]
use crate::cli::database::{self, Stored};
use crate::cli::exit::Failure;
use crate::jobs::Output;
use crate::jobs::row::{Origin, json_field};
#[cfg(feature = "sqlite")]
use crate::jobs::sqlite;

/// A line of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The row without its origin.
    pub(super) row: String,
    /// The field `key`, as people read it.
    pub(super) key: String,
    /// The field `value`, if there is one.
    pub(super) value: Option<String>,
    /// Where it comes from, if it says so.
    pub(super) origin: Option<Origin>,
}

impl Line {
    /// Takes a line apart; none if it is not one of a sink.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
        let number = |name| object.get(name).and_then(serde_json::Value::as_u64);
        let origin = match (number("_offset"), number("_position")) {
            (Some(offset), Some(position)) => {
                Some(Origin { offset, position: u32::try_from(position).ok()? })
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return None,
        };
        // The origin comes last, so that the rest is exact to the digit whatever JSON makes of it.
        let row = match text.rfind(",\"_offset\":") {
            Some(end) if origin.is_some() => format!("{}}}", &text[..end]),
            Some(_) | None => text.to_owned(),
        };
        let key = json_field(row.as_bytes(), "key")?;
        let value = json_field(row.as_bytes(), "value");
        Some(Self { row, key, value, origin })
    }

    /// A row of a database, as the line that a folder would have: a value that is an object is the
    /// whole row.
    #[cfg(feature = "sqlite")]
    fn stored(stored: Stored) -> Self {
        let text = |value: Value| match value {
            Value::Null => "null".to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Text(text) => text,
            Value::Blob(bytes) => format!("{bytes:?}"),
        };
        let (key, value) = (text(stored.key), text(stored.value));
        let origin = stored.origin.map(|(offset, position)| Origin { offset, position });
        if value.starts_with('{') {
            return Self { row: value, key, value: None, origin };
        }
        let row = format!("{{\"key\":{},\"value\":{value}}}", serde_json::json!(key));
        Self { row, key, value: Some(value), origin }
    }
}

/// The lines of the input.
pub(in crate::cli) fn read_input(path: &Path) -> Result<Vec<String>, Failure> {
    let at = path.display();
    let bytes = fs::read(path).map_err(|error| Failure::input(format!("{at}: {error}")))?;
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    lines.pop_if(|last| last.is_empty());
    let text = |(number, line): (usize, &[u8])| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match std::str::from_utf8(line) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Failure::input(format!("{at}, line {}: not UTF-8", number + 1))),
        }
    };
    lines.into_iter().enumerate().map(text).collect()
}

/// The committed lines of a sink; those of one key in the order in which they were written.
pub(super) fn read_sink(
    output: &Output,
    uid: &str,
    contract: SinkContract,
) -> Result<Vec<Line>, Failure> {
    match output {
        Output::Folder(folder) if uid == "out" => read_folder(folder, contract),
        Output::Folder(folder) => read_folder(&folder.join(uid), contract),
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => {
            let rows = database::read(file, sqlite::table_name(uid))?;
            Ok(rows.into_iter().map(Line::stored).collect())
        }
    }
}

fn read_folder(folder: &Path, contract: SinkContract) -> Result<Vec<Line>, Failure> {
    let failed = |path: &Path, text: &dyn std::fmt::Display| {
        Failure::input(format!("{}: {text}", path.display()))
    };
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let paths = entries.flatten().map(|entry| entry.path());
    let parts = paths.filter_map(|path| Some((written(&path, contract)?, path)));
    let mut parts: Vec<_> = parts.collect();
    parts.sort();
    let mut lines = Vec::new();
    for (_, path) in parts {
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, &error))?;
        for line in text.lines() {
            lines.push(Line::parse(line).ok_or_else(|| failed(&path, &"a line is no row"))?);
        }
    }
    Ok(lines)
}

/// The place of a part file in the order of writing: attempt, transaction, subtask.
fn written(path: &Path, contract: SinkContract) -> Option<[u64; 3]> {
    let name = path.file_name()?.to_str()?;
    let numbers = name.strip_prefix("part-")?.strip_suffix(".ndjson")?.split('-');
    let numbers: Vec<u64> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
    match (contract, numbers.as_slice()) {
        (SinkContract::Plain, [attempt, subtask]) => Some([*attempt, 0, *subtask]),
        (SinkContract::TwoPhase | SinkContract::WriteAhead, [subtask, attempt, transaction]) => {
            Some([*attempt, *transaction, *subtask])
        }
        (SinkContract::Idempotent, [subtask]) => Some([0, 0, *subtask]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_is_taken_off_and_the_rest_stays_to_the_digit() {
        let row = r#"{"key":"a,\"_offset\":","value":340282366920938463463374607431768211455}"#;
        let text = format!("{},\"_offset\":12,\"_position\":3}}", &row[..row.len() - 1]);
        let line = Line::parse(&text).unwrap();
        assert_eq!((line.row.as_str(), line.key.as_str()), (row, "a,\"_offset\":"));
        assert_eq!(line.origin, Some(Origin { offset: 12, position: 3 }));
        assert_eq!(Line::parse(row).unwrap().row, row);
        assert_eq!(Line::parse("torn{"), None);
    }

    #[test]
    fn parts_are_ordered_by_attempt_before_all() {
        let order = |name: &str, contract| written(Path::new(name), contract);
        assert_eq!(order("part-7-1.ndjson", SinkContract::Plain), Some([7, 0, 1]));
        assert_eq!(order("part-1-7-3.ndjson", SinkContract::TwoPhase), Some([7, 3, 1]));
        assert_eq!(order(".part-1-7-3.pending", SinkContract::TwoPhase), None);
    }
}
