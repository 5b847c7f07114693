//! The two-phase sink: a file for each transaction, whose name says how far it has come.
//! ```text
//! .part-S-A-N.inprogress --prepare: flush, sync, rename--> .part-S-A-N-BYTES-SUM.pending
//!                                          --commit: rename, sync folder--> part-S-A-N.ndjson
//! ```
//! S is the subtask, A the attempt, N the how-manieth transaction of the two. Attempt numbers grow
//! over restarts of the process, so that no name comes twice. BYTES and SUM are length and
//! checksum, without which the file is not committed. They are in its name since that costs no
//! sync.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use crate::connector::file::ledger::{self, Sum, Summing};
use crate::connector::file::{WriteLine, damaged, destination, failed, stem};
use crate::durable;
use crate::element::Record;
use crate::id::{AttemptId, SubtaskIndex, TransactionId};
use crate::operator::sink::{CommitError, Committed, SinkError, SinkPlace, TransactionalSink};

/// Writes lines into files that appear, whole and final, when their transaction is committed.
pub struct TransactionalFileSink<T> {
    folder: PathBuf,
    write_line: WriteLine<T>,
    place: Option<SinkPlace>,
    open: Option<OpenFile>,
    /// Pending files that are known.
    pending: BTreeMap<TransactionId, Sum>,
    buffer: Vec<u8>,
}

/// A transaction that is written to.
struct OpenFile {
    id: TransactionId,
    file: BufWriter<File>,
    summing: Summing,
}

impl<T> TransactionalFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, write_line: WriteLine<T>) -> Self {
        let (folder, pending) = (folder.into(), BTreeMap::new());
        Self { folder, write_line, place: None, open: None, pending, buffer: Vec::new() }
    }

    fn in_progress(&self, transaction: TransactionId) -> PathBuf {
        self.folder.join(format!(".{}{IN_PROGRESS}", stem(transaction)))
    }

    fn pending(&self, transaction: TransactionId, sum: Sum) -> PathBuf {
        self.folder.join(format!(".{}-{sum}{PENDING}", stem(transaction)))
    }

    /// Length and checksum of a transaction that is pending, whoever has prepared it.
    fn find_pending(&mut self, transaction: TransactionId) -> Result<Option<Sum>, SinkError> {
        if !self.pending.contains_key(&transaction) {
            let names = durable::names_in(&self.folder);
            for (name, _) in names.map_err(|error| failed(&self.folder, &error))? {
                self.pending.extend(pending_of(&name, transaction));
            }
        }
        let known = self.pending.get(&transaction).copied();
        // It may have been aborted since.
        Ok(known.filter(|sum| self.pending(transaction, *sum).is_file()))
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
        ledger::check(&self.folder, place, |transaction, sum| self.pending(transaction, sum))
    }

    fn write(&mut self, transaction: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let path = self.in_progress(transaction);
        if self.open.is_none() {
            let file = File::create(&path).map_err(|error| failed(&path, &error))?;
            let (file, summing) = (BufWriter::new(file), Summing::default());
            self.open = Some(OpenFile { id: transaction, file, summing });
        }
        let open = self.open.as_mut().expect("opened just now, if not before");
        assert_eq!(open.id, transaction, "a transaction is prepared before the next one begins");
        self.buffer.clear();
        for record in &records {
            (self.write_line)(record, &mut self.buffer);
        }
        open.summing.add(&self.buffer);
        open.file.write_all(&self.buffer).map_err(|error| failed(&path, &error))
    }

    fn prepare(&mut self, transaction: TransactionId) -> Result<(), SinkError> {
        let open = self.open.take().expect("what is prepared has been written to");
        assert_eq!(open.id, transaction, "a transaction is prepared before the next one begins");
        let sum = open.summing.sum();
        let pending = self.pending(transaction, sum);
        open.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(self.in_progress(transaction), &pending))
            .and_then(|()| durable::sync_folder(&self.folder))
            .map_err(|error| failed(&pending, &error))?;
        // Where another task commits nobody tells this one.
        let mut known = std::mem::take(&mut self.pending);
        known.retain(|id, sum| self.pending(*id, *sum).is_file());
        known.insert(transaction, sum);
        self.pending = known;
        Ok(())
    }

    fn commit(&mut self, transaction: TransactionId) -> Result<Committed, CommitError> {
        let committed = self.committed(transaction);
        let outcome = match self.find_pending(transaction)? {
            Some(sum) => {
                let pending = self.pending(transaction, sum);
                sum.check(&pending)?;
                ledger::note(&self.folder, transaction, sum)?;
                fs::rename(&pending, &committed).map_err(|error| failed(&pending, &error))?;
                self.pending.remove(&transaction);
                Committed::Now
            }
            // Committed before, as it should be, it only has to be made durable.
            None => {
                if !committed.is_file() {
                    let text = "the checkpoint says that it is there, or was prepared to be: it \
                                rests on the output that it was taken with";
                    return Err(damaged(&committed, text).into());
                }
                if let Some(sum) = ledger::noted(&self.folder, transaction)? {
                    sum.check(&committed)?;
                }
                Committed::Before
            }
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

/// What the name of a pending file says. It knows nothing of the vertex, which is that of `like`.
fn pending_of(name: &str, like: TransactionId) -> Option<(TransactionId, Sum)> {
    let mut numbers = name.strip_prefix(".part-")?.strip_suffix(PENDING)?.splitn(4, '-');
    let subtask = SubtaskIndex::new(numbers.next()?.parse().ok()?);
    let attempt = AttemptId::new(numbers.next()?.parse().ok()?);
    let sequence = numbers.next()?.parse().ok()?;
    let id = TransactionId { subtask, attempt, sequence, ..like };
    Some((id, Sum::parse(numbers.next()?)?))
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
        let sum = Sum::of(b"1\n2\n");
        assert_eq!(names(folder.path()), [format!(".part-1-4-0-{sum}.pending")]);
        assert_eq!(sink.commit(id(4, 0)), Ok(Committed::Now));
        assert_eq!(sink.commit(id(4, 0)), Ok(Committed::Before));
        assert_eq!(names(folder.path()), [".part-1.shown", "part-1-4-0.ndjson"]);
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
        let left = [".part-1.shown", ".part-11-4-0.pending", "part-1-4-0.ndjson"];
        assert_eq!(names(folder.path()), left);
        let neither = later.commit(id(4, 1)).unwrap_err();
        assert!(matches!(&neither, CommitError::Lost(text) if text.contains("part-1-4-1.ndjson")));
    }

    #[test]
    fn only_the_file_that_was_prepared_is_committed_and_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TransactionalFileSink::new(folder.path(), write_number);
        sink.open(&place(1, 4)).unwrap();
        sink.write(id(4, 0), vec![1, 2]).unwrap();
        sink.prepare(id(4, 0)).unwrap();
        let pending = folder.path().join(&names(folder.path())[0]);
        for (bytes, wanted) in [
            (&b"1\n2"[..], "it has 3 bytes, and 4 were written"),
            (b"1\n", "it has 2 bytes"),
            (b"", "it has 0 bytes"),
            (b"1\n3\n", "its bytes are not those"),
        ] {
            fs::write(&pending, bytes).unwrap();
            for committer in [&mut sink.clone(), &mut sink] {
                let lost = committer.commit(id(4, 0)).unwrap_err();
                let is_said = |text: &str| text.contains("pending: ") && text.contains(wanted);
                assert!(matches!(&lost, CommitError::Lost(text) if is_said(text)), "{lost}");
            }
        }
        fs::write(&pending, "1\n2\n").unwrap();
        assert_eq!(sink.commit(id(4, 0)), Ok(Committed::Now));
        let part = folder.path().join("part-1-4-0.ndjson");
        fs::write(&part, "1\n3\n").unwrap();
        assert!(matches!(sink.commit(id(4, 0)), Err(CommitError::Lost(_))), "flipped");
        fs::write(&part, "1\n").unwrap();
        let refused = sink.clone().open(&place(1, 5)).unwrap_err().to_string();
        assert!(refused.contains("part-1-4-0.ndjson: it has 2 bytes, and 4"), "{refused}");
        fs::remove_file(&part).unwrap();
        let refused = sink.clone().open(&place(1, 5)).unwrap_err().to_string();
        assert!(refused.contains("part-1-4-0.ndjson: it is gone"), "{refused}");
    }
}
