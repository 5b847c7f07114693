//! A list that only grows at its end, or is cut there, and whose copies share what they have in
//! common: what has happened stays the same for every copy of a world.

use std::rc::Rc;

/// Items in order; full chunks are shared between copies.
#[derive(Clone, Debug)]
pub struct Log<T> {
    chunks: Vec<Rc<Vec<T>>>,
    tail: Vec<T>,
}

impl<T: Clone> Log<T> {
    /// No items.
    pub const fn new() -> Self {
        Self { chunks: Vec::new(), tail: Vec::new() }
    }

    /// How many items.
    pub fn len(&self) -> usize {
        self.chunks.len() * CHUNK + self.tail.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) {
        self.tail.push(item);
        if self.tail.len() == CHUNK {
            // What has filled one chunk is likely to fill another.
            let full = std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK));
            self.chunks.push(Rc::new(full));
        }
    }

    /// So many items from one on.
    pub fn range(&self, first: usize, len: usize) -> impl Iterator<Item = &T> {
        let chunks = self.chunks.iter().map(|chunk| chunk.as_slice()).chain([self.tail.as_slice()]);
        chunks.skip(first / CHUNK).flatten().skip(first % CHUNK).take(len)
    }

    /// Keeps the first `len` items.
    pub fn truncate(&mut self, len: usize) {
        while self.chunks.len() * CHUNK > len {
            let chunk = self.chunks.pop().expect("a positive number was compared");
            self.tail = chunk.as_ref().clone();
        }
        self.tail.truncate(len - self.chunks.len() * CHUNK);
    }

    /// All items, copied.
    pub fn to_vec(&self) -> Vec<T> {
        let mut items = Vec::with_capacity(self.len());
        self.chunks.iter().for_each(|chunk| items.extend_from_slice(chunk));
        items.extend_from_slice(&self.tail);
        items
    }

    /// The items in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).chain(&self.tail)
    }
}

impl<T: Clone> Default for Log<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Extend<T> for Log<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

/// Small enough that the tail is copied in no time, large enough that there are few chunks.
const CHUNK: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shares_the_past_and_goes_its_own_way() {
        let mut log = Log::new();
        log.extend(0..200);
        let mut copy = log.clone();
        log.push(200);
        copy.truncate(70);
        copy.push(-1);
        assert!(log.iter().copied().eq(0..=200));
        assert!(log.range(60, 100).copied().eq(60..160) && log.range(199, 9).count() == 2);
        assert_eq!(log.to_vec(), (0..=200).collect::<Vec<_>>());
        assert!(copy.iter().copied().eq((0..70).chain([-1])));
        copy.truncate(0);
        assert!(copy.is_empty() && log.len() == 201);
    }
}
