//! A log in memory that loses its oldest records, as one with a retention time does: for examples
//! and tests of what a job says when a replay comes too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::connector::memory::Range;
use crate::element::Record;
use crate::operator::source::{Fetch, Source, SourceError};

/// See the [module](self). All copies read the same log.
#[derive(Clone, Debug)]
pub struct TruncatedLog<T> {
    values: Arc<Vec<T>>,
    first: Arc<AtomicU64>,
}

impl<T> TruncatedLog<T> {
    /// The records before position `first` are gone from now on.
    pub fn truncate(&self, first: u64) {
        self.first.fetch_max(first, Ordering::AcqRel);
    }
}

impl<T> From<Arc<Vec<T>>> for TruncatedLog<T> {
    /// The values in their order, in even contiguous parts.
    fn from(values: Arc<Vec<T>>) -> Self {
        Self { values, first: Arc::default() }
    }
}

impl<T: Record> Source for TruncatedLog<T> {
    type Record = T;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        Ok(Range::split(self.values.len() as u64, parallelism))
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<T>, SourceError> {
        let first = self.first.load(Ordering::Acquire).min(split.end);
        if split.next < first {
            let wanted = std::mem::replace(&mut split.next, first);
            return Ok(Fetch::Gone { wanted, first });
        }
        let part = split.take(records_max);
        let values = &self.values[part.start as usize..part.end as usize];
        Ok(if values.is_empty() { Fetch::End } else { Fetch::Records(values.to_vec()) })
    }

    fn is_truncated(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_what_is_gone_says_so() {
        let mut log = TruncatedLog::from(Arc::new(vec!['a', 'b', 'c', 'd']));
        let mut split = log.discover(1).unwrap().remove(0);
        assert_eq!(log.read(&mut split, 1), Ok(Fetch::Records(vec!['a'])));
        let early = split;
        assert_eq!(log.read(&mut split, 2), Ok(Fetch::Records(vec!['b', 'c'])));
        log.truncate(3);
        log.truncate(2);
        assert_eq!(log.read(&mut early.clone(), 1), Ok(Fetch::Gone { wanted: 1, first: 3 }));
        assert_eq!(log.read(&mut split, 9), Ok(Fetch::Records(vec!['d'])));
        assert_eq!(log.read(&mut split, 1), Ok(Fetch::End));
    }
}
