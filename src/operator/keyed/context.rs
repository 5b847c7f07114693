//! What a keyed process sees of the key that it handles.

use crate::state::key_group::{Key, KeyGroupCount, KeyGroupRange};
use crate::state::kinds::{
    AggregatingDescriptor, AggregatingView, ListDescriptor, ListView, MapDescriptor, MapView,
    ReducingDescriptor, ReducingView, Times, ValueDescriptor, ValueView,
};
use crate::state::slot::Slot;
use crate::state::timers::Timers;
use crate::time::{EventTime, ProcessingTime};

/// The timers of an operator, and what time it is for it.
#[derive(Clone)]
pub(super) struct Timing<K> {
    pub(super) timers: Timers<K>,
    /// By the clock of the machine, if the process uses it.
    pub(super) clock: Option<Timers<K, ProcessingTime>>,
    pub(super) watermark: EventTime,
    /// What times to live go by.
    pub(super) now: Times,
}

impl<K: Key> Timing<K> {
    pub(super) fn new(range: KeyGroupRange, max: KeyGroupCount, uses_clock: bool) -> Self {
        Self {
            timers: Timers::new(range, max),
            clock: uses_clock.then(|| Timers::new(range, max)),
            watermark: EventTime::MIN,
            now: Times::MIN,
        }
    }

    /// Event time has come to the watermark.
    pub(super) fn reach(&mut self, watermark: EventTime) {
        self.watermark = self.watermark.max(watermark);
        self.now.event = self.watermark;
    }
}

/// One key's state and timers while a record or a timer of that key is handled.
pub struct KeyedContext<'a, K, S> {
    pub(super) key: &'a K,
    pub(super) state: Slot<'a, S>,
    pub(super) timing: &'a mut Timing<K>,
}

impl<'a, K: Key, S> KeyedContext<'a, K, S> {
    /// The key.
    pub fn key(&self) -> &K {
        self.key
    }

    /// The key's state; a key of which none is left is removed.
    #[inline]
    pub fn state(&mut self) -> &mut Slot<'a, S> {
        &mut self.state
    }

    /// The watermark that the operator has reached. It is part of the state: after a restore it is
    /// what it was at the cut, until inputs have brought a greater one (rule 31).
    pub fn watermark(&self) -> EventTime {
        self.timing.watermark
    }

    /// Asks for [`KeyedProcess::on_timer`](super::KeyedProcess::on_timer) when the watermark
    /// reaches `time`. Timers are a set: the same time twice is one timer (rule 88).
    pub fn register_timer(&mut self, time: EventTime) {
        self.timing.timers.register(time, self.key.clone());
    }

    /// Takes a timer back; one that was not registered does no harm.
    pub fn delete_timer(&mut self, time: EventTime) {
        self.timing.timers.delete(time, self.key);
    }

    /// What the clock of the machine said before this record or timer was handled: all of a batch
    /// have the same time.
    ///
    /// # Panics
    /// If the process does not [use the clock](super::KeyedProcess::uses_clock).
    pub fn processing_time(&mut self) -> ProcessingTime {
        self.clock();
        self.timing.now.processing
    }

    /// Asks for [`KeyedProcess::on_processing_timer`](super::KeyedProcess::on_processing_timer)
    /// when the clock has passed `time`. Timers are a set, and part of the state: one that was due
    /// while the job was down fires when it is up again (rule 88).
    ///
    /// # Panics
    /// As [`KeyedContext::processing_time`].
    pub fn register_processing_timer(&mut self, time: ProcessingTime) {
        let key = self.key.clone();
        self.clock().register(time, key);
    }

    /// Takes a timer back; one that was not registered does no harm.
    ///
    /// # Panics
    /// As [`KeyedContext::processing_time`].
    pub fn delete_processing_timer(&mut self, time: ProcessingTime) {
        let key = self.key;
        self.clock().delete(time, key);
    }

    fn clock(&mut self) -> &mut Timers<K, ProcessingTime> {
        self.timing.clock.as_mut().expect("KeyedProcess::uses_clock says that it uses the clock")
    }
}

/// The parts of a state that is made of kinds, see [`crate::state::kinds`]. If the key has no state
/// yet it gets the default one, which vanishes again if it is left as it is and the process
/// [declares](super::KeyedProcess::kinds) its kinds.
impl<K: Key, S: Default> KeyedContext<'_, K, S> {
    /// A value.
    #[inline]
    pub fn value<T>(&mut self, of: &ValueDescriptor<S, T>) -> ValueView<'_, T> {
        let (state, now) = self.parts();
        of.view(state, now)
    }

    /// A list.
    #[inline]
    pub fn list<T>(&mut self, of: &ListDescriptor<S, T>) -> ListView<'_, T> {
        let (state, now) = self.parts();
        of.view(state, now)
    }

    /// A map.
    #[inline]
    pub fn map<M: Ord, V>(&mut self, of: &MapDescriptor<S, M, V>) -> MapView<'_, M, V> {
        let (state, now) = self.parts();
        of.view(state, now)
    }

    /// A value that others are folded into.
    #[inline]
    pub fn reducing<T>(&mut self, of: &ReducingDescriptor<S, T>) -> ReducingView<'_, T> {
        let (state, now) = self.parts();
        of.view(state, now)
    }

    /// An accumulator.
    #[inline]
    pub fn aggregating<A, In, Out>(
        &mut self,
        of: &AggregatingDescriptor<S, A, In, Out>,
    ) -> AggregatingView<'_, A, In, Out> {
        let (state, now) = self.parts();
        of.view(state, now)
    }

    #[inline]
    fn parts(&mut self) -> (&mut S, Times) {
        (self.state.get_or_insert_default(), self.timing.now)
    }
}
