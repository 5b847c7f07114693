//! Barriers that overtake at any moment, and alignments that are switched over at any moment: what
//! a task has received before its cut, and what it records, is what was sent before the barriers.

use std::collections::{BTreeSet, VecDeque};

use cofferdam::barrier::{BarrierAction, Overtaker};
use cofferdam::id::{ChannelIndex, CheckpointId};
use cofferdam::time::Instant;
use proptest::prelude::*;
use proptest::sample::Index;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rule_022_received_and_recorded_together_are_what_was_sent_before_the_barrier(run in run()) {
        let mut gate = Gate::new(&run.scripts);
        for turn in &run.turns {
            gate.take(turn);
        }
        while let Some(channel) = gate.ready().first() {
            gate.deliver(*channel);
        }
        prop_assert!(gate.blocked.is_empty(), "rule 38: blocked for ever");
        prop_assert!(gate.queues.iter().all(VecDeque::is_empty), "not all was delivered");
    }
}

#[derive(Clone, Debug)]
struct Run {
    /// How many records each channel carries before each barrier, and behind the last one.
    scripts: Vec<Vec<u64>>,
    turns: Vec<Turn>,
}

#[derive(Clone, Debug)]
enum Turn {
    /// A channel that is not blocked delivers.
    Deliver(Index),
    /// The next barrier of a channel overtakes what is before it.
    Overtake(Index),
    /// The next barrier of a channel is announced.
    Announce(Index),
    /// The timeout of whatever was announced has come.
    Time,
    /// The coordinator gives a checkpoint up.
    GiveUp(u64),
}

#[derive(Clone, Copy, Debug)]
enum Item {
    Record(u64),
    Barrier(u64),
    End,
}

const CHECKPOINTS: usize = 4;

fn run() -> impl Strategy<Value = Run> {
    let turn = prop_oneof![
        8 => any::<Index>().prop_map(Turn::Deliver),
        3 => any::<Index>().prop_map(Turn::Overtake),
        2 => any::<Index>().prop_map(Turn::Announce),
        1 => Just(Turn::Time),
        1 => (1..=CHECKPOINTS as u64).prop_map(Turn::GiveUp),
    ];
    let script = prop::collection::vec(0..4_u64, CHECKPOINTS + 1);
    (prop::collection::vec(script, 1..=4), prop::collection::vec(turn, 0..80))
        .prop_map(|(scripts, turns)| Run { scripts, turns })
}

/// A task's gate, and what it keeps of the checkpoint that is recorded.
struct Gate {
    handler: Overtaker,
    queues: Vec<VecDeque<Item>>,
    blocked: BTreeSet<usize>,
    /// What each channel has delivered.
    received: Vec<Vec<u64>>,
    /// What the snapshot holds of each channel: received before the cut, then in flight.
    held: Vec<Vec<u64>>,
    /// What was sent on each channel before each barrier.
    sent: Vec<Vec<Vec<u64>>>,
}

impl Gate {
    fn new(scripts: &[Vec<u64>]) -> Self {
        let mut gate = Self {
            handler: Overtaker::new(scripts.len()),
            queues: Vec::new(),
            blocked: BTreeSet::new(),
            received: vec![Vec::new(); scripts.len()],
            held: vec![Vec::new(); scripts.len()],
            sent: Vec::new(),
        };
        for script in scripts {
            let (mut queue, mut before, mut sent) = (VecDeque::new(), Vec::new(), Vec::new());
            for (checkpoint, records) in (1..).zip(script) {
                for _ in 0..*records {
                    let record = before.len() as u64;
                    before.push(record);
                    queue.push_back(Item::Record(record));
                }
                sent.push(before.clone());
                let is_last = checkpoint > CHECKPOINTS as u64;
                queue.push_back(if is_last { Item::End } else { Item::Barrier(checkpoint) });
            }
            gate.queues.push(queue);
            gate.sent.push(sent);
        }
        gate
    }

    fn take(&mut self, turn: &Turn) {
        match turn {
            Turn::Deliver(index) => {
                let ready = self.ready();
                if !ready.is_empty() {
                    self.deliver(*index.get(&ready));
                }
            }
            Turn::Overtake(index) => {
                let channel = index.index(self.queues.len());
                if let Some((_, checkpoint)) = self.next_barrier(channel) {
                    self.overtake(channel, checkpoint);
                }
            }
            Turn::Announce(index) => {
                let channel = index.index(self.queues.len());
                if let Some((_, checkpoint)) = self.next_barrier(channel) {
                    let id = CheckpointId::new(checkpoint);
                    self.call(Vec::new(), |handler, actions| {
                        handler.handle_announcement(input(channel), id, Instant::ZERO, actions);
                    });
                }
            }
            Turn::Time => self.call(Vec::new(), |handler, actions| {
                handler.handle_time(Instant::ZERO, actions);
            }),
            Turn::GiveUp(checkpoint) => {
                let id = CheckpointId::new(*checkpoint);
                self.call(Vec::new(), |handler, actions| handler.abort(id, actions));
            }
        }
    }

    fn ready(&self) -> Vec<usize> {
        let holds = |channel: &usize| !self.queues[*channel].is_empty();
        (0..self.queues.len()).filter(holds).filter(|it| !self.blocked.contains(it)).collect()
    }

    fn next_barrier(&self, channel: usize) -> Option<(usize, u64)> {
        self.queues[channel].iter().enumerate().find_map(|(place, item)| match item {
            Item::Barrier(checkpoint) => Some((place, *checkpoint)),
            Item::Record(_) | Item::End => None,
        })
    }

    fn deliver(&mut self, channel: usize) {
        match self.queues[channel].pop_front().expect("only channels that hold something") {
            Item::Record(record) => {
                self.received[channel].push(record);
                if self.handler.is_recording(input(channel)) {
                    self.held[channel].push(record);
                }
            }
            Item::Barrier(checkpoint) => self.call(Vec::new(), |handler, actions| {
                handler.handle_barrier(
                    input(channel),
                    CheckpointId::new(checkpoint),
                    false,
                    actions,
                );
            }),
            Item::End => self.call(Vec::new(), |handler, actions| {
                handler.handle_end_of_partition(input(channel), actions);
            }),
        }
    }

    fn overtake(&mut self, channel: usize, checkpoint: u64) {
        let Some((place, _)) = self.next_barrier(channel).filter(|(_, next)| *next == checkpoint)
        else {
            return;
        };
        self.queues[channel].remove(place);
        let record = |item: &Item| match item {
            Item::Record(record) => *record,
            Item::Barrier(_) | Item::End => unreachable!("it is the first barrier"),
        };
        let overtaken = self.queues[channel].iter().take(place).map(record).collect();
        self.call(overtaken, |handler, actions| {
            handler.handle_barrier(input(channel), CheckpointId::new(checkpoint), true, actions);
        });
    }

    fn call(
        &mut self,
        overtaken: Vec<u64>,
        call: impl FnOnce(&mut Overtaker, &mut Vec<BarrierAction>),
    ) {
        let mut actions = Vec::new();
        call(&mut self.handler, &mut actions);
        self.handler.check_invariants();
        for action in actions {
            match action {
                BarrierAction::Block(channel) => assert!(self.blocked.insert(channel.index())),
                BarrierAction::Unblock(channel) => assert!(self.blocked.remove(&channel.index())),
                BarrierAction::Begin(_) => self.held.clone_from(&self.received),
                BarrierAction::Capture(channel) => {
                    self.held[channel.index()].extend(&overtaken);
                }
                BarrierAction::Start(checkpoint) => {
                    self.held.clone_from(&self.received);
                    self.check(checkpoint);
                }
                BarrierAction::Complete(checkpoint) => self.check(checkpoint),
                BarrierAction::Overtake(channel, checkpoint) => {
                    self.overtake(channel.index(), checkpoint.get());
                }
                BarrierAction::Abort(..) => {}
            }
        }
    }

    /// The snapshot holds, in order, what was sent before the barrier, and nothing else.
    fn check(&self, checkpoint: CheckpointId) {
        for (held, sent) in self.held.iter().zip(&self.sent) {
            assert_eq!(held, &sent[checkpoint.index() - 1], "{checkpoint}");
        }
    }
}

fn input(channel: usize) -> ChannelIndex {
    ChannelIndex::new(channel as u32)
}
