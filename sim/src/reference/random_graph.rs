//! The reference of random-graph: walks the plan with one record after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::state::codec;

use crate::reference::{Effects, Outcome, RecordId, Reference};
use crate::workload::plan::{Change, Exit, Item, KeyRule, Plan};

/// How many effects a record has does not depend on other records, and what they are does: rows say
/// how many records a key has had.
pub(crate) struct RandomGraphReference {
    plan: Plan,
    lists: Vec<Arc<Vec<Item>>>,
}

/// What was seen on the way.
#[derive(Default)]
struct Walk {
    cells: BTreeMap<(String, u64), (u64, i64)>,
    rows: Vec<(&'static str, Item)>,
}

impl RandomGraphReference {
    pub(crate) fn new(plan: Plan, lists: Vec<Arc<Vec<Item>>>) -> Self {
        Self { plan, lists }
    }

    fn item(&self, record: RecordId) -> Item {
        self.lists[record.source as usize][record.offset as usize]
    }

    fn walk(&self, items: impl Iterator<Item = Item>) -> Walk {
        let mut walk = Walk::default();
        for item in items {
            let mut travellers = vec![item];
            for position in 0..self.plan.steps.len() {
                travellers = self.step(position, travellers, &mut walk);
            }
        }
        walk
    }

    /// The records that enter the next step.
    fn step(&self, position: usize, entering: Vec<Item>, walk: &mut Walk) -> Vec<Item> {
        let step = &self.plan.steps[position];
        let mut inside = changed(step.change, &entering);
        for (number, keyed) in step.keyed.iter().enumerate() {
            let uid = format!("fold-{position}-{number}");
            inside = inside.iter().map(|item| walk.count(&uid, keyed.key, item)).collect();
        }
        match step.exit {
            Exit::Rebalance => inside,
            Exit::Broadcast => inside.repeat(self.plan.steps[position + 1].parallelism),
            Exit::Sink => walk.end("out", inside),
            Exit::Fork => {
                walk.end("out", inside.clone());
                walk.end("more", inside)
            }
            Exit::Diamond(left, right) => {
                walk.end("out", changed(left, &inside));
                walk.end("out", changed(right, &inside))
            }
        }
    }
}

impl Walk {
    /// Takes an item into its cell; what comes of it is the number that it has there.
    fn count(&mut self, uid: &str, rule: KeyRule, item: &Item) -> Item {
        let key = match rule {
            KeyRule::Value(modulus) => {
                let modulus = modulus as i64;
                (((item.value % modulus) + modulus) % modulus) as u64
            }
            KeyRule::Offset(modulus) => item.offset % modulus,
        };
        let cell = self.cells.entry((uid.to_owned(), key)).or_default();
        *cell = (cell.0 + 1, cell.1 + item.value);
        let number = cell.0 as i64;
        let told = Item { source: 0, offset: 0, copy: 0, value: number };
        match rule {
            KeyRule::Value(modulus) => Item { value: number * modulus as i64 + key as i64, ..told },
            KeyRule::Offset(_) => Item { offset: key, ..told },
        }
    }

    fn end(&mut self, uid: &'static str, items: Vec<Item>) -> Vec<Item> {
        self.rows.extend(items.into_iter().map(|item| (uid, item)));
        Vec::new()
    }

    fn outcome(self) -> Outcome {
        let mut outcome = Outcome::default();
        for ((uid, key), cell) in &self.cells {
            outcome.cell(uid, key, cell);
        }
        for (uid, item) in &self.rows {
            outcome.row(uid, codec::encode(item), item);
        }
        outcome
    }
}

impl Reference for RandomGraphReference {
    fn effects(&self, record: RecordId) -> Effects {
        let walk = self.walk(std::iter::once(self.item(record)));
        let state = walk.cells.values().map(|(count, _)| *count as u32).sum();
        Effects { state, outputs: walk.rows.len() as u32 }
    }

    fn run(&self, applied: &[RecordId]) -> Option<Outcome> {
        Some(self.walk(applied.iter().map(|record| self.item(*record))).outcome())
    }

    fn cell(&self, _uid: &str, _key: &[u8], _applied: &[RecordId]) -> Option<Vec<u8>> {
        None
    }

    fn run_all(&self) -> Outcome {
        self.walk(self.lists.iter().flat_map(|list| list.iter().copied())).outcome()
    }
}

fn changed(change: Change, items: &[Item]) -> Vec<Item> {
    let mut changed = Vec::new();
    for item in items {
        match change {
            Change::Keep => changed.push(*item),
            Change::Affine(more) => {
                changed.push(Item { value: more + item.value + item.value + item.value, ..*item });
            }
            Change::Drop(more) => changed.extend(((item.offset + more) % 3 != 0).then_some(*item)),
            Change::Copies(more) => {
                let digits = &[1, 2][..(item.offset as usize + more as usize) % 3];
                let copies =
                    digits.iter().map(|digit| Item { copy: item.copy * 10 + digit, ..*item });
                changed.extend(copies);
            }
        }
    }
    changed
}
