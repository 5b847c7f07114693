//! The machine of a sink: what is asked of the external system, and when.

use crate::element::Batch;
use crate::guarantee::SinkContract;
use crate::id::{CheckpointId, TransactionId};
use crate::operator::sink::{SinkReply, SinkRequest, WriteAhead};
use crate::state::snapshot::{LoggedRows, PendingTransaction};

/// The machine of a sink subtask.
#[derive(Clone, Debug)]
pub enum SinkMachine {
    /// Plain, idempotent and discarding sinks: write at once, flush before acknowledging.
    Direct,
    /// Two-phase sinks.
    TwoPhase(TwoPhase),
    /// Write-ahead sinks.
    WriteAhead(WriteAhead),
}

/// The transactions of a two-phase sink subtask.
#[derive(Clone, Debug)]
pub struct TwoPhase {
    /// The next transaction to open.
    next: TransactionId,
    /// The open transaction; none before the first record after a barrier.
    open: Option<TransactionId>,
    /// Pre-committed and not yet asked to commit, in the order of their checkpoints.
    pending: Vec<PendingTransaction>,
    /// Those of them that are not confirmed to be prepared, in the same order.
    preparing: Vec<PendingTransaction>,
    /// Asked to commit, not yet confirmed.
    committing: Vec<PendingTransaction>,
}

impl SinkMachine {
    /// The machine for `contract`; `first` is the first transaction that it may open.
    pub(crate) fn new(
        contract: SinkContract,
        first: TransactionId,
        restored: Vec<PendingTransaction>,
        log: Vec<LoggedRows>,
    ) -> Self {
        match contract {
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => Self::Direct,
            SinkContract::TwoPhase => Self::TwoPhase(TwoPhase {
                next: first,
                open: None,
                pending: restored,
                preparing: Vec::new(),
                committing: Vec::new(),
            }),
            SinkContract::WriteAhead => Self::WriteAhead(WriteAhead::new(first, log)),
        }
    }

    /// What has to be done before the first record: restored transactions are committed in order,
    /// whether or not they were before, then the others of earlier attempts are aborted (rule 64).
    pub(crate) fn recover(&mut self) -> Vec<SinkRequest> {
        match self {
            Self::Direct => Vec::new(),
            Self::TwoPhase(two_phase) => {
                let mut requests = two_phase.commit_up_to(CheckpointId::new(u64::MAX));
                requests.push(SinkRequest::AbortDangling);
                requests
            }
            Self::WriteAhead(log) => log.recover().into_iter().collect(),
        }
    }

    /// What has to be done with records; nothing if they stay here for now.
    pub(crate) fn write(&mut self, records: Batch) -> Option<SinkRequest> {
        let transaction = match self {
            Self::Direct => None,
            Self::TwoPhase(two_phase) => Some(two_phase.open_transaction()),
            Self::WriteAhead(log) => {
                log.write(records);
                return None;
            }
        };
        Some(SinkRequest::Write { transaction, records })
    }

    /// The barrier of `checkpoint`: what has to be answered before it is acknowledged, if anything.
    pub(crate) fn pre_commit(&mut self, checkpoint: CheckpointId) -> Option<SinkRequest> {
        match self {
            Self::Direct => Some(SinkRequest::Flush(Some(checkpoint))),
            Self::TwoPhase(two_phase) => {
                let transaction = two_phase.open.take()?;
                let pending = PendingTransaction { checkpoint, transaction };
                two_phase.pending.push(pending);
                two_phase.preparing.push(pending);
                Some(SinkRequest::Prepare(pending))
            }
            Self::WriteAhead(log) => {
                log.close(checkpoint);
                None
            }
        }
    }

    /// A prepare is confirmed.
    pub(crate) fn handle_prepared(&mut self, prepared: PendingTransaction) {
        match self {
            Self::Direct | Self::WriteAhead(_) => {}
            Self::TwoPhase(two_phase) => two_phase.preparing.retain(|other| *other != prepared),
        }
    }

    /// Whether a transaction in the snapshot of `checkpoint` is not confirmed to be prepared.
    /// That can be one of an earlier checkpoint that was aborted: it is committed with this one
    /// (rule 60), so this one must not be acknowledged before.
    pub(crate) fn is_preparing(&self, checkpoint: CheckpointId) -> bool {
        match self {
            Self::Direct | Self::WriteAhead(_) => false,
            Self::TwoPhase(two_phase) => {
                two_phase.preparing.iter().any(|pending| pending.checkpoint <= checkpoint)
            }
        }
    }

    /// The transactions that a snapshot has to hold: a restore must commit exactly these. Those
    /// that were asked to commit and are not confirmed belong to it, since they may still fail.
    pub(crate) fn transactions(&self) -> Vec<PendingTransaction> {
        match self {
            Self::Direct | Self::WriteAhead(_) => Vec::new(),
            Self::TwoPhase(two_phase) => {
                two_phase.committing.iter().chain(&two_phase.pending).copied().collect()
            }
        }
    }

    /// The rows that a snapshot has to hold: a restore must send those that are not marked as sent.
    pub(crate) fn log(&self) -> Vec<LoggedRows> {
        match self {
            Self::Direct | Self::TwoPhase(_) => Vec::new(),
            Self::WriteAhead(log) => log.pending(),
        }
    }

    /// The completion of `checkpoint`: commits every pending transaction up to it (rule 63).
    pub(crate) fn handle_completed(&mut self, checkpoint: CheckpointId) -> Vec<SinkRequest> {
        match self {
            Self::Direct => Vec::new(),
            Self::TwoPhase(two_phase) => two_phase.commit_up_to(checkpoint),
            Self::WriteAhead(log) => log.handle_completed(checkpoint).into_iter().collect(),
        }
    }

    pub(crate) fn handle_committed(&mut self, transaction: TransactionId) {
        match self {
            Self::Direct | Self::WriteAhead(_) => {}
            Self::TwoPhase(two_phase) => {
                two_phase.committing.retain(|pending| pending.transaction != transaction);
            }
        }
    }

    /// A step of a delivery of the log is confirmed; what comes next, if anything.
    pub(crate) fn handle_delivery(&mut self, reply: SinkReply) -> Option<SinkRequest> {
        match self {
            Self::Direct | Self::TwoPhase(_) => None,
            Self::WriteAhead(log) => log.handle_reply(reply),
        }
    }

    /// The rows since the last barrier that a write-ahead sink keeps, and their id.
    pub fn open_rows(&self) -> Option<(TransactionId, &[Batch])> {
        match self {
            Self::Direct | Self::TwoPhase(_) => None,
            Self::WriteAhead(log) => log.open_rows(),
        }
    }

    /// Whether a transaction is prepared, or being prepared, or rows are in a snapshot, and the
    /// checkpoint is not complete.
    pub fn has_pre_committed(&self) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(two_phase) => !two_phase.pending.is_empty(),
            Self::WriteAhead(log) => log.awaits_completion(),
        }
    }

    /// Whether a commit, or a delivery of logged rows, was asked for and is not confirmed.
    pub fn is_committing(&self) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(two_phase) => !two_phase.committing.is_empty(),
            Self::WriteAhead(log) => log.is_delivering(),
        }
    }

    /// Whether nothing is open, pending or unconfirmed.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Direct => true,
            Self::TwoPhase(two_phase) => {
                two_phase.open.is_none()
                    && two_phase.pending.is_empty()
                    && two_phase.committing.is_empty()
            }
            Self::WriteAhead(log) => log.is_settled(),
        }
    }
}

impl TwoPhase {
    fn open_transaction(&mut self) -> TransactionId {
        *self.open.get_or_insert_with(|| {
            let transaction = self.next;
            self.next.sequence += 1;
            transaction
        })
    }

    fn commit_up_to(&mut self, checkpoint: CheckpointId) -> Vec<SinkRequest> {
        let covered = self.pending.partition_point(|pending| pending.checkpoint <= checkpoint);
        let due: Vec<_> = self.pending.drain(..covered).collect();
        self.committing.extend(&due);
        due.into_iter().map(|pending| SinkRequest::Commit(pending.transaction)).collect()
    }
}
