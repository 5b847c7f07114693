//! What a run leaves in its output: the lock that keeps a second run out, and the mark that no run
//! over other checkpoints, or over older ones, takes for its own.

use std::fs::{self, File, TryLockError};
use std::io;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use cofferdam::id::CheckpointId;
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
use crate::cli::database;
use crate::cli::exit::Failure;
use crate::cli::folder::{read, replace, temporary};
use crate::jobs::Output;

/// One history of checkpoints and of the output that rests on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct History {
    /// No other history has this name.
    pub(crate) run: String,
    /// How often it was started.
    pub(crate) start: u64,
    /// The run that has begun its store of state, if that lives outside: another one if it goes on
    /// from a checkpoint of that.
    #[serde(default)]
    pub(crate) state: String,
}

/// How far the output may have come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    #[serde(flatten)]
    pub(crate) history: History,
    /// The newest complete checkpoint: left before rows that wait for it are shown.
    pub(crate) checkpoint: Option<CheckpointId>,
}

/// Held while a run writes into an output; the system frees it when the process dies.
pub(crate) struct OutputLock {
    _file: File,
}

impl History {
    /// A new one.
    pub(crate) fn begin() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let run = format!("{:x}-{:x}", now.as_nanos(), process::id());
        Self { state: run.clone(), run, start: 1 }
    }

    /// Over the store of state of an earlier one.
    pub(crate) fn with_state_of(self, before: Option<&Self>) -> Self {
        let state = before.map_or(self.state, |before| before.state.clone());
        Self { state, ..self }
    }

    /// The same one, started again.
    pub(crate) fn again(self) -> Self {
        Self { start: self.start + 1, ..self }
    }
}

impl Mark {
    /// What was left in an output, if anything was.
    pub(crate) fn read(output: &Output) -> Result<Option<Self>, Failure> {
        read(&output.mark())
    }

    /// Leaves it in an output, durably: once a start. A database says itself which run it is of,
    /// since it may go alone.
    pub(crate) fn leave(&self, output: &Output) -> Result<(), Failure> {
        #[cfg(feature = "sqlite")]
        if let Output::Sqlite(file) = output {
            database::note_run(file, &self.history.run)?;
        }
        let path = output.mark();
        replace(&path, &self.text())
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))
    }

    /// As [`Self::leave`] for every checkpoint, which does not wait for the disk: after a loss of
    /// power an earlier one may be there, which only makes a later run less wary.
    pub(crate) fn leave_lightly(&self, output: &Output) -> io::Result<()> {
        let path = output.mark();
        let temporary = temporary(&path);
        fs::write(&temporary, self.text())?;
        fs::rename(&temporary, path)
    }

    fn text(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("it is plain data")
    }
}

/// Checks that a database is the one that a run has written into, which goes on from what it has
/// left elsewhere.
#[cfg(feature = "sqlite")]
pub(crate) fn refuse_other_database(output: &Output, run: &str) -> Result<(), Failure> {
    match output {
        Output::Sqlite(file) if !database::is_of_run(file, run) => Err(Failure::input(format!(
            "--output {output}: the database that the run has written into is gone, or this is \
             another one: put it back as it was, its -wal file too, or begin anew with other \
             places for --output and --checkpoints"
        ))),
        Output::Sqlite(_) | Output::Folder(_) => Ok(()),
    }
}

/// Keeps other runs from writing into the output, whose name has to be the one by which it is known
/// from everywhere.
pub(crate) fn lock(output: &Output) -> Result<OutputLock, Failure> {
    let path = output.lock();
    let failed = |error: io::Error| Failure::input(format!("{}: {error}", path.display()));
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(OutputLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(Failure::input(format!(
            "--output {output}: another run writes into it: wait for its end, or name another"
        ))),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
