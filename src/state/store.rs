//! The contract of a store of keyed state that lives outside of its tasks.
//!
//! A store that rolls back keeps beside each value the checkpoint that it follows, and earlier
//! values with theirs; the other keeps the newest value. It does not know what the values mean, nor
//! what a checkpoint is: only that their numbers increase.

use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::message::TaskError;
use crate::state::snapshot::{OperatorSnapshot, OperatorState};

/// All keyed state of a task that lives outside.
#[derive(Clone, Debug)]
pub struct SavedState {
    /// The newest checkpoint that the task had cut or given up: the state is not part of it.
    pub follows: Option<CheckpointId>,
    /// The newest checkpoint that the task knows to be complete: nothing before it will be
    /// restored.
    pub completed: Option<CheckpointId>,
    /// What its operators hold.
    pub operators: Vec<OperatorSnapshot>,
}

/// The cut that a task is restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The checkpoint that it was made for.
    pub checkpoint: CheckpointId,
    /// The attempt that made it: numbers of checkpoints that did not complete are used again.
    pub attempt: AttemptId,
}

/// A store of keyed state.
pub trait StateStore: Send + Sync {
    /// Opens what belongs to a task, and fences its older attempts. A store that rolls back takes
    /// back all that follows `restored`, or everything if the task begins at the start.
    ///
    /// # Errors
    /// If the store can not be reached, a newer attempt has opened it, it has given up what it
    /// held at `restored`, or it does not know of that cut: then it lacks what was saved before.
    fn open(
        &self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<Cut>,
    ) -> Result<OpenedState, StateStoreError>;
}

/// What a task begins with.
pub struct OpenedState {
    /// Takes what the task saves.
    pub saver: Box<dyn StateSaver>,
    /// What the store holds.
    pub operators: Vec<OperatorState>,
}

/// The part of a store that one attempt of a task has opened.
pub trait StateSaver: Send {
    /// Holds `state` durably in place of what is held; all of it or nothing.
    ///
    /// # Errors
    /// If the store can not be reached, or a newer attempt has opened it.
    fn save(&mut self, state: &SavedState) -> Result<(), StateStoreError>;

    /// Notes durably that the task has made its cut for `checkpoint`. Called before the task's part
    /// of the checkpoint is stored, so that a store which lacks the note is older than the
    /// checkpoint that is to rest on it.
    ///
    /// # Errors
    /// As [`Self::save`].
    fn note_cut(&mut self, checkpoint: CheckpointId) -> Result<(), StateStoreError>;
}

impl From<StateStoreError> for TaskError {
    fn from(error: StateStoreError) -> Self {
        match error {
            StateStoreError::Refused(text) => Self::External(text),
            StateStoreError::Gone(text) => Self::Restore(text),
        }
    }
}

/// Why a store of keyed state did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateStoreError {
    /// It could not be reached or did not want to. Another try may help.
    #[error("{0}")]
    Refused(String),
    /// It does not hold what is to be restored. Another try will not help.
    #[error("{0}")]
    Gone(String),
}
