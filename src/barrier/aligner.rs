//! The aligner: a channel whose barrier has come is blocked until the barriers of all others have
//! come.
//!
//! ```text
//!                        first barrier of a newer id
//!   AwaitingFirstBarrier ---------------------------> AwaitingBarriers { checkpoint, missing }
//!            ^                                                |
//!            +--- last barrier or end of partition: Start ----+
//!            +--- newer barrier, cancel marker: Abort --------+
//!            +--- command of the task: neither ---------------+   and then Unblock, in each case
//! ```
//!
//! It compares the id of every barrier with the one it waits for and never just counts. It does not
//! know what a snapshot is, which ids the coordinator has aborted before their barriers came (rule
//! 8), nor whether a channel holds anything.
//!
//! Invariant: a channel is blocked only while a checkpoint is pending whose barrier it has
//! delivered.

use crate::barrier::BarrierAction;
use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;

/// Cuts the input of one task exactly: between `Block` and the outcome of the checkpoint nothing of
/// a channel is processed (rule 1), so a snapshot holds what came before the barriers and no more.
///
/// - Getters: [`is_blocked`](Self::is_blocked), [`pending`](Self::pending),
///   [`is_pending`](Self::is_pending).
/// - Facts: `handle_barrier`, `handle_cancel`, `handle_end_of_partition`. All append to `actions`.
///   All panic if the channel does not exist, is blocked or has ended: the task let something
///   through that it was told to hold back, and any cut made from here on would be wrong.
/// - Command: [`abort`](Self::abort).
///
/// `Start` and `Abort` come before the `Unblock`s that they cause, so that the barrier or the
/// cancel marker is sent on before any record that was held back.
#[derive(Clone, Debug)]
pub struct Aligner {
    channels: Vec<Channel>,
    state: State,
    /// The greatest id that a barrier or cancel marker has carried. One at or below it that is not
    /// pending is over: started, aborted, or overtaken.
    newest: Option<CheckpointId>,
}

impl Aligner {
    /// An aligner over `channels` open channels, numbered from 0.
    pub fn new(channels: usize) -> Self {
        Self {
            channels: vec![Channel::Open; channels],
            state: State::AwaitingFirstBarrier,
            newest: None,
        }
    }

    /// Whether nothing of the channel may be processed.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn is_blocked(&self, channel: ChannelIndex) -> bool {
        self.channels[channel.index()] == Channel::Blocked
    }

    /// The checkpoint of which some barriers have come and others are awaited.
    pub fn pending(&self) -> Option<CheckpointId> {
        match self.state {
            State::AwaitingFirstBarrier => None,
            State::AwaitingBarriers { checkpoint, .. } => Some(checkpoint),
        }
    }

    /// Whether a barrier of the checkpoint has come and others are still awaited.
    pub fn is_pending(&self, checkpoint: CheckpointId) -> bool {
        self.pending() == Some(checkpoint)
    }

    /// A barrier came. The first one of a newer id takes the place of a pending checkpoint (rule
    /// 4); one that is neither newer nor pending is ignored, and its channel goes on (rule 3). The
    /// channel whose barrier is the last is never blocked, hence neither is an only channel (rule
    /// 13).
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended.
    pub fn handle_barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        if Some(checkpoint) > self.newest {
            self.abort_pending(AbortReason::Subsumed, actions);
            self.newest = Some(checkpoint);
            self.state = State::AwaitingBarriers { checkpoint, missing: self.open_channels() };
        }
        if !self.is_pending(checkpoint) {
            return;
        }
        self.note_arrival(actions);
        if self.is_pending(checkpoint) {
            self.channels[channel.index()] = Channel::Blocked;
            actions.push(BarrierAction::Block(channel));
        }
    }

    /// A cancel marker came: its sender's barrier never will. It ends a pending checkpoint with its
    /// id or an older one; if newer than all seen, it also bars the barriers of its id (rule 5).
    /// Otherwise it has no effect (rule 6).
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended.
    pub fn handle_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        if self.is_pending(checkpoint) {
            self.abort_pending(AbortReason::CancelledUpstream, actions);
        } else if Some(checkpoint) > self.newest {
            self.abort_pending(AbortReason::Subsumed, actions);
            self.newest = Some(checkpoint);
            actions.push(BarrierAction::Abort(checkpoint, AbortReason::CancelledUpstream));
        }
    }

    /// The channel ended. For a pending checkpoint that counts as its barrier (rule 10): whatever
    /// the channel carried has been processed, so the cut is exact. Aborting instead, as other
    /// engines can be told to, is not offered: a job with one short input could never complete a
    /// checkpoint again.
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended.
    pub fn handle_end_of_partition(
        &mut self,
        channel: ChannelIndex,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        self.channels[channel.index()] = Channel::Ended;
        self.note_arrival(actions);
    }

    /// The coordinator has given the checkpoint up: if it is pending, its channels go on, and later
    /// barriers of its id are ignored. There is no `Abort`, since the coordinator knows; the cancel
    /// marker for those downstream (rule 7) is the task's to send.
    pub fn abort(&mut self, checkpoint: CheckpointId, actions: &mut Vec<BarrierAction>) {
        if self.is_pending(checkpoint) {
            self.release(actions);
        }
    }

    /// Checks what holds between any two calls.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check_invariants(&self) {
        match self.state {
            State::AwaitingFirstBarrier => {
                assert!(!self.channels.contains(&Channel::Blocked), "blocked for no checkpoint");
            }
            State::AwaitingBarriers { checkpoint, missing } => {
                assert_eq!(self.newest, Some(checkpoint), "only the newest can be pending");
                assert_eq!(missing, self.open_channels(), "each open channel owes a barrier");
                assert_ne!(missing, 0, "{checkpoint} waits for nothing");
            }
        }
    }

    fn open_channels(&self) -> usize {
        self.channels.iter().filter(|channel| **channel == Channel::Open).count()
    }

    /// One of the channels that the pending checkpoint, if any, waits for has delivered.
    fn note_arrival(&mut self, actions: &mut Vec<BarrierAction>) {
        if let State::AwaitingBarriers { checkpoint, missing } = &mut self.state {
            *missing -= 1;
            if *missing == 0 {
                actions.push(BarrierAction::Start(*checkpoint));
                self.release(actions);
            }
        }
    }

    fn abort_pending(&mut self, reason: AbortReason, actions: &mut Vec<BarrierAction>) {
        if let Some(checkpoint) = self.pending() {
            actions.push(BarrierAction::Abort(checkpoint, reason));
            self.release(actions);
        }
    }

    fn release(&mut self, actions: &mut Vec<BarrierAction>) {
        self.state = State::AwaitingFirstBarrier;
        for (position, channel) in (0..).zip(&mut self.channels) {
            if *channel == Channel::Blocked {
                *channel = Channel::Open;
                actions.push(BarrierAction::Unblock(ChannelIndex::new(position)));
            }
        }
    }

    fn assert_open(&self, channel: ChannelIndex) {
        let state = self.channels[channel.index()];
        assert_eq!(state, Channel::Open, "something of {channel} was let through");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Open,
    Blocked,
    Ended,
}

#[derive(Clone, Copy, Debug)]
enum State {
    AwaitingFirstBarrier,
    AwaitingBarriers {
        checkpoint: CheckpointId,
        /// How many channels owe the barrier: first those open when the first one came (rule 11).
        missing: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::barrier::BarrierAction::{Abort, Block, Start, Unblock};
    use AbortReason::{CancelledUpstream, Subsumed};

    fn input(position: u32) -> ChannelIndex {
        ChannelIndex::new(position)
    }

    fn chk(number: u64) -> CheckpointId {
        CheckpointId::new(number)
    }

    fn barrier(aligner: &mut Aligner, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        acting(aligner, |aligner, actions| {
            aligner.handle_barrier(input(channel), chk(checkpoint), actions)
        })
    }

    fn cancel(aligner: &mut Aligner, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        acting(aligner, |aligner, actions| {
            aligner.handle_cancel(input(channel), chk(checkpoint), actions)
        })
    }

    fn end(aligner: &mut Aligner, channel: u32) -> Vec<BarrierAction> {
        acting(aligner, |aligner, actions| aligner.handle_end_of_partition(input(channel), actions))
    }

    fn acting(
        aligner: &mut Aligner,
        act: impl FnOnce(&mut Aligner, &mut Vec<BarrierAction>),
    ) -> Vec<BarrierAction> {
        let mut actions = Vec::new();
        act(aligner, &mut actions);
        aligner.check_invariants();
        actions
    }

    #[test]
    fn rule_001_a_channel_is_blocked_from_its_barrier_to_the_outcome_and_others_go_on() {
        let mut aligner = Aligner::new(3);
        assert_eq!(barrier(&mut aligner, 1, 1), [Block(input(1))]);
        assert_eq!(
            [0, 1, 2].map(|position| aligner.is_blocked(input(position))),
            [false, true, false]
        );
        assert_eq!(barrier(&mut aligner, 0, 1), [Block(input(0))]);
        assert!(aligner.is_pending(chk(1)));
        let actions = barrier(&mut aligner, 2, 1);
        assert_eq!(actions, [Start(chk(1)), Unblock(input(0)), Unblock(input(1))]);
        assert_eq!([0, 1, 2].map(|position| aligner.is_blocked(input(position))), [false; 3]);
        assert!(!aligner.is_pending(chk(1)));
    }

    #[test]
    #[should_panic(expected = "something of in0 was let through")]
    fn rule_001_an_element_of_a_blocked_channel_is_a_broken_invariant() {
        let mut aligner = Aligner::new(2);
        barrier(&mut aligner, 0, 1);
        barrier(&mut aligner, 0, 2);
    }

    #[test]
    fn rule_003_a_barrier_that_is_old_or_whose_checkpoint_is_over_leaves_its_channel_open() {
        let mut aligner = Aligner::new(2);
        barrier(&mut aligner, 0, 2);
        assert_eq!(barrier(&mut aligner, 1, 1), [], "older than the pending one");
        assert_eq!(barrier(&mut aligner, 1, 2), [Start(chk(2)), Unblock(input(0))]);
        assert_eq!(barrier(&mut aligner, 0, 2), [], "of one that has started");
        assert_eq!(barrier(&mut aligner, 0, 1), [], "older than one that has started");
    }

    #[test]
    fn rule_004_a_newer_barrier_subsumes_the_pending_checkpoint_and_starts_counting_anew() {
        let mut aligner = Aligner::new(3);
        barrier(&mut aligner, 0, 1);
        barrier(&mut aligner, 1, 1);
        let actions = barrier(&mut aligner, 2, 2);
        assert_eq!(
            actions,
            [Abort(chk(1), Subsumed), Unblock(input(0)), Unblock(input(1)), Block(input(2))]
        );
        assert_eq!(barrier(&mut aligner, 0, 2), [Block(input(0))]);
        assert_eq!(
            barrier(&mut aligner, 1, 2),
            [Start(chk(2)), Unblock(input(0)), Unblock(input(2))]
        );
    }

    #[test]
    fn rule_005_cancel_marker_acts_only_for_newer_or_seen() {
        let mut aligner = Aligner::new(3);
        barrier(&mut aligner, 0, 1);
        assert_eq!(
            cancel(&mut aligner, 1, 1),
            [Abort(chk(1), CancelledUpstream), Unblock(input(0))]
        );
        assert_eq!(barrier(&mut aligner, 2, 1), [], "a cancelled id starts no alignment");

        assert_eq!(cancel(&mut aligner, 1, 2), [Abort(chk(2), CancelledUpstream)]);
        assert_eq!(
            barrier(&mut aligner, 0, 2),
            [],
            "nor does one cancelled before its first barrier"
        );

        barrier(&mut aligner, 0, 3);
        let actions = cancel(&mut aligner, 1, 4);
        assert_eq!(
            actions,
            [Abort(chk(3), Subsumed), Unblock(input(0)), Abort(chk(4), CancelledUpstream)]
        );
        assert_eq!(barrier(&mut aligner, 2, 3), [], "the overtaken one is over as well");
    }

    #[test]
    fn rule_006_a_cancel_marker_that_is_old_or_the_second_has_no_effect() {
        let mut aligner = Aligner::new(3);
        cancel(&mut aligner, 0, 2);
        assert_eq!(cancel(&mut aligner, 1, 2), [], "the second");
        barrier(&mut aligner, 0, 3);
        assert_eq!(cancel(&mut aligner, 1, 2), [], "older than the pending one");
        assert!(aligner.is_pending(chk(3)) && aligner.is_blocked(input(0)));
        barrier(&mut aligner, 1, 3);
        barrier(&mut aligner, 2, 3);
        assert_eq!(cancel(&mut aligner, 0, 3), [], "of one that has started");
    }

    #[test]
    fn rule_007_each_abort_is_told_once_and_before_any_channel_goes_on() {
        let mut aligner = Aligner::new(2);
        barrier(&mut aligner, 0, 1);
        let subsumed = barrier(&mut aligner, 1, 2);
        let cancelled = cancel(&mut aligner, 0, 2);
        assert_eq!(subsumed, [Abort(chk(1), Subsumed), Unblock(input(0)), Block(input(1))]);
        assert_eq!(cancelled, [Abort(chk(2), CancelledUpstream), Unblock(input(1))]);
        assert_eq!(cancel(&mut aligner, 1, 2), []);
    }

    #[test]
    fn rule_010_the_end_of_a_channel_counts_as_its_barrier() {
        let mut aligner = Aligner::new(3);
        barrier(&mut aligner, 0, 1);
        assert_eq!(end(&mut aligner, 1), []);
        assert!(aligner.is_pending(chk(1)));
        assert_eq!(end(&mut aligner, 2), [Start(chk(1)), Unblock(input(0))]);
        assert_eq!(barrier(&mut aligner, 0, 2), [Start(chk(2))], "only one channel is left");
        assert_eq!(end(&mut aligner, 0), [], "no checkpoint is pending");
    }

    #[test]
    fn rule_011_only_channels_open_at_the_first_barrier_are_waited_for() {
        let mut aligner = Aligner::new(3);
        end(&mut aligner, 1);
        assert_eq!(barrier(&mut aligner, 0, 1), [Block(input(0))]);
        assert_eq!(barrier(&mut aligner, 2, 1), [Start(chk(1)), Unblock(input(0))]);
    }

    #[test]
    fn rule_013_an_only_channel_is_never_blocked() {
        let mut aligner = Aligner::new(1);
        assert_eq!(barrier(&mut aligner, 0, 1), [Start(chk(1))]);
        assert_eq!(barrier(&mut aligner, 0, 2), [Start(chk(2))]);
    }

    #[test]
    fn a_checkpoint_that_the_coordinator_gave_up_frees_its_channels_and_stays_over() {
        let mut aligner = Aligner::new(2);
        let abort =
            |aligner: &mut Aligner, id| acting(aligner, |it, actions| it.abort(chk(id), actions));
        assert_eq!(abort(&mut aligner, 1), [], "not pending yet: the task remembers it (rule 8)");
        barrier(&mut aligner, 0, 1);
        assert_eq!(abort(&mut aligner, 2), [], "another one");
        assert_eq!(abort(&mut aligner, 1), [Unblock(input(0))]);
        assert_eq!(barrier(&mut aligner, 1, 1), []);
        assert_eq!(barrier(&mut aligner, 1, 2), [Block(input(1))]);
    }
}
