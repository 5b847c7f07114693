//! Queues in memory that give out again what is not acknowledged: for examples and tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::connector::memory::Range;
use crate::element::Record;
use crate::id::MessageId;
use crate::operator::queue::Queue;
use crate::operator::source::{Fetch, SourceError};

/// Queues that were filled once. Copies are consumers of the same queues: what one has received and
/// not acknowledged the next one gets, from its first look at that queue on.
#[derive(Debug)]
pub struct MemoryQueue<T> {
    broker: Arc<Mutex<Broker<T>>>,
    /// Which consumer this is, as soon as it has received.
    consumer: Option<u64>,
}

#[derive(Debug)]
struct Broker<T> {
    queues: Vec<Range>,
    messages: Vec<Message<T>>,
    consumers: u64,
}

#[derive(Debug)]
struct Message<T> {
    value: T,
    state: MessageState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    Ready,
    /// In the hands of this consumer.
    Received(u64),
    Acknowledged,
}

impl<T: Clone> MemoryQueue<T> {
    /// The values in even parts, one for each of `queues` queues; a message's id is the position of
    /// its value.
    pub fn new(values: &[T], queues: usize) -> Self {
        let message = |value: &T| Message { value: value.clone(), state: MessageState::Ready };
        let broker = Broker {
            queues: Range::split(values.len() as u64, queues),
            messages: values.iter().map(message).collect(),
            consumers: 0,
        };
        Self { broker: Arc::new(Mutex::new(broker)), consumer: None }
    }

    /// How many messages nobody has acknowledged.
    pub fn unacknowledged(&self) -> usize {
        let open = |message: &&Message<T>| message.state != MessageState::Acknowledged;
        self.lock().messages.iter().filter(open).count()
    }

    fn lock(&self) -> MutexGuard<'_, Broker<T>> {
        // A message is in one state whoever panics.
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for MemoryQueue<T> {
    fn clone(&self) -> Self {
        Self { broker: self.broker.clone(), consumer: None }
    }
}

impl<T: Record> Queue for MemoryQueue<T> {
    type Record = T;

    fn count(&mut self) -> Result<u32, SourceError> {
        Ok(self.lock().queues.len() as u32)
    }

    fn receive(
        &mut self,
        queue: u32,
        messages_max: usize,
    ) -> Result<Fetch<(MessageId, T)>, SourceError> {
        let mut broker = self.broker.lock().unwrap_or_else(PoisonError::into_inner);
        let consumer = *self.consumer.get_or_insert_with(|| {
            broker.consumers += 1;
            broker.consumers
        });
        let Range { next, end } = broker.queues[queue as usize];
        let received: Vec<_> = (next..end)
            .zip(&mut broker.messages[next as usize..end as usize])
            .filter(|(_, message)| match message.state {
                MessageState::Ready => true,
                // An earlier consumer is gone.
                MessageState::Received(by) => by < consumer,
                MessageState::Acknowledged => false,
            })
            .take(messages_max)
            .map(|(id, message)| {
                message.state = MessageState::Received(consumer);
                (MessageId::new(id), message.value.clone())
            })
            .collect();
        Ok(if received.is_empty() { Fetch::End } else { Fetch::Records(received) })
    }

    fn acknowledge(&mut self, _queue: u32, ids: &[MessageId]) -> Result<(), SourceError> {
        let mut broker = self.lock();
        for id in ids {
            broker.messages[id.index()].state = MessageState::Acknowledged;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gives_out_again_what_is_not_acknowledged() {
        let id = MessageId::new;
        let mut first = MemoryQueue::new(&['a', 'b', 'c'], 1);
        assert_eq!(first.count(), Ok(1));
        assert_eq!(first.receive(0, 2), Ok(Fetch::Records(vec![(id(0), 'a'), (id(1), 'b')])));
        first.acknowledge(0, &[id(0)]).unwrap();
        let mut second = first.clone();
        assert_eq!(second.receive(0, 9), Ok(Fetch::Records(vec![(id(1), 'b'), (id(2), 'c')])));
        assert_eq!(second.receive(0, 9), Ok(Fetch::End));
        second.acknowledge(0, &[id(0), id(1), id(2)]).unwrap();
        assert_eq!(first.receive(0, 1), Ok(Fetch::End));
        assert_eq!(first.unacknowledged(), 0);
    }
}
