//! What the threads of a run say to each other, records aside.
//!
//! # No wake-up is lost
//! A worker that finds nothing to do sleeps. Whoever gives it something - an element, room in a
//! channel for which it waits, a message, a reply - first makes that visible (in a queue) and then
//! unparks it; [`crate::sync::park`] says why that is enough. Workers collect whom they have given
//! something during a turn and unpark each once at its end, before they could sleep themselves; so
//! nothing given stays unannounced by a worker that sleeps. Not earlier: one that wakes finds more
//! to do the later it is woken, and a turn is short.

use std::sync::mpsc::Sender;

use crate::id::{AttemptId, TaskId};
use crate::message::{TaskMessage, ToPeer, ToTask};
use crate::runtime::slot::Slot;
use crate::storage::StoreReply;
use crate::sync::park::Unparker;

/// To a worker.
pub(super) enum ToWorker {
    /// Run these tasks, with so many queues between them.
    Deploy { attempt: AttemptId, slots: Vec<Slot>, queues: usize },
    /// Drop all tasks of the attempt, and say so.
    Cancel(AttemptId),
    /// The coordinator has something to say to a task.
    Message { attempt: AttemptId, task: TaskId, message: ToTask },
    /// A task of the attempt has something to say to another.
    Told { attempt: AttemptId, task: TaskId, message: ToPeer },
    /// The store has answered a task.
    Stored { attempt: AttemptId, task: TaskId, reply: StoreReply },
    /// End.
    Quit,
}

/// To the coordinator's thread.
pub(super) enum ToCoordinator {
    /// A task says something.
    Message(TaskMessage),
    /// The store has answered the coordinator.
    Stored(StoreReply),
    /// The store does not hold what a task has asked it to.
    NotStored { task: TaskId, text: String },
    /// A worker has dropped all tasks of the attempt.
    Cancelled(AttemptId),
    /// A worker has died of a bug of the engine.
    Died,
}

/// How to reach a worker.
#[derive(Clone)]
pub(super) struct WorkerAddress {
    pub(super) mail: Sender<ToWorker>,
    pub(super) unparker: Unparker,
}

impl WorkerAddress {
    /// Leaves a message and wakes the worker. A worker that has ended needs none.
    pub(super) fn send(&self, message: ToWorker) {
        if self.mail.send(message).is_ok() {
            self.unparker.unpark();
        }
    }
}
