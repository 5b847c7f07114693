//! The idempotent sink: a table, one line a key.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use crate::connector::file::ledger::Sum;
use crate::connector::file::{FLUSHED, WriteLine, damaged, destination, failed};
use crate::durable;
use crate::element::Record;
use crate::guarantee::SinkContract;
use crate::operator::sink::{Sink, SinkError, SinkPlace};

/// Keeps the latest line of each key and replaces `part-<subtask>.ndjson` in a folder as a whole at
/// each flush. The lines stand in the order of their keys.
///
/// Keys that an attempt does not touch stay as earlier ones left them: the file is read at the
/// start. Beside it `.<its name>.flushed` says by length and checksum what it may hold: what it
/// held before the last flush, or after it. One that holds anything else is refused.
pub struct TableFileSink<T> {
    folder: PathBuf,
    format: TableFormat<T>,
    path: PathBuf,
    lines: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the file holds, if it is there.
    sum: Option<Sum>,
    /// Records were written since the last flush.
    is_changed: bool,
}

/// How records become lines and back.
pub struct TableFormat<T> {
    /// Appends a record as one line.
    pub write_line: WriteLine<T>,
    /// Reads it back, from the line without its end.
    pub read_line: fn(&[u8]) -> Option<T>,
    /// What a record replaces: its key.
    pub key_of: fn(&T) -> Vec<u8>,
}

impl<T> Clone for TableFormat<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TableFormat<T> {}

impl<T> TableFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, format: TableFormat<T>) -> Self {
        let (folder, path) = (folder.into(), PathBuf::new());
        Self { folder, format, path, lines: BTreeMap::new(), sum: None, is_changed: false }
    }

    fn load(&mut self) -> Result<(), SinkError> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.check(),
            bytes => bytes.map_err(|error| failed(&self.path, &error))?,
        };
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let record = (self.format.read_line)(line.trim_ascii_end()).ok_or_else(|| {
                damaged(&self.path, format_args!("line {} is not a row", number + 1))
            })?;
            self.lines.insert((self.format.key_of)(&record), line.to_vec());
        }
        self.sum = Some(Sum::of(&bytes));
        self.check()
    }

    /// Checks that the file holds what it may.
    fn check(&self) -> Result<(), SinkError> {
        let path = self.flushed();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            text => text.map_err(|error| failed(&path, &error))?,
        };
        match text.lines().any(|line| line == word(self.sum)) {
            true => Ok(()),
            false if self.sum.is_none() => Err(damaged(&self.path, "it is gone")),
            false => Err(damaged(&self.path, "it does not hold what was flushed to it")),
        }
    }

    fn flushed(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.folder.join(format!(".{name}{FLUSHED}"))
    }
}

/// A sum as it is written down.
fn word(sum: Option<Sum>) -> String {
    sum.map_or("none".to_owned(), |sum| sum.to_string())
}

impl<T> Clone for TableFileSink<T> {
    /// The copy has no rows.
    fn clone(&self) -> Self {
        Self::new(self.folder.clone(), self.format)
    }
}

impl<T: Record> Sink for TableFileSink<T> {
    type Record = T;

    fn contract(&self) -> SinkContract {
        SinkContract::Idempotent
    }

    fn key_of(&self, record: &T) -> Vec<u8> {
        (self.format.key_of)(record)
    }

    fn destination(&self) -> Option<String> {
        Some(destination(&self.folder))
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        durable::create_folder(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        self.path = self.folder.join(format!("part-{}.ndjson", place.subtask));
        self.load()
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        for record in &records {
            let line = self.lines.entry((self.format.key_of)(record)).or_default();
            line.clear();
            (self.format.write_line)(record, line);
        }
        self.is_changed = true;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        if !self.is_changed {
            return Ok(());
        }
        let rows: Vec<u8> = self.lines.values().flatten().copied().collect();
        let (sum, flushed) = (Some(Sum::of(&rows)), self.flushed());
        let words = format!("{}\n{}\n", word(self.sum), word(sum));
        durable::replace(&flushed, words.as_bytes())
            .map_err(|error| failed(&flushed, &error.into()))?;
        durable::replace(&self.path, &rows).map_err(|error| failed(&self.path, &error.into()))?;
        self.sum = sum;
        self.is_changed = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::file::tests::{place, read, write_number};

    /// Numbers, keyed by their last digit.
    const DIGITS: TableFormat<u64> = TableFormat {
        write_line: write_number,
        read_line: |line| std::str::from_utf8(line).ok()?.parse().ok(),
        key_of: |number| vec![(number % 10) as u8],
    };

    #[test]
    fn the_latest_row_of_each_key_is_there_after_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TableFileSink::new(folder.path(), DIGITS);
        sink.open(&place(2, 1)).unwrap();
        sink.write(vec![12, 31, 22]).unwrap();
        let file = folder.path().join("part-2.ndjson");
        assert!(!file.exists(), "rows are replaced at the flush, as a whole");
        sink.flush().unwrap();
        assert_eq!(read(&file), "31\n22\n");
    }

    #[test]
    fn rows_that_a_later_attempt_does_not_touch_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TableFileSink::new(folder.path(), DIGITS);
        sink.open(&place(0, 1)).unwrap();
        sink.write(vec![12, 31]).unwrap();
        sink.flush().unwrap();
        let mut later = sink.clone();
        later.open(&place(0, 2)).unwrap();
        later.write(vec![42]).unwrap();
        later.flush().unwrap();
        let file = folder.path().join("part-0.ndjson");
        assert_eq!(read(&file), "31\n42\n");
        fs::write(&file, "31\nx\n").unwrap();
        let error = later.open(&place(0, 3)).unwrap_err().to_string();
        assert!(error.contains("part-0.ndjson: line 2 is not a row"), "{error}");
    }

    #[test]
    fn a_table_that_does_not_hold_what_was_flushed_to_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = TableFileSink::new(folder.path(), DIGITS);
        sink.open(&place(0, 1)).unwrap();
        let file = folder.path().join("part-0.ndjson");
        let mut contents = Vec::new();
        for number in [31, 12, 42] {
            sink.write(vec![number]).unwrap();
            sink.flush().unwrap();
            contents.push(read(&file));
        }
        let open = |attempt| sink.clone().open(&place(0, attempt));
        for cut in ["31\n", "", "31\n43\n"] {
            fs::write(&file, cut).unwrap();
            let error = open(2).unwrap_err().to_string();
            assert!(error.contains("part-0.ndjson: it does not hold what was flushed"), "{error}");
        }
        fs::remove_file(&file).unwrap();
        assert!(open(2).unwrap_err().to_string().contains("part-0.ndjson: it is gone"));
        for whole in &contents[1..] {
            fs::write(&file, whole).unwrap();
            assert_eq!(open(2), Ok(()), "a crash may come before the last flush is through");
        }
    }
}
