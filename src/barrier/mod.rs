//! Barrier handlers: one a file, chosen from the mechanism. They know neither operators nor state.
//!
//! A handler hears what arrives on a task's channels that concerns checkpoints, and answers, in
//! order, what the task has to do about it. Notices of the coordinator that come before any barrier
//! are the task's to remember (rule 8): a handler knows only what the channels have told it.

mod acker;
mod aligner;
mod tracker;

pub use acker::{Acker, EdgeIds};
pub use aligner::Aligner;
pub use tracker::Tracker;

use crate::guarantee::Mechanism;
use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;

/// What a task has to do, in the order in which a handler lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierAction {
    /// Process nothing of this channel until it is unblocked, its control elements included.
    Block(ChannelIndex),
    /// Go on with this channel. Each block is followed by exactly one of these (rule 38).
    Unblock(ChannelIndex),
    /// Send the barrier on and take the snapshot, with no record in between (rule 2).
    Start(CheckpointId),
    /// The checkpoint can not be taken here: tell the coordinator, and send a cancel marker on
    /// (rule 7).
    Abort(CheckpointId, AbortReason),
}

/// The barrier handler of a task, one for each mechanism. The methods append to `actions` and have
/// the contracts of the handler at work.
#[derive(Clone, Debug)]
pub enum BarrierHandler {
    /// Blocks channels: exactly once.
    Aligned(Aligner),
    /// Blocks nothing: at least once.
    Tracked(Tracker),
    /// Takes no checkpoints, and answers nothing to anything.
    Unchecked,
}

impl BarrierHandler {
    /// The handler of `mechanism` over `channels` open channels, numbered from 0.
    pub fn new(mechanism: Mechanism, channels: usize) -> Self {
        match mechanism {
            Mechanism::None | Mechanism::Acks => Self::Unchecked,
            Mechanism::Tracked => Self::Tracked(Tracker::new(channels)),
            Mechanism::Aligned => Self::Aligned(Aligner::new(channels)),
        }
    }

    /// Whether nothing of the channel may be processed.
    ///
    /// # Panics
    /// If there is no such channel and the handler is an aligner.
    pub fn is_blocked(&self, channel: ChannelIndex) -> bool {
        match self {
            Self::Aligned(aligner) => aligner.is_blocked(channel),
            Self::Tracked(_) | Self::Unchecked => false,
        }
    }

    /// Whether a barrier of the checkpoint has come and others are still awaited.
    pub fn is_pending(&self, checkpoint: CheckpointId) -> bool {
        match self {
            Self::Aligned(aligner) => aligner.is_pending(checkpoint),
            Self::Tracked(tracker) => tracker.is_pending(checkpoint),
            Self::Unchecked => false,
        }
    }

    /// Whether some barriers of any checkpoint have come and others are awaited.
    pub fn is_collecting(&self) -> bool {
        match self {
            Self::Aligned(aligner) => aligner.is_collecting(),
            Self::Tracked(tracker) => tracker.is_collecting(),
            Self::Unchecked => false,
        }
    }

    /// A barrier came: [`Aligner::handle_barrier`], [`Tracker::handle_barrier`].
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended, unless nothing is checked.
    pub fn handle_barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        match self {
            Self::Aligned(aligner) => aligner.handle_barrier(channel, checkpoint, actions),
            Self::Tracked(tracker) => tracker.handle_barrier(channel, checkpoint, actions),
            Self::Unchecked => {}
        }
    }

    /// A cancel marker came: [`Aligner::handle_cancel`], [`Tracker::handle_cancel`].
    ///
    /// # Panics
    /// As [`handle_barrier`](Self::handle_barrier).
    pub fn handle_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        match self {
            Self::Aligned(aligner) => aligner.handle_cancel(channel, checkpoint, actions),
            Self::Tracked(tracker) => tracker.handle_cancel(channel, checkpoint, actions),
            Self::Unchecked => {}
        }
    }

    /// A channel ended: [`Aligner::handle_end_of_partition`], [`Tracker::handle_end_of_partition`].
    ///
    /// # Panics
    /// As [`handle_barrier`](Self::handle_barrier).
    pub fn handle_end_of_partition(
        &mut self,
        channel: ChannelIndex,
        actions: &mut Vec<BarrierAction>,
    ) {
        match self {
            Self::Aligned(aligner) => aligner.handle_end_of_partition(channel, actions),
            Self::Tracked(tracker) => tracker.handle_end_of_partition(channel, actions),
            Self::Unchecked => {}
        }
    }

    /// The coordinator has given the checkpoint up: if it [is pending](Self::is_pending), its
    /// channels go on, and later barriers of its id are ignored. No `Abort` is listed, since the
    /// coordinator knows; if it was pending, the task still owes those downstream a cancel marker
    /// (rule 7).
    pub fn abort(&mut self, checkpoint: CheckpointId, actions: &mut Vec<BarrierAction>) {
        match self {
            Self::Aligned(aligner) => aligner.abort(checkpoint, actions),
            Self::Tracked(tracker) => tracker.abort(checkpoint),
            Self::Unchecked => {}
        }
    }

    /// Checks what holds between any two calls.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check_invariants(&self) {
        match self {
            Self::Aligned(aligner) => aligner.check_invariants(),
            Self::Tracked(tracker) => tracker.check_invariants(),
            Self::Unchecked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_gets_its_handler() {
        let (first, second) = (ChannelIndex::new(0), ChannelIndex::new(1));
        let checkpoint = CheckpointId::new(1);
        let start = BarrierAction::Start(checkpoint);
        let table = [
            (Mechanism::None, vec![]),
            (Mechanism::Acks, vec![]),
            (Mechanism::Tracked, vec![start]),
            (
                Mechanism::Aligned,
                vec![BarrierAction::Block(first), start, BarrierAction::Unblock(first)],
            ),
        ];
        for (mechanism, expected) in table {
            let mut handler = BarrierHandler::new(mechanism, 2);
            let mut actions = Vec::new();
            handler.handle_barrier(first, checkpoint, &mut actions);
            assert_eq!(handler.is_blocked(first), mechanism == Mechanism::Aligned);
            assert_eq!(handler.is_pending(checkpoint), mechanism.takes_checkpoints());
            handler.handle_end_of_partition(second, &mut actions);
            handler.check_invariants();
            assert_eq!(actions, expected, "{mechanism}");
        }
    }

    #[test]
    fn aborting_and_cancelling_reach_the_handler() {
        let (first, second) = (ChannelIndex::new(0), ChannelIndex::new(1));
        for mechanism in Mechanism::ALL {
            let mut handler = BarrierHandler::new(*mechanism, 2);
            let mut actions = Vec::new();
            handler.handle_barrier(first, CheckpointId::new(1), &mut actions);
            handler.abort(CheckpointId::new(1), &mut actions);
            assert!(!handler.is_pending(CheckpointId::new(1)) && !handler.is_blocked(first));
            actions.clear();
            handler.handle_cancel(second, CheckpointId::new(2), &mut actions);
            assert_eq!(actions.len(), usize::from(mechanism.takes_checkpoints()), "{mechanism}");
        }
    }
}
