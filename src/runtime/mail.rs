//! What the threads of a run say to each other, records aside.
//!
//! # No wake-up is lost
//! A worker that finds nothing to do parks. Whoever gives it something - an element, room in a
//! channel, a message, a reply - first makes that visible (in a queue) and then unparks it. If the
//! worker looked at the queue before that, the unpark comes after the look: either the worker is
//! parked and wakes, or it is about to park and finds the token that `unpark` left, so that `park`
//! returns at once. In both cases it looks at every queue again, and `unpark` happens before the
//! return of that `park`, so that it sees what was put there. Workers collect whom they have given
//! something during a turn and unpark each once at its end, before they could park themselves; so
//! nothing given stays unannounced by a worker that sleeps.

use std::sync::mpsc::Sender;
use std::thread::Thread;

use crate::id::{AttemptId, TaskId};
use crate::message::{TaskMessage, ToPeer, ToTask};
use crate::runtime::slot::Slot;
use crate::storage::StoreReply;

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
    pub(super) thread: Thread,
}

impl WorkerAddress {
    /// Leaves a message and wakes the worker. A worker that has ended needs none.
    pub(super) fn send(&self, message: ToWorker) {
        if self.mail.send(message).is_ok() {
            self.thread.unpark();
        }
    }
}
