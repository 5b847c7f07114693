//! What smoke-alarm reads and writes.

use std::fmt;
use std::time::Duration;

use cofferdam::operator::pattern::Found;
use cofferdam::state::codec;
use cofferdam::time::whole_millis;
use serde::{Deserialize, Serialize};

use crate::jobs::disorder::Happened;
use crate::jobs::row::{JsonObject, Row, json_field};
use crate::jobs::seconds::Seconds;

/// What the job watches for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alert {
    /// A reading above this temperature is hot.
    pub hot: f64,
    /// How long after the heat smoke raises an alarm.
    pub within: Duration,
}

impl Alert {
    pub(crate) fn within_ms(self) -> i64 {
        whole_millis(self.within)
    }
}

/// One reading of a sensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The sensor.
    pub sensor: String,
    /// When.
    pub at: Seconds,
    /// The temperature, a finite number.
    pub temperature: f64,
    /// Whether there was smoke.
    pub smoke: bool,
    /// Its place in the input, which orders readings of the same time.
    pub offset: u64,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sensor, at, temperature, smoke, .. } = self;
        write!(f, "{sensor},{at},{temperature},{}", u8::from(*smoke))
    }
}

impl Happened for Reading {
    fn at(&self) -> Seconds {
        self.at
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn what(&self) -> String {
        format!("the reading of {}", self.sensor)
    }
}

/// Heat and the smoke that followed in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// The sensor.
    pub key: String,
    /// When it became hot.
    pub hot_at: Seconds,
    /// When there was smoke.
    pub smoke_at: Seconds,
}

/// Heat that no smoke followed in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    /// The sensor.
    pub key: String,
    /// When it became hot.
    pub hot_at: Seconds,
}

impl Alarm {
    /// The alarm, if the pattern is complete.
    pub(super) fn of(found: Found<String, Reading>) -> Option<Self> {
        match &found.records[..] {
            [(_, heat), (_, smoke)] => {
                Some(Self { hot_at: heat.at, smoke_at: smoke.at, key: found.key })
            }
            _ => None,
        }
    }
}

impl Expired {
    /// The heat, if it is alone.
    pub(super) fn of(found: Found<String, Reading>) -> Option<Self> {
        match &found.records[..] {
            [(_, heat)] => Some(Self { hot_at: heat.at, key: found.key }),
            _ => None,
        }
    }
}

impl Row for Alarm {
    fn row_key(&self) -> Vec<u8> {
        codec::encode(&self.key)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key);
        object.field("hot_at", &self.hot_at).field("smoke_at", &self.smoke_at).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let seconds = |name| json_field(line, name)?.parse().ok();
        let (hot_at, smoke_at) = (seconds("hot_at")?, seconds("smoke_at")?);
        Some(Self { key: json_field(line, "key")?, hot_at, smoke_at })
    }
}

impl Row for Expired {
    fn row_key(&self) -> Vec<u8> {
        codec::encode(&self.key)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        JsonObject::begin(out).text("key", &self.key).field("hot_at", &self.hot_at).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let hot_at = json_field(line, "hot_at")?.parse().ok()?;
        Some(Self { key: json_field(line, "key")?, hot_at })
    }
}
