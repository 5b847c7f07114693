//! A channel between two tasks: bounded, reliable, first in first out, with a delay for each
//! element. Beside each record travels its origin, which the engine's records do not carry.

use std::collections::VecDeque;

use cofferdam::element::{Batch, Element};
use cofferdam::id::AttemptId;
use cofferdam::time::Instant;
use cofferdam::trace::{Carried, Origin};
use smallvec::SmallVec;

/// One channel in one attempt.
#[derive(Clone, Debug)]
pub struct Link {
    queue: VecDeque<InFlight>,
    capacity: usize,
    /// No element overtakes the one before it.
    last_arrival: Instant,
    /// Records that were sent at this moment may still be joined by others of the same moment.
    last_sent: Instant,
    sent: u64,
}

/// The origins of the records of a batch; most hold one.
pub type Origins = SmallVec<[Origin; 1]>;

/// An element under way.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// When it can be taken.
    pub arrival: Instant,
    /// Its place on the channel.
    pub sequence: u64,
    /// The sender's attempt.
    pub attempt: AttemptId,
    /// The element.
    pub element: Element,
    /// The origins of its records.
    pub origins: Origins,
}

impl Link {
    /// An empty channel that holds `capacity` elements.
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity,
            last_arrival: Instant::ZERO,
            last_sent: Instant::ZERO,
            sent: 0,
        }
    }

    /// Whether another element fits.
    pub fn has_room(&self) -> bool {
        self.queue.len() < self.capacity
    }

    /// Puts an element at the end; returns its place on the channel and when it arrives: at
    /// `arrival`, or with the one before it if that is later.
    pub fn push(
        &mut self,
        now: Instant,
        arrival: Instant,
        attempt: AttemptId,
        element: Element,
        origins: Origins,
    ) -> (u64, Instant) {
        self.last_arrival = self.last_arrival.max(arrival);
        self.last_sent = now;
        let sequence = self.sent;
        self.sent += 1;
        let arrival = self.last_arrival;
        self.queue.push_back(InFlight { arrival, sequence, attempt, element, origins });
        (sequence, arrival)
    }

    /// Joins records to the last batch if that was sent at this very moment and stays within
    /// `records_max`; returns that batch's place on the channel.
    ///
    /// # Errors
    /// Gives the records back if they can not be joined.
    pub fn join(
        &mut self,
        now: Instant,
        records_max: usize,
        records: Batch,
        origins: Origins,
    ) -> Result<u64, (Batch, Origins)> {
        if self.last_sent == now
            && records.anchor().is_none()
            && let Some(InFlight { element: Element::Batch(last), origins: all, sequence, .. }) =
                self.queue.back_mut()
            && last.len() + records.len() <= records_max
        {
            last.append(records);
            all.extend(origins);
            return Ok(*sequence);
        }
        Err((records, origins))
    }

    /// When the next element can be taken.
    pub fn next_arrival(&self) -> Option<Instant> {
        self.queue.front().map(|next| next.arrival)
    }

    /// Takes the next element.
    pub fn pop(&mut self) -> Option<InFlight> {
        self.queue.pop_front()
    }
}

/// How the trace names an element.
pub fn carried(element: &Element) -> Carried {
    match element {
        Element::Batch(records) => Carried::Records(records.len() as u32),
        Element::Watermark(watermark) => Carried::Watermark(*watermark),
        Element::Barrier(checkpoint) => Carried::Barrier(*checkpoint),
        Element::Cancel(checkpoint) => Carried::Cancel(*checkpoint),
        Element::EndOfData => Carried::EndOfData,
        Element::EndOfPartition => Carried::EndOfPartition,
    }
}
