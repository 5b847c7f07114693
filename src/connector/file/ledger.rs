//! What sinks keep beside their files so that a later attempt misses what is gone, cut or changed.
//! `.part-S.shown` has a line for each file of subtask S that became visible: attempt, number,
//! bytes and checksum.
//!
//! It is written without waiting for the disk. A loss of power may take its last lines, and cut one
//! of them: what it does not know of is not missed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::connector::file::{damaged, failed, stem};
use crate::durable;
use crate::id::{AttemptId, SubtaskIndex, TransactionId, VertexId};
use crate::operator::sink::{SinkError, SinkPlace};

/// The length of a file and the CRC-32 of all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) bytes: u64,
    checksum: u32,
}

/// A sum of what comes piece by piece.
#[derive(Default)]
pub(super) struct Summing {
    bytes: u64,
    hasher: crc32fast::Hasher,
}

impl Summing {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hasher.update(bytes);
    }

    pub(super) fn sum(self) -> Sum {
        Sum { bytes: self.bytes, checksum: self.hasher.finalize() }
    }
}

impl Sum {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut summing = Summing::default();
        summing.add(bytes);
        summing.sum()
    }

    /// Of the file at `path`, which is read as a whole.
    pub(super) fn of_file(path: &Path) -> io::Result<Self> {
        let (mut file, mut summing) = (File::open(path)?, Summing::default());
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match file.read(&mut chunk)? {
                0 => return Ok(summing.sum()),
                read => summing.add(&chunk[..read]),
            }
        }
    }

    /// As it is displayed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (bytes, checksum) = text.split_once('-')?;
        let checksum = u32::from_str_radix(checksum, 16).ok().filter(|_| checksum.len() == 8)?;
        Some(Self { bytes: bytes.parse().ok()?, checksum })
    }

    /// Checks that the file at `path` is still the one of this sum.
    pub(super) fn check(self, path: &Path) -> Result<(), SinkError> {
        match Self::of_file(path) {
            Ok(found) if found == self => Ok(()),
            Ok(found) => Err(self.differs(path, found.bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(damaged(path, GONE)),
            Err(error) => Err(failed(path, &error)),
        }
    }

    fn differs(self, path: &Path, found: u64) -> SinkError {
        let bytes = self.bytes;
        match found == bytes {
            true => damaged(path, "its bytes are not those that were written"),
            false => damaged(path, format_args!("it has {found} bytes, and {bytes} were written")),
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08x}", self.bytes, self.checksum)
    }
}

/// Notes that the file of a transaction is visible, or is about to be.
pub(super) fn note(folder: &Path, id: TransactionId, sum: Sum) -> Result<(), SinkError> {
    let path = path(folder, id.subtask);
    let line = format!("{} {} {sum}\n", id.attempt.get(), id.sequence);
    let written = OpenOptions::new().create(true).append(true).open(&path);
    written
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| failed(&path, &error))
}

/// What was noted of a transaction's file last.
pub(super) fn noted(folder: &Path, id: TransactionId) -> Result<Option<Sum>, SinkError> {
    let sums = read(&path(folder, id.subtask))?;
    Ok(sums.get(&(id.attempt.get(), id.sequence)).copied())
}

/// Checks that the files are there which the subtask at `place`, and those that it takes over from,
/// have shown, each with its length, and those that the restored state knows to be shown. `pending`
/// is where one lies that is not visible yet.
pub(super) fn check(
    folder: &Path,
    place: &SinkPlace,
    pending: impl Fn(TransactionId, Sum) -> PathBuf,
) -> Result<(), SinkError> {
    let names = durable::names_in(folder).map_err(|error| failed(folder, &error))?;
    for (name, path) in names {
        let subtask = name.strip_prefix(".part-").and_then(|name| name.strip_suffix(SHOWN));
        let subtask = subtask.and_then(|subtask| subtask.parse().ok()).map(SubtaskIndex::new);
        let Some(subtask) = subtask.filter(|subtask| place.takes_over(*subtask)) else { continue };
        for ((attempt, sequence), sum) in read(&path)? {
            // Names of files know nothing of the vertex.
            let (vertex, attempt) = (VertexId::new(0), AttemptId::new(attempt));
            let id = TransactionId { vertex, subtask, attempt, sequence };
            let part = part(folder, id);
            match fs::metadata(&part) {
                Ok(found) if found.len() == sum.bytes => {}
                Ok(found) => return Err(sum.differs(&part, found.len())),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&part, &error));
                }
                // Another task may make it visible just now: it is looked for once more.
                Err(_) if pending(id, sum).is_file() || part.is_file() => {}
                Err(_) => return Err(damaged(&part, GONE)),
            }
        }
    }
    // A folder that was put back as a whole lacks what says so too.
    let mut shown = place.shown.iter().map(|id| part(folder, *id));
    match shown.find(|part| !part.is_file()) {
        Some(gone) => Err(damaged(&gone, GONE)),
        None => Ok(()),
    }
}

fn part(folder: &Path, id: TransactionId) -> PathBuf {
    folder.join(format!("{}.ndjson", stem(id)))
}

/// By attempt and number; what makes no sense was cut.
fn read(path: &Path) -> Result<BTreeMap<(u64, u64), Sum>, SinkError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => bytes.map_err(|error| failed(path, &error))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let key = (number()?, number()?);
        let sum = Sum::parse(words.next()?)?;
        words.next().is_none().then_some((key, sum))
    };
    Ok(text.lines().filter_map(entry).collect())
}

fn path(folder: &Path, subtask: SubtaskIndex) -> PathBuf {
    folder.join(format!(".part-{subtask}{SHOWN}"))
}

const SHOWN: &str = ".shown";

const GONE: &str = "it is gone, and was shown";

const CHUNK_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::file::tests::{id, place};

    #[test]
    fn a_file_that_was_shown_is_missed_when_it_is_gone_or_cut() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let part = folder.join("part-1-4-0.ndjson");
        let check = |subtask| check(folder, &place(subtask, 5), |_, _| folder.join("pending"));
        note(folder, id(4, 0), Sum::of(b"1\n2\n")).unwrap();
        for bytes in [&b"1\n2\n"[..], b"1\n3\n"] {
            fs::write(&part, bytes).unwrap();
            assert_eq!(check(1), Ok(()));
        }
        let sum = noted(folder, id(4, 0)).unwrap().unwrap();
        assert!(sum.check(&part).unwrap_err().to_string().contains("its bytes are not those"));
        fs::write(&part, "1\n").unwrap();
        let cut = check(1).unwrap_err().to_string();
        assert!(cut.contains("part-1-4-0.ndjson: it has 2 bytes, and 4 were written"), "{cut}");
        fs::remove_file(&part).unwrap();
        assert!(check(1).unwrap_err().to_string().contains("part-1-4-0.ndjson: it is gone"));
        assert_eq!(check(0), Ok(()), "another subtask's");
        fs::write(folder.join("pending"), "").unwrap();
        assert_eq!(check(1), Ok(()), "a crash came before it was made visible");
    }

    #[test]
    fn what_the_restored_state_knows_to_be_shown_is_missed_though_no_ledger_knows_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let shown = SinkPlace { shown: vec![id(4, 0)], ..place(1, 5) };
        let check = || check(folder, &shown, |_, _| folder.join("pending"));
        fs::write(folder.join("pending"), "").unwrap();
        assert!(check().unwrap_err().to_string().contains("part-1-4-0.ndjson: it is gone"));
        fs::write(folder.join("part-1-4-0.ndjson"), "").unwrap();
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn lines_that_were_cut_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join(".part-1.shown");
        fs::write(&ledger, "4 0 2-0000000f\n4 1 2-0000\n4 24 3 2-0000000f\n\0\0").unwrap();
        assert_eq!(read(&ledger).unwrap().keys().collect::<Vec<_>>(), [&(4, 0)]);
    }
}
