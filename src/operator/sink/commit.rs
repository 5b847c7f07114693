//! What comes of a commit, and what follows (rules 67 to 70).

use std::time::Duration;

use crate::id::TransactionId;
use crate::message::TaskError;
use crate::operator::sink::{SinkError, SinkRequest};

/// When a transaction that was asked for became visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// By this commit.
    Now,
    /// By an earlier one, which a crash, or the loss of its answer, has hidden.
    Before,
}

/// Why a transaction that was asked for is not known to be visible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// It is not visible, and the same commit may be asked for again.
    #[error("{0}")]
    Retry(String),
    /// It is not visible and never will be: the external system has rolled it back, because it took
    /// too long to commit it, or somebody has removed it. To be told apart from a transaction that
    /// was committed before (rule 68).
    #[error("{0}")]
    Lost(String),
    /// Nobody knows: there was no answer.
    #[error("{0}")]
    Unknown(String),
}

impl From<SinkError> for CommitError {
    /// What is refused now may be granted later; what is damaged is not repaired by asking again.
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Refused(text) => Self::Retry(text),
            SinkError::Damaged(text) => Self::Lost(text),
        }
    }
}

/// What was shown last, as far as it is confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(Vec<TransactionId>);

impl Shown {
    pub(super) fn restored(shown: Vec<TransactionId>) -> Self {
        Self(shown)
    }

    /// Notes one more. What a subtask has shown is shown in order, and what an attempt has after
    /// all that earlier ones had: so it stands for those. Others of its own attempt may be newer.
    pub(super) fn note(&mut self, id: TransactionId) {
        self.0.retain(|other| other.attempt >= id.attempt && other.subtask != id.subtask);
        self.0.push(id);
    }

    pub(super) fn ids(&self) -> Vec<TransactionId> {
        self.0.clone()
    }
}

/// What follows the answer to a commit.
#[derive(Clone, Debug)]
pub(crate) enum AfterCommit {
    /// Ask for this.
    Ask(SinkRequest),
    /// Ask for the same commit again after this time.
    Pause(Duration),
    /// Nothing.
    Rest,
}

/// What kills a task whose commit of `transaction` came to `error` in the how-manieth try.
pub(super) fn commit_failed(
    transaction: TransactionId,
    tries: u32,
    error: CommitError,
) -> TaskError {
    match error {
        CommitError::Retry(text) => TaskError::External(format!(
            "transaction {transaction} is not committed after {tries} tries: {text}"
        )),
        CommitError::Unknown(text) => TaskError::External(format!(
            "nobody knows whether transaction {transaction} is committed: {text}"
        )),
        CommitError::Lost(text) => TaskError::OutputLost(text),
    }
}
