//! Files that survive a crash whole: written under another name, synced, renamed, and the folder
//! synced behind them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use rustix::fs::syncfs;

/// Why a file was not replaced.
#[derive(Debug)]
pub(crate) enum ReplaceError {
    /// The old content is still there, or nothing if there was none.
    Before(io::Error),
    /// The new content may or may not survive a crash.
    Unknown(io::Error),
}

impl From<ReplaceError> for io::Error {
    fn from(error: ReplaceError) -> Self {
        match error {
            ReplaceError::Before(error) | ReplaceError::Unknown(error) => error,
        }
    }
}

/// Puts `bytes` in the place of the file at `path`, as a whole and durably. A name that begins with
/// [`TEMPORARY_PREFIX`] is left behind by a crash.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReplaceError> {
    place_by(path, |temporary| write_synced(temporary, bytes)).map_err(ReplaceError::Before)?;
    let (folder, _) = folder_and_name(path);
    sync_folder(folder).map_err(ReplaceError::Unknown)
}

/// As [`replace`], but not durably: for that, [`sync_files`] is to follow. If this process alone
/// dies, the file is whole or not there.
pub(crate) fn place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    place_by(path, |temporary| fs::write(temporary, bytes))
}

fn place_by(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let (folder, name) = folder_and_name(path);
    let temporary = folder.join(format!("{TEMPORARY_PREFIX}{name}"));
    let written = write(&temporary).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // What is left of the temporary file is in nobody's way and is replaced by the next try.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes these files of a folder durable, and their names.
pub(crate) fn sync_files(folder: &Path, files: &[PathBuf]) -> io::Result<()> {
    // One by one they would wait for the disk as often as there are files.
    #[cfg(target_os = "linux")]
    if files.len() > SYNCED_ALONE_MAX {
        return Ok(syncfs(File::open(folder)?)?);
    }
    files.iter().try_for_each(|file| File::open(file)?.sync_all())?;
    sync_folder(folder)
}

/// Makes the folder at `path`, and those above it, durably. Others may do the same meanwhile.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    // One look: between two of them somebody else could make the folder.
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            let text = format!("{} is a file, not a folder", path.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, text));
        }
        // What else is wrong, making it will tell.
        Err(_) => {}
    }
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        Some(_) | None => Path::new("."),
    };
    create_folder(above)?;
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => sync_folder(above),
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Removes a file; one that is not there is fine.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The names in a folder with their paths, in order; none if the folder is not there.
pub(crate) fn names_in(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    names.sort();
    Ok(names)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn folder_and_name(path: &Path) -> (&Path, std::borrow::Cow<'_, str>) {
    let name = path.file_name().expect("a file of ours has a name");
    (path.parent().expect("a file of ours lies in a folder"), name.to_string_lossy())
}

/// More files than this are synced with all else that their file system has to write.
#[cfg(target_os = "linux")]
const SYNCED_ALONE_MAX: usize = 32;

/// What the name of a file begins with that is not whole yet.
pub(crate) const TEMPORARY_PREFIX: &str = ".tmp-";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_replaced_file_holds_the_new_bytes_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        create_folder(&inner).unwrap();
        replace(&inner.join("x"), b"one").unwrap();
        replace(&inner.join("x"), b"two").unwrap();
        assert_eq!(fs::read(inner.join("x")).unwrap(), b"two");
        assert_eq!(names_in(&inner).unwrap().len(), 1);
        remove(&inner.join("x")).unwrap();
        remove(&inner.join("x")).unwrap();
        assert!(names_in(&inner.join("missing")).unwrap().is_empty());
    }

    #[test]
    fn files_that_are_placed_can_be_synced_few_or_many() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0, 1, 40] {
            let files: Vec<_> = (0..count).map(|n| folder.path().join(n.to_string())).collect();
            for file in &files {
                place(file, b"old").unwrap();
                place(file, b"new").unwrap();
            }
            sync_files(folder.path(), &files).unwrap();
            assert!(files.iter().all(|file| fs::read(file).unwrap() == b"new"));
            assert_eq!(names_in(folder.path()).unwrap().len(), count);
        }
        let gone = folder.path().join("gone");
        assert!(sync_files(folder.path(), &[gone]).is_err());
        assert!(place(&folder.path().join("no/folder"), b"x").is_err());
    }

    #[test]
    fn two_may_make_the_same_folder_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let arrived = AtomicUsize::new(0);
        let make = |round: usize, pause: usize| {
            arrived.fetch_add(1, Ordering::Relaxed);
            while arrived.load(Ordering::Relaxed) < 2 * (round + 1) {
                thread::yield_now();
            }
            // So that over all rounds one is behind the other by any time.
            (0..pause).for_each(|_| std::hint::spin_loop());
            create_folder(&folder.path().join(round.to_string())).err()
        };
        let errors: Vec<io::Error> = thread::scope(|scope| {
            let first =
                scope.spawn(|| (0..500).filter_map(|round| make(round, 0)).collect::<Vec<_>>());
            let second = (0..500).filter_map(|round| make(round, round)).collect::<Vec<_>>();
            first.join().unwrap().into_iter().chain(second).collect()
        });
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn a_file_where_a_folder_should_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        fs::write(&file, "").unwrap();
        for wanted in [file.clone(), file.join("y/z")] {
            let error = create_folder(&wanted).unwrap_err().to_string();
            assert_eq!(error, format!("{} is a file, not a folder", file.display()));
        }
    }
}
