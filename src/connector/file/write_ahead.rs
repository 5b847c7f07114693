//! The write-ahead sink: a file for each portion of rows, which is there whole or not at all, and
//! beside the files of a subtask `.part-S.marked`, which names the last portion that was sent.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::connector::file::ledger::{self, Sum};
use crate::connector::file::{WriteLine, damaged, destination, failed, stem};
use crate::durable;
use crate::element::Record;
use crate::id::TransactionId;
use crate::operator::sink::{SinkError, SinkPlace, WriteAheadSink};

/// Writes lines into files `part-S-A-N.ndjson` that appear, whole and final, once a checkpoint that
/// covers their rows is complete: S is the subtask, A the attempt that had the rows, N the
/// how-manieth portion of the two. Sent again, a portion takes the name that it has already.
pub struct WriteAheadFileSink<T> {
    folder: PathBuf,
    write_line: WriteLine<T>,
}

impl<T> WriteAheadFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, write_line: WriteLine<T>) -> Self {
        Self { folder: folder.into(), write_line }
    }

    fn part(&self, id: TransactionId) -> PathBuf {
        self.folder.join(format!("{}.ndjson", stem(id)))
    }

    fn marks(&self, id: TransactionId) -> PathBuf {
        self.folder.join(format!(".part-{}.marked", id.subtask))
    }
}

impl<T> Clone for WriteAheadFileSink<T> {
    fn clone(&self) -> Self {
        Self::new(self.folder.clone(), self.write_line)
    }
}

impl<T: Record> WriteAheadSink for WriteAheadFileSink<T> {
    type Record = T;

    fn destination(&self) -> Option<String> {
        Some(destination(&self.folder))
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        durable::create_folder(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        ledger::check(&self.folder, place, |id, _| self.part(id))
    }

    fn send(&mut self, id: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let mut lines = Vec::new();
        for record in &records {
            (self.write_line)(record, &mut lines);
        }
        let part = self.part(id);
        durable::replace(&part, &lines).map_err(|error| failed(&part, &error.into()))?;
        ledger::note(&self.folder, id, Sum::of(&lines))
    }

    fn mark(&mut self, id: TransactionId) -> Result<(), SinkError> {
        let (marks, mark) = (self.marks(id), format!("{} {}", id.attempt.get(), id.sequence));
        durable::replace(&marks, mark.as_bytes()).map_err(|error| failed(&marks, &error.into()))
    }

    /// Portions are sent and marked in order, so that the last mark stands for those before.
    fn is_marked(&mut self, id: TransactionId) -> Result<bool, SinkError> {
        let marks = self.marks(id);
        let text = match fs::read_to_string(&marks) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            text => text.map_err(|error| failed(&marks, &error))?,
        };
        let mut numbers = text.split(' ').map(str::parse::<u64>);
        let (Some(Ok(attempt)), Some(Ok(sequence)), None) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return Err(damaged(&marks, "it does not name an attempt and a number"));
        };
        let is_marked = (id.attempt.get(), id.sequence) <= (attempt, sequence);
        let part = self.part(id);
        if is_marked && !part.is_file() {
            return Err(damaged(&part, format_args!("{} says that it is there", marks.display())));
        }
        if let Some(sum) = ledger::noted(&self.folder, id)?.filter(|_| is_marked) {
            sum.check(&part)?;
        }
        Ok(is_marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::file::tests::{id, place, read, write_number};

    #[test]
    fn a_portion_is_there_whole_and_sent_again_it_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = WriteAheadFileSink::new(folder.path(), write_number);
        sink.open(&place(1, 4)).unwrap();
        sink.send(id(4, 0), vec![1, 2]).unwrap();
        assert!(!sink.is_marked(id(4, 0)).unwrap(), "a crash here sends it again");
        sink.clone().send(id(4, 0), vec![1, 2]).unwrap();
        assert_eq!(read(&folder.path().join("part-1-4-0.ndjson")), "1\n2\n");
        let names = durable::names_in(folder.path()).unwrap().into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), [".part-1.shown", "part-1-4-0.ndjson"]);
    }

    #[test]
    fn marks_outlive_an_attempt_and_rows_that_are_gone_are_missed() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = WriteAheadFileSink::new(folder.path(), write_number);
        sink.open(&place(1, 4)).unwrap();
        for sequence in 0..2 {
            sink.send(id(4, sequence), vec![sequence]).unwrap();
            sink.mark(id(4, sequence)).unwrap();
        }
        let mut later = sink.clone();
        let marked = [(4, 0), (4, 1), (4, 2), (5, 0)]
            .map(|(attempt, sequence)| later.is_marked(id(attempt, sequence)).unwrap());
        assert_eq!(marked, [true, true, false, false]);
        fs::write(folder.path().join("part-1-4-1.ndjson"), "2\n").unwrap();
        let changed = later.is_marked(id(4, 1)).unwrap_err().to_string();
        assert!(changed.contains("part-1-4-1.ndjson: its bytes are not those"), "{changed}");
        fs::remove_file(folder.path().join("part-1-4-1.ndjson")).unwrap();
        let refused = later.clone().open(&place(1, 5)).unwrap_err().to_string();
        assert!(refused.contains("part-1-4-1.ndjson: it is gone"), "{refused}");
        let gone = later.is_marked(id(4, 1)).unwrap_err();
        assert!(matches!(&gone, SinkError::Damaged(text) if text.contains("part-1-4-1.ndjson")));
        fs::write(folder.path().join(".part-1.marked"), "4").unwrap();
        let torn = later.is_marked(id(4, 1)).unwrap_err().to_string();
        assert!(torn.contains(".part-1.marked: it does not name"), "{torn}");
    }
}
