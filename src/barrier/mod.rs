//! Barrier handlers: one a file, chosen from the mechanism. They know neither operators nor state.
//!
//! A handler hears what arrives on a task's channels that concerns checkpoints, and answers, in
//! order, what the task has to do about it.

use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;

/// What a task has to do, in the order in which a handler lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierAction {
    /// Process nothing of this channel until it is unblocked.
    Block(ChannelIndex),
    /// Go on with this channel. Each block is followed by exactly one of these (rule 38).
    Unblock(ChannelIndex),
    /// Send the barrier on and take the snapshot, with no record in between (rule 2).
    Start(CheckpointId),
    /// The checkpoint can not be taken here: tell the coordinator, and send a cancel marker on (rule 7).
    Abort(CheckpointId, AbortReason),
}

/// STUB
#[derive(Clone, Debug)]
pub enum BarrierHandler {
    /// STUB
    Unchecked,
}
#[allow(missing_docs)]
impl BarrierHandler {
    pub fn new(_m: crate::guarantee::Mechanism, _channels: usize) -> Self {
        Self::Unchecked
    }
    pub fn handle_barrier(
        &mut self,
        _c: ChannelIndex,
        _id: CheckpointId,
        _a: &mut Vec<BarrierAction>,
    ) {
    }
    pub fn handle_cancel(
        &mut self,
        _c: ChannelIndex,
        _id: CheckpointId,
        _a: &mut Vec<BarrierAction>,
    ) {
    }
    pub fn handle_end_of_partition(&mut self, _c: ChannelIndex, _a: &mut Vec<BarrierAction>) {}
    pub fn abort(&mut self, _id: CheckpointId, _a: &mut Vec<BarrierAction>) {}
    pub fn is_blocked(&self, _c: ChannelIndex) -> bool {
        false
    }
    pub fn pending(&self) -> Option<CheckpointId> {
        None
    }
}
