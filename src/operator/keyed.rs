//! Operators with one value of state for each key, and event-time timers by key.

use std::marker::PhantomData;

use crate::element::Record;
use crate::graph::Subtask;
use crate::operator::{Cell, Emit, Operator, OperatorTraits, StateParts};
use crate::state::heap::KeyedState;
use crate::state::key_group::{Key, KeyGroupCount, KeyGroupRange};
use crate::state::snapshot::OperatorState;
use crate::state::timers::Timers;
use crate::state::{RestoreError, codec};
use crate::time::EventTime;

/// A process that sees the records of one key at a time, with that key's state and timers.
pub trait KeyedProcess: Clone + Send + 'static {
    /// What the stream is keyed by.
    type Key: Key;
    /// The records it receives.
    type In: Record;
    /// The value kept for each key.
    type State: Record;
    /// The records it emits.
    type Out: Record;

    /// Handles one record.
    fn process(
        &mut self,
        record: Self::In,
        context: &mut KeyedContext<'_, Self::Key, Self::State>,
        out: &mut impl Emit<Self::Out>,
    );

    /// A timer of the context's key is due: the watermark has reached `time`. A timer at
    /// [`EventTime::MAX`] is due at the end of data.
    fn on_timer(
        &mut self,
        _time: EventTime,
        _context: &mut KeyedContext<'_, Self::Key, Self::State>,
        _out: &mut impl Emit<Self::Out>,
    ) {
    }

    /// Whether the state is the same however often a record was processed, as long as it was once.
    fn is_idempotent(&self) -> bool {
        false
    }

    /// Whether it is idempotent and emits nothing for a record that it has processed before.
    fn absorbs_repeats(&self) -> bool {
        false
    }

    /// Whether all that comes of a record is emitted when the record is handled, each time it is,
    /// whatever the state holds, and nothing by timers: then no row is owed by the state alone.
    fn answers_each(&self) -> bool {
        false
    }

    /// Whether it answers each record, and always with the same, whatever the state holds: then its
    /// rows are right even if its state is not.
    fn answers_alike(&self) -> bool {
        false
    }

    /// Whether it may emit other records for the same state and input, as it does if it reads a
    /// clock, draws numbers, or depends on the order of a hash map.
    fn varies(&self) -> bool {
        false
    }
}

/// One key's state and timers while a record or a timer of that key is handled.
pub struct KeyedContext<'a, K, S> {
    key: &'a K,
    state: &'a mut Option<S>,
    timers: &'a mut Timers<K>,
    watermark: EventTime,
}

impl<K: Key, S> KeyedContext<'_, K, S> {
    /// The key.
    pub fn key(&self) -> &K {
        self.key
    }

    /// The key's value; setting it to `None` removes the key.
    #[inline]
    pub fn state(&mut self) -> &mut Option<S> {
        self.state
    }

    /// The watermark that the operator has reached. It is part of the state: after a restore it is
    /// what it was at the cut, until inputs have brought a greater one (rule 31).
    pub fn watermark(&self) -> EventTime {
        self.watermark
    }

    /// Asks for [`KeyedProcess::on_timer`] when the watermark reaches `time`. Timers are a set: the
    /// same time twice is one timer (rule 88).
    pub fn register_timer(&mut self, time: EventTime) {
        self.timers.register(time, self.key.clone());
    }

    /// Takes a timer back; one that was not registered does no harm.
    pub fn delete_timer(&mut self, time: EventTime) {
        self.timers.delete(time, self.key);
    }
}

/// How a record's key is found: by value or, where the record holds the key, by reference.
pub trait KeySelector<T>: Clone + Send + 'static {
    /// The key.
    type Key: Key;

    /// Calls `then` with the key of `record`.
    fn with_key<R>(&self, record: &T, then: impl FnOnce(&Self::Key) -> R) -> R;
}

/// A closure that computes the key.
pub struct ByValue<F>(pub(crate) F);

impl<F: Clone> Clone for ByValue<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, K: Key, F: Fn(&T) -> K + Clone + Send + 'static> KeySelector<T> for ByValue<F> {
    type Key = K;

    #[inline]
    fn with_key<R>(&self, record: &T, then: impl FnOnce(&K) -> R) -> R {
        then(&(self.0)(record))
    }
}

/// A closure that points to the key in the record.
pub struct ByRef<F>(pub(crate) F);

impl<F: Clone> Clone for ByRef<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T, K: Key, F: Fn(&T) -> &K + Clone + Send + 'static> KeySelector<T> for ByRef<F> {
    type Key = K;

    #[inline]
    fn with_key<R>(&self, record: &T, then: impl FnOnce(&K) -> R) -> R {
        then((self.0)(record))
    }
}

/// The operator around a [`KeyedProcess`]: keeps the state by key group and fires the timers.
#[derive(Clone)]
pub struct Keyed<P: KeyedProcess, S> {
    process: P,
    selector: S,
    state: KeyedState<P::Key, P::State>,
    timers: Timers<P::Key>,
    watermark: EventTime,
}

impl<P: KeyedProcess, S: KeySelector<P::In, Key = P::Key>> Keyed<P, S> {
    /// The operator that runs `process` on the keys that `selector` finds.
    pub fn new(process: P, selector: S) -> Self {
        Self {
            process,
            selector,
            state: KeyedState::new(KeyGroupRange::all(KeyGroupCount::MAX), KeyGroupCount::MAX),
            timers: Timers::new(KeyGroupRange::all(KeyGroupCount::MAX), KeyGroupCount::MAX),
            watermark: EventTime::MIN,
        }
    }

    /// Inputs bring watermarks anew, behind the records that were in flight (rule 31).
    fn restore_watermark(&mut self, state: &OperatorState) {
        self.watermark = state.watermark.unwrap_or(self.watermark);
    }
}

impl<P: KeyedProcess, S: KeySelector<P::In, Key = P::Key>> Operator for Keyed<P, S> {
    type In = P::In;
    type Out = P::Out;

    #[inline]
    fn process(&mut self, record: P::In, out: &mut impl Emit<P::Out>) {
        let Self { process, selector, state, timers, watermark } = self;
        let key = selector.with_key(&record, Clone::clone);
        state.update(&key, |key, state| {
            let mut context = KeyedContext { key, state, timers, watermark: *watermark };
            process.process(record, &mut context, out);
        });
    }

    #[inline]
    fn prepare(&self, records: &[P::In]) {
        // The sums are of no use but for the look at each entry, which the compiler must not leave
        // out. In two passes, since an entry's place is known only when its index slot is read.
        let touch = |record| self.selector.with_key(record, |key| self.state.touch_index(key));
        std::hint::black_box(records.iter().map(touch).fold(0, usize::wrapping_add));
        let touch = |record| self.selector.with_key(record, |key| self.state.touch(key));
        std::hint::black_box(records.iter().map(touch).fold(0, usize::wrapping_add));
    }

    fn open(&mut self, subtask: &Subtask) {
        let (range, max) = (subtask.key_groups(), subtask.assigner.max());
        self.state = KeyedState::new(range, max);
        self.timers = Timers::new(range, max);
    }

    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<P::Out>) {
        self.watermark = self.watermark.max(watermark);
        while let Some((time, key)) = self.timers.pop_due(watermark) {
            let Self { process, state, timers, watermark, .. } = self;
            state.update(&key, |key, state| {
                let mut context = KeyedContext { key, state, timers, watermark: *watermark };
                process.on_timer(time, &mut context, out);
            });
        }
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts {
            keyed: Some(self.state.snapshot()),
            timers: Some(self.timers.snapshot()),
            watermark: Some(self.watermark),
            lists: Vec::new(),
        }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        if let Some(groups) = &state.keyed {
            self.state.restore(state.format, groups)?;
        }
        if let Some(groups) = &state.timers {
            self.timers.restore(state.format, groups)?;
        }
        self.restore_watermark(state);
        Ok(())
    }

    fn track_changes(&mut self) {
        self.state.track_changes();
        self.timers.track_changes();
    }

    fn changes(&mut self) -> StateParts {
        StateParts {
            keyed: Some(self.state.changes()),
            timers: Some(self.timers.changes()),
            watermark: Some(self.watermark),
            lists: Vec::new(),
        }
    }

    fn apply(&mut self, changes: &OperatorState) -> Result<(), RestoreError> {
        self.state.apply(changes.format, changes.keyed.as_deref().unwrap_or_default())?;
        self.timers.apply(changes.format, changes.timers.as_deref().unwrap_or_default())?;
        self.restore_watermark(changes);
        Ok(())
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits {
            stateful: true,
            idempotent: self.process.is_idempotent(),
            absorbs: self.process.absorbs_repeats(),
            answers: self.process.answers_each(),
            alike: self.process.answers_alike(),
            varies: self.process.varies(),
        }
    }

    fn cell_of(&self, record: &P::In) -> Option<Vec<u8>> {
        Some(self.selector.with_key(record, codec::encode))
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self
            .state
            .iter()
            .map(|(key, value)| (codec::encode(key), codec::encode(value)))
            .collect();
        cells.sort();
        cells
    }
}

/// A running value for each key: starts as `init`, takes each record in by `fold`, and emits the
/// key with the value so far for every record.
pub struct Aggregate<K, In, State, Fold> {
    init: State,
    fold: Fold,
    idempotent: bool,
    types: PhantomData<fn(K, In)>,
}

impl<K, In, State, Fold> Aggregate<K, In, State, Fold> {
    /// Folds with `fold` from `init`. `idempotent` declares that folding a record in again changes
    /// nothing, as with a maximum.
    pub fn new(init: State, fold: Fold, idempotent: bool) -> Self {
        Self { init, fold, idempotent, types: PhantomData }
    }
}

impl<K, In, State: Clone, Fold: Clone> Clone for Aggregate<K, In, State, Fold> {
    fn clone(&self) -> Self {
        Self::new(self.init.clone(), self.fold.clone(), self.idempotent)
    }
}

impl<K, In, State, Fold> KeyedProcess for Aggregate<K, In, State, Fold>
where
    K: Key,
    In: Record,
    State: Record,
    Fold: FnMut(&mut State, In) + Clone + Send + 'static,
{
    type Key = K;
    type In = In;
    type State = State;
    type Out = (K, State);

    #[inline]
    fn process(
        &mut self,
        record: In,
        context: &mut KeyedContext<'_, K, State>,
        out: &mut impl Emit<(K, State)>,
    ) {
        let init = &self.init;
        let value = context.state.get_or_insert_with(|| init.clone());
        (self.fold)(value, record);
        out.emit((context.key.clone(), value.clone()));
    }

    fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    fn answers_each(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says how far event time is.
    #[derive(Clone)]
    struct Clock;

    impl KeyedProcess for Clock {
        type Key = u64;
        type In = u64;
        type State = ();
        type Out = EventTime;

        fn process(
            &mut self,
            _record: u64,
            context: &mut KeyedContext<'_, u64, ()>,
            out: &mut impl Emit<EventTime>,
        ) {
            out.emit(context.watermark());
        }
    }

    #[test]
    fn rule_031_a_record_in_flight_meets_the_watermark_of_the_cut_after_a_restore() {
        let at = EventTime::from_millis;
        let mut out = Vec::new();
        let mut clock = Keyed::new(Clock, ByValue(|record: &u64| *record));
        clock.on_watermark(at(7), &mut out);
        let watermark = clock.snapshot().watermark;

        let mut restored = Keyed::new(Clock, ByValue(|record: &u64| *record));
        restored.restore(&OperatorState { watermark, ..OperatorState::default() }).unwrap();
        restored.process(1, &mut out);
        restored.on_watermark(at(3), &mut out);
        restored.process(1, &mut out);
        restored.on_watermark(at(9), &mut out);
        restored.process(1, &mut out);
        assert_eq!(out, [at(7), at(7), at(9)]);
    }
}
