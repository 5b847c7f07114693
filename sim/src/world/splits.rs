//! Searches for splits: each takes its time, and may have to be made again.

use cofferdam::id::VertexId;
use cofferdam::message::{Found, TaskError};

use super::{Event, World};
use crate::decide::Choice;

impl World {
    /// The coordinator has splits searched for.
    pub(super) fn search(&mut self, source: VertexId, known: u32) {
        let most = self.plan.options.external_delay_us;
        let delay = self.delay(Choice::Search, source.get(), most);
        let life = self.control.life;
        self.queue.schedule(self.now + delay, Event::Search { life, source, known });
    }

    /// A search has found what there is by now. One whose coordinator has died is heard by nobody.
    pub(super) fn end_search(&mut self, life: u64, source: VertexId, known: u32) {
        if life != self.control.life {
            return;
        }
        let is_early = self.may_disturb()
            && self.decider.chance(Choice::Search, source.get(), FOUND_LATER_PERMILLE);
        let found = match is_early {
            true => Ok(Found::Nothing),
            false => {
                let client = self.plan.job.source(source);
                client.expect("only a vertex with a source is searched").search(known)
            }
        };
        match found {
            Ok(Found::Nothing) => self.search(source, known),
            found => self.with_coordinator(|machine, now| {
                machine.handle_found(now, source, found.map_err(TaskError::from));
            }),
        }
    }
}

/// How often there are no splits yet when some are searched for, of 1000.
const FOUND_LATER_PERMILLE: u64 = 300;
