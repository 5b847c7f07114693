//! A job: the typed builder, what it builds, and the claim that follows from it. It puts tasks
//! together but does not run them.

mod builder;
mod claim;
mod deal;
mod timed;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::JobConfig;
use crate::coordinator::{Plan, Readers};
use crate::element::Batch;
use crate::graph::{
    Channel, Cycle, JobShape, Partition, PhysicalGraph, Subtask, Vertex, VertexShape,
};
use crate::guarantee::{Mechanism, SinkContract, StateHome};
use crate::id::{
    AttemptId, ChannelIndex, OutletIndex, SubtaskIndex, TaskId, TransactionId, VertexId,
};
use crate::operator::OperatorTraits;
use crate::operator::queue::Deliveries;
use crate::operator::read_ahead::ReadAhead;
use crate::operator::route::Route;
use crate::operator::sink::{ErasedSink, SinkMachine, SinkState};
use crate::operator::source::{
    ErasedSource, Release, SourceError, SourceMachine, Supply, WatermarkStrategy, assign_splits,
};
use crate::operator::stage::Stage;
use crate::operator::unacknowledged::Unacknowledged;
use crate::state::RestoreError;
use crate::state::codec::Format;
use crate::state::key_group::{KeyGroupAssigner, KeyGroupCount};
use crate::state::snapshot::{Bytes, InFlight, LoggedRows, LoggedState, SourceState, TaskState};
use crate::storage::ProgressLog;
use crate::task::{Outlet, Progress, Task, TaskParts};

pub use builder::{Connected, JobBuilder, KeyedStream, Stream};
pub use claim::{InferredClaim, SinkClaim};
pub use deal::{DealError, Dealt, Left, Unions, deal_splits, has_unions};
pub use timed::{SessionStream, WindowStream};

/// A job that can run: what the builder has checked.
#[derive(Clone)]
pub struct Job {
    name: String,
    config: JobConfig,
    graph: PhysicalGraph,
    vertices: Vec<VertexParts>,
    key_groups: KeyGroupCount,
    /// By the user; otherwise they follow from the parallelism.
    are_key_groups_given: bool,
}

/// What each subtask of a vertex is copied from.
#[derive(Clone)]
struct VertexParts {
    source: Option<SourceParts>,
    stage: Box<dyn Stage>,
    /// One for each edge that leaves the vertex, in edge order.
    routes: Vec<Arc<dyn RouteFactory>>,
    sink: Option<SinkParts>,
}

#[derive(Clone)]
struct SourceParts {
    source: Box<dyn ErasedSource>,
    watermarks: Option<WatermarkStrategy>,
}

#[derive(Clone)]
struct SinkParts {
    uid: Arc<str>,
    sink: Box<dyn ErasedSink>,
    stage: SinkStage,
}

/// Which part of a sink a vertex is.
#[derive(Clone, Copy)]
enum SinkStage {
    /// All of it.
    Whole,
    /// Its subtasks write and prepare.
    Writers,
    /// Its one subtask commits what the subtasks of this vertex have prepared.
    Committer(VertexId),
}

impl SinkParts {
    fn restore_log(
        &self,
        format: Format,
        log: &[LoggedState],
    ) -> Result<Vec<LoggedRows>, RestoreError> {
        let restored = log.iter().map(|logged| {
            let rows = self.sink.decode(format, &logged.rows).map_err(RestoreError::Rows)?;
            Ok(LoggedRows { pending: logged.pending, batches: Arc::new(vec![rows]) })
        });
        restored.collect()
    }
}

/// Makes the sending side of an edge for one subtask.
trait RouteFactory: Send + Sync {
    fn make(&self, place: &RoutePlace) -> Box<dyn Route>;
}

impl<F: Fn(&RoutePlace) -> Box<dyn Route> + Send + Sync> RouteFactory for F {
    fn make(&self, place: &RoutePlace) -> Box<dyn Route> {
        self(place)
    }
}

struct RoutePlace {
    sender: SubtaskIndex,
    receivers: KeyGroupAssigner,
    batch_records: usize,
}

/// What a task begins with.
#[derive(Clone, Debug)]
pub enum TaskStart {
    /// Empty state; a source begins at these positions: the first ones, or reserved ones.
    Fresh(Option<SourceState>),
    /// The state of a completed checkpoint.
    Restored(Box<TaskState>),
}

/// Why a graph can not become a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Nothing to read.
    #[error("job '{0}' has no source: add one with JobBuilder::source")]
    NoSource(String),
    /// A stream that leads nowhere.
    #[error("the stream behind '{0}' has no sink: end it with sink, transactional_sink or discard")]
    NoSink(String),
    /// Two operators with the same uid: their state could not be told apart.
    #[error("the uid '{0}' is used twice: state is found again by uid")]
    DuplicateUid(String),
    /// Two states of an operator with the same name.
    #[error("operator '{uid}': two of its states are called '{state}': give each its own name")]
    StateTwice {
        /// The operator's uid.
        uid: String,
        /// The name.
        state: &'static str,
    },
    /// Windows, sessions or a pattern that can not be.
    #[error("'{uid}': {reason}")]
    Timing {
        /// The operator.
        uid: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Streams side by side that are not of one job.
    #[error("{first} and {second} can not be united: begin both streams with one JobBuilder")]
    OtherBuilder {
        /// The one stream.
        first: String,
        /// The other.
        second: String,
    },
    /// A setting with which nothing would ever happen.
    #[error("{setting} is zero: it must be at least {least}")]
    ZeroSetting {
        /// The field of [`JobConfig`].
        setting: &'static str,
        /// What it may be.
        least: &'static str,
    },
    /// A parallelism that can not be.
    #[error(
        "'{uid}' has parallelism {parallelism}: it must be from 1 to {max}, the number of key \
         groups"
    )]
    Parallelism {
        /// The operator.
        uid: String,
        /// What was asked for.
        parallelism: usize,
        /// The number of key groups.
        max: u32,
    },
    /// Records would go round for ever, and a barrier with them.
    #[error(transparent)]
    Cycle(#[from] Cycle),
    /// A guarantee that needs replay over a source that has none.
    #[error(
        "the mechanism {mechanism} needs a source that can be read again, and '{uid}' can not: \
         use at-most-once or another source"
    )]
    NotReplayable {
        /// The source.
        uid: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Positions are to be kept of a queue, which has none and gives out only so much that is not
    /// acknowledged.
    #[error(
        "the mechanism {mechanism} reads again from positions, and the queue '{uid}' has none: use \
         a mechanism that takes checkpoints on the way"
    )]
    NoPositions {
        /// The source.
        uid: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Splits that are assigned on the way without checkpoints to keep what is assigned to whom.
    #[error(
        "the splits of '{uid}' are assigned on the way, and the mechanism {mechanism} keeps \
         nothing of that: use a mechanism that takes checkpoints, or a source that is cut before"
    )]
    NothingKeepsSplits {
        /// The source.
        uid: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// A mechanism whose one checkpoint covers the end, over a source that has none.
    #[error(
        "the mechanism {mechanism} takes its only checkpoint at the end of all input, and '{uid}' \
         never ends: use a mechanism that takes checkpoints on the way"
    )]
    NeverEnds {
        /// The source.
        uid: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Rows that nothing would ever make visible.
    #[error(
        "the {contract} sink '{uid}' shows rows when a checkpoint completes, and the mechanism \
         {mechanism} takes none: use a plain sink or a stronger guarantee"
    )]
    NothingCommits {
        /// The sink.
        uid: String,
        /// What it promises.
        contract: SinkContract,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// A sink in two stages without checkpoints, which tell its committer what belongs together.
    #[error(
        "the sink '{uid}' commits in a second stage when a checkpoint completes, and the mechanism \
         {mechanism} takes none: use transactional_sink, or a mechanism with barriers"
    )]
    NothingGathers {
        /// The sink.
        uid: String,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// State outside whose tasks would have to share it with a mechanism that keeps none.
    #[error(
        "state that is {home} needs a mechanism that takes checkpoints and keeps state between \
         them, and {mechanism} does not"
    )]
    StateHome {
        /// Where state lives.
        home: StateHome,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// Checkpoints that would overlap where they can not.
    #[error(
        "{concurrent} checkpoints can not be in flight under {mechanism}: only one is taken at a \
         time"
    )]
    Overlapping {
        /// How many may be in flight.
        concurrent: usize,
        /// The mechanism.
        mechanism: Mechanism,
    },
    /// A contract that the sink has no means to keep.
    #[error(
        "the sink '{uid}' says that it is {contract}: end the stream with transactional_sink or \
         write_ahead_sink"
    )]
    NotDirect {
        /// The sink.
        uid: String,
        /// What it promises.
        contract: SinkContract,
    },
    /// Two sinks that would write over each other's output.
    #[error(
        "the sinks '{first}' and '{second}' both write into {destination}: give each a place of \
         its own"
    )]
    SharedDestination {
        /// A sink.
        first: String,
        /// A later one.
        second: String,
        /// Where both write.
        destination: String,
    },
}

impl Job {
    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is checkpointed and restarted.
    pub fn config(&self) -> &JobConfig {
        &self.config
    }

    /// Its tasks and channels.
    pub fn graph(&self) -> &PhysicalGraph {
        &self.graph
    }

    /// Uid and traits of each operator of a vertex, in chain order.
    pub fn operators(&self, vertex: VertexId) -> Vec<(Arc<str>, OperatorTraits)> {
        self.vertices[vertex.index()].stage.describe()
    }

    /// A copy of the source of a vertex, if it begins with one.
    pub fn source(&self, vertex: VertexId) -> Option<Box<dyn ErasedSource>> {
        self.vertices[vertex.index()].source.as_ref().map(|parts| parts.source.clone())
    }

    /// The same job over what `wrap` makes of each source: for who paces or watches them. Cursors
    /// are then those of the wrapped source.
    #[must_use]
    pub fn over_sources(
        mut self,
        wrap: impl Fn(Box<dyn ErasedSource>) -> Box<dyn ErasedSource>,
    ) -> Self {
        for parts in self.vertices.iter_mut().filter_map(|vertex| vertex.source.as_mut()) {
            parts.source = wrap(parts.source.clone());
        }
        self
    }

    /// The sink of a vertex, if it writes to one, with its uid. Who writes needs a copy.
    pub fn sink(&self, vertex: VertexId) -> Option<(&Arc<str>, &dyn ErasedSink)> {
        let parts = self.vertices[vertex.index()].sink.as_ref()?;
        match parts.stage {
            SinkStage::Whole | SinkStage::Writers => Some((&parts.uid, &*parts.sink)),
            SinkStage::Committer(_) => None,
        }
    }

    /// If a vertex commits what the subtasks of another have written: that other, and the sink to
    /// do it with.
    pub fn committer(&self, vertex: VertexId) -> Option<(VertexId, &dyn ErasedSink)> {
        let parts = self.vertices[vertex.index()].sink.as_ref()?;
        match parts.stage {
            SinkStage::Whole | SinkStage::Writers => None,
            SinkStage::Committer(of) => Some((of, &*parts.sink)),
        }
    }

    /// What the coordinator has to know of it.
    pub fn plan(&self) -> Plan {
        let sources = self.vertices.iter().enumerate();
        let assigned = sources.filter_map(|(position, parts)| {
            let source = VertexId::new(position as u32);
            let is_assigned = parts.source.as_ref()?.source.is_assigned();
            is_assigned.then(|| Readers { source, tasks: self.graph.tasks_of(source).collect() })
        });
        Plan {
            tasks: self.graph.task_count() as u32,
            sources: self.graph.source_tasks(),
            assigned: assigned.collect(),
            shape: self.shape(),
        }
    }

    /// How it is laid out.
    pub fn shape(&self) -> JobShape {
        let vertex = |vertex: &Vertex| VertexShape {
            uids: vertex.uids.iter().map(|uid| uid.to_string()).collect(),
            is_source: vertex.is_source,
            parallelism: vertex.parallelism as u32,
        };
        JobShape {
            key_groups: self.key_groups.get(),
            vertices: self.graph.vertices().iter().map(vertex).collect(),
            edges: self.graph.edges().to_vec(),
        }
    }

    /// Cuts the input of every source into splits and gives each source task its own: what the
    /// tasks begin with at the first start. By task; none for tasks without a source.
    ///
    /// # Errors
    /// If an input is not there or can not be read.
    pub fn discover(&self) -> Result<Vec<Option<SourceState>>, SourceError> {
        let mut states = vec![None; self.graph.task_count()];
        for (position, vertex) in self.vertices.iter().enumerate() {
            let Some(parts) = &vertex.source else { continue };
            let tasks: Vec<_> = self.graph.tasks_of(VertexId::new(position as u32)).collect();
            let cursors = parts.source.clone().discover(tasks.len())?;
            for (index, task) in tasks.iter().enumerate() {
                let index = SubtaskIndex::new(index as u32);
                states[task.index()] = Some(assign_splits(&cursors, index, tasks.len()));
            }
        }
        Ok(states)
    }

    /// Puts one task together.
    ///
    /// # Errors
    /// If `start` holds a state that is not this task's.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn task(
        &self,
        task: TaskId,
        attempt: AttemptId,
        start: TaskStart,
    ) -> Result<Task, RestoreError> {
        let (vertex, index) = self.graph.place_of(task);
        let parts = &self.vertices[vertex.index()];
        let subtask = self.subtask(task, attempt);
        let mut stage = parts.stage.clone();
        stage.open(&subtask);
        let mut progress = self.progress(task);
        let blank = self.config.mechanism.drops_state().then(|| stage.clone());
        let (source, left, finished) = match start {
            TaskStart::Fresh(source) => (source, SinkState::default(), false),
            TaskStart::Restored(state) => {
                stage.restore(&state.operators)?;
                if let (Some(progress), Some(numbers)) = (&mut progress, &state.numbers) {
                    let kept = self.unacknowledged(task, &state)?;
                    progress.restore(state.checkpoint, state.finished, numbers, kept);
                }
                let log = parts
                    .sink
                    .as_ref()
                    .map(|sink| sink.restore_log(state.format, &state.log))
                    .transpose();
                let (log, transactions) = (log?.unwrap_or_default(), state.transactions);
                let left = SinkState { transactions, log, shown: state.shown };
                (state.source, left, state.finished)
            }
        };
        let first = TransactionId { vertex, subtask: index, attempt, sequence: 0 };
        let config = &self.config;
        let parts = TaskParts {
            mechanism: config.mechanism,
            is_external: config.state.is_external(),
            blank,
            acknowledge_timeout: config.acknowledge_timeout,
            may_overtake: self.graph.allows_overtaking(vertex),
            alignment_timeout: config.alignment_timeout,
            inputs: self.graph.inputs(task).len(),
            source: parts
                .source
                .as_ref()
                .map(|parts| self.source_machine(source.unwrap_or_default(), parts)),
            sink: parts.sink.as_ref().map(|sink| match sink.stage {
                SinkStage::Whole => {
                    let contract = sink.sink.contract();
                    SinkMachine::new(contract, first, left, config.commit_retry)
                }
                SinkStage::Writers => SinkMachine::writer(first),
                SinkStage::Committer(of) => {
                    let writers = self.graph.tasks_of(of).count();
                    SinkMachine::committer(left, config.commit_retry, writers)
                }
            }),
            outlet: self.outlet(vertex, index),
            progress,
            stage,
            subtask,
        };
        Ok(Task::new(parts, finished))
    }

    /// A task's part of a checkpoint in the portable format, which belongs to no output.
    ///
    /// # Errors
    /// If the state is not this task's.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn portable(&self, state: TaskState) -> Result<TaskState, RestoreError> {
        let (vertex, _) = self.graph.place_of(state.task);
        let parts = &self.vertices[vertex.index()];
        let mut stage = parts.stage.clone();
        stage.open(&self.subtask(state.task, AttemptId::default()));
        stage.restore(&state.operators)?;
        let format = Format::Portable;
        let operators = stage.snapshot().iter().map(|operator| operator.to_state(format)).collect();
        let log = parts.sink.as_ref().map(|sink| sink.restore_log(state.format, &state.log));
        let log = log.transpose()?.unwrap_or_default();
        let log = log.iter().map(|rows| rows.to_state(format)).collect();
        let in_flight = InFlight {
            inputs: self.decode_inputs(&state)?,
            outputs: self.unacknowledged(state.task, &state)?.into_iter().collect(),
        };
        let in_flight = in_flight.encode(format);
        Ok(TaskState { format, operators, log, shown: Vec::new(), in_flight, ..state })
    }

    fn decode_inputs(
        &self,
        state: &TaskState,
    ) -> Result<BTreeMap<ChannelIndex, Vec<Batch>>, RestoreError> {
        let (vertex, _) = self.graph.place_of(state.task);
        let decode = |(channel, batches): (&ChannelIndex, &Vec<Bytes>)| {
            let stored = batches.iter().map(|bytes| (state.format, bytes)).collect();
            Ok((*channel, self.decode_in_flight(vertex, stored)?))
        };
        state.in_flight.inputs.iter().map(decode).collect()
    }

    /// The last write of a task's progress, with all of its state.
    ///
    /// # Errors
    /// If the log is not this task's.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn last_write(&self, task: TaskId, log: ProgressLog) -> Result<TaskState, RestoreError> {
        let ProgressLog { base, mut changes } = log;
        let (vertex, _) = self.graph.place_of(task);
        let mut stage = self.vertices[vertex.index()].stage.clone();
        stage.open(&self.subtask(task, AttemptId::default()));
        stage.restore(&base.operators)?;
        for change in &changes {
            stage.apply(&change.operators)?;
        }
        let operators =
            stage.snapshot().iter().map(|operator| operator.to_state(Format::Binary)).collect();
        Ok(changes.pop().map_or(base, |last| TaskState { operators, ..last }))
    }

    /// Where a task's channels stand at the start, under transactional updates.
    fn progress(&self, task: TaskId) -> Option<Progress> {
        if self.config.mechanism != Mechanism::Transactional {
            return None;
        }
        let channels = self.graph.inputs(task).iter();
        let senders = channels.map(|channel| {
            let Channel { from, outlet, .. } = self.graph.channels()[channel.index()];
            (from, outlet)
        });
        let outputs = self.graph.outputs(task).len();
        let (records_max, changes_min) =
            (self.config.unacknowledged_max, self.config.changes_min_bytes);
        Some(Progress::new(senders.collect(), outputs, records_max, changes_min))
    }

    /// What a task has produced and its receivers may not have.
    fn unacknowledged(
        &self,
        task: TaskId,
        state: &TaskState,
    ) -> Result<Vec<(OutletIndex, Vec<Batch>)>, RestoreError> {
        let of_outlet = |(outlet, batches): (&OutletIndex, &Vec<Bytes>)| {
            let channel = self.graph.outputs(task)[outlet.index()];
            let (vertex, _) = self.graph.place_of(self.graph.channels()[channel.index()].to);
            let stage = &self.vertices[vertex.index()].stage;
            let batches = batches.iter().map(|bytes| stage.decode_input(state.format, bytes));
            let batches = batches.collect::<Result<_, _>>().map_err(RestoreError::InFlight)?;
            Ok((*outlet, batches))
        };
        state.in_flight.outputs.iter().map(of_outlet).collect()
    }

    fn source_machine(&self, state: SourceState, parts: &SourceParts) -> SourceMachine {
        let config = &self.config;
        let deliveries = parts
            .source
            .is_queue()
            .then(|| Deliveries::new(&state.emitted, config.mechanism.restores()));
        let (release, records_max) = match config.mechanism {
            // A queue has no positions to reserve.
            Mechanism::None if deliveries.is_some() => (Release::AtOnce, config.batch_records),
            Mechanism::None => {
                let ahead = ReadAhead::new(config.reservation_records);
                (Release::Reserved(ahead), config.batch_records)
            }
            Mechanism::Tracked
            | Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout
            | Mechanism::Transactional => (Release::AtOnce, config.batch_records),
            Mechanism::Acks => {
                let kept = Unacknowledged::new(&state, config.unacknowledged_max);
                (Release::Kept(Box::new(kept)), config.batch_records)
            }
        };
        let watermarks = parts.watermarks.clone();
        let supply = if parts.source.is_assigned() { Supply::Assigned } else { Supply::Fixed };
        let on_loss = config.on_loss;
        SourceMachine::new(state, supply, watermarks, release, deliveries, records_max, on_loss)
    }

    /// What the channels hold when tasks begin again from `states`, one for each task: by channel,
    /// the receiver's part before the sender's, for nothing was emitted earlier than what had left
    /// (rule 30).
    ///
    /// # Errors
    /// If the records are not of the types that the job declares.
    pub fn in_flight(&self, states: &[TaskState]) -> Result<Vec<Vec<Batch>>, RestoreError> {
        let of_channel = |channel: &Channel| {
            let (vertex, _) = self.graph.place_of(channel.to);
            self.decode_in_flight(vertex, deal::stored_in_flight(channel, states))
        };
        self.graph.channels().iter().map(of_channel).collect()
    }

    /// Records that were on their way to a vertex.
    fn decode_in_flight(
        &self,
        to: VertexId,
        stored: Vec<(Format, &Bytes)>,
    ) -> Result<Vec<Batch>, RestoreError> {
        let stage = &self.vertices[to.index()].stage;
        let batches = stored.into_iter().map(|(format, bytes)| stage.decode_input(format, bytes));
        batches.collect::<Result<_, _>>().map_err(RestoreError::InFlight)
    }

    fn subtask(&self, task: TaskId, attempt: AttemptId) -> Subtask {
        let (vertex, index) = self.graph.place_of(task);
        let parallelism = self.graph.vertices()[vertex.index()].parallelism;
        let assigner = self.assigner(vertex);
        Subtask { task, vertex, index, parallelism, attempt, assigner }
    }

    fn assigner(&self, vertex: VertexId) -> KeyGroupAssigner {
        let parallelism = self.graph.vertices()[vertex.index()].parallelism;
        KeyGroupAssigner::new(self.key_groups, parallelism as u32)
    }

    fn outlet(&self, vertex: VertexId, sender: SubtaskIndex) -> Outlet {
        let routes = &self.vertices[vertex.index()].routes;
        let edges = self.graph.edges_from(vertex).zip(routes).map(|(edge, factory)| {
            let receivers = self.assigner(edge.to);
            let channels = match edge.partition {
                Partition::Forward => 1,
                Partition::Hash | Partition::Rebalance | Partition::Broadcast => {
                    receivers.parallelism() as usize
                }
            };
            let batch_records = self.config.batch_records;
            let route = factory.make(&RoutePlace { sender, receivers, batch_records });
            (route, channels, self.graph.allows_overtaking(edge.to))
        });
        Outlet::new(edges.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::memory::{Collect, Numbers};
    use crate::element::Batch;
    use crate::state::codec;

    #[test]
    fn the_cell_of_a_record_is_found_by_the_operator_behind_the_exchange() {
        let builder = JobBuilder::new("keyed", 1);
        builder
            .source("numbers", Numbers::up_to(1))
            .key_by(|number| number % 10)
            .aggregate("sum", 0, |sum: &mut u64, number| *sum += number)
            .sink("out", Collect::default());
        let job = builder.build(JobConfig::default()).unwrap();
        let task = TaskId::new(1);
        let task = job.task(task, AttemptId::new(1), TaskStart::Fresh(None)).unwrap();
        let cell = task.stage().cell_of(&Batch::new(vec![17_u64]), 0);
        assert_eq!(cell, Some(codec::encode(&7_u64)));
    }
}
