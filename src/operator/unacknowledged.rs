//! What a source subtask has read and nobody has acknowledged in full: positions and not records,
//! since the source can be read again. It does not know how a read becomes acknowledged.
//!
//! Invariants: of each split, the reads lie one behind the other from the acknowledged position to
//! that of the source; so what lies before the acknowledged position is done, and a restart from
//! there loses nothing. That position never moves back.

use std::collections::{BTreeMap, VecDeque};

use crate::id::SplitId;
use crate::message::TaskError;
use crate::operator::source::ReadRequest;
use crate::state::snapshot::{SourceState, SplitState};

/// The reads that are open, in order.
#[derive(Clone)]
pub(crate) struct Unacknowledged {
    splits: Vec<OfSplit>,
    /// The read that begins next.
    next: u64,
    /// The split of each open read.
    places: BTreeMap<u64, usize>,
    /// The records in open reads, and how many there may be before nothing new is read.
    records: u64,
    records_max: u64,
    /// The split and the position of a read that is being repeated.
    repeating: Option<(usize, usize)>,
    stored: SourceState,
    storing: Option<SourceState>,
}

#[derive(Clone)]
struct OfSplit {
    /// Everything before it is acknowledged.
    acknowledged: SplitState,
    reads: VecDeque<Reading>,
}

#[derive(Clone)]
struct Reading {
    phase: ReadingPhase,
    from: Vec<u8>,
    to: Vec<u8>,
    records: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadingPhase {
    /// Its tree is open.
    Open(u64),
    /// Its tree has timed out.
    AwaitingRepeat,
    /// It is acknowledged, and one before it is not.
    Done,
}

impl Unacknowledged {
    /// Nothing is open at `state`, which is durable.
    pub(crate) fn new(state: &SourceState, records_max: usize) -> Self {
        let splits = state.splits.iter().cloned();
        Self {
            splits: splits
                .map(|acknowledged| OfSplit { acknowledged, reads: VecDeque::new() })
                .collect(),
            next: 0,
            places: BTreeMap::new(),
            records: 0,
            records_max: records_max as u64,
            repeating: None,
            stored: state.clone(),
            storing: None,
        }
    }

    /// Whether nothing new may be read before something is acknowledged.
    pub(crate) fn is_full(&self) -> bool {
        self.records >= self.records_max
    }

    /// Whether everything is acknowledged and the position behind it durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.splits.iter().all(|split| split.reads.is_empty()) && self.stored == self.position()
    }

    /// The read to repeat next, the oldest first.
    pub(crate) fn repeat(&mut self) -> Option<ReadRequest> {
        let found = self.splits.iter().enumerate().find_map(|(split, of)| {
            let awaits = |reading: &Reading| reading.phase == ReadingPhase::AwaitingRepeat;
            Some((split, of.reads.iter().position(awaits)?))
        });
        let (split, place) = found?;
        self.repeating = found;
        let reading = &self.splits[split].reads[place];
        Some(ReadRequest {
            split: self.splits[split].acknowledged.split,
            cursor: reading.from.clone(),
            records_max: reading.records as usize,
        })
    }

    /// Whether the answer that is awaited is to a read that is being repeated.
    pub(crate) fn is_repeating(&self) -> bool {
        self.repeating.is_some()
    }

    /// A split was read from one cursor to another for the first time; the number of the read.
    pub(crate) fn add(&mut self, split: SplitId, from: Vec<u8>, to: &[u8], records: u64) -> u64 {
        let found = self.splits.iter().position(|of| of.acknowledged.split == split);
        let place = found.expect("the source reads its own splits");
        let root = self.begin(place);
        let phase = ReadingPhase::Open(root);
        let to = to.to_vec();
        self.splits[place].reads.push_back(Reading { phase, from, to, records });
        self.records += records;
        root
    }

    /// A read was repeated and gave `records` records: the number of the new read, in place of the
    /// old one. What is left of the old one, if it gave fewer, is still to be repeated.
    pub(crate) fn add_again(&mut self, to: Vec<u8>, records: u64) -> u64 {
        let (split, place) = self.repeating.take().expect("a read is being repeated");
        let root = self.begin(split);
        let reads = &mut self.splits[split].reads;
        let reading = &mut reads[place];
        reading.phase = ReadingPhase::Open(root);
        if records < reading.records {
            let rest = Reading {
                phase: ReadingPhase::AwaitingRepeat,
                from: to.clone(),
                to: std::mem::replace(&mut reading.to, to),
                records: reading.records - records,
            };
            reading.records = records;
            reads.insert(place + 1, rest);
        }
        root
    }

    /// A read that was to be repeated gave nothing; with `ended`, it never will.
    ///
    /// # Errors
    /// If the split has ended where it had records before.
    pub(crate) fn give_nothing(&mut self, ended: bool) -> Result<(), TaskError> {
        self.repeating = None;
        if ended {
            let text = "a split ends where it had records when it was read first";
            return Err(TaskError::Input(text.to_owned()));
        }
        Ok(())
    }

    /// The tree of a read is done. One that has timed out before belongs to nobody.
    pub(crate) fn acknowledge(&mut self, root: u64) {
        let Some(split) = self.places.remove(&root) else { return };
        let OfSplit { acknowledged, reads } = &mut self.splits[split];
        let reading = reads.iter_mut().find(|reading| reading.phase == ReadingPhase::Open(root));
        let reading = reading.expect("an open read is in its split");
        reading.phase = ReadingPhase::Done;
        self.records -= reading.records;
        while let Some(first) = reads.pop_front_if(|first| first.phase == ReadingPhase::Done) {
            acknowledged.cursor = first.to;
            acknowledged.records += first.records;
            // What is being repeated has moved up.
            if let Some((of, place)) = &mut self.repeating
                && *of == split
            {
                *place -= 1;
            }
        }
    }

    /// The tree of a read has timed out: the read is to be repeated.
    pub(crate) fn time_out(&mut self, root: u64) {
        let Some(split) = self.places.remove(&root) else { return };
        let mut reads = self.splits[split].reads.iter_mut();
        let reading = reads.find(|reading| reading.phase == ReadingPhase::Open(root));
        reading.expect("an open read is in its split").phase = ReadingPhase::AwaitingRepeat;
    }

    /// The position to make durable, if it has moved and none is on its way.
    pub(crate) fn position_to_store(&mut self) -> Option<SourceState> {
        if self.storing.is_some() || self.stored == self.position() {
            return None;
        }
        self.storing = Some(self.position());
        self.storing.clone()
    }

    /// The position is durable.
    pub(crate) fn handle_stored(&mut self) {
        if let Some(stored) = self.storing.take() {
            self.stored = stored;
        }
    }

    fn position(&self) -> SourceState {
        SourceState {
            splits: self.splits.iter().map(|of| of.acknowledged.clone()).collect(),
            emitted: Vec::new(),
            watermark: None,
        }
    }

    fn begin(&mut self, split: usize) -> u64 {
        let root = self.next;
        self.next += 1;
        self.places.insert(root, split);
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: SplitId = SplitId::new(0);

    /// One split, of which so many records may be open.
    fn kept(records_max: usize) -> Unacknowledged {
        let (cursor, watermark) = (vec![0], None);
        let split = SplitState { split: SPLIT, cursor, records: 0, lost: 0, watermark };
        let state = SourceState { splits: vec![split], ..SourceState::default() };
        Unacknowledged::new(&state, records_max)
    }

    /// Reads of two records each, one behind the other.
    fn with_reads(count: u8) -> Unacknowledged {
        let mut kept = kept(100);
        for read in 0..count {
            assert_eq!(kept.add(SPLIT, vec![2 * read], &[2 * read + 2], 2), u64::from(read));
        }
        kept
    }

    fn cursor(state: &SourceState) -> u8 {
        state.splits[0].cursor[0]
    }

    #[test]
    fn rule_082_the_position_moves_over_what_is_acknowledged_without_a_gap() {
        let mut kept = with_reads(3);
        kept.acknowledge(1);
        assert_eq!(kept.position_to_store(), None, "the first read is open");
        kept.acknowledge(0);
        let position = kept.position_to_store().unwrap();
        assert_eq!((cursor(&position), position.splits[0].records), (4, 4));
        kept.acknowledge(2);
        assert_eq!(kept.position_to_store(), None, "one at a time");
        assert!(!kept.is_settled());
        kept.handle_stored();
        assert_eq!(cursor(&kept.position_to_store().unwrap()), 6);
        kept.handle_stored();
        assert!(kept.is_settled());
    }

    #[test]
    fn rule_082_what_times_out_is_read_again_from_where_it_began_in_a_tree_of_its_own() {
        let mut kept = with_reads(2);
        kept.time_out(0);
        let request = kept.repeat().unwrap();
        assert_eq!((request.cursor, request.records_max), (vec![0], 2));
        kept.acknowledge(1);
        assert_eq!(kept.add_again(vec![1], 1), 2, "it gave one record and not two");
        let rest = kept.repeat().unwrap();
        assert_eq!((rest.cursor, rest.records_max), (vec![1], 1));
        kept.acknowledge(0);
        kept.acknowledge(2);
        assert_eq!(cursor(&kept.position_to_store().unwrap()), 1, "the old tree is nobody's");
        assert_eq!(kept.add_again(vec![2], 1), 3);
        assert_eq!(kept.repeat(), None);
        kept.acknowledge(3);
        kept.handle_stored();
        assert_eq!(cursor(&kept.position_to_store().unwrap()), 4);
    }

    #[test]
    fn nothing_new_is_read_while_too_much_is_open() {
        let mut kept = kept(3);
        kept.add(SPLIT, vec![0], &[2], 2);
        assert!(!kept.is_full());
        kept.add(SPLIT, vec![2], &[4], 2);
        assert!(kept.is_full());
        kept.time_out(1);
        assert!(kept.is_full() && kept.repeat().is_some(), "what is to be repeated still counts");
        kept.add_again(vec![4], 2);
        kept.acknowledge(0);
        assert!(!kept.is_full());
    }

    #[test]
    fn a_split_that_has_lost_records_is_reported() {
        let mut kept = with_reads(1);
        kept.time_out(0);
        assert!(kept.repeat().is_some());
        assert_eq!(kept.give_nothing(false), Ok(()));
        assert!(kept.repeat().is_some(), "it is tried again");
        assert!(kept.give_nothing(true).is_err());
    }
}
