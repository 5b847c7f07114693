//! The event queue: by time, and in the order of scheduling among events at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cofferdam::time::Instant;

/// Events with the times at which they are due.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Instant,
    order: u64,
    event: E,
}

impl<E> EventQueue<E> {
    /// No event.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), scheduled: 0 }
    }

    /// Adds an event.
    pub fn schedule(&mut self, at: Instant, event: E) {
        self.heap.push(Reverse(Entry { at, order: self.scheduled, event }));
        self.scheduled += 1;
    }

    /// What `look` finds in an event, which must be one at the most: they are in no order.
    pub fn find<T>(&self, look: impl Fn(&E) -> Option<T>) -> Option<T> {
        self.heap.iter().find_map(|Reverse(entry)| look(&entry.event))
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
