//! The jobs that are run, each with its reference.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::config::{JobConfig, OnLoss};
use cofferdam::connector::log::TruncatedLog;
use cofferdam::connector::memory::{Collect, CollectTransactions, Range, VecSource};
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::element::Record;
use cofferdam::guarantee::{Mechanism, SinkContract, StateHome};
use cofferdam::id::TransactionId;
use cofferdam::job::{Job, JobBuilder, Stream};
use cofferdam::operator::Emit;
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::sink::{
    CommitError, Committed, SinkError, TransactionalSink, WriteAheadSink,
};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::state::codec;
use cofferdam::state::key_group::KeyGroupCount;
use cofferdam::state::kinds::{Kinds, MapCell, MapDescriptor};
use cofferdam::time::{EventTime, ProcessingTime};
use cofferdam_sim::options::Options;
use cofferdam_sim::oracle::Cells;
use serde::{Deserialize, Serialize};

use crate::case::{RECORDS, Reference};

/// A write-ahead sink; the simulator's model stands in its place.
#[derive(Clone)]
pub(crate) struct Sent<T> {
    is_idempotent: bool,
    rows: PhantomData<fn(T)>,
}

impl<T: Record> WriteAheadSink for Sent<T> {
    type Record = T;

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    fn send(&mut self, _id: TransactionId, _rows: Vec<T>) -> Result<(), SinkError> {
        Ok(())
    }

    fn mark(&mut self, _id: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn is_marked(&mut self, _id: TransactionId) -> Result<bool, SinkError> {
        Ok(false)
    }
}

/// A two-phase sink whose transactions time out; the simulator's model stands in its place.
#[derive(Clone)]
pub(crate) struct ShortLived<T: Record>(CollectTransactions<T>);

impl<T: Record> TransactionalSink for ShortLived<T> {
    type Record = T;

    fn write(&mut self, id: TransactionId, rows: Vec<T>) -> Result<(), SinkError> {
        self.0.write(id, rows)
    }

    fn prepare(&mut self, id: TransactionId) -> Result<(), SinkError> {
        self.0.prepare(id)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(3))
    }

    fn commit(&mut self, id: TransactionId) -> Result<Committed, CommitError> {
        self.0.commit(id)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        self.0.abort_dangling()
    }
}

/// The keys that a number is counted under.
pub(crate) fn keys(number: u64) -> impl Iterator<Item = u64> {
    [Some(number % 7), number.is_multiple_of(3).then_some(number % 5)].into_iter().flatten()
}

pub(crate) fn counting(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    counting_into(options, options.job_config(mechanism), sink, true)
}

/// As [`counting`], over a log that drops its oldest records.
pub(crate) fn counting_a_log(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let log = TruncatedLog::from(Arc::new((0..RECORDS).collect()));
    count(
        |builder| builder.source("numbers", log),
        options,
        options.job_config(mechanism),
        sink,
        true,
    )
}

/// As [`counting_a_log`], going on without what is gone.
pub(crate) fn counting_what_is_left(
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job {
    let log = TruncatedLog::from(Arc::new((0..RECORDS).collect()));
    let config = JobConfig { on_loss: OnLoss::GoOn, ..options.job_config(mechanism) };
    count(|builder| builder.source("numbers", log), options, config, sink, true)
}

/// As [`counting`], over queues.
pub(crate) fn counting_queues(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers: Vec<u64> = (0..RECORDS).collect();
    let queues = MemoryQueue::new(&numbers, options.parallelism);
    count(
        |builder| builder.queue("numbers", queues),
        options,
        options.job_config(mechanism),
        sink,
        true,
    )
}

/// As [`counting`]; what its write-ahead sink sends twice is visible twice.
pub(crate) fn counting_and_resending(
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job {
    counting_into(options, options.job_config(mechanism), sink, false)
}

/// As [`counting`], over a store of keyed state that rolls nothing back.
pub(crate) fn counting_outside(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let config = JobConfig { state: StateHome::External, ..options.job_config(mechanism) };
    counting_into(options, config, sink, true)
}

/// As [`counting`], over one that rolls back with the checkpoint.
pub(crate) fn counting_rolled_back(
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job {
    let state = StateHome::ExternalTransactional;
    counting_into(options, JobConfig { state, ..options.job_config(mechanism) }, sink, true)
}

/// As [`counting`], with tasks that write and one that commits.
pub(crate) fn counting_in_stages(
    options: &Options,
    mechanism: Mechanism,
    _sink: SinkContract,
) -> Job {
    let builder = builder("counting", options);
    counts(from_memory(&builder)).two_stage_sink("out", CollectTransactions::default());
    builder.build(options.job_config(mechanism)).unwrap()
}

/// As [`counting`], where the external system does not wait long for a commit.
pub(crate) fn counting_in_haste(
    options: &Options,
    mechanism: Mechanism,
    _sink: SinkContract,
) -> Job {
    let builder = builder("counting", options);
    counts(from_memory(&builder))
        .transactional_sink("out", ShortLived(CollectTransactions::default()));
    builder.build(options.job_config(mechanism)).unwrap()
}

pub(crate) fn builder(name: &str, options: &Options) -> JobBuilder {
    let builder = JobBuilder::new(name, options.parallelism);
    builder.key_groups(KeyGroupCount::new(options.key_groups).unwrap());
    builder
}

pub(crate) fn counts(
    numbers: Stream<impl Segment<Out = u64>>,
) -> Stream<impl Segment<Out = (u64, u64)>> {
    numbers
        .flat_map("keys", |number: u64, out| keys(number).for_each(|key| out.emit(key)))
        .key_by(|key| *key)
        .aggregate("count", 0u64, |count: &mut u64, _| *count += 1)
}

pub(crate) fn counting_into(
    options: &Options,
    config: JobConfig,
    sink: SinkContract,
    is_idempotent: bool,
) -> Job {
    count(from_memory, options, config, sink, is_idempotent)
}

pub(crate) fn from_memory(builder: &JobBuilder) -> Stream<Pass<u64>> {
    builder.source("numbers", VecSource::new((0..RECORDS).collect()))
}

pub(crate) fn count<S: Segment<Out = u64>>(
    begin: impl FnOnce(&JobBuilder) -> Stream<S>,
    options: &Options,
    config: JobConfig,
    sink: SinkContract,
    is_idempotent: bool,
) -> Job {
    let builder = builder("counting", options);
    let counts = counts(begin(&builder));
    match sink {
        SinkContract::TwoPhase => {
            counts.transactional_sink("out", CollectTransactions::default());
        }
        SinkContract::WriteAhead => {
            counts.write_ahead_sink("out", Sent { is_idempotent, rows: PhantomData });
        }
        SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
            counts.sink("out", Collect::default());
        }
    }
    builder.build(config).unwrap()
}

pub(crate) fn counted(numbers: &[u64]) -> Reference {
    let mut reference = Reference::default();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for key in numbers.iter().flat_map(|number| keys(*number)) {
        let count = counts.entry(key).or_default();
        *count += 1;
        reference.rows.push(codec::encode(&(key, *count)));
    }
    let cells = counts.iter().map(|(key, count)| (codec::encode(key), codec::encode(count)));
    reference.cells = Cells::from([("count".to_owned(), cells.collect())]);
    reference
}

/// Remembers a number of each key until event time has passed it by, then says so.
#[derive(Clone)]
pub(crate) struct Alarm;

impl KeyedProcess for Alarm {
    type Key = u64;
    type In = u64;
    type State = BTreeSet<u64>;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, BTreeSet<u64>>,
        _out: &mut impl Emit<u64>,
    ) {
        context.state().get_or_insert_default().insert(number);
        context.register_timer(due(number));
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, BTreeSet<u64>>,
        out: &mut impl Emit<u64>,
    ) {
        let Some(numbers) = context.state().get_mut() else { return };
        let fired: Vec<u64> = numbers.iter().copied().filter(|n| due(*n) == time).collect();
        for number in fired {
            numbers.remove(&number);
            out.emit(number);
        }
        if numbers.is_empty() {
            context.state().take();
        }
    }
}

/// As [`Alarm`], and says a number again at once that finds event time before where another number
/// of its key has found it.
#[derive(Clone)]
pub(crate) struct Watchful;

impl KeyedProcess for Watchful {
    type Key = u64;
    type In = u64;
    type State = (BTreeSet<u64>, EventTime);
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, (BTreeSet<u64>, EventTime)>,
        out: &mut impl Emit<u64>,
    ) {
        let watermark = context.watermark();
        let (numbers, reached) =
            context.state().get_or_insert_with(|| (BTreeSet::new(), EventTime::MIN));
        numbers.insert(number);
        if watermark < *reached {
            out.emit(number);
        }
        *reached = watermark;
        context.register_timer(due(number));
        context.register_timer(EventTime::MAX);
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, (BTreeSet<u64>, EventTime)>,
        out: &mut impl Emit<u64>,
    ) {
        let Some((numbers, _)) = context.state().get_mut() else { return };
        let fired: Vec<u64> = numbers.iter().copied().filter(|n| due(*n) == time).collect();
        for number in fired {
            numbers.remove(&number);
            out.emit(number);
        }
        if time == EventTime::MAX {
            context.state().take();
        }
    }
}

/// What [`Echo`] keeps of a key: numbers, each with the time of its timer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pending {
    numbers: MapCell<u64, ProcessingTime>,
}

/// Remembers a number of each key until the clock has gone on, then says so.
#[derive(Clone)]
pub(crate) struct Echo(MapDescriptor<Pending, u64, ProcessingTime>);

impl Echo {
    pub(crate) fn new() -> Self {
        Self(MapDescriptor::new("numbers", |pending: &mut Pending| &mut pending.numbers))
    }
}

impl KeyedProcess for Echo {
    type Key = u64;
    type In = u64;
    type State = Pending;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, Pending>,
        _out: &mut impl Emit<u64>,
    ) {
        let due = context.processing_time().saturating_add((number % 4) as i64);
        context.map(&self.0).insert(number, due);
        context.register_processing_timer(due);
    }

    fn on_processing_timer(
        &mut self,
        time: ProcessingTime,
        context: &mut KeyedContext<'_, u64, Pending>,
        out: &mut impl Emit<u64>,
    ) {
        let mut numbers = context.map(&self.0);
        let fired: Vec<u64> =
            numbers.iter().filter(|(_, due)| **due == time).map(|(number, _)| *number).collect();
        for number in fired {
            numbers.remove(&number);
            out.emit(number);
        }
    }

    fn uses_clock(&self) -> bool {
        true
    }

    fn kinds(&self) -> Kinds<Pending> {
        Kinds::new().with(&self.0)
    }
}

pub(crate) fn due(number: u64) -> EventTime {
    EventTime::from_millis(number as i64 + 15)
}

/// Gives the first half of the numbers only when it was asked many times.
#[derive(Clone)]
pub(crate) struct Hesitant {
    numbers: VecSource<u64>,
    refusals: u32,
}

impl Source for Hesitant {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        if split.next < RECORDS / 2 && self.refusals > 0 {
            self.refusals -= 1;
            return Ok(Fetch::Nothing);
        }
        self.numbers.read(split, records_max)
    }
}

pub(crate) fn time_of(number: &u64) -> EventTime {
    EventTime::from_millis(*number as i64)
}

pub(crate) fn alarms(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| {
        builder.source_with_event_time("numbers", numbers, time_of, Duration::ZERO)
    };
    alarms_from(begin, Alarm, options, mechanism, sink)
}

/// As [`alarms`], whose operator looks at the watermark.
pub(crate) fn watching(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| {
        builder.source_with_event_time("numbers", numbers, time_of, Duration::ZERO)
    };
    alarms_from(begin, Watchful, options, mechanism, sink)
}

/// As [`alarms`], by the clock.
pub(crate) fn echoes(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    alarms_from(from_memory, Echo::new(), options, mechanism, sink)
}

/// As [`alarms`], where some subtasks have nothing for long.
pub(crate) fn alarms_from_idle(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let source = Hesitant { numbers, refusals: 40 };
    let begin = |builder: &JobBuilder| {
        builder.source_that_may_idle("numbers", source, time_of, Duration::ZERO, 3)
    };
    alarms_from(begin, Alarm, options, mechanism, sink)
}

pub(crate) fn alarms_from<S, P>(
    begin: impl FnOnce(&JobBuilder) -> Stream<S>,
    alarm: P,
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job
where
    S: Segment<Out = u64>,
    P: KeyedProcess<Key = u64, In = u64, Out = u64>,
{
    let builder = builder("alarms", options);
    let fired = begin(&builder).key_by(|number| number % 7).process("alarm", alarm);
    match sink {
        SinkContract::TwoPhase => fired.transactional_sink("out", CollectTransactions::default()),
        SinkContract::WriteAhead => {
            fired.write_ahead_sink("out", Sent { is_idempotent: true, rows: PhantomData });
        }
        SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
            fired.sink("out", Collect::default());
        }
    }
    builder.build(options.job_config(mechanism)).unwrap()
}

pub(crate) fn alarmed(numbers: &[u64]) -> Reference {
    let numbers: BTreeSet<&u64> = numbers.iter().collect();
    let rows = numbers.into_iter().map(codec::encode).collect();
    Reference { cells: BTreeMap::new(), rows }
}
