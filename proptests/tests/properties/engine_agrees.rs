//! The engine agrees with itself: a batch does what its records do one by one, and the threaded
//! runtime comes to what the simulator comes to.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{CollectTransactions, Range, VecSource};
use cofferdam::element::{Batch, Element};
use cofferdam::graph::Partition;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::id::{AttemptId, ChannelId, ChannelIndex, OutletIndex, TaskId, VertexId};
use cofferdam::job::{Job, JobBuilder, TaskStart};
use cofferdam::operator::Cell;
use cofferdam::operator::sink::SinkRequest;
use cofferdam::operator::source::{ReadReply, ReadRequest};
use cofferdam::runtime::{self, RunOptions};
use cofferdam::state::codec;
use cofferdam::task::{Task, TaskOutput};
use cofferdam_sim::decide::Decider;
use cofferdam_sim::fault;
use cofferdam_sim::jobs::{self, BuiltinJob, CaseData, OffsetAt, Parameters, Setup, Shape};
use cofferdam_sim::options::{FaultProfile, Options};
use cofferdam_sim::world::{Ending, Plan, World, events_max};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_batch_does_what_its_records_do_one_by_one(
        job in 0..jobs::all().len(),
        seed: u64,
        parallelism in 1..4_usize,
        batch_records in 2..20_usize,
        piece in 1..4_usize,
    ) {
        let job = built_in(jobs::all()[job], seed, parallelism, batch_records);
        for (task, elements) in deliveries(&job) {
            let whole = Fed::all(&job, task, &elements, usize::MAX);
            prop_assert_eq!(Fed::all(&job, task, &elements, piece), whole);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn threads_and_simulator_commit_the_same(
        numbers in vec(0..50_u64, 0..200),
        parallelism in 1..4_usize,
        batch_records in 1..40_usize,
        channel_batches in 1..5_usize,
        workers in 1..4_usize,
        seed: u64,
        mechanism in prop::sample::select(vec![Mechanism::Aligned, Mechanism::Transactional]),
    ) {
        let expected = counted(&numbers);
        let sink = CollectTransactions::default();
        let config = JobConfig {
            mechanism,
            checkpoint_interval: Duration::from_millis(1),
            batch_records,
            channel_batches,
            ..JobConfig::default()
        };
        let job = counting(&numbers, parallelism, sink.clone(), config);
        runtime::run(&job, RunOptions { workers, ..RunOptions::default() })
            .expect("nothing goes wrong in memory");
        prop_assert_eq!(times(sink.committed().iter().map(codec::encode)), expected.clone());
        prop_assert_eq!(simulated(&numbers, parallelism, seed, mechanism), expected);
    }
}

fn built_in(job: &dyn BuiltinJob, seed: u64, parallelism: usize, batch_records: usize) -> Job {
    // No graph is drawn with a queue, which waits for acknowledgements that nobody sends here.
    let mechanism = Mechanism::FullReplay;
    let setup = Setup {
        shape: Shape { parallelism, key_groups: None, first: None },
        sink: SinkContract::Plain,
        config: JobConfig { mechanism, batch_records, ..JobConfig::default() },
        parameters: Parameters::of(job),
    };
    let data = CaseData { seed, records: 80, lines: None };
    job.case(&data, &setup).expect("a built-in job can be put together").job
}

/// What comes to each task that has inputs, in the order in which a plain driver delivers it.
fn deliveries(job: &Job) -> BTreeMap<TaskId, Vec<(ChannelIndex, Element)>> {
    let starts = job.discover().expect("memory can be read");
    let start = |(task, start)| new_task(job, task, TaskStart::Fresh(start));
    let mut tasks: Vec<Task> = job.graph().tasks().zip(starts).map(start).collect();
    let mut delivered: BTreeMap<TaskId, Vec<_>> = BTreeMap::new();
    let mut under_way: VecDeque<(TaskId, ChannelIndex, Element)> = VecDeque::new();
    let mut reads: VecDeque<(TaskId, ReadRequest)> = VecDeque::new();
    let mut active: Vec<TaskId> = job.graph().tasks().collect();
    loop {
        for id in active.drain(..) {
            tasks[id.index()].flush();
            while let Some(output) = tasks[id.index()].poll_output() {
                match output {
                    TaskOutput::Send(outlet, element) => {
                        let channel = job.graph().outputs(id)[outlet.index()];
                        let channel = job.graph().channels()[channel.index()];
                        under_way.push_back((channel.to, channel.index, element));
                    }
                    TaskOutput::Read(request) => reads.push_back((id, request)),
                    TaskOutput::Sink(_)
                    | TaskOutput::Report(_)
                    | TaskOutput::Store(_)
                    | TaskOutput::Acknowledge(_)
                    | TaskOutput::Block(_)
                    | TaskOutput::Unblock(_)
                    | TaskOutput::Tell(..)
                    | TaskOutput::Alarm(_)
                    | TaskOutput::Cut(_)
                    | TaskOutput::Overtake(..)
                    | TaskOutput::Hurry(..)
                    | TaskOutput::Save(_)
                    | TaskOutput::WaitUntil(_)
                    | TaskOutput::WakeAt(_) => {}
                }
            }
        }
        if let Some((task, channel, element)) = under_way.pop_front() {
            delivered.entry(task).or_default().push((channel, element.clone()));
            tasks[task.index()].handle_element(channel, element);
            active.push(task);
        } else if let Some((task, request)) = reads.pop_front() {
            let (vertex, _) = job.graph().place_of(task);
            let mut source = job.source(vertex).expect("only sources read");
            let outcome = source.read(&request.cursor, request.records_max);
            tasks[task.index()].handle_read(ReadReply { split: request.split, outcome });
            active.push(task);
        } else {
            return delivered;
        }
    }
}

fn new_task(job: &Job, task: TaskId, start: TaskStart) -> Task {
    job.task(task, AttemptId::new(1), start).expect("nothing is restored")
}

/// What came of feeding a task.
#[derive(Debug, PartialEq)]
struct Fed {
    cells: Vec<(Arc<str>, Vec<Cell>)>,
    /// By channel, and that of the sink: encoded records, and control elements in words. The
    /// channels of a rebalancing edge are one, since it deals out batches and not records.
    sent: BTreeMap<Option<u32>, Vec<Vec<u8>>>,
}

impl Fed {
    /// Feeds elements, the batches in pieces of at most `piece` records.
    fn all(job: &Job, task: TaskId, elements: &[(ChannelIndex, Element)], piece: usize) -> Self {
        let channel_of = |outlet| channel_of(job, task, outlet);
        let mut task = new_task(job, task, TaskStart::Fresh(None));
        for (channel, element) in elements {
            let Element::Batch(records) = element else {
                task.handle_element(*channel, element.clone());
                continue;
            };
            let mut records = records.clone().split().into_iter();
            while let Some(mut batch) = records.next() {
                records.by_ref().take(piece - 1).for_each(|record| batch.append(record));
                task.handle_element(*channel, Element::Batch(batch));
            }
        }
        task.flush();
        let mut sent: BTreeMap<Option<u32>, Vec<Vec<u8>>> = BTreeMap::new();
        while let Some(output) = task.poll_output() {
            match output {
                TaskOutput::Send(outlet, Element::Batch(records)) => {
                    sent.entry(Some(channel_of(outlet))).or_default().extend(encoded(&records));
                }
                TaskOutput::Send(outlet, control) => {
                    let text = format!("{control:?}").into_bytes();
                    sent.entry(Some(channel_of(outlet))).or_default().push(text);
                }
                TaskOutput::Sink(SinkRequest::Write { records, .. }) => {
                    sent.entry(None).or_default().extend(encoded(&records));
                }
                other @ (TaskOutput::Block(_)
                | TaskOutput::Unblock(_)
                | TaskOutput::Cut(_)
                | TaskOutput::Overtake(..)
                | TaskOutput::Hurry(..)
                | TaskOutput::Save(_)
                | TaskOutput::WaitUntil(_)
                | TaskOutput::WakeAt(_)
                | TaskOutput::Report(_)
                | TaskOutput::Store(_)
                | TaskOutput::Acknowledge(_)
                | TaskOutput::Read(_)
                | TaskOutput::Tell(..)
                | TaskOutput::Alarm(_)
                | TaskOutput::Sink(_)) => {
                    sent.entry(None).or_default().push(format!("{other:?}").into_bytes());
                }
            }
        }
        Self { cells: task.stage().cells(), sent }
    }
}

/// The number of a channel, or of the first one of its edge where the sender deals out batches.
fn channel_of(job: &Job, task: TaskId, outlet: OutletIndex) -> u32 {
    let channels = job.graph().channels();
    let outputs = job.graph().outputs(task);
    let edge_of = |id: ChannelId| channels[id.index()].edge;
    let edge = edge_of(outputs[outlet.index()]);
    match job.graph().edges()[edge].partition {
        Partition::Rebalance => {
            let first = outputs.iter().find(|id| edge_of(**id) == edge);
            first.expect("the channel itself is one of them").get()
        }
        Partition::Forward | Partition::Hash | Partition::Broadcast => {
            outputs[outlet.index()].get()
        }
    }
}

fn encoded(records: &Batch) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..records.len()).map(|position| records.encode_record(position))
}

/// How often each row is there.
type Times = BTreeMap<Vec<u8>, u64>;

fn times(rows: impl IntoIterator<Item = Vec<u8>>) -> Times {
    let mut times = Times::new();
    for row in rows {
        *times.entry(row).or_default() += 1;
    }
    times
}

/// Counts numbers by their last digit and, behind another exchange, how often each count came up:
/// the rows do not depend on the order.
fn counting(
    numbers: &[u64],
    parallelism: usize,
    sink: CollectTransactions<(u64, u64)>,
    config: JobConfig,
) -> Job {
    let builder = JobBuilder::new("counting", parallelism);
    builder
        .source("numbers", VecSource::new(numbers.to_vec()))
        .rebalance()
        .key_by(|number| number % 10)
        .aggregate("by-digit", 0, |count: &mut u64, _| *count += 1)
        .key_by(|(_, count)| *count)
        .aggregate("by-count", 0, |count: &mut u64, _| *count += 1)
        .transactional_sink("out", sink);
    builder.build(config).expect("the graph is right")
}

fn counted(numbers: &[u64]) -> Times {
    let (mut by_digit, mut by_count) = (BTreeMap::new(), BTreeMap::new());
    let rows = numbers.iter().map(|number| {
        let count = by_digit.entry(number % 10).or_insert(0_u64);
        *count += 1;
        let times = by_count.entry(*count).or_insert(0_u64);
        *times += 1;
        codec::encode(&(*count, *times))
    });
    times(rows)
}

/// The visible rows at the end of a simulated run with crashes.
fn simulated(numbers: &[u64], parallelism: usize, seed: u64, mechanism: Mechanism) -> Times {
    let drawn = Options::draw(seed, numbers.len(), FaultProfile::Default);
    let options = Options { parallelism, ..drawn };
    let config = options.job_config(mechanism);
    let job = counting(numbers, parallelism, CollectTransactions::default(), config);
    let faults = fault::plan(seed, &options, job.graph());
    let initial = job.discover().expect("memory can be read");
    let offset = |cursor: &[u8]| codec::decode::<Range>(cursor).expect("a range").next;
    let sources = vec![(VertexId::new(0), Arc::new(offset) as OffsetAt)];
    let plan = Plan {
        job,
        sources,
        initial,
        options,
        faults,
        variant: None,
        events_max: events_max(1_000),
        next: None,
    };
    let mut world = World::new(Rc::new(plan), Decider::new(seed, false));
    world.run();
    assert_eq!(world.ending(), Some(&Ending::Finished));
    let sink = VertexId::new(world.plan().job.graph().vertices().len() as u32 - 1);
    times(world.external().visible(sink).map(|row| row.bytes.to_vec()))
}
