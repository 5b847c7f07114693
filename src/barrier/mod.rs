//! Barrier handlers: one a file, chosen from the mechanism. They know neither operators nor state.
//!
//! A handler hears what arrives on a task's channels that concerns checkpoints, and answers, in
//! order, what the task has to do about it. Notices of the coordinator that come before any barrier
//! are the task's to remember (rule 8): a handler knows only what the channels have told it.

mod acker;
mod aligner;
mod overtaker;
mod tracker;

pub use acker::{Acker, EdgeIds};
pub use aligner::Aligner;
pub use overtaker::Overtaker;
pub use tracker::Tracker;

use crate::element::Barrier;
use crate::guarantee::Mechanism;
use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;
use crate::time::Instant;

/// What a task has to do, in the order in which a handler lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierAction {
    /// Process nothing of this channel until it is unblocked, its control elements included.
    Block(ChannelIndex),
    /// Go on with this channel. Each block is followed by exactly one of these (rule 38).
    Unblock(ChannelIndex),
    /// Send the barrier on and take the snapshot, with no record in between (rule 2).
    Start(CheckpointId),
    /// As `Start`, but records in flight belong to the snapshot as well: it is whole only at
    /// `Complete`.
    Begin(CheckpointId),
    /// What the barrier of this channel has overtaken belongs to the snapshot that was begun.
    Capture(ChannelIndex),
    /// Every channel has given its part of the snapshot that was begun.
    Complete(CheckpointId),
    /// Hand the barrier of this checkpoint in ahead of its turn: it waits in this channel.
    Overtake(ChannelIndex, CheckpointId),
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
    /// Lets barriers overtake: exactly once.
    Overtaking(Overtaker),
    /// Blocks nothing: at least once.
    Tracked(Tracker),
    /// Takes no checkpoints, and answers nothing to anything.
    Unchecked,
}

impl BarrierHandler {
    /// The handler of `mechanism` over `channels` open channels, numbered from 0. Where barriers
    /// may not overtake, unaligned checkpoints are aligned (rule 28).
    pub fn new(mechanism: Mechanism, channels: usize, may_overtake: bool) -> Self {
        match mechanism {
            Mechanism::None | Mechanism::Acks | Mechanism::Transactional => Self::Unchecked,
            Mechanism::Tracked => Self::Tracked(Tracker::new(channels)),
            Mechanism::Unaligned | Mechanism::AlignedTimeout if may_overtake => {
                Self::Overtaking(Overtaker::new(channels))
            }
            Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout => Self::Aligned(Aligner::new(channels)),
        }
    }

    /// Whether nothing of the channel may be processed.
    ///
    /// # Panics
    /// If there is no such channel and the handler is an aligner.
    pub fn is_blocked(&self, channel: ChannelIndex) -> bool {
        match self {
            Self::Aligned(aligner) => aligner.is_blocked(channel),
            Self::Overtaking(overtaker) => overtaker.is_blocked(channel),
            Self::Tracked(_) | Self::Unchecked => false,
        }
    }

    /// Whether a barrier of the checkpoint has come and others are still awaited.
    pub fn is_pending(&self, checkpoint: CheckpointId) -> bool {
        match self {
            Self::Aligned(aligner) => aligner.is_pending(checkpoint),
            Self::Overtaking(overtaker) => overtaker.is_pending(checkpoint),
            Self::Tracked(tracker) => tracker.is_pending(checkpoint),
            Self::Unchecked => false,
        }
    }

    /// The oldest checkpoint of which some barriers have come and others are awaited.
    pub fn oldest_pending(&self) -> Option<CheckpointId> {
        match self {
            Self::Aligned(aligner) => aligner.pending(),
            Self::Overtaking(overtaker) => overtaker.pending(),
            Self::Tracked(tracker) => tracker.oldest_pending(),
            Self::Unchecked => None,
        }
    }

    /// Whether what the channel delivers now belongs to a snapshot as well.
    ///
    /// # Panics
    /// If there is no such channel and the handler is an overtaker.
    pub fn is_recording(&self, channel: ChannelIndex) -> bool {
        match self {
            Self::Overtaking(overtaker) => overtaker.is_recording(channel),
            Self::Aligned(_) | Self::Tracked(_) | Self::Unchecked => false,
        }
    }

    /// When [`handle_time`](Self::handle_time) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Overtaking(overtaker) => overtaker.deadline(),
            Self::Aligned(_) | Self::Tracked(_) | Self::Unchecked => None,
        }
    }

    /// A barrier waits for its turn: [`Overtaker::handle_announcement`].
    ///
    /// # Panics
    /// If the channel does not exist and the handler is an overtaker.
    pub fn handle_announcement(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        deadline: Instant,
        actions: &mut Vec<BarrierAction>,
    ) {
        match self {
            Self::Overtaking(overtaker) => {
                overtaker.handle_announcement(channel, checkpoint, deadline, actions);
            }
            Self::Aligned(_) | Self::Tracked(_) | Self::Unchecked => {}
        }
    }

    /// Time has passed: [`Overtaker::handle_time`].
    pub fn handle_time(&mut self, now: Instant, actions: &mut Vec<BarrierAction>) {
        match self {
            Self::Overtaking(overtaker) => overtaker.handle_time(now, actions),
            Self::Aligned(_) | Self::Tracked(_) | Self::Unchecked => {}
        }
    }

    /// A barrier came: [`Aligner::handle_barrier`], [`Overtaker::handle_barrier`],
    /// [`Tracker::handle_barrier`].
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended, unless nothing is checked.
    pub fn handle_barrier(
        &mut self,
        channel: ChannelIndex,
        barrier: Barrier,
        actions: &mut Vec<BarrierAction>,
    ) {
        let Barrier { checkpoint, overtakes, .. } = barrier;
        match self {
            Self::Aligned(aligner) => aligner.handle_barrier(channel, checkpoint, actions),
            Self::Overtaking(overtaker) => {
                overtaker.handle_barrier(channel, checkpoint, overtakes, actions);
            }
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
            Self::Overtaking(overtaker) => overtaker.handle_cancel(channel, checkpoint, actions),
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
            Self::Overtaking(overtaker) => overtaker.handle_end_of_partition(channel, actions),
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
            Self::Overtaking(overtaker) => overtaker.abort(checkpoint, actions),
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
            Self::Overtaking(overtaker) => overtaker.check_invariants(),
            Self::Tracked(tracker) => tracker.check_invariants(),
            Self::Unchecked => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(checkpoint: u64) -> Barrier {
        let checkpoint = CheckpointId::new(checkpoint);
        Barrier { checkpoint, overtakes: false, triggered_at: Instant::ZERO }
    }

    #[test]
    fn each_mechanism_gets_its_handler() {
        let (first, second) = (ChannelIndex::new(0), ChannelIndex::new(1));
        let checkpoint = CheckpointId::new(1);
        let start = BarrierAction::Start(checkpoint);
        let aligned = vec![BarrierAction::Block(first), start, BarrierAction::Unblock(first)];
        let table = [
            (Mechanism::None, vec![]),
            (Mechanism::Acks, vec![]),
            (Mechanism::Transactional, vec![]),
            (Mechanism::Tracked, vec![start]),
            (Mechanism::FullReplay, aligned.clone()),
            (Mechanism::MiniBatch, aligned.clone()),
            (Mechanism::Aligned, aligned.clone()),
            (Mechanism::Unaligned, aligned.clone()),
            (Mechanism::AlignedTimeout, aligned.clone()),
        ];
        for (mechanism, expected) in table {
            let mut handler = BarrierHandler::new(mechanism, 2, true);
            let mut actions = Vec::new();
            handler.handle_barrier(first, barrier(1), &mut actions);
            assert_eq!(handler.is_blocked(first), expected.first() == aligned.first());
            assert_eq!(handler.is_pending(checkpoint), mechanism.takes_checkpoints());
            handler.handle_end_of_partition(second, &mut actions);
            handler.check_invariants();
            assert_eq!(actions, expected, "{mechanism}");
        }
    }

    #[test]
    fn rule_028_where_barriers_may_not_overtake_unaligned_checkpoints_are_aligned() {
        let (first, checkpoint) = (ChannelIndex::new(0), CheckpointId::new(1));
        let ahead = Barrier { overtakes: true, ..barrier(1) };
        for (may_overtake, expected) in [
            (true, vec![BarrierAction::Begin(checkpoint), BarrierAction::Capture(first)]),
            (false, vec![BarrierAction::Block(first)]),
        ] {
            let mut handler = BarrierHandler::new(Mechanism::Unaligned, 2, may_overtake);
            let mut actions = Vec::new();
            handler.handle_barrier(first, ahead, &mut actions);
            assert_eq!(actions, expected);
        }
    }

    #[test]
    fn aborting_and_cancelling_reach_the_handler() {
        let (first, second) = (ChannelIndex::new(0), ChannelIndex::new(1));
        for mechanism in Mechanism::ALL {
            let mut handler = BarrierHandler::new(*mechanism, 2, true);
            let mut actions = Vec::new();
            handler.handle_barrier(first, barrier(1), &mut actions);
            handler.abort(CheckpointId::new(1), &mut actions);
            assert!(!handler.is_pending(CheckpointId::new(1)) && !handler.is_blocked(first));
            actions.clear();
            handler.handle_cancel(second, CheckpointId::new(2), &mut actions);
            assert_eq!(actions.len(), usize::from(mechanism.takes_checkpoints()), "{mechanism}");
        }
    }
}
