//! The references of the joins: every left event looked at with every right one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::state::codec;
use cofferdam::time::EventTime;

use crate::jobs::row::Row;
use crate::jobs::timed::{Enriched, Event, Pair};
use crate::reference::{
    ByCell, Doubts, Effects, Kinship, Outcome, RecordId, Reference, doubts_of_late, encoded_keys,
};

/// Pairs that are near in time. Which of the two records of a pair triggers its row depends on
/// which comes second, so no row is expected of either: pairs are judged by their values.
pub(crate) struct IntervalReference {
    events: Arc<Vec<Event>>,
    within: Duration,
    may_be_late: bool,
}

/// Records with the row of the table that counts at their time.
pub(crate) struct EnrichReference {
    events: Arc<Vec<Event>>,
    may_be_late: bool,
}

/// A row of the table, with its time.
type Version<'a> = (EventTime, &'a Event);

impl IntervalReference {
    pub(crate) fn new(events: Arc<Vec<Event>>, within: Duration, may_be_late: bool) -> Self {
        Self { events, within, may_be_late }
    }
}

impl EnrichReference {
    pub(crate) fn new(events: Arc<Vec<Event>>, may_be_late: bool) -> Self {
        Self { events, may_be_late }
    }
}

fn sides(events: Vec<&Event>) -> (Vec<&Event>, Vec<&Event>) {
    events.into_iter().partition(|event| !event.is_right)
}

fn picked<'a>(events: &'a [Event], applied: &[RecordId]) -> Vec<&'a Event> {
    applied.iter().map(|record| &events[record.offset as usize]).collect()
}

impl IntervalReference {
    fn pairs(&self, events: Vec<&Event>) -> Outcome {
        let (left, right) = sides(events);
        let mut outcome = Outcome::default();
        for left in left {
            for right in right.iter().filter(|right| right.key == left.key) {
                let apart = left.at.as_millis().abs_diff(right.at.as_millis());
                if u128::from(apart) <= self.within.as_millis() {
                    let key = left.key.clone();
                    let pair = Pair { key, left: left.value, right: right.value };
                    outcome.row("out", pair.row_key(), &pair);
                }
            }
        }
        outcome
    }
}

impl EnrichReference {
    fn enriched(events: Vec<&Event>) -> Outcome {
        let (records, rows) = sides(events);
        let mut outcome = Outcome::default();
        let mut table: BTreeMap<&str, BTreeMap<EventTime, &Event>> = BTreeMap::new();
        for row in &rows {
            let same = table.entry(&row.key).or_default().entry(row.time()).or_insert(row);
            *same = (*same).max(row);
        }
        for (key, versions) in table {
            let versions: Vec<Version<'_>> = versions.into_iter().collect();
            outcome.cell("join", key, &versions);
        }
        for record in records {
            let counts = |row: &&&Event| row.key == record.key && row.at <= record.at;
            let row = rows.iter().filter(counts).max_by_key(|row| (row.at, row.value));
            let row = row.map(|row| row.value);
            let enriched = Enriched { key: record.key.clone(), value: record.value, row };
            outcome.row("out", enriched.row_key(), &enriched);
        }
        outcome
    }
}

impl Reference for IntervalReference {
    fn doubts(&self) -> Doubts {
        if self.may_be_late { doubts_of_late(&["out"]) } else { Doubts::default() }
    }

    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        (!self.may_be_late).then(|| self.pairs(picked(&self.events, applied)))
    }

    /// At the end of data nothing is kept.
    fn cell(&self, _uid: &str, _key: &[u8], _applied: &[RecordId]) -> Option<Vec<u8>> {
        None
    }

    fn run_all(&self) -> Outcome {
        self.pairs(self.events.iter().collect())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        (!self.may_be_late).then_some(self)
    }
}

impl ByCell for IntervalReference {
    fn operator(&self) -> &'static str {
        "join"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        encoded_keys(self.events.iter().map(|event| event.key.as_str()))
    }

    /// What a record is to be paired with may be gone when it comes again.
    fn kinship(&self) -> Kinship {
        Kinship::Siblings
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        self.pairs(picked(&self.events, applied)).rows(sink)
    }
}

impl Reference for EnrichReference {
    fn doubts(&self) -> Doubts {
        if self.may_be_late { doubts_of_late(&["out"]) } else { Doubts::default() }
    }

    /// What is broadcast gets into as many copies as there are, at least one, and every row waits
    /// for the watermark.
    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        (!self.may_be_late).then(|| Self::enriched(picked(&self.events, applied)))
    }

    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        let none = || codec::encode(&Vec::<Version<'_>>::new());
        let mut cells = Self::enriched(picked(&self.events, applied)).cells;
        Some(cells.get_mut(uid).and_then(|of| of.remove(key)).unwrap_or_else(none))
    }

    fn run_all(&self) -> Outcome {
        Self::enriched(self.events.iter().collect())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        (!self.may_be_late).then_some(self)
    }
}

impl ByCell for EnrichReference {
    fn operator(&self) -> &'static str {
        "join"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        encoded_keys(self.events.iter().map(|event| event.key.as_str()))
    }

    fn kinship(&self) -> Kinship {
        Kinship::Siblings
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        Self::enriched(picked(&self.events, applied)).rows(sink)
    }
}
