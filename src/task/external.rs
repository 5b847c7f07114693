//! Keyed state that lives outside of its task: the task works on a copy in memory, and has the
//! store of the state hold each change before anything that came of it leaves. No snapshot holds
//! it.
//!
//! It does not know what the store does when a failure takes the task back to a checkpoint. One
//! that keeps only the newest value goes on from there, ahead of the positions of the sources. One
//! that keeps beside each value the checkpoint that it follows can take back what follows the
//! restored one; checkpoints are numbered by the coordinator, so a later attempt reads the numbers
//! as they were meant.

use super::{Task, TaskOutput};
use crate::state::RestoreError;
use crate::state::snapshot::OperatorState;
use crate::state::store::SavedState;

impl Task {
    /// Takes over what the store of keyed state holds of the task. To be called before anything
    /// else is.
    ///
    /// # Errors
    /// If it is not this task's state.
    pub fn restore_saved(&mut self, operators: &[OperatorState]) -> Result<(), RestoreError> {
        self.stage.restore(operators)
    }

    /// Has the store hold the state as it is now, if it lives there.
    pub(super) fn save(&mut self) {
        if !self.is_external {
            return;
        }
        let operators = self.stage.snapshot();
        if !operators.is_empty() {
            let (follows, completed) = (self.latest, self.completed);
            let saved = SavedState { follows, completed, operators };
            self.outputs.push_back(TaskOutput::Save(saved));
        }
    }
}
