//! Channels between tasks: a plain queue inside a worker, a bounded queue of the standard library
//! between two. Both hold at most as many elements as the job allows; what does not fit waits in
//! the sender's port, in order, and its task gets no input until it is gone.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use crate::element::Element;

/// The queues inside a worker, and the other workers that were given something in this turn.
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

/// The receiving end of a channel.
pub(super) enum Inlet {
    /// From the same worker: the position of the queue.
    Near(usize),
    /// From another worker.
    Far { queue: Receiver<Element>, sender: usize },
}

impl Inlet {
    /// The next element.
    pub(super) fn take(&self, exchange: &mut Exchange) -> Option<Element> {
        match self {
            Self::Near(queue) => exchange.queues[*queue].pop_front(),
            Self::Far { queue, sender } => {
                let element = queue.try_recv().ok()?;
                exchange.given[*sender] = true;
                Some(element)
            }
        }
    }
}

/// The sending end of a channel.
pub(super) struct Port {
    outlet: Outlet,
    /// What did not fit, the oldest first. While it is not empty nothing overtakes it.
    waiting: VecDeque<Element>,
}

/// Where a port leads.
pub(super) enum Outlet {
    /// To the same worker: the position of the queue.
    Near(usize),
    /// To another worker.
    Far { queue: SyncSender<Element>, receiver: usize },
}

impl Port {
    pub(super) fn new(outlet: Outlet) -> Self {
        Self { outlet, waiting: VecDeque::new() }
    }

    /// Whether elements wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Sends the element, or lets it wait behind the others.
    pub(super) fn send(&mut self, element: Element, exchange: &mut Exchange) {
        if self.is_waiting() {
            self.waiting.push_back(element);
        } else if let Err(element) = self.outlet.offer(element, exchange) {
            self.waiting.push_back(element);
        }
    }

    /// Sends what waits as far as there is room; whether anything went.
    pub(super) fn send_waiting(&mut self, exchange: &mut Exchange) -> bool {
        let mut went = false;
        while let Some(element) = self.waiting.pop_front() {
            if let Err(element) = self.outlet.offer(element, exchange) {
                self.waiting.push_front(element);
                break;
            }
            went = true;
        }
        went
    }
}

impl Outlet {
    /// Gives the element back if there is no room.
    fn offer(&self, element: Element, exchange: &mut Exchange) -> Result<(), Element> {
        match self {
            Self::Near(queue) => {
                let queue = &mut exchange.queues[*queue];
                if queue.len() == exchange.elements_max {
                    return Err(element);
                }
                queue.push_back(element);
                Ok(())
            }
            Self::Far { queue, receiver } => match queue.try_send(element) {
                Ok(()) => {
                    exchange.given[*receiver] = true;
                    Ok(())
                }
                Err(TrySendError::Full(element)) => Err(element),
                // The receiver is gone with its whole attempt, and this sender follows.
                Err(TrySendError::Disconnected(_)) => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::CheckpointId;

    fn barrier(number: u64) -> Element {
        Element::Barrier(CheckpointId::new(number))
    }

    fn number(element: Option<Element>) -> Option<u64> {
        element.map(|element| {
            let Element::Barrier(checkpoint) = element else {
                panic!("not a barrier: {element:?}")
            };
            checkpoint.get()
        })
    }

    /// Sends three elements through a channel of one, and counts the workers that are to be woken.
    fn check(inlet: &Inlet, outlet: Outlet, given: usize) {
        let mut exchange = Exchange::new(2, 1);
        exchange.reset(1);
        let mut port = Port::new(outlet);
        for sent in 1..=3 {
            port.send(barrier(sent), &mut exchange);
        }
        assert!(port.is_waiting());
        for expected in 1..=3 {
            assert_eq!(number(inlet.take(&mut exchange)), Some(expected));
            assert_eq!(port.send_waiting(&mut exchange), expected < 3);
        }
        assert!(!port.is_waiting());
        assert_eq!(number(inlet.take(&mut exchange)), None);
        assert_eq!(exchange.take_given().count(), given);
        assert_eq!(exchange.take_given().count(), 0);
    }

    #[test]
    fn what_does_not_fit_waits_in_order_inside_a_worker() {
        check(&Inlet::Near(0), Outlet::Near(0), 0);
    }

    #[test]
    fn what_does_not_fit_waits_in_order_between_workers() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let inlet = Inlet::Far { queue: receiver, sender: 0 };
        check(&inlet, Outlet::Far { queue: sender, receiver: 1 }, 2);
    }
}
