//! Joins of two streams. Which rows come of them is fixed by the records and their event times, not
//! by which of two records comes first.

mod broadcast;
mod interval;

use serde::{Deserialize, Serialize};

pub use broadcast::BroadcastJoin;
pub use interval::{Interval, IntervalJoin, Partners};

use crate::operator::keyed::KeySelector;
use crate::state::key_group::Key;

/// A record of one of two streams that are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Either<L, R> {
    /// Of the first.
    Left(L),
    /// Of the second.
    Right(R),
}

/// A key selector for each side.
#[derive(Clone)]
pub struct EitherKey<A, B> {
    left: A,
    right: B,
}

impl<A, B> EitherKey<A, B> {
    /// `left` finds the key of the first stream's records, `right` that of the second's.
    pub const fn new(left: A, right: B) -> Self {
        Self { left, right }
    }
}

impl<L, R, K, A, B> KeySelector<Either<L, R>> for EitherKey<A, B>
where
    K: Key,
    A: KeySelector<L, Key = K>,
    B: KeySelector<R, Key = K>,
{
    type Key = K;

    #[inline]
    fn with_key<T>(&self, record: &Either<L, R>, then: impl FnOnce(&K) -> T) -> T {
        match record {
            Either::Left(record) => self.left.with_key(record, then),
            Either::Right(record) => self.right.with_key(record, then),
        }
    }
}
