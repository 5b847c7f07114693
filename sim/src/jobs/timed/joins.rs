//! Two streams brought together: by nearness in time, and with a table.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::job::Stream;
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::join::Interval;
use cofferdam::state::codec::{self, DecodeError};
use cofferdam::time::whole_millis;
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::lines::{Format, ReadsLines};
use crate::jobs::parameters::parse_duration;
use crate::jobs::row::{JsonObject, Row, encoded_json, json_field};
use crate::jobs::timed::{Event, Timed};
use crate::jobs::{JobError, Parameter, Setup, disorder};
use crate::reference::Reference;
use crate::reference::joins::{Join, JoinReference};

/// Pairs of a left and a right number of a key that are near in time.
pub(crate) struct IntervalJoin {
    within: Duration,
}

/// Two numbers that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pair {
    pub(crate) key: String,
    pub(crate) left: i64,
    pub(crate) right: i64,
}

/// Numbers with the row of a table that counts at their time.
pub(crate) struct Enrich;

/// A number with its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Enriched {
    pub(crate) key: String,
    pub(crate) value: i64,
    /// None if there was none at its time.
    pub(crate) row: Option<i64>,
}

impl Row for Pair {
    const IS_KEY_WHOLE: bool = true;

    fn row_key(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("left", &self.left);
        object.field("right", &self.right).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let number = |name| json_field(line, name)?.parse().ok();
        Some(Self { key: json_field(line, "key")?, left: number("left")?, right: number("right")? })
    }
}

impl Row for Enriched {
    const IS_KEY_WHOLE: bool = true;

    fn row_key(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("value", &self.value);
        object.field("row", &OrNull(self.row)).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let row = match json_field(line, "row")?.as_str() {
            "null" => None,
            number => Some(number.parse().ok()?),
        };
        let value = json_field(line, "value")?.parse().ok()?;
        Some(Self { key: json_field(line, "key")?, value, row })
    }
}

struct OrNull(Option<i64>);

impl fmt::Display for OrNull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number}"),
            None => f.write_str("null"),
        }
    }
}

impl ReadsLines for IntervalJoin {
    const FORMAT: Format = Format::Csv(&["side", "key", "time_s", "value"]);
}

impl ReadsLines for Enrich {
    const FORMAT: Format = Format::Csv(&["side", "key", "time_s", "value"]);
}

impl Timed for IntervalJoin {
    const NAME: &'static str = "interval-join";
    const ABOUT: &'static str =
        "pairs left and right CSV rows side,key,time_s,value of a key that are near in time";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            flag: "within",
            default: "10s",
            help: "by how much the two rows of a pair may be apart; for generated input the \
                   default stands for any time",
        },
        disorder::PARAMETER,
    ];
    const HAS_SIDES: bool = true;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        let within = setup.parameters.read("within", parse_duration)?;
        let is_default = setup.parameters.text("within") == Self::PARAMETERS[0].default;
        let drawn = dice.filter(|_| is_default);
        let drawn = drawn.map(|dice| Duration::from_millis(dice.below(20)));
        Ok(Self { within: drawn.unwrap_or(within) })
    }

    fn span(&self) -> Duration {
        self.within
    }

    fn parse(fields: &[&str]) -> Result<Event, String> {
        parse_side(fields)
    }

    fn end(&self, events: Stream<Pass<Event>>, ends: &impl Ends) {
        let (left, right) = sides(events);
        let within = whole_millis(self.within);
        let interval = Interval { from_ms: -within, to_ms: within };
        let key_of = |event: &Event| event.key.clone();
        let pairs = left.connect("sides", right).key_by(key_of, key_of).interval_join(
            "join",
            interval,
            Event::time,
            Event::time,
        );
        let pair = |(left, right): (Event, Event)| Pair {
            key: left.key,
            left: left.value,
            right: right.value,
        };
        ends.end(pairs.map("pairs", pair), "out");
    }

    fn reference(&self, events: Arc<Vec<Event>>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(JoinReference::new(events, Join::Interval(self.within), may_be_late))
    }

    fn json(_uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Pair>(row)
    }
}

impl Timed for Enrich {
    const NAME: &'static str = "enrich";
    const ABOUT: &'static str = "gives each left CSV row side,key,time_s,value the right one of \
                                 its key at its time: a table that every task holds";
    const PARAMETERS: &'static [Parameter] = &[disorder::PARAMETER];
    const HAS_SIDES: bool = true;

    fn with(_setup: &Setup, _dice: Option<&mut Dice>) -> Result<Self, JobError> {
        Ok(Self)
    }

    fn span(&self) -> Duration {
        Duration::from_millis(10)
    }

    fn parse(fields: &[&str]) -> Result<Event, String> {
        parse_side(fields)
    }

    fn end(&self, events: Stream<Pass<Event>>, ends: &impl Ends) {
        let (records, rows) = sides(events);
        let place_of = |event: &Event| (event.key.clone(), event.time());
        let joined = records
            .connect("sides", rows)
            .broadcast_right()
            .broadcast_join("join", place_of, place_of);
        let enriched = |(record, row): (Event, Option<Event>)| Enriched {
            key: record.key,
            value: record.value,
            row: row.map(|row| row.value),
        };
        ends.end(joined.map("enriched", enriched), "out");
    }

    fn reference(&self, events: Arc<Vec<Event>>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(JoinReference::new(events, Join::Table, may_be_late))
    }

    fn json(_uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Enriched>(row)
    }
}

fn parse_side(fields: &[&str]) -> Result<Event, String> {
    let is_right = match fields[0] {
        "left" => false,
        "right" => true,
        other => return Err(format!("side '{other}' is neither left nor right")),
    };
    Event::parse(fields[1], fields[2], fields[3], is_right)
}

fn sides(
    events: Stream<Pass<Event>>,
) -> (Stream<impl Segment<Out = Event>>, Stream<impl Segment<Out = Event>>) {
    let (left, right) = events.fork();
    let left = left.filter("left", |event| !event.is_right);
    (left, right.filter("right", |event| event.is_right))
}
