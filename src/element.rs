//! What travels on a channel: typed batches of records, whose type is erased once per batch, and
//! control elements between them. It does not know who sends or receives.

use std::any::Any;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::id::{CheckpointId, SubtaskIndex, TaskId, TransactionId};
use crate::state::codec::{DecodeError, Format};
use crate::time::{EventTime, Instant};

/// What a stream can carry. Every type with these traits is a record; nothing is to be implemented.
pub trait Record:
    Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<T: Clone + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static> Record for T {}

/// One element of a channel's first-in-first-out order.
#[derive(Clone, Debug)]
pub enum Element {
    /// Records, in order.
    Batch(Batch),
    /// No record with an event time at or below it follows on this channel.
    Watermark(EventTime),
    /// Nobody knows when a record follows: no watermark of this channel is to be waited for, until
    /// the next one comes.
    Idle,
    /// The cut of a checkpoint: what came before it belongs to the snapshot, what follows does not.
    Barrier(Barrier),
    /// What a sink's writer has prepared for its committer; the barrier follows (rule 33).
    Committables(Committables),
    /// The sender will not take part in this checkpoint; its barrier never comes (rule 7).
    Cancel(CheckpointId),
    /// No record follows on this channel; barriers still may.
    EndOfData,
    /// Nothing follows on this channel.
    EndOfPartition,
}

impl Element {
    /// The barrier, if it is one.
    pub fn barrier(&self) -> Option<Barrier> {
        if let Self::Barrier(barrier) = self { Some(*barrier) } else { None }
    }

    /// The records, if it holds any.
    pub fn batch(&self) -> Option<&Batch> {
        if let Self::Batch(records) = self { Some(records) } else { None }
    }
}

/// The barrier of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// It goes ahead of all data that waits before it, on either side of the channel (rule 20).
    pub overtakes: bool,
    /// When the coordinator began the checkpoint: timeouts count from here (rule 34).
    pub triggered_at: Instant,
}

/// What one writer of a two-stage sink has prepared since its last barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committables {
    /// The writer.
    pub writer: SubtaskIndex,
    /// The checkpoint whose barrier follows.
    pub checkpoint: CheckpointId,
    /// The transaction; none if it has written nothing.
    pub transaction: Option<TransactionId>,
}

/// Records of one type, the type erased. The builder of a job makes sure that sender and receiver
/// agree about it.
pub struct Batch {
    records: Box<dyn ErasedBatch>,
    place: Place,
}

/// What a batch is known by beside its records, where its sender has to hear of it again.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Nothing: batches are joined and cut as it suits.
    None,
    /// Its place in a tree.
    Tree(Anchor),
    /// The number of its first record on its channel, over all attempts.
    Channel(u64),
}

/// The place of a batch in the tree of all that one read of a source gave rise to, where records
/// are acknowledged (rule 82).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The tree.
    pub root: Root,
    /// The batch. Zero for a part of a batch that does not count: the last part does.
    pub edge: u64,
}

/// A read of a source, which begins a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Root {
    /// The source task, which keeps what is not acknowledged.
    pub source: TaskId,
    /// The position among the reads of this task in this attempt.
    pub read: u64,
}

impl Batch {
    /// Erases the type of `records`.
    pub fn new<T: Record>(records: Vec<T>) -> Self {
        Self { records: Box::new(records), place: Place::None }
    }

    /// Gives the records a place in a tree.
    pub fn set_anchor(&mut self, anchor: Anchor) {
        self.place = Place::Tree(anchor);
    }

    /// The place in a tree, if there is one.
    pub fn anchor(&self) -> Option<Anchor> {
        match self.place {
            Place::Tree(anchor) => Some(anchor),
            Place::None | Place::Channel(_) => None,
        }
    }

    /// Numbers the records as those of a channel, from `first` on.
    pub fn set_number(&mut self, first: u64) {
        self.place = Place::Channel(first);
    }

    /// The number of the first record on its channel, if records are numbered.
    pub fn number(&self) -> Option<u64> {
        match self.place {
            Place::Channel(first) => Some(first),
            Place::None | Place::Tree(_) => None,
        }
    }

    /// Whether the records may be joined to others: they have no place that they would lose.
    pub fn is_free(&self) -> bool {
        match self.place {
            Place::None => true,
            Place::Tree(_) | Place::Channel(_) => false,
        }
    }

    /// All but the first `count` records, which keep their numbers.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn skip(mut self, count: usize) -> Self {
        if count > 0 {
            self.records.skip(count);
            if let Place::Channel(first) = &mut self.place {
                *first += count as u64;
            }
        }
        self
    }

    /// The records again.
    ///
    /// # Panics
    /// If the batch holds records of another type: the graph was wired wrongly, which the typed
    /// builder rules out.
    pub fn into_records<T: Record>(self) -> Vec<T> {
        let found = self.records.record_type();
        *self.records.into_any().downcast().unwrap_or_else(|_| wrong_type::<T>(found))
    }

    /// A look at the records.
    ///
    /// # Panics
    /// As [`Batch::into_records`].
    pub fn records<T: Record>(&self) -> &[T] {
        let records: Option<&Vec<T>> = self.records.as_any().downcast_ref();
        records.unwrap_or_else(|| wrong_type::<T>(self.records.record_type()))
    }

    /// How many records it holds.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each record in a batch of its own, in order. The place of all of them in a tree is that of
    /// the last one; numbers stay with their records.
    pub fn split(self) -> Vec<Self> {
        // Most batches that are split hold one record.
        if self.len() == 1 {
            return vec![self];
        }
        let mut parts = self.records.split();
        match self.place {
            Place::None => {}
            Place::Tree(anchor) => {
                let part = Anchor { edge: 0, ..anchor };
                parts.iter_mut().for_each(|record| record.set_anchor(part));
                parts.last_mut().into_iter().for_each(|last| last.set_anchor(anchor));
            }
            Place::Channel(first) => {
                let numbered = (first..).zip(&mut parts);
                numbered.for_each(|(number, record)| record.set_number(number));
            }
        }
        parts
    }

    /// Appends the records of `other`.
    ///
    /// # Panics
    /// If they are of another type, or have a place: two places are not one.
    pub fn append(&mut self, other: Self) {
        assert!(other.is_free(), "a batch with a place of its own stays on its own");
        self.records.append(other.records);
    }

    /// All records, for [`Batch::decode`].
    pub fn encode(&self, format: Format) -> Vec<u8> {
        self.records.encode(format)
    }

    /// The records that [`Batch::encode`] made bytes of.
    ///
    /// # Errors
    /// If the bytes do not hold records of this type.
    pub fn decode<T: Record>(format: Format, bytes: &[u8]) -> Result<Self, DecodeError> {
        format.decode::<Vec<T>>(bytes).map(Self::new)
    }

    /// The record at `position` in the checkpoint encoding: equal bytes for equal records.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn encode_record(&self, position: usize) -> Vec<u8> {
        self.encode_record_in(Format::Binary, position)
    }

    /// The record at `position`.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn encode_record_in(&self, format: Format, position: usize) -> Vec<u8> {
        self.records.encode_record(format, position)
    }

    /// The record at `position` as people read it.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn record_text(&self, position: usize) -> String {
        self.records.record_text(position)
    }
}

impl Clone for Batch {
    fn clone(&self) -> Self {
        Self { records: self.records.clone_box(), place: self.place }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.len(), self.records.record_type())
    }
}

trait ErasedBatch: Send + Sync {
    fn record_type(&self) -> &'static str;
    fn len(&self) -> usize;
    fn as_any(&self) -> &dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn clone_box(&self) -> Box<dyn ErasedBatch>;
    fn split(self: Box<Self>) -> Vec<Batch>;
    fn append(&mut self, other: Box<dyn ErasedBatch>);
    fn skip(&mut self, count: usize);
    fn encode(&self, format: Format) -> Vec<u8>;
    fn encode_record(&self, format: Format, position: usize) -> Vec<u8>;
    fn record_text(&self, position: usize) -> String;
}

impl<T: Record> ErasedBatch for Vec<T> {
    fn record_type(&self) -> &'static str {
        std::any::type_name::<T>()
    }

    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn clone_box(&self) -> Box<dyn ErasedBatch> {
        Box::new(self.clone())
    }

    fn split(self: Box<Self>) -> Vec<Batch> {
        self.into_iter().map(|record| Batch::new(vec![record])).collect()
    }

    fn append(&mut self, other: Box<dyn ErasedBatch>) {
        Vec::append(self, &mut Batch { records: other, place: Place::None }.into_records());
    }

    fn skip(&mut self, count: usize) {
        self.drain(..count);
    }

    fn encode(&self, format: Format) -> Vec<u8> {
        format.encode(self)
    }

    fn encode_record(&self, format: Format, position: usize) -> Vec<u8> {
        format.encode(&self[position])
    }

    fn record_text(&self, position: usize) -> String {
        format!("{:?}", self[position])
    }
}

#[cold]
fn wrong_type<T>(found: &'static str) -> ! {
    panic!("a batch of {found} reached an operator of {}", std::any::type_name::<T>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_keeps_its_records_through_splitting_and_appending() {
        let batches = Batch::new(vec![1_u64, 2, 3]).split();
        let records = batches.iter().map(|batch| batch.records::<u64>().to_vec());
        assert_eq!(records.collect::<Vec<_>>(), [vec![1], vec![2], vec![3]]);
        let mut whole = Batch::new(vec![0_u64]);
        batches.into_iter().for_each(|batch| whole.append(batch));
        assert_eq!(whole.into_records::<u64>(), vec![0, 1, 2, 3]);
    }

    #[test]
    fn numbers_stay_with_their_records() {
        let mut batch = Batch::new(vec!['a', 'b', 'c']);
        assert!(batch.is_free());
        batch.set_number(7);
        let rest = batch.clone().skip(1);
        assert_eq!((rest.number(), rest.records::<char>()), (Some(8), &['b', 'c'][..]));
        let numbers = batch.split().into_iter().map(|record| record.number());
        assert_eq!(numbers.collect::<Vec<_>>(), [Some(7), Some(8), Some(9)]);
    }

    #[test]
    #[should_panic(expected = "a batch of u64 reached an operator of u32")]
    fn a_wrongly_wired_batch_is_a_broken_invariant() {
        Batch::new(vec![1_u64]).into_records::<u32>();
    }
}
