//! Dealing out: what the tasks of a job begin with, from what the tasks of another layout of the
//! same program had stored at a checkpoint (rules 84, 87, 91 to 99). State is found by the uid of
//! its operator. It moves bytes and decodes only records in flight, whose keys decide where they
//! go.
//!
//! ```text
//!            Vec<TaskState>, JobShape                         Vec<TaskState>
//!  stored ---------------------------> Pool, by uid ---------------------------> dealt
//!                                        groups   to the owner of the group
//!                                        lists    as each says
//!                                        splits   in turn
//!                                        transactions, rows  to the writer modulo the parallelism
//! ```
//! Invariant: every key, timer, split, element, transaction and record in flight goes to exactly
//! one task, but for the elements of broadcast lists. Those of a union list are put together when
//! tasks are restored, in whichever layout ([`Unions`]).

use std::collections::BTreeMap;

use crate::element::Batch;
use crate::graph::{Channel, Edge, JobShape, Partition, PhysicalGraph, Vertex};
use crate::guarantee::{Guarantee, Mechanism};
use crate::id::{ChannelId, SubtaskIndex, TaskId, TransactionId, VertexId};
use crate::job::{Job, RoutePlace};
use crate::state::RestoreError;
use crate::state::codec::Format;
use crate::state::key_group::{KeyGroup, KeyGroupAssigner, KeyGroupCount};
use crate::state::snapshot::{
    Bytes, InFlight, LoggedState, OperatorState, PendingTransaction, Redistribution, SourceState,
    SplitState, StoredList, TaskState,
};
use crate::storage::SplitPool;

/// What to do with stored state that no operator of the job claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Refuse to begin.
    Refused,
    /// Drop it.
    Dropped,
}

/// What the tasks of a job begin with.
#[derive(Clone, Debug)]
pub struct Dealt {
    /// By task. A source that is new has no positions: it begins at the first ones.
    pub states: Vec<TaskState>,
    /// By assigned source, in the order of the plan.
    pub pools: Vec<SplitPool>,
    /// Where each record went that was in flight, in the order of the channels it was on before,
    /// and on each the oldest first: the earlier channel and the present one.
    pub moved: Vec<(ChannelId, ChannelId)>,
}

/// Why state can not be dealt out to a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DealError {
    /// State of operators that the job does not have.
    #[error(
        "it holds state of {0}, which the job does not have: give the operator its uid back, or \
         allow state to be left out"
    )]
    Unclaimed(String),
    /// More subtasks than key groups (rule 86).
    #[error(
        "its keys fall into {stored} groups, so the parallelism can be {stored} at the most, and \
         '{uid}' has {parallelism}"
    )]
    Parallelism {
        /// The operator.
        uid: String,
        /// Its parallelism.
        parallelism: usize,
        /// The number of key groups of the checkpoint.
        stored: u32,
    },
    /// Another number of key groups: every key would have to be hashed again.
    #[error(
        "its keys fall into {stored} groups, and the job asks for {wanted}: it has to be {stored}"
    )]
    KeyGroups {
        /// Of the checkpoint.
        stored: u32,
        /// Of the job.
        wanted: u32,
    },
    /// Copies of a broadcast list that differ (rule 93).
    #[error(
        "the subtasks of '{uid}' have stored different elements of the broadcast list '{list}'"
    )]
    Differing {
        /// The operator.
        uid: String,
        /// The list.
        list: String,
    },
    /// Records in flight on an edge that the job does not have in this form (rule 97).
    #[error(
        "records were in flight from '{from}' to '{to}', and the job has no such edge: change it \
         by way of a savepoint that was taken while nothing was in flight"
    )]
    NoEdge {
        /// The sender.
        from: String,
        /// The receiver.
        to: String,
    },
    /// An operator that had ended, behind one that has not (rule 101).
    #[error(
        "'{uid}' has seen the end of its data, and '{before}' has not and would send it more: give \
         '{uid}' another uid, so that it begins anew"
    )]
    Ended {
        /// The operator that had ended.
        uid: String,
        /// The one before it.
        before: String,
    },
    /// What is said of its shape can not be.
    #[error("it does not fit together: {0}")]
    Shape(String),
    /// Records in flight that can not be read.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

impl Job {
    /// This job with as many key groups as a checkpoint has (rule 86).
    ///
    /// # Errors
    /// If its user has asked for another number, or a parallelism is greater.
    pub fn with_key_groups_of(&self, shape: &JobShape) -> Result<Self, DealError> {
        let (stored, wanted) = (shape.key_groups, self.key_groups.get());
        if stored == wanted {
            return Ok(self.clone());
        }
        let too_wide = |vertex: &&Vertex| vertex.parallelism > stored as usize;
        if let Some(vertex) = self.graph.vertices().iter().find(too_wide) {
            let (uid, parallelism) = (vertex.name.to_string(), vertex.parallelism);
            return Err(DealError::Parallelism { uid, parallelism, stored });
        }
        let key_groups = KeyGroupCount::new(stored).filter(|_| !self.are_key_groups_given);
        let key_groups = key_groups.ok_or(DealError::KeyGroups { stored, wanted })?;
        Ok(Self { key_groups, ..self.clone() })
    }

    /// Deals out what tasks laid out in `shape` had stored.
    ///
    /// # Errors
    /// If it does not fit this job.
    pub fn deal(
        &self,
        shape: &JobShape,
        states: Vec<TaskState>,
        pools: &[SplitPool],
        left: Left,
    ) -> Result<Dealt, DealError> {
        let (stored, wanted) = (shape.key_groups, self.key_groups.get());
        if stored != wanted {
            return Err(DealError::KeyGroups { stored, wanted });
        }
        let before = shape.graph().map_err(|error| DealError::Shape(error.to_string()))?;
        if before.task_count() != states.len() {
            let text = format!("{} tasks have {} states", before.task_count(), states.len());
            return Err(DealError::Shape(text));
        }
        let mut moved = Vec::new();
        let in_flight = self.deal_in_flight(&before, &states, &mut moved)?;
        let checkpoint = states.first().map(|state| state.checkpoint).unwrap_or_default();
        let format = states.first().map(|state| state.format).unwrap_or_default();
        let pools = self.deal_pools(pools)?;
        let pool = Pool::gather(&before, states);
        if left == Left::Refused {
            pool.check_claimed(self)?;
        }
        let mut dealt = Vec::new();
        let mut finished: Vec<bool> = Vec::new();
        for vertex in self.graph.vertex_ids() {
            let (hands, finished_before) = pool.deal(self, vertex)?;
            let edges = self.graph.edges().iter().filter(|edge| edge.to == vertex);
            let mut before = edges.map(|edge| edge.from);
            let open = before.clone().find(|from| !finished[from.index()]);
            let may_repeat = self.config.mechanism == Mechanism::Tracked;
            if let (Some(true), Some(open)) = (finished_before, open)
                && !may_repeat
            {
                return Err(self.ended_behind(vertex, open, &finished));
            }
            let follows = before.next().map(|_| open.is_none());
            // What its barriers have let pass may have been the end: then it comes once more.
            let is_again = may_repeat && open.is_some();
            let is_finished = finished_before.or(follows).unwrap_or(false) && !is_again;
            finished.push(is_finished);
            dealt.extend(self.graph.tasks_of(vertex).zip(hands).map(|(task, hand)| TaskState {
                format,
                checkpoint,
                task,
                finished: is_finished,
                operators: hand.operators,
                source: hand.source,
                transactions: hand.transactions,
                log: hand.log,
                shown: hand.shown,
                in_flight: InFlight::default(),
                numbers: None,
            }));
        }
        for (channel, batches) in in_flight {
            let Channel { to, index, .. } = self.graph.channels()[channel.index()];
            let encoded = batches.iter().map(|batch| Bytes::from(batch.encode(format)));
            dealt[to.index()].in_flight.inputs.insert(index, encoded.collect());
        }
        Ok(Dealt { states: dealt, pools, moved })
    }

    fn ended_behind(&self, vertex: VertexId, open: VertexId, finished: &[bool]) -> DealError {
        let uids = |vertex: VertexId| &self.graph.vertices()[vertex.index()].uids;
        // What only brings streams together has no name.
        let mut before = Some(open);
        while let Some(unnamed) = before.filter(|before| uids(*before).is_empty()) {
            let mut edges = self.graph.edges().iter();
            let from = edges.find(|edge| edge.to == unnamed && !finished[edge.from.index()]);
            before = from.map(|edge| edge.from);
        }
        let [uid, before] = [uids(vertex).first(), before.and_then(|before| uids(before).last())]
            .map(|uid| uid.map_or_else(String::new, |uid| uid.to_string()));
        DealError::Ended { uid, before }
    }

    /// The channels' records in flight, by channel of this job.
    fn deal_in_flight(
        &self,
        before: &PhysicalGraph,
        states: &[TaskState],
        moved: &mut Vec<(ChannelId, ChannelId)>,
    ) -> Result<BTreeMap<ChannelId, Vec<Batch>>, DealError> {
        let mut dealt: BTreeMap<ChannelId, Vec<Batch>> = BTreeMap::new();
        for channel in before.channels() {
            let stored = stored_in_flight(channel, states);
            if stored.is_empty() {
                continue;
            }
            let (from, sender) = before.place_of(channel.from);
            let (to, receiver) = before.place_of(channel.to);
            let edge = self.edge_between(before, from, to)?;
            let batches = self.decode_in_flight(self.graph.edges()[edge].to, stored)?;
            let batches = batches.into_iter().flat_map(Batch::split).collect();
            let before_id = channel.id;
            let copies = before.vertices()[to.index()].parallelism;
            let routed = self.route_again(edge, sender, receiver, copies, batches);
            for (sender, receiver, batch) in routed {
                let of = |channel: &&Channel| {
                    let of_edge = channel.edge == edge;
                    of_edge && channel.from == sender && channel.to == receiver
                };
                let channel = self.graph.channels().iter().find(of);
                let channel = channel.expect("the records of an edge stay on it");
                moved.push((before_id, channel.id));
                dealt.entry(channel.id).or_default().push(batch);
            }
        }
        Ok(dealt)
    }

    /// The edge that joins the same operators as one of another layout did.
    fn edge_between(
        &self,
        before: &PhysicalGraph,
        from: VertexId,
        to: VertexId,
    ) -> Result<usize, DealError> {
        let [from, to] = [from, to].map(|vertex| &before.vertices()[vertex.index()]);
        let vertices = self.graph.vertices();
        let joins = |edge: &Edge| {
            vertices[edge.from.index()].name == from.name
                && vertices[edge.to.index()].name == to.name
        };
        self.graph.edges().iter().position(joins).ok_or_else(|| DealError::NoEdge {
            from: from.name.to_string(),
            to: to.name.to_string(),
        })
    }

    /// Where records go that were in flight from a subtask to another one: by their keys, or to the
    /// receiver modulo the parallelism (rule 95). There were `copies` of what is broadcast.
    fn route_again(
        &self,
        edge: usize,
        sender: SubtaskIndex,
        receiver: SubtaskIndex,
        copies: usize,
        batches: Vec<Batch>,
    ) -> Vec<(TaskId, TaskId, Batch)> {
        let edges = self.graph.edges();
        let edge_of = edges[edge];
        let senders: Vec<TaskId> = self.graph.tasks_of(edge_of.from).collect();
        let receivers: Vec<TaskId> = self.graph.tasks_of(edge_of.to).collect();
        let sender = SubtaskIndex::new((sender.index() % senders.len()) as u32);
        let mut routed = Vec::new();
        match edge_of.partition {
            Partition::Forward => {
                let receiver = receiver.index() % receivers.len();
                let (sender, receiver) = (senders[receiver], receivers[receiver]);
                routed.extend(batches.into_iter().map(|batch| (sender, receiver, batch)));
            }
            Partition::Rebalance => {
                let sender = senders[sender.index()];
                let receiver = receivers[receiver.index() % receivers.len()];
                routed.extend(batches.into_iter().map(|batch| (sender, receiver, batch)));
            }
            Partition::Broadcast => {
                // To each that gets the old receiver's copy of what is broadcast.
                let sender = senders[sender.index()];
                for receiver in receivers.into_iter().skip(receiver.index()).step_by(copies) {
                    let batches = batches.iter().cloned();
                    routed.extend(batches.map(|batch| (sender, receiver, batch)));
                }
            }
            Partition::Hash => {
                let place = edges[..edge].iter().filter(|other| other.from == edge_of.from).count();
                let factory = &self.vertices[edge_of.from.index()].routes[place];
                // One by one, so that the order is kept, and without room for more.
                let place =
                    RoutePlace { sender, receivers: self.assigner(edge_of.to), batch_records: 1 };
                let mut route = factory.make(&place);
                let mut send = |channel: usize, batch: Batch| {
                    routed.push((senders[sender.index()], receivers[channel], batch));
                };
                batches.into_iter().for_each(|batch| route.route(batch, &mut send));
                route.flush(&mut send);
            }
        }
        routed
    }

    /// The pools of the assigned sources, which are found by their order.
    fn deal_pools(&self, pools: &[SplitPool]) -> Result<Vec<SplitPool>, DealError> {
        let assigned = self.plan().assigned.len();
        match pools.len() == assigned {
            true => Ok(pools.to_vec()),
            false if pools.is_empty() => Ok(vec![SplitPool::default(); assigned]),
            false => {
                let stored = pools.len();
                let text = format!(
                    "{stored} sources have splits that are assigned, and the job has {assigned}"
                );
                Err(DealError::Shape(text))
            }
        }
    }
}

/// What was stored of a channel, the receiver's part before the sender's.
pub(super) fn stored_in_flight<'a>(
    channel: &Channel,
    states: &'a [TaskState],
) -> Vec<(Format, &'a Bytes)> {
    let (to, from) = (&states[channel.to.index()], &states[channel.from.index()]);
    let received = to.in_flight.inputs.get(&channel.index).into_iter().flatten();
    let emitted = from.in_flight.outputs.get(&channel.outlet).into_iter().flatten();
    let received = received.map(|bytes| (to.format, bytes));
    received.chain(emitted.map(|bytes| (from.format, bytes))).collect()
}

/// All that was stored, by the uid that it belongs to, and of each in the order of the subtasks.
#[derive(Default)]
struct Pool {
    operators: BTreeMap<String, Vec<Option<OperatorState>>>,
    sources: BTreeMap<String, Vec<SourceState>>,
    sinks: BTreeMap<String, Vec<Output>>,
    /// Whether all subtasks with the operator had seen the end of their data.
    finished: BTreeMap<String, bool>,
}

/// What a sink's subtask had not made visible, and what it had.
#[derive(Default)]
struct Output {
    transactions: Vec<PendingTransaction>,
    log: Vec<LoggedState>,
    shown: Vec<TransactionId>,
}

/// What one subtask gets.
#[derive(Default)]
struct Hand {
    operators: Vec<OperatorState>,
    source: Option<SourceState>,
    transactions: Vec<PendingTransaction>,
    log: Vec<LoggedState>,
    shown: Vec<TransactionId>,
}

impl Pool {
    fn gather(before: &PhysicalGraph, states: Vec<TaskState>) -> Self {
        let mut pool = Self::default();
        for state in states {
            let vertex = before.vertex_of(state.task);
            let mut operators = state.operators;
            for uid in &vertex.uids {
                let uid = uid.to_string();
                let at = operators.iter().position(|operator| operator.uid == uid);
                let operator = at.map(|at| operators.swap_remove(at));
                pool.operators.entry(uid.clone()).or_default().push(operator);
                *pool.finished.entry(uid).or_insert(true) &= state.finished;
            }
            if let (Some(first), Some(source)) = (vertex.uids.first(), state.source) {
                pool.sources.entry(first.to_string()).or_default().push(source);
            }
            if let Some(last) = vertex.uids.last() {
                let TaskState { transactions, log, shown, .. } = state;
                let output = Output { transactions, log, shown };
                pool.sinks.entry(last.to_string()).or_default().push(output);
            }
        }
        pool
    }

    /// Refuses if something would be left over.
    fn check_claimed(&self, job: &Job) -> Result<(), DealError> {
        let has_state = |operator: &Option<OperatorState>| operator.as_ref().is_some_and(holds_any);
        let of_operators = self.operators.iter().filter(|(_, of)| of.iter().any(has_state));
        let of_sources =
            self.sources.iter().filter(|(_, of)| of.iter().any(|s| !s.splits.is_empty()));
        let of_sinks = self.sinks.iter().filter(|(_, of)| of.iter().any(Output::holds_any));
        let stored = of_operators.map(|(uid, _)| uid).chain(of_sources.map(|(uid, _)| uid));
        let mut stored = stored.chain(of_sinks.map(|(uid, _)| uid));
        let vertices = job.graph.vertices();
        let is_claimed = |uid: &&String| {
            vertices.iter().any(|vertex| vertex.uids.iter().any(|of| **of == ***uid))
        };
        match stored.find(|uid| !is_claimed(uid)) {
            Some(uid) => Err(DealError::Unclaimed(format!("'{uid}'"))),
            None => Ok(()),
        }
    }

    /// What the subtasks of a vertex get, and whether they had seen the end of their data, if
    /// anything is known of them.
    fn deal(&self, job: &Job, vertex: VertexId) -> Result<(Vec<Hand>, Option<bool>), DealError> {
        let of = &job.graph.vertices()[vertex.index()];
        let assigner = job.assigner(vertex);
        let mut hands: Vec<Hand> =
            std::iter::repeat_with(Hand::default).take(of.parallelism).collect();
        for uid in &of.uids {
            let Some(stored) = self.operators.get(&**uid) else { continue };
            let mechanism = job.config.mechanism;
            let is_exact =
                mechanism.takes_checkpoints() && mechanism.guarantee() == Guarantee::ExactlyOnce;
            let dealt = deal_operator(uid, stored, &assigner, is_exact)?;
            for (hand, operator) in hands.iter_mut().zip(dealt) {
                hand.operators.extend(operator);
            }
        }
        if of.is_source
            && let Some(stored) = of.uids.first().and_then(|uid| self.sources.get(&**uid))
        {
            let dealt = deal_splits(stored, of.parallelism);
            hands.iter_mut().zip(dealt).for_each(|(hand, source)| hand.source = Some(source));
        }
        if let Some(stored) = of.uids.last().and_then(|uid| self.sinks.get(&**uid)) {
            let place = |id: TransactionId| id.subtask.index() % of.parallelism;
            for output in stored {
                for pending in &output.transactions {
                    hands[place(pending.transaction)].transactions.push(*pending);
                }
                for logged in &output.log {
                    hands[place(logged.pending.transaction)].log.push(logged.clone());
                }
                for id in &output.shown {
                    hands[place(*id)].shown.push(*id);
                }
            }
        }
        let finished = of.uids.iter().find_map(|uid| self.finished.get(&**uid)).copied();
        Ok((hands, finished))
    }
}

impl Output {
    fn holds_any(&self) -> bool {
        !self.transactions.is_empty() || !self.log.is_empty()
    }
}

/// Whether there is anything in the state of an operator.
fn holds_any(state: &OperatorState) -> bool {
    let is_some =
        |groups: &Option<Vec<_>>| groups.as_ref().is_some_and(|groups| !groups.is_empty());
    let has_elements = state.lists.iter().any(|list| !list.elements.is_empty());
    let groups = [&state.keyed, &state.timers, &state.processing_timers];
    groups.into_iter().any(is_some) || has_elements
}

/// The state of an operator, for each of the subtasks that `assigner` knows.
fn deal_operator(
    uid: &str,
    stored: &[Option<OperatorState>],
    assigner: &KeyGroupAssigner,
    is_exact: bool,
) -> Result<Vec<Option<OperatorState>>, DealError> {
    let parallelism = assigner.parallelism() as usize;
    let states: Vec<&OperatorState> = stored.iter().flatten().collect();
    let Some(first) = states.first() else { return Ok(vec![None; parallelism]) };
    // A clock that ran ahead would call records late that are not.
    let lowest = states.iter().filter_map(|state| state.watermark).min();
    let is_same = stored.len() == parallelism;
    let mut lists = deal_lists(uid, stored, parallelism, is_exact)?.into_iter();
    type Groups = Option<Vec<(KeyGroup, Bytes)>>;
    let deal = |subtask: usize| {
        let range = assigner.range(SubtaskIndex::new(subtask as u32));
        let groups = |part: fn(&OperatorState) -> &Groups| {
            let all = states.iter().filter_map(|state| part(state).as_ref()).flatten();
            let own = all.filter(|(group, _)| range.contains(*group)).cloned();
            states.iter().any(|state| part(state).is_some()).then(|| own.collect::<Vec<_>>())
        };
        let own = stored.get(subtask).and_then(Option::as_ref).filter(|_| is_same);
        OperatorState {
            uid: uid.to_owned(),
            format: first.format,
            keyed: groups(|state| &state.keyed),
            timers: groups(|state| &state.timers),
            processing_timers: groups(|state| &state.processing_timers),
            watermark: own.map_or(lowest, |own| own.watermark),
            lists: lists.next().unwrap_or_default(),
        }
    };
    Ok((0..parallelism).map(deal).map(Some).collect())
}

/// The lists of an operator's subtasks, for each of `parallelism` subtasks. Unless the cut is
/// exact, a copy of a broadcast list may hold what was sent behind the barrier: it comes again.
fn deal_lists(
    uid: &str,
    stored: &[Option<OperatorState>],
    parallelism: usize,
    is_exact: bool,
) -> Result<Vec<Vec<StoredList>>, DealError> {
    // In the order of names: what is left of one list decides who is first at the next one.
    let mut by_name: BTreeMap<&str, (Redistribution, Vec<&[Bytes]>)> = BTreeMap::new();
    for state in stored {
        for list in state.iter().flat_map(|state| &state.lists) {
            let entry = by_name.entry(&list.name).or_insert((list.redistribution, Vec::new()));
            entry.1.push(&list.elements);
        }
    }
    let mut dealt = vec![Vec::new(); parallelism];
    let mut first = 0;
    for (name, (redistribution, parts)) in by_name {
        let elements = match redistribution {
            Redistribution::Split | Redistribution::Union if stored.len() == parallelism => {
                parts.iter().map(|part| part.to_vec()).collect()
            }
            Redistribution::Union => deal_evenly(&parts.concat(), parallelism, 0).0,
            Redistribution::Split => {
                let (even, next) = deal_evenly(&parts.concat(), parallelism, first);
                first = next;
                even
            }
            Redistribution::Broadcast => {
                if is_exact && parts.windows(2).any(|two| two[0] != two[1]) {
                    let (uid, list) = (uid.to_owned(), name.to_owned());
                    return Err(DealError::Differing { uid, list });
                }
                (0..parallelism).map(|subtask| parts[subtask % parts.len()].to_vec()).collect()
            }
        };
        for (of_subtask, elements) in dealt.iter_mut().zip::<Vec<Vec<Bytes>>>(elements) {
            of_subtask.push(StoredList { name: name.to_owned(), redistribution, elements });
        }
    }
    Ok(dealt)
}

/// Whether a task has a union list.
pub fn has_unions(state: &TaskState) -> bool {
    state.operators.iter().flat_map(|operator| &operator.lists).any(is_union)
}

/// All elements of the union lists of a vertex, by operator and name.
#[derive(Debug)]
pub struct Unions(BTreeMap<(String, String), Vec<Bytes>>);

impl Unions {
    /// Of what the subtasks have stored, those of the first one first.
    pub fn of(subtasks: &[TaskState]) -> Self {
        let mut joined: BTreeMap<(String, String), Vec<Bytes>> = BTreeMap::new();
        for OperatorState { uid, lists, .. } in subtasks.iter().flat_map(|of| &of.operators) {
            for list in lists.iter().filter(|list| is_union(list)) {
                let elements = joined.entry((uid.clone(), list.name.clone())).or_default();
                elements.extend_from_slice(&list.elements);
            }
        }
        Self(joined)
    }

    /// What a subtask of the vertex is restored with: all elements in place of its own (rule 92).
    pub fn join(&self, state: &mut TaskState) {
        for OperatorState { uid, lists, .. } in &mut state.operators {
            for list in lists.iter_mut().filter(|list| is_union(list)) {
                let all = &self.0[&(uid.clone(), list.name.clone())];
                list.elements.clone_from(all);
            }
        }
    }
}

fn is_union(list: &StoredList) -> bool {
    list.redistribution == Redistribution::Union
}

/// Cuts a list into even parts. Those that get one element more begin at `first`; also where the
/// next list's begin.
fn deal_evenly<T: Clone>(elements: &[T], parts: usize, first: usize) -> (Vec<Vec<T>>, usize) {
    let (each, more) = (elements.len() / parts, elements.len() % parts);
    let mut rest = elements;
    let cut = |part: usize| {
        let gets_more = (part + parts - first) % parts < more;
        let (own, behind) = rest.split_at(each + usize::from(gets_more));
        rest = behind;
        own.to_vec()
    };
    ((0..parts).map(cut).collect(), (first + more) % parts)
}

/// The positions of a source's subtasks: as they were, or all splits in turn, each with its
/// messages and its watermark; a subtask has said the least that any had said.
pub fn deal_splits(stored: &[SourceState], parallelism: usize) -> Vec<SourceState> {
    if stored.len() == parallelism {
        return stored.to_vec();
    }
    let mut splits: Vec<&SplitState> = stored.iter().flat_map(|state| &state.splits).collect();
    splits.sort_by_key(|state| state.split);
    let watermark = stored.iter().map(|source| source.watermark).min().flatten();
    let mut dealt = vec![SourceState { watermark, ..SourceState::default() }; parallelism];
    for (place, state) in splits.into_iter().enumerate() {
        let owner = &mut dealt[place % parallelism];
        let emitted = stored.iter().flat_map(|source| &source.emitted);
        owner.emitted.extend(emitted.filter(|(split, _)| *split == state.split));
        owner.splits.push(state.clone());
    }
    dealt
}

#[cfg(test)]
mod tests;
