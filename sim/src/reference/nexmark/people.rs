//! The queries that bring persons and auctions together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cofferdam::state::codec;
use cofferdam::time::{EventTime, whole_millis};

use crate::jobs::nexmark::{Auction, Event, NewUser, Person, Seller, Suggestion};
use crate::jobs::row::Row;
use crate::reference::nexmark::{Sequential, window_start};
use crate::reference::{Kinship, Outcome};

/// q3.
pub(crate) struct Suggestions;

/// q8.
pub(crate) struct Newcomers {
    window_ms: i64,
}

impl Newcomers {
    pub(crate) fn new(window: Duration) -> Self {
        Self { window_ms: whole_millis(window) }
    }
}

/// Each person and each auction once.
fn different<'a>(events: &[&'a Event]) -> (Vec<&'a Person>, Vec<&'a Auction>) {
    let (mut persons, mut auctions) = (BTreeMap::new(), BTreeMap::new());
    for event in events {
        match event {
            Event::Person(person) => _ = persons.insert(person.id, &**person),
            Event::Auction(auction) => _ = auctions.insert(auction.id, &**auction),
            Event::Bid(_) => {}
        }
    }
    (persons.into_values().collect(), auctions.into_values().collect())
}

impl Suggestions {
    fn is_near(person: &Person) -> bool {
        person.state == "OR" || person.state == "ID" || person.state == "CA"
    }
}

impl Sequential for Suggestions {
    const OPERATOR: &'static str = "join";
    const KINSHIP: Kinship = Kinship::Siblings;
    const IS_ONE: bool = false;

    fn key(&self, event: &Event) -> Option<Vec<u8>> {
        let seller = match event {
            Event::Person(person) => Self::is_near(person).then_some(person.id),
            Event::Auction(auction) => (auction.category == 10).then_some(auction.seller),
            Event::Bid(_) => None,
        };
        seller.map(|seller| codec::encode(&seller))
    }

    fn outcome(&self, events: &[&Event]) -> Outcome {
        let (mut persons, mut auctions) = different(events);
        persons.retain(|person| Self::is_near(person));
        auctions.retain(|auction| auction.category == 10);
        let mut outcome = Outcome::default();
        let sellers: BTreeSet<u64> = persons
            .iter()
            .map(|person| person.id)
            .chain(auctions.iter().map(|auction| auction.seller))
            .collect();
        for seller in sellers {
            let person = persons.iter().find(|person| person.id == seller);
            let of_seller = auctions.iter().filter(|auction| auction.seller == seller);
            let resident = person.map(|of| [of.name.clone(), of.city.clone(), of.state.clone()]);
            let auctions = of_seller.clone().map(|auction| auction.id).collect();
            outcome.cell("join", &seller, &Seller { resident, auctions });
            for (person, auction) in
                person.iter().flat_map(|of| of_seller.clone().map(move |a| (of, a)))
            {
                let (name, city, state) =
                    (person.name.clone(), person.city.clone(), person.state.clone());
                let row = Suggestion { name, city, state, auction: auction.id };
                outcome.row("out", row.row_key(), &row);
            }
        }
        outcome
    }
}

impl Sequential for Newcomers {
    const OPERATOR: &'static str = "steps";
    const KINSHIP: Kinship = Kinship::Siblings;
    const IS_ONE: bool = false;

    fn key(&self, event: &Event) -> Option<Vec<u8>> {
        let person = match event {
            Event::Person(person) => person.id,
            Event::Auction(auction) => auction.seller,
            Event::Bid(_) => return None,
        };
        Some(codec::encode(&person))
    }

    fn outcome(&self, events: &[&Event]) -> Outcome {
        let (persons, auctions) = different(events);
        let window = |time: EventTime| window_start(time.as_millis(), self.window_ms);
        let mut outcome = Outcome::default();
        for person in persons {
            let start = window(person.date_time);
            let is_of_window = |auction: &&Auction| {
                auction.seller == person.id && window(auction.date_time) == start
            };
            if auctions.iter().copied().any(|auction| is_of_window(&auction)) {
                let (person, name) = (person.id, person.name.clone());
                let row = NewUser { person, name, window: EventTime::from_millis(start) };
                outcome.row("out", row.row_key(), &row);
            }
        }
        outcome
    }
}
