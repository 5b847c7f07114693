//! Drawn job graphs: what random-graph builds and its reference walks. A plan is data; it does not
//! know what becomes of it.

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::workload::signed;

/// A graph: sources, united if there are two, then steps; the last step, and only that, has an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The parallelism of each source; one or two.
    pub sources: Vec<usize>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A change without state, then keyed operators one behind the other, then a way on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The parallelism of the change; in the first step behind a single source it is the source's.
    pub parallelism: usize,
    /// The change.
    pub change: Change,
    /// Keyed operators.
    pub keyed: Vec<KeyedStep>,
    /// Where the records go.
    pub exit: Exit,
}

/// A keyed operator that keeps (count, sum of values) and answers every record with its
/// number among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyedStep {
    /// Its parallelism.
    pub parallelism: usize,
    /// What it keys by.
    pub key: KeyRule,
}

/// What becomes of a record without state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    Keep,
    /// Its value becomes three times as much, and this more.
    Affine(i64),
    /// It is dropped if its offset, and this more, is a multiple of three.
    Drop(u64),
    /// It becomes as many copies as its offset, and this more, leaves when divided by three.
    Copies(u64),
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// The value, modulo this.
    Value(u64),
    /// The offset, modulo this.
    Offset(u64),
}

/// The way out of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// To one subtask of the next step after the other.
    Rebalance,
    /// To every subtask of the next step.
    Broadcast,
    /// To the sink `out`.
    Sink,
    /// To both the sinks `out` and `more`.
    Fork,
    /// Two ways, changed on each, united again, to the sink `out`.
    Diamond(Change, Change),
}

/// A record of a source, or what a keyed operator says of one. It can be told from all others at
/// any place of the graph, but for copies by a broadcast edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Item {
    /// Its source.
    pub source: u32,
    /// Its place in the source.
    pub offset: u64,
    /// Which copy it is: a digit for each time it was copied, 1 or 2, the latest last.
    pub copy: u32,
    /// Its value.
    pub value: i64,
}

impl Plan {
    /// Draws a plan whose operators have at most `parallelism_max` subtasks. It has at least one
    /// keyed operator.
    pub fn draw(dice: &mut Dice, parallelism_max: usize) -> Self {
        let sources = match dice.chance(500) {
            true => vec![parallelism(dice, parallelism_max)],
            false => {
                vec![parallelism(dice, parallelism_max), parallelism(dice, 2.min(parallelism_max))]
            }
        };
        let extra = dice.below(2) as usize;
        let mut steps = Vec::new();
        for position in 0..=extra {
            let is_last = position == extra;
            let fewest =
                u64::from(is_last && steps.iter().all(|step: &Step| step.keyed.is_empty()));
            let keyed = (0..fewest + dice.below(2)).map(|_| keyed(dice, parallelism_max)).collect();
            steps.push(Step {
                parallelism: parallelism(dice, parallelism_max),
                change: change(dice),
                keyed,
                exit: if is_last {
                    end(dice)
                } else {
                    *dice.pick(&[Exit::Rebalance, Exit::Broadcast])
                },
            });
        }
        if let [parallelism] = sources[..] {
            steps[0].parallelism = parallelism;
        }
        Self { sources, steps }
    }
}

impl Plan {
    /// With as many subtasks behind each broadcast as `other` has, a plan of the same draws: a
    /// record is copied as often there.
    #[must_use]
    pub fn with_copies_of(mut self, other: &Self) -> Self {
        for place in 1..self.steps.len() {
            if self.steps[place - 1].exit == Exit::Broadcast {
                self.steps[place].parallelism = other.steps[place].parallelism;
            }
        }
        self
    }
}

/// The records of a plan's sources: about `records` over all of them.
pub fn items(dice: &mut Dice, plan: &Plan, records: usize) -> Vec<Vec<Item>> {
    let sources = plan.sources.len();
    let count = |source: usize| records / sources + usize::from(source < records % sources);
    let mut list = |source: usize| {
        let item =
            |offset| Item { source: source as u32, offset, copy: 0, value: signed(dice, -9, 9) };
        (0..count(source) as u64).map(item).collect()
    };
    (0..sources).map(&mut list).collect()
}

fn keyed(dice: &mut Dice, parallelism_max: usize) -> KeyedStep {
    let modulus = dice.below(5) + 1;
    let key = if dice.chance(500) { KeyRule::Value(modulus) } else { KeyRule::Offset(modulus) };
    KeyedStep { parallelism: parallelism(dice, parallelism_max), key }
}

fn change(dice: &mut Dice) -> Change {
    match dice.below(4) {
        0 => Change::Keep,
        1 => Change::Affine(signed(dice, -3, 3)),
        2 => Change::Drop(dice.below(3)),
        _ => Change::Copies(dice.below(3)),
    }
}

fn end(dice: &mut Dice) -> Exit {
    match dice.below(4) {
        0 | 1 => Exit::Sink,
        2 => Exit::Fork,
        _ => Exit::Diamond(change(dice), change(dice)),
    }
}

fn parallelism(dice: &mut Dice, max: usize) -> usize {
    (*dice.pick(&[1, 1, 2, 2, 2, 3])).min(max)
}
