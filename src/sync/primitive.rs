//! What the rest is built on: the standard library's types, or loom's of the same names, which
//! try every order in which threads may see each other's steps.

#[cfg(not(loom))]
pub use standard::*;

#[cfg(loom)]
pub use modelled::*;

#[cfg(not(loom))]
mod standard {
    pub(in crate::sync) use std::sync::Arc;
    pub(in crate::sync) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub use std::thread::JoinHandle;
    pub(in crate::sync) use std::thread::{Builder, Thread, park, park_timeout};

    /// The standard library's, with the access of loom's.
    pub(in crate::sync) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::sync) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(in crate::sync) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::time::Duration;

    pub(in crate::sync) use loom::cell::UnsafeCell;
    pub(in crate::sync) use loom::sync::Arc;
    pub(in crate::sync) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub use loom::thread::JoinHandle;
    pub(in crate::sync) use loom::thread::{Builder, Thread, park};

    /// Loom knows no time: as if it never came.
    pub(in crate::sync) fn park_timeout(_: Duration) {
        park();
    }
}
