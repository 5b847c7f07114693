//! The write-ahead log of a sink, which is state of its task (rules 73 and 74).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::element::Batch;
use crate::id::{CheckpointId, TransactionId};
use crate::operator::sink::commit::Shown;
use crate::operator::sink::{SinkReply, SinkRequest, SinkState};
use crate::state::snapshot::{LoggedRows, PendingTransaction};

/// The rows of a write-ahead sink subtask, portion by portion.
/// ```text
///  first record -> open --barrier n--> in snapshot n --completion of m >= n--> due
///  due, the oldest first, one at a time: sent -> marked -> dropped
///  restore: all that the snapshot holds is due; what is marked already is dropped and not sent
/// ```
/// The next portion is not sent before the one before it is marked. So none passes an earlier one
/// that failed, and marks are in order.
#[derive(Clone, Debug)]
pub struct WriteAhead {
    /// The id of the next portion.
    next: TransactionId,
    /// The rows since the last barrier.
    open: Option<(TransactionId, Vec<Batch>)>,
    /// Those before, the oldest first.
    pending: VecDeque<LoggedRows>,
    /// How many of `pending` are covered by a complete checkpoint.
    due: usize,
    /// How many of `pending` were restored: they may have been sent.
    restored: usize,
    pub(super) shown: Shown,
    /// The oldest is looked up, sent or marked at this moment.
    is_delivering: bool,
}

impl WriteAhead {
    pub(super) fn new(first: TransactionId, restored: SinkState) -> Self {
        let SinkState { log, shown, .. } = restored;
        Self {
            next: first,
            open: None,
            due: log.len(),
            restored: log.len(),
            pending: log.into(),
            shown: Shown::restored(shown),
            is_delivering: false,
        }
    }

    /// Rows that were restored belong to a complete checkpoint.
    pub(super) fn recover(&mut self) -> Option<SinkRequest> {
        self.deliver_next()
    }

    pub(super) fn write(&mut self, records: Batch) {
        let (_, rows) = self.open.get_or_insert_with(|| {
            let id = self.next;
            self.next.sequence += 1;
            (id, Vec::new())
        });
        rows.push(records);
    }

    /// The barrier of `checkpoint`: the open rows are in its snapshot.
    pub(super) fn close(&mut self, checkpoint: CheckpointId) {
        if let Some((transaction, batches)) = self.open.take() {
            let pending = PendingTransaction { checkpoint, transaction };
            self.pending.push_back(LoggedRows { pending, batches: Arc::new(batches) });
        }
    }

    pub(super) fn pending(&self) -> Vec<LoggedRows> {
        self.pending.iter().cloned().collect()
    }

    pub(super) fn last_rows(&self) -> Option<(TransactionId, &[Batch])> {
        let open = self.open.as_ref().map(|(id, rows)| (*id, &rows[..]));
        open.or_else(|| {
            self.pending.back().map(|rows| (rows.pending.transaction, &rows.batches[..]))
        })
    }

    /// Every portion up to `checkpoint` is to be sent, those of aborted checkpoints included.
    pub(super) fn handle_completed(&mut self, checkpoint: CheckpointId) -> Option<SinkRequest> {
        let covered = self.pending.partition_point(|rows| rows.pending.checkpoint <= checkpoint);
        self.due = self.due.max(covered);
        if self.is_delivering { None } else { self.deliver_next() }
    }

    pub(super) fn handle_reply(&mut self, reply: SinkReply) -> Option<SinkRequest> {
        match reply {
            SinkReply::LookedUp { is_marked: false, .. } => self.pending.front().map(send),
            SinkReply::Sent(id) => Some(SinkRequest::Mark(id)),
            SinkReply::LookedUp { is_marked: true, id } | SinkReply::Marked(id) => {
                self.pending.pop_front();
                self.shown.note(id);
                self.due -= 1;
                self.restored = self.restored.saturating_sub(1);
                self.deliver_next()
            }
            SinkReply::Flushed(_)
            | SinkReply::Prepared(_)
            | SinkReply::Commit { .. }
            | SinkReply::DanglingAborted => None,
        }
    }

    fn deliver_next(&mut self) -> Option<SinkRequest> {
        let next = self.pending.front().filter(|_| self.due > 0);
        self.is_delivering = next.is_some();
        next.map(|rows| match self.restored {
            0 => send(rows),
            _ => SinkRequest::LookUp(rows.pending.transaction),
        })
    }

    pub(super) fn awaits_completion(&self) -> bool {
        self.pending.len() > self.due
    }

    pub(super) fn is_delivering(&self) -> bool {
        self.is_delivering
    }

    pub(super) fn is_settled(&self) -> bool {
        self.open.is_none() && self.pending.is_empty()
    }
}

fn send(rows: &LoggedRows) -> SinkRequest {
    SinkRequest::Send { id: rows.pending.transaction, records: rows.batches.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, SubtaskIndex, VertexId};

    fn id(sequence: u64) -> TransactionId {
        let (vertex, subtask) = (VertexId::new(1), SubtaskIndex::new(0));
        TransactionId { vertex, subtask, attempt: AttemptId::new(1), sequence }
    }

    /// A log that has closed a portion of one row at each of so many barriers.
    fn log(barriers: u64) -> WriteAhead {
        let mut log = WriteAhead::new(id(0), SinkState::default());
        for checkpoint in 1..=barriers {
            log.write(Batch::new(vec![checkpoint]));
            log.close(CheckpointId::new(checkpoint));
        }
        log
    }

    fn text(request: Option<SinkRequest>) -> String {
        request.map_or(String::new(), |request| match request {
            SinkRequest::Send { id, records } => {
                let rows = records.iter().flat_map(|batch| batch.records::<u64>());
                format!("send {} {:?}", id.sequence, rows.collect::<Vec<_>>())
            }
            SinkRequest::Mark(id) => format!("mark {}", id.sequence),
            SinkRequest::LookUp(id) => format!("look up {}", id.sequence),
            SinkRequest::Write { .. }
            | SinkRequest::Flush(_)
            | SinkRequest::Prepare(_)
            | SinkRequest::Commit(_)
            | SinkRequest::AbortDangling => "what a log never asks".to_owned(),
        })
    }

    #[test]
    fn rule_073_all_up_to_the_completed_one_are_sent_in_order_each_after_the_mark_of_the_last() {
        let mut log = log(3);
        assert!(log.awaits_completion() && !log.is_delivering());
        assert_eq!(text(log.handle_completed(CheckpointId::new(2))), "send 0 [1]");
        assert_eq!(text(log.handle_completed(CheckpointId::new(2))), "", "a notice came twice");
        assert_eq!(log.pending().len(), 3, "what is not marked stays in snapshots");
        assert_eq!(text(log.handle_reply(SinkReply::Sent(id(0)))), "mark 0");
        assert_eq!(text(log.handle_reply(SinkReply::Marked(id(0)))), "send 1 [2]");
        assert_eq!(text(log.handle_reply(SinkReply::Sent(id(1)))), "mark 1");
        assert_eq!(text(log.handle_reply(SinkReply::Marked(id(1)))), "", "chk-3 is not complete");
        assert!(!log.is_settled() && log.awaits_completion());
        assert_eq!(text(log.handle_completed(CheckpointId::new(3))), "send 2 [3]");
    }

    #[test]
    fn rule_074_a_restore_sends_what_is_not_marked_and_drops_what_is() {
        let left = SinkState { log: log(2).pending(), ..SinkState::default() };
        let mut restored = WriteAhead::new(id(7), left);
        assert_eq!(text(restored.recover()), "look up 0");
        let marked = SinkReply::LookedUp { id: id(0), is_marked: true };
        assert_eq!(text(restored.handle_reply(marked)), "look up 1");
        let unmarked = SinkReply::LookedUp { id: id(1), is_marked: false };
        assert_eq!(text(restored.handle_reply(unmarked)), "send 1 [2]");
        assert_eq!(text(restored.handle_reply(SinkReply::Sent(id(1)))), "mark 1");
        assert_eq!(restored.shown.ids(), [id(0)], "it is sent, and nobody knows it yet");
        assert_eq!(text(restored.handle_reply(SinkReply::Marked(id(1)))), "");
        assert!(restored.is_settled());
        restored.write(Batch::new(vec![9_u64]));
        restored.close(CheckpointId::new(3));
        assert_eq!(text(restored.handle_completed(CheckpointId::new(3))), "send 7 [9]");
    }
}
