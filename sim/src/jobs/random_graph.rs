//! A graph drawn from the seed: unions, two sources, key-by after key-by, rebalance, broadcast,
//! forks, so that no path of the protocol hides behind a fixed shape.

use std::sync::Arc;

use cofferdam::connector::memory::VecSource;
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::guarantee::SinkContract;
use cofferdam::job::{JobBuilder, Stream};
use cofferdam::operator::Emit;
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::split_source::Pieces;
use cofferdam::operator::stateless::FlatMap;
use cofferdam::state::codec::{self, DecodeError};

use crate::dice::{Dice, Purpose};
use crate::jobs::ends::{Ends, Watched, WatchedInStages, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FileJob, Files};
use crate::jobs::row::{JsonObject, Row, encoded_json, json_field};
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Setup, Shape};
use crate::reference::random_graph::RandomGraphReference;
use crate::workload::plan::{Change, Exit, Item, KeyRule, KeyedStep, Plan, Step, items};

/// The job.
pub(crate) struct RandomGraph;

impl BuiltinJob for RandomGraph {
    fn name(&self) -> &'static str {
        "random-graph"
    }

    fn about(&self) -> &'static str {
        "counts over operators and edges that are drawn from the seed"
    }

    fn row_json(&self, _uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Item>(row)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let mut dice = Dice::new(data.seed, Purpose::Workload);
        let Shape { parallelism, first, .. } = setup.shape;
        let first = Plan::draw(&mut dice.clone(), first.unwrap_or(parallelism));
        let plan = Plan::draw(&mut dice, parallelism).with_copies_of(&first);
        let lists = items(&mut dice, &plan, data.records);
        let lists: Vec<Arc<Vec<Item>>> = lists.into_iter().map(Arc::new).collect();
        let builder = builder(self.name(), setup.shape);
        let mechanism = setup.config.mechanism;
        // Nobody acknowledges messages to a queue before the end if nothing completes before.
        let completes = mechanism.restores() && !mechanism.awaits_end();
        let from_queues = dice.chance(200) && completes;
        let in_stages = dice.chance(300) && mechanism.takes_checkpoints();
        let are_assigned = dice.chance(300) && mechanism.takes_checkpoints() && completes;
        let input = match (from_queues, are_assigned) {
            (true, _) => Input::Queues,
            (false, true) => {
                let [splits, together] = [9, 4].map(|most| dice.between(1, most) as usize);
                Input::Assigned { splits, together }
            }
            (false, false) => Input::Cut,
        };
        let is_endless = dice.chance(150) && mechanism.takes_checkpoints() && completes;
        let stream = begin(&builder, &plan, &lists, input, is_endless);
        if setup.sink == SinkContract::TwoPhase && in_stages {
            take_steps(stream, &plan, &WatchedInStages);
        } else {
            take_steps(stream, &plan, &Watched(setup.sink));
        }
        let job = builder.build(setup.config.clone())?;
        let inputs = CaseInput::of(&job, lists.clone(), |item| item.value.to_string());
        Ok(Case { job, reference: Box::new(RandomGraphReference::new(plan, lists)), inputs })
    }

    #[cfg(feature = "cli")]
    fn over_files(&self, _files: &Files, _setup: &Setup) -> Result<FileJob, JobError> {
        Err(JobError::SimulatedOnly(self.name()))
    }
}

impl Row for Item {
    const IS_KEY_WHOLE: bool = true;

    /// Two ways through the graph can change the same record differently: both rows stay.
    fn row_key(&self) -> Vec<u8> {
        codec::encode(self)
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let key = format!("{}/{}/{}", self.source, self.offset, self.copy);
        JsonObject::begin(out).text("key", &key).field("value", &self.value).end();
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        let key = json_field(line, "key")?;
        let mut numbers = key.split('/').map(|number| number.parse::<u64>().ok());
        let (source, offset, copy) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let (source, copy) = (source.try_into().ok()?, copy.try_into().ok()?);
        Some(Self { source, offset, copy, value: json_field(line, "value")?.parse().ok()? })
    }
}

/// How the sources of a graph are read.
#[derive(Clone, Copy)]
enum Input {
    /// Cut beforehand.
    Cut,
    /// As queues.
    Queues,
    /// In so many splits, which are found so many at a time, and assigned.
    Assigned { splits: usize, together: usize },
}

fn begin(
    builder: &JobBuilder,
    plan: &Plan,
    lists: &[Arc<Vec<Item>>],
    input: Input,
    is_endless: bool,
) -> Stream<Pass<Item>> {
    let sources = plan.sources.iter().zip(lists).enumerate();
    let streams = sources.map(|(number, (parallelism, list))| {
        let uid = format!("source-{number}");
        let values = VecSource::from(list.clone());
        let source = match (input, is_endless) {
            (Input::Cut, false) => builder.source(&uid, values),
            (Input::Cut, true) => builder.source(&uid, values.endless()),
            (Input::Queues, _) => builder.queue(&uid, MemoryQueue::new(list, *parallelism)),
            (Input::Assigned { splits, together }, _) => {
                let pieces = Pieces::new(values, splits, together);
                builder.split_source(&uid, if is_endless { pieces.endless() } else { pieces })
            }
        };
        source.parallelism(*parallelism)
    });
    streams.reduce(Stream::union).expect("a plan has a source")
}

fn take_steps(stream: Stream<Pass<Item>>, plan: &Plan, ends: &impl Ends) {
    let mut open = Some(stream);
    for (position, step) in plan.steps.iter().enumerate() {
        open = open.and_then(|stream| take_step(stream, position, step, ends));
    }
}

/// What is open behind the step, if it is not an end.
fn take_step(
    stream: Stream<Pass<Item>>,
    position: usize,
    step: &Step,
    ends: &impl Ends,
) -> Option<Stream<Pass<Item>>> {
    let uid = |number| format!("fold-{position}-{number}");
    let changed = change(stream.parallelism(step.parallelism), position, step.change);
    match step.keyed[..] {
        [] => leave(changed, step.exit, ends),
        [first] => leave(keyed(changed, uid(0), first), step.exit, ends),
        [first, second, ..] => {
            leave(keyed(keyed(changed, uid(0), first), uid(1), second), step.exit, ends)
        }
    }
}

fn leave<S: Segment<Out = Item>>(
    stream: Stream<S>,
    exit: Exit,
    ends: &impl Ends,
) -> Option<Stream<Pass<Item>>> {
    match exit {
        Exit::Rebalance => return Some(stream.rebalance()),
        Exit::Broadcast => return Some(stream.broadcast()),
        Exit::Sink => ends.end(stream, "out"),
        Exit::Fork => {
            let (left, right) = stream.fork();
            ends.end(left, "out");
            ends.end(right, "more");
        }
        Exit::Diamond(left_change, right_change) => {
            let (left, right) = stream.fork();
            let left = change(left, "left", left_change);
            ends.end(left.union(change(right, "right", right_change)), "out");
        }
    }
    None
}

fn change<S: Segment<Out = Item>>(
    stream: Stream<S>,
    place: impl std::fmt::Display,
    change: Change,
) -> Stream<impl Segment<Out = Item>> {
    let apply = move |item: Item, out: &mut dyn Emit<Item>| match change {
        Change::Keep => out.emit(item),
        Change::Affine(more) => out.emit(Item { value: item.value * 3 + more, ..item }),
        Change::Drop(more) if (item.offset + more).is_multiple_of(3) => {}
        Change::Drop(_) => out.emit(item),
        Change::Copies(more) => {
            for digit in 1..=((item.offset + more) % 3) as u32 {
                out.emit(Item { copy: item.copy * 10 + digit, ..item });
            }
        }
    };
    stream.operator(&format!("change-{place}"), FlatMap::new(apply))
}

fn keyed<S: Segment<Out = Item>>(
    stream: Stream<S>,
    uid: String,
    step: KeyedStep,
) -> Stream<impl Segment<Out = Item>> {
    let key_of = move |item: &Item| match step.key {
        KeyRule::Value(modulus) => item.value.rem_euclid(modulus as i64) as u64,
        KeyRule::Offset(modulus) => item.offset % modulus,
    };
    stream.key_by(key_of).parallelism(step.parallelism).process(&uid, CountAndSum(step.key))
}

/// Keeps count and sum, and says for each record which of its key it is. The order in which records
/// of several channels come is free, so a row does not tell whose it is: there are the numbers up
/// to the count of each key, whichever record got which, and how often a record is dropped or
/// copied later does not depend on its number.
#[derive(Clone)]
struct CountAndSum(KeyRule);

impl KeyedProcess for CountAndSum {
    type Key = u64;
    type In = Item;
    type State = (u64, i64);
    type Out = Item;

    fn process(
        &mut self,
        item: Item,
        context: &mut KeyedContext<'_, u64, (u64, i64)>,
        out: &mut impl Emit<Item>,
    ) {
        let key = *context.key();
        let (count, sum) = context.state().get_or_insert((0, 0));
        *count += 1;
        *sum += item.value;
        let (offset, value) = match self.0 {
            KeyRule::Value(modulus) => (0, *count as i64 * modulus as i64 + key as i64),
            KeyRule::Offset(_) => (key, *count as i64),
        };
        out.emit(Item { source: 0, offset, copy: 0, value });
    }

    fn answers_each(&self) -> bool {
        true
    }
}
