//! Putting the tasks of an attempt together: where each begins, and the channels between them.

use std::rc::Rc;
use std::thread;

use crate::element::Batch;
use crate::graph::PhysicalGraph;
use crate::id::{AttemptId, CheckpointId, SubtaskIndex, TaskId, VertexId};
use crate::job::{Job, TaskStart, Unions};
use crate::message::TaskError;
use crate::operator::sink::{SinkMachine, SinkPlace};
use crate::operator::source::SourceError;
use crate::runtime::channel::{self, Inlet, Intake, Outlet, Port};
use crate::runtime::guard;
use crate::runtime::recover;
use crate::runtime::slot::{Hands, Slot};
use crate::runtime::store::{CheckpointStore, StoreError};
use crate::runtime::writer;
use crate::state::RestoreError;
use crate::state::codec::{self, Compression, Kind};
use crate::state::snapshot::{Extent, SourceState, TaskState};
use crate::state::store::{Cut, OpenedState, StateSaver, StateStore};
use crate::storage::{
    CheckpointMetadata, ProgressLog, StateHandle, StoreKey, StoreOutcome, StoreValue,
};
use crate::sync::ring;
use crate::task::Task;

/// Why a task could not be put together.
pub(super) type Refusal = (TaskId, TaskError);

/// The tasks of one worker and the number of queues between them.
#[derive(Default)]
pub(super) struct Cargo {
    pub(super) slots: Vec<Slot>,
    pub(super) queues: usize,
}

/// Where every task begins that is restored from a checkpoint.
pub(super) fn restored(
    job: &Job,
    metadata: &CheckpointMetadata,
    store: &dyn CheckpointStore,
) -> Result<Vec<TaskStart>, Refusal> {
    let parts = metadata.tasks.iter().enumerate();
    let states = parts.map(|(position, handle)| {
        read_state(handle, store).map_err(|error| (TaskId::new(position as u32), error))
    });
    let states: Vec<TaskState> = states.collect::<Result<_, _>>()?;
    let unions = unions_by_task(job, &states);
    let start = |(mut state, unions): (TaskState, Rc<Unions>)| {
        unions.join(&mut state);
        TaskStart::Restored(Box::new(state))
    };
    Ok(states.into_iter().zip(unions).map(start).collect())
}

/// The union lists that each task is restored with.
pub(super) fn unions_by_task(job: &Job, states: &[TaskState]) -> Vec<Rc<Unions>> {
    let mut rest = states;
    let of_vertices = job.graph().vertices().iter().flat_map(|vertex| {
        let (subtasks, others) = rest.split_at(vertex.parallelism);
        rest = others;
        std::iter::repeat_n(Rc::new(Unions::of(subtasks)), subtasks.len())
    });
    of_vertices.collect()
}

/// Where every task begins at the first start: the input is cut anew.
pub(super) fn fresh(job: &Job) -> Result<Vec<TaskStart>, Refusal> {
    Ok(discover(job)?.into_iter().map(TaskStart::Fresh).collect())
}

/// Where every task begins without checkpoints: behind the positions that were handed out.
///
/// At the first start the input is cut, and all first positions are stored before any task runs;
/// otherwise a crash could leave some of one cut and the next start make another one, and a record
/// would be handed out twice. They are written from the last to the first, so that the first one is
/// there only if all are: without it no record was ever handed out, and the input may be cut anew.
pub(super) fn reserved(job: &Job, store: &dyn CheckpointStore) -> Result<Vec<TaskStart>, Refusal> {
    let wanted = reservation_keys(job.graph());
    let Some((first, _)) = wanted.first() else { return fresh(job) };
    let listed = store.list().map_err(|error| external(TaskId::new(0), error))?;
    if !listed.contains(first) {
        let states = discover(job)?;
        store_first_positions(job, store, &states)?;
        return Ok(states.into_iter().map(TaskStart::Fresh).collect());
    }
    if let Some((gone, task)) = wanted.iter().find(|(key, _)| !listed.contains(key)) {
        let why = "it is missing, or was never there since the run had another parallelism";
        return Err((*task, damaged(store, *gone, why)));
    }
    let stored = listed.iter().filter(|key| matches!(key, StoreKey::Reservation { .. }));
    let known: Vec<StoreKey> = wanted.iter().map(|(key, _)| *key).collect();
    if let Some(other) = stored.copied().find(|key| !known.contains(key)) {
        let text = format!(
            "{} was stored by a run with other sources or another parallelism",
            store.place_of(other)
        );
        return Err((TaskId::new(0), TaskError::Restore(text)));
    }
    let mut starts: Vec<_> = job.graph().tasks().map(|_| TaskStart::Fresh(None)).collect();
    for (key, task) in wanted {
        let bytes = read(store, key).map_err(|error| (task, error))?;
        let state = codec::open::<SourceState>(Kind::Reservation, &bytes)
            .map_err(|error| (task, damaged(store, key, &error)))?;
        starts[task.index()] = TaskStart::Fresh(Some(state));
    }
    Ok(starts)
}

/// Stores the first positions, those of the first source task last.
fn store_first_positions(
    job: &Job,
    store: &dyn CheckpointStore,
    states: &[Option<SourceState>],
) -> Result<(), Refusal> {
    reservation_keys(job.graph()).into_iter().rev().try_for_each(|(key, task)| {
        let state = states[task.index()].clone().expect("a source task has positions");
        put(store, key, &StoreValue::Reservation(state)).map_err(|error| (task, error))
    })
}

/// Where every task begins under transactional updates: behind the last of its own writes, the
/// first of which is made here, before anything else is stored.
pub(super) fn progressed(
    job: &Job,
    store: &dyn CheckpointStore,
) -> Result<Vec<TaskStart>, Refusal> {
    let first = TaskId::new(0);
    let listed = store.list().map_err(|error| external(first, error))?;
    let is_progress = |key: &&StoreKey| matches!(key, StoreKey::Progress { .. });
    let begins_anew = recover::begins_anew(job, store).map_err(|error| external(first, error))?;
    let graph = job.graph();
    let keys: Vec<(StoreKey, TaskId)> =
        graph.tasks().map(|task| (progress_key(graph, task), task)).collect();
    if begins_anew {
        // Left by a run that was abandoned: its first positions are gone already.
        for key in listed.iter().filter(is_progress) {
            store.remove(*key).map_err(|error| (first, unusable(&error)))?;
        }
        // Before the first positions: a task whose progress is missing later has lost it.
        let states = discover(job)?;
        for ((key, task), state) in keys.iter().zip(&states) {
            let start = TaskStart::Fresh(state.clone());
            let begun = job.task(*task, AttemptId::default(), start);
            let mut begun =
                begun.map_err(|error| (*task, TaskError::Restore(error.to_string())))?;
            let snapshot = Box::new(begun.capture(CheckpointId::default()));
            put(store, *key, &StoreValue::Progress(snapshot, Extent::Whole))
                .map_err(|error| (*task, error))?;
        }
        store_first_positions(job, store, &states)?;
    } else {
        reserved(job, store)?;
    }
    let start = |(key, task): &(StoreKey, TaskId)| {
        let state = read(store, *key).and_then(|bytes| {
            let log = ProgressLog::read(&bytes).map_err(|error| damaged(store, *key, &error))?;
            job.last_write(*task, log).map_err(|error| damaged(store, *key, &error))
        });
        state.map(|state| TaskStart::Restored(Box::new(state))).map_err(|error| (*task, error))
    };
    keys.iter().map(start).collect()
}

fn progress_key(graph: &PhysicalGraph, task: TaskId) -> StoreKey {
    let (vertex, subtask) = graph.place_of(task);
    StoreKey::Progress { vertex, subtask }
}

/// How many workers may have something to do: the greatest parallelism.
pub(super) fn workers_max(graph: &PhysicalGraph) -> usize {
    graph.tasks().map(|task| graph.place_of(task).1.index() + 1).max().unwrap_or(1)
}

/// The worker of every task: subtask i of every vertex is hosted by worker i modulo their number,
/// so that forward edges stay inside a worker.
pub(super) fn homes(graph: &PhysicalGraph, workers: usize) -> Vec<usize> {
    graph.tasks().map(|task| graph.place_of(task).1.index() % workers).collect()
}

/// Where that lies which tasks are restored from, to name it if it does not fit.
pub(super) struct Origin<'a> {
    pub(super) store: &'a dyn CheckpointStore,
    /// None under transactional updates, where each task has its own progress.
    pub(super) checkpoint: Option<&'a CheckpointMetadata>,
    /// The checkpoint, if the job stops at it.
    pub(super) halts: Option<CheckpointId>,
}

impl Origin<'_> {
    fn of_task(&self, job: &Job, task: TaskId) -> StoreKey {
        match self.checkpoint {
            Some(metadata) => metadata.tasks[task.index()].key,
            None => progress_key(job.graph(), task),
        }
    }
}

/// Puts the tasks together and shares them out.
pub(super) fn load(
    job: &Job,
    attempt: AttemptId,
    starts: Vec<TaskStart>,
    origin: &Origin<'_>,
    workers: usize,
    state_at: Option<StateAt<'_>>,
) -> Result<Vec<Cargo>, Refusal> {
    let mut restored = in_flight(job, &starts, origin)?.into_iter();
    let machines = machines(job, attempt, starts, workers);
    let mut cargo: Vec<Cargo> = std::iter::repeat_with(Cargo::default).take(workers).collect();
    let graph = job.graph();
    let homes = homes(graph, workers);
    let worker_of = |task: TaskId| homes[task.index()];
    let mut inlets: Vec<Vec<Inlet>> = graph.tasks().map(|_| Vec::new()).collect();
    let mut ports: Vec<Vec<Port>> = graph.tasks().map(|_| Vec::new()).collect();
    for channel in graph.channels() {
        let (sender, receiver) = (worker_of(channel.from), worker_of(channel.to));
        let ends = if sender == receiver {
            let queue = cargo[sender].queues;
            cargo[sender].queues += 1;
            (Intake::Near(queue), Outlet::Near(queue))
        } else {
            let (give, take) = ring::ring(elements_max(job));
            (Intake::Far { queue: take, sender }, Outlet::Far { queue: give, receiver })
        };
        let may_overtake = job.config().mechanism.stores_in_flight()
            && graph.allows_overtaking(graph.edges()[channel.edge].to);
        let restored = restored.next().unwrap_or_default();
        let (inlet, port) = channel::connect(ends, may_overtake, restored);
        inlets[channel.to.index()].push(inlet);
        ports[channel.from.index()].push(port);
    }
    let ends = inlets.into_iter().zip(ports);
    for ((task, machine), (inlets, ports)) in graph.tasks().zip(machines).zip(ends) {
        let machine = machine.and_then(|restored| {
            restored.map_err(|error| damaged(origin.store, origin.of_task(job, task), &error))
        });
        let mut machine = machine.map_err(|error| (task, error))?;
        origin.halts.into_iter().for_each(|checkpoint| machine.halt(checkpoint));
        let saver = state_at.map(|at| open_state(at, &mut machine)).transpose();
        let saver = saver.map_err(|error| (task, error))?;
        let (vertex, subtask) = graph.place_of(task);
        let parallelism = graph.vertices()[vertex.index()].parallelism;
        let shown = machine.sink().map(SinkMachine::shown).unwrap_or_default();
        let place = SinkPlace { subtask, parallelism, attempt, shown };
        let sink = job.sink(vertex).map(|(_, sink)| sink);
        let sink = sink.or(job.committer(vertex).map(|(_, sink)| sink));
        let sink = sink.map(|sink| (sink.clone_box(), place));
        let hands = Hands::new(inlets, ports, job.source(vertex), sink, saver);
        cargo[worker_of(task)].slots.push(Slot::new(machine, hands));
    }
    Ok(cargo)
}

/// A task, if its state fits it, or what its operators panicked with.
type Machine = Result<Result<Task, RestoreError>, TaskError>;

/// Every task, in order, as it begins. Restoring much state takes long, so each worker's tasks are
/// put together on a thread of their own.
fn machines(job: &Job, attempt: AttemptId, starts: Vec<TaskStart>, workers: usize) -> Vec<Machine> {
    let homes = homes(job.graph(), workers);
    let mut by_worker: Vec<Vec<(TaskId, TaskStart)>> = Vec::new();
    by_worker.resize_with(workers, Vec::new);
    for ((task, start), home) in job.graph().tasks().zip(starts).zip(&homes) {
        by_worker[*home].push((task, start));
    }
    let mut machines = thread::scope(|scope| {
        let threads = by_worker.into_iter().map(|own| {
            let job = job.clone();
            let put_together = move |(task, start)| -> Machine {
                guard::catch(|| Ok(job.task(task, attempt, start)))
            };
            scope.spawn(move || own.into_iter().map(put_together).collect::<Vec<_>>())
        });
        let threads: Vec<_> = threads.collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        let machines = joined.map(|made| made.expect("what user code panics with is caught"));
        machines.map(Vec::into_iter).collect::<Vec<_>>()
    });
    let in_order = homes.into_iter().map(|home| machines[home].next());
    in_order.map(|machine| machine.expect("each task has been put together")).collect()
}

/// The store of keyed state, and the cut that the tasks are restored from.
pub(super) type StateAt<'a> = (&'a dyn StateStore, Option<Cut>);

/// Has a task take over what its store of keyed state holds.
fn open_state((store, at): StateAt<'_>, task: &mut Task) -> Result<Box<dyn StateSaver>, TaskError> {
    let OpenedState { saver, operators } = store.open(task.id(), task.attempt(), at)?;
    let restored = task.restore_saved(&operators);
    restored.map_err(|error| TaskError::Restore(format!("the store of the state: {error}")))?;
    Ok(saver)
}

/// What each channel begins with: the records that were in flight, if tasks are restored.
fn in_flight(
    job: &Job,
    starts: &[TaskStart],
    origin: &Origin<'_>,
) -> Result<Vec<Vec<Batch>>, Refusal> {
    fn state(start: &TaskStart) -> Option<&TaskState> {
        match start {
            TaskStart::Restored(state) => Some(state),
            TaskStart::Fresh(_) => None,
        }
    }
    // Whatever mechanism has taken the checkpoint: it may have been another one.
    let has_any = |state: &TaskState| {
        !(state.in_flight.inputs.is_empty() && state.in_flight.outputs.is_empty())
    };
    let Some(metadata) = origin.checkpoint else { return Ok(Vec::new()) };
    if !starts.iter().filter_map(state).any(has_any) {
        return Ok(Vec::new());
    }
    let states: Vec<TaskState> = starts.iter().filter_map(state).cloned().collect();
    let first = job.graph().source_tasks().first().copied().unwrap_or_default();
    job.in_flight(&states).map_err(|error| {
        (first, damaged(origin.store, StoreKey::Metadata(metadata.checkpoint), &error))
    })
}

/// How many elements a channel holds.
pub(super) fn elements_max(job: &Job) -> usize {
    job.config().channel_batches.max(1)
}

fn discover(job: &Job) -> Result<Vec<Option<SourceState>>, Refusal> {
    let first = job.graph().source_tasks().first().copied().unwrap_or_default();
    guard::catch(|| job.discover().map_err(|error: SourceError| error.into()))
        .map_err(|error| (first, error))
}

/// The key of every source task's reservation, in key order.
pub(super) fn reservation_keys(graph: &PhysicalGraph) -> Vec<(StoreKey, TaskId)> {
    let key_of = |task| {
        let (vertex, subtask): (VertexId, SubtaskIndex) = graph.place_of(task);
        (StoreKey::Reservation { vertex, subtask }, task)
    };
    graph.source_tasks().into_iter().map(key_of).collect()
}

fn put(store: &dyn CheckpointStore, key: StoreKey, value: &StoreValue) -> Result<(), TaskError> {
    match writer::put(store, Compression::None, key, value) {
        StoreOutcome::Stored(_) => Ok(()),
        StoreOutcome::Failed(text) | StoreOutcome::Unknown(text) => Err(TaskError::External(text)),
    }
}

fn read_state(handle: &StateHandle, store: &dyn CheckpointStore) -> Result<TaskState, TaskError> {
    let bytes = read(store, handle.key)?;
    codec::open(Kind::State, &bytes).map_err(|error| damaged(store, handle.key, &error)).and_then(
        |state| match handle.matches(&bytes) {
            true => Ok(state),
            false => Err(damaged(store, handle.key, "it is not the file that was written")),
        },
    )
}

fn read(store: &dyn CheckpointStore, key: StoreKey) -> Result<Vec<u8>, TaskError> {
    match store.get(key) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(damaged(store, key, "it is missing")),
        Err(error) => Err(unusable(&error)),
    }
}

/// What can not be read or removed, be it a folder in the place of a file, is there still when it
/// is tried again.
fn unusable(error: &StoreError) -> TaskError {
    TaskError::Restore(error.to_string())
}

fn damaged(store: &dyn CheckpointStore, key: StoreKey, why: impl std::fmt::Display) -> TaskError {
    TaskError::Restore(format!("{}: {why}", store.place_of(key)))
}

fn external(task: TaskId, error: impl std::fmt::Display) -> Refusal {
    (task, TaskError::External(error.to_string()))
}
