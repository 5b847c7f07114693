//! The events of Nexmark: an auction house, with the people who register there, what they put up,
//! and what they bid. Money is in whole cents, times are in milliseconds.

use std::fmt;

use cofferdam::element::Record;
use cofferdam::state::codec;
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::jobs::row::{Row, checksum};
use crate::workload::splitmix64;

/// Somebody registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    /// Nobody else has it.
    pub id: u64,
    /// First and last name.
    pub name: String,
    /// An address for mail.
    pub email: String,
    /// Where they live.
    pub city: String,
    /// The state of the USA, in two letters.
    pub state: String,
    /// When they register.
    pub date_time: EventTime,
}

/// Something is put up for auction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auction {
    /// No other auction has it.
    pub id: u64,
    /// What is sold.
    pub item: String,
    /// The least bid.
    pub initial_bid: u64,
    /// The price below which it is not sold.
    pub reserve: u64,
    /// When it opens.
    pub date_time: EventTime,
    /// The last moment at which a bid counts.
    pub expires: EventTime,
    /// The person who sells. They may register later.
    pub seller: u64,
    /// The kind of thing that is sold.
    pub category: u64,
}

/// Somebody offers a price.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bid {
    /// The auction. It may open later, or have closed.
    pub auction: u64,
    /// The person who bids.
    pub bidder: u64,
    /// What they would pay.
    pub price: u64,
    /// When they bid.
    pub date_time: EventTime,
}

/// One thing that happens. The rare ones are boxed: most events are bids, and those are small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// Somebody registers.
    Person(Box<Person>),
    /// Something is put up for auction.
    Auction(Box<Auction>),
    /// Somebody offers a price.
    Bid(Bid),
}

impl Event {
    /// The bid, if it is one.
    pub(super) fn bid(self) -> Option<Bid> {
        if let Self::Bid(bid) = self { Some(bid) } else { None }
    }
}

/// A row whose JSON has its fields, as they are named. By default its key is all of it.
pub(crate) trait Fields: Record {
    /// As [`Row::IS_KEY_WHOLE`].
    const IS_KEY_WHOLE: bool = true;

    /// As [`Row::row_key`].
    fn key(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// As [`Row::checksum`].
    fn sum(&self) -> u64 {
        checksum(self)
    }
}

impl<R: Fields> Row for R {
    const IS_KEY_WHOLE: bool = R::IS_KEY_WHOLE;

    fn row_key(&self) -> Vec<u8> {
        self.key()
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("a Vec takes every byte, and keys are names");
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    fn checksum(&self) -> u64 {
        self.sum()
    }
}

impl Fields for Event {
    /// To encode them would take longer than all else that is done with most events.
    fn sum(&self) -> u64 {
        match self {
            Self::Person(person) => splitmix64(person.id),
            Self::Auction(auction) => splitmix64(auction.id ^ auction.reserve),
            Self::Bid(bid) => bid.sum(),
        }
    }
}

impl Fields for Bid {
    fn sum(&self) -> u64 {
        let Self { auction, bidder, price, .. } = self;
        splitmix64(auction ^ bidder.rotate_left(32) ^ price.rotate_left(16))
    }
}

impl fmt::Display for Event {
    /// As its row.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
