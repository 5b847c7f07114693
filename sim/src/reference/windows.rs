//! The reference of windows: a key's events sorted, then cut.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::jobs::row::Row;
use crate::jobs::seconds::Seconds;
use crate::jobs::timed::{Event, WindowKind, WindowSum};
use crate::reference::{
    ByCell, Doubts, Effects, Kinship, Outcome, RecordId, Reference, doubts_of_late, encoded_keys,
};

/// Every event is in time for all its windows, so each has one row.
pub(crate) struct WindowsReference {
    events: Arc<Vec<Event>>,
    kind: WindowKind,
    may_be_late: bool,
}

impl WindowsReference {
    pub(crate) fn new(events: Arc<Vec<Event>>, kind: WindowKind, may_be_late: bool) -> Self {
        Self { events, kind, may_be_late }
    }

    fn apply(&self, records: impl Iterator<Item = usize>) -> Outcome {
        let mut of_keys: BTreeMap<&str, Vec<(i64, i128)>> = BTreeMap::new();
        for event in records.map(|record| &self.events[record]) {
            let number = (event.at.as_millis(), i128::from(event.value));
            of_keys.entry(&event.key).or_default().push(number);
        }
        let mut outcome = Outcome::default();
        for (key, mut numbers) in of_keys {
            numbers.sort_unstable();
            let sums = match self.kind {
                WindowKind::Fixed { size, slide } => fixed(&numbers, millis(size), millis(slide)),
                WindowKind::Session { gap } => sessions(&numbers, millis(gap)),
            };
            for ((start, end), value) in sums {
                let [start, end] = [start, end].map(Seconds::from_millis);
                let sum = WindowSum { key: key.to_owned(), start, end, value };
                outcome.row("out", sum.row_key(), &sum);
            }
        }
        outcome
    }
}

type Sums = BTreeMap<(i64, i64), i128>;

/// Looks at every window that can hold the first to the last of the numbers.
fn fixed(numbers: &[(i64, i128)], size: i64, slide: i64) -> Sums {
    let (Some((first, _)), Some((last, _))) = (numbers.first(), numbers.last()) else {
        return Sums::new();
    };
    let mut sums = Sums::new();
    let mut start = (first - size).div_euclid(slide) * slide;
    while start <= *last {
        let end = start + size;
        let held: Vec<i128> = numbers
            .iter()
            .filter(|(at, _)| (start..end).contains(at))
            .map(|(_, value)| *value)
            .collect();
        if !held.is_empty() {
            sums.insert((start, end), held.iter().sum());
        }
        start += slide;
    }
    sums
}

fn sessions(numbers: &[(i64, i128)], gap: i64) -> Sums {
    let cut = numbers.chunk_by(|(earlier, _), (later, _)| later - earlier < gap);
    let sum = |session: &[(i64, i128)]| {
        let (start, end) = (session[0].0, session[session.len() - 1].0 + gap);
        ((start, end), session.iter().map(|(_, value)| value).sum())
    };
    cut.map(sum).collect()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4)
}

impl Reference for WindowsReference {
    fn doubts(&self) -> Doubts {
        if self.may_be_late { doubts_of_late(&["out", "late"]) } else { Doubts::default() }
    }

    /// Every row is fired by a timer.
    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        let records = applied.iter().map(|record| record.offset as usize);
        (!self.may_be_late).then(|| self.apply(records))
    }

    /// At the end of data no window is open.
    fn cell(&self, _uid: &str, _key: &[u8], _applied: &[RecordId]) -> Option<Vec<u8>> {
        None
    }

    fn run_all(&self) -> Outcome {
        self.apply(0..self.events.len())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        (!self.may_be_late).then_some(self)
    }
}

impl ByCell for WindowsReference {
    fn operator(&self) -> &'static str {
        "sums"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        encoded_keys(self.events.iter().map(|event| event.key.as_str()))
    }

    /// The window of a record that comes again may have had its row, and then it is late.
    fn kinship(&self) -> Kinship {
        Kinship::Sums
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        self.apply(applied.iter().map(|record| record.offset as usize)).rows(sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_sessions_hold_what_lies_in_them() {
        let numbers = [(-1, 1), (0, 2), (9, 4), (10, 8)];
        let tumbling = [((-10, 0), 1), ((0, 10), 6), ((10, 20), 8)];
        assert_eq!(fixed(&numbers, 10, 10), Sums::from(tumbling));
        let sliding = [((-10, 0), 1), ((-5, 5), 3), ((0, 10), 6), ((5, 15), 12), ((10, 20), 8)];
        assert_eq!(fixed(&numbers, 10, 5), Sums::from(sliding));
        assert_eq!(fixed(&numbers, 1, 10), Sums::from([((0, 1), 2), ((10, 11), 8)]));
        assert_eq!(sessions(&numbers, 9), Sums::from([((-1, 9), 3), ((9, 19), 12)]));
        assert_eq!(sessions(&numbers, 10), Sums::from([((-1, 20), 15)]));
    }
}
