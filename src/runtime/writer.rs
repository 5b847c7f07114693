//! The thread that encodes and writes: no worker waits for a disk. Requests are carried out in the
//! order in which they come.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use crate::id::{AttemptId, TaskId};
use crate::message::TaskError;
use crate::runtime::guard;
use crate::runtime::mail::{ToCoordinator, ToWorker, WorkerAddress};
use crate::runtime::store::{CheckpointStore, PutError};
use crate::state::codec::Compression;
use crate::state::snapshot::Extent;
use crate::storage::{StateHandle, StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue};

/// A request and who hears of it.
pub(super) struct WriteOrder {
    pub(super) request: StoreRequest,
    pub(super) asker: Asker,
}

/// Who asked.
#[derive(Clone, Copy)]
pub(super) enum Asker {
    Coordinator,
    Task { worker: usize, attempt: AttemptId, task: TaskId },
}

/// Carries requests out until nobody is left to send any.
pub(super) fn run(
    orders: &Receiver<WriteOrder>,
    store: &Arc<dyn CheckpointStore>,
    compression: Compression,
    coordinator: &Sender<ToCoordinator>,
    workers: &[WorkerAddress],
) {
    for WriteOrder { request, asker } in orders {
        let (key, value) = match request {
            StoreRequest::Put { key, value } => (key, value),
            StoreRequest::Discard(checkpoint) => {
                // Best effort: what is left is incomplete and is cleaned away at the next start.
                let _ = store.discard(checkpoint);
                continue;
            }
        };
        let reply = StoreReply { key, outcome: put(store.as_ref(), compression, key, &value) };
        match asker {
            // Whoever is gone needs no answer.
            Asker::Coordinator => drop(coordinator.send(ToCoordinator::Stored(reply))),
            Asker::Task { worker, attempt, task } => {
                complain(task, &reply, coordinator);
                workers[worker].send(ToWorker::Stored { attempt, task, reply });
            }
        }
    }
}

/// Tells people why a task's part is not stored: the protocol has no words for it.
pub(super) fn complain(task: TaskId, reply: &StoreReply, coordinator: &Sender<ToCoordinator>) {
    match &reply.outcome {
        StoreOutcome::Stored(_) => {}
        StoreOutcome::Failed(text) | StoreOutcome::Unknown(text) => {
            let text = text.clone();
            // Whoever is gone needs no answer.
            let _ = coordinator.send(ToCoordinator::NotStored { task, text });
        }
    }
}

/// Encodes and writes a value; compressed if it is a part of a checkpoint.
pub(super) fn put(
    store: &dyn CheckpointStore,
    compression: Compression,
    key: StoreKey,
    value: &StoreValue,
) -> StoreOutcome {
    let outcome = guard::catch(|| {
        let bytes = match value {
            StoreValue::State(_) => compression.apply(value.encode()),
            StoreValue::Metadata(_)
            | StoreValue::Reservation(_)
            | StoreValue::Progress(..)
            | StoreValue::Attempt(_) => value.encode(),
        };
        let handle = StateHandle::of(key, &bytes);
        let written = match value {
            StoreValue::Progress(_, Extent::Changes) => store.append(key, &bytes),
            StoreValue::Progress(_, Extent::Whole)
            | StoreValue::State(_)
            | StoreValue::Metadata(_)
            | StoreValue::Reservation(_)
            | StoreValue::Attempt(_) => store.put(key, &bytes),
        };
        Ok(match written {
            Ok(()) => StoreOutcome::Stored(handle),
            Err(PutError::Failed(text)) => StoreOutcome::Failed(text),
            Err(PutError::Unknown(text)) => StoreOutcome::Unknown(text),
        })
    });
    outcome.unwrap_or_else(|error: TaskError| StoreOutcome::Unknown(error.to_string()))
}
