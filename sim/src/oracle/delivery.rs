//! Counting identities: what both halves of C10 have in common.

use std::collections::BTreeMap;

use cofferdam::trace::RecordId;

use super::RowFact;

/// One effect of a source record, with a hash of what tells it from the record's other effects: 64
/// bits do not agree by chance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Effect(u128);

impl Effect {
    pub(super) fn new(record: RecordId, what: [u64; 2]) -> Self {
        let RecordId { source, offset } = record;
        debug_assert!(source < 1 << 16 && offset < 1 << 48, "there are fewer records");
        let hash = what.into_iter().fold(0, mix);
        // One number is sorted faster than its parts.
        Self(u128::from(source) << 112 | u128::from(offset) << 64 | u128::from(hash))
    }

    fn record(self) -> RecordId {
        let (source, offset) = ((self.0 >> 112) as u32, (self.0 >> 64) as u64 & ((1 << 48) - 1));
        RecordId { source, offset }
    }
}

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
        let (record, repeated) = (same[0].record(), same.len() as u32 - 1);
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
pub(crate) fn are_same_rows(left: &[RowFact<'_>], right: &[&[u8]]) -> bool {
    left.len() == right.len()
        && left.iter().map(|row| hash(row.bytes)).fold(0, u64::wrapping_add)
            == right.iter().map(|row| hash(row)).fold(0, u64::wrapping_add)
}

/// Whether each row is one of those that are due, and there no less often.
pub(super) fn are_among(rows: &[&[u8]], due: &[&[u8]]) -> bool {
    // In the order of their hashes, since those are compared at once.
    let sorted = |rows: &[&[u8]]| {
        let mut hashes: Vec<u64> = rows.iter().map(|row| hash(row)).collect();
        hashes.sort_unstable();
        hashes
    };
    let mut due = sorted(due).into_iter();
    sorted(rows).into_iter().all(|row| due.find(|hash| *hash >= row) == Some(row))
}

fn hash(row: &[u8]) -> u64 {
    let words = row.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(row.len() as u64, mix)
}

/// Both halves of a product depend on every bit; the odd numbers have no pattern.
fn mix(hash: u64, word: u64) -> u64 {
    let left = u128::from(hash ^ 0x2d35_8dcc_aa6c_78a5);
    let product = left * u128::from(word ^ 0x8bb8_4b93_962e_acc9);
    (product as u64 ^ (product >> 64) as u64).wrapping_add(hash.rotate_left(29))
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
        let due = ["a", "b", "b", "c"].map(|row| row.as_bytes());
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
            Effect::new(record(2), [7, 0]),
            Effect::new(record(0), [1, 0]),
            Effect::new(record(0), [1, 1]),
            Effect::new(record(0), [1, 0]),
            Effect::new(record(0), [1, 0]),
        ];
        let counts = count(effects);
        let first = Count { record: record(0), distinct: 2, repeated: 2 };
        assert_eq!(counts, [first, Count { record: record(2), distinct: 1, repeated: 0 }]);
        assert_eq!([0, 1, 2].map(|offset| distinct(&counts, record(offset))), [2, 0, 1]);
    }
}
