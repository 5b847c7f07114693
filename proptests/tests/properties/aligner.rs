//! The barrier handlers against a specification that keeps the whole history and answers each
//! question by searching it, so that it shares no state, and no shortcut, with the handlers.

use std::collections::{BTreeSet, VecDeque};

use cofferdam::barrier::{BarrierAction, BarrierHandler};
use cofferdam::element::Barrier;
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{ChannelIndex, CheckpointId};
use cofferdam::time::Instant;
use proptest::prelude::*;
use proptest::sample::Index;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_aligner_cuts_every_channel_exactly_and_blocks_no_longer_than_it_must(
        run in run(),
    ) {
        World::new(Mechanism::Aligned, run.scripts).play(&run.turns);
    }

    #[test]
    fn an_overtaker_with_no_reason_to_overtake_is_an_aligner(run in run()) {
        let overtaker = BarrierHandler::new(Mechanism::AlignedTimeout, run.scripts.len(), true);
        let world = World::new(Mechanism::Aligned, run.scripts);
        World { handler: overtaker, ..world }.play(&run.turns);
    }

    #[test]
    fn the_tracker_never_blocks_and_starts_what_all_channels_have_delivered(run in run()) {
        World::new(Mechanism::Tracked, run.scripts).play(&run.turns);
    }
}

/// What each channel carries, in order, and in which order the channels get their turns.
#[derive(Clone, Debug)]
struct Run {
    scripts: Vec<VecDeque<Item>>,
    turns: Vec<Turn>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Record,
    Barrier(u64),
    Cancel(u64),
    End,
}

#[derive(Clone, Debug)]
enum Turn {
    /// One of the channels that may deliver does so.
    Deliver(Index),
    /// The coordinator's abort notice arrives.
    GiveUp(u64),
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Delivered(usize, Item),
    GivenUp(u64),
    Started(u64),
    Aborted(u64),
}

const CHECKPOINTS: u64 = 8;

fn run() -> impl Strategy<Value = Run> {
    let turn = prop_oneof![
        12 => any::<Index>().prop_map(Turn::Deliver),
        1 => (1..=CHECKPOINTS).prop_map(Turn::GiveUp),
    ];
    (prop::collection::vec(script(), 1..=4), prop::collection::vec(turn, 0..80))
        .prop_map(|(scripts, turns)| Run { scripts, turns })
}

/// Strictly increasing ids, some skipped, records between them, and the end at any point.
fn script() -> impl Strategy<Value = VecDeque<Item>> {
    let kind = prop_oneof![
        8 => Just(Some(Item::Barrier as fn(u64) -> Item)),
        1 => Just(Some(Item::Cancel as fn(u64) -> Item)),
        1 => Just(None),
    ];
    prop::collection::vec((kind, 0..3_usize), 0..=CHECKPOINTS as usize).prop_map(|steps| {
        let mut items = VecDeque::new();
        for (id, (kind, records)) in (1..).zip(steps) {
            items.extend(kind.map(|kind| kind(id)));
            items.extend(std::iter::repeat_n(Item::Record, records));
        }
        items.push_back(Item::End);
        items
    })
}

/// A task's gate around one handler.
struct World {
    mechanism: Mechanism,
    handler: BarrierHandler,
    scripts: Vec<VecDeque<Item>>,
    blocked: BTreeSet<usize>,
    history: History,
}

impl World {
    fn new(mechanism: Mechanism, scripts: Vec<VecDeque<Item>>) -> Self {
        Self {
            mechanism,
            handler: BarrierHandler::new(mechanism, scripts.len(), false),
            blocked: BTreeSet::new(),
            history: History { channels: scripts.len(), events: Vec::new() },
            scripts,
        }
    }

    /// Plays the turns, then whatever is left: as every channel ends, no barrier may be waited for
    /// for ever.
    fn play(mut self, turns: &[Turn]) {
        for turn in turns {
            match turn {
                Turn::Deliver(index) => {
                    let ready = self.ready();
                    if !ready.is_empty() {
                        self.deliver(*index.get(&ready));
                    }
                }
                Turn::GiveUp(id) => self.give_up(*id),
            }
            self.check();
        }
        while let Some(channel) = self.ready().first() {
            self.deliver(*channel);
            self.check();
        }
        assert_eq!(self.blocked, BTreeSet::new(), "blocked for ever");
        assert!(self.scripts.iter().all(VecDeque::is_empty), "not all was delivered");
    }

    fn ready(&self) -> Vec<usize> {
        let waits = |channel: &usize| !self.scripts[*channel].is_empty();
        (0..self.scripts.len()).filter(waits).filter(|it| !self.blocked.contains(it)).collect()
    }

    fn deliver(&mut self, channel: usize) {
        let item =
            self.scripts[channel].pop_front().expect("only channels that hold something are ready");
        let position = ChannelIndex::new(channel as u32);
        let mut actions = Vec::new();
        match item {
            Item::Record => {}
            Item::Barrier(id) => {
                let checkpoint = CheckpointId::new(id);
                let triggered_at = Instant::ZERO;
                let barrier = Barrier { checkpoint, overtakes: false, triggered_at };
                self.handler.handle_barrier(position, barrier, &mut actions);
            }
            Item::Cancel(id) => {
                self.handler.handle_cancel(position, CheckpointId::new(id), &mut actions);
            }
            Item::End => self.handler.handle_end_of_partition(position, &mut actions),
        }
        let before = self.history.clone();
        self.history.events.push(Event::Delivered(channel, item));
        let expected = match self.mechanism {
            Mechanism::None | Mechanism::Acks | Mechanism::Transactional => Vec::new(),
            Mechanism::Tracked => self.history.tracked_outcomes(&before),
            Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout => self.history.aligned_outcomes(&before),
        };
        assert_eq!(self.carry_out(&actions), expected, "after {item:?} on {channel}: {actions:?}");
    }

    fn give_up(&mut self, id: u64) {
        let mut actions = Vec::new();
        self.handler.abort(CheckpointId::new(id), &mut actions);
        if self.history.pending(self.mechanism).contains(&id) {
            self.history.events.push(Event::GivenUp(id));
        }
        assert_eq!(self.carry_out(&actions), [], "the coordinator knows already");
    }

    /// Does what the actions say, and returns the outcomes among them.
    fn carry_out(&mut self, actions: &[BarrierAction]) -> Vec<Event> {
        let first = self.history.events.len();
        for action in actions {
            match *action {
                BarrierAction::Block(channel) => {
                    assert!(self.blocked.insert(channel.index()), "{channel} blocked twice");
                }
                BarrierAction::Unblock(channel) => {
                    assert!(self.blocked.remove(&channel.index()), "{channel} unblocked twice");
                }
                BarrierAction::Start(id) => {
                    self.check_start(id.get());
                    self.check_those_who_wait(id.get());
                    self.history.events.push(Event::Started(id.get()));
                }
                BarrierAction::Begin(_)
                | BarrierAction::Capture(_)
                | BarrierAction::Complete(_)
                | BarrierAction::Overtake(..) => panic!("nothing overtakes: {action:?}"),
                BarrierAction::Abort(id, _) => {
                    self.check_those_who_wait(id.get());
                    self.history.events.push(Event::Aborted(id.get()));
                }
            }
        }
        self.history.events[first..].to_vec()
    }

    /// A start is newer than all before it and has no other outcome; every channel has delivered
    /// the barrier or ended, and with the aligner nothing that followed the barrier.
    fn check_start(&self, id: u64) {
        let History { channels, events } = &self.history;
        for event in events {
            assert!(
                !matches!(event, Event::Started(other) if *other >= id),
                "{id} after {event:?}"
            );
            assert!(
                *event != Event::Aborted(id) && *event != Event::GivenUp(id),
                "{event:?} twice"
            );
        }
        for channel in 0..*channels {
            assert!(self.history.reached(channel, id), "{id} without channel {channel}");
            if self.mechanism == Mechanism::Aligned {
                let last = self.history.delivered_on(channel).last();
                assert!(
                    last == Some(Item::Barrier(id)) || last == Some(Item::End),
                    "{id} holds {last:?} of channel {channel}"
                );
            }
        }
    }

    /// The outcome is told before any channel that waited for it goes on.
    fn check_those_who_wait(&self, id: u64) {
        let waits = |channel: &usize| {
            self.mechanism == Mechanism::Aligned
                && self.history.delivered_on(*channel).last() == Some(Item::Barrier(id))
        };
        let arriving = self.history.events.iter().rev().find_map(|event| match event {
            Event::Delivered(channel, _) => Some(*channel),
            Event::GivenUp(_) | Event::Started(_) | Event::Aborted(_) => None,
        });
        for channel in (0..self.history.channels).filter(waits) {
            let blocked = self.blocked.contains(&channel);
            assert!(blocked || Some(channel) == arriving, "{channel} went on before {id} was over");
        }
    }

    fn check(&self) {
        self.handler.check_invariants();
        let pending = self.history.pending(self.mechanism);
        for id in 1..=CHECKPOINTS {
            let is_pending = self.handler.is_pending(CheckpointId::new(id));
            assert_eq!(is_pending, pending.contains(&id), "whether {id} is pending");
        }
        for channel in 0..self.history.channels {
            let has_delivered =
                |id: &u64| self.history.happened(Event::Delivered(channel, Item::Barrier(*id)));
            let must_wait =
                self.mechanism == Mechanism::Aligned && pending.iter().any(has_delivered);
            assert_eq!(self.blocked.contains(&channel), must_wait, "whether {channel} is blocked");
            assert_eq!(self.handler.is_blocked(ChannelIndex::new(channel as u32)), must_wait);
        }
    }
}

/// Everything that has happened at one task, and what follows from it.
#[derive(Clone, Debug)]
struct History {
    channels: usize,
    events: Vec<Event>,
}

impl History {
    /// At most one checkpoint is pending: the newest, while it lacks channels. It ends by its
    /// start, by a cancel marker, by being given up, or by a newer id.
    fn aligned_outcomes(&self, before: &Self) -> Vec<Event> {
        let mut outcomes = Vec::new();
        let newest = self.newest();
        let cancelled = newest.is_some_and(|id| self.cancelled_from(id));
        let starts = |id| Some(id) == newest && !cancelled && self.all_reached(id);
        for id in before.pending(Mechanism::Aligned) {
            if starts(id) {
                outcomes.push(Event::Started(id));
            } else if Some(id) != newest || cancelled {
                outcomes.push(Event::Aborted(id));
            }
        }
        if let Some(id) = newest.filter(|_| newest > before.newest()) {
            if cancelled {
                outcomes.push(Event::Aborted(id));
            } else if starts(id) {
                outcomes.push(Event::Started(id));
            }
        }
        outcomes
    }

    /// Of the pending checkpoints the newest that lacks no channel starts, and all older ones end.
    fn tracked_outcomes(&self, before: &Self) -> Vec<Event> {
        let pending = self.pending(Mechanism::Tracked);
        let mut ended = &before.pending(Mechanism::Tracked) - &pending;
        ended.extend(
            self.newest().filter(|id| self.newest() > before.newest() && self.cancelled_from(*id)),
        );
        let start = pending.iter().copied().rfind(|id| self.all_reached(*id));
        ended.extend(pending.iter().filter(|id| Some(**id) < start));
        ended.into_iter().map(Event::Aborted).chain(start.map(Event::Started)).collect()
    }

    /// A checkpoint whose first mention was a barrier newer than all ids before it, unless it has
    /// started, was given up, or was ended by a cancel marker or the start of itself or a newer
    /// one; with the aligner any newer id ends it.
    fn pending(&self, mechanism: Mechanism) -> BTreeSet<u64> {
        let open = |id: &u64| {
            let overtaken = match mechanism {
                Mechanism::None | Mechanism::Acks | Mechanism::Transactional => true,
                Mechanism::Tracked => false,
                Mechanism::FullReplay
                | Mechanism::MiniBatch
                | Mechanism::Aligned
                | Mechanism::Unaligned
                | Mechanism::AlignedTimeout => self.newest() != Some(*id),
            };
            let ended = (*id..=CHECKPOINTS).any(|newer| self.happened(Event::Started(newer)));
            !overtaken && !ended && !self.cancelled_from(*id) && !self.happened(Event::GivenUp(*id))
        };
        (1..=CHECKPOINTS).filter(|id| self.opened_by_a_barrier(*id)).filter(open).collect()
    }

    fn opened_by_a_barrier(&self, id: u64) -> bool {
        let at_or_past = |event: &&Event| mentioned(event) >= Some(id);
        let first = self.events.iter().find(at_or_past);
        matches!(first, Some(Event::Delivered(_, Item::Barrier(first))) if *first == id)
    }

    /// Whether a cancel marker of this id or a newer one was delivered.
    fn cancelled_from(&self, id: u64) -> bool {
        self.events
            .iter()
            .any(|event| matches!(event, Event::Delivered(_, Item::Cancel(other)) if *other >= id))
    }

    fn newest(&self) -> Option<u64> {
        self.events.iter().filter_map(mentioned).max()
    }

    fn all_reached(&self, id: u64) -> bool {
        (0..self.channels).all(|channel| self.reached(channel, id))
    }

    fn reached(&self, channel: usize, id: u64) -> bool {
        self.delivered_on(channel).any(|item| item == Item::Barrier(id) || item == Item::End)
    }

    fn delivered_on(&self, channel: usize) -> impl Iterator<Item = Item> {
        self.events.iter().filter_map(move |event| match event {
            Event::Delivered(other, item) => (*other == channel).then_some(*item),
            Event::GivenUp(_) | Event::Started(_) | Event::Aborted(_) => None,
        })
    }

    fn happened(&self, event: Event) -> bool {
        self.events.contains(&event)
    }
}

/// The id that a barrier or cancel marker carried.
fn mentioned(event: &Event) -> Option<u64> {
    match event {
        Event::Delivered(_, Item::Barrier(id) | Item::Cancel(id)) => Some(*id),
        Event::Delivered(_, Item::Record | Item::End)
        | Event::GivenUp(_)
        | Event::Started(_)
        | Event::Aborted(_) => None,
    }
}
