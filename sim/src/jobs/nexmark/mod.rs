//! Nexmark: nine queries over the events of an auction house, the usual workload of the field. The
//! events are made by [`Generator`], so there is no input file.

mod bids;
mod closing;
mod model;
mod people;
mod source;
mod stateless;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::guarantee::Mechanism;
use cofferdam::id::VertexId;
use cofferdam::job::{Job, Stream};
use cofferdam::operator::chain::Segment;
use cofferdam::state::codec::DecodeError;

use crate::dice::{Dice, Purpose};
use crate::jobs::ends::{Ends, Watched, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FileJob, Files, IntoOutput};
use crate::jobs::parameters::{parse_count, parse_duration};
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup};
use crate::reference::Reference;
use crate::workload::nexmark::Generator;

use source::{Turns, number_at};

pub(crate) use bids::{HighestBid, HighestBids, HotItem, HotItems};
pub(crate) use closing::{CategoryPrice, CategoryPrices, Prices, SellerPrice, SellerPrices};
pub(crate) use model::Fields;
pub use model::{Auction, Bid, Event, Person};
pub(crate) use people::{LocalItems, NewUser, NewUsers, Seller, Suggestion};
pub(crate) use stateless::{CurrencyConversion, PassThrough, Selected, Selection};

/// A query.
pub(crate) trait Query: Sync + Sized + 'static {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const PARAMETERS: &'static [Parameter];
    /// Whether it goes by event time.
    const IS_TIMED: bool;
    /// As [`BuiltinJob::merges`].
    const MERGES: bool = true;

    /// The query with these parameters; what is not given is drawn, if there are dice.
    fn with(setup: &Setup, dice: Option<&mut Dice>) -> Result<Self, JobError>;

    /// Ends the stream in a sink.
    fn end(&self, events: Stream<impl Segment<Out = Event>>, ends: &impl Ends);

    /// The reference for these events. If some may be late, what comes of them depends on when the
    /// watermark comes.
    fn reference(&self, events: Arc<[Event]>, may_be_late: bool) -> Box<dyn Reference>;

    /// The JSON of a row.
    fn json(row: &[u8]) -> Result<Vec<u8>, DecodeError>;
}

/// A [`Query`] by its name.
pub(crate) struct Nexmark<Q>(PhantomData<fn(Q)>);

impl<Q> Nexmark<Q> {
    pub(crate) const NEW: Self = Self(PhantomData);
}

impl<Q: Query> BuiltinJob for Nexmark<Q> {
    fn name(&self) -> &'static str {
        Q::NAME
    }

    fn about(&self) -> &'static str {
        Q::ABOUT
    }

    fn parameters(&self) -> &'static [Parameter] {
        Q::PARAMETERS
    }

    fn merges(&self) -> bool {
        Q::MERGES
    }

    fn row_json(&self, _uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        Q::json(row)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let mut dice = Dice::new(data.seed, Purpose::Workload);
        let generator = given(setup, Generator::draw(&mut dice))?;
        let query = Q::with(setup, Some(&mut dice))?;
        let records = data.records as u64;
        let events: Arc<[Event]> = (0..records).map(|number| generator.event(number)).collect();
        // What a source sends again, the watermark may have passed.
        let may_be_late = Q::IS_TIMED && setup.config.mechanism == Mechanism::Acks;
        let reference = query.reference(events.clone(), may_be_late);
        let job = graph(&query, records, generator, &Watched(setup.sink), setup)?;
        let source = job.graph().vertices().iter().position(|vertex| vertex.is_source);
        let inputs = source.map(|vertex| CaseInput {
            vertex: VertexId::new(vertex as u32),
            records,
            text: Box::new(move |offset| events[offset as usize].to_string()),
            offset_at: Arc::new(number_at),
        });
        let inputs = inputs.into_iter().collect();
        Ok(Case { job, reference, inputs })
    }

    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        files.refuse_inputs()?;
        let records = setup.parameters.read("records", parse_count)?;
        let seed = setup.parameters.read(SEED.flag, parse_count)?;
        let ends = IntoOutput::new(files, setup.sink);
        let generator = given(setup, Generator::new(seed))?;
        let job = graph(&Q::with(setup, None)?, records, generator, &ends, setup)?;
        Ok(ends.finish(job))
    }
}

fn graph<Q: Query>(
    query: &Q,
    records: u64,
    generator: Generator,
    ends: &impl Ends,
    setup: &Setup,
) -> Result<Job, JobError> {
    let builder = builder(Q::NAME, setup.shape);
    let source = Turns::up_to(records, setup.shape.parallelism);
    let numbers = match Q::IS_TIMED {
        true => {
            let time_of = move |number: &u64| generator.time(*number);
            builder.source_with_event_time("numbers", source, time_of, generator.disorder())
        }
        false => builder.source("numbers", source),
    };
    query.end(numbers.map("events", move |number| generator.event(number)), ends);
    Ok(builder.build(setup.config.clone())?)
}

/// The usual generator, but for what was given.
fn given(setup: &Setup, usual: Generator) -> Result<Generator, JobError> {
    let is_given = |of: &Parameter| setup.parameters.text(of.flag) != of.default;
    let mut generator = usual;
    if is_given(&RATE) {
        generator.rate = setup.parameters.read(RATE.flag, at_least_one)?;
    }
    if is_given(&SHARES) {
        generator.shares = setup.parameters.read(SHARES.flag, |text| {
            let shares = text.split(':').map(at_least_one).collect::<Result<Vec<u64>, String>>()?;
            shares.try_into().map_err(|_| "it is PERSONS:AUCTIONS:BIDS".to_owned())
        })?;
    }
    if is_given(&OUT_OF_ORDER) {
        generator.out_of_order =
            setup.parameters.read(OUT_OF_ORDER.flag, |text| match at_least_one(text)? {
                group @ ..=GROUP_MAX => Ok(group),
                _ => Err(format!("it must be at most {GROUP_MAX}")),
            })?;
    }
    Ok(generator)
}

/// A span of time, which a simulated run draws if it is not given: some events lie in it.
fn span(
    setup: &Setup,
    parameter: &Parameter,
    dice: Option<&mut Dice>,
) -> Result<Duration, JobError> {
    let given = setup.parameters.read(parameter.flag, |text| match parse_duration(text)? {
        Duration::ZERO => Err("it has to have some length".to_owned()),
        span => Ok(span),
    })?;
    let drawn = dice.filter(|_| setup.parameters.text(parameter.flag) == parameter.default);
    Ok(drawn.map_or(given, |dice| Duration::from_millis(dice.between(1, 40))))
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("it must be at least 1".to_owned()),
        count => Ok(count),
    }
}

const RECORDS: Parameter =
    Parameter { flag: "records", default: "1M", help: "how many events are generated" };

const SEED: Parameter =
    Parameter { flag: "event-seed", default: "0", help: "another number gives other events" };

const RATE: Parameter = Parameter {
    flag: "event-rate",
    default: "10k",
    help: "how many events come in a second of event time; a simulated run draws what is not given",
};

const SHARES: Parameter = Parameter {
    flag: "event-shares",
    default: "1:3:46",
    help: "how many persons, auctions and bids follow one another; drawn likewise",
};

const OUT_OF_ORDER: Parameter = Parameter {
    flag: "out-of-order",
    default: "1",
    help: "within so many events they are out of order; drawn likewise",
};

const WINDOW: Parameter = Parameter {
    flag: "window",
    default: "10s",
    help: "how long a window of event time is; drawn likewise",
};

const GROUP_MAX: u64 = 900;

#[cfg(test)]
#[cfg(feature = "cli")]
mod tests;
