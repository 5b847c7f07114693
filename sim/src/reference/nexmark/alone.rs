//! The queries that look at one event at a time.

use cofferdam::state::codec;

use crate::jobs::nexmark::{Bid, Event, Selected};
use crate::jobs::row::Row;
use crate::reference::{Effects, Outcome, RecordId, Reference};

/// Each event gives at most one row, whatever the others are.
pub(crate) struct EachAlone {
    /// Of each event its row and the key of that, encoded.
    rows: Vec<Option<EncodedRow>>,
}

struct EncodedRow {
    key: Vec<u8>,
    row: Vec<u8>,
}

impl EachAlone {
    pub(crate) fn passed(events: &[Event]) -> Self {
        Self::new(events, |event| Some(event.clone()))
    }

    pub(crate) fn converted(events: &[Event]) -> Self {
        Self::new(events, |event| match event {
            Event::Person(_) | Event::Auction(_) => None,
            Event::Bid(bid) => {
                let dollars = u128::from(bid.price);
                let price = (dollars * 1_000 - dollars * 92) / 1_000;
                Some(Bid { price: price as u64, ..bid.clone() })
            }
        })
    }

    pub(crate) fn selected(events: &[Event], every: u64) -> Self {
        Self::new(events, |event| match event {
            Event::Bid(Bid { auction, price, .. }) if auction / every * every == *auction => {
                Some(Selected { auction: *auction, price: *price })
            }
            Event::Person(_) | Event::Auction(_) | Event::Bid(_) => None,
        })
    }

    fn new<R: Row>(events: &[Event], row_of: impl Fn(&Event) -> Option<R>) -> Self {
        let encoded = |row: R| EncodedRow { key: row.row_key(), row: codec::encode(&row) };
        Self { rows: events.iter().map(|event| row_of(event).map(encoded)).collect() }
    }
}

impl Reference for EachAlone {
    fn effects(&self, record: RecordId) -> Effects {
        let outputs = u32::from(self.rows[record.offset as usize].is_some());
        Effects { state: 0, outputs }
    }

    /// No state has taken anything in, so what it was says nothing of the rows.
    fn run(&self, _applied: &[RecordId]) -> Option<Outcome> {
        None
    }

    fn cell(&self, _uid: &str, _key: &[u8], _applied: &[RecordId]) -> Option<Vec<u8>> {
        None
    }

    fn run_all(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for EncodedRow { key, row } in self.rows.iter().flatten() {
            outcome.encoded_row("out", key.clone(), row.clone());
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use cofferdam::time::EventTime;

    use super::*;

    fn bid(auction: u64, price: u64) -> Event {
        Event::Bid(Bid { auction, bidder: 1, price, date_time: EventTime::from_millis(0) })
    }

    #[test]
    fn euros_are_cut_to_whole_cents() {
        let outcome = EachAlone::converted(&[bid(1, 1), bid(1, 1_000), bid(1, 1_001)]).run_all();
        let price = |row| codec::decode::<Bid>(row).unwrap().price;
        assert_eq!(outcome.outputs["out"].iter().map(price).collect::<Vec<_>>(), [0, 908, 908]);
    }

    #[test]
    fn only_bids_for_every_so_many_th_auction_are_selected() {
        let outcome = EachAlone::selected(&[bid(246, 7), bid(247, 8), bid(123, 9)], 123).run_all();
        let row = |row| codec::decode::<Selected>(row).unwrap();
        let rows: Vec<Selected> = outcome.outputs["out"].iter().map(row).collect();
        let selected = |auction, price| Selected { auction, price };
        assert_eq!(rows, [selected(246, 7), selected(123, 9)]);
    }
}
