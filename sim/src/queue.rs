//! The event queue: by time, and in the order of scheduling among events at the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use cofferdam::time::Instant;

/// Events with the times at which they are due.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// Small, since a heap moves its entries about.
    heap: BinaryHeap<Reverse<Due>>,
    events: Vec<Option<E>>,
    /// Places in `events` without one.
    free: Vec<u32>,
    scheduled: u64,
}

/// When an event is due, and where it lies. No two have the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    order: u64,
    place: u32,
}

impl<E> EventQueue<E> {
    /// No event.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), scheduled: 0 }
    }

    /// Adds an event.
    pub fn schedule(&mut self, at: Instant, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() as u32 - 1
        });
        self.events[place as usize] = Some(event);
        self.heap.push(Reverse(Due { at, order: self.scheduled, place }));
        self.scheduled += 1;
    }

    /// What `look` finds in an event, which must be one at the most: they are in no order.
    pub fn find<T>(&self, look: impl Fn(&E) -> Option<T>) -> Option<T> {
        self.events.iter().flatten().find_map(look)
    }

    /// Drops every event that `is_kept` does not want.
    pub fn retain(&mut self, is_kept: impl Fn(&E) -> bool) {
        let Self { heap, events, free, .. } = self;
        heap.retain(|Reverse(due)| {
            let event = &mut events[due.place as usize];
            let keeps = event.as_ref().is_some_and(&is_kept);
            if !keeps {
                *event = None;
                free.push(due.place);
            }
            keeps
        });
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let Reverse(due) = self.heap.pop()?;
        self.free.push(due.place);
        let event = self.events[due.place as usize].take();
        Some((due.at, event.expect("an event lies where the heap says")))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}
