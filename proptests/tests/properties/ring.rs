//! A ring between two workers is a queue: whatever its ends do in turn.

use std::collections::VecDeque;
use std::sync::Arc;

use cofferdam::sync::ring::{SendError, ring};
use proptest::prelude::*;

/// What one of the ends does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Receive,
    AskWhetherAwaited,
    SenderGoes,
    ReceiverGoes,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => Just(Step::Send),
        40 => Just(Step::Receive),
        10 => Just(Step::AskWhetherAwaited),
        1 => Just(Step::SenderGoes),
        1 => Just(Step::ReceiverGoes),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    #[test]
    fn a_ring_is_a_queue(capacity in 1_usize..9, steps in steps()) {
        let (sender, receiver) = ring(capacity);
        let (mut sender, mut receiver) = (Some(sender), Some(receiver));
        let mut queue = VecDeque::new();
        let mut is_awaited = false;
        // What is left inside is given back, and nothing twice.
        let mut values: Vec<Arc<()>> = Vec::new();
        for step in steps {
            match step {
                Step::Send => {
                    let Some(sender) = &mut sender else { continue };
                    let value = Arc::new(());
                    values.push(value.clone());
                    let sent = sender.send((values.len(), value));
                    if receiver.is_none() {
                        let is_closed = matches!(sent, Err(SendError::Closed((number, _)))
                            if number == values.len());
                        prop_assert!(is_closed);
                    } else if queue.len() == capacity {
                        let is_full = matches!(sent, Err(SendError::Full((number, _)))
                            if number == values.len());
                        prop_assert!(is_full);
                        is_awaited = true;
                    } else {
                        prop_assert!(sent.is_ok());
                        queue.push_back(values.len());
                    }
                }
                Step::Receive => {
                    let Some(receiver) = &mut receiver else { continue };
                    let received = receiver.receive().map(|(number, _)| number);
                    prop_assert_eq!(received, queue.pop_front());
                    prop_assert_eq!(receiver.is_closed(), sender.is_none() && queue.is_empty());
                }
                Step::AskWhetherAwaited => {
                    let Some(receiver) = &receiver else { continue };
                    prop_assert_eq!(receiver.is_awaited(), std::mem::take(&mut is_awaited));
                }
                Step::SenderGoes => sender = None,
                Step::ReceiverGoes => receiver = None,
            }
        }
        drop((sender, receiver));
        prop_assert!(values.iter().all(|value| Arc::strong_count(value) == 1));
    }
}
