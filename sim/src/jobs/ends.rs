//! Where the built-in jobs' streams end.

use std::marker::PhantomData;

use cofferdam::guarantee::SinkContract;
use cofferdam::id::TransactionId;
use cofferdam::job::{JobBuilder, Stream};
use cofferdam::operator::chain::Segment;
use cofferdam::operator::sink::{
    CommitError, Committed, Sink, SinkError, TransactionalSink, WriteAheadSink,
};

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
            SinkContract::WriteAhead => stream.write_ahead_sink(uid, sink),
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
                stream.sink(uid, sink);
            }
        }
    }
}

/// As [`Watched`], for two-phase sinks in two stages.
#[derive(Clone, Copy)]
pub(crate) struct WatchedInStages;

impl Ends for WatchedInStages {
    fn end<S: Segment>(&self, stream: Stream<S>, uid: &str)
    where
        S::Out: Row,
    {
        let contract = SinkContract::TwoPhase;
        stream.two_stage_sink(uid, WatchedSink { contract, rows: PhantomData });
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

    fn contract(&self) -> SinkContract {
        self.contract
    }

    fn key_of(&self, row: &R) -> Vec<u8> {
        row.row_key()
    }

    fn is_key_whole(&self) -> bool {
        R::IS_KEY_WHOLE
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

    fn commit(&mut self, _transaction: TransactionId) -> Result<Committed, CommitError> {
        Ok(Committed::Now)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl<R: Row> WriteAheadSink for WatchedSink<R> {
    type Record = R;

    fn is_idempotent(&self) -> bool {
        true
    }

    fn send(&mut self, _id: TransactionId, _rows: Vec<R>) -> Result<(), SinkError> {
        Ok(())
    }

    fn mark(&mut self, _id: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn is_marked(&mut self, _id: TransactionId) -> Result<bool, SinkError> {
        Ok(false)
    }
}
