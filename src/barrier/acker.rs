//! The acker: tells when the whole tree of what one read of a source gave rise to has been done,
//! in a few bytes a tree, however large it grows (rule 82; Storm's acker).
//!
//! Every batch that travels is an edge with a number of its own. Who has handled a batch says the
//! XOR of the batch's number and of the numbers of what came of it. Over a whole tree each number
//! is then said twice, by who sent it and by who handled it, so the XOR of all is zero:
//! in whichever order it was said, and not before the last word. A word that is lost or said twice
//! leaves the tree open, and it times out.
//!
//! It knows neither sources nor records, and no clock: a tree that is open when its time is over is
//! named by [`Acker::rotate`].

use std::collections::BTreeMap;

/// The open trees of one source task, by the number of the read.
#[derive(Clone, Debug, Default)]
pub struct Acker {
    /// Those that have been heard of since the last rotation.
    young: BTreeMap<u64, Tree>,
    /// Those that have been through one.
    old: BTreeMap<u64, Tree>,
}

/// What was said of a tree.
#[derive(Clone, Copy, Debug, Default)]
struct Tree {
    edges: u64,
    /// The source has begun it. Words can come before that, and zero means nothing then.
    begun: bool,
}

impl Acker {
    /// The source has begun the tree by `edge`; whether it is done by now.
    pub fn begin(&mut self, root: u64, edge: u64) -> bool {
        self.hear(root, edge, true)
    }

    /// `edges` were said of the tree; whether it is done by now. A tree that is done is forgotten.
    pub fn acknowledge(&mut self, root: u64, edges: u64) -> bool {
        self.hear(root, edges, false)
    }

    /// So much time has passed that a tree which has been through two of these calls has timed out:
    /// those are named, the oldest first, and forgotten. What was said of a tree that nobody has
    /// begun is forgotten in silence.
    pub fn rotate(&mut self) -> Vec<u64> {
        let timed_out = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        timed_out.into_iter().filter(|(_, tree)| tree.begun).map(|(root, _)| root).collect()
    }

    /// Whether no tree is open.
    pub fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    fn hear(&mut self, root: u64, edges: u64, begins: bool) -> bool {
        let trees = if self.old.contains_key(&root) { &mut self.old } else { &mut self.young };
        let tree = trees.entry(root).or_default();
        tree.edges ^= edges;
        tree.begun |= begins;
        let done = tree.begun && tree.edges == 0;
        if done {
            trees.remove(&root);
        }
        done
    }
}

/// Numbers for the edges that one task sends in one attempt: each is another, none is zero, and
/// they look drawn at random, since the XOR of a few that follow each other would soon be zero.
#[derive(Clone, Debug)]
pub struct EdgeIds(u64);

impl EdgeIds {
    /// The numbers of the task with this number.
    pub fn of(task: u32) -> Self {
        Self(u64::from(task) << 40)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 += 1;
        // The finalizer of splitmix64: every step can be undone, so two numbers never become one.
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_082_a_tree_is_done_when_each_edge_was_sent_and_handled() {
        let mut acker = Acker::default();
        assert!(!acker.begin(7, 0b001));
        assert!(!acker.acknowledge(7, 0b001 ^ 0b010 ^ 0b100), "two edges came of the first");
        assert!(!acker.acknowledge(7, 0b010));
        assert!(acker.acknowledge(7, 0b100));
        assert!(acker.is_empty());
    }

    #[test]
    fn rule_082_words_may_come_before_the_tree_has_begun() {
        let mut acker = Acker::default();
        assert!(!acker.acknowledge(7, 0b11), "what came of the first edge");
        assert!(!acker.acknowledge(7, 0b10));
        assert!(acker.begin(7, 0b01));
        assert!(!acker.acknowledge(8, 0b10));
        assert!(!acker.acknowledge(8, 0b10), "zero without a beginning is not the end");
    }

    #[test]
    fn rule_082_a_word_said_twice_does_not_end_a_tree_with_an_open_part() {
        let mut acker = Acker::default();
        acker.begin(7, 0b001);
        for _ in 0..2 {
            assert!(!acker.acknowledge(7, 0b001 ^ 0b010 ^ 0b100));
        }
        assert!(!acker.acknowledge(7, 0b010));
        assert!(!acker.acknowledge(7, 0b100));
        assert!(acker.rotate().is_empty());
        assert_eq!(acker.rotate(), [7]);
    }

    #[test]
    fn rule_082_a_tree_times_out_by_its_beginning_and_not_by_its_last_word() {
        let mut acker = Acker::default();
        acker.begin(2, 1);
        acker.begin(1, 1);
        acker.acknowledge(9, 1);
        assert!(acker.rotate().is_empty());
        acker.begin(3, 1);
        acker.acknowledge(2, 0b110);
        assert_eq!(acker.rotate(), [1, 2], "nobody has begun the ninth");
        assert_eq!(acker.rotate(), [3]);
        assert!(acker.is_empty());
    }

    #[test]
    fn edges_differ_over_tasks_and_few_of_them_are_never_zero_together() {
        let drawn = (0..4).flat_map(|task| {
            let mut ids = EdgeIds::of(task);
            std::iter::repeat_with(move || ids.draw()).take(64)
        });
        let drawn: Vec<u64> = drawn.collect();
        for (place, first) in drawn.iter().enumerate() {
            for second in &drawn[..place] {
                assert_ne!(first ^ second, 0);
                assert!(!drawn[..place].contains(&(first ^ second)), "three make zero");
            }
        }
    }
}
