//! Where records come from: a shadow beside the engine's records, kept by the driver alone. A call
//! of a machine with one record names that record, the cell it touches and what it emits.

use std::collections::{BTreeMap, VecDeque};

use cofferdam::element::{Batch, Element};
use cofferdam::graph::Partition;
use cofferdam::id::{ChannelIndex, TransactionId, VertexId};
use cofferdam::operator::sink::{SinkMachine, SinkRequest};
use cofferdam::task::{Task, TaskOutput};
use cofferdam::trace::Origin;
use smallvec::SmallVec;

use crate::link::Origins;
use crate::log::Log;
use crate::world::Plan;

/// A record that was taken into keyed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The record.
    pub origin: Origin,
    /// The cell, as a hash over operator and key.
    pub cell: u64,
}

/// Gives origins to the outputs of one call.
#[derive(Debug)]
pub(super) enum Lineage {
    /// The call handled this record: outputs descend from it, numbered edge by edge.
    Of(Origin, SmallVec<[(usize, u32); 2]>),
    /// The call handled no record: what it emits was fired by timers, and is named by its content.
    Fired(BTreeMap<u64, u32>),
    /// The call handled several records at once: the origins were found by handling them one by one
    /// in a copy.
    Planned(BTreeMap<usize, VecDeque<Origin>>),
}

/// The place of a sink among the outputs of a task, behind every channel.
const SINK: usize = usize::MAX;

impl Lineage {
    pub(super) fn of(origin: Option<Origin>) -> Self {
        match origin {
            Some(origin) => Self::Of(origin, SmallVec::new()),
            None => Self::Fired(BTreeMap::new()),
        }
    }

    /// Finds the origins of the outputs of a batch by handling its records one by one in a copy of
    /// the task.
    pub(super) fn plan(
        plan: &Plan,
        task: &Task,
        records: &Batch,
        origins: &[Origin],
        handle: impl Fn(&mut Task, Batch),
    ) -> Self {
        let mut copy = task.clone();
        let mut held = copy.held(0).count();
        let mut planned: BTreeMap<usize, VecDeque<Origin>> = BTreeMap::new();
        for (origin, record) in origins.iter().zip(records.clone().split()) {
            let before = logged(&copy);
            handle(&mut copy, record);
            let mut lineage = Self::of(Some(*origin));
            for rows in logged_since(&copy, before).map_or(&[][..], |(_, batches)| batches) {
                let of_rows = lineage.sink_origins(plan, &copy, rows);
                planned.entry(SINK).or_default().extend(of_rows);
            }
            copy.flush();
            let produced: Vec<TaskOutput> = copy.held(held).cloned().collect();
            held += produced.len();
            let sent = std::iter::from_fn(|| copy.poll_output()).collect::<Vec<TaskOutput>>();
            for output in produced.into_iter().chain(sent) {
                let (place, records) = match output {
                    TaskOutput::Send(outlet, Element::Batch(records)) => (outlet.index(), records),
                    TaskOutput::Sink(SinkRequest::Write { records, .. }) => (SINK, records),
                    TaskOutput::Send(..)
                    | TaskOutput::Block(_)
                    | TaskOutput::Unblock(_)
                    | TaskOutput::Cut(_)
                    | TaskOutput::Overtake(..)
                    | TaskOutput::Hurry(..)
                    | TaskOutput::Save(_)
                    | TaskOutput::WaitUntil(_)
                    | TaskOutput::WakeAt(_)
                    | TaskOutput::Report(_)
                    | TaskOutput::Store(_)
                    | TaskOutput::Read(_)
                    | TaskOutput::Acknowledge(_)
                    | TaskOutput::Sink(_)
                    | TaskOutput::Tell(..)
                    | TaskOutput::Alarm(_) => continue,
                };
                let of_output = lineage.origins(plan, &copy, place, &records);
                let queue = queue_of(plan, &copy, place);
                planned.entry(queue).or_default().extend(of_output);
            }
        }
        Self::Planned(planned)
    }

    /// The origins of records that leave on an outlet.
    pub(super) fn origins(
        &mut self,
        plan: &Plan,
        task: &Task,
        place: usize,
        records: &Batch,
    ) -> Origins {
        let (vertex, _) = plan.job.graph().place_of(task.id());
        let (edge, copy) = if place == SINK {
            (SINK, 0)
        } else {
            let channel = plan.job.graph().outputs(task.id())[place];
            let channel = plan.job.graph().channels()[channel.index()];
            match plan.job.graph().edges()[channel.edge].partition {
                // Every receiver gets a copy, and each copy counts on its own.
                Partition::Broadcast => (channel.edge, u64::from(channel.to.get()) + 1),
                Partition::Forward | Partition::Hash | Partition::Rebalance => (channel.edge, 0),
            }
        };
        let counter = edge.wrapping_mul(0x1_0000).wrapping_add(copy as usize);
        let mut name = |position: usize| match self {
            Self::Of(parent, counts) => {
                let count = next_of(counts, counter);
                let path = mix(mix(parent.path, edge as u64 ^ copy << 32), u64::from(count));
                Origin { record: parent.record, path }
            }
            Self::Fired(counts) => {
                let content = hash_bytes(u64::from(vertex.get()), &records.encode_record(position));
                let content = mix(content, edge as u64 ^ copy << 32);
                let count = counts.entry(content).or_default();
                *count += 1;
                Origin { record: None, path: mix(content, u64::from(*count)) }
            }
            Self::Planned(planned) => planned
                .get_mut(&queue_of(plan, task, place))
                .and_then(VecDeque::pop_front)
                .expect("a batch gives what its records give one by one (ORACLES C15 D4)"),
        };
        (0..records.len()).map(&mut name).collect()
    }

    pub(super) fn sink_origins(&mut self, plan: &Plan, task: &Task, records: &Batch) -> Origins {
        self.origins(plan, task, SINK, records)
    }
}

/// How far a write-ahead sink has logged rows: the last portion, and the batches in it.
pub(super) fn logged(task: &Task) -> Option<(TransactionId, usize)> {
    let (portion, batches) = task.sink().and_then(SinkMachine::last_rows)?;
    Some((portion, batches.len()))
}

/// What a call has added to that, in the portion that it has added to. It may have closed the
/// portion as well.
pub(super) fn logged_since(
    task: &Task,
    before: Option<(TransactionId, usize)>,
) -> Option<(TransactionId, &[Batch])> {
    let (portion, batches) = task.sink().and_then(SinkMachine::last_rows)?;
    let known = before.filter(|(last, _)| *last == portion).map_or(0, |(_, batches)| batches);
    Some((portion, &batches[known..]))
}

/// Which outputs come in the same order whether records are handled alone or together: those of one
/// channel, but for an edge that gives channels their turn batch by batch all of that edge.
fn queue_of(plan: &Plan, task: &Task, place: usize) -> usize {
    if place == SINK {
        return SINK;
    }
    let graph = plan.job.graph();
    let edge = graph.channels()[graph.outputs(task.id())[place].index()].edge;
    match graph.edges()[edge].partition {
        Partition::Rebalance => SINK - 1 - edge,
        Partition::Forward | Partition::Hash | Partition::Broadcast => place,
    }
}

/// Counts one more output of an edge.
fn next_of(counts: &mut SmallVec<[(usize, u32); 2]>, edge: usize) -> u32 {
    match counts.iter_mut().find(|(of, _)| *of == edge) {
        Some((_, count)) => {
            *count += 1;
            *count
        }
        None => {
            counts.push((edge, 1));
            1
        }
    }
}

/// The cells that records touch in a task.
pub(super) fn applied(
    vertex: VertexId,
    task: &Task,
    records: &Batch,
    origins: &[Origin],
    into: &mut Log<Applied>,
) {
    for (position, origin) in origins.iter().enumerate() {
        if let Some(key) = task.stage().cell_of(records, position) {
            let cell = cell_hash(vertex, &key);
            into.push(Applied { origin: *origin, cell });
        }
    }
}

/// The name of a cell: keyed state stands first in its vertex, so there is one operator a vertex.
pub(crate) fn cell_hash(vertex: VertexId, key: &[u8]) -> u64 {
    hash_bytes(u64::from(vertex.get()), key)
}

/// Handles a batch that came on a channel.
pub(super) fn handle_on(channel: ChannelIndex) -> impl Fn(&mut Task, Batch) {
    move |task, records| task.handle_element(channel, Element::Batch(records))
}

/// A hash of two numbers.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    let product = u128::from(left ^ 0x9e37_79b9_7f4a_7c15)
        * u128::from(right.wrapping_add(0xd1b5_4a32_d192_ed03) | 1);
    (product as u64 ^ (product >> 64) as u64).rotate_left(23) ^ right
}

/// A hash of bytes.
pub(crate) fn hash_bytes(start: u64, bytes: &[u8]) -> u64 {
    let mut hash = mix(start, bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash
}
