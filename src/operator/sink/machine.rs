//! The machine of a sink: what is asked of the external system, and when.

use crate::config::CommitRetry;
use crate::element::{Batch, Committables};
use crate::guarantee::SinkContract;
use crate::id::{CheckpointId, TransactionId};
use crate::message::TaskError;
use crate::operator::sink::commit::AfterCommit;
use crate::operator::sink::{
    CommitError, Committed, Committer, SinkReply, SinkRequest, SinkState, TwoPhase, WriteAhead,
    Writer,
};
use crate::state::snapshot::{LoggedRows, PendingTransaction};

/// The machine of a sink subtask.
#[derive(Clone, Debug)]
pub enum SinkMachine {
    /// Plain, idempotent and discarding sinks: write at once, flush before acknowledging.
    Direct,
    /// Two-phase sinks.
    TwoPhase(TwoPhase),
    /// Two-stage sinks: what writes.
    Writer(Writer),
    /// Two-stage sinks: what commits what all writers have prepared.
    Committer(Committer),
    /// Write-ahead sinks.
    WriteAhead(WriteAhead),
}

impl SinkMachine {
    /// The machine for `contract`; `first` is the first transaction that it may open.
    pub(crate) fn new(
        contract: SinkContract,
        first: TransactionId,
        restored: SinkState,
        retry: CommitRetry,
    ) -> Self {
        match contract {
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => Self::Direct,
            SinkContract::TwoPhase => Self::TwoPhase(TwoPhase {
                writer: Writer::new(first),
                committer: Committer::new(restored, retry, 0),
            }),
            SinkContract::WriteAhead => Self::WriteAhead(WriteAhead::new(first, restored)),
        }
    }

    /// The machine of a task that writes, from transaction `first` on.
    pub(crate) fn writer(first: TransactionId) -> Self {
        Self::Writer(Writer::new(first))
    }

    /// The machine of the task that commits for so many writers.
    pub(crate) fn committer(restored: SinkState, retry: CommitRetry, writers: usize) -> Self {
        Self::Committer(Committer::new(restored, retry, writers))
    }

    /// What has to be done first, before the first record.
    pub(crate) fn recover(&mut self) -> Option<SinkRequest> {
        match self {
            Self::Direct | Self::Writer(_) => None,
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.recover()
            }
            Self::WriteAhead(log) => log.recover(),
        }
    }

    /// What has to be done with records; nothing if they stay here for now.
    pub(crate) fn write(&mut self, records: Batch) -> Option<SinkRequest> {
        let transaction = match self {
            Self::Direct => None,
            Self::TwoPhase(TwoPhase { writer, .. }) | Self::Writer(writer) => {
                Some(writer.open_transaction())
            }
            Self::Committer(_) => unreachable!("no records travel from writers to a committer"),
            Self::WriteAhead(log) => {
                log.write(records);
                return None;
            }
        };
        Some(SinkRequest::Write { transaction, records })
    }

    /// The barrier of `checkpoint`: what has to be answered before it is acknowledged, if anything.
    ///
    /// # Errors
    /// If a writer has not told its committer of it.
    pub(crate) fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<SinkRequest>, TaskError> {
        Ok(match self {
            Self::Direct => Some(SinkRequest::Flush(Some(checkpoint))),
            Self::TwoPhase(two_phase) => two_phase.close(checkpoint).map(SinkRequest::Prepare),
            Self::Writer(writer) => writer.close(checkpoint).map(SinkRequest::Prepare),
            Self::Committer(committer) => {
                committer.check_whole(checkpoint)?;
                None
            }
            Self::WriteAhead(log) => {
                log.close(checkpoint);
                None
            }
        })
    }

    /// What has to be sent to a committer just ahead of the barrier of `checkpoint`, after
    /// [`SinkMachine::pre_commit`].
    pub(crate) fn committables(&self, checkpoint: CheckpointId) -> Option<Committables> {
        match self {
            Self::Writer(writer) => Some(writer.committables(checkpoint)),
            Self::Direct | Self::TwoPhase(_) | Self::Committer(_) | Self::WriteAhead(_) => None,
        }
    }

    /// A writer has told what it has prepared.
    pub(crate) fn handle_committables(&mut self, committables: Committables) {
        match self {
            Self::Committer(committer) => committer.hear(committables),
            Self::Direct | Self::TwoPhase(_) | Self::Writer(_) | Self::WriteAhead(_) => {}
        }
    }

    /// A prepare is confirmed.
    pub(crate) fn handle_prepared(&mut self, prepared: PendingTransaction) {
        match self {
            Self::Direct | Self::Committer(_) | Self::WriteAhead(_) => {}
            Self::TwoPhase(TwoPhase { writer, .. }) | Self::Writer(writer) => {
                writer.handle_prepared(prepared);
            }
        }
    }

    /// Whether a transaction in the snapshot of `checkpoint` is not confirmed to be prepared.
    /// That can be one of an earlier checkpoint that was aborted: it is committed with this one
    /// (rule 60), so this one must not be acknowledged before.
    pub(crate) fn is_preparing(&self, checkpoint: CheckpointId) -> bool {
        match self {
            Self::Direct | Self::Committer(_) | Self::WriteAhead(_) => false,
            Self::TwoPhase(TwoPhase { writer, .. }) | Self::Writer(writer) => {
                writer.is_preparing(checkpoint)
            }
        }
    }

    /// The transactions that the snapshot of `checkpoint` has to hold: a restore must commit
    /// exactly these.
    pub(crate) fn transactions(&self, checkpoint: CheckpointId) -> Vec<PendingTransaction> {
        match self {
            Self::Direct | Self::Writer(_) | Self::WriteAhead(_) => Vec::new(),
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.transactions(checkpoint)
            }
        }
    }

    /// The rows that a snapshot has to hold: a restore must send those that are not marked as sent.
    pub(crate) fn log(&self) -> Vec<LoggedRows> {
        match self {
            Self::Direct | Self::TwoPhase(_) | Self::Writer(_) | Self::Committer(_) => Vec::new(),
            Self::WriteAhead(log) => log.pending(),
        }
    }

    /// What is visible and was shown last, as far as it is confirmed.
    pub fn shown(&self) -> Vec<TransactionId> {
        match self {
            Self::Direct | Self::Writer(_) => Vec::new(),
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.shown.ids()
            }
            Self::WriteAhead(log) => log.shown.ids(),
        }
    }

    /// The completion of `checkpoint`: what comes first of all that is due now (rule 63).
    pub(crate) fn handle_completed(&mut self, checkpoint: CheckpointId) -> Option<SinkRequest> {
        match self {
            Self::Direct | Self::Writer(_) => None,
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.handle_completed(checkpoint)
            }
            Self::WriteAhead(log) => log.handle_completed(checkpoint),
        }
    }

    /// A commit is answered: what follows.
    ///
    /// # Errors
    /// If the task can not go on (rule 69).
    pub(crate) fn handle_commit(
        &mut self,
        transaction: TransactionId,
        outcome: Result<Committed, CommitError>,
    ) -> Result<AfterCommit, TaskError> {
        match self {
            Self::Direct | Self::Writer(_) | Self::WriteAhead(_) => Ok(AfterCommit::Rest),
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.handle_commit(transaction, outcome)
            }
        }
    }

    /// The pause after a commit that was refused is over, if there is one.
    pub(crate) fn retry(&mut self) -> Option<SinkRequest> {
        match self {
            Self::Direct | Self::Writer(_) | Self::WriteAhead(_) => None,
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.retry()
            }
        }
    }

    /// A step of a delivery of the log is confirmed; what comes next, if anything.
    pub(crate) fn handle_delivery(&mut self, reply: SinkReply) -> Option<SinkRequest> {
        match self {
            Self::Direct | Self::TwoPhase(_) | Self::Writer(_) | Self::Committer(_) => None,
            Self::WriteAhead(log) => log.handle_reply(reply),
        }
    }

    /// The rows that a write-ahead sink has taken last and keeps, and their id: those since the
    /// last barrier, or if there are none, those before it.
    pub fn last_rows(&self) -> Option<(TransactionId, &[Batch])> {
        match self {
            Self::Direct | Self::TwoPhase(_) | Self::Writer(_) | Self::Committer(_) => None,
            Self::WriteAhead(log) => log.last_rows(),
        }
    }

    /// Whether a transaction is prepared, or being prepared, or rows are in a snapshot, and the
    /// checkpoint is not complete.
    pub fn has_pre_committed(&self) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.has_pre_committed()
            }
            Self::Writer(writer) => writer.has_pre_committed(),
            Self::WriteAhead(log) => log.awaits_completion(),
        }
    }

    /// Whether a commit, or a delivery of logged rows, was asked for and is not confirmed.
    pub fn is_committing(&self) -> bool {
        match self {
            Self::Direct | Self::Writer(_) => false,
            Self::TwoPhase(TwoPhase { committer, .. }) | Self::Committer(committer) => {
                committer.is_committing()
            }
            Self::WriteAhead(log) => log.is_delivering(),
        }
    }

    /// Whether nothing is open, pending or unconfirmed.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Direct => true,
            Self::TwoPhase(TwoPhase { writer, committer }) => {
                writer.is_settled() && committer.is_settled()
            }
            Self::Writer(writer) => writer.is_settled(),
            Self::Committer(committer) => committer.is_settled(),
            Self::WriteAhead(log) => log.is_settled(),
        }
    }
}
