//! Operators with one value of state for each key, and timers by key.

mod context;

use std::marker::PhantomData;
use std::vec::IntoIter;

use crate::element::Record;
use crate::graph::Subtask;
use crate::operator::{Cell, Emit, Operator, OperatorTraits, RowsRestOn, StateParts};
use crate::state::hash::KeyHash;
use crate::state::heap::{Guess, KeyedState, Place, Visited};
use crate::state::key_group::{Key, KeyGroupCount, KeyGroupRange};
use crate::state::kinds::{Kinds, Work};
use crate::state::slot::Slot;
use crate::state::snapshot::OperatorState;
use crate::state::timers::Timers;
use crate::state::{RestoreError, codec};
use crate::time::{EventTime, ProcessingTime};

pub use context::KeyedContext;
use context::Timing;

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

    /// A timer of the context's key is due: the clock of the machine has passed `time`, or the data
    /// has ended. One that is registered at the end of data does not fire.
    fn on_processing_timer(
        &mut self,
        _time: ProcessingTime,
        _context: &mut KeyedContext<'_, Self::Key, Self::State>,
        _out: &mut impl Emit<Self::Out>,
    ) {
    }

    /// Whether it asks what the clock of the machine says, or registers timers by it: then it is
    /// told, and counts as one that [varies](KeyedProcess::varies). To keep a state with a time to
    /// live by the clock does not need this.
    fn uses_clock(&self) -> bool {
        false
    }

    /// What the state is made of, if it is made of [kinds](crate::state::kinds) and nothing else
    /// that is worth keeping: what has expired is removed from the declared ones, and a state that
    /// is like the default one vanishes. Asked once, when the job is built.
    fn kinds(&self) -> Kinds<Self::State> {
        Kinds::none()
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

    /// What its rows depend on of what the state has taken in.
    fn rows_rest_on(&self) -> RowsRestOn {
        RowsRestOn::Counts
    }

    /// Whether it may emit other records for the same state and input, as it does if it reads a
    /// clock, draws numbers, or depends on the order of a hash map.
    fn varies(&self) -> bool {
        false
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
    timing: Timing<P::Key>,
    kinds: Kinds<P::State>,
    /// Where the clean-up goes on.
    place: Place,
}

impl<P: KeyedProcess, S: KeySelector<P::In, Key = P::Key>> Keyed<P, S> {
    /// The operator that runs `process` on the keys that `selector` finds.
    pub fn new(process: P, selector: S) -> Self {
        let (range, max) = (KeyGroupRange::all(KeyGroupCount::MAX), KeyGroupCount::MAX);
        let kinds = process.kinds();
        let uses_clock = process.uses_clock() || kinds.is_by_clock();
        Self {
            kinds,
            process,
            selector,
            state: KeyedState::new(range, max),
            timing: Timing::new(range, max, uses_clock),
            place: Place::default(),
        }
    }

    /// What the state is made of.
    pub fn kinds(&self) -> &Kinds<P::State> {
        &self.kinds
    }

    /// Has the process handle something of a key, whose state may be where it was guessed.
    #[inline]
    fn handle(
        &mut self,
        key: &P::Key,
        call: impl FnOnce(&mut P, &mut KeyedContext<'_, P::Key, P::State>),
    ) {
        let Self { process, state, timing, kinds, .. } = self;
        state.update(key, |key, state| {
            let mut context = KeyedContext { key, state, timing };
            call(process, &mut context);
            settle(kinds, context.state());
        });
        self.clean_up();
    }

    /// Cleans up, if states can expire.
    #[inline]
    fn clean_up(&mut self) {
        if self.kinds.expire() {
            self.visit_some();
        }
    }

    /// Looks at some entries more than one record can add, so that the expired ones do not pile up.
    /// Not part of the loop over the records, which most operators need without it.
    #[inline(never)]
    fn visit_some(&mut self) {
        let Self { state, timing, kinds, place, .. } = self;
        let mut work = Work::new(ENTRIES_LOOKED_AT);
        while work.take() {
            work.has_changed = false;
            state.visit(place, |state| {
                let is_done = kinds.sweep(state, timing.now, &mut work);
                let vanishes = is_done && kinds.is_blank(state);
                Visited { is_done, vanishes, has_changed: work.has_changed }
            });
        }
    }

    /// Inputs bring watermarks anew, behind the records that were in flight (rule 31).
    fn restore_watermark(&mut self, state: &OperatorState) {
        if let Some(watermark) = state.watermark {
            self.timing.reach(watermark);
        }
    }
}

impl<P: KeyedProcess, S: KeySelector<P::In, Key = P::Key>> Operator for Keyed<P, S> {
    type In = P::In;
    type Out = P::Out;

    #[inline]
    fn process(&mut self, record: P::In, out: &mut impl Emit<P::Out>) {
        let key = self.selector.with_key(&record, Clone::clone);
        self.handle(&key, |process, context| process.process(record, context, out));
    }

    /// Block by block, in three passes: the entry of a key is known only when a slot of an index
    /// has been read, and both are best waited for together with those of other records.
    #[inline]
    fn process_all(&mut self, mut records: IntoIter<P::In>, out: &mut impl Emit<P::Out>) {
        if self.kinds.are_declared() || !self.state.allows_guesses() {
            return records.for_each(|record| self.process(record, out));
        }
        let (mut hashes, mut guesses) = ([KeyHash::ZERO; BLOCK], [Guess::default(); BLOCK]);
        while let ahead = records.as_slice()
            && !ahead.is_empty()
        {
            let count = ahead.len().min(BLOCK);
            for ((record, hash), guess) in ahead.iter().zip(&mut hashes).zip(&mut guesses) {
                *hash = self.selector.with_key(record, KeyHash::of);
                *guess = self.state.prefetch(*hash);
            }
            for (hash, guess) in hashes[..count].iter().zip(&mut guesses[..count]) {
                self.state.guess(*hash, guess);
            }
            for (guess, record) in guesses[..count].iter().zip(records.by_ref()) {
                let Self { process, selector, state, timing, .. } = self;
                let found =
                    selector.with_key(&record, |key| state.table_at(*guess, |at| at == key));
                let Some((table, position)) = found else {
                    self.process(record, out);
                    continue;
                };
                table.update_at(position, |key, state| {
                    process.process(record, &mut KeyedContext { key, state, timing }, out);
                });
            }
        }
    }

    fn open(&mut self, subtask: &Subtask) {
        let (range, max) = (subtask.key_groups(), subtask.assigner.max());
        self.state = KeyedState::new(range, max);
        self.timing = Timing::new(range, max, self.timing.clock.is_some());
    }

    fn on_watermark(&mut self, watermark: EventTime, out: &mut impl Emit<P::Out>) {
        self.timing.watermark = self.timing.watermark.max(watermark);
        while let Some((time, key)) = self.timing.timers.pop_due(watermark) {
            // For times to live, event time goes on with the timers: how far watermarks jump
            // depends on the run.
            self.timing.now.event = self.timing.now.event.max(time);
            self.handle(&key, |process, context| process.on_timer(time, context, out));
        }
        self.timing.reach(watermark);
    }

    fn on_clock(&mut self, now: ProcessingTime, out: &mut impl Emit<P::Out>) {
        let now = self.timing.now.processing.max(now);
        self.timing.now.processing = now;
        // A record of the same millisecond may still come (rule 88).
        let passed = now.saturating_add(-1);
        while let Some((time, key)) = self.timing.clock.as_mut().and_then(|of| of.pop_due(passed)) {
            self.handle(&key, |process, context| process.on_processing_timer(time, context, out));
        }
    }

    fn next_wake(&self) -> Option<ProcessingTime> {
        let first = self.timing.clock.as_ref()?.first()?;
        Some(first.saturating_add(1))
    }

    /// What waits for the clock does not have to wait any longer. One round, since a timer may
    /// register the next one.
    fn on_end_of_data(&mut self, out: &mut impl Emit<P::Out>) {
        let Some(timers) = &mut self.timing.clock else { return };
        let mut left = Vec::with_capacity(timers.len());
        left.extend(std::iter::from_fn(|| timers.pop_due(ProcessingTime::MAX)));
        for (time, key) in left {
            self.handle(&key, |process, context| process.on_processing_timer(time, context, out));
        }
        let Some(timers) = &mut self.timing.clock else { return };
        while timers.pop_due(ProcessingTime::MAX).is_some() {}
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts {
            keyed: Some(self.state.snapshot()),
            timers: Some(self.timing.timers.snapshot()),
            processing_timers: self.timing.clock.as_mut().map(Timers::snapshot),
            watermark: Some(self.timing.watermark),
            lists: Vec::new(),
        }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        if let Some(groups) = &state.keyed {
            self.state.restore(state.format, groups)?;
        }
        if let Some(groups) = &state.timers {
            self.timing.timers.restore(state.format, groups)?;
        }
        if let (Some(timers), Some(groups)) = (&mut self.timing.clock, &state.processing_timers) {
            timers.restore(state.format, groups)?;
        }
        self.restore_watermark(state);
        Ok(())
    }

    fn track_changes(&mut self) {
        self.state.track_changes();
        self.timing.timers.track_changes();
        self.timing.clock.iter_mut().for_each(Timers::track_changes);
    }

    fn changes(&mut self) -> StateParts {
        StateParts {
            keyed: Some(self.state.changes()),
            timers: Some(self.timing.timers.changes()),
            processing_timers: self.timing.clock.as_mut().map(Timers::changes),
            watermark: Some(self.timing.watermark),
            lists: Vec::new(),
        }
    }

    fn apply(&mut self, changes: &OperatorState) -> Result<(), RestoreError> {
        self.state.apply(changes.format, changes.keyed.as_deref().unwrap_or_default())?;
        self.timing.timers.apply(changes.format, changes.timers.as_deref().unwrap_or_default())?;
        if let (Some(timers), Some(groups)) = (&mut self.timing.clock, &changes.processing_timers) {
            timers.apply(changes.format, groups)?;
        }
        self.restore_watermark(changes);
        Ok(())
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits {
            stateful: true,
            idempotent: self.process.is_idempotent(),
            absorbs: self.process.absorbs_repeats(),
            answers: self.process.answers_each(),
            rows: self.process.rows_rest_on(),
            varies: self.process.varies() || self.timing.clock.is_some(),
            uses_clock: self.timing.clock.is_some(),
        }
    }

    fn cell_of(&self, record: &P::In) -> Option<Vec<u8>> {
        Some(self.selector.with_key(record, codec::encode))
    }

    fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self
            .state
            .iter()
            .filter_map(|(key, value)| {
                let mut value = Some(value.clone());
                self.kinds.purge(&mut value, self.timing.now);
                Some((codec::encode(key), codec::encode(&value?)))
            })
            .collect();
        cells.sort();
        cells
    }
}

/// How many records are looked at ahead: enough to wait for the memory of many at the same time,
/// few enough for what was fetched to stay.
const BLOCK: usize = 32;

/// Leaves no state where it is as good as none.
#[inline]
fn settle<S: Record>(kinds: &Kinds<S>, state: &mut Slot<'_, S>) {
    if kinds.are_declared() && state.get().is_some_and(|state| kinds.is_blank(state)) {
        state.take();
    }
}

/// How many entries the clean-up looks at for each record, those included that it passes by.
const ENTRIES_LOOKED_AT: usize = 8;

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
mod tests;
