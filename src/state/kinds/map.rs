//! A map, whose entries expire one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::sweep::{Kind, Sweeper, Work};
use super::ttl::{Entry, Lifetime, Times, Ttl};
use crate::element::Record;

/// A map in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MapCell<K: Ord, V> {
    entries: BTreeMap<K, Entry<V>>,
}

impl<K: Ord, V> Default for MapCell<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

/// Where a map stands in a state `S`, and how long its entries live.
pub struct MapDescriptor<S, K: Ord, V> {
    name: &'static str,
    cell: fn(&mut S) -> &mut MapCell<K, V>,
    ttl: Option<Ttl>,
}

impl<S, K: Ord, V> MapDescriptor<S, K, V> {
    /// The map that `cell` finds.
    pub const fn new(name: &'static str, cell: fn(&mut S) -> &mut MapCell<K, V>) -> Self {
        Self { name, cell, ttl: None }
    }

    /// Each entry expires by itself.
    pub const fn ttl(self, ttl: Ttl) -> Self {
        Self { ttl: Some(ttl), ..self }
    }

    /// The map in `state` as it is `now`.
    #[inline]
    pub fn view<'a>(&self, state: &'a mut S, now: Times) -> MapView<'a, K, V> {
        MapView { entries: &mut (self.cell)(state).entries, life: Lifetime { ttl: self.ttl, now } }
    }
}

/// A map while one key is handled.
#[derive(Debug)]
pub struct MapView<'a, K: Ord, V> {
    entries: &'a mut BTreeMap<K, Entry<V>>,
    life: Lifetime,
}

impl<K: Ord, V> MapView<'_, K, V> {
    /// The value of `key`, if it has one.
    #[inline]
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.life.read(self.entries.get_mut(key)?)
    }

    /// Gives `key` a value; the one that it had.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.entries.insert(key, self.life.begin(value));
        before.filter(|entry| self.life.keeps(entry)).map(|entry| entry.value)
    }

    /// Removes `key`; the value that it had.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let before = self.entries.remove(key);
        before.filter(|entry| self.life.keeps(entry)).map(|entry| entry.value)
    }

    /// The entries in the order of the keys.
    pub fn iter(&mut self) -> impl Iterator<Item = (&K, &V)> {
        let life = self.life;
        self.entries.iter_mut().filter_map(move |(key, entry)| Some((key, life.read(entry)?)))
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<S: 'static, K: Record + Ord, V: Record> Kind<S> for MapDescriptor<S, K, V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn time_to_live(&self) -> Option<Ttl> {
        self.ttl
    }

    fn sweeper(&self) -> Box<dyn Sweeper<S>> {
        Box::new(MapSweeper { of: self.clone(), last: None })
    }
}

struct MapSweeper<S, K: Ord, V> {
    of: MapDescriptor<S, K, V>,
    /// The key that was looked at last, if there may be more. Another state may have come to the
    /// place of the one that had it: then what is before the key waits for the next round.
    last: Option<K>,
}

impl<S: 'static, K: Record + Ord, V: Record> Sweeper<S> for MapSweeper<S, K, V> {
    fn sweep(&mut self, state: &mut S, now: Times, work: &mut Work) -> bool {
        let life = Lifetime { ttl: self.of.ttl, now };
        let entries = &mut (self.of.cell)(state).entries;
        let start = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut over, mut last, mut is_whole) = (Vec::new(), None, true);
        for (key, entry) in entries.range_mut((start, Bound::Unbounded)) {
            is_whole = work.take();
            if !is_whole {
                break;
            }
            last = Some(key);
            if life.keeps(entry) {
                work.has_changed |= life.begin_to_live(entry);
            } else {
                over.push(key.clone());
            }
        }
        self.last = if is_whole { None } else { last.cloned().or(self.last.take()) };
        work.has_changed |= !over.is_empty();
        over.iter().for_each(|key| drop(entries.remove(key)));
        is_whole
    }

    fn restart(&mut self) {
        self.last = None;
    }

    fn clone_box(&self) -> Box<dyn Sweeper<S>> {
        Box::new(Self { of: self.of.clone(), last: self.last.clone() })
    }
}

impl<S, K: Ord, V> Clone for MapDescriptor<S, K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name, cell: self.cell, ttl: self.ttl }
    }
}

impl<S, K: Ord, V> fmt::Debug for MapDescriptor<S, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapDescriptor({})", self.name)
    }
}
