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
