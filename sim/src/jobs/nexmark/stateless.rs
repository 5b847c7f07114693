//! The queries that look at one event at a time: q0, q1, q2.

use std::sync::Arc;

use cofferdam::job::Stream;
use cofferdam::operator::chain::Segment;
use cofferdam::state::codec::DecodeError;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::nexmark::{
    Bid, Event, Fields, OUT_OF_ORDER, Query, RATE, RECORDS, SEED, SHARES, at_least_one,
};
use crate::jobs::row::encoded_json;
use crate::jobs::{JobError, Parameter, Setup};
use crate::reference::Reference;
use crate::reference::nexmark::EachAlone;

/// q0: every event as it comes.
pub(crate) struct PassThrough;

/// q1: bids in euros.
pub(crate) struct CurrencyConversion;

/// q2: the bids for some auctions.
pub(crate) struct Selection {
    every: u64,
}

/// A bid that was selected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Selected {
    pub(crate) auction: u64,
    pub(crate) price: u64,
}

impl Fields for Selected {}

impl Query for PassThrough {
    const NAME: &'static str = "nexmark-q0";
    const ABOUT: &'static str = "hands on generated events of an auction house as they come";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER];
    const IS_TIMED: bool = false;
    const MERGES: bool = false;

    fn with(_setup: &Setup, _dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self)
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        ends.end(events, "out");
    }

    fn reference(&self, events: Arc<[Event]>, _may_be_late: bool) -> Box<dyn Reference> {
        Box::new(EachAlone::passed(&events))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Event>(row)
    }
}

impl Query for CurrencyConversion {
    const NAME: &'static str = "nexmark-q1";
    const ABOUT: &'static str = "converts the bids of generated events from dollars to euros";
    const PARAMETERS: &'static [Parameter] = PassThrough::PARAMETERS;
    const IS_TIMED: bool = false;
    const MERGES: bool = false;

    fn with(_setup: &Setup, _dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self)
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let euros = |bid: Bid| Bid { price: bid.price * 908 / 1_000, ..bid };
        ends.end(events.filter_map("euros", move |event| event.bid().map(euros)), "out");
    }

    fn reference(&self, events: Arc<[Event]>, _may_be_late: bool) -> Box<dyn Reference> {
        Box::new(EachAlone::converted(&events))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Bid>(row)
    }
}

impl Query for Selection {
    const NAME: &'static str = "nexmark-q2";
    const ABOUT: &'static str = "selects the bids of generated events for some auctions";
    const PARAMETERS: &'static [Parameter] = &[RECORDS, SEED, RATE, SHARES, OUT_OF_ORDER, EVERY];
    const IS_TIMED: bool = false;
    const MERGES: bool = false;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        let given = setup.parameters.read(EVERY.flag, at_least_one)?;
        let drawn = dice.filter(|_| setup.parameters.text(EVERY.flag) == EVERY.default);
        Ok(Self { every: drawn.map_or(given, |dice| dice.between(1, 4)) })
    }

    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends) {
        let every = self.every;
        let selected = events.filter_map("selected", move |event| {
            let Bid { auction, price, .. } = event.bid()?;
            auction.is_multiple_of(every).then_some(Selected { auction, price })
        });
        ends.end(selected, "out");
    }

    fn reference(&self, events: Arc<[Event]>, _may_be_late: bool) -> Box<dyn Reference> {
        Box::new(EachAlone::selected(&events, self.every))
    }

    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Selected>(row)
    }
}

const EVERY: Parameter = Parameter {
    flag: "every",
    default: "123",
    help: "the auctions whose id is a multiple of it are selected; drawn likewise",
};
