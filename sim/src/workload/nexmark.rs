//! The events of Nexmark, written from the published description of its generator: each is a pure
//! function of the seed and its number, so that any part can be made, or made again, by anybody.
//!
//! Of every 50 events the first is a person, the next three are auctions and the others bids. Half
//! of the bids go to the newest hot auction, and most of them come from the newest hot bidder; most
//! auctions are the newest hot seller's. The others are spread over those that came last, with a
//! few that are yet to come.

use std::time::Duration;

use cofferdam::time::EventTime;

use crate::dice::Dice;
use crate::jobs::nexmark::{Auction, Bid, Event, Person};
use crate::workload::splitmix64;

/// What makes the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Another seed gives other events.
    pub seed: u64,
    /// How many events come in a second of event time, at least one.
    pub rate: u64,
    /// How many persons, auctions and bids follow one another, at least one each.
    pub shares: [u64; 3],
    /// Within so many events, counted from the first one, events are out of order: at least one,
    /// and below 953.
    pub out_of_order: u64,
    /// How people and auctions are spread.
    pub spread: Spread,
}

/// How people and auctions are spread. Each number is at least one but for `ahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Those who registered last and bid or sell.
    pub people: u64,
    /// The auctions that opened last and get bids.
    pub auctions: u64,
    /// One of so many persons or auctions is hot.
    pub hot: u64,
    /// How many persons and auctions get bids or sell that are yet to come.
    pub ahead: u64,
    /// How many categories there are.
    pub categories: u64,
}

impl Generator {
    /// As the description has it: 10,000 events a second in their order.
    pub const fn new(seed: u64) -> Self {
        let spread = Spread { people: 1_000, auctions: 100, hot: 100, ahead: 10, categories: 5 };
        Self { seed, rate: 10_000, shares: [1, 3, 46], out_of_order: 1, spread }
    }

    /// Few of each kind, so that a hundred events have to do with each other.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let spread = Spread {
            people: dice.between(1, 6),
            auctions: dice.between(1, 4),
            hot: dice.between(1, 4),
            ahead: dice.below(3),
            categories: dice.between(1, 3),
        };
        Self {
            seed: dice.below(1 << 32),
            rate: *dice.pick(&[200, 1_000, 3_000]),
            shares: *dice.pick(&[[1, 3, 46], [1, 1, 3], [2, 3, 5], [3, 2, 2]]),
            out_of_order: *dice.pick(&[1, 1, 3, 8]),
            spread,
        }
    }

    /// The event with this number, from 0 on.
    pub fn event(&self, number: u64) -> Event {
        let number = self.in_turn(number);
        let date_time = self.time_in_turn(number);
        let mut luck = Luck(splitmix64(self.seed) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let [persons, auctions, _] = self.shares;
        match number % self.total() {
            place if place < persons => self.person(number, date_time, &mut luck),
            place if place < persons + auctions => self.auction(number, date_time, &mut luck),
            _ => self.bid(number, date_time, &mut luck),
        }
    }

    /// The time of the event with this number.
    pub fn time(&self, number: u64) -> EventTime {
        self.time_in_turn(self.in_turn(number))
    }

    /// By how much an event can be older than one before it.
    pub fn disorder(&self) -> Duration {
        // Times are cut to whole milliseconds.
        let millis = ((self.out_of_order - 1) * 1_000).div_ceil(self.rate);
        Duration::from_millis(millis)
    }

    fn total(&self) -> u64 {
        self.shares.iter().sum()
    }

    /// Which event comes at this place: a group is gone through in steps of a prime.
    fn in_turn(&self, number: u64) -> u64 {
        let within = number % self.out_of_order;
        number - within + within * STEP % self.out_of_order
    }

    fn time_in_turn(&self, number: u64) -> EventTime {
        let millis = u128::from(number) * 1_000 / u128::from(self.rate);
        EventTime::from_millis(FIRST_TIME_MS + millis as i64)
    }

    fn person(&self, number: u64, date_time: EventTime, luck: &mut Luck) -> Event {
        let (first, last) = (luck.pick(&FIRST_NAMES), luck.pick(&LAST_NAMES));
        let place = luck.pick(&PLACES);
        let email = format!("{first}.{last}{}@example.com", luck.below(1_000)).to_lowercase();
        Event::Person(Box::new(Person {
            id: FIRST_ID + self.newest_person(number),
            name: format!("{first} {last}"),
            email,
            city: place.0.to_owned(),
            state: place.1.to_owned(),
            date_time,
        }))
    }

    fn auction(&self, number: u64, date_time: EventTime, luck: &mut Luck) -> Event {
        let seller = match luck.is_hot(HOT_SELLERS) {
            true => self.hot(self.newest_person(number)),
            false => self.some_person(number, luck),
        };
        let initial_bid = luck.price();
        let id = FIRST_ID + self.newest_auction(number);
        Event::Auction(Box::new(Auction {
            id,
            item: format!("{} {id}", luck.pick(&ITEMS)),
            initial_bid,
            reserve: initial_bid + luck.price(),
            date_time,
            expires: date_time.saturating_add(self.length_ms(number, luck)),
            seller: FIRST_ID + seller,
            category: FIRST_CATEGORY + luck.below(self.spread.categories),
        }))
    }

    fn bid(&self, number: u64, date_time: EventTime, luck: &mut Luck) -> Event {
        let newest = self.newest_auction(number);
        let auction = match luck.is_hot(HOT_AUCTIONS) {
            true => self.hot(newest),
            false => {
                let oldest = newest.saturating_sub(self.spread.auctions);
                oldest + luck.below(newest - oldest + 1 + self.spread.ahead)
            }
        };
        let bidder = match luck.is_hot(HOT_BIDDERS) {
            true => self.hot(self.newest_person(number)) + 1,
            false => self.some_person(number, luck),
        };
        let price = luck.price();
        Event::Bid(Bid { auction: FIRST_ID + auction, bidder: FIRST_ID + bidder, price, date_time })
    }

    /// The number of the last person up to this event, from 0 on.
    fn newest_person(&self, number: u64) -> u64 {
        let (round, place) = (number / self.total(), number % self.total());
        round * self.shares[0] + place.min(self.shares[0] - 1)
    }

    /// The number of the last auction up to this event, which is not a person, from 0 on.
    fn newest_auction(&self, number: u64) -> u64 {
        let (round, place) = (number / self.total(), number % self.total());
        round * self.shares[1] + (place - self.shares[0]).min(self.shares[1] - 1)
    }

    /// The last hot one up to this one.
    const fn hot(&self, newest: u64) -> u64 {
        newest / self.spread.hot * self.spread.hot
    }

    fn some_person(&self, number: u64, luck: &mut Luck) -> u64 {
        let so_far = self.newest_person(number) + 1;
        let active = so_far.min(self.spread.people);
        so_far - active + luck.below(active + self.spread.ahead)
    }

    /// For how long an auction is open: up to twice the time in which as many others open as get
    /// bids.
    fn length_ms(&self, number: u64, luck: &mut Luck) -> i64 {
        let events = self.spread.auctions * self.total() / self.shares[1];
        let (now, then) = (self.time_in_turn(number), self.time_in_turn(number + events));
        let horizon_ms = (then.as_millis() - now.as_millis()).unsigned_abs();
        1 + luck.below((2 * horizon_ms).max(1)) as i64
    }
}

/// The random numbers of one event.
struct Luck(u64);

impl Luck {
    /// A number from 0 to `bound - 1`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        ((u128::from(splitmix64(self.0)) * u128::from(bound)) >> 64) as u64
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// True but for one of `ratio` cases.
    fn is_hot(&mut self, ratio: u64) -> bool {
        self.below(ratio) > 0
    }

    /// A price in cents, from a dollar on: each power of ten up to a million dollars is as likely.
    fn price(&mut self) -> u64 {
        let least = 100 * 10_u64.pow(self.below(6) as u32);
        least + self.below(9 * least)
    }
}

/// Prime, so that steps of it go through every smaller group.
const STEP: u64 = 953;

/// The time of the first event: 2015-07-15T00:00:00Z.
const FIRST_TIME_MS: i64 = 1_436_918_400_000;

const FIRST_ID: u64 = 1_000;
const FIRST_CATEGORY: u64 = 10;

/// All but one of so many are hot.
const HOT_AUCTIONS: u64 = 2;
const HOT_BIDDERS: u64 = 4;
const HOT_SELLERS: u64 = 4;

const FIRST_NAMES: [&str; 11] = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter",
];
const LAST_NAMES: [&str; 9] =
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"];
const PLACES: [(&str, &str); 10] = [
    ("Phoenix", "AZ"),
    ("Los Angeles", "CA"),
    ("San Francisco", "CA"),
    ("Boise", "ID"),
    ("Portland", "OR"),
    ("Bend", "OR"),
    ("Redmond", "WA"),
    ("Seattle", "WA"),
    ("Kent", "WA"),
    ("Cheyenne", "WY"),
];
const ITEMS: [&str; 8] = ["clock", "lamp", "vase", "chair", "print", "coin", "atlas", "violin"];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::dice::Purpose;

    #[test]
    fn a_seed_keeps_its_meaning() {
        let generator = Generator::new(7);
        let json = |number| serde_json::to_value(generator.event(number)).unwrap();
        let (start, later) = (1_436_918_400_000_i64, 1_436_930_745_678_i64);
        let person = json!({
            "id": 1000, "name": "Julie Bartels", "email": "julie.bartels348@example.com",
            "city": "Redmond", "state": "WA", "date_time": start,
        });
        assert_eq!(json(0), json!({ "person": person }));
        let auction = json!({
            "id": 1001, "item": "clock 1001", "initial_bid": 72_346_921, "reserve": 137_132_866,
            "date_time": start, "expires": start + 92, "seller": 1000, "category": 12,
        });
        assert_eq!(json(2), json!({ "auction": auction }));
        let bid = json!({ "auction": 1000, "bidder": 1001, "price": 248_728, "date_time": start });
        assert_eq!(json(4), json!({ "bid": bid }));
        let bid = json!({
            "auction": 7_408_400, "bidder": 2_470_101, "price": 73_711_435, "date_time": later,
        });
        assert_eq!(json(123_456_789), json!({ "bid": bid }));
        assert_ne!(Generator::new(8).event(4), generator.event(4));
    }

    #[test]
    fn of_fifty_events_one_is_a_person_and_three_are_auctions() {
        let events = events(&Generator::new(1), 50_000);
        let persons = events.iter().filter(|event| matches!(event, Event::Person(_))).count();
        let auctions = events.iter().filter(|event| matches!(event, Event::Auction(_))).count();
        assert_eq!((persons, auctions), (1_000, 3_000));
    }

    #[test]
    fn the_hot_ones_have_their_share() {
        let events = events(&Generator::new(1), 100_000);
        let share = |hot: &dyn Fn(&Event) -> Option<bool>| {
            let all: Vec<bool> = events.iter().filter_map(hot).collect();
            all.iter().filter(|is_hot| **is_hot).count() * 100 / all.len()
        };
        let of_bids = |is_hot: fn(&Bid) -> bool| {
            share(&|event| if let Event::Bid(bid) = event { Some(is_hot(bid)) } else { None })
        };
        // A few of those that are chosen at random are hot ones too.
        assert!((50..52).contains(&of_bids(|bid| (bid.auction - FIRST_ID).is_multiple_of(100))));
        assert!((75..77).contains(&of_bids(|bid| (bid.bidder - FIRST_ID) % 100 == 1)));
        let hot_seller = |event: &Event| match event {
            Event::Auction(auction) => Some((auction.seller - FIRST_ID).is_multiple_of(100)),
            Event::Person(_) | Event::Bid(_) => None,
        };
        assert!((74..77).contains(&share(&hot_seller)));
    }

    #[test]
    fn identities_are_given_once_and_one_after_the_other() {
        let generator = Generator { shares: [2, 3, 5], ..Generator::new(3) };
        let (mut persons, mut auctions) = (FIRST_ID.., FIRST_ID..);
        for event in events(&generator, 1_000) {
            match event {
                Event::Person(person) => assert_eq!(Some(person.id), persons.next()),
                Event::Auction(auction) => {
                    assert_eq!(Some(auction.id), auctions.next());
                    assert!(auction.expires > auction.date_time);
                    assert!(auction.reserve >= auction.initial_bid);
                }
                Event::Bid(bid) => assert!(bid.price >= 100 && bid.price < 100_000_000),
            }
        }
    }

    #[test]
    fn out_of_order_is_another_order_of_the_same_events_within_the_disorder() {
        let mut dice = Dice::new(5, Purpose::Workload);
        for _ in 0..50 {
            let drawn = Generator::draw(&mut dice);
            let out_of_order = dice.between(1, 40);
            let generator = Generator { out_of_order, ..drawn };
            let count = 20 * out_of_order;
            let all = |generator| events(generator, count).iter().map(Event::to_string).collect();
            let (some, others): (BTreeSet<String>, BTreeSet<String>) =
                (all(&generator), all(&Generator { out_of_order: 1, ..generator }));
            assert_eq!(some, others);
            let disorder_ms = generator.disorder().as_millis() as i64;
            let mut latest = EventTime::MIN;
            for number in 0..count {
                let time = generator.time(number);
                assert!(time.saturating_add(disorder_ms) >= latest, "{generator:?}");
                latest = latest.max(time);
            }
        }
    }

    fn events(generator: &Generator, count: u64) -> Vec<Event> {
        (0..count).map(|number| generator.event(number)).collect()
    }
}
