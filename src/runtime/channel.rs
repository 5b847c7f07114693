//! Channels between tasks: a plain queue inside a worker, a ring between two. Both hold at most as
//! many elements as the job allows; what does not fit waits in the sender's port, in order, and its
//! task gets no input until it is gone.
//!
//! Where barriers may overtake, a second queue goes beside it, for barriers alone: one that
//! overtakes travels there, with the number of elements that were sent before it, and one that
//! waits for its turn is announced there. Whoever finds a barrier there finds all that was sent
//! before it in the other queue, because it was put there earlier.

use std::collections::VecDeque;
use std::sync::mpsc;

use crate::element::{Barrier, Batch, Element};
use crate::id::CheckpointId;
use crate::sync::ring;

/// The queues inside a worker, and the other workers that were given something in this turn:
/// elements, or the room that they wait for.
pub(super) struct Exchange {
    queues: Vec<VecDeque<Element>>,
    elements_max: usize,
    given: Vec<bool>,
}

impl Exchange {
    pub(super) fn new(workers: usize, elements_max: usize) -> Self {
        Self { queues: Vec::new(), elements_max, given: vec![false; workers] }
    }

    /// Begins anew with so many empty queues.
    pub(super) fn reset(&mut self, queues: usize) {
        self.queues = std::iter::repeat_with(VecDeque::new).take(queues).collect();
    }

    /// The workers that were given something since the last call.
    pub(super) fn take_given(&mut self) -> impl Iterator<Item = usize> + '_ {
        let given = self.given.iter_mut().enumerate();
        given.filter_map(|(worker, given)| std::mem::take(given).then_some(worker))
    }
}

/// A barrier that does not wait for its turn, or that is announced.
pub(super) struct Notice {
    pub(super) barrier: Barrier,
    /// How many elements were put into the channel before it.
    before: u64,
}

/// The receiving end of a channel.
pub(super) struct Inlet {
    intake: Intake,
    notices: Option<mpsc::Receiver<Notice>>,
    /// One that was found and is to be heeded.
    noticed: Option<Notice>,
    /// What was taken out of the channel before its turn, with its place, the oldest first.
    held: VecDeque<(u64, Element)>,
    /// How many elements were put into the channel of all that were taken out of it.
    taken: u64,
}

/// Where an inlet takes from.
pub(super) enum Intake {
    /// From the same worker: the position of the queue.
    Near(usize),
    /// From another worker.
    Far { queue: ring::Receiver<Element>, sender: usize },
}

impl Inlet {
    fn new(intake: Intake, notices: Option<mpsc::Receiver<Notice>>, restored: Vec<Batch>) -> Self {
        let taken = restored.len() as u64;
        let held = (0..).zip(restored.into_iter().map(Element::Batch)).collect();
        Self { intake, notices, noticed: None, held, taken }
    }

    /// The next element; none if a barrier that was sent before it is to be heeded first.
    pub(super) fn take(&mut self, exchange: &mut Exchange) -> Option<Element> {
        if self.held.is_empty() {
            self.hold(exchange)?;
        }
        // Looked at after the element was found, which the sender put there later.
        self.noticed = self.take_notice();
        let is_heeded = |place| self.noticed.as_ref().is_none_or(|notice| notice.before > place);
        let next = self.held.pop_front_if(|(place, _)| is_heeded(*place));
        next.map(|(_, element)| element)
    }

    /// The next barrier that does not wait for its turn, or that is announced.
    pub(super) fn take_notice(&mut self) -> Option<Notice> {
        self.noticed.take().or_else(|| self.notices.as_ref()?.try_recv().ok())
    }

    /// Copies of the records that were sent before the barrier and are still to be taken.
    pub(super) fn overtaken(&mut self, notice: &Notice, exchange: &mut Exchange) -> Vec<Batch> {
        while self.taken < notice.before && self.hold(exchange).is_some() {}
        let earlier = self.held.iter().take_while(|(place, _)| *place < notice.before);
        records(earlier.map(|(_, element)| element))
    }

    /// Takes the barrier out of the channel, with copies of the records before it.
    pub(super) fn pull(
        &mut self,
        checkpoint: CheckpointId,
        exchange: &mut Exchange,
    ) -> Option<(Barrier, Vec<Batch>)> {
        let mut position = 0;
        loop {
            while position == self.held.len() {
                self.hold(exchange)?;
            }
            let barrier = self.held[position].1.barrier();
            if let Some(barrier) = barrier.filter(|barrier| barrier.checkpoint == checkpoint) {
                self.held.remove(position);
                let earlier = self.held.iter().take(position);
                let overtaken = records(earlier.map(|(_, element)| element));
                return Some((Barrier { overtakes: true, ..barrier }, overtaken));
            }
            position += 1;
        }
    }

    /// Takes an element out of the channel before its turn.
    fn hold(&mut self, exchange: &mut Exchange) -> Option<()> {
        let element = self.intake.take(exchange)?;
        self.held.push_back((self.taken, element));
        self.taken += 1;
        Some(())
    }
}

impl Intake {
    fn take(&mut self, exchange: &mut Exchange) -> Option<Element> {
        match self {
            Self::Near(queue) => exchange.queues[*queue].pop_front(),
            Self::Far { queue, sender } => {
                let element = queue.receive()?;
                exchange.given[*sender] |= queue.is_awaited();
                Some(element)
            }
        }
    }
}

/// The sending end of a channel.
pub(super) struct Port {
    outlet: Outlet,
    notices: Option<mpsc::Sender<Notice>>,
    /// What did not fit, the oldest first. While it is not empty only barriers overtake it.
    waiting: VecDeque<Element>,
    /// How many elements were put into the channel.
    put: u64,
}

/// Where a port leads.
pub(super) enum Outlet {
    /// To the same worker: the position of the queue.
    Near(usize),
    /// To another worker.
    Far { queue: ring::Sender<Element>, receiver: usize },
}

/// Both ends of a channel that holds `restored`; barriers may overtake there or not.
pub(super) fn connect(
    (intake, outlet): (Intake, Outlet),
    may_overtake: bool,
    restored: Vec<Batch>,
) -> (Inlet, Port) {
    let (give, take) = match may_overtake {
        true => {
            let (give, take) = mpsc::channel();
            (Some(give), Some(take))
        }
        false => (None, None),
    };
    let put = restored.len() as u64;
    let port = Port { outlet, notices: give, waiting: VecDeque::new(), put };
    (Inlet::new(intake, take, restored), port)
}

impl Port {
    /// Whether elements wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the element, or lets it wait behind the others.
    pub(super) fn send(&mut self, element: Element, exchange: &mut Exchange) {
        if self.is_waiting() {
            self.waiting.push_back(element);
        } else if let Err(element) = self.offer(element, exchange) {
            self.waiting.push_back(element);
        }
    }

    /// Sends a barrier; returns the records that it has overtaken, or nothing if it waits.
    pub(super) fn send_barrier(
        &mut self,
        barrier: Barrier,
        exchange: &mut Exchange,
    ) -> Option<Vec<Batch>> {
        if barrier.overtakes {
            let overtaken = records(&self.waiting);
            self.notify(barrier, exchange);
            return Some(overtaken);
        }
        self.send(Element::Barrier(barrier), exchange);
        (!self.is_waiting()).then(Vec::new)
    }

    /// Lets a barrier that waits overtake; returns the records that were before it.
    pub(super) fn hurry(
        &mut self,
        checkpoint: CheckpointId,
        exchange: &mut Exchange,
    ) -> Option<Vec<Batch>> {
        let mut barriers = (0..)
            .zip(&self.waiting)
            .filter_map(|(place, waiting)| waiting.barrier().map(|barrier| (place, barrier)));
        let (place, barrier) = barriers.find(|(_, barrier)| barrier.checkpoint == checkpoint)?;
        self.waiting.remove(place);
        let overtaken = records(self.waiting.iter().take(place));
        self.notify(Barrier { overtakes: true, ..barrier }, exchange);
        Some(overtaken)
    }

    /// Sends what waits as far as there is room; whether anything went. `sent` gets the barriers
    /// among it.
    pub(super) fn send_waiting(
        &mut self,
        exchange: &mut Exchange,
        mut sent: impl FnMut(CheckpointId),
    ) -> bool {
        let mut went = false;
        while let Some(element) = self.waiting.pop_front() {
            let barrier = element.barrier();
            if let Err(element) = self.offer(element, exchange) {
                self.waiting.push_front(element);
                break;
            }
            barrier.map(|barrier| barrier.checkpoint).into_iter().for_each(&mut sent);
            went = true;
        }
        went
    }

    /// Puts an element into the channel; gives it back if there is no room.
    fn offer(&mut self, element: Element, exchange: &mut Exchange) -> Result<(), Element> {
        let barrier = element.barrier();
        self.outlet.offer(element, exchange)?;
        if let Some(barrier) = barrier {
            self.notify(barrier, exchange);
        }
        self.put += 1;
        Ok(())
    }

    fn notify(&self, barrier: Barrier, exchange: &mut Exchange) {
        let Some(notices) = &self.notices else { return };
        // If the receiver is gone, so is its whole attempt, and this sender follows.
        let _ = notices.send(Notice { barrier, before: self.put });
        if let Outlet::Far { receiver, .. } = &self.outlet {
            exchange.given[*receiver] = true;
        }
    }
}

fn records<'a>(elements: impl IntoIterator<Item = &'a Element>) -> Vec<Batch> {
    elements.into_iter().filter_map(Element::batch).cloned().collect()
}

impl Outlet {
    /// Gives the element back if there is no room.
    fn offer(&mut self, element: Element, exchange: &mut Exchange) -> Result<(), Element> {
        match self {
            Self::Near(queue) => {
                let queue = &mut exchange.queues[*queue];
                if queue.len() == exchange.elements_max {
                    return Err(element);
                }
                queue.push_back(element);
                Ok(())
            }
            Self::Far { queue, receiver } => match queue.send(element) {
                Ok(()) => {
                    exchange.given[*receiver] = true;
                    Ok(())
                }
                Err(ring::SendError::Full(element)) => Err(element),
                // The receiver is gone with its whole attempt, and this sender follows.
                Err(ring::SendError::Closed(_)) => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn barrier(number: u64, overtakes: bool) -> Barrier {
        let checkpoint = CheckpointId::new(number);
        Barrier { checkpoint, overtakes, triggered_at: Instant::ZERO }
    }

    fn batch(number: u64) -> Element {
        Element::Batch(Batch::new(vec![number]))
    }

    fn number(element: Option<Element>) -> Option<u64> {
        element.map(|element| element.batch().expect("only records are sent").records()[0])
    }

    fn numbers(batches: &[Batch]) -> Vec<u64> {
        batches.iter().map(|batch| batch.records()[0]).collect()
    }

    /// Sends three elements through a channel of one, and counts the workers that are to be woken.
    fn check(ends: (Intake, Outlet), given: usize) {
        let mut exchange = Exchange::new(2, 1);
        exchange.reset(1);
        let (mut inlet, mut port) = connect(ends, false, Vec::new());
        for sent in 1..=3 {
            port.send(batch(sent), &mut exchange);
        }
        assert!(port.is_waiting());
        for expected in 1..=3 {
            assert_eq!(number(inlet.take(&mut exchange)), Some(expected));
            assert_eq!(port.send_waiting(&mut exchange, |_| ()), expected < 3);
        }
        assert!(!port.is_waiting());
        assert_eq!(number(inlet.take(&mut exchange)), None);
        assert_eq!(exchange.take_given().count(), given);
        assert_eq!(exchange.take_given().count(), 0);
    }

    #[test]
    fn what_does_not_fit_waits_in_order_inside_a_worker() {
        check((Intake::Near(0), Outlet::Near(0)), 0);
    }

    #[test]
    fn what_does_not_fit_waits_in_order_between_workers() {
        check(far(1), 2);
    }

    fn far(elements_max: usize) -> (Intake, Outlet) {
        let (sender, receiver) = ring::ring(elements_max);
        let intake = Intake::Far { queue: receiver, sender: 0 };
        (intake, Outlet::Far { queue: sender, receiver: 1 })
    }

    #[test]
    fn rules_021_and_022_a_barrier_overtakes_on_both_sides_and_leaves_what_it_passes() {
        for ends in [far(2), (Intake::Near(0), Outlet::Near(0))] {
            let mut exchange = Exchange::new(2, 2);
            exchange.reset(1);
            let restored = vec![Batch::new(vec![0_u64])];
            let (mut inlet, mut port) = connect(ends, true, restored);
            for sent in 1..=4 {
                port.send(batch(sent), &mut exchange);
            }
            let overtaken = port.send_barrier(barrier(1, true), &mut exchange).unwrap();
            assert_eq!(numbers(&overtaken), [3, 4], "there is room for two");
            let notice = inlet.take_notice().unwrap();
            assert_eq!(numbers(&inlet.overtaken(&notice, &mut exchange)), [0, 1, 2]);
            let mut taken = Vec::new();
            while let Some(number) = number(inlet.take(&mut exchange)) {
                taken.push(number);
                port.send_waiting(&mut exchange, |_| panic!("the barrier has gone"));
            }
            assert_eq!(taken, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn rules_035_and_037_barriers_that_wait_are_announced_hurried_and_pulled() {
        let mut exchange = Exchange::new(2, 2);
        exchange.reset(1);
        let (mut inlet, mut port) = connect(far(2), true, Vec::new());
        port.send(batch(1), &mut exchange);
        assert_eq!(port.send_barrier(barrier(1, false), &mut exchange).unwrap().len(), 0);
        port.send(batch(2), &mut exchange);
        assert!(port.send_barrier(barrier(2, false), &mut exchange).is_none(), "it waits");
        port.send(batch(3), &mut exchange);

        let notice = inlet.take_notice().unwrap();
        assert!(!notice.barrier.overtakes);
        let (pulled, overtaken) = inlet.pull(CheckpointId::new(1), &mut exchange).unwrap();
        assert_eq!((pulled.overtakes, numbers(&overtaken)), (true, vec![1]));
        assert!(inlet.pull(CheckpointId::new(1), &mut exchange).is_none());

        assert_eq!(numbers(&port.hurry(CheckpointId::new(2), &mut exchange).unwrap()), [2]);
        assert!(port.hurry(CheckpointId::new(2), &mut exchange).is_none(), "it has gone");
        let notice = inlet.take_notice().unwrap();
        assert_eq!(numbers(&inlet.overtaken(&notice, &mut exchange)), [1]);
        port.send_waiting(&mut exchange, |_| panic!("the barrier has gone"));
        assert!(inlet.take_notice().is_none());
        for expected in [Some(1), Some(2), Some(3), None] {
            assert_eq!(number(inlet.take(&mut exchange)), expected);
        }
    }
}
