//! The transactions of a two-phase sink (rules 62 to 70). What writes them and what commits them
//! are two halves: of one task, or of several tasks that write and one that commits.
//! ```text
//!  writer:     first record -> open --barrier n--> preparing --Prepared--> acknowledged
//!                                        |
//!                       Committables, ahead of barrier n (rule 33)
//!                                        v
//!  committer:            pending in snapshot n --completion of m >= n--> due -> committed
//! ```

use std::collections::VecDeque;

use crate::config::CommitRetry;
use crate::element::Committables;
use crate::id::{CheckpointId, TransactionId};
use crate::message::TaskError;
use crate::operator::sink::commit::{AfterCommit, Shown, commit_failed};
use crate::operator::sink::{CommitError, Committed, SinkRequest, SinkState};
use crate::state::snapshot::PendingTransaction;

/// Both halves in one task.
#[derive(Clone, Debug)]
pub struct TwoPhase {
    pub(super) writer: Writer,
    pub(super) committer: Committer,
}

/// What a sink subtask writes.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The next transaction to open.
    next: TransactionId,
    /// The open transaction; none before the first record after a barrier.
    open: Option<TransactionId>,
    /// Those that are not confirmed to be prepared, in the order of their checkpoints.
    preparing: Vec<PendingTransaction>,
}

/// What is prepared and not committed. What is due is committed in order, one after the other (rule
/// 70): none passes an earlier one that failed.
#[derive(Clone, Debug)]
pub struct Committer {
    /// Not due, in the order of their checkpoints.
    pending: Vec<PendingTransaction>,
    due: Due,
    pub(super) shown: Shown,
    /// Which checkpoint each writer has last told of, where writers are other tasks.
    heard: Vec<Option<CheckpointId>>,
}

/// Transactions that a complete checkpoint covers, the oldest first. The first is asked to commit,
/// always under the name that the snapshot has (rule 66).
#[derive(Clone, Debug)]
struct Due {
    transactions: VecDeque<PendingTransaction>,
    retry: CommitRetry,
    /// How often the commit of the first was asked for.
    tries: u32,
    /// It was refused, and is to be asked for again.
    is_paused: bool,
    /// These were restored: when they are done, all others of earlier attempts are aborted.
    is_recovering: bool,
}

impl TwoPhase {
    /// The barrier of `checkpoint`: what is open is to be prepared.
    pub(super) fn close(&mut self, checkpoint: CheckpointId) -> Option<PendingTransaction> {
        let pending = self.writer.close(checkpoint);
        self.committer.pending.extend(pending);
        pending
    }
}

impl Writer {
    pub(super) fn new(first: TransactionId) -> Self {
        Self { next: first, open: None, preparing: Vec::new() }
    }

    pub(super) fn open_transaction(&mut self) -> TransactionId {
        *self.open.get_or_insert_with(|| {
            let transaction = self.next;
            self.next.sequence += 1;
            transaction
        })
    }

    pub(super) fn close(&mut self, checkpoint: CheckpointId) -> Option<PendingTransaction> {
        let transaction = self.open.take()?;
        let pending = PendingTransaction { checkpoint, transaction };
        self.preparing.push(pending);
        Some(pending)
    }

    /// What was closed by the barrier of `checkpoint`, which is at hand.
    pub(super) fn committables(&self, checkpoint: CheckpointId) -> Committables {
        let closed = self.preparing.last().filter(|pending| pending.checkpoint == checkpoint);
        let transaction = closed.map(|pending| pending.transaction);
        Committables { writer: self.next.subtask, checkpoint, transaction }
    }

    pub(super) fn handle_prepared(&mut self, prepared: PendingTransaction) {
        self.preparing.retain(|other| *other != prepared);
    }

    pub(super) fn is_preparing(&self, checkpoint: CheckpointId) -> bool {
        self.preparing.iter().any(|pending| pending.checkpoint <= checkpoint)
    }

    pub(super) fn has_pre_committed(&self) -> bool {
        !self.preparing.is_empty()
    }

    /// What is still being prepared is settled with the checkpoint that awaits it.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_none()
    }
}

impl Committer {
    /// `writers` is the number of tasks that write; zero if this one does.
    pub(super) fn new(restored: SinkState, retry: CommitRetry, writers: usize) -> Self {
        let transactions = restored.transactions.into();
        Self {
            pending: Vec::new(),
            due: Due { transactions, retry, tries: 0, is_paused: false, is_recovering: true },
            shown: Shown::restored(restored.shown),
            heard: vec![None; writers],
        }
    }

    /// Restored transactions are committed in order, whether or not they were before, then the
    /// others of earlier attempts are aborted (rule 64).
    pub(super) fn recover(&mut self) -> Option<SinkRequest> {
        self.due.next()
    }

    /// A writer has told what it has prepared. Where barriers do not block, a fast writer's word of
    /// a later checkpoint can come before a slow one's of an earlier.
    pub(super) fn hear(&mut self, committables: Committables) {
        let Committables { writer, checkpoint, transaction } = committables;
        let place = self.pending.partition_point(|pending| pending.checkpoint <= checkpoint);
        if let Some(transaction) = transaction {
            self.pending.insert(place, PendingTransaction { checkpoint, transaction });
        }
        self.heard[writer.index()] = Some(checkpoint);
    }

    /// Whether each writer has told of `checkpoint`: else its snapshot would lack what a writer has
    /// acknowledged.
    ///
    /// # Errors
    /// If one has not.
    pub(super) fn check_whole(&self, checkpoint: CheckpointId) -> Result<(), TaskError> {
        let known = self.heard.iter().filter(|of| of.is_some_and(|of| of >= checkpoint)).count();
        let writers = self.heard.len();
        if known == writers {
            return Ok(());
        }
        Err(TaskError::Crashed(format!(
            "the barriers of {checkpoint} have come, and only {known} of {writers} writers have \
             said what they have prepared"
        )))
    }

    /// What a snapshot of `checkpoint` holds. What is due belongs to it, since its commit may still
    /// fail; what a writer has prepared for a later one does not.
    pub(super) fn transactions(&self, checkpoint: CheckpointId) -> Vec<PendingTransaction> {
        let all = self.due.transactions.iter().chain(&self.pending).copied();
        all.filter(|pending| pending.checkpoint <= checkpoint).collect()
    }

    /// Every pending transaction up to `checkpoint` is due (rule 63).
    pub(super) fn handle_completed(&mut self, checkpoint: CheckpointId) -> Option<SinkRequest> {
        let covered = self.pending.partition_point(|pending| pending.checkpoint <= checkpoint);
        let is_idle = self.due.transactions.is_empty();
        self.due.transactions.extend(self.pending.drain(..covered));
        if is_idle { self.due.next() } else { None }
    }

    /// The commit of the first that is due is answered.
    pub(super) fn handle_commit(
        &mut self,
        transaction: TransactionId,
        outcome: Result<Committed, CommitError>,
    ) -> Result<AfterCommit, TaskError> {
        let due = &mut self.due;
        if due.transactions.front().is_none_or(|first| first.transaction != transaction) {
            return Ok(AfterCommit::Rest);
        }
        match outcome {
            Ok(Committed::Now | Committed::Before) => {
                due.transactions.pop_front();
                self.shown.note(transaction);
                due.tries = 0;
                Ok(due.next().map_or(AfterCommit::Rest, AfterCommit::Ask))
            }
            Err(CommitError::Retry(_)) if due.tries < due.retry.tries => {
                due.is_paused = true;
                Ok(AfterCommit::Pause(due.retry.pause))
            }
            Err(error) => Err(commit_failed(transaction, due.tries, error)),
        }
    }

    /// The pause is over.
    pub(super) fn retry(&mut self) -> Option<SinkRequest> {
        std::mem::take(&mut self.due.is_paused).then(|| self.due.next()).flatten()
    }

    pub(super) fn has_pre_committed(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn is_committing(&self) -> bool {
        !self.due.transactions.is_empty()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.due.transactions.is_empty()
    }
}

impl Due {
    fn next(&mut self) -> Option<SinkRequest> {
        match self.transactions.front() {
            Some(first) => {
                self.tries += 1;
                Some(SinkRequest::Commit(first.transaction))
            }
            None => std::mem::take(&mut self.is_recovering).then_some(SinkRequest::AbortDangling),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::{AttemptId, SubtaskIndex, VertexId};

    const RETRY: CommitRetry = CommitRetry { tries: 3, pause: Duration::from_millis(1) };

    fn id(sequence: u64) -> TransactionId {
        let (vertex, subtask) = (VertexId::new(1), SubtaskIndex::new(0));
        TransactionId { vertex, subtask, attempt: AttemptId::new(1), sequence }
    }

    /// A committer that has heard of a transaction at each of so many barriers.
    fn closed(barriers: u64) -> Committer {
        let mut sink = Committer::new(SinkState::default(), RETRY, 1);
        assert_eq!(text(sink.recover()), "abort dangling");
        for checkpoint in 1..=barriers {
            sink.hear(told(0, checkpoint, Some(id(checkpoint - 1))));
        }
        sink
    }

    fn told(writer: u32, checkpoint: u64, transaction: Option<TransactionId>) -> Committables {
        let (writer, checkpoint) = (SubtaskIndex::new(writer), CheckpointId::new(checkpoint));
        Committables { writer, checkpoint, transaction }
    }

    fn text(request: Option<SinkRequest>) -> String {
        match request {
            Some(SinkRequest::Commit(id)) => format!("commit {}", id.sequence),
            Some(SinkRequest::AbortDangling) => "abort dangling".to_owned(),
            Some(other) => format!("{other:?}"),
            None => String::new(),
        }
    }

    fn after(sink: &mut Committer, of: u64, outcome: Result<Committed, CommitError>) -> String {
        match sink.handle_commit(id(of), outcome) {
            Ok(AfterCommit::Ask(request)) => text(Some(request)),
            Ok(AfterCommit::Pause(_)) => "pause".to_owned(),
            Ok(AfterCommit::Rest) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    fn retry() -> Result<Committed, CommitError> {
        Err(CommitError::Retry("busy".to_owned()))
    }

    #[test]
    fn rule_070_commits_are_in_order_and_none_passes_one_that_failed() {
        let mut sink = closed(3);
        assert_eq!(text(sink.handle_completed(CheckpointId::new(2))), "commit 0");
        assert_eq!(text(sink.handle_completed(CheckpointId::new(2))), "", "a notice came twice");
        assert_eq!(after(&mut sink, 0, retry()), "pause");
        assert_eq!(text(sink.handle_completed(CheckpointId::new(3))), "", "0 is not done");
        assert_eq!(text(sink.retry()), "commit 0", "the same handle (rule 66)");
        assert_eq!(text(sink.retry()), "", "one pause, one try");
        assert_eq!(after(&mut sink, 0, Ok(Committed::Now)), "commit 1");
        assert_eq!(after(&mut sink, 1, Ok(Committed::Now)), "commit 2");
        assert_eq!(after(&mut sink, 2, Ok(Committed::Now)), "");
        assert!(sink.is_settled());
    }

    #[test]
    fn what_is_shown_is_what_a_commit_has_confirmed_and_the_last_of_it() {
        let other = TransactionId { subtask: SubtaskIndex::new(1), ..id(7) };
        let restored = SinkState { shown: vec![id(0), other], ..SinkState::default() };
        let mut sink = Committer::new(restored, RETRY, 1);
        sink.recover();
        sink.hear(told(0, 1, Some(id(1))));
        sink.handle_completed(CheckpointId::new(1));
        after(&mut sink, 1, retry());
        assert_eq!(sink.shown.ids(), [id(0), other]);
        after(&mut sink, 1, Ok(Committed::Now));
        assert_eq!(sink.shown.ids(), [other, id(1)], "nobody knows which of them is the newer one");
        let next = TransactionId { attempt: AttemptId::new(2), ..id(0) };
        sink.hear(told(0, 2, Some(next)));
        sink.handle_completed(CheckpointId::new(2));
        sink.handle_commit(next, Ok(Committed::Now)).unwrap();
        assert_eq!(sink.shown.ids(), [next]);
    }

    #[test]
    fn rule_069_a_commit_is_tried_again_so_often_and_then_kills_the_task() {
        let mut sink = closed(2);
        sink.handle_completed(CheckpointId::new(2));
        for _ in 1..RETRY.tries {
            assert_eq!(after(&mut sink, 0, retry()), "pause");
            assert_eq!(text(sink.retry()), "commit 0");
        }
        let failed = after(&mut sink, 0, retry());
        assert_eq!(failed, "transaction v1-0-1-0 is not committed after 3 tries: busy");
        assert_eq!(sink.transactions(CheckpointId::new(2)).len(), 2, "a snapshot has both");
    }

    #[test]
    fn rule_069_an_answer_that_did_not_come_fails_the_task_and_its_successor_commits_again() {
        let mut sink = closed(1);
        sink.handle_completed(CheckpointId::new(1));
        let error = sink.handle_commit(id(0), Err(CommitError::Unknown("no answer".to_owned())));
        assert!(error.unwrap_err().is_recoverable());
        let transactions = sink.transactions(CheckpointId::new(1));
        let left = SinkState { transactions, ..SinkState::default() };
        let mut next = Committer::new(left, RETRY, 1);
        assert_eq!(text(next.recover()), "commit 0");
        assert_eq!(after(&mut next, 0, Ok(Committed::Before)), "abort dangling");
    }

    #[test]
    fn rule_068_a_transaction_that_is_lost_ends_the_job_and_is_not_taken_for_committed() {
        let mut sink = closed(1);
        sink.handle_completed(CheckpointId::new(1));
        let error = sink.handle_commit(id(0), Err(CommitError::Lost("timed out".to_owned())));
        assert_eq!(error.unwrap_err(), TaskError::OutputLost("timed out".to_owned()));
    }

    #[test]
    fn a_committer_has_to_hear_from_each_writer_before_the_cut() {
        let mut sink = Committer::new(SinkState::default(), RETRY, 2);
        sink.hear(told(0, 1, Some(id(0))));
        let missing = sink.check_whole(CheckpointId::new(1)).unwrap_err().to_string();
        assert!(missing.contains("chk-1 have come, and only 1 of 2 writers"), "{missing}");
        sink.hear(told(1, 1, None));
        assert_eq!(sink.check_whole(CheckpointId::new(1)), Ok(()));
    }

    #[test]
    fn rule_033_a_snapshot_does_not_hold_what_was_prepared_for_a_later_one() {
        let mut sink = Committer::new(SinkState::default(), RETRY, 2);
        for (writer, checkpoint, sequence) in [(0, 1, 0), (0, 2, 1), (1, 1, 2)] {
            sink.hear(told(writer, checkpoint, Some(id(sequence))));
        }
        let of = |checkpoint| {
            let held = sink.transactions(CheckpointId::new(checkpoint));
            held.iter().map(|pending| pending.transaction.sequence).collect::<Vec<_>>()
        };
        assert_eq!((of(1), of(2)), (vec![0, 2], vec![0, 2, 1]));
    }
}
