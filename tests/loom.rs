//! Rings and sleeping threads, in every order in which two threads may take their steps and see
//! each other's:
//!
//! ```sh
//! RUSTFLAGS="--cfg loom" cargo test --release --test loom
//! ```
//!
//! Loom says if a slot is touched by both at once, if memory is not given back, and if all threads
//! sleep. Where a test has a bound it is on how often a thread is interrupted, not on what it sees.
#![cfg(loom)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cofferdam::sync::park::{self, Parker, Unparker};
use cofferdam::sync::ring::{Receiver, SendError, Sender, ring};
use loom::sync::mpsc;
use loom::thread;

/// A value that is counted when it is dropped, and lies on the heap as loom sees it.
struct Value {
    number: usize,
    dropped: Arc<[AtomicUsize]>,
    _memory: loom::alloc::Track<()>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.dropped[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

/// So many values, and how often each was dropped.
fn values(count: usize) -> (Vec<Value>, Arc<[AtomicUsize]>) {
    let dropped: Arc<[AtomicUsize]> = (0..count).map(|_| AtomicUsize::new(0)).collect();
    let value = |number| {
        let _memory = loom::alloc::Track::new(());
        Value { number, dropped: dropped.clone(), _memory }
    };
    ((0..count).map(value).collect(), dropped)
}

#[track_caller]
fn assert_dropped_once(dropped: &[AtomicUsize]) {
    let counts = dropped.iter().map(|count| count.load(Ordering::Relaxed));
    assert!(counts.clone().all(|count| count == 1), "dropped: {:?}", counts.collect::<Vec<_>>());
}

fn model(interruptions_max: Option<usize>, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = interruptions_max;
    builder.check(body);
}

#[test]
fn what_is_taken_in_comes_out_in_order_and_what_is_refused_comes_back() {
    for capacity in [1, 2] {
        model(None, move || {
            let (values, dropped) = values(3);
            let (mut sender, mut receiver) = ring(capacity);
            let sending = thread::spawn(move || {
                let mut taken_in = Vec::new();
                for value in values {
                    let number = value.number;
                    match sender.send(value) {
                        Ok(()) => taken_in.push(number),
                        Err(SendError::Full(value)) => assert_eq!(value.number, number),
                        Err(SendError::Closed(_)) => panic!("the receiver is there"),
                    }
                }
                taken_in
            });
            let mut received = Vec::new();
            for _ in 0..3 {
                received.extend(receiver.receive().map(|value| value.number));
            }
            let taken_in = sending.join().unwrap();
            assert!(taken_in.len() >= capacity);
            while let Some(value) = receiver.receive() {
                received.push(value.number);
            }
            assert_eq!(received, taken_in);
            drop(receiver);
            assert_dropped_once(&dropped);
        });
    }
}

#[test]
fn a_receiver_that_goes_leaves_nothing_behind() {
    model(None, || {
        let (values, dropped) = values(3);
        let (mut sender, mut receiver) = ring(2);
        let sending = thread::spawn(move || {
            let results = values.into_iter().map(|value| sender.send(value).map_err(drop_value));
            let results: Vec<_> = results.collect();
            let is_closed = |result: &Result<_, _>| *result == Err(SendError::Closed(()));
            let open = results.iter().take_while(|result| !is_closed(result)).count();
            assert!(results[open..].iter().all(is_closed), "closed is for good");
        });
        drop(receiver.receive());
        drop(receiver);
        sending.join().unwrap();
        assert_dropped_once(&dropped);
    });
}

fn drop_value(error: SendError<Value>) -> SendError<()> {
    match error {
        SendError::Full(_) => SendError::Full(()),
        SendError::Closed(_) => SendError::Closed(()),
    }
}

#[test]
fn a_sender_that_goes_has_all_received_that_it_sent() {
    model(None, || {
        let (values, dropped) = values(2);
        let (mut sender, mut receiver) = ring(2);
        let sending = thread::spawn(move || {
            for value in values {
                assert!(sender.send(value).is_ok());
            }
        });
        let mut received = 0;
        for _ in 0..4 {
            let is_closed = receiver.is_closed();
            received += usize::from(receiver.receive().is_some());
            assert!(!is_closed || received == 2);
        }
        sending.join().unwrap();
        drop(receiver);
        assert_dropped_once(&dropped);
    });
}

#[test]
fn a_sender_that_finds_no_room_is_awaited_when_there_is() {
    for capacity in [1, 2] {
        model(None, move || {
            let (mut sender, mut receiver) = ring(capacity);
            (0..capacity).for_each(|value| sender.send(value).unwrap());
            let sending = thread::spawn(move || sender.send(capacity).is_err());
            let mut is_awaited = false;
            while receiver.receive().is_some() {
                is_awaited |= receiver.is_awaited();
            }
            let found_no_room = sending.join().unwrap();
            assert!(is_awaited || !found_no_room);
        });
    }
}

/// As the notice of a barrier beside the records before it.
#[test]
fn who_finds_something_in_one_ring_finds_what_was_put_into_another_one_before() {
    model(None, || {
        let (mut sender, mut receiver) = ring(2);
        let (mut notify, mut notices) = ring(2);
        let sending = thread::spawn(move || {
            sender.send(1).unwrap();
            notify.send(1).unwrap();
            sender.send(2).unwrap();
        });
        let first = receiver.receive();
        if notices.receive().is_some() {
            assert_eq!(first.or_else(|| receiver.receive()), Some(1));
        } else if receiver.receive() == Some(2) {
            assert_eq!(notices.receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

/// How the threads of a model behave: as a worker, or wrongly.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Right,
    /// Sleeps for a time at most, which loom never lets pass.
    RightWithTimeout,
    WakesBeforeItGives,
    DoesNotWakeWhoWantsRoom,
    DoesNotLookAgainBeforeItSleeps,
}

impl Habit {
    /// The end of a look for something to do.
    fn rest(self, parker: &mut Parker) {
        let timeout = (self == Self::RightWithTimeout).then_some(Duration::from_secs(1));
        parker.rest(timeout);
        if self == Self::DoesNotLookAgainBeforeItSleeps {
            parker.rest(timeout);
        }
    }
}

/// Sends all values, and sleeps where there is no room.
fn send_all(
    habit: Habit,
    parker: &mut Parker,
    mut sender: Sender<Value>,
    values: Vec<Value>,
    receiving: &Unparker,
) {
    for mut value in values {
        loop {
            if habit == Habit::WakesBeforeItGives {
                receiving.unpark();
            }
            match sender.send(value) {
                Ok(()) => break,
                Err(SendError::Full(again)) => value = again,
                Err(SendError::Closed(_)) => return,
            }
            habit.rest(parker);
        }
        parker.go_on();
        if habit != Habit::WakesBeforeItGives {
            receiving.unpark();
        }
    }
    drop(sender);
    if habit != Habit::WakesBeforeItGives {
        receiving.unpark();
    }
}

/// Receives until the sender has gone or `count` values are there, and sleeps where there is none.
fn receive(
    habit: Habit,
    parker: &mut Parker,
    mut receiver: Receiver<Value>,
    count: usize,
    sending: &Unparker,
) {
    let mut received = 0;
    while received < count {
        match receiver.receive() {
            Some(value) => {
                assert_eq!(value.number, received);
                received += 1;
                parker.go_on();
                if receiver.is_awaited() && habit != Habit::DoesNotWakeWhoWantsRoom {
                    sending.unpark();
                }
            }
            None if receiver.is_closed() => break,
            None => habit.rest(parker),
        }
    }
    drop(receiver);
    sending.unpark();
}

/// Sends `sent` values through a ring between two threads that sleep, of which the receiver takes
/// `taken`.
fn check(
    habit: Habit,
    interruptions_max: Option<usize>,
    capacity: usize,
    sent: usize,
    taken: usize,
) {
    model(interruptions_max, move || {
        let (values, dropped) = values(sent);
        let (sender, receiver) = ring(capacity);
        let (give, given) = mpsc::channel::<Unparker>();
        let (receiving, receiver_ends) = park::spawn("receiver".to_owned(), move |mut parker| {
            let sending = given.recv().unwrap();
            receive(habit, &mut parker, receiver, taken, &sending);
        })
        .unwrap();
        let (sending, sender_ends) = park::spawn("sender".to_owned(), move |mut parker| {
            send_all(habit, &mut parker, sender, values, &receiving);
        })
        .unwrap();
        give.send(sending).unwrap();
        sender_ends.join().unwrap();
        receiver_ends.join().unwrap();
        assert_dropped_once(&dropped);
    });
}

#[test]
fn no_wake_up_is_lost() {
    check(Habit::Right, Some(3), 1, 2, 2);
}

#[test]
fn no_wake_up_is_lost_with_a_timeout() {
    check(Habit::RightWithTimeout, Some(3), 1, 2, 2);
}

#[test]
fn one_that_sleeps_hears_that_the_other_one_has_gone() {
    check(Habit::Right, Some(3), 1, 1, 9);
    check(Habit::Right, Some(3), 1, 3, 1);
}

/// Each fault that a test above is to find is found. Loom can not clean up behind a deadlock, so
/// each has a process of its own.
mod planted {
    use std::process::Command;

    use super::*;

    #[test]
    #[ignore = "it is to fail"]
    fn one_that_wakes_before_it_gives() {
        check(Habit::WakesBeforeItGives, Some(3), 1, 2, 2);
    }

    #[test]
    #[ignore = "it is to fail"]
    fn one_that_does_not_wake_who_wants_room() {
        check(Habit::DoesNotWakeWhoWantsRoom, Some(3), 1, 2, 2);
    }

    #[test]
    #[ignore = "it is to fail"]
    fn one_that_does_not_look_again_before_it_sleeps() {
        check(Habit::DoesNotLookAgainBeforeItSleeps, Some(3), 1, 2, 2);
    }

    #[test]
    fn wake_ups_that_are_lost_are_found() {
        for name in [
            "planted::one_that_wakes_before_it_gives",
            "planted::one_that_does_not_wake_who_wants_room",
            "planted::one_that_does_not_look_again_before_it_sleeps",
        ] {
            let own = std::env::current_exe().unwrap();
            let run =
                Command::new(own).args(["--ignored", "--exact", "--nocapture", name]).output();
            let said = String::from_utf8(run.unwrap().stderr).unwrap();
            assert!(said.contains("deadlock; threads"), "{name}: {said}");
        }
    }
}
