//! The reference of visits: a visitor's visits sorted, then one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::state::codec;

use crate::jobs::seconds::Seconds;
use crate::jobs::visits::{Counted, Visit, Visitor};
use crate::reference::{ByCell, Effects, Outcome, RecordId, Reference, encoded_keys};

/// Repeated records count once: the same visit again says nothing new.
pub(crate) struct VisitsReference {
    visits: Arc<Vec<Visit>>,
    forget_ms: i64,
}

/// A count, and when it was last added to.
#[derive(Clone, Copy)]
struct Remembered {
    count: u64,
    last_ms: i64,
}

impl VisitsReference {
    pub(crate) fn new(visits: Arc<Vec<Visit>>, forget_ms: i64) -> Self {
        Self { visits, forget_ms }
    }

    fn apply(&self, records: impl Iterator<Item = usize>) -> Outcome {
        let mut visitors: BTreeMap<&str, BTreeMap<(Seconds, u64), &str>> = BTreeMap::new();
        for visit in records.map(|record| &self.visits[record]) {
            let of_visitor = visitors.entry(&visit.visitor).or_default();
            of_visitor.insert((visit.at, visit.offset), &visit.page);
        }
        let mut outcome = Outcome::default();
        for (visitor, visits) in visitors {
            // When event time is at its end, all is forgotten.
            let handled = visits.last_key_value().map(|((at, _), _)| *at);
            outcome.cell("count", visitor, &Visitor { handled, ..Visitor::default() });
            self.count(visitor, visits, &mut outcome);
        }
        outcome
    }

    fn count(&self, visitor: &str, visits: BTreeMap<(Seconds, u64), &str>, outcome: &mut Outcome) {
        let mut pages: BTreeMap<&str, Remembered> = BTreeMap::new();
        let mut all: Option<Remembered> = None;
        for ((at, _), page) in visits {
            let last_ms = at.as_millis();
            let one_more = |before: Option<Remembered>| {
                let before = before.filter(|of| last_ms - of.last_ms < self.forget_ms);
                Remembered { count: before.map_or(0, |of| of.count) + 1, last_ms }
            };
            let of_page = one_more(pages.get(page).copied());
            let of_all = one_more(all);
            let (visits, total) = (of_page.count, of_all.count);
            let (key, page_name) = (visitor.to_owned(), page.to_owned());
            let row = Counted { key, at, page: page_name, visits, total };
            outcome.row("out", codec::encode(visitor), &row);
            pages.insert(page, of_page);
            all = Some(of_all);
        }
    }
}

impl Reference for VisitsReference {
    /// Every row is fired by a timer.
    fn effects(&self, _record: RecordId) -> Effects {
        Effects { state: 1, outputs: 0 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        Some(self.apply(applied.iter().map(|record| record.offset as usize)))
    }

    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>> {
        self.run(applied)?.cells.get_mut(uid)?.remove(key)
    }

    fn run_all(&self) -> Outcome {
        self.apply(0..self.visits.len())
    }

    fn by_cell(&self) -> Option<&dyn ByCell> {
        Some(self)
    }
}

impl ByCell for VisitsReference {
    fn operator(&self) -> &'static str {
        "count"
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        encoded_keys(self.visits.iter().map(|visit| visit.visitor.as_str()))
    }

    fn rows(&self, sink: &str, _key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>> {
        self.apply(applied.iter().map(|record| record.offset as usize)).rows(sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as (visits, total), for visits (time in ms, page) of one visitor who is forgotten after
    /// 10 ms.
    fn counts(visits: &[(i64, &str)]) -> Vec<(u64, u64)> {
        let visit = |(offset, (at, page)): (u64, &(i64, &str))| Visit {
            visitor: "v".to_owned(),
            at: Seconds::from_millis(*at),
            page: (*page).to_owned(),
            offset,
        };
        let visits = Arc::new((0..).zip(visits).map(visit).collect());
        let outcome = VisitsReference::new(visits, 10).run_all();
        let row = |row| codec::decode::<Counted>(row).unwrap();
        outcome.outputs["out"].iter().map(row).map(|row| (row.visits, row.total)).collect()
    }

    #[test]
    fn a_page_is_forgotten_when_its_time_is_over_and_a_visit_renews_it() {
        assert_eq!(counts(&[(0, "a"), (9, "a"), (18, "a")]), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(counts(&[(0, "a"), (10, "a")]), [(1, 1), (1, 1)]);
        assert_eq!(counts(&[(0, "a"), (9, "b"), (10, "a")]), [(1, 1), (1, 2), (1, 3)]);
    }

    #[test]
    fn ties_go_by_input_order_and_other_disorder_by_time() {
        assert_eq!(counts(&[(9, "a"), (0, "a"), (9, "a")]), [(1, 1), (2, 2), (3, 3)]);
    }
}
