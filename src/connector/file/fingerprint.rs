//! What tells whether a file still holds what it held when a run first read it.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::connector::file::source::{BUFFER_BYTES, open_regular, unreadable};
use crate::operator::source::SourceError;

/// The length of a file and a checksum of all its bytes, as they were at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    bytes: u64,
    /// CRC-32.
    checksum: u32,
    /// When the file was last written, in nanoseconds since 1970. While that and the length are the
    /// same the bytes are not read again.
    modified_ns: u64,
}

impl Fingerprint {
    /// The fingerprint of the file at `path`, which is read as a whole.
    ///
    /// # Errors
    /// If it is not a regular file or can not be read.
    pub fn of(path: &Path) -> Result<Self, SourceError> {
        Self::of_prefix(path, u64::MAX)
    }

    /// Checks that the file at `path` begins with the bytes that it had. By how many it has grown.
    ///
    /// # Errors
    /// If it does not, or as [`Self::of`].
    pub fn check(&self, path: &Path) -> Result<u64, SourceError> {
        let (file, metadata) = open_regular(path)?;
        drop(file);
        let length = metadata.len();
        if (length, modified_ns(&metadata)) == (self.bytes, self.modified_ns) {
            return Ok(0);
        }
        let what = match length < self.bytes {
            true => "become shorter",
            false if Self::of_prefix(path, self.bytes)?.checksum != self.checksum => "changed",
            false => return Ok(length - self.bytes),
        };
        Err(SourceError::Input(format!(
            "{}: the file has {what} since it was first read: put it back as it was, or begin \
             anew with other folders for output and checkpoints",
            path.display()
        )))
    }

    fn of_prefix(path: &Path, bytes_max: u64) -> Result<Self, SourceError> {
        let (file, metadata) = open_regular(path)?;
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, file.take(bytes_max));
        let (bytes, checksum) = sum(&mut reader).map_err(|error| unreadable(path, &error))?;
        Ok(Self { bytes, checksum, modified_ns: modified_ns(&metadata) })
    }
}

/// The number and the checksum of all bytes.
fn sum(reader: &mut impl BufRead) -> io::Result<(u64, u32)> {
    let (mut bytes, mut hasher) = (0, crc32fast::Hasher::new());
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok((bytes, hasher.finalize()));
        }
        hasher.update(chunk);
        let read = chunk.len();
        bytes += read as u64;
        reader.consume(read);
    }
}

/// 0 where the system does not know.
fn modified_ns(metadata: &std::fs::Metadata) -> u64 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    /// Writes the file so that its time tells that it was written.
    fn write(path: &Path, bytes: &[u8], second: u64) {
        fs::write(path, bytes).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(second)).unwrap();
    }

    #[test]
    fn a_file_may_grow_and_change_in_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        write(&path, b"one\ntwo\n", 1);
        let before = Fingerprint::of(&path).unwrap();
        assert_eq!(before.check(&path), Ok(0));
        write(&path, b"one\ntwo\n", 2);
        assert_eq!(before.check(&path), Ok(0), "written anew, with the same bytes");
        write(&path, b"one\ntwo\nthree\n", 3);
        assert_eq!(before.check(&path), Ok(6));
        for (bytes, word) in [
            (&b"one\ntwa\n"[..], "changed"),
            (b"one\ntwa\nthree\n", "changed"),
            (b"one\n", "shorter"),
        ] {
            write(&path, bytes, 4);
            let error = before.check(&path).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("/x: "), "{error}");
        }
    }
}
