//! Broken variants of the operators' state: what a snapshot holds of it, and what a task that
//! begins again gets of that.

use std::collections::BTreeMap;

use cofferdam::id::TaskId;
use cofferdam::state::codec::Format;
use cofferdam::state::snapshot::{OperatorState, TaskSnapshot, TaskState};
use cofferdam::task::Task;

use super::{Interposer, Variant};

/// What each task's last snapshot held.
pub(super) type States = BTreeMap<TaskId, Vec<OperatorState>>;

impl Interposer {
    /// Puts other state into a snapshot that is on its way to the store.
    pub(super) fn spoil_state(&mut self, task: &Task, snapshot: &mut TaskSnapshot) {
        let later = [Variant::LaterStateInSnapshot, Variant::LaterWatermarkInSnapshot];
        if later.into_iter().any(|variant| self.is(variant)) {
            let now = task.clone().capture(snapshot.checkpoint);
            for (operator, now) in snapshot.operators.iter_mut().zip(now.operators) {
                match self.is(Variant::LaterStateInSnapshot) {
                    true => operator.keyed = now.keyed,
                    false => operator.watermark = now.watermark,
                }
            }
        }
        if self.is(Variant::UnchangedStateLeftOut) {
            let states = snapshot.operators.iter().map(|of| of.to_state(Format::Binary));
            let states: Vec<OperatorState> = states.collect();
            if self.states.get(&snapshot.task) == Some(&states) {
                snapshot.operators.clear();
            }
            self.states.insert(snapshot.task, states);
        }
    }

    /// Changes the state that a task is to begin with.
    pub(super) fn spoil_restored(&self, state: &mut TaskState) {
        for operator in &mut state.operators {
            if self.is(Variant::ClockTimersNotArmed) {
                operator.processing_timers = None;
            }
            if self.is(Variant::TimersCutShort) {
                let timers = [&mut operator.timers, &mut operator.processing_timers];
                timers.into_iter().flatten().for_each(|groups| groups.truncate(1));
            }
        }
    }
}
