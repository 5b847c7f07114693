//! The overtaker: a barrier goes ahead of the data before it, and that data becomes part of the
//! snapshot. It is also the handler of aligned checkpoints with a timeout, which begin as under the
//! [`Aligner`](super::Aligner) and are switched over when they take too long.
//!
//! ```text
//!                    first barrier, in its turn
//!   AwaitingFirstBarrier -----------------------> Aligning { checkpoint, missing }
//!        |         ^  ^                               |            |
//!        |         |  +---- last barrier: Start ------+            | timeout, or a barrier
//!        |         +------- last barrier: Complete ---+            | that overtakes: Begin
//!        |                                            |            v
//!        +-- first barrier, overtaking: Begin ----> Recording { checkpoint, missing }
//! ```
//! A newer barrier, a cancel marker or a command of the task ends what is pending, as there.
//!
//! It compares ids and never just counts. It knows neither what a snapshot is nor what a channel
//! holds: it says *overtake*, and its task's driver knows what that passes over.
//!
//! Invariants: a channel is blocked only while aligning; what is recorded of a channel lies between
//! `Begin` and that channel's `Capture`, its end, or the end of the checkpoint, and nowhere else.

use crate::barrier::BarrierAction;
use crate::id::{ChannelIndex, CheckpointId};
use crate::message::AbortReason;
use crate::time::Instant;

/// Cuts the input of one task at its first barrier (rule 20). What the other channels deliver until
/// their own barriers come, and what each barrier overtakes, was sent before the cut and is not in
/// the operators' state: it belongs to the snapshot as records in flight (rule 22).
///
/// - Getters: [`is_blocked`](Self::is_blocked), [`pending`](Self::pending),
///   [`is_pending`](Self::is_pending), [`is_recording`](Self::is_recording),
///   [`deadline`](Self::deadline).
/// - Facts: `handle_announcement`, `handle_barrier`, `handle_cancel`, `handle_end_of_partition`,
///   `handle_time`. All append to `actions`, and all but an announcement panic if the channel
///   does not exist, is blocked or has ended.
/// - Command: [`abort`](Self::abort).
#[derive(Clone, Debug)]
pub struct Overtaker {
    channels: Vec<Channel>,
    /// The barrier of each channel that has come and waits for its turn.
    announced: Vec<Option<CheckpointId>>,
    state: State,
    /// The greatest id that a barrier or cancel marker has carried.
    newest: Option<CheckpointId>,
    /// When a checkpoint that was announced is switched over; of one that is not over.
    timer: Option<(CheckpointId, Instant)>,
}

impl Overtaker {
    /// An overtaker over `channels` open channels, numbered from 0.
    pub fn new(channels: usize) -> Self {
        Self {
            channels: vec![Channel::Open; channels],
            announced: vec![None; channels],
            state: State::AwaitingFirstBarrier,
            newest: None,
            timer: None,
        }
    }

    /// Whether nothing of the channel may be processed, except a barrier that overtakes.
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
            State::Aligning { checkpoint, .. } | State::Recording { checkpoint, .. } => {
                Some(checkpoint)
            }
        }
    }

    /// Whether a barrier of the checkpoint has come and others are still awaited.
    pub fn is_pending(&self, checkpoint: CheckpointId) -> bool {
        self.pending() == Some(checkpoint)
    }

    /// Whether what the channel delivers now belongs to the snapshot as well.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn is_recording(&self, channel: ChannelIndex) -> bool {
        matches!(self.state, State::Recording { .. })
            && self.channels[channel.index()] == Channel::Open
    }

    /// When [`handle_time`](Self::handle_time) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.timer.map(|(_, at)| at)
    }

    /// A barrier that does not overtake has come to the end of the channel's queue. The timer of
    /// its checkpoint starts here (rule 34); if the checkpoint is recorded by now, the barrier is
    /// to overtake at once. An announcement may come later than the barrier itself: then it changes
    /// nothing.
    ///
    /// # Panics
    /// If the channel does not exist.
    pub fn handle_announcement(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        deadline: Instant,
        actions: &mut Vec<BarrierAction>,
    ) {
        let state = self.channels[channel.index()];
        let is_owed = self.is_pending(checkpoint) && state == Channel::Open;
        if Some(checkpoint) <= self.newest && !is_owed || state == Channel::Ended {
            return;
        }
        match self.state {
            State::Recording { checkpoint: recorded, .. } if recorded == checkpoint => {
                actions.push(BarrierAction::Overtake(channel, checkpoint));
            }
            State::Recording { .. } | State::Aligning { .. } | State::AwaitingFirstBarrier => {
                self.announced[channel.index()] = Some(checkpoint);
                if self.timer.is_none_or(|(of, _)| of < checkpoint) {
                    self.timer = Some((checkpoint, deadline));
                }
            }
        }
    }

    /// A barrier came, in its turn or ahead of it. The first one of a newer id takes the place of a
    /// pending checkpoint (rule 4), and one that is neither newer nor pending is ignored: what it
    /// overtook is nobody's (rules 3, 24, 26). One that overtakes switches its checkpoint over
    /// (rule 36).
    ///
    /// # Panics
    /// If the channel does not exist, has ended, or is blocked and the barrier does not overtake.
    pub fn handle_barrier(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
        overtakes: bool,
        actions: &mut Vec<BarrierAction>,
    ) {
        let is_ahead = overtakes && self.is_blocked(channel);
        assert!(is_ahead || self.is_open(channel), "something of {channel} was let through");
        let announced = &mut self.announced[channel.index()];
        *announced = announced.filter(|announced| *announced > checkpoint);
        if Some(checkpoint) > self.newest {
            self.abort_pending(AbortReason::Subsumed, actions);
            self.newest = Some(checkpoint);
            self.state = State::Aligning { checkpoint, missing: self.owing() };
        }
        if !self.is_pending(checkpoint) || self.channels[channel.index()] != Channel::Open {
            return;
        }
        if overtakes {
            self.begin(actions);
        }
        match self.state {
            State::Recording { .. } => {
                self.channels[channel.index()] = Channel::Delivered;
                actions.push(BarrierAction::Capture(channel));
                self.note_arrival(actions);
            }
            State::Aligning { .. } => {
                self.note_arrival(actions);
                if self.is_pending(checkpoint) {
                    self.channels[channel.index()] = Channel::Blocked;
                    actions.push(BarrierAction::Block(channel));
                }
            }
            State::AwaitingFirstBarrier => unreachable!("the checkpoint is pending"),
        }
    }

    /// A cancel marker came: as [`Aligner::handle_cancel`](super::Aligner::handle_cancel).
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
            self.stop_timer();
            actions.push(BarrierAction::Abort(checkpoint, AbortReason::CancelledUpstream));
        }
    }

    /// The channel ended. For a pending checkpoint that counts as its barrier (rule 10): whatever
    /// the channel carried has been processed, and recorded if it had to be.
    ///
    /// # Panics
    /// If the channel does not exist, is blocked or has ended.
    pub fn handle_end_of_partition(
        &mut self,
        channel: ChannelIndex,
        actions: &mut Vec<BarrierAction>,
    ) {
        self.assert_open(channel);
        let owed = self.channels[channel.index()] == Channel::Open;
        self.channels[channel.index()] = Channel::Ended;
        if owed {
            self.note_arrival(actions);
        }
    }

    /// Time has passed: a checkpoint that has taken too long is switched over, and the barriers
    /// that have come and wait for their turn overtake (rule 35).
    pub fn handle_time(&mut self, now: Instant, actions: &mut Vec<BarrierAction>) {
        let Some((checkpoint, _)) = self.timer.filter(|(_, at)| *at <= now) else { return };
        self.timer = None;
        if self.is_pending(checkpoint) {
            self.begin(actions);
        }
        for (position, announced) in (0..).zip(&self.announced) {
            if *announced == Some(checkpoint) {
                let channel = ChannelIndex::new(position);
                actions.push(BarrierAction::Overtake(channel, checkpoint));
            }
        }
    }

    /// The coordinator has given the checkpoint up: as [`Aligner::abort`](super::Aligner::abort).
    /// Nothing more is recorded for it (rule 25).
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
        let has = |channel| self.channels.contains(&channel);
        match self.state {
            State::AwaitingFirstBarrier => {
                assert!(!has(Channel::Blocked) && !has(Channel::Delivered), "for no checkpoint");
            }
            State::Aligning { checkpoint, missing } => {
                assert!(!has(Channel::Delivered), "a channel goes on before the cut");
                self.check_pending(checkpoint, missing);
            }
            State::Recording { checkpoint, missing } => {
                assert!(!has(Channel::Blocked), "blocked after the cut");
                self.check_pending(checkpoint, missing);
            }
        }
    }

    fn check_pending(&self, checkpoint: CheckpointId, missing: usize) {
        assert_eq!(self.newest, Some(checkpoint), "only the newest can be pending");
        assert_eq!(missing, self.owing(), "each open channel owes a barrier");
        assert_ne!(missing, 0, "{checkpoint} waits for nothing");
    }

    fn owing(&self) -> usize {
        self.channels.iter().filter(|channel| **channel == Channel::Open).count()
    }

    /// Switches the pending checkpoint over, if that has not been done: the cut is here. Channels
    /// that were blocked have delivered their barriers, so nothing of them is recorded.
    fn begin(&mut self, actions: &mut Vec<BarrierAction>) {
        if let State::Aligning { checkpoint, missing } = self.state {
            self.state = State::Recording { checkpoint, missing };
            actions.push(BarrierAction::Begin(checkpoint));
            for (position, channel) in (0..).zip(&mut self.channels) {
                if *channel == Channel::Blocked {
                    *channel = Channel::Delivered;
                    actions.push(BarrierAction::Unblock(ChannelIndex::new(position)));
                }
            }
        }
    }

    /// One of the channels that the pending checkpoint, if any, waits for has delivered.
    fn note_arrival(&mut self, actions: &mut Vec<BarrierAction>) {
        let (missing, done) = match &mut self.state {
            State::AwaitingFirstBarrier => return,
            State::Aligning { checkpoint, missing } => (missing, BarrierAction::Start(*checkpoint)),
            State::Recording { checkpoint, missing } => {
                (missing, BarrierAction::Complete(*checkpoint))
            }
        };
        *missing -= 1;
        if *missing == 0 {
            actions.push(done);
            self.release(actions);
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
        self.stop_timer();
        for (position, channel) in (0..).zip(&mut self.channels) {
            match channel {
                Channel::Blocked => {
                    *channel = Channel::Open;
                    actions.push(BarrierAction::Unblock(ChannelIndex::new(position)));
                }
                Channel::Delivered => *channel = Channel::Open,
                Channel::Open | Channel::Ended => {}
            }
        }
    }

    /// No checkpoint up to the newest waits for a timeout any more.
    fn stop_timer(&mut self) {
        self.timer = self.timer.filter(|(of, _)| Some(*of) > self.newest);
    }

    fn is_open(&self, channel: ChannelIndex) -> bool {
        matches!(self.channels[channel.index()], Channel::Open | Channel::Delivered)
    }

    fn assert_open(&self, channel: ChannelIndex) {
        assert!(self.is_open(channel), "something of {channel} was let through");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    /// It owes the barrier, if one is awaited.
    Open,
    /// Its barrier has come while aligning.
    Blocked,
    /// Its barrier has come, and the cut is made.
    Delivered,
    Ended,
}

#[derive(Clone, Copy, Debug)]
enum State {
    AwaitingFirstBarrier,
    Aligning {
        checkpoint: CheckpointId,
        /// How many channels owe the barrier: first those open when the first one came (rule 11).
        missing: usize,
    },
    Recording {
        checkpoint: CheckpointId,
        /// As while aligning.
        missing: usize,
    },
}

#[cfg(test)]
mod tests;
