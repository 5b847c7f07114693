//! A task's part in the acknowledgement of records (rule 82): the number of every batch it sends,
//! the words it says of what it has handled, and, in a source task, the trees that are open.
//!
//! A task that writes to a sink says its word when the sink has flushed what was written, and not
//! before: then no tree is done whose rows a crash could still take.

use std::time::Duration;

use crate::barrier::{Acker, EdgeIds};
use crate::element::{Anchor, Element, Root};
use crate::graph::Subtask;
use crate::id::TaskId;
use crate::message::ToPeer;
use crate::task::TaskOutput;

/// See the [module](self).
#[derive(Clone)]
pub(super) struct Acks {
    task: TaskId,
    edges: EdgeIds,
    acker: Acker,
    timeout: Duration,
    /// An alarm was asked for and has not rung.
    awaits_alarm: bool,
    /// The batches that were written and whose flush was not asked for.
    written: Vec<Anchor>,
    /// Those whose flush was asked for.
    flushing: Vec<Anchor>,
    /// What came of the parts of a batch whose last part is still to come.
    parts: Parts,
}

/// A batch that comes in parts is acknowledged as a whole: words can overtake each other, and the
/// word of a last part that went ahead would end the tree before the others are heard of.
#[derive(Clone, Copy, Default)]
struct Parts {
    /// The edges that were sent on.
    edges: u64,
    /// Rows were written.
    are_written: bool,
}

impl Acks {
    pub(super) fn new(subtask: &Subtask, timeout: Duration) -> Self {
        Self {
            task: subtask.task,
            edges: EdgeIds::of(subtask.task.get()),
            acker: Acker::default(),
            timeout,
            awaits_alarm: false,
            written: Vec::new(),
            flushing: Vec::new(),
            parts: Parts::default(),
        }
    }

    /// Begins the tree of a read of this task.
    pub(super) fn begin(&mut self, read: u64) -> Anchor {
        let edge = self.edges.draw();
        self.acker.begin(read, edge);
        Anchor { root: Root { source: self.task, read }, edge }
    }

    /// An alarm, if a tree is open and none was asked for.
    pub(super) fn alarm(&mut self) -> Option<TaskOutput> {
        let is_due = !self.awaits_alarm && !self.acker.is_empty();
        self.awaits_alarm |= is_due;
        is_due.then_some(TaskOutput::Alarm(self.timeout))
    }

    /// The alarm has rung: the reads whose trees have timed out.
    pub(super) fn ring(&mut self) -> Vec<u64> {
        self.awaits_alarm = false;
        self.acker.rotate()
    }

    /// A word was said of a tree of this task; the read whose tree is done now.
    pub(super) fn hear(&mut self, root: Root, edges: u64) -> Option<u64> {
        self.acker.acknowledge(root.read, edges).then_some(root.read)
    }

    /// Gives what came of a batch its place in the batch's tree; the word that is to be said,
    /// unless more of the batch is to come.
    pub(super) fn hand_on<'a>(
        &mut self,
        handled: Anchor,
        sent: impl Iterator<Item = &'a mut TaskOutput>,
    ) -> Option<TaskOutput> {
        let Anchor { root, edge } = handled;
        for output in sent {
            if let TaskOutput::Send(_, Element::Batch(records)) = output {
                let own = self.edges.draw();
                self.parts.edges ^= own;
                records.set_anchor(Anchor { root, edge: own });
            }
        }
        if edge == 0 {
            return None;
        }
        let edge = edge ^ std::mem::take(&mut self.parts).edges;
        Some(word(Anchor { root, edge }))
    }

    /// Whether earlier parts of the batch that is handled now were written.
    pub(super) fn has_written_part(&self) -> bool {
        self.parts.are_written
    }

    /// A batch, or the part of one, was written.
    pub(super) fn keep_until_flushed(&mut self, written: Anchor) {
        self.parts.are_written = written.edge == 0;
        if written.edge != 0 {
            self.written.push(written);
        }
    }

    /// Whether a flush is to be asked for now. One at a time: its answer names nothing.
    pub(super) fn begin_flush(&mut self) -> bool {
        let begins = self.flushing.is_empty() && !self.written.is_empty();
        if begins {
            std::mem::swap(&mut self.written, &mut self.flushing);
        }
        begins
    }

    /// Whether the answer to a flush is awaited.
    pub(super) fn is_flushing(&self) -> bool {
        !self.flushing.is_empty()
    }

    /// What was written is flushed: the words that are to be said.
    pub(super) fn end_flush(&mut self) -> impl Iterator<Item = TaskOutput> + '_ {
        self.flushing.drain(..).map(word)
    }
}

fn word(Anchor { root, edge }: Anchor) -> TaskOutput {
    TaskOutput::Tell(root.source, ToPeer::Acknowledged { root, edges: edge })
}
