//! The two-phase sink: a file for each transaction, whose name says how far it has come.
//! ```text
//! .part-S-A-N.inprogress --prepare: flush, sync, rename--> .part-S-A-N.pending
//!                                          --commit: rename, sync folder--> part-S-A-N.ndjson
//! ```
//! S is the subtask, A the attempt, N the how-manieth transaction of the two. Attempt numbers grow
//! over restarts of the process, so that no name comes twice.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::connector::file::{WriteLine, damaged, destination, failed, stem};
use crate::durable;
use crate::element::Record;
use crate::id::{SubtaskIndex, TransactionId};
use crate::operator::sink::{CommitError, Committed, SinkError, SinkPlace, TransactionalSink};

/// Writes lines into files that appear, whole and final, when their transaction is committed.
pub struct TransactionalFileSink<T> {
    folder: PathBuf,
    write_line: WriteLine<T>,
    place: Option<SinkPlace>,
    open: Option<(TransactionId, BufWriter<File>)>,
    buffer: Vec<u8>,
}

impl<T> TransactionalFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, write_line: WriteLine<T>) -> Self {
        Self { folder: folder.into(), write_line, place: None, open: None, buffer: Vec::new() }
    }

    fn in_progress(&self, transaction: TransactionId) -> PathBuf {
        self.folder.join(format!(".{}{IN_PROGRESS}", stem(transaction)))
    }

    fn pending(&self, transaction: TransactionId) -> PathBuf {
        self.folder.join(format!(".{}{PENDING}", stem(transaction)))
    }

    fn committed(&self, transaction: TransactionId) -> PathBuf {
        self.folder.join(format!("{}.ndjson", stem(transaction)))
    }
}

impl<T> Clone for TransactionalFileSink<T> {
    /// The copy has no file open.
    fn clone(&self) -> Self {
        Self::new(self.folder.clone(), self.write_line)
    }
}

impl<T: Record> TransactionalSink for TransactionalFileSink<T> {
    type Record = T;

    fn destination(&self) -> Option<String> {
        Some(destination(&self.folder))
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        durable::create_folder(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        self.place = Some(place.clone());
        Ok(())
    }

    fn write(&mut self, transaction: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let path = self.in_progress(transaction);
        if self.open.is_none() {
            let file = File::create(&path).map_err(|error| failed(&path, &error))?;
            self.open = Some((transaction, BufWriter::new(file)));
        }
        let (id, file) = self.open.as_mut().expect("opened just now, if not before");
        assert_eq!(*id, transaction, "a transaction is prepared before the next one begins");
        self.buffer.clear();
        for record in &records {
            (self.write_line)(record, &mut self.buffer);
        }
        file.write_all(&self.buffer).map_err(|error| failed(&path, &error))
    }

    fn prepare(&mut self, transaction: TransactionId) -> Result<(), SinkError> {
        let (id, file) = self.open.take().expect("what is prepared has been written to");
        assert_eq!(id, transaction, "a transaction is prepared before the next one begins");
        let pending = self.pending(transaction);
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(self.in_progress(transaction), &pending))
            .and_then(|()| durable::sync_folder(&self.folder))
            .map_err(|error| failed(&pending, &error))
    }

    fn commit(&mut self, transaction: TransactionId) -> Result<Committed, CommitError> {
        let (pending, committed) = (self.pending(transaction), self.committed(transaction));
        let outcome = match fs::rename(&pending, &committed) {
            Ok(()) => Committed::Now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Committed before, as it should be, it only has to be made durable.
                if !committed.is_file() {
                    return Err(damaged(&committed, "the checkpoint says that it is there").into());
                }
                Committed::Before
            }
            Err(error) => return Err(failed(&pending, &error).into()),
        };
        let synced = durable::sync_folder(&self.folder);
        synced.map_err(|error| failed(&self.folder, &error))?;
        Ok(outcome)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        let place = self.place.as_ref().expect("a sink is opened first");
        let is_earlier = |name: &str| -> bool {
            let mut numbers = name.strip_prefix(".part-").into_iter().flat_map(|n| n.split('-'));
            let subtask = numbers.next().and_then(|subtask| subtask.parse::<u32>().ok());
            let attempt = numbers.next().and_then(|attempt| attempt.parse::<u64>().ok());
            subtask.is_some_and(|subtask| place.takes_over(SubtaskIndex::new(subtask)))
                && attempt.is_some_and(|attempt| attempt < place.attempt.get())
                && (name.ends_with(IN_PROGRESS) || name.ends_with(PENDING))
        };
        let names = durable::names_in(&self.folder);
        for (name, path) in names.map_err(|error| failed(&self.folder, &error))? {
            if is_earlier(&name) {
                durable::remove(&path).map_err(|error| failed(&path, &error))?;
            }
        }
        durable::sync_folder(&self.folder).map_err(|error| failed(&self.folder, &error))
    }
}

const IN_PROGRESS: &str = ".inprogress";
const PENDING: &str = ".pending";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::file::tests::{id, place, read, write_number};

    fn names(folder: &std::path::Path) -> Vec<String> {
        durable::names_in(folder).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_file_appears_whole_when_committed_and_committing_again_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TransactionalFileSink::new(folder.path(), write_number);
        sink.open(&place(1, 4)).unwrap();
        sink.write(id(4, 0), vec![1]).unwrap();
        sink.write(id(4, 0), vec![2]).unwrap();
        assert_eq!(names(folder.path()), [".part-1-4-0.inprogress"]);
        sink.prepare(id(4, 0)).unwrap();
        assert_eq!(names(folder.path()), [".part-1-4-0.pending"]);
        assert_eq!(sink.commit(id(4, 0)), Ok(Committed::Now));
        assert_eq!(sink.commit(id(4, 0)), Ok(Committed::Before));
        assert_eq!(names(folder.path()), ["part-1-4-0.ndjson"]);
        assert_eq!(read(&folder.path().join("part-1-4-0.ndjson")), "1\n2\n");
    }

    #[test]
    fn a_later_attempt_commits_what_it_is_told_and_aborts_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TransactionalFileSink::new(folder.path(), write_number);
        sink.open(&place(1, 4)).unwrap();
        for sequence in 0..2 {
            sink.write(id(4, sequence), vec![sequence]).unwrap();
            sink.prepare(id(4, sequence)).unwrap();
        }
        sink.write(id(4, 2), vec![2]).unwrap();
        fs::write(folder.path().join(".part-11-4-0.pending"), "another subtask's").unwrap();
        let mut later = sink.clone();
        later.open(&place(1, 5)).unwrap();
        later.commit(id(4, 0)).unwrap();
        later.abort_dangling().unwrap();
        assert_eq!(names(folder.path()), [".part-11-4-0.pending", "part-1-4-0.ndjson"]);
        let neither = later.commit(id(4, 1)).unwrap_err();
        assert!(matches!(&neither, CommitError::Lost(text) if text.contains("part-1-4-1.ndjson")));
    }
}
