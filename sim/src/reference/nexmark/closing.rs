//! The queries over the prices at which auctions close.

use std::collections::{BTreeMap, VecDeque};

use cofferdam::state::codec;

use crate::jobs::nexmark::{Auction, Bid, CategoryPrice, Event, Prices, SellerPrice};
use crate::jobs::row::Row;
use crate::reference::nexmark::Sequential;
use crate::reference::{Kinship, Outcome};

/// q4 and q6.
pub(crate) struct Closings {
    by: By,
}

enum By {
    Category,
    /// With how many auctions of each seller are averaged.
    Seller(usize),
}

impl Closings {
    pub(crate) fn by_category() -> Self {
        Self { by: By::Category }
    }

    pub(crate) fn by_seller(last: u64) -> Self {
        Self { by: By::Seller(last as usize) }
    }
}

/// Each auction that somebody has bid for with the price at which it closes, as they close.
fn closed<'a>(events: &[&'a Event]) -> Vec<(&'a Auction, u64)> {
    let mut auctions: BTreeMap<u64, &Auction> = BTreeMap::new();
    let mut bids: BTreeMap<u64, Vec<&Bid>> = BTreeMap::new();
    for event in events {
        match event {
            Event::Person(_) => {}
            Event::Auction(auction) => _ = auctions.insert(auction.id, auction),
            Event::Bid(bid) => bids.entry(bid.auction).or_default().push(bid),
        }
    }
    let priced = auctions.into_values().filter_map(|auction| {
        let counts = bids
            .get(&auction.id)?
            .iter()
            .filter(|bid| bid.date_time >= auction.date_time && bid.date_time <= auction.expires);
        Some((auction, counts.map(|bid| bid.price).max()?))
    });
    let mut closed: Vec<(&Auction, u64)> = priced.collect();
    closed.sort_by_key(|(auction, _)| (auction.expires, auction.id));
    closed
}

impl Sequential for Closings {
    const OPERATOR: &'static str = "close";
    const KINSHIP: Kinship = Kinship::Siblings;
    const IS_ONE: bool = true;

    fn key(&self, event: &Event) -> Option<Vec<u8>> {
        match event {
            Event::Person(_) => None,
            Event::Auction(auction) => Some(codec::encode(&auction.id)),
            Event::Bid(bid) => Some(codec::encode(&bid.auction)),
        }
    }

    fn outcome(&self, events: &[&Event]) -> Outcome {
        let mut of_keys: BTreeMap<u64, Vec<(&Auction, u64)>> = BTreeMap::new();
        for (auction, price) in closed(events) {
            let key = match self.by {
                By::Category => auction.category,
                By::Seller(_) => auction.seller,
            };
            of_keys.entry(key).or_default().push((auction, price));
        }
        let mut outcome = Outcome::default();
        for (key, closed) in of_keys {
            let mut averaged: &[(&Auction, u64)] = &[];
            for (place, (auction, _)) in closed.iter().enumerate() {
                let most = if let By::Seller(most) = self.by { most } else { closed.len() };
                averaged = &closed[(place + 1).saturating_sub(most)..=place];
                let sum: u64 = averaged.iter().map(|(_, price)| price).sum();
                let average = sum / averaged.len() as u64;
                match self.by {
                    By::Category => {
                        let closed = place as u64 + 1;
                        let row = CategoryPrice { category: key, closed, average };
                        outcome.row("out", row.row_key(), &row);
                    }
                    By::Seller(_) => {
                        let row = SellerPrice { seller: key, auction: auction.id, average };
                        outcome.row("out", row.row_key(), &row);
                    }
                }
            }
            let last: VecDeque<u64> = averaged.iter().map(|(_, price)| *price).collect();
            let sum = last.iter().map(|price| u128::from(*price)).sum();
            let is_kept = matches!(self.by, By::Seller(_));
            let last = if is_kept { last } else { VecDeque::new() };
            let closed = closed.len() as u64;
            let prices = Prices { waiting: BTreeMap::new(), closed, last, sum };
            outcome.cell("average", &key, &prices);
        }
        outcome
    }
}
