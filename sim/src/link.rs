//! A channel between two tasks: bounded, reliable, first in first out, with a delay for each
//! element. Beside each record travels its origin, which the engine's records do not carry.

use std::collections::VecDeque;

use cofferdam::element::{Barrier, Batch, Element};
use cofferdam::id::{AttemptId, CheckpointId};
use cofferdam::time::Instant;
use cofferdam::trace::{Carried, Origin};
use smallvec::SmallVec;

/// One channel in one attempt.
#[derive(Clone, Debug)]
pub struct Link {
    queue: VecDeque<InFlight>,
    /// Barriers that overtake the queue, with their places among what was sent.
    ahead: VecDeque<(Instant, u64, Barrier)>,
    /// Barriers at earlier places were announced to the receiver.
    announced: u64,
    capacity: usize,
    /// No element overtakes the one before it.
    last_arrival: Instant,
    /// Records that were sent at this moment may still be joined by others of the same moment,
    /// unless a barrier has passed them.
    last_sent: Option<Instant>,
    sent: u64,
}

/// The origins of the records of a batch; most hold one.
pub type Origins = SmallVec<[Origin; 1]>;

/// A barrier that has come before its turn.
#[derive(Clone, Copy, Debug)]
pub enum Notice {
    /// It goes ahead of all that was sent before it.
    Ahead {
        /// Its place on the channel.
        sequence: u64,
        /// The barrier.
        barrier: Barrier,
    },
    /// It waits for its turn.
    Waiting(Barrier),
}

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
            ahead: VecDeque::new(),
            announced: 0,
            capacity,
            last_arrival: Instant::ZERO,
            last_sent: None,
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
        self.last_sent = Some(now);
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
        if self.last_sent == Some(now)
            && records.is_free()
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

    /// Puts a barrier ahead of all that was sent before; returns its place on the channel and when
    /// it arrives.
    pub fn push_ahead(&mut self, arrival: Instant, barrier: Barrier) -> (u64, Instant) {
        let arrival = self.ahead.back().map_or(arrival, |(earlier, ..)| arrival.max(*earlier));
        let sequence = self.sent;
        self.sent += 1;
        self.last_sent = None;
        // What is sent from now on stays behind it.
        self.last_arrival = self.last_arrival.max(arrival);
        self.ahead.push_back((arrival, sequence, barrier));
        (sequence, arrival)
    }

    /// The next barrier that has arrived by `now` and that the receiver has not heard of; one that
    /// waits for its turn only if it is to be announced.
    pub fn next_notice(&mut self, now: Instant, announces: bool) -> Option<Notice> {
        if self.ahead.front().is_some_and(|(arrival, ..)| *arrival <= now) {
            let (_, sequence, barrier) = self.ahead.pop_front()?;
            return Some(Notice::Ahead { sequence, barrier });
        }
        let (arrival, sequence, barrier) = self.unannounced(announces)?;
        if arrival > now {
            return None;
        }
        self.announced = sequence + 1;
        Some(Notice::Waiting(barrier))
    }

    /// When the next barrier comes that is not to wait for its turn, or is to be announced.
    pub fn next_notice_arrival(&self, announces: bool) -> Option<Instant> {
        let ahead = self.ahead.front().map(|(arrival, ..)| *arrival);
        let waiting = self.unannounced(announces).map(|(arrival, ..)| arrival);
        ahead.into_iter().chain(waiting).min()
    }

    /// The next barrier that the receiver has not heard of, if it is to hear of any.
    fn unannounced(&self, announces: bool) -> Option<(Instant, u64, Barrier)> {
        if !announces {
            return None;
        }
        let later = self.queue.iter().filter(|next| next.sequence >= self.announced);
        let mut barriers = later.filter_map(|next| {
            let barrier = next.element.barrier()?;
            Some((next.arrival, next.sequence, barrier))
        });
        barriers.next()
    }

    /// Takes a barrier out of the queue, to go ahead of what is before it.
    pub fn pull(&mut self, checkpoint: CheckpointId) -> Option<(u64, Barrier)> {
        let (place, barrier) = self.queue.iter().enumerate().find_map(|(place, next)| {
            let barrier = next.element.barrier()?;
            (barrier.checkpoint == checkpoint).then_some((place, barrier))
        })?;
        let InFlight { sequence, .. } = self.queue.remove(place)?;
        self.last_sent = None;
        Some((sequence, Barrier { overtakes: true, ..barrier }))
    }

    /// Copies of the records that were sent before the element at a place and have not been taken.
    pub fn before(&self, sequence: u64) -> (Vec<Batch>, Vec<Origin>) {
        let mut batches = Vec::new();
        let mut origins = Vec::new();
        for earlier in self.queue.iter().take_while(|earlier| earlier.sequence < sequence) {
            if let Some(records) = earlier.element.batch() {
                batches.push(records.clone());
                origins.extend_from_slice(&earlier.origins);
            }
        }
        (batches, origins)
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
        Element::Idle => Carried::Idle,
        Element::Barrier(barrier) => Carried::Barrier(barrier.checkpoint),
        Element::Committables(told) => Carried::Committables(told.checkpoint),
        Element::Cancel(checkpoint) => Carried::Cancel(*checkpoint),
        Element::EndOfData => Carried::EndOfData,
        Element::EndOfPartition => Carried::EndOfPartition,
    }
}
