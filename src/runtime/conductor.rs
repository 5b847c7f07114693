//! The coordinator's driver: carries out on the calling thread what the coordinator asks for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::coordinator::{Coordinator, CoordinatorNote, JobError};
use crate::drive::{CoordinatorDriver, drain_coordinator};
use crate::guarantee::Mechanism;
use crate::id::{AttemptId, CheckpointId, SplitId, TaskId, VertexId};
use crate::job::{Job, TaskStart};
use crate::message::{Found, FromTask, TaskError, TaskMessage, ToTask};
use crate::runtime::control::{AfterSavepoint, Desk, Orders, SavepointOrder};
use crate::runtime::deploy::{self, Cargo, Origin, Refusal};
use crate::runtime::guard;
use crate::runtime::mail::{ToCoordinator, ToWorker, WorkerAddress};
use crate::runtime::options::{CheckpointFigures, RunError, RunEvent, RunReport, StopAt};
use crate::runtime::savepoint::{self, Savepoint};
use crate::runtime::slot::Counters;
use crate::runtime::store::CheckpointStore;
use crate::runtime::throttle::Throttle;
use crate::runtime::writer::{Asker, WriteOrder};
use crate::state::snapshot::SourceState;
use crate::state::store::{Cut, StateStore};
use crate::storage::{CheckpointMetadata, StoreRequest, StoreValue};
use crate::time::Instant;

pub(super) struct Conductor<'a> {
    pub(super) job: &'a Job,
    pub(super) store: Arc<dyn CheckpointStore>,
    /// If keyed state lives outside.
    pub(super) state_store: Option<Arc<dyn StateStore>>,
    pub(super) workers: Vec<WorkerAddress>,
    pub(super) writer: Sender<WriteOrder>,
    pub(super) counters: Arc<Counters>,
    pub(super) observer: Box<dyn FnMut(RunEvent<'_>)>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) stop_at: Option<StopAt>,
    pub(super) orders: Option<Orders>,
    pub(super) throttle: Arc<Throttle>,
    pub(super) started: std::time::Instant,
    pub(super) progress: Progress,
}

/// What changes while a job is conducted.
#[derive(Default)]
pub(super) struct Progress {
    deadline: Option<Instant>,
    /// A task that could not be put together: told to the coordinator as its failure.
    refused: Option<TaskMessage>,
    /// The searches for splits that were asked for.
    searches: Vec<Search>,
    /// The workers that have not yet confirmed the cancellation.
    cancelling: usize,
    outcome: Option<Result<(), JobError>>,
    /// How many records lie before the positions where the run began.
    first: Option<u64>,
    /// The bytes of checkpoints whose metadata is being written.
    bytes: BTreeMap<CheckpointId, u64>,
    /// How many records each source task has lost of each split.
    lost: BTreeMap<(TaskId, SplitId), u64>,
    /// What the store said last of a task's part that it does not hold.
    not_stored: Option<String>,
    desk: Desk,
    figures: CheckpointFigures,
}

/// A search for splits behind the first `known` ones.
struct Search {
    source: VertexId,
    known: u32,
    /// It is not to be made before.
    from: Instant,
}

impl Conductor<'_> {
    /// Conducts the job to its end.
    pub(super) fn run(
        mut self,
        mut coordinator: Coordinator,
        mail: &Receiver<ToCoordinator>,
    ) -> Result<RunReport, RunError> {
        loop {
            drain_coordinator(&mut coordinator, &mut self);
            if let Some(message) = self.progress.refused.take() {
                coordinator.handle_message(self.now(), message);
                continue;
            }
            if let Some(outcome) = self.progress.outcome.take() {
                outcome.map_err(|error| self.explained(error))?;
                self.write_last_savepoints(&coordinator)?;
                return Ok(self.report(&coordinator));
            }
            self.write_savepoints(&coordinator);
            if self.search_for_splits(&mut coordinator) {
                continue;
            }
            let received = mail.recv_timeout(self.patience());
            self.handle(&mut coordinator, received);
        }
    }

    fn handle(
        &mut self,
        coordinator: &mut Coordinator,
        received: Result<ToCoordinator, RecvTimeoutError>,
    ) {
        let now = self.now();
        match received {
            Ok(ToCoordinator::Message(message)) => coordinator.handle_message(now, message),
            Ok(ToCoordinator::Stored(reply)) => coordinator.handle_stored(now, reply),
            Ok(ToCoordinator::NotStored { task, text }) => self.tell_not_stored(task, &text),
            Ok(ToCoordinator::Cancelled(attempt)) => {
                self.progress.cancelling -= 1;
                if self.progress.cancelling == 0 {
                    coordinator.handle_cancelled(now, attempt);
                }
            }
            Ok(ToCoordinator::Died) => panic!("a worker died: this is a bug of cofferdam"),
            Err(RecvTimeoutError::Timeout) => self.tell_progress(),
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("the workers hold the other end and are asked to quit later")
            }
        }
        if self.progress.deadline.is_some_and(|deadline| deadline <= now) {
            // A deadline is told once; if it still stands afterwards it is told again.
            self.progress.deadline = None;
            coordinator.handle_time(now);
        }
        if self.stop.load(Ordering::Relaxed) {
            coordinator.cancel(now);
        }
        let is_spent =
            self.stop_at.as_ref().is_some_and(|stop| !stop.drains) && self.throttle.is_spent();
        self.heed_orders();
        if is_spent || self.progress.desk.wants(AfterSavepoint::Stop) {
            coordinator.stop(now);
        } else if self.progress.desk.wants_checkpoint() {
            coordinator.take_checkpoint(now);
        }
    }

    /// Makes the searches that are due; whether the coordinator has been told of one. One that
    /// finds nothing is made again after a pause.
    fn search_for_splits(&mut self, coordinator: &mut Coordinator) -> bool {
        let now = self.now();
        let mut has_told = false;
        let due = |search: &mut Search| search.from <= now;
        let searches: Vec<Search> = self.progress.searches.extract_if(.., due).collect();
        for Search { source, known, .. } in searches {
            let client = self.job.source(source);
            let mut client = client.expect("only a vertex with a source is searched");
            match guard::catch(|| client.search(known).map_err(TaskError::from)) {
                Ok(Found::Nothing) => {
                    self.progress.searches.push(Search { source, known, from: now + GLANCE });
                }
                found => {
                    coordinator.handle_found(now, source, found);
                    has_told = true;
                }
            }
        }
        has_told
    }

    fn now(&self) -> Instant {
        let nanos = self.started.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long to wait for mail: until the deadline, but not too long to see the stop flag.
    fn patience(&self) -> Duration {
        let left = self.progress.deadline.map(|deadline| deadline - self.now());
        left.map_or(GLANCE, |left| left.min(GLANCE))
    }

    fn tell_progress(&mut self) {
        (self.observer)(RunEvent::Progress {
            records_in: self.counters.records_in.load(Ordering::Relaxed),
            records_out: self.counters.records_out.load(Ordering::Relaxed),
        });
    }

    fn tell_not_stored(&mut self, task: TaskId, text: &str) {
        let uids = self.job.graph().vertex_of(task).uids.join(" -> ");
        let text = format!("what '{uids}' ({task}) has to store was not stored: {text}");
        (self.observer)(RunEvent::NotStored(&text));
        self.progress.not_stored = Some(text);
    }

    /// The end of a job that had too many failures, with what the store said if it may be to blame.
    fn explained(&self, error: JobError) -> RunError {
        match (RunError::from(error), &self.progress.not_stored) {
            (RunError::Failed(error), Some(text)) => RunError::Failed(format!("{error}: {text}")),
            (error, _) => error,
        }
    }

    /// Takes in what was said to the run.
    fn heed_orders(&mut self) {
        while let Some(order) = self.orders.as_ref().and_then(Orders::next) {
            match savepoint::check(self.job, &order.savepoint.folder) {
                Ok(()) => self.progress.desk.take_in(order),
                Err(error) => order.answer(Err(error)),
            }
        }
        if self.progress.desk.wants(AfterSavepoint::Drain) {
            self.throttle.end();
        }
    }

    /// Writes the savepoints for which a checkpoint is complete. It is done here, so that nobody
    /// discards the checkpoint meanwhile; the records do not wait.
    fn write_savepoints(&mut self, coordinator: &Coordinator) {
        let latest = coordinator.completed().last();
        for order in self.progress.desk.fulfilled(latest.map(|latest| latest.checkpoint)) {
            let written = self.write_savepoint(coordinator, &order.savepoint);
            order.answer(written);
        }
    }

    /// Writes the checkpoint that the job has ended at as all the savepoints that are wanted. All
    /// that was pending is committed by now.
    fn write_last_savepoints(&mut self, coordinator: &Coordinator) -> Result<(), RunError> {
        self.heed_orders();
        let mut outcome = Ok(());
        for order in self.progress.desk.close() {
            let written = self.write_savepoint(coordinator, &order.savepoint);
            if order.savepoint.then != AfterSavepoint::GoOn {
                outcome = outcome.and(written.clone().map(drop));
            }
            order.answer(written);
        }
        if let Some(StopAt { savepoint, .. }) = &self.stop_at {
            let (folder, then) = (savepoint.clone(), AfterSavepoint::Stop);
            let last = SavepointOrder { folder, then, note: None };
            self.write_savepoint(coordinator, &last)?;
        }
        outcome
    }

    fn write_savepoint(
        &self,
        coordinator: &Coordinator,
        wanted: &SavepointOrder,
    ) -> Result<CheckpointId, RunError> {
        let last = coordinator.completed().last();
        let last = last.expect("a checkpoint that was waited for is complete");
        let savepoint = Savepoint::of(self.job, self.store.as_ref(), last)?.committed();
        savepoint.write(&wanted.folder, wanted.note.as_ref())?;
        Ok(last.checkpoint)
    }

    fn report(self, coordinator: &Coordinator) -> RunReport {
        RunReport {
            records_in: self.counters.records_in.load(Ordering::Relaxed),
            records_out: self.counters.records_out.load(Ordering::Relaxed),
            records_lost: self.progress.lost.values().sum(),
            restarts: coordinator.stats().restarts,
            wall: self.started.elapsed(),
            checkpoints: CheckpointFigures {
                sync_max: Duration::from_nanos(self.counters.sync_max.load(Ordering::Relaxed)),
                ..self.progress.figures
            },
        }
    }

    /// Notes how many records lie before the positions where an attempt begins, and at the first
    /// one where the run does.
    fn count_read(&mut self, starts: &[TaskStart]) {
        let of_start = |start: &TaskStart| match start {
            TaskStart::Restored(state) => state.source.as_ref().map(SourceState::records),
            TaskStart::Fresh(source) => source.as_ref().map(SourceState::records),
        };
        let read: u64 = starts.iter().filter_map(of_start).sum();
        let first = *self.progress.first.get_or_insert(read);
        self.throttle.begin_behind(read.saturating_sub(first));
    }

    fn load(
        &mut self,
        attempt: AttemptId,
        restore: Option<&CheckpointMetadata>,
        halts: bool,
    ) -> Result<Vec<Cargo>, Refusal> {
        let starts = match restore {
            Some(metadata) => deploy::restored(self.job, metadata, self.store.as_ref())?,
            None => match self.job.config().mechanism {
                Mechanism::None | Mechanism::Acks => {
                    deploy::reserved(self.job, self.store.as_ref())?
                }
                Mechanism::Transactional => deploy::progressed(self.job, self.store.as_ref())?,
                Mechanism::Tracked
                | Mechanism::FullReplay
                | Mechanism::MiniBatch
                | Mechanism::Aligned
                | Mechanism::Unaligned
                | Mechanism::AlignedTimeout => deploy::fresh(self.job)?,
            },
        };
        self.count_read(&starts);
        let halts = restore.map(|metadata| metadata.checkpoint).filter(|_| halts);
        let restored = restore
            .map(|&CheckpointMetadata { checkpoint, attempt, .. }| Cut { checkpoint, attempt });
        let state_at = self.state_store.as_deref().map(|store| (store, restored));
        let origin = Origin { store: self.store.as_ref(), checkpoint: restore, halts };
        deploy::load(self.job, attempt, starts, &origin, self.workers.len(), state_at)
    }
}

impl CoordinatorDriver for Conductor<'_> {
    fn send(&mut self, task: TaskId, attempt: AttemptId, message: ToTask) {
        let (_, subtask) = self.job.graph().place_of(task);
        let worker = subtask.index() % self.workers.len();
        self.workers[worker].send(ToWorker::Message { attempt, task, message });
    }

    fn store(&mut self, request: StoreRequest) {
        if let StoreRequest::Put { value: StoreValue::Metadata(metadata), .. } = &request {
            let bytes = metadata.tasks.iter().map(|handle| handle.bytes).sum();
            self.progress.bytes.insert(metadata.checkpoint, bytes);
        }
        let order = WriteOrder { request, asker: Asker::Coordinator };
        self.writer.send(order).expect("the writer ends when nobody can send to it");
    }

    /// The writer has nothing of an earlier attempt left to do: it wrote this attempt's number
    /// last.
    fn deploy(&mut self, attempt: AttemptId, restore: Option<CheckpointMetadata>, halts: bool) {
        match self.load(attempt, restore.as_ref(), halts) {
            Ok(cargo) => {
                for (worker, Cargo { slots, queues }) in self.workers.iter().zip(cargo) {
                    worker.send(ToWorker::Deploy { attempt, slots, queues });
                }
            }
            Err((task, error)) => {
                let body = FromTask::Failed(error);
                self.progress.refused = Some(TaskMessage { task, attempt, body });
            }
        }
    }

    fn search(&mut self, source: VertexId, known: u32) {
        self.progress.searches.push(Search { source, known, from: Instant::ZERO });
    }

    fn cancel(&mut self, attempt: AttemptId) {
        self.progress.cancelling = self.workers.len();
        for worker in &self.workers {
            worker.send(ToWorker::Cancel(attempt));
        }
    }

    fn wait_until(&mut self, deadline: Instant) {
        self.progress.deadline = Some(deadline);
    }

    fn note(&mut self, note: CoordinatorNote) {
        if let CoordinatorNote::CheckpointCompleted { checkpoint, duration, .. } = note {
            let figures = &mut self.progress.figures;
            figures.count += 1;
            figures.duration += duration;
            figures.duration_max = figures.duration_max.max(duration);
            figures.bytes += self.progress.bytes.remove(&checkpoint).unwrap_or_default();
        }
        match note {
            CoordinatorNote::CheckpointTriggered(checkpoint) => {
                self.progress.desk.triggered(checkpoint);
            }
            CoordinatorNote::CheckpointAborted { checkpoint, .. } => {
                self.progress.desk.aborted(checkpoint);
            }
            CoordinatorNote::CheckpointCompleted { .. }
            | CoordinatorNote::AttemptNotStored { .. }
            | CoordinatorNote::RecordsLost { .. }
            | CoordinatorNote::AttemptFailed { .. }
            | CoordinatorNote::Restarting { .. } => {}
        }
        if let CoordinatorNote::RecordsLost { task, loss } = note {
            self.progress.lost.insert((task, loss.split), loss.in_all);
        }
        (self.observer)(RunEvent::Note(&note));
    }

    fn end(&mut self, outcome: Result<(), JobError>) {
        self.progress.outcome = Some(outcome);
    }
}

/// How often the stop flag is looked at, progress is told, and splits are searched for.
const GLANCE: Duration = Duration::from_millis(20);
