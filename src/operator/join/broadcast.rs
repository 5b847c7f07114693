//! The broadcast join: every subtask holds the whole of a small table, so that a large stream need
//! not be spread by key.

use crate::element::Record;
use crate::operator::join::Either;
use crate::operator::{Cell, Emit, Operator, OperatorTraits, RowsRestOn, StateParts};
use crate::state::key_group::Key;
use crate::state::operator::{OperatorList, Redistribution};
use crate::state::snapshot::OperatorState;
use crate::state::{RestoreError, codec};
use crate::time::EventTime;

/// Gives each record of the large stream the row of its key in the small table, as the table was at
/// the record's event time.
///
/// A record waits until the watermark says that all rows up to its time are there; if the sources
/// make no watermarks, until the end of data. Of rows of one key and time the greatest counts. The
/// table keeps every version of a row: it is small. Its copies are equal at each barrier, since no
/// barrier overtakes on a broadcast edge (rule 28); records that wait are dealt out evenly.
#[derive(Clone)]
pub struct BroadcastJoin<K, L, S, OfLarge, OfSmall> {
    of_large: OfLarge,
    of_small: OfSmall,
    /// Each row by its key and the time from which on it counts.
    table: OperatorList<((K, EventTime), S)>,
    /// By event time, then in the order of arrival.
    waiting: OperatorList<(EventTime, L)>,
}

impl<K, L, S, OfLarge, OfSmall> BroadcastJoin<K, L, S, OfLarge, OfSmall>
where
    K: Key,
    L: Record,
    S: Record + Ord,
    OfLarge: Fn(&L) -> (K, EventTime),
    OfSmall: Fn(&S) -> (K, EventTime),
{
    /// An empty table. `of_large` reads key and event time of a record, `of_small` those of a row:
    /// the time from which on it is the row of its key.
    pub fn new(of_large: OfLarge, of_small: OfSmall) -> Self {
        Self {
            of_large,
            of_small,
            table: OperatorList::new("table", Redistribution::Broadcast),
            waiting: OperatorList::new("waiting", Redistribution::Split),
        }
    }

    fn row_at(&self, key: K, time: EventTime) -> Option<S> {
        let table = self.table.get();
        let sought = (key, time);
        let behind = table.partition_point(|(version, _)| *version <= sought);
        let ((key, _), row) = table.get(behind.checked_sub(1)?)?;
        (*key == sought.0).then(|| row.clone())
    }

    fn add(&mut self, row: S) {
        let version = (self.of_small)(&row);
        let table = self.table.get_mut();
        match table.binary_search_by(|(other, _)| other.cmp(&version)) {
            Ok(same) if table[same].1 < row => table[same].1 = row,
            Ok(_) => {}
            Err(place) => table.insert(place, (version, row)),
        }
    }
}

impl<K, L, S, OfLarge, OfSmall> Operator for BroadcastJoin<K, L, S, OfLarge, OfSmall>
where
    K: Key,
    L: Record,
    S: Record + Ord,
    OfLarge: Fn(&L) -> (K, EventTime) + Clone + Send + 'static,
    OfSmall: Fn(&S) -> (K, EventTime) + Clone + Send + 'static,
{
    type In = Either<L, S>;
    type Out = (L, Option<S>);

    fn process(&mut self, record: Self::In, _out: &mut impl Emit<Self::Out>) {
        match record {
            Either::Left(record) => {
                let (_, time) = (self.of_large)(&record);
                let waiting = self.waiting.get_mut();
                let place = waiting.partition_point(|(other, _)| *other <= time);
                waiting.insert(place, (time, record));
            }
            Either::Right(row) => self.add(row),
        }
    }

    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<Self::Out>) {
        let due = self.waiting.get().partition_point(|(time, _)| *time <= watermark);
        if due == 0 {
            return;
        }
        let due: Vec<_> = self.waiting.get_mut().drain(..due).collect();
        for (time, record) in due {
            let (key, _) = (self.of_large)(&record);
            let row = self.row_at(key, time);
            out.emit((record, row));
        }
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts {
            lists: vec![self.table.share(), self.waiting.share()],
            ..StateParts::default()
        }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.table.restore(state)?;
        self.waiting.restore(state)?;
        // Parts of several subtasks may have been put behind each other.
        if !self.waiting.get().is_sorted_by_key(|(time, _)| time) {
            self.waiting.get_mut().sort_by_key(|(time, _)| *time);
        }
        Ok(())
    }

    fn traits(&self) -> OperatorTraits {
        // A row of the table that comes again changes nothing.
        let rows = RowsRestOn::Records;
        OperatorTraits { stateful: true, rows, ..OperatorTraits::default() }
    }

    /// Of each key there is a cell in every subtask: the copies are the same.
    fn cell_of(&self, record: &Self::In) -> Option<Vec<u8>> {
        let (key, _) = match record {
            Either::Left(record) => (self.of_large)(record),
            Either::Right(row) => (self.of_small)(row),
        };
        Some(codec::encode(&key))
    }

    /// The rows of each key with their times.
    fn cells(&self) -> Vec<Cell> {
        let of_keys = self.table.get().chunk_by(|((key, _), _), ((other, _), _)| key == other);
        let cell = |of_key: &[((K, EventTime), S)]| {
            let rows: Vec<(EventTime, &S)> =
                of_key.iter().map(|((_, time), row)| (*time, row)).collect();
            (codec::encode(&of_key[0].0.0), codec::encode(&rows))
        };
        of_keys.map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::chain::{Named, Segment};
    use crate::state::codec::Format;
    use crate::state::snapshot::Extent;

    type Large = (char, i64);
    /// Key, time, what it says.
    type Row = (char, i64, u32);

    fn join() -> Named<impl Operator<In = Either<Large, Row>, Out = (Large, Option<Row>)>> {
        let of_large = |record: &Large| (record.0, EventTime::from_millis(record.1));
        let of_small = |row: &Row| (row.0, EventTime::from_millis(row.1));
        Named::new("join", BroadcastJoin::new(of_large, of_small))
    }

    #[test]
    fn a_record_gets_the_row_that_counts_at_its_time_whatever_came_first() {
        let records = [('a', 9), ('a', 5), ('b', 7), ('a', 4), ('c', 9)].map(Either::Left);
        let rows = [('a', 5, 1), ('a', 5, 2), ('a', 8, 3), ('b', 8, 4)].map(Either::Right);
        let mut all: Vec<_> = records.into_iter().chain(rows).collect();
        for _ in 0..all.len() {
            all.rotate_left(1);
            let (mut join, mut out) = (join(), Vec::new());
            all.iter().for_each(|record| join.process(*record, &mut out));
            assert_eq!(out, [], "nothing is decided before the watermark");
            join.on_watermark(EventTime::from_millis(7), &mut out);
            let first = [(('a', 4), None), (('a', 5), Some(('a', 5, 2))), (('b', 7), None)];
            assert_eq!(out, first);
            join.on_watermark(EventTime::MAX, &mut out);
            out.sort_unstable();
            assert!(out.contains(&(('a', 9), Some(('a', 8, 3)))));
            assert!(out.contains(&(('c', 9), None)));
            assert_eq!(out.len(), 5);
        }
    }

    #[test]
    fn table_and_waiting_records_come_back_and_parts_of_several_subtasks_are_put_in_order() {
        let mut out = Vec::new();
        let states = [[('a', 9), ('a', 7)], [('a', 8), ('a', 6)]].map(|records| {
            let mut join = join();
            join.process(Either::Right(('a', 7, 1)), &mut out);
            records.into_iter().for_each(|record| join.process(Either::Left(record), &mut out));
            let mut snapshots = Vec::new();
            join.snapshot(Extent::Whole, &mut snapshots);
            snapshots[0].to_state(Format::Binary)
        });
        let [mut state, other] = states;
        assert_eq!(state.lists[0], other.lists[0], "copies of the table are equal (rule 93)");
        state.lists[1].elements.extend(other.lists[1].elements.iter().cloned());
        let mut join = join();
        join.restore(Extent::Whole, &[state]).unwrap();
        join.on_watermark(EventTime::from_millis(8), &mut out);
        let row = Some(('a', 7, 1));
        assert_eq!(out, [(('a', 6), None), (('a', 7), row), (('a', 8), row)]);
    }
}
