//! The plain sink: lines are in the file at once and can not be taken back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::connector::file::{FLUSHED, WriteLine, damaged, destination, failed};
use crate::durable;
use crate::element::Record;
use crate::operator::sink::{Sink, SinkError, SinkPlace};

/// Appends lines to `part-<attempt>-<subtask>.ndjson` in a folder, one write for a batch.
///
/// The file is made with the first line. A crash can tear the last one. When a later attempt opens,
/// the torn last lines of this subtask's earlier files are cut, so that every line that stays is
/// whole.
///
/// Beside each file `.<its name>.flushed` says how long it was at the last flush, which a
/// checkpoint may rest on; it is made with the file. An earlier file that is shorter by now, or
/// gone, is refused.
pub struct PlainFileSink<T> {
    folder: PathBuf,
    write_line: WriteLine<T>,
    /// The name of this attempt's file; empty before the sink is opened.
    name: String,
    file: Option<File>,
    buffer: Vec<u8>,
    /// Something was written since the last flush.
    is_changed: bool,
}

impl<T> PlainFileSink<T> {
    /// Writes into `folder`, which is made if it is not there.
    pub fn new(folder: impl Into<PathBuf>, write_line: WriteLine<T>) -> Self {
        Self {
            folder: folder.into(),
            write_line,
            name: String::new(),
            file: None,
            buffer: Vec::new(),
            is_changed: false,
        }
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let path = self.folder.join(&self.name);
                let file = OpenOptions::new().create(true).append(true).open(path)?;
                durable::sync_folder(&self.folder)?;
                // From now on it is missed.
                durable::replace(&self.folder.join(flushed_name(&self.name)), b"0")?;
                self.file.insert(file)
            }
        };
        file.write_all(&self.buffer)
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

    fn destination(&self) -> Option<String> {
        Some(destination(&self.folder))
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        let folder = &self.folder;
        let refused = |error| failed(folder, &error);
        durable::create_folder(folder).map_err(refused)?;
        let suffix = format!("-{}.ndjson", place.subtask);
        for (name, path) in durable::names_in(folder).map_err(refused)? {
            let is_own = |name: &str| name.starts_with("part-") && name.ends_with(&suffix);
            if is_own(&name) {
                cut_torn_line(&path)?;
            } else if let Some(part) = flushed_part(&name).filter(|part| is_own(part)) {
                check_length(&folder.join(part), &path)?;
            }
        }
        self.name = format!("part-{}{suffix}", place.attempt.get());
        Ok(())
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        self.buffer.clear();
        for record in &records {
            (self.write_line)(record, &mut self.buffer);
        }
        self.is_changed = true;
        self.write_buffer().map_err(|error| failed(&self.folder.join(&self.name), &error))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let Some(file) = self.file.as_ref().filter(|_| self.is_changed) else { return Ok(()) };
        let length = file.sync_data().and_then(|()| Ok(file.metadata()?.len()));
        let length = length.map_err(|error| failed(&self.folder.join(&self.name), &error))?;
        let path = self.folder.join(flushed_name(&self.name));
        durable::replace(&path, length.to_string().as_bytes())
            .map_err(|error| failed(&path, &error.into()))?;
        self.is_changed = false;
        Ok(())
    }
}

fn flushed_name(part: &str) -> String {
    format!(".{part}{FLUSHED}")
}

/// The part file whose flushed length the file of this name holds, if it holds one.
fn flushed_part(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(FLUSHED)
}

/// Checks that a part file still has all that was flushed to it.
fn check_length(part: &Path, flushed: &Path) -> Result<(), SinkError> {
    let text = fs::read_to_string(flushed).map_err(|error| failed(flushed, &error))?;
    let length: u64 = text.parse().map_err(|_| damaged(flushed, "it holds no length"))?;
    let found = match fs::metadata(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && length == 0 => {
            return Err(damaged(part, "it is gone"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        found => found.map_err(|error| failed(part, &error))?.len(),
    };
    if found < length {
        let what = format!("it holds {found} bytes of the {length} that a checkpoint may rest on");
        return Err(damaged(part, what));
    }
    Ok(())
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
    fn an_attempt_that_writes_nothing_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = PlainFileSink::new(folder.path(), write_number);
        sink.open(&place(0, 1)).unwrap();
        sink.flush().unwrap();
        assert!(durable::names_in(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_shorter_than_at_its_flush_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = PlainFileSink::new(folder.path(), write_number);
        sink.open(&place(0, 1)).unwrap();
        sink.write(vec![1, 2]).unwrap();
        sink.flush().unwrap();
        sink.write(vec![3]).unwrap();
        let file = folder.path().join("part-1-0.ndjson");
        fs::write(&file, "1\n2\n").unwrap();
        sink.clone().open(&place(0, 2)).unwrap();
        let refusal = |attempt| match sink.clone().open(&place(0, attempt)) {
            Err(SinkError::Damaged(text)) => text,
            other => panic!("{other:?}"),
        };
        fs::write(&file, "1\n2").unwrap();
        let text = refusal(3);
        assert!(text.contains("part-1-0.ndjson: it holds 3 bytes of the 4"), "{text}");
        fs::remove_file(&file).unwrap();
        assert!(refusal(4).contains("it holds 0 bytes of the 4"));
        sink.clone().open(&place(1, 4)).unwrap();
    }

    #[test]
    fn the_files_of_another_subtask_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("part-1-10.ndjson");
        fs::write(&other, "torn").unwrap();
        PlainFileSink::new(folder.path(), write_number).open(&place(0, 2)).unwrap();
        assert_eq!(read(&other), "torn");
    }

    #[test]
    fn a_file_that_is_gone_before_its_first_flush_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = PlainFileSink::new(folder.path(), write_number);
        sink.open(&place(0, 1)).unwrap();
        sink.write(vec![1, 2]).unwrap();
        let file = folder.path().join("part-1-0.ndjson");
        fs::write(&file, "1").unwrap();
        assert_eq!(sink.clone().open(&place(0, 2)), Ok(()), "nothing rests on its rows");
        fs::remove_file(&file).unwrap();
        let error = sink.clone().open(&place(0, 2)).unwrap_err().to_string();
        assert!(error.contains("part-1-0.ndjson: it is gone"), "{error}");
    }
}
