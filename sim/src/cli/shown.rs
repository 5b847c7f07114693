//! What the sinks of earlier runs have left in an output, and what a run leaves beside its
//! checkpoints so that no later one misses it or writes it again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cofferdam::guarantee::SinkContract;
use cofferdam::id::CheckpointId;
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
use crate::cli::database;
use crate::cli::exit::Failure;
use crate::cli::folder::read;
use crate::jobs::Output;

/// The newest complete checkpoint of a run, and the rows that were there with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Completed {
    pub(crate) checkpoint: CheckpointId,
    /// In which start of the run it was completed.
    pub(crate) start: u64,
    /// The tables that have to be there, or the files: none of a sink that shows its rows only
    /// after the completion until the run is at its end, since there may be many, and the sink
    /// itself misses those that are gone.
    pub(crate) rows: Vec<String>,
}

impl Completed {
    /// What was left in a folder of checkpoints, if a checkpoint has been complete.
    pub(crate) fn read(checkpoints: &Path) -> Result<Option<Self>, Failure> {
        read(&checkpoints.join(NAME))
    }

    /// Leaves it in a folder of checkpoints: as a whole, and after a loss of power perhaps not,
    /// which only makes a later run less wary.
    pub(crate) fn leave(&self, checkpoints: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).expect("it is plain data");
        let temporary = checkpoints.join(format!(".{NAME}"));
        fs::write(&temporary, text)?;
        fs::rename(&temporary, checkpoints.join(NAME))
    }

    /// Removes what was left.
    pub(crate) fn forget(checkpoints: &Path) -> Result<(), Failure> {
        let path = checkpoints.join(NAME);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::input(format!("{}: {error}", path.display())))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Checks that the rows which have to be there are.
    pub(crate) fn check_rows(&self, output: &Output) -> Result<(), Failure> {
        let there = rows(output);
        match self.rows.iter().find(|row| !there.contains(row)) {
            None => Ok(()),
            Some(gone) => Err(Failure::input(format!(
                "{}: it is gone, and the checkpoints rest on its rows: put the file back as it \
                 was, or begin anew with other folders for --output and --checkpoints",
                place(output, gone)
            ))),
        }
    }
}

/// What a run of this kind leaves when `checkpoint` is complete, or when it is at its end.
pub(crate) fn completed(
    (checkpoint, start): (CheckpointId, u64),
    sink: SinkContract,
    output: &Output,
    is_end: bool,
) -> Completed {
    let are_many = matches!(output, Output::Folder(_)) && sink.awaits_completion() && !is_end;
    Completed { checkpoint, start, rows: if are_many { Vec::new() } else { rows(output) } }
}

/// Checks that a sink which shows rows once, when their checkpoint is complete, has shown none
/// after the checkpoint at `path`: a run that began there would write them again. `is_newest` says
/// whether the output has come no further than that checkpoint.
pub(crate) fn refuse_rewind(
    path: &Path,
    sink: SinkContract,
    output: &Output,
    is_newest: bool,
) -> Result<(), Failure> {
    match first_row(output).filter(|_| sink.awaits_completion() && !is_newest) {
        None => Ok(()),
        Some(row) => Err(Failure::input(format!(
            "--resume {}: {row} may hold rows that were committed after this checkpoint, and they \
             would be there twice: resume from the latest one, or name another --output",
            path.display()
        ))),
    }
}

/// The checkpoint in the folder at `path`, by its name.
pub(crate) fn checkpoint_of(path: &Path) -> Option<CheckpointId> {
    let number = path.file_name()?.to_str()?.strip_prefix("chk-")?;
    number.parse().ok().map(CheckpointId::new)
}

/// The first file or table with rows, if there is one, as people look for it.
pub(crate) fn first_row(output: &Output) -> Option<String> {
    rows(output).first().map(|row| place(output, row))
}

/// The names of all files with rows, from the folder, or of all tables with rows, in order.
pub(crate) fn rows(output: &Output) -> Vec<String> {
    match output {
        Output::Folder(folder) => {
            let mut parts = parts(folder);
            parts.sort();
            let name = |part: &PathBuf| part.strip_prefix(folder).unwrap_or(part).to_owned();
            parts.iter().map(|part| name(part).to_string_lossy().into_owned()).collect()
        }
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => database::tables(file),
    }
}

/// As [`rows`], with the bytes of each file and the rows of each table: more of it was shown since
/// if it is more.
pub(crate) fn extents(output: &Output) -> Vec<(String, u64)> {
    let extent = |row: &String| match output {
        Output::Folder(folder) => fs::metadata(folder.join(row)).map_or(0, |file| file.len()),
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => database::count(file, row),
    };
    rows(output).into_iter().map(|row| (row.clone(), extent(&row))).collect()
}

fn place(output: &Output, row: &str) -> String {
    match output {
        Output::Folder(folder) => folder.join(row).display().to_string(),
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => format!("table {row} of {}", file.display()),
    }
}

/// The files with rows in the folder or below it.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let parts = entries.flat_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.path() {
            _ if name.starts_with('.') => Vec::new(),
            path if path.is_dir() => parts(&path),
            path if name.starts_with("part-") && name.ends_with(".ndjson") => vec![path],
            _ => Vec::new(),
        }
    });
    parts.collect()
}

const NAME: &str = "completed.json";
