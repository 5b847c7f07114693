//! The queries that bring persons and auctions together: q3, q8.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::job::Stream;
use cofferdam::operator::chain::Segment;
use cofferdam::operator::join::Either;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::window::{WindowRow, Windows};
use cofferdam::operator::{Emit, RowsRestOn};
use cofferdam::state::codec::DecodeError;
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::nexmark::{
    Event, Fields, OUT_OF_ORDER, Query, RATE, RECORDS, SEED, SHARES, WINDOW, span,
};
use crate::jobs::row::encoded_json;
use crate::jobs::{JobError, Parameter, Setup};
use crate::reference::Reference;
use crate::reference::nexmark::{Gathered, Newcomers, Suggestions};

/// q3: who sells things of one category in some states.
pub(crate) struct LocalItems;

/// q8: who opens an auction in the same window in which they register.
pub(crate) struct NewUsers {
    window: Duration,
}

/// Somebody of one of the states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resident {
    id: u64,
    name: String,
    city: String,
    state: String,
}

/// An auction, by who sells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    id: u64,
    seller: u64,
    date_time: EventTime,
}

/// An item that is sold near by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Suggestion {
    pub(crate) name: String,
    pub(crate) city: String,
    pub(crate) state: String,
    pub(crate) auction: u64,
}

/// What is known of a seller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seller {
    /// Name, city and state, once they have registered.
    pub(crate) resident: Option<[String; 3]>,
    /// What they have put up.
    pub(crate) auctions: BTreeSet<u64>,
}

/// Somebody who has registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Newcomer {
    id: u64,
    name: String,
    date_time: EventTime,
}

/// What somebody has done in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FirstSteps {
    registered_as: Option<String>,
    has_sold: bool,
}

/// Somebody who has sold in the window in which they registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewUser {
    pub(crate) person: u64,
    pub(crate) name: String,
    /// The start of the window.
    pub(crate) window: EventTime,
}

impl Fields for Suggestion {}

impl Fields for NewUser {}

impl Query for LocalItems {
    const NAME: &'static str = "nexmark-q3";
    const ABOUT: &'static str =
        "joins people of Oregon, Idaho and California with what they sell in one category";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER];
    const IS_TIMED: bool = false;

    fn with(_setup: &Setup, _dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self)
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let sides = events.filter_map("sides", |event| match event {
            Event::Person(person) if ["OR", "ID", "CA"].contains(&person.state.as_str()) => {
                let (id, name) = (person.id, person.name);
                Some(Either::Left(Resident { id, name, city: person.city, state: person.state }))
            }
            Event::Auction(auction) if auction.category == 10 => {
                let (id, seller) = (auction.id, auction.seller);
                Some(Either::Right(Offer { id, seller, date_time: auction.date_time }))
            }
            Event::Person(_) | Event::Auction(_) | Event::Bid(_) => None,
        });
        let seller = |side: &Either<Resident, Offer>| match side {
            Either::Left(resident) => resident.id,
            Either::Right(offer) => offer.seller,
        };
        ends.end(sides.key_by(seller).process("join", Suggest), "out");
    }

    fn reference(&self, events: Arc<[Event]>, _may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Suggestions, events, false))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Suggestion>(row)
    }
}

/// Joins a seller with their auctions, whichever comes first; nothing is ever forgotten.
#[derive(Clone)]
struct Suggest;

impl KeyedProcess for Suggest {
    type Key = u64;
    type In = Either<Resident, Offer>;
    type State = Seller;
    type Out = Suggestion;

    fn process(
        &mut self,
        side: Either<Resident, Offer>,
        context: &mut KeyedContext<'_, u64, Seller>,
        out: &mut impl Emit<Suggestion>,
    ) {
        let seller = context.state().get_or_insert_default();
        let suggestion =
            |[name, city, state]: [String; 3], auction| Suggestion { name, city, state, auction };
        match side {
            Either::Left(Resident { name, city, state, .. }) if seller.resident.is_none() => {
                let resident = seller.resident.insert([name, city, state]);
                for auction in &seller.auctions {
                    out.emit(suggestion(resident.clone(), *auction));
                }
            }
            Either::Left(_) => {}
            Either::Right(offer) => {
                let is_new = seller.auctions.insert(offer.id);
                if let Some(resident) = seller.resident.as_ref().filter(|_| is_new) {
                    out.emit(suggestion(resident.clone(), offer.id));
                }
            }
        }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// A person registers once, and an auction opens once: what is there already is a repeat.
    fn absorbs_repeats(&self) -> bool {
        true
    }

    /// A pair is one whatever else is kept.
    fn rows_rest_on(&self) -> RowsRestOn {
        RowsRestOn::Nothing
    }
}

impl Query for NewUsers {
    const NAME: &'static str = "nexmark-q8";
    const ABOUT: &'static str =
        "finds who opens an auction in the same window of time in which they register";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER, WINDOW];
    const IS_TIMED: bool = true;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self { window: span(setup, &WINDOW, dice)? })
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let sides = events.filter_map("sides", |event| match event {
            Event::Person(person) => {
                let (id, name, date_time) = (person.id, person.name, person.date_time);
                Some(Either::Left(Newcomer { id, name, date_time }))
            }
            Event::Auction(auction) => {
                let (id, seller, date_time) = (auction.id, auction.seller, auction.date_time);
                Some(Either::Right(Offer { id, seller, date_time }))
            }
            Event::Bid(_) => None,
        });
        let person = |side: &Either<Newcomer, Offer>| match side {
            Either::Left(newcomer) => newcomer.id,
            Either::Right(offer) => offer.seller,
        };
        let time = |side: &Either<Newcomer, Offer>| match side {
            Either::Left(newcomer) => newcomer.date_time,
            Either::Right(offer) => offer.date_time,
        };
        let take = |steps: &mut FirstSteps, side: &Either<Newcomer, Offer>| match side {
            Either::Left(newcomer) => steps.registered_as = Some(newcomer.name.clone()),
            Either::Right(_) => steps.has_sold = true,
        };
        let steps = sides
            .key_by(person)
            .window("steps", Windows::tumbling(self.window), time)
            .aggregate_idempotent(FirstSteps::default(), take);
        let new_user = |row: WindowRow<u64, FirstSteps>| {
            let FirstSteps { registered_as, has_sold } = row.value;
            let name = registered_as.filter(|_| has_sold)?;
            Some(NewUser { person: row.key, name, window: row.window.start })
        };
        ends.end(steps.filter_map("new-users", new_user), "out");
    }

    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(Gathered::new(Newcomers::new(self.window), events, may_be_late))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<NewUser>(row)
    }
}
