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
    free: Vec<usize>,
    scheduled: u64,
}

/// When an event is due, its number among those that were scheduled, which no two share, and where
/// it lies. In one number, since a heap does little else than compare: 64, 40 and 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u128);

impl Due {
    fn new(at: Instant, order: u64, place: usize) -> Self {
        debug_assert!(order < 1 << ORDER_BITS && place < 1 << PLACE_BITS, "it fits its bits");
        let low = order << PLACE_BITS | place as u64;
        Self(u128::from(at.as_nanos()) << 64 | u128::from(low))
    }

    fn at(self) -> Instant {
        Instant::from_nanos((self.0 >> 64) as u64)
    }

    fn place(self) -> usize {
        self.0 as usize & ((1 << PLACE_BITS) - 1)
    }
}

/// Enough for any run: see [`crate::world::events_max`].
const ORDER_BITS: u32 = 40;
/// Enough for the events that wait at once.
const PLACE_BITS: u32 = 24;

impl<E> EventQueue<E> {
    /// No event.
    pub fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), scheduled: 0 }
    }

    /// Adds an event.
    pub fn schedule(&mut self, at: Instant, event: E) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.heap.push(Reverse(Due::new(at, self.scheduled, place)));
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
            let event = &mut events[due.place()];
            let keeps = event.as_ref().is_some_and(&is_kept);
            if !keeps {
                *event = None;
                free.push(due.place());
            }
            keeps
        });
    }

    /// Takes the next event out.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let Reverse(due) = self.heap.pop()?;
        self.free.push(due.place());
        let event = self.events[due.place()].take();
        Some((due.at(), event.expect("an event lies where the heap says")))
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_those_of_one_moment_in_the_order_of_scheduling() {
        let at = Instant::from_nanos;
        let mut queue = EventQueue::new();
        queue.schedule(at(1 << 40), "last");
        queue.schedule(at(7), "first");
        assert_eq!(queue.pop(), Some((at(7), "first")));
        // It gets the place that has become free, behind the others in order.
        for event in ["a", "b", "gone", "c"] {
            queue.schedule(at(9), event);
        }
        queue.retain(|event| *event != "gone");
        queue.schedule(at(9), "d");
        let popped: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        let at_nine = ["a", "b", "c", "d"].map(|event| (at(9), event));
        assert_eq!(popped, [&at_nine[..], &[(at(1 << 40), "last")]].concat());
    }
}
