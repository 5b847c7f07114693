//! Keyed state and timers against ordered maps and sets; snapshots and restores of them.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::state::codec::Format;
use cofferdam::state::hash::KeyHash;
use cofferdam::state::heap::KeyedState;
use cofferdam::state::key_group::{KeyGroup, KeyGroupCount, KeyGroupRange};
use cofferdam::state::table::Table;
use cofferdam::state::timers::Timers;
use cofferdam::time::EventTime;
use proptest::collection::vec;
use proptest::prelude::*;

const MAX: KeyGroupCount = KeyGroupCount::new(8).expect("within 1 to 32768");

/// A value of eight kilobytes.
type Wide = [[u64; 32]; 32];

/// A key, and the state it gets.
type Write = (u16, Option<u32>);

proptest! {
    #[test]
    fn a_table_is_a_map(writes in writes()) {
        let mut table = Table::default();
        let mut map = BTreeMap::new();
        for (key, state) in writes {
            let hash = KeyHash::of(&key);
            let before = match (table.find(hash, &key), state) {
                (Some(position), _) => {
                    table.update_at(position, |_, mut slot| {
                        let before = slot.take();
                        slot.put(state);
                        before
                    })
                }
                (None, Some(state)) => {
                    table.insert(hash, key, state);
                    None
                }
                (None, None) => None,
            };
            prop_assert_eq!(before, map.get(&key).copied());
            write(&mut map, key, state);
            prop_assert_eq!(table.len(), map.len());
        }
        for key in 0..KEYS {
            prop_assert_eq!(table.get(KeyHash::of(&key), &key), map.get(&key));
        }
        let mut entries: Vec<_> = table.iter().map(|(key, state)| (*key, *state)).collect();
        entries.sort_unstable();
        prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn rule_114_no_later_write_reaches_a_snapshot_or_a_clone(
        rounds in vec(writes(), 1..5),
    ) {
        let mut state = empty();
        let mut taken = Vec::new();
        for writes in rounds {
            apply(&mut state, &writes);
            let share = state.snapshot();
            taken.push((share.encode_groups(Format::Binary), share, state.clone()));
        }
        apply(&mut state, &(0..KEYS).map(|key| (key, None)).collect::<Vec<_>>());
        prop_assert!(state.is_empty());
        for (bytes, share, mut clone) in taken {
            prop_assert_eq!(&share.encode_groups(Format::Binary), &bytes);
            prop_assert_eq!(clone.snapshot().encode_groups(Format::Binary), bytes);
        }
    }

    #[test]
    fn a_restored_state_is_the_state(writes in writes()) {
        let mut state = empty();
        apply(&mut state, &writes);
        let groups = state.snapshot().encode_groups(Format::Binary);
        let mut restored = empty();
        restored.restore(Format::Binary, &groups).expect("just encoded");
        for key in 0..KEYS {
            prop_assert_eq!(restored.get(&key), state.get(&key));
        }
        prop_assert_eq!(restored.snapshot().encode_groups(Format::Binary), groups);
    }

    /// With entries so large that pieces split: what is shared, cloned and restored meanwhile shows
    /// the state of its moment.
    #[test]
    fn rule_114_pieces_split_under_snapshots_and_lose_nothing(
        rounds in vec(vec((0..2000_u16, prop::option::weighted(0.8, any::<u8>())), 0..150), 1..5),
        restored_at in 0_usize..5,
    ) {
        let empty = || KeyedState::<u16, Wide>::new(KeyGroupRange::all(MAX), MAX);
        let (mut state, mut map) = (empty(), BTreeMap::new());
        let mut taken = Vec::new();
        for (round, writes) in rounds.into_iter().enumerate() {
            for (key, value) in writes {
                let value = value.map(|number| [[u64::from(number); 32]; 32]);
                state.update(&key, |_, mut slot| slot.put(value));
                match value {
                    Some(value) => map.insert(key, value),
                    None => map.remove(&key),
                };
            }
            taken.push((state.snapshot(), map.clone()));
            if round == restored_at {
                let groups = state.snapshot().encode_groups(Format::Binary);
                state = empty();
                state.restore(Format::Binary, &groups).expect("just encoded");
            }
        }
        for (share, map) in taken {
            let groups = share.encode_groups(Format::Binary);
            let mut restored = empty();
            restored.restore(Format::Binary, &groups).expect("just encoded");
            let entries = restored.iter().map(|(key, value)| (*key, *value));
            let entries: BTreeMap<_, _> = entries.collect();
            prop_assert!(entries == map);
            let mut again = empty();
            map.iter().for_each(|(key, value)| again.update(key, |_, mut slot| slot.set(*value)));
            prop_assert!(again.snapshot().encode_groups(Format::Binary) == groups);
        }
    }

    #[test]
    fn restoring_damaged_bytes_never_panics(
        writes in writes(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut: prop::sample::Index,
    ) {
        let mut state = empty();
        apply(&mut state, &writes);
        let whole = state.snapshot().encode_groups(Format::Binary);
        let mut groups = whole.clone();
        for (_, bytes) in &mut groups {
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
        }
        // What is still a state after the damage must be one that can be written and read again.
        if state.restore(Format::Binary, &groups).is_ok() {
            let groups = state.snapshot().encode_groups(Format::Binary);
            prop_assert_eq!(empty().restore(Format::Binary, &groups), Ok(()));
        }
        // Damage and a cut together can make a shorter state: a cut alone can not.
        let mut cut_short = whole;
        for (_, bytes) in &mut cut_short {
            let length = cut.index(bytes.len());
            bytes.truncate(length);
        }
        prop_assert_eq!(empty().restore(Format::Binary, &cut_short).is_ok(), cut_short.is_empty());
    }

    #[test]
    fn restoring_any_bytes_never_panics(group in 0_u16..10, bytes in vec(any::<u8>(), 0..60)) {
        let groups = [(KeyGroup::new(group), bytes.into())];
        let _ = empty().restore(Format::Binary, &groups);
        let mut strings: KeyedState<String, Vec<String>> =
            KeyedState::new(KeyGroupRange::all(MAX), MAX);
        let _ = strings.restore(Format::Binary, &groups);
        let _ = Timers::<u16>::new(KeyGroupRange::all(MAX), MAX).restore(Format::Binary, &groups);
    }

    #[test]
    fn rule_088_timers_fire_in_order_and_once(
        calls in vec((any::<bool>(), -5_i64..5, 0_u16..5), 0..60),
        watermark in -6_i64..6,
    ) {
        let mut timers = Timers::new(KeyGroupRange::all(MAX), MAX);
        let mut set = BTreeSet::new();
        for (register, time, key) in calls {
            let time = EventTime::from_millis(time);
            if register {
                prop_assert_eq!(timers.register(time, key), set.insert((time, key)));
            } else {
                prop_assert_eq!(timers.delete(time, &key), set.remove(&(time, key)));
            }
        }
        let mut restored = Timers::new(KeyGroupRange::all(MAX), MAX);
        let groups = timers.snapshot().encode_groups(Format::Binary);
        restored.restore(Format::Binary, &groups).expect("just encoded");
        let watermark = EventTime::from_millis(watermark);
        let due: Vec<_> = set.into_iter().filter(|(time, _)| *time <= watermark).collect();
        for mut timers in [timers, restored] {
            let fired: Vec<_> = std::iter::from_fn(|| timers.pop_due(watermark)).collect();
            prop_assert_eq!(&fired, &due);
        }
    }
}

const KEYS: u16 = 200;

fn writes() -> impl Strategy<Value = Vec<Write>> {
    vec((0..KEYS, prop::option::of(any::<u32>())), 0..600)
}

fn empty() -> KeyedState<u16, u32> {
    KeyedState::new(KeyGroupRange::all(MAX), MAX)
}

fn apply(state: &mut KeyedState<u16, u32>, writes: &[Write]) {
    for (key, value) in writes {
        state.update(key, |_, mut slot| slot.put(*value));
    }
}

fn write(map: &mut BTreeMap<u16, u32>, key: u16, state: Option<u32>) {
    match state {
        Some(state) => map.insert(key, state),
        None => map.remove(&key),
    };
}
