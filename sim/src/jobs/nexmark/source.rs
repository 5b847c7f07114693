//! The numbers of events, dealt out so that all subtasks are at about the same event time.

use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::state::codec;
use serde::{Deserialize, Serialize};

/// A source of the numbers from 0 on; the subtasks take turns, block by block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    count: u64,
    block: u64,
}

/// What a subtask has yet to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Turn {
    next: u64,
    count: u64,
    block: u64,
    /// How many take turns.
    parts: u64,
}

impl Turns {
    /// The numbers `0..count`.
    pub(super) fn up_to(count: u64, parallelism: usize) -> Self {
        // A short input gives each subtask more than one turn.
        let block = count / (2 * parallelism as u64).max(1);
        Self { count, block: block.clamp(1, BLOCK) }
    }
}

impl Source for Turns {
    type Record = u64;
    type Split = Turn;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Turn>, SourceError> {
        let Self { count, block } = *self;
        let parts = parallelism as u64;
        Ok((0..parts).map(|part| Turn { next: part * block, count, block, parts }).collect())
    }

    fn read(&mut self, turn: &mut Turn, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        let first = turn.next;
        let end = (first - first % turn.block + turn.block).min(turn.count);
        if first >= end {
            return Ok(Fetch::End);
        }
        let end = end.min(first.saturating_add(records_max as u64));
        let is_over = end.is_multiple_of(turn.block);
        turn.next = if is_over { end + (turn.parts - 1) * turn.block } else { end };
        Ok(Fetch::Records((first..end).collect()))
    }
}

/// The number that stands at an encoded cursor.
pub(super) fn number_at(cursor: &[u8]) -> u64 {
    let turn: Turn = codec::decode(cursor).expect("the cursor of a source of turns");
    turn.next
}

/// As many as are read at once, or more.
const BLOCK: u64 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_leave_nothing_out_and_give_nothing_twice() {
        for (count, parallelism) in [(0, 1), (1, 3), (7, 2), (100, 3), (5_000, 2), (4_096, 2)] {
            let mut source = Turns::up_to(count, parallelism);
            let mut all = Vec::new();
            for mut turn in source.discover(parallelism).unwrap() {
                loop {
                    let first = number_at(&codec::encode(&turn));
                    let Fetch::Records(numbers) = source.read(&mut turn, 300).unwrap() else {
                        break;
                    };
                    assert_eq!(numbers[0], first);
                    assert!(numbers.is_sorted() && numbers.len() <= 300);
                    all.extend(numbers);
                }
            }
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<u64>>(), "{count} over {parallelism}");
        }
    }
}
