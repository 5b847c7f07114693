//! A store of state that is far away: each access takes as long as a way there and back would.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::state::store::{
    Cut, OpenedState, SavedState, StateSaver, StateStore, StateStoreError,
};

/// A store with a way to it.
pub(crate) struct Distant {
    store: Arc<dyn StateStore>,
    way: Duration,
}

/// What one attempt of a task has opened of it.
struct DistantSaver {
    saver: Box<dyn StateSaver>,
    way: Duration,
}

impl Distant {
    /// `store`, each access to which takes `way` more.
    pub(crate) fn new(store: Arc<dyn StateStore>, way: Duration) -> Self {
        Self { store, way }
    }
}

impl StateStore for Distant {
    fn open(
        &self,
        task: TaskId,
        attempt: AttemptId,
        restored: Option<Cut>,
    ) -> Result<OpenedState, StateStoreError> {
        thread::sleep(self.way);
        let OpenedState { saver, operators } = self.store.open(task, attempt, restored)?;
        Ok(OpenedState { saver: Box::new(DistantSaver { saver, way: self.way }), operators })
    }
}

impl StateSaver for DistantSaver {
    fn save(&mut self, state: &SavedState) -> Result<(), StateStoreError> {
        thread::sleep(self.way);
        self.saver.save(state)
    }

    fn note_cut(&mut self, checkpoint: CheckpointId) -> Result<(), StateStoreError> {
        thread::sleep(self.way);
        self.saver.note_cut(checkpoint)
    }
}
