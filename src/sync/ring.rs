//! A bounded queue from one thread to another, without locks.
//!
//! Room is credit: a sender may send as many values as there are free slots, and gets one back for
//! each that is taken. One that has none left leaves a mark, so that the receiver, which takes and
//! finds it, knows that somebody waits.
//!
//! # How the two ends agree
//! ```text
//!             head                 tail
//!   ... free   |  values in order   |   free ...
//! ```
//! Both are counts that only grow. The receiver alone moves `head`, the sender alone `tail`, each
//! after it is done with the slot (`Release`), and the other one reads that before it touches the
//! slot (`Acquire`). Each end keeps what it saw of the other's count, and looks again only when it
//! finds no room, or no value, by what it saw.
//!
//! Invariant: `tail - head` is at most the capacity; the slots between them hold values, the others
//! do not.

use std::fmt;
use std::mem::MaybeUninit;

use super::primitive::{Arc, AtomicBool, AtomicUsize, Ordering, UnsafeCell, fence};

/// Both ends of an empty ring that holds as many values as `capacity`.
///
/// # Panics
/// If `capacity` is zero.
pub fn ring<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    begin_at(0, capacity)
}

/// The end that gives.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    tail: usize,
    /// What was seen of the receiver's count.
    head_seen: usize,
}

/// The end that takes.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    head: usize,
    /// What was seen of the sender's count.
    tail_seen: usize,
}

/// Why a value was not sent; here it is again.
#[derive(Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// There is no room.
    Full(T),
    /// Nobody is left to take it.
    Closed(T),
}

impl<T> Sender<T> {
    /// Puts a value into the ring.
    ///
    /// # Errors
    /// If there is no room: then the receiver hears of it from [`Receiver::is_awaited`]. If the
    /// receiver is gone.
    pub fn send(&mut self, value: T) -> Result<(), SendError<T>> {
        if self.ring.marks.receiver_gone.load(Ordering::Relaxed) {
            return Err(SendError::Closed(value));
        }
        if !self.has_room() && !self.finds_room() {
            return Err(SendError::Full(value));
        }
        // SAFETY: by the check above the slot is beyond all values, so the receiver does not touch
        // it before it sees the count below. There is one sender, and it is borrowed mutably.
        self.ring.slot(self.tail).with_mut(|slot| unsafe { (*slot).write(value) });
        self.tail = self.tail.wrapping_add(1);
        self.ring.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Whether there is room by what was seen.
    fn has_room(&self) -> bool {
        self.tail.wrapping_sub(self.head_seen) < self.ring.capacity
    }

    /// Looks for room; if there is none, leaves the mark that the sender waits and looks once more.
    fn finds_room(&mut self) -> bool {
        self.head_seen = self.ring.head.load(Ordering::Acquire);
        if self.has_room() {
            return true;
        }
        self.ring.marks.sender_waits.store(true, Ordering::Relaxed);
        // Against the one in `is_awaited`: either the receiver finds the mark, or the room that it
        // has made is found here.
        fence(Ordering::SeqCst);
        self.head_seen = self.ring.head.load(Ordering::Acquire);
        self.has_room()
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest value, if there is one.
    pub fn receive(&mut self) -> Option<T> {
        if self.head == self.tail_seen {
            self.tail_seen = self.ring.tail.load(Ordering::Acquire);
            if self.head == self.tail_seen {
                return None;
            }
        }
        let slot = self.ring.slot(self.head);
        // SAFETY: the sender has put a value there, as its count says, and does not touch the slot
        // again before it sees the count below. There is one receiver, and it is borrowed mutably.
        let value = slot.with_mut(|slot| unsafe { (*slot).assume_init_read() });
        self.head = self.head.wrapping_add(1);
        self.ring.head.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Whether the sender has gone and all that it sent was received.
    pub fn is_closed(&self) -> bool {
        // First the mark: behind it the count does not change.
        self.ring.marks.sender_gone.load(Ordering::Acquire)
            && self.ring.tail.load(Ordering::Relaxed) == self.head
    }

    /// Whether the sender has found no room since this was last asked; if so, it is to be woken:
    /// nobody else does it. To be asked after each value that was taken. A mark that was left just
    /// now may be missed as long as more values are known to be there, and not after the last one:
    /// to be sure is dear, and a receiver that has more to take asks again.
    pub fn is_awaited(&self) -> bool {
        let mark = &self.ring.marks.sender_waits;
        if self.head == self.tail_seen {
            // See `finds_room`.
            fence(Ordering::SeqCst);
        }
        mark.load(Ordering::Relaxed) && mark.swap(false, Ordering::Relaxed)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.ring.marks.sender_gone.store(true, Ordering::Release);
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.ring.marks.receiver_gone.store(true, Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("sent", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("received", &self.head).finish_non_exhaustive()
    }
}

fn begin_at<T: Send>(count: usize, capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a ring without room takes nothing");
    let slots = std::iter::repeat_with(|| UnsafeCell::new(MaybeUninit::uninit()));
    let ring = Arc::new(Ring {
        head: Padded(AtomicUsize::new(count)),
        tail: Padded(AtomicUsize::new(count)),
        marks: Padded(Marks {
            sender_waits: AtomicBool::new(false),
            sender_gone: AtomicBool::new(false),
            receiver_gone: AtomicBool::new(false),
        }),
        slots: slots.take(capacity.next_power_of_two()).collect(),
        capacity,
    });
    let sender = Sender { ring: ring.clone(), tail: count, head_seen: count };
    (sender, Receiver { ring, head: count, tail_seen: count })
}

/// What both ends share. What one writes often lies apart from what the other one does.
struct Ring<T> {
    /// How many values were taken.
    head: Padded<AtomicUsize>,
    /// How many were put in.
    tail: Padded<AtomicUsize>,
    marks: Padded<Marks>,
    /// As many as a power of two: which one a count belongs to follows from its low bits, also
    /// where counts begin again at zero.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    capacity: usize,
}

/// What is written seldom.
struct Marks {
    sender_waits: AtomicBool,
    sender_gone: AtomicBool,
    receiver_gone: AtomicBool,
}

// SAFETY: values go from one thread to another, hence `Send`. No two threads touch a slot at the
// same time, as the module says; all else is atomic or is never written.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: a ring is its values and numbers.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, count: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[count & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let mut head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: both ends are gone, and the slots between the counts hold values.
            self.slot(head).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            head = head.wrapping_add(1);
        }
    }
}

/// On cache lines of its own; two, since processors fetch them in pairs.
#[repr(align(128))]
struct Padded<T>(T);

impl<T> std::ops::Deref for Padded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn as_many_values_as_there_is_room_for_come_out_in_order() {
        for capacity in 1..=5 {
            // Counts go on where they are at their end.
            let (mut sender, mut receiver) = begin_at(usize::MAX - 2, capacity);
            for round in 0..4 {
                for value in 0..capacity {
                    assert_eq!(sender.send((round, value)), Ok(()));
                }
                assert_eq!(sender.send((round, 99)), Err(SendError::Full((round, 99))));
                for value in 0..capacity {
                    assert_eq!(receiver.receive(), Some((round, value)));
                }
                assert_eq!(receiver.receive(), None);
            }
        }
    }

    #[test]
    fn a_sender_without_room_is_awaited_until_somebody_hears_of_it() {
        let (mut sender, mut receiver) = ring(1);
        sender.send(1).unwrap();
        assert!(!receiver.is_awaited());
        sender.send(2).unwrap_err();
        assert_eq!(receiver.receive(), Some(1));
        assert!(receiver.is_awaited());
        assert!(!receiver.is_awaited());
    }

    #[test]
    fn each_end_hears_that_the_other_one_has_gone() {
        let (mut sender, mut receiver) = ring(2);
        sender.send(1).unwrap();
        drop(sender);
        assert!(!receiver.is_closed());
        assert_eq!(receiver.receive(), Some(1));
        assert!(receiver.is_closed());

        let (mut sender, receiver) = ring(2);
        drop(receiver);
        assert_eq!(sender.send(1), Err(SendError::Closed(1)));
    }

    #[test]
    fn what_is_left_inside_is_dropped_once() {
        #[derive(Debug)]
        struct Counted<'a>(&'a std::sync::atomic::AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        for drops_receiver_first in [false, true] {
            let dropped = std::sync::atomic::AtomicUsize::new(0);
            let (mut sender, mut receiver) = ring(3);
            for _ in 0..3 {
                sender.send(Counted(&dropped)).unwrap();
            }
            drop(receiver.receive());
            if drops_receiver_first {
                drop(receiver);
                drop(sender.send(Counted(&dropped)));
                drop(sender);
                assert_eq!(dropped.into_inner(), 4);
            } else {
                drop(sender);
                drop(receiver);
                assert_eq!(dropped.into_inner(), 3);
            }
        }
    }

    #[test]
    fn values_pass_from_thread_to_thread() {
        for capacity in [1, 3, 64] {
            let (mut sender, mut receiver) = ring(capacity);
            let mut received = Vec::new();
            thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..20_000_u64 {
                        let mut value = Box::new(number);
                        while let Err(SendError::Full(again)) = sender.send(value) {
                            value = again;
                            thread::yield_now();
                        }
                    }
                });
                while !receiver.is_closed() {
                    match receiver.receive() {
                        Some(value) => received.push(*value),
                        None => thread::yield_now(),
                    }
                }
            });
            assert!(received.into_iter().eq(0..20_000));
        }
    }

    #[test]
    #[should_panic(expected = "a ring without room takes nothing")]
    fn a_ring_without_room_is_refused() {
        ring::<()>(0);
    }
}
