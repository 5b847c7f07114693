//! The tracker: notes which barriers have come and never blocks a channel (rule 14).
//!
//! Records that follow a barrier are processed while barriers of other channels are awaited, and so
//! get into the snapshot *and* are replayed after a recovery: at least once, not exactly once.
//! Several checkpoints can be pending. It does not know what a snapshot is, nor which ids the
//! coordinator has aborted before their barriers came (rule 8).
//!
//! Invariant: a pending checkpoint awaits at least one channel, and open ones only.

use std::collections::{BTreeMap, BTreeSet};

use crate::barrier::BarrierAction;
use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;

/// Starts a checkpoint when every channel of one task has delivered its barrier or ended.
///
/// - Getter: [`is_pending`](Self::is_pending).
/// - Facts: `handle_barrier`, `handle_cancel`, `handle_end_of_partition`. All append to `actions`.
///   All panic if the channel does not exist or has ended: nothing can follow the end.
/// - Command: [`abort`](Self::abort).
///
/// The `Abort`s of older checkpoints come before the `Start` that ends them, oldest first, so that
/// those downstream see ids in order. Each pending checkpoint gets exactly one `Start` or `Abort`,
/// unless the task takes it back.
#[derive(Clone, Debug)]
pub struct Tracker {
    open: BTreeSet<ChannelIndex>,
    /// The channels that owe the barrier: first those open when the first one came (rule 11).
    awaited: BTreeMap<CheckpointId, BTreeSet<ChannelIndex>>,
    /// The greatest id that a barrier or cancel marker has carried. One at or below it that is not
    /// pending is over, so that no marker needs to be kept for a cancelled one (rule 17).
    newest: Option<CheckpointId>,
}

impl Tracker {
    /// A tracker over `channels` open channels, numbered from 0.
    pub fn new(channels: usize) -> Self {
        Self {
            open: (0..).map(ChannelIndex::new).take(channels).collect(),
            awaited: BTreeMap::new(),
            newest: None,
        }
    }

    /// Whether a barrier of the checkpoint has come and others are still awaited.
    pub fn is_pending(&self, checkpoint: CheckpointId) -> bool {
        self.awaited.contains_key(&checkpoint)
    }

    /// The oldest checkpoint of which some barriers have come and others are awaited.
    pub fn oldest_pending(&self) -> Option<CheckpointId> {
        self.awaited.first_key_value().map(|(checkpoint, _)| *checkpoint)
    }

    /// A barrier came. The first one of a checkpoint counts only if newer than all seen, and beyond
    /// 50 pending checkpoints the oldest is aborted (rule 16). The last one starts the checkpoint
    /// and aborts all older ones (rule 15). An only channel needs no shortcut, since nobody else is
    /// awaited (rules 13 and 19).
    ///
    /// # Panics
    /// If the channel does not exist or has ended.
    pub fn handle_barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        if Some(checkpoint) > self.newest {
            self.newest = Some(checkpoint);
            self.awaited.insert(checkpoint, self.open.clone());
        }
        if let Some(awaited) = self.awaited.get_mut(&checkpoint) {
            awaited.remove(&channel);
        }
        self.start_newest_complete(actions);
        if self.awaited.len() > PENDING_MAX
            && let Some((oldest, _)) = self.awaited.pop_first()
        {
            actions.push(BarrierAction::Abort(oldest, AbortReason::Subsumed));
        }
    }

    /// A cancel marker came: its sender's barrier never will. It ends all older pending
    /// checkpoints, and its own if pending; if newer than all seen, it also bars the barriers of
    /// its id (rule 17).
    ///
    /// # Panics
    /// If the channel does not exist or has ended.
    pub fn handle_cancel(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        self.abort_older(checkpoint, actions);
        if self.awaited.remove(&checkpoint).is_some() || Some(checkpoint) > self.newest {
            self.newest = self.newest.max(Some(checkpoint));
            actions.push(BarrierAction::Abort(checkpoint, AbortReason::CancelledUpstream));
        }
    }

    /// The channel ended, which counts as its barrier for all pending checkpoints (rule 10): of
    /// those that waited for just this channel the newest starts, and all older ones are aborted
    /// (rule 18).
    ///
    /// # Panics
    /// If the channel does not exist or has ended.
    pub fn handle_end_of_partition(
        &mut self,
        channel: ChannelIndex,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        self.open.remove(&channel);
        for awaited in self.awaited.values_mut() {
            awaited.remove(&channel);
        }
        self.start_newest_complete(actions);
    }

    /// The coordinator has given the checkpoint up: if it is pending, its barriers are no longer
    /// awaited, and later ones are ignored. There is no action: the coordinator knows, and the
    /// cancel marker for those downstream (rule 7) is the task's to send.
    pub fn abort(&mut self, checkpoint: CheckpointId) {
        self.awaited.remove(&checkpoint);
    }

    /// Checks what holds between any two calls.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn check_invariants(&self) {
        assert!(self.awaited.len() <= PENDING_MAX, "{} are pending", self.awaited.len());
        for (checkpoint, awaited) in &self.awaited {
            assert!(Some(*checkpoint) <= self.newest, "{checkpoint} was never seen");
            assert!(!awaited.is_empty(), "{checkpoint} waits for nothing");
            assert!(awaited.is_subset(&self.open), "{checkpoint} waits for an ended channel");
        }
    }

    fn start_newest_complete(&mut self, actions: &mut Vec<BarrierAction>) {
        let complete = self.awaited.iter().rev().find(|(_, awaited)| awaited.is_empty());
        if let Some(checkpoint) = complete.map(|(checkpoint, _)| *checkpoint) {
            self.abort_older(checkpoint, actions);
            self.awaited.remove(&checkpoint);
            actions.push(BarrierAction::Start(checkpoint));
        }
    }

    fn abort_older(&mut self, checkpoint: CheckpointId, actions: &mut Vec<BarrierAction>) {
        let kept = self.awaited.split_off(&checkpoint);
        let older = std::mem::replace(&mut self.awaited, kept).into_keys();
        actions.extend(older.map(|older| BarrierAction::Abort(older, AbortReason::Subsumed)));
    }

    fn assert_open(&self, channel: ChannelIndex) {
        assert!(self.open.contains(&channel), "something came on {channel}, which has ended");
    }
}

/// How many checkpoints can be pending: beyond it a channel that delivers nothing would cost memory
/// without bound (rule 16).
const PENDING_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::barrier::BarrierAction::{Abort, Start};
    use AbortReason::{CancelledUpstream, Subsumed};

    fn input(position: u32) -> ChannelIndex {
        ChannelIndex::new(position)
    }

    fn chk(number: u64) -> CheckpointId {
        CheckpointId::new(number)
    }

    fn barrier(tracker: &mut Tracker, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        acting(tracker, |tracker, actions| {
            tracker.handle_barrier(input(channel), chk(checkpoint), actions)
        })
    }

    fn cancel(tracker: &mut Tracker, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        acting(tracker, |tracker, actions| {
            tracker.handle_cancel(input(channel), chk(checkpoint), actions)
        })
    }

    fn end(tracker: &mut Tracker, channel: u32) -> Vec<BarrierAction> {
        acting(tracker, |tracker, actions| tracker.handle_end_of_partition(input(channel), actions))
    }

    fn acting(
        tracker: &mut Tracker,
        act: impl FnOnce(&mut Tracker, &mut Vec<BarrierAction>),
    ) -> Vec<BarrierAction> {
        let mut actions = Vec::new();
        act(tracker, &mut actions);
        tracker.check_invariants();
        actions
    }

    #[test]
    fn rule_007_each_abort_is_told_once() {
        let mut tracker = Tracker::new(3);
        barrier(&mut tracker, 0, 1);
        assert_eq!(cancel(&mut tracker, 1, 1), [Abort(chk(1), CancelledUpstream)]);
        assert_eq!(cancel(&mut tracker, 2, 1), []);
    }

    #[test]
    fn rule_010_the_end_of_a_channel_counts_as_its_barrier() {
        let mut tracker = Tracker::new(3);
        barrier(&mut tracker, 0, 1);
        assert_eq!(end(&mut tracker, 1), []);
        assert_eq!(end(&mut tracker, 2), [Start(chk(1))]);
    }

    #[test]
    fn rule_011_only_channels_open_at_the_first_barrier_are_waited_for() {
        let mut tracker = Tracker::new(3);
        end(&mut tracker, 1);
        assert_eq!(barrier(&mut tracker, 0, 1), []);
        assert_eq!(barrier(&mut tracker, 2, 1), [Start(chk(1))]);
    }

    #[test]
    fn rule_013_an_only_channel_starts_each_checkpoint_at_once() {
        let mut tracker = Tracker::new(1);
        assert_eq!(barrier(&mut tracker, 0, 1), [Start(chk(1))]);
        assert_eq!(barrier(&mut tracker, 0, 2), [Start(chk(2))]);
    }

    #[test]
    fn rule_014_nothing_is_blocked_and_the_last_channel_starts() {
        let mut tracker = Tracker::new(2);
        assert_eq!(barrier(&mut tracker, 0, 1), []);
        assert_eq!(barrier(&mut tracker, 0, 1), [], "one channel is no two");
        assert_eq!(barrier(&mut tracker, 0, 2), [], "it went on");
        assert!(tracker.is_pending(chk(1)) && tracker.is_pending(chk(2)));
        assert_eq!(barrier(&mut tracker, 1, 1), [Start(chk(1))]);
        assert_eq!(barrier(&mut tracker, 1, 2), [Start(chk(2))]);
    }

    #[test]
    fn rule_015_completion_ends_all_older_pending_checkpoints() {
        let mut tracker = Tracker::new(2);
        for checkpoint in 1..=4 {
            barrier(&mut tracker, 0, checkpoint);
        }
        let actions = barrier(&mut tracker, 1, 3);
        assert_eq!(actions, [Abort(chk(1), Subsumed), Abort(chk(2), Subsumed), Start(chk(3))]);
        assert_eq!(barrier(&mut tracker, 1, 2), []);
        assert_eq!(barrier(&mut tracker, 1, 4), [Start(chk(4))], "the newer one is left alone");
    }

    #[test]
    fn rule_016_a_first_barrier_counts_only_if_newer_than_all_seen() {
        let mut tracker = Tracker::new(2);
        barrier(&mut tracker, 0, 2);
        barrier(&mut tracker, 0, 1);
        assert!(!tracker.is_pending(chk(1)));
        assert_eq!(barrier(&mut tracker, 1, 1), []);
        assert_eq!(barrier(&mut tracker, 1, 2), [Start(chk(2))]);
        assert_eq!(barrier(&mut tracker, 1, 2), []);
        assert!(!tracker.is_pending(chk(2)));
    }

    #[test]
    fn rule_016_at_most_50_are_pending_and_the_oldest_goes() {
        let mut tracker = Tracker::new(2);
        for checkpoint in 1..=50 {
            assert_eq!(barrier(&mut tracker, 0, checkpoint), []);
        }
        assert_eq!(barrier(&mut tracker, 0, 51), [Abort(chk(1), Subsumed)]);
        assert_eq!(barrier(&mut tracker, 1, 1), []);
        assert_eq!(barrier(&mut tracker, 1, 2), [Start(chk(2))]);
    }

    #[test]
    fn rule_017_a_cancel_marker_ends_its_checkpoint_and_all_older_ones_for_good() {
        let mut tracker = Tracker::new(3);
        for checkpoint in 1..=3 {
            barrier(&mut tracker, 0, checkpoint);
        }
        assert_eq!(
            cancel(&mut tracker, 1, 2),
            [Abort(chk(1), Subsumed), Abort(chk(2), CancelledUpstream)]
        );
        assert_eq!(cancel(&mut tracker, 2, 2), [], "each is told once");
        assert_eq!(barrier(&mut tracker, 1, 2), [], "a cancelled one does not come back");
        assert!(!tracker.is_pending(chk(2)) && tracker.is_pending(chk(3)));

        let actions = cancel(&mut tracker, 1, 4);
        assert_eq!(actions, [Abort(chk(3), Subsumed), Abort(chk(4), CancelledUpstream)]);
        assert_eq!(barrier(&mut tracker, 0, 4), [], "nor one cancelled before its first barrier");
        assert!(!tracker.is_pending(chk(4)));
    }

    #[test]
    fn rule_018_an_end_starts_only_the_newest_that_waited_for_just_this_channel() {
        let mut tracker = Tracker::new(3);
        for checkpoint in 1..=3 {
            barrier(&mut tracker, 0, checkpoint);
        }
        barrier(&mut tracker, 1, 1);
        barrier(&mut tracker, 1, 2);
        assert_eq!(end(&mut tracker, 2), [Abort(chk(1), Subsumed), Start(chk(2))]);
        assert_eq!(barrier(&mut tracker, 1, 3), [Start(chk(3))]);
    }

    #[test]
    fn rule_019_an_end_between_two_barriers_of_a_checkpoint_does_not_start_it_twice() {
        let mut tracker = Tracker::new(2);
        barrier(&mut tracker, 0, 1);
        assert_eq!(end(&mut tracker, 0), []);
        assert_eq!(barrier(&mut tracker, 1, 1), [Start(chk(1))]);
        assert_eq!(barrier(&mut tracker, 1, 1), []);
        assert_eq!(barrier(&mut tracker, 1, 2), [Start(chk(2))]);
    }

    #[test]
    #[should_panic(expected = "something came on in0, which has ended")]
    fn nothing_follows_the_end_of_a_channel() {
        let mut tracker = Tracker::new(2);
        end(&mut tracker, 0);
        barrier(&mut tracker, 0, 1);
    }

    #[test]
    fn a_checkpoint_that_the_coordinator_gave_up_stays_over_and_others_go_on() {
        let mut tracker = Tracker::new(2);
        barrier(&mut tracker, 0, 1);
        barrier(&mut tracker, 0, 2);
        tracker.abort(chk(2));
        assert_eq!(barrier(&mut tracker, 1, 1), [Start(chk(1))]);
        assert_eq!(barrier(&mut tracker, 1, 2), []);
        assert!(!tracker.is_pending(chk(2)));
    }
}
