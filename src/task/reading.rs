//! What a source task does with what was read, and what it tells the queues that it reads.

use crate::message::{Assignment, TaskError};
use crate::operator::queue::Acknowledgement;
use crate::operator::source::{ReadReply, SourceMachine, SourceStep};
use crate::task::{Phase, Task, TaskOutput};

impl Task {
    /// The source was read.
    pub fn handle_read(&mut self, reply: ReadReply) {
        if self.halted.is_some() {
            self.held_back = Some(reply);
            return;
        }
        if let Some(source) = &mut self.source {
            let step = source.handle_read(reply);
            self.go_on(step);
        }
    }

    /// What was read, waits, and may be handed out now (at-most-once): the driver then calls
    /// [`Task::hand_out`] when the outputs have room.
    pub fn reserved(&self) -> Option<&ReadReply> {
        self.source().filter(|_| self.phase == Phase::AwaitingRecords)?.reserved()
    }

    /// Hands out what [`Task::reserved`] gives.
    pub fn hand_out(&mut self) {
        if let Some(source) = self.source.as_mut().filter(|_| self.phase == Phase::AwaitingRecords)
        {
            let step = source.hand_out();
            self.go_on(step);
        }
    }

    fn go_on(&mut self, step: Result<Option<SourceStep>, TaskError>) {
        match step {
            Ok(step) => {
                match step {
                    Some(step) => {
                        self.note_change();
                        self.take_step(step);
                    }
                    None => self.advance_source(),
                }
                self.acknowledge_messages();
                self.pull();
            }
            Err(error) => self.fail(error),
        }
    }

    /// The coordinator has answered that the task wants a split: here is one, or there is none.
    pub(super) fn handle_assigned(&mut self, assignment: Option<Assignment>) {
        if let Some(source) = &mut self.source {
            source.handle_assigned(assignment);
            self.pull();
        }
    }

    /// Takes up what was read while the job was to stop, if it is not to stop any more.
    pub(super) fn go_on_reading(&mut self) {
        if self.halted.is_none() {
            match self.held_back.take() {
                Some(reply) => self.handle_read(reply),
                None => self.pull(),
            }
        }
    }

    /// A queue has confirmed that it will not give these messages out again.
    pub fn handle_confirmed(&mut self, confirmed: &Acknowledgement) {
        if let Some(source) = &mut self.source {
            source.confirm(confirmed);
        }
    }

    pub(super) fn acknowledge_messages(&mut self) {
        if let Some(source) = &mut self.source {
            let told = source.acknowledge_messages();
            self.outputs.extend(told.into_iter().map(TaskOutput::Acknowledge));
        }
    }

    pub(super) fn advance_source(&mut self) {
        let progress = self.source.as_mut().and_then(SourceMachine::advance_watermark);
        self.advance_time(progress);
    }
}
