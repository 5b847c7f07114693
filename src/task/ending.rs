//! The end of a task: of its data, of the job where it stops, and of what is left to commit.

use super::{Phase, Task, TaskOutput};
use crate::element::Element;
use crate::id::CheckpointId;
use crate::message::FromTask;
use crate::operator::sink::SinkRequest;
use crate::time::EventTime;

impl Task {
    /// All inputs have ended: the timers that are left fire, and the operators say their last
    /// words.
    pub(super) fn end_data(&mut self) {
        if self.has_written_end() {
            return self.announce_end();
        }
        let out = self.stage.on_watermark(EventTime::MAX);
        self.save();
        self.send_on(out);
        let out = self.stage.on_end_of_data();
        self.save();
        self.send_on(out);
        let (outlet, produced) = self.produced();
        outlet.broadcast(Element::EndOfData, produced);
        if self.progress.is_some() {
            self.write_end();
        } else {
            self.await_end();
        }
    }

    /// The end of the data is part of the state that the task begins with.
    pub(super) fn announce_end(&mut self) {
        self.outlet.broadcast(Element::EndOfData, &mut self.outputs);
        if self.progress.is_some() {
            self.finish_settled();
        } else {
            self.await_end();
        }
    }

    pub(super) fn await_end(&mut self) {
        if self.mechanism.takes_checkpoints() {
            self.phase = Phase::AwaitingFinalCheckpoint;
            self.report(FromTask::EndOfData);
        } else if self.sink.is_some() {
            self.phase = Phase::AwaitingLastFlush;
            self.outputs.push_back(TaskOutput::Sink(SinkRequest::Flush(None)));
        } else {
            self.finish();
        }
    }

    pub(super) fn finish(&mut self) {
        self.phase = Phase::Finished;
        // Where the job stops, the data has not ended: no timer is to fire because of it.
        if self.halted.is_none() {
            self.outlet.broadcast(Element::EndOfPartition, &mut self.outputs);
        }
        self.report(FromTask::Finished);
    }

    pub(super) fn handle_finish(&mut self, checkpoint: CheckpointId) {
        match self.phase {
            Phase::AwaitingFinalCheckpoint => {
                self.handle_completed(checkpoint);
                self.finish_settled();
            }
            // The job stops here: only sources heard of it before.
            Phase::AwaitingRecords => {
                self.halted = Some(checkpoint);
                self.handle_completed(checkpoint);
                self.finish_settled();
            }
            Phase::Finished => self.report(FromTask::Finished),
            Phase::AwaitingSinkRecovery
            | Phase::AwaitingLastCommits
            | Phase::AwaitingLastFlush
            | Phase::Failed => {}
        }
    }

    /// The task begins at the checkpoint that the job stops at: it only commits what is pending. To
    /// be called before anything else.
    pub fn halt(&mut self, checkpoint: CheckpointId) {
        self.halted = Some(checkpoint);
    }
}
