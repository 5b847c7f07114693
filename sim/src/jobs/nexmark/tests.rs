//! Each query over a few events made by hand: what its operators come to on threads, and what its
//! reference comes to.

use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{Collect, VecSource};
use cofferdam::guarantee::SinkContract;
use cofferdam::job::{JobBuilder, Stream};
use cofferdam::operator::chain::Segment;
use cofferdam::runtime::{self, RunOptions};
use cofferdam::time::EventTime;

use super::*;
use crate::jobs::row::Row;
use crate::jobs::{Parameters, Shape};

/// Keeps rows as JSON.
struct Kept(Collect<String>);

impl Ends for Kept {
    fn end<S: Segment>(&self, stream: Stream<S>, _uid: &str)
    where
        S::Out: Row,
    {
        stream.map("json", |row| json_of(&row)).sink("out", self.0.clone());
    }
}

fn json_of<R: Row>(row: &R) -> String {
    let json = |row: &R| {
        let mut json = Vec::new();
        row.write_json(&mut json);
        String::from_utf8(json).unwrap()
    };
    let written = json(row);
    let read = R::read_json(written.as_bytes()).map(|row| json(&row));
    assert_eq!(read, Some(written.clone()), "a table is read again");
    written
}

fn ms(millis: i64) -> EventTime {
    EventTime::from_millis(millis)
}

fn person(id: u64, state: &str, at: i64) -> Event {
    let [name, email, city] = ["Kate Jones", "k@example.com", "Bend"].map(str::to_owned);
    let state = state.to_owned();
    Event::Person(Box::new(Person { id, name, email, city, state, date_time: ms(at) }))
}

fn auction(id: u64, seller: u64, category: u64, at: i64, expires: i64) -> Event {
    let (item, date_time, expires) = ("lamp".to_owned(), ms(at), ms(expires));
    let (initial_bid, reserve) = (1, 2);
    Event::Auction(Box::new(Auction {
        id,
        item,
        initial_bid,
        reserve,
        date_time,
        expires,
        seller,
        category,
    }))
}

fn bid(auction: u64, price: u64, at: i64) -> Event {
    Event::Bid(Bid { auction, bidder: 7, price, date_time: ms(at) })
}

fn time_of(event: &Event) -> EventTime {
    match event {
        Event::Person(person) => person.date_time,
        Event::Auction(auction) => auction.date_time,
        Event::Bid(bid) => bid.date_time,
    }
}

/// The rows of a query, sorted: from its operators, which have to agree with its reference, with
/// one subtask and with two, with event time that goes on and with none before the end.
fn rows<Q: Query>(given: &[(&str, &str)], events: &[Event]) -> Vec<String> {
    let mut all: Vec<Vec<String>> = Vec::new();
    for (parallelism, disorder) in [(1, 0), (1, 1_000), (2, 1_000)] {
        let setup = Setup {
            shape: Shape { parallelism, key_groups: None, first: None },
            sink: SinkContract::Plain,
            config: JobConfig::default(),
            parameters: Parameters::given(&Nexmark::<Q>::NEW, given.iter().copied()).unwrap(),
        };
        let query = Q::with(&setup, None).unwrap();
        let mut events = events.to_vec();
        if disorder == 0 {
            events.sort_by_key(time_of);
        }
        let reference = query.reference(events.clone().into(), false).run_all();
        let due = reference.outputs.get("out").map_or_else(Vec::new, |rows| {
            rows.iter().map(|row| String::from_utf8(Q::json(row).unwrap()).unwrap()).collect()
        });
        let kept = Kept(Collect::default());
        let builder = JobBuilder::new("query", parallelism);
        let (source, disorder) = (VecSource::new(events), Duration::from_millis(disorder));
        let stream = builder.source_with_event_time("events", source, time_of, disorder);
        query.end(stream, &kept);
        let job = builder.build(setup.config).unwrap();
        runtime::run(&job, RunOptions::default()).unwrap();
        all.extend([due, kept.0.records()]);
    }
    all.iter_mut().for_each(|rows| rows.sort());
    let first = all[0].clone();
    assert!(all.iter().all(|rows| *rows == first), "{all:#?}");
    first
}

#[test]
fn q0_hands_events_on() {
    let events = [person(5, "OR", 1), auction(1, 5, 10, 2, 3), bid(1, 100, 2)];
    let mut texts: Vec<String> = events.iter().map(Event::to_string).collect();
    texts.sort();
    assert_eq!(rows::<PassThrough>(&[], &events), texts);
}

#[test]
fn q1_cuts_euros_to_whole_cents() {
    let events = [person(5, "OR", 1), bid(1, 1, 2), bid(1, 1_000, 2), bid(1, 1_001, 2)];
    let euros = |price| format!(r#"{{"auction":1,"bidder":7,"price":{price},"date_time":2}}"#);
    assert_eq!(rows::<CurrencyConversion>(&[], &events), [0, 908, 908].map(euros));
}

#[test]
fn q2_selects_by_auction() {
    let events = [bid(1_107, 8, 2), bid(1_108, 9, 2), auction(123, 5, 10, 2, 3)];
    assert_eq!(rows::<Selection>(&[], &events), [r#"{"auction":1107,"price":8}"#]);
}

#[test]
fn q3_joins_whichever_comes_first_by_state_and_category() {
    let events = [
        auction(20, 5, 10, 1, 9),
        person(5, "ID", 2),
        auction(21, 5, 10, 3, 9),
        auction(22, 5, 11, 3, 9),
        person(6, "WA", 3),
        auction(23, 6, 10, 3, 9),
        auction(24, 8, 10, 3, 9),
    ];
    let row = |id| format!(r#"{{"name":"Kate Jones","city":"Bend","state":"ID","auction":{id}}}"#);
    assert_eq!(rows::<LocalItems>(&[], &events), [20, 21].map(row));
}

#[test]
fn q4_counts_bids_from_the_opening_to_the_last_moment_and_cuts_averages() {
    let events = [
        bid(1, 998, -1),
        auction(1, 5, 10, 0, 10),
        bid(1, 100, 0),
        auction(2, 5, 10, 2, 12),
        auction(3, 5, 11, 2, 12),
        bid(2, 200, 5),
        bid(1, 301, 10),
        bid(1, 999, 11),
        bid(9, 997, 11),
    ];
    let row =
        |(closed, average)| format!(r#"{{"category":10,"closed":{closed},"average":{average}}}"#);
    assert_eq!(rows::<CategoryPrices>(&[], &events), [(1, 301), (2, 250)].map(row));
}

#[test]
fn q5_shows_all_that_are_hottest_in_a_window() {
    let events = [bid(1, 1, 0), bid(1, 1, 4), bid(2, 1, 5), bid(2, 1, 9), bid(3, 1, 5)];
    let row = |(start, end, auction)| {
        format!(r#"{{"window":{{"start":{start},"end":{end}}},"auction":{auction},"bids":2}}"#)
    };
    let due = [(-5, 5, 1), (0, 10, 1), (0, 10, 2), (5, 15, 2)].map(row);
    assert_eq!(rows::<HotItems>(&[("window", "10ms"), ("slide", "5ms")], &events), due);
}

#[test]
fn q6_averages_the_last_auctions_of_a_seller_as_they_close() {
    let events = [
        auction(3, 5, 10, 0, 12),
        auction(2, 5, 11, 0, 11),
        auction(1, 5, 10, 0, 10),
        bid(3, 400, 1),
        bid(2, 201, 2),
        bid(1, 100, 3),
        auction(4, 6, 10, 4, 11),
        bid(4, 7, 5),
    ];
    let row = |(seller, auction, average)| {
        format!(r#"{{"seller":{seller},"auction":{auction},"average":{average}}}"#)
    };
    let due = [(5, 1, 100), (5, 2, 150), (5, 3, 300), (6, 4, 7)].map(row);
    assert_eq!(rows::<SellerPrices>(&[("last", "2")], &events), due);
}

#[test]
fn q7_shows_the_highest_bid_of_a_window_and_of_those_the_first() {
    let events = [bid(1, 100, 0), bid(3, 300, 4), bid(2, 300, 9), bid(4, 50, 10)];
    let row = |(start, auction, price, at)| {
        let window = format!(r#"{{"start":{start},"end":{}}}"#, start + 10);
        let bid = format!(r#"{{"auction":{auction},"bidder":7,"price":{price},"date_time":{at}}}"#);
        format!(r#"{{"window":{window},"bid":{bid}}}"#)
    };
    let due = [(0, 3, 300, 4), (10, 4, 50, 10)].map(row);
    assert_eq!(rows::<HighestBids>(&[("window", "10ms")], &events), due);
}

#[test]
fn q8_finds_who_sells_in_the_window_in_which_they_register() {
    let events = [
        person(5, "WA", 0),
        auction(1, 8, 10, 3, 9),
        auction(2, 5, 10, 9, 20),
        person(6, "WA", 9),
        auction(3, 5, 10, 10, 20),
        auction(4, 6, 10, 10, 20),
    ];
    let due = [r#"{"person":5,"name":"Kate Jones","window":0}"#];
    assert_eq!(rows::<NewUsers>(&[("window", "10ms")], &events), due);
}
