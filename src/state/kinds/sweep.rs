//! Removing what has expired, a few entries at a time: so no record waits for the clean-up of a
//! large state, and nothing that has expired is kept for ever.

use std::collections::BTreeSet;
use std::fmt;

use super::ttl::{Times, Ttl};

/// A descriptor, as the operator sees it that is to clean up.
pub trait Kind<S> {
    /// The name of the state.
    fn name(&self) -> &'static str;

    /// How long its entries live, if they expire.
    fn time_to_live(&self) -> Option<Ttl>;

    /// What removes its expired entries.
    fn sweeper(&self) -> Box<dyn Sweeper<S>>;
}

/// Removes the expired entries of one state, of one key after the other.
pub trait Sweeper<S>: Send {
    /// Goes on in the state of a key; whether all of it has been looked at. If not, the next call
    /// goes on behind.
    fn sweep(&mut self, state: &mut S, now: Times, work: &mut Work) -> bool;

    /// The next call begins at the start of a state.
    fn restart(&mut self) {}

    /// A copy that stands at the same place.
    fn clone_box(&self) -> Box<dyn Sweeper<S>>;
}

/// How much may be done.
#[derive(Debug)]
pub struct Work {
    left: usize,
    /// Something was changed.
    pub has_changed: bool,
}

impl Work {
    /// So many entries may be looked at.
    pub(crate) const fn new(entries: usize) -> Self {
        Self { left: entries, has_changed: false }
    }

    /// Whether one more entry may be looked at.
    pub fn take(&mut self) -> bool {
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

/// What the values of a state are made of: its descriptors.
pub struct Kinds<S> {
    names: Vec<&'static str>,
    /// Of those that expire.
    sweepers: Vec<Box<dyn Sweeper<S>>>,
    /// The sweeper that goes on.
    next: usize,
    is_by_clock: bool,
    /// Whether a state is as good as none; none if only the process knows.
    is_blank: Option<fn(&S) -> bool>,
}

impl<S> Kinds<S> {
    /// The state is the process's own affair.
    pub const fn none() -> Self {
        Self {
            names: Vec::new(),
            sweepers: Vec::new(),
            next: 0,
            is_by_clock: false,
            is_blank: None,
        }
    }

    /// The first name that two descriptors share.
    pub fn name_twice(&self) -> Option<&'static str> {
        let mut names = BTreeSet::new();
        self.names.iter().copied().find(|name| !names.insert(*name))
    }

    /// Whether some state lives by the clock of the machine.
    pub const fn is_by_clock(&self) -> bool {
        self.is_by_clock
    }

    /// Whether the state is made of kinds.
    #[inline]
    pub(crate) const fn are_declared(&self) -> bool {
        self.is_blank.is_some()
    }

    /// Whether some state expires.
    pub(crate) const fn expire(&self) -> bool {
        !self.sweepers.is_empty()
    }

    /// Whether the state is as good as none.
    pub(crate) fn is_blank(&self, state: &S) -> bool {
        self.is_blank.is_some_and(|is_blank| is_blank(state))
    }

    /// Goes on in the state of a key; whether all of it has been looked at.
    pub(crate) fn sweep(&mut self, state: &mut S, now: Times, work: &mut Work) -> bool {
        while let Some(sweeper) = self.sweepers.get_mut(self.next) {
            if !sweeper.sweep(state, now, work) {
                return false;
            }
            self.next += 1;
        }
        self.next = 0;
        true
    }

    /// Leaves what can be seen of the state of a key.
    pub(crate) fn purge(&self, state: &mut Option<S>, now: Times) {
        let mut work = Work::new(usize::MAX);
        for mut sweeper in self.sweepers.iter().map(|sweeper| sweeper.clone_box()) {
            if let Some(value) = state {
                sweeper.restart();
                sweeper.sweep(value, now, &mut work);
            }
        }
        state.take_if(|state| self.is_blank(state));
    }
}

impl<S: Default + PartialEq> Kinds<S> {
    /// None yet. A state that is like the default one is as good as none, and vanishes.
    pub fn new() -> Self {
        let is_blank = |state: &S| *state == S::default();
        Self { is_blank: Some(is_blank), ..Self::none() }
    }

    /// And this one.
    #[must_use]
    pub fn with(mut self, kind: &impl Kind<S>) -> Self {
        self.names.push(kind.name());
        if let Some(ttl) = kind.time_to_live() {
            self.sweepers.push(kind.sweeper());
            self.is_by_clock |= ttl.is_by_clock();
        }
        self
    }
}

impl<S: Default + PartialEq> Default for Kinds<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Clone for Kinds<S> {
    fn clone(&self) -> Self {
        Self {
            names: self.names.clone(),
            sweepers: self.sweepers.iter().map(|sweeper| sweeper.clone_box()).collect(),
            next: self.next,
            is_by_clock: self.is_by_clock,
            is_blank: self.is_blank,
        }
    }
}

impl<S> fmt::Debug for Kinds<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kinds({})", self.names.join(", "))
    }
}
