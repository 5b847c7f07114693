//! The queries over the prices at which auctions close: q4, q6. An auction closes at the highest
//! bid from its opening to its last moment, both included.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cofferdam::job::Stream;
use cofferdam::operator::chain::Segment;
use cofferdam::operator::join::Either;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::{Emit, RowsRestOn};
use cofferdam::state::codec::{self, DecodeError};
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::nexmark::{
    Auction, Bid, Event, Fields, OUT_OF_ORDER, Query, RATE, RECORDS, SEED, SHARES, at_least_one,
};
use crate::jobs::row::encoded_json;
use crate::jobs::{JobError, Parameter, Setup};
use crate::reference::Reference;
use crate::reference::nexmark::{Closings, Gathered};

/// q4: the average price of each category.
pub(crate) struct CategoryPrices;

/// q6: the average price of each seller's last auctions.
pub(crate) struct SellerPrices {
    last: u64,
}

/// An auction as it opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Opening {
    seller: u64,
    category: u64,
    date_time: EventTime,
    expires: EventTime,
}

/// What is known of an auction until it closes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Bidding {
    opening: Option<Opening>,
    /// The highest bid that counts.
    price: Option<u64>,
    /// Bids that have come before the auction, with their times: it may have been opened by then.
    early: BTreeSet<(EventTime, u64)>,
}

/// An auction that somebody has bid for, when it has closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Closing {
    auction: u64,
    seller: u64,
    category: u64,
    price: u64,
    expires: EventTime,
}

/// The prices of a category or of a seller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prices {
    /// Closings that the watermark has not come to, by their time and auction: they count in this
    /// order, whatever the order in which they come.
    pub(crate) waiting: BTreeMap<(EventTime, u64), u64>,
    /// How many have been counted.
    pub(crate) closed: u64,
    /// The prices that are averaged, if those are not all; the newest last.
    pub(crate) last: VecDeque<u64>,
    /// Of those that are averaged.
    pub(crate) sum: u128,
}

/// The average price of a category, each time that an auction closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CategoryPrice {
    pub(crate) category: u64,
    /// How many auctions have closed.
    pub(crate) closed: u64,
    /// Their average price, cut to whole cents.
    pub(crate) average: u64,
}

/// The average price of a seller's last auctions, each time that one of them closes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SellerPrice {
    pub(crate) seller: u64,
    /// The auction that has closed.
    pub(crate) auction: u64,
    /// The average price, cut to whole cents.
    pub(crate) average: u64,
}

impl Fields for CategoryPrice {
    const IS_KEY_WHOLE: bool = false;

    fn key(&self) -> Vec<u8> {
        codec::encode(&self.category)
    }
}

impl Fields for SellerPrice {
    const IS_KEY_WHOLE: bool = false;

    fn key(&self) -> Vec<u8> {
        codec::encode(&self.seller)
    }
}

impl Query for CategoryPrices {
    const NAME: &'static str = "nexmark-q4";
    const ABOUT: &'static str = "averages the prices at which auctions close, by category";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER];
    const IS_TIMED: bool = true;

    fn with(_setup: &Setup, _dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self)
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let closed = closings(events).key_by_ref(|closing| &closing.category);
        let row = |category, _, prices: &Prices| CategoryPrice {
            category,
            closed: prices.closed,
            average: (prices.sum / u128::from(prices.closed)) as u64,
        };
        ends.end(closed.process("average", Averages { last: None, row }), "out");
    }

    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Closings::by_category(), events, may_be_late))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<CategoryPrice>(row)
    }
}

impl Query for SellerPrices {
    const NAME: &'static str = "nexmark-q6";
    const ABOUT: &'static str = "averages the prices at which each seller's last auctions closed";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER, LAST];
    const IS_TIMED: bool = true;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        let given = setup.parameters.read(LAST.flag, at_least_one)?;
        let drawn = dice.filter(|_| setup.parameters.text(LAST.flag) == LAST.default);
        Ok(Self { last: drawn.map_or(given, |dice| dice.between(1, 3)) })
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let closed = closings(events).key_by_ref(|closing| &closing.seller);
        let row = |seller, auction, prices: &Prices| SellerPrice {
            seller,
            auction,
            average: (prices.sum / prices.last.len() as u128) as u64,
        };
        ends.end(closed.process("average", Averages { last: Some(self.last), row }), "out");
    }

    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Closings::by_seller(self.last), events, may_be_late))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<SellerPrice>(row)
    }
}

/// The auctions that have closed.
fn closings(events: Stream<impl Segment<Out = Event>>) -> Stream<impl Segment<Out = Closing>> {
    let sides = events.filter_map("sides", |event| match event {
        Event::Person(_) => None,
        Event::Auction(auction) => {
            let Auction { id, seller, category, date_time, expires, .. } = *auction;
            Some(Either::Left((id, Opening { seller, category, date_time, expires })))
        }
        Event::Bid(bid) => Some(Either::Right(bid)),
    });
    let auction = |side: &Either<(u64, Opening), Bid>| match side {
        Either::Left((auction, _)) => *auction,
        Either::Right(bid) => bid.auction,
    };
    sides.key_by(auction).process("close", Close)
}

/// Keeps the highest bid of an auction until it closes.
///
/// What the watermark has passed is a repeat, since nothing comes late here, and is left out: its
/// auction may have closed, and nothing is kept of that.
#[derive(Clone)]
struct Close;

impl KeyedProcess for Close {
    type Key = u64;
    type In = Either<(u64, Opening), Bid>;
    type State = Bidding;
    type Out = Closing;

    fn process(
        &mut self,
        side: Self::In,
        context: &mut KeyedContext<'_, u64, Bidding>,
        _out: &mut impl Emit<Closing>,
    ) {
        let time = match &side {
            Either::Left((_, opening)) => opening.date_time,
            Either::Right(bid) => bid.date_time,
        };
        if time <= context.watermark() {
            return;
        }
        let bidding = context.state().get_or_insert_default();
        match side {
            Either::Left((_, opening)) => {
                let expires = opening.expires;
                for (time, price) in std::mem::take(&mut bidding.early) {
                    bidding.take(&opening, time, price);
                }
                bidding.opening = Some(opening);
                context.register_timer(expires);
            }
            Either::Right(Bid { price, .. }) => match bidding.opening.take() {
                Some(opening) => {
                    bidding.take(&opening, time, price);
                    bidding.opening = Some(opening);
                }
                None => {
                    bidding.early.insert((time, price));
                    context.register_timer(time);
                }
            },
        }
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, Bidding>,
        out: &mut impl Emit<Closing>,
    ) {
        let Some(mut bidding) = context.state().take() else { return };
        match bidding.opening {
            Some(Opening { seller, category, expires, .. }) if expires <= time => {
                let auction = *context.key();
                let closing = |price| Closing { auction, seller, category, price, expires };
                bidding.price.map(closing).into_iter().for_each(|closing| out.emit(closing));
            }
            Some(_) => context.state().set(bidding),
            // No auction that opens from now on counts them.
            None => {
                bidding.early.retain(|(early, _)| *early > time);
                context.state().put(Some(bidding).filter(|bidding| !bidding.early.is_empty()));
            }
        }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// Only timers emit, and one that has fired is not registered again.
    fn absorbs_repeats(&self) -> bool {
        true
    }

    fn rows_rest_on(&self) -> RowsRestOn {
        RowsRestOn::Records
    }
}

impl Bidding {
    fn take(&mut self, opening: &Opening, time: EventTime, price: u64) {
        if (opening.date_time..=opening.expires).contains(&time) {
            self.price = self.price.max(Some(price));
        }
    }
}

/// Averages the prices of a key in the order in which its auctions close, whatever the order in
/// which they come. As with [`Close`], what the watermark has passed is a repeat.
struct Averages<Row> {
    /// Over how many at most; over all if it is none.
    last: Option<u64>,
    /// What to say of a key when this auction of it has closed.
    row: fn(u64, u64, &Prices) -> Row,
}

impl<Row> Clone for Averages<Row> {
    fn clone(&self) -> Self {
        Self { last: self.last, row: self.row }
    }
}

impl<Row: Fields> KeyedProcess for Averages<Row> {
    type Key = u64;
    type In = Closing;
    type State = Prices;
    type Out = Row;

    fn process(
        &mut self,
        closing: Closing,
        context: &mut KeyedContext<'_, u64, Prices>,
        _out: &mut impl Emit<Row>,
    ) {
        let Closing { auction, price, expires, .. } = closing;
        if expires > context.watermark() {
            context.state().get_or_insert_default().waiting.insert((expires, auction), price);
            context.register_timer(expires);
        }
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, Prices>,
        out: &mut impl Emit<Row>,
    ) {
        let key = *context.key();
        let Some(prices) = context.state().get_mut() else { return };
        while let Some(first) = prices.waiting.first_entry().filter(|first| first.key().0 <= time) {
            let ((_, auction), price) = first.remove_entry();
            prices.count(price, self.last);
            out.emit((self.row)(key, auction, prices));
        }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// Only timers emit, and one that has fired is not registered again.
    fn absorbs_repeats(&self) -> bool {
        true
    }

    fn rows_rest_on(&self) -> RowsRestOn {
        RowsRestOn::Records
    }
}

impl Prices {
    fn count(&mut self, price: u64, last: Option<u64>) {
        self.closed += 1;
        self.sum += u128::from(price);
        let Some(last) = last else { return };
        self.last.push_back(price);
        if self.last.len() as u64 > last {
            let first = self.last.pop_front().unwrap_or_default();
            self.sum -= u128::from(first);
        }
    }
}

const LAST: Parameter = Parameter {
    flag: "last",
    default: "10",
    help: "how many auctions of a seller are averaged; drawn likewise",
};
