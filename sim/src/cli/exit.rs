//! How a command ends.

use std::process::ExitCode;

use cofferdam::runtime::{RunError, StoreError};

use crate::cli::output::{command_line, own_command_line};
use crate::jobs::JobError;

/// The exit codes; scripts rely on the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Every claim held, or the work is done.
    Done = 0,
    /// A claim is violated.
    Violated = 1,
    /// The command line or the input is wrong.
    Wrong = 2,
    /// Nothing could be judged, or a verdict is unknown.
    Unknown = 3,
    /// Nothing was selected.
    Nothing = 4,
    /// A run is not deterministic.
    NotDeterministic = 5,
    /// An internal invariant broke.
    Bug = 70,
    /// Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// One sentence.
    pub(crate) text: String,
    /// A command to paste: the last line.
    pub(crate) command: String,
}

impl Failure {
    /// The arguments are wrong; `command` is the one whose help tells the right ones, if any is
    /// named.
    pub(crate) fn usage(command: &str, text: impl ToString) -> Self {
        let words = [command, "--help"].into_iter().filter(|word| !word.is_empty());
        let command = command_line(words.map(str::to_owned));
        Self { exit: Exit::Wrong, text: text.to_string(), command }
    }

    /// Something that the arguments name is wrong; when it is put right they can be given again.
    pub(crate) fn input(text: impl ToString) -> Self {
        Self::again(Exit::Wrong, text)
    }

    /// The same command goes on or tries again.
    pub(crate) fn again(exit: Exit, text: impl ToString) -> Self {
        Self { exit, text: text.to_string(), command: own_command_line() }
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        Self::input(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::input(error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Input(_)
            | RunError::Restore(_)
            | RunError::Savepoint(_)
            | RunError::OutputLost(_)
            | RunError::Store(_) => Self::input(error),
            RunError::Lost(text) => Self::again(Exit::Violated, text),
            RunError::Failed(text) => {
                Self::again(Exit::Violated, format!("the job is stuck: {text}"))
            }
            RunError::Stopped => {
                Self::again(Exit::Interrupted, "interrupted; the same command goes on from here")
            }
        }
    }
}
