//! The clock of the machine that processing time is read from: the virtual time, for all tasks the
//! same. It goes on while the job is down.

use cofferdam::id::{AttemptId, TaskId};
use cofferdam::time::{Instant, ProcessingTime};

use super::lineage::Lineage;
use super::{Life, World};

impl World {
    /// Tells a task what the clock says, if it uses it and takes input.
    pub(super) fn tell_clock(&mut self, id: TaskId, attempt: AttemptId) {
        let now = ProcessingTime::from_millis((self.now.as_nanos() / NANOS_PER_MILLI) as i64);
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Live(task) = &slot.life else { return };
        if task.uses_clock() && task.accepts_elements() && slot.waiting.is_empty() {
            self.call(id, attempt, Lineage::of(None), |task| task.handle_clock(now));
        }
    }

    /// When the clock says this.
    pub(super) fn when_clock_says(&self, time: ProcessingTime) -> Instant {
        Instant::from_millis(u64::try_from(time.as_millis()).unwrap_or(0))
    }
}

const NANOS_PER_MILLI: u64 = 1_000_000;
