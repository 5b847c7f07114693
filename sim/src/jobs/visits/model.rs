//! What visits reads, keeps and writes.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam::state::codec;
use cofferdam::state::kinds::{MapCell, ValueCell};
use serde::{Deserialize, Serialize};

use crate::jobs::disorder::Happened;
use crate::jobs::row::{JsonObject, Row, json_field};
use crate::jobs::seconds::Seconds;

/// Somebody looks at a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    /// Who.
    pub visitor: String,
    /// When.
    pub at: Seconds,
    /// Which page.
    pub page: String,
    /// Its place in the input, which orders visits of the same time.
    pub offset: u64,
}

impl fmt::Display for Visit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { visitor, at, page, .. } = self;
        write!(f, "{visitor},{at},{page}")
    }
}

impl Happened for Visit {
    fn at(&self) -> Seconds {
        self.at
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn what(&self) -> String {
        format!("the visit of {}", self.visitor)
    }
}

/// A visit, and how many there have been as far as anybody remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// The visitor.
    pub key: String,
    /// When.
    pub at: Seconds,
    /// Which page.
    pub page: String,
    /// The visitor's visits of this page.
    pub visits: u64,
    /// The visitor's visits of all pages.
    pub total: u64,
}

/// The state of a visitor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visitor {
    /// What waits for the watermark, by (time, offset).
    pub waiting: BTreeMap<(Seconds, u64), String>,
    /// Every visit up to this time has been handled.
    pub handled: Option<Seconds>,
    /// The visits of each page; a page is forgotten when it has not been visited for a time.
    pub pages: MapCell<String, u64>,
    /// The visits of all pages, forgotten when none has been visited for that time.
    pub total: ValueCell<u64>,
}

impl Row for Counted {
    fn row_key(&self) -> Vec<u8> {
        codec::encode(&self.key)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("at", &self.at);
        let object = object.text("page", &self.page).field("visits", &self.visits);
        object.field("total", &self.total).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        Some(Self {
            key: json_field(line, "key")?,
            at: json_field(line, "at")?.parse().ok()?,
            page: json_field(line, "page")?,
            visits: json_field(line, "visits")?.parse().ok()?,
            total: json_field(line, "total")?.parse().ok()?,
        })
    }
}
