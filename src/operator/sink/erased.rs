//! Sinks with their types erased.

use std::sync::Arc;
use std::time::Duration;

use crate::element::{Batch, Record};
use crate::guarantee::SinkContract;
use crate::id::{AttemptId, SubtaskIndex};
use crate::operator::sink::{
    Sink, SinkError, SinkPlace, SinkReply, SinkRequest, TransactionalSink, WriteAheadSink,
};
use crate::state::codec::{DecodeError, Format};
use crate::state::snapshot::Bytes;

/// A sink with its types erased, as drivers call it.
pub trait ErasedSink: Send {
    /// What the sink promises.
    fn contract(&self) -> SinkContract;
    /// As [`Sink::key_of`], of the record at `position`; empty for a sink that does not upsert.
    fn key_of(&self, _records: &Batch, _position: usize) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Sink::is_key_whole`].
    fn is_key_whole(&self) -> bool {
        false
    }
    /// Whether it is a [`Sink`].
    fn is_direct(&self) -> bool {
        false
    }
    /// Whether sending rows again that were sent before changes nothing, as
    /// [`WriteAheadSink::is_idempotent`] says.
    fn resends_idempotently(&self) -> bool {
        true
    }
    /// As [`TransactionalSink::timeout`].
    fn timeout(&self) -> Option<Duration> {
        None
    }
    /// Rows of the sink's type in a batch, from the checkpoint encoding.
    ///
    /// # Errors
    /// If the bytes are not such rows.
    fn decode(&self, format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError>;
    /// As [`Sink::destination`].
    fn destination(&self) -> Option<String>;
    /// Opens it.
    ///
    /// # Errors
    /// If the external system refuses.
    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError>;
    /// Carries a request out.
    ///
    /// # Errors
    /// If the external system refuses.
    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError>;
    /// A copy.
    fn clone_box(&self) -> Box<dyn ErasedSink>;
}

impl Clone for Box<dyn ErasedSink> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// Erases a [`Sink`].
#[derive(Clone)]
pub(crate) struct Direct<S>(pub(crate) S);

impl<S: Sink> ErasedSink for Direct<S> {
    fn contract(&self) -> SinkContract {
        self.0.contract()
    }

    fn key_of(&self, records: &Batch, position: usize) -> Vec<u8> {
        self.0.key_of(&records.records()[position])
    }

    fn is_key_whole(&self) -> bool {
        self.0.is_key_whole()
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn decode(&self, format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError> {
        decode::<S::Record>(format, rows)
    }

    fn destination(&self) -> Option<String> {
        self.0.destination()
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        match request {
            SinkRequest::Write { records, .. } => {
                self.0.write(records.into_records()).map(|()| None)
            }
            SinkRequest::Flush(checkpoint) => {
                self.0.flush().map(|()| Some(SinkReply::Flushed(checkpoint)))
            }
            SinkRequest::Prepare(_)
            | SinkRequest::Commit(_)
            | SinkRequest::AbortDangling
            | SinkRequest::LookUp(_)
            | SinkRequest::Send { .. }
            | SinkRequest::Mark(_) => {
                unreachable!("the machine of a direct sink knows no transactions")
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

/// Erases a [`TransactionalSink`].
#[derive(Clone)]
pub(crate) struct Transactional<S>(pub(crate) S);

impl<S: TransactionalSink> ErasedSink for Transactional<S> {
    fn contract(&self) -> SinkContract {
        SinkContract::TwoPhase
    }

    fn timeout(&self) -> Option<Duration> {
        self.0.timeout()
    }

    fn decode(&self, format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError> {
        decode::<S::Record>(format, rows)
    }

    fn destination(&self) -> Option<String> {
        self.0.destination()
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        match request {
            SinkRequest::Write { transaction, records } => {
                let transaction = transaction.expect("a two-phase machine writes in transactions");
                self.0.write(transaction, records.into_records()).map(|()| None)
            }
            SinkRequest::Flush(checkpoint) => Ok(Some(SinkReply::Flushed(checkpoint))),
            SinkRequest::Prepare(pending) => {
                self.0.prepare(pending.transaction).map(|()| Some(SinkReply::Prepared(pending)))
            }
            SinkRequest::Commit(transaction) => {
                let outcome = self.0.commit(transaction);
                Ok(Some(SinkReply::Commit { transaction, outcome }))
            }
            SinkRequest::AbortDangling => {
                self.0.abort_dangling().map(|()| Some(SinkReply::DanglingAborted))
            }
            SinkRequest::LookUp(_) | SinkRequest::Send { .. } | SinkRequest::Mark(_) => {
                unreachable!("the machine of a two-phase sink keeps no rows")
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

/// Erases a [`TransactionalSink`] whose transactions other subtasks have written.
#[derive(Clone)]
pub(crate) struct Committing<S> {
    sink: S,
    writers: usize,
    attempt: Option<AttemptId>,
}

impl<S: TransactionalSink> ErasedSink for Committing<S> {
    fn contract(&self) -> SinkContract {
        SinkContract::TwoPhase
    }

    fn decode(&self, format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError> {
        decode::<S::Record>(format, rows)
    }

    /// That of the writers, which have it.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Takes over from the writers of earlier attempts, each of which could still write.
    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.attempt = Some(place.attempt);
        self.at_each(place.attempt, |_| Ok(()))?;
        self.sink.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        match request {
            SinkRequest::Commit(transaction) => {
                let outcome = self.sink.commit(transaction);
                Ok(Some(SinkReply::Commit { transaction, outcome }))
            }
            SinkRequest::AbortDangling => {
                let attempt = self.attempt.expect("a sink is opened first");
                self.at_each(attempt, S::abort_dangling)?;
                Ok(Some(SinkReply::DanglingAborted))
            }
            SinkRequest::Write { .. }
            | SinkRequest::Flush(_)
            | SinkRequest::Prepare(_)
            | SinkRequest::LookUp(_)
            | SinkRequest::Send { .. }
            | SinkRequest::Mark(_) => {
                unreachable!("the machine of a committer writes nothing")
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

impl<S: TransactionalSink> Committing<S> {
    pub(crate) fn new(sink: S, writers: usize) -> Self {
        Self { sink, writers, attempt: None }
    }

    /// Acts in the place of each writer.
    fn at_each(
        &self,
        attempt: AttemptId,
        act: impl Fn(&mut S) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        (0..self.writers).try_for_each(|writer| {
            let (subtask, parallelism) = (SubtaskIndex::new(writer as u32), self.writers);
            let mut copy = self.sink.clone();
            copy.open(&SinkPlace { subtask, parallelism, attempt, shown: Vec::new() })?;
            act(&mut copy)
        })
    }
}

/// Erases a [`WriteAheadSink`].
#[derive(Clone)]
pub(crate) struct Logged<S>(pub(crate) S);

impl<S: WriteAheadSink> ErasedSink for Logged<S> {
    fn contract(&self) -> SinkContract {
        SinkContract::WriteAhead
    }

    fn resends_idempotently(&self) -> bool {
        self.0.is_idempotent()
    }

    fn decode(&self, format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError> {
        decode::<S::Record>(format, rows)
    }

    fn destination(&self) -> Option<String> {
        self.0.destination()
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        let reply = match request {
            SinkRequest::Flush(checkpoint) => SinkReply::Flushed(checkpoint),
            SinkRequest::LookUp(id) => SinkReply::LookedUp { id, is_marked: self.0.is_marked(id)? },
            SinkRequest::Send { id, records } => {
                let batches = Arc::unwrap_or_clone(records).into_iter();
                self.0.send(id, batches.flat_map(Batch::into_records).collect())?;
                SinkReply::Sent(id)
            }
            SinkRequest::Mark(id) => {
                self.0.mark(id)?;
                SinkReply::Marked(id)
            }
            SinkRequest::Write { .. }
            | SinkRequest::Prepare(_)
            | SinkRequest::Commit(_)
            | SinkRequest::AbortDangling => {
                unreachable!("the machine of a write-ahead sink keeps its rows to itself")
            }
        };
        Ok(Some(reply))
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

fn decode<R: Record>(format: Format, rows: &[Bytes]) -> Result<Batch, DecodeError> {
    rows.iter().map(|row| format.decode::<R>(row)).collect::<Result<Vec<R>, _>>().map(Batch::new)
}
