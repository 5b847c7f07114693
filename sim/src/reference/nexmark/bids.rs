//! The queries that bring the bids of a window to one row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cofferdam::operator::window::Window;
use cofferdam::state::codec;
use cofferdam::time::{EventTime, whole_millis};

use crate::jobs::nexmark::{Bid, Event, HighestBid, HotItem};
use crate::jobs::row::Row;
use crate::reference::nexmark::{Sequential, window_start};
use crate::reference::{Kinship, Outcome};

/// q5.
pub(crate) struct Hottest {
    window_ms: i64,
    slide_ms: i64,
}

/// q7.
pub(crate) struct Highest {
    window_ms: i64,
}

impl Hottest {
    pub(crate) fn new(window: Duration, slide: Duration) -> Self {
        Self { window_ms: whole_millis(window), slide_ms: whole_millis(slide) }
    }
}

impl Highest {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window_ms: whole_millis(window) }
    }
}

fn bids<'a>(events: &[&'a Event]) -> Vec<&'a Bid> {
    let bids = events.iter().filter_map(|event| match event {
        Event::Bid(bid) => Some(bid),
        Event::Person(_) | Event::Auction(_) => None,
    });
    bids.collect()
}

/// The key of the first stage.
fn auction(event: &Event) -> Option<Vec<u8>> {
    match event {
        Event::Bid(bid) => Some(codec::encode(&bid.auction)),
        Event::Person(_) | Event::Auction(_) => None,
    }
}

fn window(start_ms: i64, size_ms: i64) -> Window {
    let [start, end] = [start_ms, start_ms + size_ms].map(EventTime::from_millis);
    Window { start, end }
}

impl Sequential for Hottest {
    const OPERATOR: &'static str = "counts";
    /// What a bid that comes again does depends on whether its windows have had their rows.
    const KINSHIP: Kinship = Kinship::Sums;
    const IS_ONE: bool = true;

    fn key(&self, event: &Event) -> Option<Vec<u8>> {
        auction(event)
    }

    /// Looks at every window that can hold a bid.
    fn outcome(&self, events: &[&Event]) -> Outcome {
        let bids = bids(events);
        let mut outcome = Outcome::default();
        let times = || bids.iter().map(|bid| bid.date_time.as_millis());
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return outcome };
        let mut start = window_start(first - self.window_ms, self.slide_ms);
        while start <= last {
            let held = bids
                .iter()
                .filter(|bid| (start..start + self.window_ms).contains(&bid.date_time.as_millis()));
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            held.for_each(|bid| *counts.entry(bid.auction).or_default() += 1);
            let most = counts.values().copied().max();
            for (auction, bids) in counts.into_iter().filter(|(_, bids)| Some(*bids) == most) {
                let row = HotItem { window: window(start, self.window_ms), auction, bids };
                outcome.row("out", row.row_key(), &row);
            }
            start += self.slide_ms;
        }
        outcome
    }
}

impl Sequential for Highest {
    const OPERATOR: &'static str = "of-auctions";
    const KINSHIP: Kinship = Kinship::Siblings;
    const IS_ONE: bool = true;

    fn key(&self, event: &Event) -> Option<Vec<u8>> {
        auction(event)
    }

    fn outcome(&self, events: &[&Event]) -> Outcome {
        let start = |bid: &Bid| window_start(bid.date_time.as_millis(), self.window_ms);
        let bids = bids(events);
        let starts: BTreeSet<i64> = bids.iter().map(|bid| start(bid)).collect();
        let mut outcome = Outcome::default();
        for of_window in starts {
            let mut held: Vec<&Bid> =
                bids.iter().copied().filter(|bid| start(bid) == of_window).collect();
            held.sort_by_key(|bid| (bid.date_time, bid.auction, bid.bidder));
            // Of those that are equal it is the first.
            let highest = held
                .into_iter()
                .reduce(|highest, bid| if bid.price > highest.price { bid } else { highest });
            if let Some(bid) = highest {
                let row =
                    HighestBid { window: window(of_window, self.window_ms), bid: bid.clone() };
                outcome.row("out", row.row_key(), &row);
            }
        }
        outcome
    }
}
