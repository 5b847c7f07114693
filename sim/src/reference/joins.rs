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

/// What comes of two streams. No row is expected of any record: which of the two records of a pair
/// triggers its row depends on which comes second, and every other row waits for the watermark. So
/// rows are judged by their values.
pub(crate) struct JoinReference {
    events: Arc<Vec<Event>>,
    join: Join,
    may_be_late: bool,
}

/// How the streams come together.
pub(crate) enum Join {
    /// Pairs that are so near in time.
    Interval(Duration),
    /// Each left record with the row of the table that counts at its time.
    Table,
}

/// A row of the table, with its time.
type Version<'a> = (EventTime, &'a Event);

impl JoinReference {
    pub(crate) fn new(events: Arc<Vec<Event>>, join: Join, may_be_late: bool) -> Self {
        Self { events, join, may_be_late }
    }

    fn outcome(&self, events: Vec<&Event>) -> Outcome {
        match self.join {
            Join::Interval(within) => pairs(events, within),
            Join::Table => enriched(events),
        }
    }

    fn outcome_of(&self, applied: &[RecordId]) -> Outcome {
        self.outcome(applied.iter().map(|record| &self.events[record.offset as usize]).collect())
    }
}

fn sides(events: Vec<&Event>) -> (Vec<&Event>, Vec<&Event>) {
    events.into_iter().partition(|event| !event.is_right)
}

fn pairs(events: Vec<&Event>, within: Duration) -> Outcome {
    let (left, right) = sides(events);
    let mut outcome = Outcome::default();
    for left in left {
        for right in right.iter().filter(|right| right.key == left.key) {
            let apart = left.at.as_millis().abs_diff(right.at.as_millis());
            if u128::from(apart) <= within.as_millis() {
                let key = left.key.clone();
                let pair = Pair { key, left: left.value, right: right.value };
                outcome.row("out", pair.row_key(), &pair);
            }
        }
    }
    outcome
}

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

impl Reference for JoinReference {
    fn doubts(&self) -> Doubts {
        if self.may_be_late { doubts_of_late(&["out"]) } else { Doubts::default() }
    }

    /// What is broadcast gets into as many copies as there are, at least one.
    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        (!self.may_be_late).then(|| self.outcome_of(applied))
    }

    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        match self.join {
            // At the end of data nothing is kept.
            Join::Interval(_) => None,
            Join::Table => {
                let none = || codec::encode(&Vec::<Version<'_>>::new());
                let mut cells = self.outcome_of(applied).cells;
                Some(cells.get_mut(uid).and_then(|of| of.remove(key)).unwrap_or_else(none))
            }
        }
    }

    fn run_all(&self) -> Outcome {
        self.outcome(self.events.iter().collect())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        (!self.may_be_late).then_some(self)
    }
}

impl ByCell for JoinReference {
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
        self.outcome_of(applied).rows(sink)
    }
}
