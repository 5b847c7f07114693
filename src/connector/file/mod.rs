//! Files: a source of lines, CSV rows and NDJSON values, and sinks of NDJSON into a folder.

mod fingerprint;
mod ledger;
mod parse;
mod plain;
mod source;
mod table;
mod transactional;
mod write_ahead;

use std::io;
use std::path::{self, Path};

use crate::id::TransactionId;
use crate::operator::sink::SinkError;

pub use fingerprint::Fingerprint;
pub use parse::{CsvRows, JsonLines, LineParser};
pub use plain::PlainFileSink;
pub use source::{LineSource, Span};
pub use table::{TableFileSink, TableFormat};
pub use transactional::TransactionalFileSink;
pub use write_ahead::WriteAheadFileSink;

/// Appends one record to the buffer as one line, line end included.
pub type WriteLine<T> = fn(&T, &mut Vec<u8>);

/// A folder as a destination: names of files know nothing of the sink.
fn destination(folder: &Path) -> String {
    path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).display().to_string()
}

/// What follows when a file of an earlier attempt is not as it was left.
fn damaged(path: &Path, what: impl std::fmt::Display) -> SinkError {
    SinkError::Damaged(format!(
        "{}: {what}: put the file back as it was, or begin anew with other folders for output and \
         checkpoints",
        path.display()
    ))
}

/// The name of the file of a transaction, without its end.
fn stem(transaction: TransactionId) -> String {
    let TransactionId { subtask, attempt, sequence, .. } = transaction;
    format!("part-{subtask}-{}-{sequence}", attempt.get())
}

fn failed(path: &Path, error: &io::Error) -> SinkError {
    SinkError::Refused(format!("{}: {error}", path.display()))
}

/// What the name of a file ends in that says how much of another one was flushed.
const FLUSHED: &str = ".flushed";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, SubtaskIndex, VertexId};
    use crate::operator::sink::SinkPlace;

    pub(super) fn place(subtask: u32, attempt: u64) -> SinkPlace {
        SinkPlace {
            subtask: SubtaskIndex::new(subtask),
            parallelism: 4,
            attempt: AttemptId::new(attempt),
            shown: Vec::new(),
        }
    }

    /// A transaction of subtask 1.
    pub(super) fn id(attempt: u64, sequence: u64) -> TransactionId {
        let (vertex, subtask) = (VertexId::new(3), SubtaskIndex::new(1));
        TransactionId { vertex, subtask, attempt: AttemptId::new(attempt), sequence }
    }

    pub(super) fn write_number(number: &u64, line: &mut Vec<u8>) {
        line.extend_from_slice(format!("{number}\n").as_bytes());
    }

    pub(super) fn read(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }
}
