//! The jobs that go by event time alone: windows, interval-join, enrich. One kind of record, one
//! source; what differs is what becomes of it.

mod joins;
mod windows;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "cli")]
use cofferdam::connector::file::LineSource;
use cofferdam::connector::memory::VecSource;
use cofferdam::guarantee::Mechanism;
use cofferdam::job::{Job, Stream};
use cofferdam::operator::chain::Pass;
use cofferdam::operator::source::Source;
use cofferdam::state::codec::{self, DecodeError};
use cofferdam::time::{EventTime, whole_millis};
use serde::{Deserialize, Serialize};

use crate::dice::{Dice, Purpose};
use crate::jobs::disorder::Disorder;
use crate::jobs::ends::{Ends, Watched, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FieldParser, FileJob, Files, IntoOutput};
use crate::jobs::lines::{Format, ReadsLines, cycle_lines, integer};
use crate::jobs::row::{JsonObject, Row, json_field};
use crate::jobs::seconds::Seconds;
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup, disorder};
use crate::reference::Reference;
use crate::workload::events;

pub(crate) use joins::{Enrich, Enriched, IntervalJoin, Pair};
pub(crate) use windows::{WindowKind, WindowSum, Windows};

/// A number of a key at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Event {
    /// The key.
    pub(crate) key: String,
    /// When.
    pub(crate) at: Seconds,
    /// The number.
    pub(crate) value: i64,
    /// Of the second of two streams.
    pub(crate) is_right: bool,
}

impl Event {
    pub(crate) fn time(&self) -> EventTime {
        self.at.event_time()
    }

    fn parse(key: &str, at: &str, value: &str, is_right: bool) -> Result<Self, String> {
        let (at, value) = (at.parse()?, integer("value", value)?);
        Ok(Self { key: key.to_owned(), at, value, is_right })
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, at, value, .. } = self;
        write!(f, "{key},{at},{value}")
    }
}

/// A record that came too late, as it is written.
impl Row for Event {
    const IS_KEY_WHOLE: bool = true;

    fn row_key(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let object = JsonObject::begin(out).text("key", &self.key).field("time_s", &self.at);
        object.field("value", &self.value).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let (key, at) = (json_field(line, "key")?, json_field(line, "time_s")?.parse().ok()?);
        Some(Self { key, at, value: json_field(line, "value")?.parse().ok()?, is_right: false })
    }
}

/// A job over events.
pub(crate) trait Timed: ReadsLines + Sync + Sized + 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const PARAMETERS: &'static [Parameter];
    /// Whether there are two streams.
    const HAS_SIDES: bool;

    /// The job with these parameters; what is not given is drawn, if there are dice.
    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError>;

    /// What times lie around: generated events are some of it apart, more or less.
    fn span(&self) -> Duration;

    /// Reads an event from the fields that the format names.
    fn parse(fields: &[&str]) -> Result<Event, String>;

    /// Ends the stream in sinks.
    fn end(&self, events: Stream<Pass<Event>>, ends: &impl Ends);

    /// The reference for these events. If some may be late, what comes of them depends on when the
    /// watermark comes.
    fn reference(&self, events: Arc<Vec<Event>>, may_be_late: bool) -> Box<dyn Reference>;

    /// The JSON of a row.
    fn json(uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError>;
}

/// A [`Timed`] job by its name.
pub(crate) struct ByTime<J>(PhantomData<fn(J)>);

impl<J> ByTime<J> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<J: Timed> BuiltinJob for ByTime<J> {
    fn name(&self) -> &'static str {
        J::NAME
    }

    fn about(&self) -> &'static str {
        J::ABOUT
    }

    fn parameters(&self) -> &'static [Parameter] {
        J::PARAMETERS
    }

    fn reads(&self) -> Option<Format> {
        Some(J::FORMAT)
    }

    fn row_json(&self, uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        J::json(uid, row)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let mut disorder = disorder::declared(setup)?;
        let mut dice = Dice::new(data.seed, Purpose::Workload);
        let (job, events) = match &data.lines {
            Some(lines) => {
                let events = cycle_lines(lines, J::FORMAT, data, |_, fields| J::parse(fields))?;
                (J::with(setup, None)?, events)
            }
            None => {
                let job = J::with(setup, Some(&mut dice))?;
                let actual = disorder::draw(&mut dice, whole_millis(job.span()), &mut disorder);
                let span = job.span();
                let events = events::events(&mut dice, data.records, span, actual, J::HAS_SIDES);
                (job, events)
            }
        };
        let events = Arc::new(events);
        // What a source sends again, the watermark may have passed.
        let comes_late = setup.config.mechanism == Mechanism::Acks;
        let may_be_late = disorder.is_some_and(|allowed| comes_late || is_beyond(&events, allowed));
        let reference = job.reference(events.clone(), may_be_late);
        let job =
            graph(&job, VecSource::from(events.clone()), disorder, &Watched(setup.sink), setup)?;
        let inputs = CaseInput::of(&job, vec![events], Event::to_string);
        Ok(Case { job, reference, inputs })
    }

    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        Files::refuse_table(J::NAME, setup.sink)?;
        let parser = FieldParser::<J, _>::new(|_, fields: &[&str]| J::parse(fields));
        let source = LineSource::new(files.inputs()?, parser);
        let ends = IntoOutput::new(files, setup.sink);
        let job = graph(&J::with(setup, None)?, source, disorder::declared(setup)?, &ends, setup)?;
        Ok(ends.finish(job))
    }
}

fn graph<J: Timed>(
    job: &J,
    source: impl Source<Record = Event>,
    disorder: Option<Duration>,
    ends: &impl Ends,
    setup: &Setup,
) -> Result<Job, JobError> {
    let builder = builder(J::NAME, setup.shape);
    let events = match disorder {
        Some(disorder) => builder.source_with_event_time("events", source, Event::time, disorder),
        None => builder.source("events", source),
    };
    job.end(events, ends);
    Ok(builder.build(setup.config.clone())?)
}

/// Whether an event is older than one before it by more than is allowed.
fn is_beyond(events: &[Event], allowed: Duration) -> bool {
    let mut disorder = Disorder::new(allowed, "the input");
    events.iter().any(|event| disorder.behind(event.at).is_some())
}
