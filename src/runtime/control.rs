//! Saying something to a job that runs, from any thread: that a savepoint is wanted.
//!
//! A savepoint is the copy of a checkpoint that is triggered for it. An order is answered once,
//! whatever happens: when its savepoint is written, when it can not be, or when the job has ended.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::id::CheckpointId;
use crate::runtime::options::RunError;
use crate::runtime::savepoint::SavepointNote;

/// One end, to talk through, and the other one, which goes into
/// [`RunOptions::orders`](super::RunOptions::orders).
pub fn control() -> (JobHandle, Orders) {
    let (handle, orders) = mpsc::channel();
    (JobHandle(handle), Orders(orders))
}

/// Talks to one run. Copies of it do the same.
#[derive(Clone, Debug)]
pub struct JobHandle(Sender<Order>);

/// What was said to a run.
#[derive(Debug)]
pub struct Orders(Receiver<Order>);

/// A savepoint that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavepointOrder {
    /// The folder of the savepoint, which is made.
    pub folder: PathBuf,
    /// What the job does then.
    pub then: AfterSavepoint,
    /// To be left beside it.
    pub note: Option<SavepointNote>,
}

/// What a job does when its savepoint is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSavepoint {
    /// It goes on.
    GoOn,
    /// It ends there: the sources read nothing more, and all that came before is committed.
    Stop,
    /// Its data ends there, ahead of the savepoint: all event-time timers fire. Nothing can go on
    /// from such a savepoint (rule 104).
    Drain,
}

/// An order on its way, with whoever waits for its end.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) savepoint: SavepointOrder,
    answer: Sender<Answer>,
}

/// The checkpoint that the savepoint is a copy of.
type Answer = Result<CheckpointId, RunError>;

/// Waits for a savepoint.
#[derive(Debug)]
pub struct AwaitedSavepoint(Receiver<Answer>);

impl JobHandle {
    /// Orders a savepoint, which the job begins with at once.
    pub fn take_savepoint(&self, savepoint: SavepointOrder) -> AwaitedSavepoint {
        let (answer, awaited) = mpsc::channel();
        // If the run has ended the answer's end is dropped here, which is an answer.
        let _ = self.0.send(Order { savepoint, answer });
        AwaitedSavepoint(awaited)
    }
}

impl AwaitedSavepoint {
    /// The answer, if it comes in time.
    ///
    /// # Errors
    /// If the savepoint can not be written, or the job ends without it.
    pub fn wait(&self, within: Duration) -> Result<Option<CheckpointId>, RunError> {
        match self.0.recv_timeout(within) {
            Ok(answer) => answer.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunError::Savepoint("the run has ended without it".to_owned()))
            }
        }
    }
}

impl Orders {
    pub(super) fn next(&self) -> Option<Order> {
        self.0.try_recv().ok()
    }
}

impl Order {
    pub(super) fn answer(self, answer: Answer) {
        // Whoever has stopped waiting needs none.
        let _ = self.answer.send(answer);
    }
}

/// The orders that are not answered yet.
#[derive(Default)]
pub(super) struct Desk {
    waiting: Vec<Waiting>,
}

struct Waiting {
    order: Order,
    /// The checkpoint that was triggered after the order came and has not failed.
    covered: Option<CheckpointId>,
}

impl Desk {
    pub(super) fn take_in(&mut self, order: Order) {
        self.waiting.push(Waiting { order, covered: None });
    }

    /// Whether the job is to go on until a checkpoint is triggered for somebody.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.goes_on() && waiting.covered.is_none())
    }

    /// Whether the job is to stop, or its data to end.
    pub(super) fn wants(&self, then: AfterSavepoint) -> bool {
        self.waiting.iter().any(|waiting| waiting.order.savepoint.then == then)
    }

    pub(super) fn triggered(&mut self, checkpoint: CheckpointId) {
        for waiting in &mut self.waiting {
            waiting.covered.get_or_insert(checkpoint);
        }
    }

    pub(super) fn aborted(&mut self, checkpoint: CheckpointId) {
        for waiting in &mut self.waiting {
            waiting.covered.take_if(|covered| *covered == checkpoint);
        }
    }

    /// The orders that a complete checkpoint fulfils while the job goes on.
    pub(super) fn fulfilled(&mut self, latest: Option<CheckpointId>) -> Vec<Order> {
        let is_due = |waiting: &mut Waiting| {
            waiting.goes_on() && waiting.covered.is_some() && waiting.covered <= latest
        };
        self.waiting.extract_if(.., is_due).map(|waiting| waiting.order).collect()
    }

    /// All of them: the job has ended.
    pub(super) fn close(&mut self) -> Vec<Order> {
        self.waiting.drain(..).map(|waiting| waiting.order).collect()
    }
}

impl Waiting {
    fn goes_on(&self) -> bool {
        self.order.savepoint.then == AfterSavepoint::GoOn
    }
}
