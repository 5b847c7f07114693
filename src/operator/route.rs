//! Which channel of an edge a record takes. Erased once per batch.

use std::marker::PhantomData;

use crate::element::{Batch, Record};
use crate::id::SubtaskIndex;
use crate::operator::keyed::KeySelector;
use crate::state::hash::KeyHash;
use crate::state::key_group::KeyGroupAssigner;

/// The sending side of one edge of one subtask.
pub trait Route: Send {
    /// Hands the records of `batch` to the channels of the edge: calls `send` with a channel's
    /// position in the edge, from 0, and records for it. Records may be kept back until the flush.
    fn route(&mut self, batch: Batch, send: &mut dyn FnMut(usize, Batch));
    /// Hands out what was kept back.
    fn flush(&mut self, send: &mut dyn FnMut(usize, Batch));
    /// A copy.
    fn clone_box(&self) -> Box<dyn Route>;
}

impl Clone for Box<dyn Route> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// Everything to the one channel of the edge.
#[derive(Clone, Copy, Debug)]
pub struct Forward;

impl Route for Forward {
    fn route(&mut self, batch: Batch, send: &mut dyn FnMut(usize, Batch)) {
        send(0, batch);
    }

    fn flush(&mut self, _send: &mut dyn FnMut(usize, Batch)) {}

    fn clone_box(&self) -> Box<dyn Route> {
        Box::new(*self)
    }
}

/// Everything to every channel.
#[derive(Clone, Copy, Debug)]
pub struct Broadcast {
    /// How many channels there are.
    pub channels: usize,
}

impl Route for Broadcast {
    fn route(&mut self, batch: Batch, send: &mut dyn FnMut(usize, Batch)) {
        for channel in 1..self.channels {
            send(channel, batch.clone());
        }
        send(0, batch);
    }

    fn flush(&mut self, _send: &mut dyn FnMut(usize, Batch)) {}

    fn clone_box(&self) -> Box<dyn Route> {
        Box::new(*self)
    }
}

/// One batch to each channel in turn.
#[derive(Clone, Copy, Debug)]
pub struct Rebalance {
    channels: usize,
    next: usize,
}

impl Rebalance {
    /// Begins with the channel at `first`, so that the subtasks of a sender do not all begin with
    /// the same one.
    pub fn new(channels: usize, first: usize) -> Self {
        Self { channels, next: first % channels }
    }
}

impl Route for Rebalance {
    fn route(&mut self, batch: Batch, send: &mut dyn FnMut(usize, Batch)) {
        send(self.next, batch);
        self.next = (self.next + 1) % self.channels;
    }

    fn flush(&mut self, _send: &mut dyn FnMut(usize, Batch)) {}

    fn clone_box(&self) -> Box<dyn Route> {
        Box::new(*self)
    }
}

/// Each record to the subtask that owns its key's group.
pub struct ByKey<T, S> {
    selector: S,
    assigner: KeyGroupAssigner,
    batch_records: usize,
    waiting: Vec<Vec<T>>,
    records: PhantomData<fn(T)>,
}

impl<T: Record, S: KeySelector<T>> ByKey<T, S> {
    /// Collects at least `batch_records` for a channel before it sends them.
    pub fn new(selector: S, assigner: KeyGroupAssigner, batch_records: usize) -> Self {
        let waiting = (0..assigner.parallelism()).map(|_| Vec::new()).collect();
        Self { selector, assigner, batch_records, waiting, records: PhantomData }
    }
}

impl<T: Record, S: KeySelector<T>> Route for ByKey<T, S> {
    fn route(&mut self, batch: Batch, send: &mut dyn FnMut(usize, Batch)) {
        if self.waiting.len() == 1 {
            return send(0, batch);
        }
        let Self { selector, assigner, batch_records, waiting, .. } = self;
        let mut records = batch.into_records::<T>().into_iter();
        let (mut hashes, mut targets) = ([0; BLOCK], [SubtaskIndex::new(0); BLOCK]);
        while let ahead = records.as_slice()
            && !ahead.is_empty()
        {
            let count = ahead.len().min(BLOCK);
            for (record, hash) in ahead.iter().zip(&mut hashes) {
                *hash = selector.with_key(record, |key| KeyHash::of(key).low());
            }
            assigner.find_subtasks(&hashes[..count], &mut targets);
            for (target, record) in targets[..count].iter().zip(records.by_ref()) {
                let queue = &mut waiting[target.index()];
                if queue.is_empty() {
                    make_room(queue, *batch_records);
                }
                queue.push(record);
                if queue.len() == *batch_records {
                    hand_out(target.index(), queue, send);
                }
            }
        }
    }

    fn flush(&mut self, send: &mut dyn FnMut(usize, Batch)) {
        for (target, queue) in self.waiting.iter_mut().enumerate() {
            if !queue.is_empty() {
                hand_out(target, queue, send);
            }
        }
    }

    fn clone_box(&self) -> Box<dyn Route> {
        Box::new(Self {
            selector: self.selector.clone(),
            assigner: self.assigner,
            batch_records: self.batch_records,
            waiting: self.waiting.clone(),
            records: PhantomData,
        })
    }
}

#[cold]
#[inline(never)]
fn make_room<T>(queue: &mut Vec<T>, records: usize) {
    queue.reserve_exact(records);
}

/// Not part of the loop over the records, which it would take registers from.
#[cold]
#[inline(never)]
fn hand_out<T: Record>(target: usize, queue: &mut Vec<T>, send: &mut dyn FnMut(usize, Batch)) {
    send(target, Batch::new(std::mem::take(queue)));
}

/// How many records are looked at together.
const BLOCK: usize = 32;
