//! The references of Nexmark: what each query comes to, by looking at every event with every other.

mod alone;
mod bids;
mod closing;
mod people;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::jobs::nexmark::Event;
use crate::reference::{
    ByCell, Doubts, Effects, Kinship, Outcome, RecordId, Reference, doubts_of_late,
};

pub(crate) use alone::EachAlone;
pub(crate) use bids::{Highest, Hottest};
pub(crate) use closing::Closings;
pub(crate) use people::{Newcomers, Suggestions};

/// What a query comes to that brings events together. No row is expected of any event: which of
/// them triggers it depends on the order in which they come, and others wait for the watermark. So
/// rows are judged by their values.
pub(crate) trait Sequential: Send + Sync {
    /// The operator that takes the events in.
    const OPERATOR: &'static str;
    /// What the rows of a cell have to do with each other.
    const KINSHIP: Kinship;
    /// Whether its rows come of all cells together: other state stands behind them.
    const IS_ONE: bool;

    /// The encoded key of the cell that takes an event in, if one does.
    fn key(&self, event: &Event) -> Option<Vec<u8>>;

    /// What comes of these events, in whatever order they are.
    fn outcome(&self, events: &[&Event]) -> Outcome;
}

/// The reference of a [`Sequential`] query over these events.
pub(crate) struct Gathered<Q> {
    query: Q,
    events: Arc<[Event]>,
    may_be_late: bool,
}

impl<Q: Sequential> Gathered<Q> {
    pub(crate) fn new(query: Q, events: Arc<[Event]>, may_be_late: bool) -> Self {
        Self { query, events, may_be_late }
    }

    fn outcome_of(&self, applied: &[RecordId]) -> Outcome {
        let events: Vec<&Event> =
            applied.iter().map(|record| &self.events[record.offset as usize]).collect();
        self.query.outcome(&events)
    }
}

impl<Q: Sequential> Reference for Gathered<Q> {
    fn doubts(&self) -> Doubts {
        if self.may_be_late { doubts_of_late(&["out"]) } else { Doubts::default() }
    }

    fn effects(&self, record: RecordId) -> Effects {
        let key = self.query.key(&self.events[record.offset as usize]);
        Effects { state: u32::from(key.is_some()), outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        (!self.may_be_late).then(|| self.outcome_of(applied))
    }

    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        self.outcome_of(applied).cells.get_mut(uid)?.remove(key)
    }

    fn run_all(&self) -> Outcome {
        self.query.outcome(&self.events.iter().collect::<Vec<&Event>>())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        (!self.may_be_late).then_some(self)
    }
}

impl<Q: Sequential> ByCell for Gathered<Q> {
    fn operator(&self) -> &'static str {
        Q::OPERATOR
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        let keys = self.events.iter().filter_map(|event| self.query.key(event));
        keys.collect::<BTreeSet<Vec<u8>>>().into_iter().collect()
    }

    fn kinship(&self) -> Kinship {
        Q::KINSHIP
    }

    fn is_one(&self) -> bool {
        Q::IS_ONE
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        self.outcome_of(applied).rows(sink)
    }
}

/// The start of the tumbling window that a time lies in.
fn window_start(time_ms: i64, size_ms: i64) -> i64 {
    let mut start = time_ms / size_ms * size_ms;
    while start > time_ms {
        start -= size_ms;
    }
    start
}
