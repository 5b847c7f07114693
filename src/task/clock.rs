//! What the clock of the machine says: the driver tells it, to tasks with an operator that uses it.

use super::{Phase, Task, TaskOutput};
use crate::time::ProcessingTime;

/// What a task knows of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    now: ProcessingTime,
    /// What the driver was asked for last, if that has not come yet.
    wake_at: Option<ProcessingTime>,
}

impl Clock {
    pub(super) const fn new() -> Self {
        Self { now: ProcessingTime::MIN, wake_at: None }
    }
}

impl Task {
    /// Whether it is to be told what the clock says.
    pub fn uses_clock(&self) -> bool {
        self.clock.is_some()
    }

    /// What the clock of the machine says. To be called before records are handed in, and when
    /// [`TaskOutput::WakeAt`] says so. A task that takes no input at the moment, or has been cut
    /// for good, does not heed it: then it is to be told again when it takes input.
    pub fn handle_clock(&mut self, now: ProcessingTime) {
        if self.phase != Phase::AwaitingRecords || self.stops || self.holds_enough() {
            return;
        }
        let Some(clock) = &mut self.clock else { return };
        clock.now = clock.now.max(now);
        let is_due = clock.wake_at.take_if(|at| *at <= clock.now).is_some();
        let out = self.stage.on_clock(clock.now);
        if is_due {
            self.save();
            self.send_on(out);
            self.note_change();
        }
        self.ask_for_wake();
    }

    /// Asks to be told when the next timer is due.
    pub(super) fn ask_for_wake(&mut self) {
        let Some(clock) = &mut self.clock else { return };
        if let Some(at) = self.stage.next_wake()
            && clock.wake_at.is_none_or(|other| at < other)
        {
            clock.wake_at = Some(at);
            self.outputs.push_back(TaskOutput::WakeAt(at));
        }
    }

    /// The job does not stop at the last cut, or not any more.
    pub(super) fn go_on_with_clock(&mut self) {
        if std::mem::take(&mut self.stops)
            && let Some(clock) = &mut self.clock
        {
            clock.wake_at = None;
            self.ask_for_wake();
        }
    }

    /// The operators have begun anew.
    pub(super) fn tell_clock_again(&mut self) {
        if let Some(clock) = &self.clock {
            self.stage.on_clock(clock.now);
        }
    }
}
