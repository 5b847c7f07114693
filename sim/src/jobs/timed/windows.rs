//! Sums over windows.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::job::Stream;
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::window::{self, WindowRow};
use cofferdam::state::codec::{self, DecodeError};
use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::lines::{Format, ReadsLines};
use crate::jobs::parameters::parse_duration;
use crate::jobs::row::{JsonObject, Row, encoded_json, json_field};
use crate::jobs::seconds::Seconds;
use crate::jobs::timed::{Event, Timed};
use crate::jobs::{JobError, Parameter, Setup, disorder};
use crate::reference::Reference;
use crate::reference::windows::WindowsReference;

/// The sum of a key's numbers in each window.
pub(crate) struct Windows {
    kind: WindowKind,
    lateness: Duration,
}

/// What the windows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowKind {
    /// So long, one every so often.
    Fixed { size: Duration, slide: Duration },
    /// As long as events are less than the gap apart.
    Session { gap: Duration },
}

/// The sum of a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowSum {
    pub(crate) key: String,
    pub(crate) start: Seconds,
    pub(crate) end: Seconds,
    /// Wider than the numbers: no input is long enough to overflow it.
    pub(crate) value: i128,
}

impl WindowSum {
    fn of(row: WindowRow<String, i128>) -> Self {
        let [start, end] =
            [row.window.start, row.window.end].map(|time| Seconds::from_millis(time.as_millis()));
        Self { key: row.key, start, end, value: row.value }
    }
}

impl Row for WindowSum {
    fn row_key(&self) -> Vec<u8> {
        codec::encode(&(&self.key, self.start, self.end))
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("start", &self.start);
        object.field("end", &self.end).field("value", &self.value).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let seconds = |name| json_field(line, name)?.parse().ok();
        let (start, end) = (seconds("start")?, seconds("end")?);
        let value = json_field(line, "value")?.parse().ok()?;
        Some(Self { key: json_field(line, "key")?, start, end, value })
    }
}

impl ReadsLines for Windows {
    const FORMAT: Format = Format::Csv(&["key", "time_s", "value"]);
}

impl Timed for Windows {
    const NAME: &'static str = "windows";
    const ABOUT: &'static str =
        "sums up the integers of CSV rows key,time_s,value by key and window";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            flag: WINDOW,
            default: "tumbling:10s",
            help: "tumbling:SIZE, sliding:SIZE/SLIDE or session:GAP; for generated input the \
                   default stands for any of them",
        },
        Parameter {
            flag: "lateness",
            default: "0s",
            help: "for how long a window takes records in when it is complete; later ones go to \
                   the output late",
        },
        disorder::PARAMETER,
    ];
    const HAS_SIDES: bool = false;

    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError> {
        let given = setup.parameters.read(WINDOW, WindowKind::parse)?;
        let lateness = setup.parameters.read("lateness", parse_duration)?;
        let is_default = setup.parameters.text(WINDOW) == Self::PARAMETERS[0].default;
        let kind = match dice {
            Some(dice) if is_default => WindowKind::draw(dice),
            Some(_) | None => given,
        };
        Ok(Self { kind, lateness })
    }

    fn span(&self) -> Duration {
        match self.kind {
            WindowKind::Fixed { size, .. } => size,
            WindowKind::Session { gap } => gap,
        }
    }

    fn parse(fields: &[&str]) -> Result<Event, String> {
        Event::parse(fields[0], fields[1], fields[2], false)
    }

    fn end(&self, events: Stream<Pass<Event>>, ends: &impl Ends) {
        let keyed = events.key_by_ref(|event| &event.key);
        let add = |sum: &mut i128, event: &Event| *sum += i128::from(event.value);
        match self.kind {
            WindowKind::Fixed { size, slide } => {
                let windows = window::Windows::sliding(size, slide);
                let windows = keyed.window("sums", windows, Event::time);
                let (sums, late) =
                    windows.allowed_lateness(self.lateness).aggregate_keeping_late(0, add);
                end(sums, late, ends);
            }
            WindowKind::Session { gap } => {
                let join = |sum: &mut i128, more| *sum += more;
                let sessions = keyed.sessions("sums", gap, Event::time);
                let (sums, late) =
                    sessions.allowed_lateness(self.lateness).aggregate_keeping_late(0, add, join);
                end(sums, late, ends);
            }
        }
    }

    fn reference(&self, events: Arc<Vec<Event>>, may_be_late: bool) -> Box<dyn Reference> {
        Box::new(WindowsReference::new(events, self.kind, may_be_late))
    }

    fn json(uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        match uid {
            "late" => encoded_json::<Event>(row),
            _ => encoded_json::<WindowSum>(row),
        }
    }
}

fn end(
    sums: Stream<impl Segment<Out = WindowRow<String, i128>>>,
    late: Stream<impl Segment<Out = Event>>,
    ends: &impl Ends,
) {
    ends.end(sums.map("rows", WindowSum::of), "out");
    ends.end(late, "late");
}

impl WindowKind {
    fn parse(text: &str) -> Result<Self, String> {
        let refused = || "not tumbling:SIZE, sliding:SIZE/SLIDE or session:GAP".to_owned();
        let (kind, spans) = text.split_once(':').ok_or_else(refused)?;
        let span = |text: &str| match parse_duration(text)? {
            Duration::ZERO => Err("a window has to have some length".to_owned()),
            span => Ok(span),
        };
        match (kind, spans.split_once('/')) {
            ("tumbling", None) => {
                let size = span(spans)?;
                Ok(Self::Fixed { size, slide: size })
            }
            ("sliding", Some((size, slide))) => {
                Ok(Self::Fixed { size: span(size)?, slide: span(slide)? })
            }
            ("session", None) => Ok(Self::Session { gap: span(spans)? }),
            _ => Err(refused()),
        }
    }

    fn draw(dice: &mut Dice) -> Self {
        let millis = |dice: &mut Dice, most| Duration::from_millis(dice.between(1, most));
        let size = millis(dice, 20);
        match dice.below(3) {
            0 => Self::Fixed { size, slide: size },
            1 => Self::Fixed { size, slide: millis(dice, 25).max(size / 4) },
            _ => Self::Session { gap: size },
        }
    }
}

const WINDOW: &str = "window";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_or_refused_with_the_reason() {
        let seconds = Duration::from_secs;
        let fixed =
            |size, slide| Ok(WindowKind::Fixed { size: seconds(size), slide: seconds(slide) });
        assert_eq!(WindowKind::parse("tumbling:10s"), fixed(10, 10));
        assert_eq!(WindowKind::parse("sliding:10s/5s"), fixed(10, 5));
        assert_eq!(WindowKind::parse("session:1m"), Ok(WindowKind::Session { gap: seconds(60) }));
        for (text, reason) in [
            ("10s", "not tumbling:SIZE, sliding:SIZE/SLIDE or session:GAP"),
            ("sliding:10s", "not tumbling:SIZE, sliding:SIZE/SLIDE or session:GAP"),
            ("hopping:10s", "not tumbling:SIZE, sliding:SIZE/SLIDE or session:GAP"),
            ("tumbling:0s", "a window has to have some length"),
            ("session:10", "not a duration such as 250ms, 1s, 10m or 1h"),
        ] {
            assert_eq!(WindowKind::parse(text), Err(reason.to_owned()), "{text}");
        }
    }
}
