//! The reference of the jobs with one running value a key.

use std::collections::BTreeMap;

use cofferdam::state::codec;
use serde::Serialize;

use crate::jobs::row::Entry;
use crate::reference::{ByCell, Effects, Outcome, RecordId, Reference, Rows, Table};

/// When rows come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emits {
    /// For every record of a key.
    EveryChange,
    /// Once a key, when the input has ended.
    AtTheEnd,
}

/// For each record the keys that it touches, each with what it brings; and the rule by which a
/// key's value goes on.
pub(crate) struct RunningReference<K, G, V, R> {
    /// The different keys, each with its encoding.
    keys: Vec<(K, Vec<u8>)>,
    /// What the records touch, one behind the other: the place of the key, and what it gets.
    touched: Vec<(usize, G)>,
    /// Where that of each record ends.
    ends: Vec<usize>,
    next: fn(Option<&V>, &G) -> V,
    row: fn(&K, &V) -> R,
    emits: Emits,
}

type EntryReference<G, V> = RunningReference<String, G, V, Entry<V>>;

impl EntryReference<(), u64> {
    pub(crate) fn of_words(lines: &[Entry<()>], emits: Emits) -> Self {
        let lines = lines.iter().map(|line| {
            let words = line.key.split(char::is_whitespace).filter(|word| !word.is_empty());
            words.map(|word| (word, ()))
        });
        Self::of_keys(lines, |so_far, ()| so_far.map_or(1, |count| count + 1), emits)
    }
}

impl<G: Copy + Into<i128>> EntryReference<G, i128> {
    pub(crate) fn of_sums(entries: &[Entry<G>]) -> Self {
        Self::of_entries(entries, |so_far, value| so_far.copied().unwrap_or(0) + (*value).into())
    }
}

impl EntryReference<(), bool> {
    pub(crate) fn of_marks(entries: &[Entry<()>]) -> Self {
        Self::of_entries(entries, |_, ()| true)
    }
}

impl EntryReference<i64, i64> {
    pub(crate) fn of_maxima(entries: &[Entry<i64>]) -> Self {
        Self::of_entries(entries, |so_far, value| match so_far {
            Some(largest) if largest >= value => *largest,
            Some(_) | None => *value,
        })
    }
}

impl<G: Copy, V: Clone> EntryReference<G, V> {
    fn of_entries(entries: &[Entry<G>], next: fn(Option<&V>, &G) -> V) -> Self {
        let records = entries.iter().map(|entry| [(entry.key.as_str(), entry.value)]);
        Self::of_keys(records, next, Emits::EveryChange)
    }
}

impl<G, V: Clone> EntryReference<G, V> {
    fn of_keys<'a>(
        records: impl Iterator<Item = impl IntoIterator<Item = (&'a str, G)>>,
        next: fn(Option<&V>, &G) -> V,
        emits: Emits,
    ) -> Self {
        let row = |key: &String, value: &V| Entry::new(key.as_str(), value.clone());
        Self::new(records, str::to_owned, next, row, emits)
    }
}

impl RunningReference<u64, u64, u64, (u64, u64)> {
    /// The sums of (key, number) pairs.
    pub(crate) fn of_pairs(pairs: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self::new(
            pairs.into_iter().map(|pair| [pair]),
            |key| key,
            |so_far, number| so_far.map_or(*number, |sum| sum + number),
            |key, sum| (*key, *sum),
            Emits::EveryChange,
        )
    }
}

impl<K: Serialize, G, V, R> RunningReference<K, G, V, R> {
    fn new<B: Ord + Copy>(
        records: impl Iterator<Item = impl IntoIterator<Item = (B, G)>>,
        own: fn(B) -> K,
        next: fn(Option<&V>, &G) -> V,
        row: fn(&K, &V) -> R,
        emits: Emits,
    ) -> Self {
        let mut keys: Vec<(K, Vec<u8>)> = Vec::new();
        let mut places: BTreeMap<B, usize> = BTreeMap::new();
        let mut place_of = |key: B| {
            *places.entry(key).or_insert_with(|| {
                let key = own(key);
                let encoded = codec::encode(&key);
                keys.push((key, encoded));
                keys.len() - 1
            })
        };
        let (mut touched, mut ends) = (Vec::new(), Vec::new());
        for record in records {
            touched.extend(record.into_iter().map(|(key, given)| (place_of(key), given)));
            ends.push(touched.len());
        }
        Self { keys, touched, ends, next, row, emits }
    }
}

impl<K, G, V, R> Reference for RunningReference<K, G, V, R>
where
    K: Send + Sync,
    G: Send + Sync,
    V: Serialize,
    R: Serialize,
{
    /// Records that bring nothing but their key can change places.
    fn rows_depend_on_order(&self) -> bool {
        size_of::<G>() > 0
    }

    fn effects(&self, record: RecordId) -> Effects {
        let touched = self.touched_by(record.offset as usize).len() as u32;
        let outputs = match self.emits {
            Emits::EveryChange => touched,
            Emits::AtTheEnd => 0,
        };
        Effects { state: touched, outputs }
    }

    /// A record is named once for each key that it touches. Too many changes explain too much; but
    /// a last value of too many is another one.
    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        let records = applied.iter().map(|record| record.offset as usize);
        (self.emits == Emits::EveryChange).then(|| self.apply(records))
    }

    fn cell(&self, _uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        let (_, values) = self.values(key, applied)?;
        values.last().map(codec::encode)
    }

    fn run_all(&self) -> Outcome {
        self.apply(0..self.ends.len())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        Some(self)
    }
}

impl<K, G, V, R> ByCell for RunningReference<K, G, V, R>
where
    K: Send + Sync,
    G: Send + Sync,
    V: Serialize,
    R: Serialize,
{
    fn operator(&self) -> &'static str {
        "fold"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.iter().map(|(_, encoded)| encoded.clone()).collect()
    }

    fn effects_on(&self, key: &[u8], record: RecordId) -> usize {
        let place = self.keys.iter().position(|(_, encoded)| encoded == key);
        let touched = self.touched_by(record.offset as usize).iter();
        touched.filter(|(own, _)| Some(*own) == place).count()
    }

    fn rows(&self, _sink: &str, key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        let Some((key, values)) = self.values(key, applied) else { return Vec::new() };
        let first = match self.emits {
            Emits::EveryChange => 0,
            Emits::AtTheEnd => values.len().saturating_sub(1),
        };
        values[first..].iter().map(|value| codec::encode(&(self.row)(key, value))).collect()
    }
}

impl<K, G, V: Serialize, R: Serialize> RunningReference<K, G, V, R> {
    /// The values of a cell, one after the other, and its key; none if a record does not touch it.
    fn values(&self, key: &[u8], applied: &[RecordId]) -> Option<(&K, Vec<V>)> {
        let place = self.keys.iter().position(|(_, encoded)| encoded == key)?;
        let mut values: Vec<V> = Vec::with_capacity(applied.len());
        for record in applied {
            let brought = self.touched_by(record.offset as usize);
            let (_, given) = brought.iter().find(|(own, _)| *own == place)?;
            values.push((self.next)(values.last(), given));
        }
        Some((&self.keys[place].0, values))
    }

    fn touched_by(&self, record: usize) -> &[(usize, G)] {
        let start = record.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.touched[start..self.ends[record]]
    }

    fn apply(&self, records: impl Iterator<Item = usize>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut values: Vec<Option<V>> = self.keys.iter().map(|_| None).collect();
        let mut rows = Rows::with_capacity(self.touched.len());
        for (place, given) in records.flat_map(|record| self.touched_by(record)) {
            let value = &mut values[*place];
            let next = (self.next)(value.as_ref(), given);
            if self.emits == Emits::EveryChange {
                rows.encode(&(self.row)(&self.keys[*place].0, &next));
            }
            *value = Some(next);
        }
        let mut table = Table::new();
        let mut cells = Table::new();
        for ((key, encoded), value) in self.keys.iter().zip(&values) {
            let Some(value) = value else { continue };
            let row = codec::encode(&(self.row)(key, value));
            if self.emits == Emits::AtTheEnd {
                rows.push(&row);
            }
            table.insert(encoded.clone(), row);
            cells.insert(encoded.clone(), codec::encode(value));
        }
        if !table.is_empty() {
            outcome.cells.insert("fold".to_owned(), cells);
            outcome.outputs.insert("out".to_owned(), rows);
            outcome.tables.insert("out".to_owned(), table);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use cofferdam::text::Text;

    use super::*;

    fn record(offset: u64) -> RecordId {
        RecordId { source: 0, offset }
    }

    fn entries<G: Copy>(pairs: &[(&str, G)]) -> Vec<Entry<G>> {
        pairs.iter().map(|(key, value)| Entry::new(*key, *value)).collect()
    }

    fn rows<V: serde::de::DeserializeOwned>(outcome: &Outcome) -> Vec<(Text, V)> {
        let decode = |row| codec::decode::<Entry<V>>(row).unwrap();
        outcome.outputs["out"].iter().map(decode).map(|entry| (entry.key, entry.value)).collect()
    }

    #[test]
    fn words_are_counted_as_by_hand() {
        let lines = entries(&[("a b\u{3000}a", ()), ("", ()), (" b ", ())]);
        let reference = RunningReference::of_words(&lines, Emits::EveryChange);
        let mut counts = rows::<u64>(&reference.run_all());
        counts.sort();
        let key = |word: &str, count| (word.into(), count);
        assert_eq!(counts, [key("a", 1), key("a", 2), key("b", 1), key("b", 2)]);
        assert_eq!(reference.effects(record(0)), Effects { state: 3, outputs: 3 });
        assert_eq!(reference.effects(record(1)), Effects::default());

        let reference = RunningReference::of_words(&lines, Emits::AtTheEnd);
        assert_eq!(rows::<u64>(&reference.run_all()).len(), 2);
        assert_eq!(reference.effects(record(0)), Effects { state: 3, outputs: 0 });
    }

    #[test]
    fn records_count_as_often_as_they_are_applied() {
        let numbers = entries(&[("a", i64::MAX), ("a", -1), ("b", 5)]);
        let reference = RunningReference::of_sums(&numbers);
        let applied = [record(0), record(0), record(1)];
        let outcome = reference.run(&applied).unwrap();
        let sum = 2 * i128::from(i64::MAX) - 1;
        let cell = &outcome.cells["fold"][&codec::encode("a")];
        assert_eq!(codec::decode(cell), Ok(sum));
        assert_eq!(outcome.cells["fold"].len(), 1, "what was not applied is not there");
        let last = &outcome.tables["out"][&codec::encode("a")];
        assert_eq!(codec::decode::<Entry<i128>>(last).unwrap().value, sum);
    }

    #[test]
    fn a_maximum_does_not_mind_repetition_and_may_be_negative() {
        let numbers = entries(&[("a", -7), ("a", -3), ("a", -5)]);
        let reference = RunningReference::of_maxima(&numbers);
        let applied = [record(1), record(0), record(1), record(2)];
        assert_eq!(reference.run(&applied).unwrap().cells, reference.run_all().cells);
        assert_eq!(rows::<i64>(&reference.run_all()).len(), 3);
    }
}
