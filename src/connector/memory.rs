//! Sources and sinks in memory: for examples, tests and measuring. The values that a sink of this
//! module collects are shared by all its copies and are read through any of them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::guarantee::SinkContract;
use crate::id::TransactionId;
use crate::operator::sink::{
    CommitError, Committed, Sink, SinkError, SinkPlace, TransactionalSink,
};
use crate::operator::source::{Fetch, Source, SourceError};

/// The part of a numbered input that is still to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The next record.
    pub next: u64,
    /// The first record that is not of this part.
    pub end: u64,
}

impl Range {
    /// Even contiguous parts of `0..len`.
    pub(super) fn split(len: u64, parts: usize) -> Vec<Self> {
        let bound = |part: usize| (u128::from(len) * part as u128 / parts as u128) as u64;
        (0..parts).map(|part| Self { next: bound(part), end: bound(part + 1) }).collect()
    }

    /// Takes at most `records_max` off the front.
    pub(super) fn take(&mut self, records_max: usize) -> std::ops::Range<u64> {
        let start = self.next;
        self.next = self.end.min(start.saturating_add(records_max as u64));
        start..self.next
    }
}

/// A source of the numbers from 0 on; each subtask counts through its own share.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    count: u64,
}

impl Numbers {
    /// The numbers `0..count`.
    pub const fn up_to(count: u64) -> Self {
        Self { count }
    }
}

impl Source for Numbers {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        Ok(Range::split(self.count, parallelism))
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        let numbers = split.take(records_max);
        Ok(if numbers.is_empty() { Fetch::End } else { Fetch::Records(numbers.collect()) })
    }
}

/// A source of the values of a vector.
#[derive(Clone, Debug)]
pub struct VecSource<T> {
    values: Arc<Vec<T>>,
    is_endless: bool,
}

impl<T> VecSource<T> {
    /// The values in their order, in even contiguous parts.
    pub fn new(values: Vec<T>) -> Self {
        Self { values: Arc::new(values), is_endless: false }
    }

    /// As if more could come: behind the last value there is nothing for now.
    #[must_use]
    pub fn endless(self) -> Self {
        Self { is_endless: true, ..self }
    }
}

impl<T> From<Arc<Vec<T>>> for VecSource<T> {
    /// As [`VecSource::new`], for values that are also used elsewhere.
    fn from(values: Arc<Vec<T>>) -> Self {
        Self { values, is_endless: false }
    }
}

impl<T: Record> Source for VecSource<T> {
    type Record = T;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        Ok(Range::split(self.values.len() as u64, parallelism))
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<T>, SourceError> {
        let part = split.take(records_max);
        let values = &self.values[part.start as usize..part.end as usize];
        Ok(match values {
            [] if self.is_endless => Fetch::Nothing,
            [] => Fetch::End,
            values => Fetch::Records(values.to_vec()),
        })
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }
}

/// A plain sink that keeps every record it is given.
#[derive(Debug)]
pub struct Collect<T> {
    records: Arc<Mutex<Vec<T>>>,
}

impl<T: Clone> Collect<T> {
    /// Every record so far.
    pub fn records(&self) -> Vec<T> {
        lock(&self.records).clone()
    }
}

impl<T> Default for Collect<T> {
    fn default() -> Self {
        Self { records: Arc::default() }
    }
}

impl<T> Clone for Collect<T> {
    fn clone(&self) -> Self {
        Self { records: self.records.clone() }
    }
}

impl<T: Record> Sink for Collect<T> {
    type Record = T;

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        lock(&self.records).extend(records);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A two-phase sink whose transactions are vectors.
#[derive(Debug)]
pub struct CollectTransactions<T> {
    place: Option<SinkPlace>,
    transactions: Arc<Mutex<BTreeMap<TransactionId, Transaction<T>>>>,
}

#[derive(Debug)]
enum Transaction<T> {
    Open(Vec<T>),
    Prepared(Vec<T>),
    Committed(Vec<T>),
}

impl<T: Clone> CollectTransactions<T> {
    /// The records of all committed transactions.
    pub fn committed(&self) -> Vec<T> {
        let transactions = lock(&self.transactions);
        let committed = transactions.values().filter_map(|transaction| match transaction {
            Transaction::Committed(records) => Some(records),
            Transaction::Open(_) | Transaction::Prepared(_) => None,
        });
        committed.flatten().cloned().collect()
    }
}

impl<T> Default for CollectTransactions<T> {
    fn default() -> Self {
        Self { place: None, transactions: Arc::default() }
    }
}

impl<T> Clone for CollectTransactions<T> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), transactions: self.transactions.clone() }
    }
}

impl<T: Record> TransactionalSink for CollectTransactions<T> {
    type Record = T;

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.place = Some(place.clone());
        Ok(())
    }

    fn write(&mut self, transaction: TransactionId, records: Vec<T>) -> Result<(), SinkError> {
        let mut transactions = lock(&self.transactions);
        match transactions.entry(transaction).or_insert_with(|| Transaction::Open(Vec::new())) {
            Transaction::Open(open) => {
                open.extend(records);
                Ok(())
            }
            Transaction::Prepared(_) | Transaction::Committed(_) => {
                Err(SinkError::Refused(format!("transaction {transaction} takes no more records")))
            }
        }
    }

    fn prepare(&mut self, transaction: TransactionId) -> Result<(), SinkError> {
        let mut transactions = lock(&self.transactions);
        match transactions.remove(&transaction) {
            Some(Transaction::Open(records)) => {
                transactions.insert(transaction, Transaction::Prepared(records));
                Ok(())
            }
            Some(Transaction::Prepared(_) | Transaction::Committed(_)) | None => {
                Err(SinkError::Refused(format!("transaction {transaction} is not open")))
            }
        }
    }

    fn commit(&mut self, transaction: TransactionId) -> Result<Committed, CommitError> {
        let mut transactions = lock(&self.transactions);
        let (records, committed) = match transactions.remove(&transaction) {
            Some(Transaction::Prepared(records)) => (records, Committed::Now),
            Some(Transaction::Committed(records)) => (records, Committed::Before),
            Some(Transaction::Open(_)) | None => {
                return Err(CommitError::Lost(format!(
                    "transaction {transaction} is not prepared"
                )));
            }
        };
        transactions.insert(transaction, Transaction::Committed(records));
        Ok(committed)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        let place = self.place.as_ref().expect("a sink is opened first");
        lock(&self.transactions).retain(|id, transaction| match transaction {
            Transaction::Open(_) | Transaction::Prepared(_) => {
                !place.takes_over(id.subtask) || id.attempt >= place.attempt
            }
            Transaction::Committed(_) => true,
        });
        Ok(())
    }
}

/// A sink that writes nothing but folds every record into a checksum: for measuring.
pub struct DiscardSink<T, F> {
    fold: F,
    checksum: Arc<AtomicU64>,
    records: PhantomData<fn(T)>,
}

impl<T: Record, F: Fn(&T) -> u64 + Clone + Send + 'static> DiscardSink<T, F> {
    /// Sums up, wrapping, what `fold` makes of each record.
    pub fn new(fold: F) -> Self {
        Self { fold, checksum: Arc::default(), records: PhantomData }
    }

    /// The sum so far over all copies, replayed records included.
    pub fn checksum(&self) -> u64 {
        self.checksum.load(Ordering::Relaxed)
    }
}

impl<T, F: Clone> Clone for DiscardSink<T, F> {
    fn clone(&self) -> Self {
        let fold = self.fold.clone();
        Self { fold, checksum: self.checksum.clone(), records: PhantomData }
    }
}

impl<T, F> fmt::Debug for DiscardSink<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiscardSink({:#x})", self.checksum.load(Ordering::Relaxed))
    }
}

impl<T: Record, F: Fn(&T) -> u64 + Clone + Send + 'static> Sink for DiscardSink<T, F> {
    type Record = T;

    fn contract(&self) -> SinkContract {
        SinkContract::Discard
    }

    fn write(&mut self, records: Vec<T>) -> Result<(), SinkError> {
        let sums = records.iter().map(&self.fold);
        let sum = sums.fold(0, u64::wrapping_add);
        self.checksum.fetch_add(sum, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// A panic of another copy leaves nothing half done here: each change is one call on a collection.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, SubtaskIndex, VertexId};

    #[test]
    fn the_shares_of_a_source_are_even_and_leave_nothing_out() {
        let mut source = VecSource::new((0..10).collect::<Vec<u32>>());
        let mut splits = source.discover(3).unwrap();
        let mut all = Vec::new();
        for split in &mut splits {
            while let Fetch::Records(records) = source.read(split, 2).unwrap() {
                assert!(records.len() <= 2);
                all.extend(records);
            }
        }
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_transaction_shows_when_committed_and_a_dangling_one_never() {
        let id = |sequence| TransactionId {
            vertex: VertexId::new(0),
            subtask: SubtaskIndex::new(0),
            attempt: AttemptId::new(1),
            sequence,
        };
        let place = |attempt| SinkPlace {
            subtask: SubtaskIndex::new(0),
            parallelism: 1,
            attempt: AttemptId::new(attempt),
            shown: Vec::new(),
        };
        let mut sink = CollectTransactions::default();
        sink.open(&place(1)).unwrap();
        sink.write(id(0), vec![1]).unwrap();
        sink.prepare(id(0)).unwrap();
        sink.write(id(1), vec![2]).unwrap();
        assert!(sink.committed().is_empty());
        let mut later = sink.clone();
        later.open(&place(2)).unwrap();
        assert_eq!(later.commit(id(0)), Ok(Committed::Now));
        assert_eq!(later.commit(id(0)), Ok(Committed::Before));
        later.abort_dangling().unwrap();
        assert_eq!(sink.committed(), [1]);
        assert!(later.commit(id(1)).is_err());
    }
}
