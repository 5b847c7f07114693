//! What a source has read ahead under at-most-once: answers that wait, in order, until the position
//! behind them is durable. It does not know where that is.
//!
//! Reading goes on while a position is on its way to the store, and so does handing out what an
//! earlier one has reserved: the source waits only if the store is slower than both.
//!
//! Invariant: an answer with records leaves only when a position behind it is durable, so none is
//! read again. What is lost at a crash is what waits here.

use std::collections::VecDeque;

use crate::operator::source::{ReadOutcome, ReadReply};

/// Answers to reads, none of them taken up.
#[derive(Clone)]
pub(crate) struct ReadAhead {
    waiting: VecDeque<ReadReply>,
    /// How many answers with records are reserved: the first ones. Behind them come those whose
    /// position is being stored, and those that came later.
    reserved: usize,
    storing: usize,
    unstored: usize,
    /// The records that wait, and those of them whose position nobody has asked to store.
    records: usize,
    records_unstored: usize,
    /// So many are worth a reservation while there is something to hand out.
    portion: usize,
}

impl ReadAhead {
    pub(crate) fn new(portion: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            reserved: 0,
            storing: 0,
            unstored: 0,
            records: 0,
            records_unstored: 0,
            portion,
        }
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one answer waits, without records: it waits for nothing.
    pub(crate) fn is_alone(&self) -> bool {
        self.waiting.len() == 1 && !self.waiting.iter().any(has_records)
    }

    /// Whether a position is on its way to the store.
    pub(crate) fn is_storing(&self) -> bool {
        self.storing > 0
    }

    /// Whether more is to be read. Nothing is behind an answer without records: what that means
    /// for the split is known when it is taken up.
    pub(crate) fn has_room(&self) -> bool {
        let portions = if self.reserved > 0 { PORTIONS } else { PORTIONS_MAX };
        self.records < portions * self.portion && self.waiting.back().is_none_or(has_records)
    }

    /// Adds an answer behind all others.
    pub(crate) fn push(&mut self, reply: ReadReply) {
        if has_records(&reply) {
            self.unstored += 1;
            self.records += weight(&reply);
            self.records_unstored += weight(&reply);
        }
        self.waiting.push_back(reply);
    }

    /// The answer that may be taken up next, if one may.
    pub(crate) fn first(&self) -> Option<&ReadReply> {
        self.waiting.front().filter(|first| self.reserved > 0 || !has_records(first))
    }

    /// Takes it out.
    pub(crate) fn pop(&mut self) -> Option<ReadReply> {
        self.first()?;
        let first = self.waiting.pop_front()?;
        if has_records(&first) {
            self.reserved -= 1;
            self.records -= weight(&first);
        }
        Some(first)
    }

    /// Whether the position behind all answers is to be stored now; from now on it is on its way.
    pub(crate) fn begin_storing(&mut self) -> bool {
        let is_due = self.reserved == 0 || self.records_unstored >= self.portion;
        if self.is_storing() || self.unstored == 0 || !is_due {
            return false;
        }
        self.storing = std::mem::take(&mut self.unstored);
        self.records_unstored = 0;
        true
    }

    /// That position is durable.
    pub(crate) fn handle_stored(&mut self) {
        self.reserved += std::mem::take(&mut self.storing);
    }
}

fn has_records(reply: &ReadReply) -> bool {
    matches!(reply.outcome, ReadOutcome::Records { .. })
}

/// How many records an answer counts for: one that only moves the cursor is not for nothing.
fn weight(reply: &ReadReply) -> usize {
    if let ReadOutcome::Records { records, .. } = &reply.outcome { records.len().max(1) } else { 0 }
}

/// How many portions are read ahead: one is handed out while the position behind the next one is
/// being stored.
const PORTIONS: usize = 2;

/// How many where there is nothing to hand out because the store is slow.
const PORTIONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Batch;
    use crate::id::SplitId;

    fn reply(outcome: ReadOutcome) -> ReadReply {
        ReadReply { split: SplitId::new(0), outcome }
    }

    fn records(count: u64) -> ReadReply {
        let records = Batch::new((0..count).collect::<Vec<u64>>());
        reply(ReadOutcome::Records { records, cursor: Vec::new() })
    }

    /// Answers with ten records each; ten are a portion.
    fn with_answers(count: usize) -> ReadAhead {
        let mut ahead = ReadAhead::new(10);
        (0..count).for_each(|_| ahead.push(records(10)));
        ahead
    }

    #[test]
    fn what_waits_is_handed_out_as_far_as_positions_are_durable() {
        let mut ahead = with_answers(2);
        assert!(ahead.first().is_none() && ahead.pop().is_none());
        assert!(ahead.begin_storing() && ahead.is_storing());
        ahead.push(records(10));
        ahead.handle_stored();
        assert!(ahead.pop().is_some() && ahead.pop().is_some());
        assert!(ahead.pop().is_none(), "it came after that position");
        assert!(!ahead.is_storing() && ahead.begin_storing());
    }

    #[test]
    fn a_position_is_stored_when_a_portion_is_behind_it_or_nothing_is_left_to_hand_out() {
        let mut ahead = with_answers(1);
        assert!(ahead.begin_storing());
        ahead.push(records(20));
        assert!(!ahead.begin_storing(), "one is on its way");
        ahead.handle_stored();
        assert!(ahead.begin_storing(), "two portions are behind the last one");
        ahead.handle_stored();
        ahead.push(records(9));
        assert!(!ahead.begin_storing());
        assert!(ahead.pop().is_some() && !ahead.begin_storing());
        assert!(ahead.pop().is_some() && ahead.begin_storing());
    }

    #[test]
    fn more_is_read_ahead_if_nothing_is_left_to_hand_out() {
        let mut ahead = with_answers(2);
        assert!(ahead.has_room(), "the store is slow");
        ahead.begin_storing();
        ahead.handle_stored();
        assert!(!ahead.has_room());
        ahead.pop();
        assert!(ahead.has_room());
        let mut ahead = with_answers(15);
        assert!(ahead.has_room());
        ahead.push(records(0));
        assert!(ahead.has_room());
        ahead.push(records(10));
        assert!(!ahead.has_room());
    }

    #[test]
    fn answers_without_records_keep_their_turn_and_nothing_is_read_behind_them() {
        let mut ahead = with_answers(1);
        ahead.push(reply(ReadOutcome::Nothing));
        assert!(!ahead.has_room() && !ahead.is_alone());
        assert!(ahead.pop().is_none());
        ahead.begin_storing();
        ahead.handle_stored();
        assert!(ahead.pop().is_some_and(|first| has_records(&first)));
        assert!(ahead.is_alone() && !ahead.begin_storing(), "it is behind no record");
        assert!(ahead.pop().is_some_and(|first| !has_records(&first)));
        assert!(ahead.has_room() && ahead.is_empty());
    }
}
