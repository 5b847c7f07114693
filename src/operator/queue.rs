//! Queues: systems that give out messages, take them back as acknowledged one by one, and give out
//! again whatever is not acknowledged. Nothing in them can be read at a position. The trait that
//! users write, and what a source subtask remembers so that no message counts twice (rule 79).
//!
//! ```text
//!  received --emitted--> Open --cut--> Cut(chk) --complete--> Covered --confirmed--> forgotten
//!                                                    ^  |
//!                                          restored -+  +- acknowledged, until that is confirmed
//! ```
//! A message that is given out again while its id is remembered is not emitted. It is acknowledged
//! again if a complete checkpoint covers it: a queue that limits how many messages may be open
//! would otherwise give out nothing any more.
//!
//! Invariant: a snapshot holds the id of every emitted message that the queue may give out again.

use std::collections::BTreeMap;

use crate::element::{Batch, Record};
use crate::id::{CheckpointId, MessageId, SplitId};
use crate::message::TaskError;
use crate::operator::source::{ErasedSource, Fetch, ReadOutcome, SourceError};
use crate::state::codec;

/// Some queues with a consumer each, which is a source subtask.
///
/// The driver calls it where it may block. A copy is a consumer of its own: what an earlier one
/// received and did not acknowledge is given out again. No order is kept.
pub trait Queue: Clone + Send + 'static {
    /// What a message holds.
    type Record: Record;

    /// How many queues there are. Called once, at the first start.
    ///
    /// # Errors
    /// If they are not there.
    fn count(&mut self) -> Result<u32, SourceError>;

    /// Takes at most `messages_max` messages that nobody has acknowledged, and that are in nobody's
    /// hands as far as the queue knows. [`Fetch::End`] if none will ever come, but for those that
    /// this consumer has.
    ///
    /// # Errors
    /// If the queue can not be read.
    fn receive(
        &mut self,
        queue: u32,
        messages_max: usize,
    ) -> Result<Fetch<(MessageId, Self::Record)>, SourceError>;

    /// The messages are done with and are not to be given out again, whoever has received them.
    /// Those that the queue does not know any more are done with.
    ///
    /// # Errors
    /// If it is not known whether the queue has heard it.
    fn acknowledge(&mut self, queue: u32, ids: &[MessageId]) -> Result<(), SourceError>;
}

/// Messages that a source task has its queue told of, or that the queue has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The queue.
    pub split: SplitId,
    /// The queue as the source knows it.
    pub cursor: Vec<u8>,
    /// The messages.
    pub ids: Vec<MessageId>,
}

/// A queue as a source that drivers call: the cursor of a split is the queue's number.
#[derive(Clone)]
pub(crate) struct FromQueue<Q>(pub(crate) Q);

impl<Q: Queue> ErasedSource for FromQueue<Q> {
    fn discover(&mut self, _parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError> {
        let count = self.0.count()?;
        Ok((0..count).map(|queue| codec::encode(&queue)).collect())
    }

    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome {
        let queue = match codec::decode(cursor) {
            Ok(queue) => queue,
            Err(error) => return ReadOutcome::Failed(TaskError::Restore(error.to_string())),
        };
        match self.0.receive(queue, records_max) {
            Ok(Fetch::Records(messages)) => {
                let (ids, records): (_, Vec<_>) = messages.into_iter().unzip();
                ReadOutcome::Messages { records: Batch::new(records), ids }
            }
            Ok(Fetch::Nothing) => ReadOutcome::Nothing,
            Ok(Fetch::End) => ReadOutcome::End,
            Ok(Fetch::Gone { wanted, first }) => {
                ReadOutcome::Gone { wanted, first, cursor: cursor.to_vec() }
            }
            Err(error) => ReadOutcome::Failed(error.into()),
        }
    }

    fn acknowledge(&mut self, cursor: &[u8], ids: &[MessageId]) -> Result<(), TaskError> {
        let queue = codec::decode(cursor).map_err(|error| TaskError::Restore(error.to_string()))?;
        Ok(self.0.acknowledge(queue, ids)?)
    }

    fn is_queue(&self) -> bool {
        true
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn is_truncated(&self) -> bool {
        false
    }

    fn clone_box(&self) -> Box<dyn ErasedSource> {
        Box::new(self.clone())
    }
}

/// What a source subtask knows of the messages that it has emitted.
#[derive(Clone, Debug)]
pub(crate) struct Deliveries {
    emitted: BTreeMap<(SplitId, MessageId), Coverage>,
    /// Covered, and the queue is to be told.
    unsaid: Vec<(SplitId, MessageId)>,
    takes_checkpoints: bool,
}

/// Which checkpoint holds what came of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// None yet.
    Open,
    /// This one, if it completes, and every later one.
    Cut(CheckpointId),
    /// One that is complete.
    Covered,
}

impl Deliveries {
    /// Begins with the messages that a complete checkpoint holds.
    pub(crate) fn new(restored: &[(SplitId, MessageId)], takes_checkpoints: bool) -> Self {
        Self {
            emitted: restored.iter().map(|of| (*of, Coverage::Covered)).collect(),
            unsaid: restored.to_vec(),
            takes_checkpoints,
        }
    }

    /// Every emitted message that may be given out again, in order.
    pub(crate) fn emitted(&self) -> impl Iterator<Item = (SplitId, MessageId)> + '_ {
        self.emitted.keys().copied()
    }

    /// Whether a message is not to be emitted.
    pub(crate) fn is_known(&self, split: SplitId, id: MessageId) -> bool {
        self.emitted.contains_key(&(split, id))
    }

    /// The records that are to be emitted of those that were received, if there are any.
    pub(crate) fn receive(
        &mut self,
        split: SplitId,
        records: Batch,
        ids: &[MessageId],
    ) -> Option<Batch> {
        let mut fresh: Option<Batch> = None;
        for (id, record) in ids.iter().zip(records.split()) {
            match self.emitted.get(&(split, *id)) {
                Some(Coverage::Covered) => self.unsaid.push((split, *id)),
                Some(Coverage::Open | Coverage::Cut(_)) => {}
                None => {
                    self.emit(split, *id);
                    match &mut fresh {
                        Some(fresh) => fresh.append(record),
                        None => fresh = Some(record),
                    }
                }
            }
        }
        fresh
    }

    fn emit(&mut self, split: SplitId, id: MessageId) {
        let coverage = if self.takes_checkpoints {
            Coverage::Open
        } else {
            // Nobody will ever cover it: what is acknowledged now is lost in a failure.
            self.unsaid.push((split, id));
            Coverage::Covered
        };
        self.emitted.insert((split, id), coverage);
    }

    /// A snapshot is being taken: it holds what came of everything that was emitted.
    pub(crate) fn cut(&mut self, checkpoint: CheckpointId) {
        for coverage in self.emitted.values_mut().filter(|of| **of == Coverage::Open) {
            *coverage = Coverage::Cut(checkpoint);
        }
    }

    /// A checkpoint is complete, and with it every older cut is covered.
    pub(crate) fn complete(&mut self, checkpoint: CheckpointId) {
        for coverage in self.emitted.values_mut() {
            if let Coverage::Cut(cut) = *coverage
                && cut <= checkpoint
            {
                *coverage = Coverage::Covered;
            }
        }
        self.repeat();
    }

    /// The queue is to be told of everything that it has not confirmed: it may have heard nothing.
    pub(crate) fn repeat(&mut self) {
        let covered = self.emitted.iter().filter(|(_, coverage)| **coverage == Coverage::Covered);
        self.unsaid = covered.map(|(of, _)| *of).collect();
    }

    /// The queue will not give these out again.
    pub(crate) fn confirm(&mut self, split: SplitId, ids: &[MessageId]) {
        for id in ids {
            self.emitted.remove(&(split, *id));
        }
    }

    /// What the queue is to be told of a split.
    pub(crate) fn acknowledge(&mut self, split: SplitId) -> Vec<MessageId> {
        let of_split = self.unsaid.extract_if(.., |(of, _)| *of == split);
        of_split.map(|(_, id)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: SplitId = SplitId::new(0);

    fn ids(numbers: &[u64]) -> Vec<MessageId> {
        numbers.iter().map(|number| MessageId::new(*number)).collect()
    }

    fn receive(deliveries: &mut Deliveries, numbers: &[u64]) -> Vec<u64> {
        let fresh = deliveries.receive(SPLIT, Batch::new(numbers.to_vec()), &ids(numbers));
        fresh.map(Batch::into_records).unwrap_or_default()
    }

    fn restored(numbers: &[u64]) -> Deliveries {
        let restored: Vec<_> = ids(numbers).into_iter().map(|id| (SPLIT, id)).collect();
        Deliveries::new(&restored, true)
    }

    #[test]
    fn rule_079_messages_are_acknowledged_when_a_checkpoint_that_covers_them_is_complete() {
        let mut deliveries = restored(&[]);
        assert_eq!(receive(&mut deliveries, &[1, 2]), [1, 2]);
        deliveries.cut(CheckpointId::new(1));
        assert_eq!(receive(&mut deliveries, &[3]), [3]);
        deliveries.cut(CheckpointId::new(2));
        assert_eq!(receive(&mut deliveries, &[4]), [4]);
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[]));
        // The first checkpoint was aborted: the second one covers its messages.
        deliveries.complete(CheckpointId::new(2));
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[1, 2, 3]));
        deliveries.confirm(SPLIT, &ids(&[1, 3]));
        assert_eq!(deliveries.emitted().count(), 2);
        // What is not confirmed is said again.
        deliveries.complete(CheckpointId::new(3));
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[2]));
    }

    #[test]
    fn rule_079_what_is_given_out_again_is_not_emitted_but_acknowledged_if_it_is_covered() {
        let mut deliveries = restored(&[1, 2]);
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[1, 2]));
        assert_eq!(receive(&mut deliveries, &[3, 2]), [3]);
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[2]));
        // Nobody covers it yet: to acknowledge it now would lose it in a failure.
        assert_eq!(receive(&mut deliveries, &[3]), [0; 0]);
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[]));
    }

    #[test]
    fn rule_079_ids_are_kept_as_long_as_the_queue_may_give_them_out() {
        let mut deliveries = restored(&[1]);
        receive(&mut deliveries, &[2]);
        let kept = |deliveries: &Deliveries| deliveries.emitted().collect::<Vec<_>>();
        assert_eq!(kept(&deliveries), [(SPLIT, MessageId::new(1)), (SPLIT, MessageId::new(2))]);
        deliveries.confirm(SPLIT, &ids(&[1]));
        assert_eq!(kept(&deliveries), [(SPLIT, MessageId::new(2))]);
        assert!(deliveries.is_known(SPLIT, MessageId::new(2)));
        assert!(!deliveries.is_known(SPLIT, MessageId::new(1)));
    }

    #[test]
    fn without_checkpoints_messages_are_acknowledged_as_they_are_emitted() {
        let mut deliveries = Deliveries::new(&[], false);
        assert_eq!(receive(&mut deliveries, &[1]), [1]);
        assert_eq!(deliveries.acknowledge(SPLIT), ids(&[1]));
    }
}
