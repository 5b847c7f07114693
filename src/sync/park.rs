//! A thread that sleeps when it has nothing to do, and is woken by whoever has something for it.
//!
//! # No wake-up is lost
//! The thread looks for something to do. If it finds nothing it first says so, in a flag, and looks
//! once more; only then it sleeps, and only while the flag still stands. Who has something for it
//! makes that visible first, and then looks at the flag: if it stands, it takes it down and wakes
//! the thread. Both have a fence between their two steps. So either the last look finds what was
//! made visible before it, or the flag is seen.
//!
//! A thread that is at work costs the others a look at a flag that nobody writes. Waking is a call
//! of the system only for one that sleeps or is about to.
//!
//! The flag, and not the token that [`std::thread::Thread::unpark`] leaves, says whether to sleep:
//! code of users that waits for something itself may take the token away.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use super::primitive::{Arc, AtomicBool, Builder, Ordering, Thread, fence, park, park_timeout};

pub use super::primitive::JoinHandle;

/// Starts a thread that can sleep.
///
/// # Errors
/// If the system has no room for one more.
pub fn spawn(
    name: String,
    body: impl FnOnce(Parker) + Send + 'static,
) -> io::Result<(Unparker, JoinHandle<()>)> {
    let is_idle = Arc::new(AtomicBool::new(false));
    let own = is_idle.clone();
    let run = || body(Parker { is_idle: own, has_said_so: false, is_here: PhantomData });
    let handle = Builder::new().name(name).spawn(run)?;
    Ok((Unparker { is_idle, thread: handle.thread().clone() }, handle))
}

/// How a thread sleeps. It stays on that thread.
#[derive(Debug)]
pub struct Parker {
    is_idle: Arc<AtomicBool>,
    /// The flag was set, and the thread has looked again since or does so now.
    has_said_so: bool,
    is_here: PhantomData<*const ()>,
}

/// How others wake it.
#[derive(Clone, Debug)]
pub struct Unparker {
    is_idle: Arc<AtomicBool>,
    thread: Thread,
}

impl Parker {
    /// To be called after each look for something to do that has found something.
    pub fn go_on(&mut self) {
        if self.has_said_so {
            self.get_up();
        }
    }

    /// To be called after each look that has found nothing. The first call says so and returns, so
    /// that the caller looks again; the second one in a row sleeps until the thread is woken or the
    /// time is over, or a little shorter.
    pub fn rest(&mut self, timeout: Option<Duration>) {
        if !self.has_said_so {
            self.has_said_so = true;
            // No store: loom does not know that it comes after a swap of another thread that took
            // down the last one.
            self.is_idle.swap(true, Ordering::Relaxed);
            // Against the one in `unpark`.
            fence(Ordering::SeqCst);
            return;
        }
        match timeout {
            None => {
                while self.is_idle.load(Ordering::Acquire) {
                    park();
                }
            }
            Some(timeout) => {
                if self.is_idle.load(Ordering::Acquire) {
                    park_timeout(timeout);
                }
            }
        }
        self.get_up();
    }

    fn get_up(&mut self) {
        self.has_said_so = false;
        self.is_idle.store(false, Ordering::Relaxed);
    }
}

impl Unparker {
    /// Wakes the thread if it sleeps or is about to. To be called after what it shall find is
    /// visible.
    pub fn unpark(&self) {
        // Against the one in `rest`.
        fence(Ordering::SeqCst);
        if self.is_idle.load(Ordering::Relaxed) && self.is_idle.swap(false, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Runs `body` on a thread that can sleep, with a channel that says when it is done.
    fn run(body: impl FnOnce(Parker, mpsc::Receiver<Unparker>) + Send + 'static) {
        let (give, given) = mpsc::channel();
        let (unparker, handle) = spawn("sleeper".to_owned(), |parker| body(parker, given)).unwrap();
        give.send(unparker).unwrap();
        handle.join().unwrap();
    }

    #[test]
    fn one_that_is_woken_during_its_last_look_does_not_sleep() {
        run(|mut parker, given| {
            let unparker = given.recv().unwrap();
            parker.rest(None);
            unparker.unpark();
            parker.rest(None);
        });
    }

    #[test]
    fn one_whose_token_was_taken_by_other_code_does_not_sleep() {
        run(|mut parker, given| {
            let unparker = given.recv().unwrap();
            parker.rest(None);
            unparker.unpark();
            thread::park_timeout(Duration::ZERO);
            parker.rest(None);
        });
    }

    #[test]
    fn one_that_is_at_work_is_left_alone() {
        run(|mut parker, given| {
            let unparker = given.recv().unwrap();
            unparker.unpark();
            parker.rest(None);
            assert!(parker.is_idle.load(Ordering::Relaxed), "nothing was left of the call");
            parker.go_on();
            assert!(!parker.is_idle.load(Ordering::Relaxed));
            parker.rest(None);
            parker.rest(Some(Duration::ZERO));
            assert!(!parker.is_idle.load(Ordering::Relaxed));
        });
    }
}
