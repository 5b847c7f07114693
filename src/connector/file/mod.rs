//! Files: a source of lines, CSV rows and NDJSON values, and sinks of NDJSON into a folder.

mod parse;
mod plain;
mod source;
mod table;
mod transactional;

use std::io;
use std::path::Path;

use crate::operator::sink::SinkError;

pub use parse::{CsvRows, JsonLines, LineParser};
pub use plain::PlainFileSink;
pub use source::{LineSource, Span};
pub use table::{TableFileSink, TableFormat};
pub use transactional::TransactionalFileSink;

/// Appends one record to the buffer as one line, line end included.
pub type WriteLine<T> = fn(&T, &mut Vec<u8>);

fn failed(path: &Path, error: &io::Error) -> SinkError {
    SinkError(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, SubtaskIndex};
    use crate::operator::sink::SinkPlace;

    pub(super) fn place(subtask: u32, attempt: u64) -> SinkPlace {
        SinkPlace {
            subtask: SubtaskIndex::new(subtask),
            parallelism: 4,
            attempt: AttemptId::new(attempt),
        }
    }

    pub(super) fn write_number(number: &u64, line: &mut Vec<u8>) {
        line.extend_from_slice(format!("{number}\n").as_bytes());
    }

    pub(super) fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }
}
