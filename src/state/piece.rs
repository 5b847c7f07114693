//! Copy on write: a value that a snapshot can share at no cost and that is copied only if it is
//! written to while the snapshot still needs it (rule 114).
//!
//! Whether it is shared is a plain tag, so that a write costs no atomic operation.

use std::sync::Arc;

/// One piece of state.
#[derive(Clone, Debug)]
pub(crate) enum Piece<T> {
    /// Nobody else looks at it.
    Owned(T),
    /// A snapshot or a clone may still look at it.
    Shared(Arc<T>),
}

impl<T: Default> Default for Piece<T> {
    fn default() -> Self {
        Self::Owned(T::default())
    }
}

impl<T: Clone + Default> Piece<T> {
    /// The value.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        match self {
            Self::Owned(value) => value,
            Self::Shared(shared) => shared,
        }
    }

    /// The value for writing. What has been shared before keeps its content.
    #[inline]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        if let Self::Shared(_) = self {
            self.take_back();
        }
        match self {
            Self::Owned(value) => value,
            Self::Shared(_) => unreachable!("it has just been taken back"),
        }
    }

    /// The value for writing, if nobody else looks at it.
    #[inline]
    pub(crate) fn owned(&mut self) -> Option<&mut T> {
        match self {
            Self::Owned(value) => Some(value),
            Self::Shared(_) => None,
        }
    }

    /// A share of the value as it is now.
    pub(crate) fn share(&mut self) -> Arc<T> {
        let shared = match std::mem::take(self) {
            Self::Owned(value) => Arc::new(value),
            Self::Shared(shared) => shared,
        };
        *self = Self::Shared(Arc::clone(&shared));
        shared
    }

    /// The value, in whose place comes the default one.
    pub(crate) fn take(&mut self) -> T {
        match std::mem::take(self) {
            Self::Owned(value) => value,
            Self::Shared(shared) => Arc::unwrap_or_clone(shared),
        }
    }

    #[cold]
    #[inline(never)]
    fn take_back(&mut self) {
        *self = Self::Owned(self.take());
    }
}
