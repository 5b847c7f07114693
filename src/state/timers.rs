//! Event-time timers: a set of (time, key) that belongs to the keyed state (rule 88). It does not
//! know watermarks beyond the one it is asked about, nor what a timer does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner, encode_group};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::piece::Piece;
use crate::state::snapshot::Share;
use crate::time::EventTime;

/// The event-time timers of one operator in one subtask.
#[derive(Clone)]
pub struct Timers<K> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    set: Piece<BTreeSet<(EventTime, K)>>,
}

impl<K: Key> Timers<K> {
    /// No timers yet, for the keys of the groups `range` out of `max` groups.
    ///
    /// # Panics
    /// If the range has groups that do not exist.
    pub fn new(range: KeyGroupRange, max: KeyGroupCount) -> Self {
        range.assert_within(max);
        Self { range, max, set: Piece::default() }
    }

    /// Asks for `key` to be woken at `time`; whether that had not been asked for yet. A time that
    /// has passed is due at once.
    pub fn register(&mut self, time: EventTime, key: K) -> bool {
        self.set.get_mut().insert((time, key))
    }

    /// Takes the request back; whether there was one.
    pub fn delete(&mut self, time: EventTime, key: &K) -> bool {
        self.set.get_mut().remove(&(time, key.clone()))
    }

    /// Takes the first timer in the order (time, key) off, if it is due at `watermark`.
    pub fn pop_due(&mut self, watermark: EventTime) -> Option<(EventTime, K)> {
        let (time, _) = self.set.get().first()?;
        if *time > watermark {
            return None;
        }
        self.set.get_mut().pop_first()
    }

    /// How many timers there are.
    pub fn len(&self) -> usize {
        self.set.get().len()
    }

    /// Whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The timers as they are now, whatever is registered or fires later. Copies nothing now; the
    /// first change while the snapshot is still needed copies the whole set.
    pub fn snapshot(&mut self) -> Arc<dyn Share> {
        let timers = if self.is_empty() { Arc::default() } else { self.set.share() };
        Arc::new(TimerShare { max: self.max, timers })
    }

    /// Takes over what a snapshot of the same range encoded, in place of what is there.
    ///
    /// # Errors
    /// If the bytes are not timers, or not this subtask's; nothing has changed then.
    pub fn restore(&mut self, groups: &[(KeyGroup, Vec<u8>)]) -> Result<(), RestoreError> {
        let mut set = BTreeSet::new();
        for (group, bytes) in groups {
            for timer in GroupEntries::<(EventTime, K)>::new(self.range, *group, bytes)? {
                let timer = timer?;
                check_owner(*group, self.max.group_of(KeyHash::of(&timer.1)))?;
                if !set.insert(timer) {
                    return Err(RestoreError::Duplicate { group: *group });
                }
            }
        }
        self.set = Piece::Owned(set);
        Ok(())
    }
}

impl<K: Key> fmt::Debug for Timers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timers({}, {} timers)", self.range, self.len())
    }
}

struct TimerShare<K> {
    max: KeyGroupCount,
    timers: Arc<BTreeSet<(EventTime, K)>>,
}

impl<K: Key> Share for TimerShare<K> {
    fn encode_groups(&self) -> Vec<(KeyGroup, Vec<u8>)> {
        let mut groups: BTreeMap<KeyGroup, Vec<&(EventTime, K)>> = BTreeMap::new();
        for timer in self.timers.iter() {
            groups.entry(self.max.group_of(KeyHash::of(&timer.1))).or_default().push(timer);
        }
        groups.into_iter().map(|(group, timers)| (group, encode_group(&timers))).collect()
    }
}
