//! Sources whose splits are not cut beforehand: they are found one after another, and each goes to
//! the task that asks for one (rules 80, 81). The trait that users write, and a source of the other
//! kind as one of this.

use crate::element::Record;
use crate::message::Found;
use crate::operator::source::{ErasedSource, Fetch, ReadOutcome, Source, SourceError, read_at};
use crate::state::codec;

/// A source whose splits are found as time goes on. Tasks that have read all that they have ask the
/// coordinator for another one, so a slow task gets fewer.
///
/// The driver calls it where it may block; a value of this type is copied for every subtask and for
/// every search.
pub trait SplitSource: Clone + Send + 'static {
    /// The records it gives.
    type Record: Record;
    /// A cursor: which part of the input, and how far in it the next record stands.
    type Split: Record;

    /// The splits behind the first `known` ones, in an order that is always the same: after a crash
    /// the search goes on behind those that the last complete checkpoint knows.
    ///
    /// # Errors
    /// If the input is not there or can not be read.
    fn search(&mut self, known: u32) -> Result<Found<Self::Split>, SourceError>;

    /// As [`Source::read`].
    ///
    /// # Errors
    /// As there.
    fn read(
        &mut self,
        split: &mut Self::Split,
        records_max: usize,
    ) -> Result<Fetch<Self::Record>, SourceError>;
}

/// The splits of a source that cuts its input beforehand, assigned one by one.
#[derive(Clone, Debug)]
pub struct Pieces<S> {
    source: S,
    count: usize,
    found_together: usize,
}

impl<S: Source> Pieces<S> {
    /// The input of `source` in at most `count` splits, of which a search finds so many at a time.
    pub const fn new(source: S, count: usize, found_together: usize) -> Self {
        Self { source, count, found_together }
    }
}

impl<S: Source> SplitSource for Pieces<S> {
    type Record = S::Record;
    type Split = S::Split;

    fn search(&mut self, known: u32) -> Result<Found<S::Split>, SourceError> {
        if known as usize >= self.count {
            return Ok(Found::End);
        }
        let pieces = self.source.discover(self.count)?.into_iter().skip(known as usize);
        let found: Vec<S::Split> = pieces.take(self.found_together).collect();
        Ok(if found.is_empty() { Found::End } else { Found::Splits(found) })
    }

    fn read(
        &mut self,
        split: &mut S::Split,
        records_max: usize,
    ) -> Result<Fetch<S::Record>, SourceError> {
        self.source.read(split, records_max)
    }
}

/// A source whose splits are assigned, as drivers call it.
#[derive(Clone)]
pub(crate) struct Assigned<S>(pub(crate) S);

impl<S: SplitSource> ErasedSource for Assigned<S> {
    /// No task has a split at the first start.
    fn discover(&mut self, _parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError> {
        Ok(Vec::new())
    }

    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome {
        read_at(cursor, |split| self.0.read(split, records_max))
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn is_truncated(&self) -> bool {
        false
    }

    fn is_assigned(&self) -> bool {
        true
    }

    fn search(&mut self, known: u32) -> Result<Found<Vec<u8>>, SourceError> {
        Ok(match self.0.search(known)? {
            Found::Splits(splits) => Found::Splits(splits.iter().map(codec::encode).collect()),
            Found::Nothing => Found::Nothing,
            Found::End => Found::End,
        })
    }

    fn clone_box(&self) -> Box<dyn ErasedSource> {
        Box::new(self.clone())
    }
}
