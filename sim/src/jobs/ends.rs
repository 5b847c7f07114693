//! Where the built-in jobs' streams end, and where those that read from memory begin.

use std::marker::PhantomData;
use std::sync::Arc;

use cofferdam::element::Record;
use cofferdam::guarantee::SinkContract;
use cofferdam::id::TransactionId;
use cofferdam::job::{JobBuilder, Stream};
use cofferdam::operator::chain::Segment;
use cofferdam::operator::sink::{Sink, SinkError, TransactionalSink};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::state::codec;
use serde::{Deserialize, Serialize};

use crate::jobs::Shape;
use crate::jobs::row::Row;

/// Ends streams of rows in sinks of one kind.
pub(crate) trait Ends {
    /// Ends `stream` in the sink `uid`.
    fn end<S: Segment>(&self, stream: Stream<S>, uid: &str)
    where
        S::Out: Row;
}

/// Sinks that keep nothing: whoever drives the job sees what they are asked to write.
#[derive(Clone, Copy)]
pub(crate) struct Watched(pub(crate) SinkContract);

impl Ends for Watched {
    fn end<S: Segment>(&self, stream: Stream<S>, uid: &str)
    where
        S::Out: Row,
    {
        let sink = WatchedSink { contract: self.0, rows: PhantomData };
        match self.0 {
            SinkContract::TwoPhase => stream.transactional_sink(uid, sink),
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
                stream.sink(uid, sink);
            }
        }
    }
}

/// Records in memory, read in shares. A share's cursor is the [`Share`] that is left of it.
#[derive(Clone, Debug)]
pub(crate) struct Listed<T>(pub(crate) Arc<[T]>);

impl<T: Record> Source for Listed<T> {
    type Record = T;
    type Split = Share;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Share>, SourceError> {
        Ok(Share::cut(self.0.len() as u64, parallelism))
    }

    fn read(&mut self, share: &mut Share, records_max: usize) -> Result<Fetch<T>, SourceError> {
        let taken = share.take(records_max);
        Ok(match taken.is_empty() {
            true => Fetch::End,
            false => Fetch::Records(self.0[taken.start as usize..taken.end as usize].to_vec()),
        })
    }
}

/// The records from `next` on that lie before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    next: u64,
    end: u64,
}

impl Share {
    /// Cuts `records` into equal shares; no more than there are records.
    pub(crate) fn cut(records: u64, shares: usize) -> Vec<Self> {
        let shares = (shares as u64).clamp(1, records.max(1));
        let bound = |share| (u128::from(records) * u128::from(share) / u128::from(shares)) as u64;
        (0..shares).map(|share| Self { next: bound(share), end: bound(share + 1) }).collect()
    }

    /// Takes the first `records_max` off.
    pub(crate) fn take(&mut self, records_max: usize) -> std::ops::Range<u64> {
        let start = self.next;
        self.next = self.end.min(start.saturating_add(records_max as u64));
        start..self.next
    }

    /// The offset of the next record of an encoded share.
    pub(crate) fn offset_at(cursor: &[u8]) -> u64 {
        let share: Self =
            codec::decode(cursor).expect("the cursor of a source that reads in shares");
        share.next
    }
}

/// A builder for a job of this shape.
pub(crate) fn builder(name: &str, shape: Shape) -> JobBuilder {
    let builder = JobBuilder::new(name, shape.parallelism);
    if let Some(count) = shape.key_groups {
        builder.key_groups(count);
    }
    builder
}

struct WatchedSink<R> {
    contract: SinkContract,
    rows: PhantomData<fn(R)>,
}

impl<R> Clone for WatchedSink<R> {
    fn clone(&self) -> Self {
        Self { contract: self.contract, rows: PhantomData }
    }
}

impl<R: Row> Sink for WatchedSink<R> {
    type Record = R;

    fn is_idempotent(&self) -> bool {
        self.contract == SinkContract::Idempotent
    }

    fn write(&mut self, _rows: Vec<R>) -> Result<(), SinkError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl<R: Row> TransactionalSink for WatchedSink<R> {
    type Record = R;

    fn write(&mut self, _transaction: TransactionId, _rows: Vec<R>) -> Result<(), SinkError> {
        Ok(())
    }

    fn prepare(&mut self, _transaction: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn commit(&mut self, _transaction: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}
