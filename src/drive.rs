//! The one mutate-then-drain loop that every driver calls: after each change of a machine its
//! outputs are carried out in their order, until there is none. What carrying out means is the
//! driver's affair; that nothing is left out, doubled or reordered is settled here.

use std::time::Duration;

use crate::coordinator::{Coordinator, CoordinatorNote, CoordinatorOutput, JobError};
use crate::element::{Barrier, Batch, Element};
use crate::id::{AttemptId, ChannelIndex, CheckpointId, OutletIndex, TaskId, VertexId};
use crate::message::{FromTask, ToPeer, ToTask};
use crate::operator::queue::Acknowledgement;
use crate::operator::sink::SinkRequest;
use crate::operator::source::ReadRequest;
use crate::state::store::SavedState;
use crate::storage::{CheckpointMetadata, StoreRequest};
use crate::task::{Task, TaskOutput};
use crate::time::{Instant, ProcessingTime};

/// Carries out what one task asks for: a method for each [`TaskOutput`].
pub trait TaskDriver {
    /// See [`TaskOutput::Send`].
    fn send(&mut self, outlet: OutletIndex, element: Element);
    /// See [`TaskOutput::Send`], of a barrier. Returns what it has overtaken, or nothing if it
    /// waits for room itself: then the driver says so later ([`Task::handle_barrier_sent`]).
    fn send_barrier(&mut self, outlet: OutletIndex, barrier: Barrier) -> Option<Vec<Batch>>;
    /// See [`TaskOutput::Hurry`]. Returns what the barrier has overtaken, or nothing if it has been
    /// sent before.
    fn hurry(&mut self, outlet: OutletIndex, checkpoint: CheckpointId) -> Option<Vec<Batch>>;
    /// See [`TaskOutput::Overtake`]. Takes the barrier out of the channel; returns it with copies
    /// of the records before it.
    fn overtake(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
    ) -> Option<(Barrier, Vec<Batch>)>;
    /// See [`TaskOutput::WaitUntil`].
    fn wait_until(&mut self, at: Instant);
    /// See [`TaskOutput::WakeAt`].
    fn wake_at(&mut self, at: ProcessingTime);
    /// See [`TaskOutput::Block`].
    fn block(&mut self, channel: ChannelIndex);
    /// See [`TaskOutput::Unblock`].
    fn unblock(&mut self, channel: ChannelIndex);
    /// See [`TaskOutput::Report`].
    fn report(&mut self, message: FromTask);
    /// See [`TaskOutput::Store`].
    fn store(&mut self, request: StoreRequest);
    /// See [`TaskOutput::Save`].
    fn save(&mut self, state: SavedState);
    /// See [`TaskOutput::Read`].
    fn read(&mut self, request: ReadRequest);
    /// See [`TaskOutput::Acknowledge`]. Gives back what the queue has confirmed by now, if it has.
    fn acknowledge(&mut self, told: Acknowledgement) -> Option<Acknowledgement>;
    /// See [`TaskOutput::Sink`].
    fn sink(&mut self, request: SinkRequest);
    /// See [`TaskOutput::Tell`].
    fn tell(&mut self, to: TaskId, message: ToPeer);
    /// See [`TaskOutput::Alarm`].
    fn alarm(&mut self, after: Duration);
}

/// Carries out all that `task` asks for by now.
pub fn drain(task: &mut Task, driver: &mut impl TaskDriver) {
    while let Some(output) = task.poll_output() {
        match output {
            TaskOutput::Send(outlet, Element::Barrier(barrier)) => {
                if let Some(overtaken) = driver.send_barrier(outlet, barrier) {
                    task.handle_barrier_sent(outlet, barrier.checkpoint, overtaken);
                }
            }
            TaskOutput::Send(outlet, element) => driver.send(outlet, element),
            TaskOutput::Cut(_) => {}
            TaskOutput::Hurry(outlet, checkpoint) => {
                if let Some(overtaken) = driver.hurry(outlet, checkpoint) {
                    task.handle_barrier_sent(outlet, checkpoint, overtaken);
                }
            }
            TaskOutput::Overtake(channel, checkpoint) => {
                if let Some((barrier, overtaken)) = driver.overtake(channel, checkpoint) {
                    task.handle_overtaking(channel, barrier, overtaken);
                }
            }
            TaskOutput::WaitUntil(at) => driver.wait_until(at),
            TaskOutput::WakeAt(at) => driver.wake_at(at),
            TaskOutput::Block(channel) => driver.block(channel),
            TaskOutput::Unblock(channel) => driver.unblock(channel),
            TaskOutput::Report(message) => driver.report(message),
            TaskOutput::Store(request) => driver.store(request),
            TaskOutput::Save(state) => driver.save(state),
            TaskOutput::Read(request) => driver.read(request),
            TaskOutput::Acknowledge(told) => {
                if let Some(confirmed) = driver.acknowledge(told) {
                    task.handle_confirmed(&confirmed);
                }
            }
            TaskOutput::Sink(request) => driver.sink(request),
            TaskOutput::Tell(to, message) => driver.tell(to, message),
            TaskOutput::Alarm(after) => driver.alarm(after),
        }
    }
}

/// Carries out what the coordinator asks for: a method for each [`CoordinatorOutput`].
pub trait CoordinatorDriver {
    /// See [`CoordinatorOutput::Send`].
    fn send(&mut self, task: TaskId, attempt: AttemptId, message: ToTask);
    /// See [`CoordinatorOutput::Store`].
    fn store(&mut self, request: StoreRequest);
    /// See [`CoordinatorOutput::Deploy`].
    fn deploy(&mut self, attempt: AttemptId, restore: Option<CheckpointMetadata>, halts: bool);
    /// See [`CoordinatorOutput::Search`].
    fn search(&mut self, source: VertexId, known: u32);
    /// See [`CoordinatorOutput::Cancel`].
    fn cancel(&mut self, attempt: AttemptId);
    /// See [`CoordinatorOutput::WaitUntil`].
    fn wait_until(&mut self, deadline: Instant);
    /// See [`CoordinatorOutput::Note`].
    fn note(&mut self, note: CoordinatorNote);
    /// See [`CoordinatorOutput::Finished`] and [`CoordinatorOutput::Failed`].
    fn end(&mut self, outcome: Result<(), JobError>);
}

/// Carries out all that `coordinator` asks for by now.
pub fn drain_coordinator(coordinator: &mut Coordinator, driver: &mut impl CoordinatorDriver) {
    while let Some(output) = coordinator.poll_output() {
        match output {
            CoordinatorOutput::Send { task, attempt, message } => {
                driver.send(task, attempt, message);
            }
            CoordinatorOutput::Store(request) => driver.store(request),
            CoordinatorOutput::Deploy { attempt, restore, halts } => {
                driver.deploy(attempt, restore, halts);
            }
            CoordinatorOutput::Search { source, known } => driver.search(source, known),
            CoordinatorOutput::Cancel(attempt) => driver.cancel(attempt),
            CoordinatorOutput::WaitUntil(deadline) => driver.wait_until(deadline),
            CoordinatorOutput::Note(note) => driver.note(note),
            CoordinatorOutput::Finished => driver.end(Ok(())),
            CoordinatorOutput::Failed(error) => driver.end(Err(error)),
        }
    }
}
