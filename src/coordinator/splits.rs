//! When readers may hear of splits, and when more are searched for.

use super::pending::InFlight;
use super::{Coordinator, CoordinatorOutput, FailureCause};
use crate::id::{TaskId, VertexId};
use crate::message::{Found, TaskError};

impl Coordinator {
    /// Answers the readers that wait for a split, as far as they may hear of one, and has more
    /// searched for if that is not enough.
    pub(super) fn assign_splits(&mut self) {
        let mut enumerators = std::mem::take(&mut self.enumerators);
        for of in &mut enumerators {
            let next = self.checkpoint_next;
            while let Some((reader, message)) = of.answer(next, |reader| self.may_hear(reader)) {
                self.send(reader, message);
            }
            if let Some(known) = of.search() {
                self.emit(CoordinatorOutput::Search { source: of.source(), known });
            }
        }
        self.enumerators = enumerators;
    }

    pub(super) fn end_search(
        &mut self,
        source: VertexId,
        found: Result<Found<Vec<u8>>, TaskError>,
    ) {
        let mut enumerators = self.enumerators.iter_mut();
        let Some(of) = enumerators.find(|of| of.source() == source) else { return };
        match found {
            Ok(found) => of.end_search(Some(found)),
            Err(error) => {
                of.end_search(None);
                let task = of.first_reader();
                if self.phase.is_live() {
                    self.fail(FailureCause::Task { task, error });
                }
            }
        }
    }

    /// Whether what is sent to a reader now can not become part of both its own snapshot and the
    /// coordinator's, which was taken at the trigger (rule 80).
    fn may_hear(&self, reader: TaskId) -> bool {
        match &self.in_flight {
            Some(InFlight::AwaitingAcks(pending)) => pending.has_part(reader),
            Some(InFlight::AwaitingMetadata(_)) | None => true,
        }
    }
}
