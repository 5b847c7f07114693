//! The plain sink: lines are in the file at once and can not be taken back.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::connector::file::{WriteLine, failed};
use crate::durable;
use crate::element::Record;
use crate::operator::sink::{Sink, SinkError, SinkPlace};

/// Appends lines to `part-<attempt>-<subtask>.ndjson` in a folder, one write for a batch.
///
/// A crash can tear the last line. When a later attempt opens, the torn last lines of this
/// subtask's earlier files are cut, so that every line that stays is whole.
pub struct PlainFileSink<T> {
    folder: PathBuf,
    write_line: WriteLine<T>,
    file: Option<(PathBuf, File)>,
    buffer: Vec<u8>,
}

impl<T> PlainFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, write_line: WriteLine<T>) -> Self {
        Self { folder: folder.into(), write_line, file: None, buffer: Vec::new() }
    }
}

impl<T> Clone for PlainFileSink<T> {
    /// The copy has no file open.
    fn clone(&self) -> Self {
        Self::new(self.folder.clone(), self.write_line)
    }
}

impl<T: Record> Sink for PlainFileSink<T> {
    type Record = T;

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        let folder = &self.folder;
        let refused = |error| failed(folder, &error);
        durable::create_folder(folder).map_err(refused)?;
        let suffix = format!("-{}.ndjson", place.subtask);
        for (name, path) in durable::names_in(folder).map_err(refused)? {
            if name.starts_with("part-") && name.ends_with(&suffix) {
                cut_torn_line(&path)?;
            }
        }
        let path = folder.join(format!("part-{}{suffix}", place.attempt.get()));
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        durable::sync_folder(folder).map_err(refused)?;
        self.file = Some((path, file));
        Ok(())
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        let (path, file) = self.file.as_mut().expect("a sink is opened first");
        self.buffer.clear();
        for record in &records {
            (self.write_line)(record, &mut self.buffer);
        }
        file.write_all(&self.buffer).map_err(|error| failed(path, &error))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let (path, file) = self.file.as_mut().expect("a sink is opened first");
        file.sync_data().map_err(|error| failed(path, &error))
    }
}

/// Cuts what stands behind the last line end.
fn cut_torn_line(path: &Path) -> Result<(), SinkError> {
    let cut = || {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len = file.metadata()?.len();
        let whole = end_of_last_line(&file, len)?;
        if whole < len {
            file.set_len(whole)?;
            file.sync_all()?;
        }
        Ok(())
    };
    cut().map_err(|error| failed(path, &error))
}

/// Looks for the last line end from the back, so that a long file is not read as a whole.
fn end_of_last_line(mut file: &File, len: u64) -> io::Result<u64> {
    let mut end = len;
    let mut chunk = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(CHUNK_BYTES);
        file.seek(SeekFrom::Start(start))?;
        chunk.clear();
        file.take(end - start).read_to_end(&mut chunk)?;
        if let Some(newline) = memchr::memrchr(b'\n', &chunk) {
            return Ok(start + newline as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

const CHUNK_BYTES: u64 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::connector::file::tests::{place, read, write_number};

    #[test]
    fn whole_lines_stay_and_a_torn_last_one_is_cut_by_the_next_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = PlainFileSink::new(folder.path().join("out"), write_number);
        sink.open(&place(0, 1)).unwrap();
        sink.write(vec![1, 2]).unwrap();
        let file = folder.path().join("out/part-1-0.ndjson");
        assert_eq!(read(&file), "1\n2\n", "visible before any flush");
        fs::write(&file, format!("1\n{}", "x".repeat(200_000))).unwrap();
        let mut later = sink.clone();
        later.open(&place(0, 2)).unwrap();
        later.write(vec![3]).unwrap();
        later.flush().unwrap();
        assert_eq!(read(&file), "1\n");
        assert_eq!(read(&folder.path().join("out/part-2-0.ndjson")), "3\n");
    }

    #[test]
    fn the_files_of_another_subtask_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("part-1-10.ndjson");
        fs::write(&other, "torn").unwrap();
        PlainFileSink::new(folder.path(), write_number).open(&place(0, 2)).unwrap();
        assert_eq!(read(&other), "torn");
    }
}
