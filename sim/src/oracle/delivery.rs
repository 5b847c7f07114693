//! Counting identities: what both halves of C10 have in common.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use cofferdam::trace::RecordId;

use super::RowFact;

/// One effect of a source record, with what tells it from the record's other effects.
pub(super) type Effect = (RecordId, [u64; 2]);

/// How often a source record has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) record: RecordId,
    /// Different effects.
    pub(super) distinct: u32,
    /// Effects beyond the first of their kind.
    pub(super) repeated: u32,
}

/// Counts for each record that has an effect, in the order of the records.
pub(super) fn count(mut effects: Vec<Effect>) -> Vec<Count> {
    effects.sort_unstable();
    let mut counts: Vec<Count> = Vec::new();
    for same in effects.chunk_by(|left, right| left == right) {
        let (record, repeated) = (same[0].0, same.len() as u32 - 1);
        match counts.last_mut().filter(|count| count.record == record) {
            Some(count) => {
                count.distinct += 1;
                count.repeated += repeated;
            }
            None => counts.push(Count { record, distinct: 1, repeated }),
        }
    }
    counts
}

/// How many different effects `record` has.
pub(super) fn distinct(counts: &[Count], record: RecordId) -> u32 {
    let place = counts.binary_search_by_key(&record, |count| count.record);
    place.map_or(0, |place| counts[place].distinct)
}

/// Whether there are the same rows on both sides, in whatever order. Sums of hashes tell: that is
/// much faster than to sort and compare them, and 64 bits do not agree by chance.
pub(super) fn are_same_rows(left: &[RowFact<'_>], right: &[Vec<u8>]) -> bool {
    left.len() == right.len()
        && left.iter().map(|row| hash(row.bytes)).fold(0, u64::wrapping_add)
            == right.iter().map(|row| hash(row)).fold(0, u64::wrapping_add)
}

/// Whether each row is one of those that are due, and there no less often.
pub(super) fn are_among(rows: &[&[u8]], due: &[Vec<u8>]) -> bool {
    // In the order of their hashes, since those are compared at once.
    let sorted = |rows: &mut dyn Iterator<Item = &[u8]>| {
        let mut hashes: Vec<u64> = rows.map(hash).collect();
        hashes.sort_unstable();
        hashes
    };
    let due = sorted(&mut due.iter().map(Vec::as_slice));
    let mut due = due.into_iter();
    let rows = sorted(&mut rows.iter().copied());
    rows.into_iter().all(|row| due.find(|hash| *hash >= row) == Some(row))
}

fn hash(row: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(row);
    hasher.finish()
}

/// How often there is each row.
pub(super) fn count_rows<'a>(rows: impl Iterator<Item = &'a [u8]>) -> BTreeMap<&'a [u8], u64> {
    // Sorting them all is faster than a search for each.
    let mut rows: Vec<&[u8]> = rows.collect();
    rows.sort_unstable();
    let same = rows.chunk_by(|left, right| left == right);
    same.map(|same| (same[0], same.len() as u64)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::record;
    use super::*;

    #[test]
    fn rows_are_among_others_as_often_as_they_are_there() {
        let due = ["a", "b", "b", "c"].map(|row| row.as_bytes().to_vec());
        let among = |rows: &[&str]| {
            let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
            are_among(&rows, &due)
        };
        assert!(among(&[]) && among(&["b", "a", "b"]) && among(&["c", "b", "a", "b"]));
        assert!(!among(&["a", "a"]) && !among(&["d"]) && !among(&["b", "c", "b", "b"]));
    }

    #[test]
    fn effects_are_counted_by_record() {
        let effects = vec![
            (record(2), [7, 0]),
            (record(0), [1, 0]),
            (record(0), [1, 1]),
            (record(0), [1, 0]),
            (record(0), [1, 0]),
        ];
        let counts = count(effects);
        let first = Count { record: record(0), distinct: 2, repeated: 2 };
        assert_eq!(counts, [first, Count { record: record(2), distinct: 1, repeated: 0 }]);
        assert_eq!([0, 1, 2].map(|offset| distinct(&counts, record(offset))), [2, 0, 1]);
    }
}
