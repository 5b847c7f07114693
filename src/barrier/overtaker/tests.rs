//! The rules of unaligned checkpoints and of aligned ones with a timeout, by number.

use super::*;
use BarrierAction::{Abort, Begin, Block, Capture, Complete, Overtake, Start, Unblock};

fn input(position: u32) -> ChannelIndex {
    ChannelIndex::new(position)
}

fn chk(number: u64) -> CheckpointId {
    CheckpointId::new(number)
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// An overtaker whose invariants are checked after each call.
struct Probe(Overtaker);

impl Probe {
    fn new(channels: usize) -> Self {
        Self(Overtaker::new(channels))
    }

    fn acting(
        &mut self,
        act: impl FnOnce(&mut Overtaker, &mut Vec<BarrierAction>),
    ) -> Vec<BarrierAction> {
        let mut actions = Vec::new();
        act(&mut self.0, &mut actions);
        self.0.check_invariants();
        actions
    }

    /// A barrier that overtakes.
    fn ahead(&mut self, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        self.acting(|it, actions| it.handle_barrier(input(channel), chk(checkpoint), true, actions))
    }

    /// A barrier in its turn.
    fn barrier(&mut self, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        self.acting(|it, actions| {
            it.handle_barrier(input(channel), chk(checkpoint), false, actions);
        })
    }

    /// A barrier that waits for its turn; its checkpoint has until `deadline`.
    fn announce(&mut self, channel: u32, checkpoint: u64, deadline: u64) -> Vec<BarrierAction> {
        let (channel, checkpoint, deadline) = (input(channel), chk(checkpoint), at(deadline));
        self.acting(|it, actions| it.handle_announcement(channel, checkpoint, deadline, actions))
    }

    fn cancel(&mut self, channel: u32, checkpoint: u64) -> Vec<BarrierAction> {
        self.acting(|it, actions| it.handle_cancel(input(channel), chk(checkpoint), actions))
    }

    fn end(&mut self, channel: u32) -> Vec<BarrierAction> {
        self.acting(|it, actions| it.handle_end_of_partition(input(channel), actions))
    }

    fn time(&mut self, millis: u64) -> Vec<BarrierAction> {
        self.acting(|it, actions| it.handle_time(at(millis), actions))
    }

    fn recorded(&self) -> Vec<bool> {
        let channels = self.0.channels.len() as u32;
        (0..channels).map(|channel| self.0.is_recording(input(channel))).collect()
    }
}

#[test]
fn rule_020_the_first_barrier_on_any_channel_makes_the_cut_and_blocks_nothing() {
    let mut task = Probe::new(2);
    assert_eq!(task.ahead(1, 1), [Begin(chk(1)), Capture(input(1))]);
    assert!(!task.0.is_blocked(input(0)) && !task.0.is_blocked(input(1)));
    let mut task = Probe::new(1);
    assert_eq!(task.ahead(0, 1), [Begin(chk(1)), Capture(input(0)), Complete(chk(1))]);
}

#[test]
fn rule_022_a_channel_is_recorded_from_the_cut_to_its_barrier_and_every_channel_is() {
    let mut task = Probe::new(3);
    assert_eq!(task.recorded(), [false; 3]);
    task.ahead(1, 1);
    assert_eq!(task.recorded(), [true, false, true]);
    assert_eq!(task.ahead(2, 1), [Capture(input(2))]);
    assert_eq!(task.recorded(), [true, false, false]);
    assert_eq!(task.ahead(0, 1), [Capture(input(0)), Complete(chk(1))]);
    assert_eq!(task.recorded(), [false; 3]);
}

#[test]
fn rule_022_a_barrier_in_its_turn_ends_the_recording_of_its_channel_as_well() {
    let mut task = Probe::new(2);
    task.ahead(0, 1);
    assert_eq!(task.barrier(1, 1), [Capture(input(1)), Complete(chk(1))]);
}

#[test]
fn rule_010_the_end_of_a_channel_ends_its_recording() {
    let mut task = Probe::new(3);
    task.ahead(0, 1);
    assert_eq!(task.end(0), [], "its barrier has come");
    assert_eq!(task.end(1), []);
    assert_eq!(task.end(2), [Complete(chk(1))]);
}

#[test]
fn rule_024_a_newer_barrier_takes_the_place_of_the_one_that_is_recorded() {
    let mut task = Probe::new(2);
    task.ahead(0, 1);
    let subsumed = Abort(chk(1), AbortReason::Subsumed);
    assert_eq!(task.ahead(0, 2), [subsumed, Begin(chk(2)), Capture(input(0))]);
    assert_eq!(task.recorded(), [false, true]);
    assert_eq!(task.ahead(1, 1), [], "rule 26: what a stale barrier overtook is nobody's");
    assert_eq!(task.recorded(), [false, true], "rule 26: and it ends no recording");
    assert_eq!(task.ahead(1, 2), [Capture(input(1)), Complete(chk(2))]);
}

#[test]
fn rule_025_nothing_is_recorded_after_an_abort_and_no_other_checkpoint_is_ended_by_it() {
    let mut task = Probe::new(2);
    task.ahead(0, 1);
    assert_eq!(task.acting(|it, actions| it.abort(chk(1), actions)), []);
    assert_eq!(task.recorded(), [false; 2]);
    assert_eq!(task.ahead(1, 1), [], "a barrier that comes late starts nothing");
    task.ahead(1, 2);
    assert_eq!(task.acting(|it, actions| it.abort(chk(1), actions)), [], "fault UN-06");
    assert_eq!(task.recorded(), [true, false]);
}

#[test]
fn rule_005_a_cancel_marker_ends_the_recording() {
    let mut task = Probe::new(2);
    task.ahead(0, 1);
    assert_eq!(task.cancel(1, 1), [Abort(chk(1), AbortReason::CancelledUpstream)]);
    assert_eq!(task.recorded(), [false; 2]);
    task.announce(1, 2, 10);
    task.cancel(0, 2);
    assert_eq!((task.0.deadline(), task.time(10)), (None, vec![]));
}

#[test]
fn rule_034_the_timer_starts_at_the_announcement_and_stops_when_the_checkpoint_is_over() {
    let mut task = Probe::new(2);
    assert_eq!(task.announce(0, 1, 10), []);
    assert_eq!(task.0.deadline(), Some(at(10)));
    task.announce(1, 1, 10);
    assert_eq!(task.time(9), []);
    assert_eq!(task.barrier(0, 1), [Block(input(0))]);
    assert_eq!(task.barrier(1, 1), [Start(chk(1)), Unblock(input(0))], "in time: aligned");
    assert_eq!((task.0.deadline(), task.time(10)), (None, vec![]));

    task.announce(0, 2, 20);
    task.barrier(0, 2);
    task.acting(|it, actions| it.abort(chk(2), actions));
    assert_eq!(task.0.deadline(), None);
}

#[test]
fn rule_035_on_timeout_the_cut_is_made_and_announced_barriers_overtake() {
    let mut task = Probe::new(3);
    task.announce(0, 1, 10);
    task.barrier(0, 1);
    task.announce(1, 1, 10);
    let switched = [Begin(chk(1)), Unblock(input(0)), Overtake(input(1), chk(1))];
    assert_eq!(task.time(10), switched);
    assert_eq!(task.recorded(), [false, true, true]);
    assert_eq!(task.ahead(1, 1), [Capture(input(1))]);
    assert_eq!(task.announce(2, 1, 10), [Overtake(input(2), chk(1))], "no later one waits");
    assert_eq!(task.ahead(2, 1), [Capture(input(2)), Complete(chk(1))]);
}

#[test]
fn rule_034_an_announcement_that_comes_after_its_barrier_changes_nothing() {
    let mut task = Probe::new(2);
    task.barrier(0, 1);
    assert_eq!(task.announce(0, 1, 10), []);
    assert_eq!(task.0.deadline(), None);
    task.ahead(1, 1);
    assert_eq!(task.announce(1, 1, 10), []);
    task.ahead(0, 2);
    assert_eq!(task.announce(0, 2, 20), []);
    assert_eq!(task.announce(1, 2, 20), [Overtake(input(1), chk(2))]);
}

#[test]
fn rule_035_on_timeout_with_no_barrier_in_its_turn_the_first_announced_one_makes_the_cut() {
    let mut task = Probe::new(2);
    task.announce(1, 1, 10);
    assert_eq!(task.time(10), [Overtake(input(1), chk(1))]);
    assert_eq!(task.ahead(1, 1), [Begin(chk(1)), Capture(input(1))]);
}

#[test]
fn rule_036_a_barrier_that_overtakes_switches_an_alignment_over() {
    let mut task = Probe::new(3);
    task.barrier(0, 1);
    let switched = [Begin(chk(1)), Unblock(input(0)), Capture(input(2))];
    assert_eq!(task.ahead(2, 1), switched);
    assert_eq!(task.recorded(), [false, true, false]);
}

#[test]
fn rule_038_each_block_has_one_unblock_in_every_mix() {
    for kinds in 0..8_u32 {
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let mut task = Probe::new(3);
            let mut blocked = vec![0; 3];
            for (turn, channel) in order.into_iter().enumerate() {
                let actions = match (kinds >> turn) & 1 {
                    0 => task.barrier(channel, 1),
                    _ => task.ahead(channel, 1),
                };
                for action in actions {
                    match action {
                        Block(channel) => blocked[channel.index()] += 1,
                        Unblock(channel) => blocked[channel.index()] -= 1,
                        Start(_) | Begin(_) | Capture(_) | Complete(_) => {}
                        Abort(..) | Overtake(..) => panic!("{action:?}"),
                    }
                }
            }
            assert_eq!(blocked, [0; 3], "kinds {kinds:b}, order {order:?}");
            assert!(task.0.pending().is_none());
        }
    }
}

#[test]
fn rule_038_a_barrier_may_come_ahead_on_a_channel_that_an_older_one_has_blocked() {
    let mut task = Probe::new(2);
    task.barrier(0, 1);
    let subsumed = Abort(chk(1), AbortReason::Subsumed);
    let actions = [subsumed, Unblock(input(0)), Begin(chk(2)), Capture(input(0))];
    assert_eq!(task.ahead(0, 2), actions);
}

#[test]
#[should_panic(expected = "something of in0 was let through")]
fn a_barrier_in_its_turn_on_a_blocked_channel_is_a_broken_invariant() {
    let mut task = Probe::new(2);
    task.barrier(0, 1);
    task.barrier(0, 2);
}
