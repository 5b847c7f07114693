//! The queries that bring the bids of a window to one row: q5, q7. First by auction, so that many
//! tasks share the work, then over all auctions.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::element::Record;
use cofferdam::job::Stream;
use cofferdam::operator::chain::Segment;
use cofferdam::operator::window::{Window, WindowRow, Windows};
use cofferdam::state::codec::DecodeError;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::nexmark::{
    Bid, Event, Fields, OUT_OF_ORDER, Query, RATE, RECORDS, SEED, SHARES, WINDOW, span,
};
use crate::jobs::row::encoded_json;
use crate::jobs::{JobError, Parameter, Setup};
use crate::reference::Reference;
use crate::reference::nexmark::{Gathered, Highest, Hottest};

/// q5: the auctions with the most bids in each sliding window.
pub(crate) struct HotItems {
    window: Duration,
    slide: Duration,
}

/// q7: the highest bid of each tumbling window.
pub(crate) struct HighestBids {
    window: Duration,
}

/// An auction that no other one has more bids than in a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HotItem {
    /// The window's start and end.
    pub(crate) window: Window,
    pub(crate) auction: u64,
    pub(crate) bids: u64,
}

/// The highest bid of a window, and of those the first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HighestBid {
    /// The window's start and end.
    pub(crate) window: Window,
    pub(crate) bid: Bid,
}

/// The most bids that an auction has, and which auctions have them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Most {
    bids: u64,
    auctions: BTreeSet<u64>,
}

impl Fields for HotItem {}

impl Fields for HighestBid {}

impl Query for HotItems {
    const NAME: &'static str = "nexmark-q5";
    const ABOUT: &'static str = "finds the auctions with the most bids in sliding windows";
    const PARAMETERS: &'static [Parameter] =
        &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER, WINDOW, SLIDE];
    const IS_TIMED: bool = true;

    fn with(setup: &Setup, mut dice: Option<&mut Dice>) -> Result<Self, JobError> {
        let window = span(setup, &WINDOW, dice.as_deref_mut())?;
        let given = span(setup, &SLIDE, None)?;
        let drawn = dice.filter(|_| setup.parameters.text(SLIDE.flag) == SLIDE.default);
        // Whole milliseconds, so that a window of one slides by one.
        let part = drawn.map(|dice| window.as_millis() as u64 / dice.between(1, 4));
        Ok(Self { window, slide: part.map_or(given, |part| Duration::from_millis(part.max(1))) })
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let counts = events
            .filter_map("bids", Event::bid)
            .key_by_ref(|bid| &bid.auction)
            .window("counts", Windows::sliding(self.window, self.slide), |bid| bid.date_time)
            .aggregate(0, |count: &mut u64, _| *count += 1);
        let most = at_its_end(counts, "most", Most::default(), |most, row| {
            if row.value > most.bids {
                *most = Most { bids: row.value, auctions: BTreeSet::new() };
            }
            if row.value == most.bids {
                most.auctions.insert(row.key);
            }
        });
        let items = most.flat_map("items", |row, out| {
            let Most { bids, auctions } = row.value;
            for auction in auctions {
                out.emit(HotItem { window: row.key, auction, bids });
            }
        });
        ends.end(items, "out");
    }

    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Hottest::new(self.window, self.slide), events, may_be_late))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<HotItem>(row)
    }
}

impl Query for HighestBids {
    const NAME: &'static str = "nexmark-q7";
    const ABOUT: &'static str = "finds the highest bid of each tumbling window";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER, WINDOW];
    const IS_TIMED: bool = true;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self { window: span(setup, &WINDOW, dice)? })
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let of_auctions = events
            .filter_map("bids", Event::bid)
            .key_by_ref(|bid| &bid.auction)
            .window("of-auctions", Windows::tumbling(self.window), |bid| bid.date_time)
            .aggregate_idempotent(None, take_higher);
        let highest = at_its_end(of_auctions, "highest", None, |highest, row| {
            row.value.iter().for_each(|bid| take_higher(highest, bid));
        });
        let row = |row: WindowRow<Window, Option<Bid>>| {
            Some(HighestBid { window: row.key, bid: row.value? })
        };
        ends.end(highest.filter_map("bid", row), "out");
    }

    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Highest::new(self.window), events, may_be_late))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<HighestBid>(row)
    }
}

/// Brings the rows of each window to one value. They come when the window ends, so its last
/// millisecond is a window that holds them all.
fn at_its_end<A, V>(
    rows: Stream<impl Segment<Out = WindowRow<u64, A>>>,
    uid: &str,
    init: V,
    fold: fn(&mut V, &WindowRow<u64, A>),
) -> Stream<impl Segment<Out = WindowRow<Window, V>>>
where
    A: Record,
    V: Record,
{
    let last = |row: &WindowRow<u64, A>| row.window.last();
    let millisecond = Windows::tumbling(Duration::from_millis(1));
    rows.key_by_ref(|row| &row.window)
        .window(uid, millisecond, last)
        .aggregate_idempotent(init, fold)
}

fn take_higher(highest: &mut Option<Bid>, bid: &Bid) {
    let rank = |bid: &Bid| (bid.price, Reverse((bid.date_time, bid.auction, bid.bidder)));
    if highest.as_ref().is_none_or(|highest| rank(highest) < rank(bid)) {
        *highest = Some(bid.clone());
    }
}

const SLIDE: Parameter =
    Parameter { flag: "slide", default: "2s", help: "how far apart windows begin; drawn likewise" };
