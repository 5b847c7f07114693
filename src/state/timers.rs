//! Timers: a set of (time, key) that belongs to the keyed state (rule 88), by event time or by the
//! clock of the machine. It does not know what time it is, nor what a timer does.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use imbl::OrdSet;

use crate::element::Record;
use crate::state::codec::Format;
use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner, encode_by_group};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::snapshot::{Bytes, Share};
use crate::time::EventTime;

/// What timers are for: [`EventTime`] or [`ProcessingTime`](crate::time::ProcessingTime).
pub trait Time: Record + Copy + Ord {}

impl<T: Record + Copy + Ord> Time for T {}

/// The timers of one operator in one subtask, by one kind of time.
#[derive(Clone)]
pub struct Timers<K, T = EventTime> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    set: OrdSet<(T, K)>,
    /// Those that came or went since [`Timers::changes`], if that is wanted.
    changed: Option<BTreeSet<(T, K)>>,
}

impl<K: Key, T: Time> Timers<K, T> {
    /// No timers yet, for the keys of the groups `range` out of `max` groups.
    ///
    /// # Panics
    /// If the range has groups that do not exist.
    pub fn new(range: KeyGroupRange, max: KeyGroupCount) -> Self {
        range.assert_within(max);
        Self { range, max, set: OrdSet::new(), changed: None }
    }

    /// Asks for `key` to be woken at `time`; whether that had not been asked for yet. A time that
    /// has passed is due at once.
    pub fn register(&mut self, time: T, key: K) -> bool {
        self.note(time, &key);
        self.set.insert((time, key)).is_none()
    }

    /// Takes the request back; whether there was one.
    pub fn delete(&mut self, time: T, key: &K) -> bool {
        self.note(time, key);
        self.set.remove(&(time, key.clone())).is_some()
    }

    /// The first time that a timer is for.
    pub fn first(&self) -> Option<T> {
        self.set.get_min().map(|(time, _)| *time)
    }

    /// Takes the first timer in the order (time, key) off, if it is due `now`.
    pub fn pop_due(&mut self, now: T) -> Option<(T, K)> {
        let due = self.set.get_min().filter(|(time, _)| *time <= now).cloned()?;
        // In half the time that `OrdSet::without_min` takes.
        self.set.remove(&due);
        self.note(due.0, &due.1);
        Some(due)
    }

    fn note(&mut self, time: T, key: &K) {
        if let Some(changed) = &mut self.changed {
            changed.insert((time, key.clone()));
        }
    }

    /// From now on it is noted which timers come and go.
    pub fn track_changes(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// The timers that came or went since the last call, each with whether it is there. Nothing if
    /// changes are not tracked.
    pub fn changes(&mut self) -> Arc<dyn Share> {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        let with_presence = |timer| {
            let is_there = self.set.contains(&timer);
            (timer, is_there)
        };
        let changes = changed.into_iter().map(with_presence).collect();
        Arc::new(TimerChanges { range: self.range, max: self.max, changes })
    }

    /// Applies what [`Timers::changes`] gave of the same range.
    ///
    /// # Errors
    /// If the bytes are not such changes, or not of this subtask's timers.
    pub fn apply(
        &mut self,
        format: Format,
        groups: &[(KeyGroup, Bytes)],
    ) -> Result<(), RestoreError> {
        for (group, bytes) in groups {
            for change in GroupEntries::<((T, K), bool)>::new(format, self.range, *group, bytes)? {
                let ((time, key), is_there) = change?;
                check_owner(*group, self.max.group_of(KeyHash::of(&key)))?;
                if is_there {
                    self.register(time, key);
                } else {
                    self.delete(time, &key);
                }
            }
        }
        Ok(())
    }

    /// How many timers there are.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The timers as they are now, whatever is registered or fires later. Copies nothing now; a
    /// later change copies the few nodes of the tree on its way, however many timers there are.
    pub fn snapshot(&mut self) -> Arc<dyn Share> {
        let timers = self.set.clone();
        Arc::new(TimerShare { range: self.range, max: self.max, timers })
    }

    /// Takes over what a snapshot of the same range encoded, in place of what is there.
    ///
    /// # Errors
    /// If the bytes are not timers, or not this subtask's; nothing has changed then.
    pub fn restore(
        &mut self,
        format: Format,
        groups: &[(KeyGroup, Bytes)],
    ) -> Result<(), RestoreError> {
        let mut set = OrdSet::new();
        for (group, bytes) in groups {
            for timer in GroupEntries::<(T, K)>::new(format, self.range, *group, bytes)? {
                let timer = timer?;
                check_owner(*group, self.max.group_of(KeyHash::of(&timer.1)))?;
                if set.insert(timer).is_some() {
                    return Err(RestoreError::Duplicate { group: *group });
                }
            }
        }
        self.set = set;
        Ok(())
    }
}

impl<K: Key, T: Time> fmt::Debug for Timers<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timers({}, {} timers)", self.range, self.len())
    }
}

struct TimerShare<K, T> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    timers: OrdSet<(T, K)>,
}

impl<K: Key, T: Time> Share for TimerShare<K, T> {
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        let timers = self.timers.iter().map(|timer| (KeyHash::of(&timer.1), timer));
        encode_by_group(format, self.range, self.max, timers)
    }
}

struct TimerChanges<K, T> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    changes: Vec<((T, K), bool)>,
}

impl<K: Key, T: Time> Share for TimerChanges<K, T> {
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        let changes = self.changes.iter().map(|change| (KeyHash::of(&change.0.1), change));
        encode_by_group(format, self.range, self.max, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::codec;

    const MAX: KeyGroupCount = KeyGroupCount::new(128).expect("within 1 to 32768");

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    #[test]
    fn rule_088_timers_are_a_set() {
        let mut timers = Timers::new(KeyGroupRange::all(MAX), MAX);
        assert!(timers.register(at(5), 1_u64));
        assert!(!timers.register(at(5), 1));
        assert!(
            timers.register(at(5), 0) && timers.register(at(4), 9) && timers.register(at(6), 1)
        );
        assert!(timers.delete(at(6), &1) && !timers.delete(at(6), &1));
        let groups = timers.snapshot().encode_groups(Format::Binary);
        let mut restored = Timers::new(KeyGroupRange::all(MAX), MAX);
        restored.restore(Format::Binary, &groups).unwrap();
        for mut timers in [timers, restored] {
            assert_eq!(timers.pop_due(at(3)), None);
            assert_eq!(timers.pop_due(at(5)), Some((at(4), 9)));
            assert_eq!(timers.pop_due(at(5)), Some((at(5), 0)));
            assert_eq!(timers.pop_due(at(5)), Some((at(5), 1)));
            assert_eq!(timers.pop_due(EventTime::MAX), None);
        }
    }

    #[test]
    fn changes_on_top_of_earlier_timers_give_the_later_ones() {
        let mut timers = Timers::new(KeyGroupRange::all(MAX), MAX);
        (0..9).for_each(|key| assert!(timers.register(at(5), key)));
        timers.track_changes();
        let base = timers.snapshot().encode_groups(Format::Binary);
        assert_eq!(timers.pop_due(at(5)), Some((at(5), 0_u64)));
        assert!(timers.delete(at(5), &1) && timers.register(at(7), 0) && timers.register(at(8), 2));
        assert!(timers.delete(at(8), &2));
        let changes = timers.changes().encode_groups(Format::Binary);
        assert_eq!(
            timers.changes().encode_groups(Format::Binary),
            [],
            "each change is told of once"
        );
        let mut restored = Timers::<u64>::new(KeyGroupRange::all(MAX), MAX);
        restored.restore(Format::Binary, &base).unwrap();
        restored.apply(Format::Binary, &changes).unwrap();
        assert_eq!(
            restored.snapshot().encode_groups(Format::Binary),
            timers.snapshot().encode_groups(Format::Binary)
        );
    }

    #[test]
    fn rule_114_a_snapshot_of_timers_is_exact_under_later_changes() {
        let mut timers = Timers::new(KeyGroupRange::all(MAX), MAX);
        (0..50).for_each(|key| assert!(timers.register(at(1), key)));
        let before = timers.snapshot().encode_groups(Format::Binary);
        let share = timers.snapshot();
        while timers.pop_due(at(1)).is_some() {}
        assert!(timers.register(at(2), 7_u64));
        assert_eq!(share.encode_groups(Format::Binary), before);
    }

    #[test]
    fn timers_of_another_group_or_twice_are_refused() {
        let mut timers: Timers<u64> = Timers::new(KeyGroupRange::all(MAX), MAX);
        let owner = MAX.group_of(KeyHash::of(&1_u64));
        let group = KeyGroup::new((owner.get() + 1) % 128);
        let bytes = Bytes::from(codec::encode(&vec![(at(1), 1_u64)]));
        let error = timers.restore(Format::Binary, &[(group, bytes.clone())]);
        assert_eq!(error, Err(RestoreError::ForeignKey { group, owner }));
        let error = timers.restore(Format::Binary, &[(owner, bytes.clone()), (owner, bytes)]);
        assert_eq!(error, Err(RestoreError::Duplicate { group: owner }));
        assert!(timers.is_empty());
    }
}
