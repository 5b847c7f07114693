//! What the tests of whole jobs share.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::id::CheckpointId;
use cofferdam::runtime::{CheckpointStore, MemoryStore, PutError, StoreError};
use cofferdam::storage::StoreKey;

/// Checkpoints and batches as small and frequent as may be.
pub(crate) fn often() -> JobConfig {
    JobConfig {
        checkpoint_interval: Duration::from_millis(2),
        restart: RestartStrategy::FixedDelay { attempts: 3, delay: Duration::from_millis(1) },
        batch_records: 16,
        ..JobConfig::default()
    }
}

/// Writes `folder/text` and returns every (word, count so far) that counting it must give.
pub(crate) fn write_text(folder: &Path, lines: u64) -> Vec<String> {
    let line = |number: u64| format!("w{} w{} common w{}", number % 7, number % 50, number);
    let text: Vec<String> = (0..lines).map(line).collect();
    fs::write(folder.join("text"), text.join("\n")).unwrap();
    let mut counts = BTreeMap::new();
    let mut expected = Vec::new();
    for word in text.iter().flat_map(|line| line.split_whitespace()) {
        let count = counts.entry(word).or_insert(0);
        *count += 1;
        expected.push(format!("{{\"key\":\"{word}\",\"value\":{count}}}"));
    }
    expected.sort();
    expected
}

pub(crate) fn write_count((word, count): &(String, u64), line: &mut Vec<u8>) {
    line.extend_from_slice(format!("{{\"key\":\"{word}\",\"value\":{count}}}\n").as_bytes());
}

/// All committed lines, sorted; nothing that is not committed may be left.
pub(crate) fn count_words(folder: &Path) -> Vec<String> {
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_ledger = name.ends_with(".shown");
        assert!(is_ledger || name.starts_with("part-"), "{name} is left over");
    }
    lines_in(folder)
}

/// The lines of all files of a folder whose names do not begin with a dot, sorted.
pub(crate) fn lines_in(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with('.') {
            continue;
        }
        let text = fs::read_to_string(path).unwrap();
        lines.extend(text.lines().map(str::to_owned));
    }
    lines.sort();
    lines
}

/// A store whose every so-manieth put fails.
pub(crate) struct FailingStore {
    inner: MemoryStore,
    period: u64,
    puts: AtomicU64,
}

impl FailingStore {
    pub(crate) fn every(period: u64) -> Self {
        Self { inner: MemoryStore::new(), period, puts: AtomicU64::new(0) }
    }
}

impl CheckpointStore for FailingStore {
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        match self.puts.fetch_add(1, Ordering::Relaxed) % self.period {
            0 => Err(PutError::Failed("no room".to_owned())),
            _ => self.inner.put(key, bytes),
        }
    }

    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        match self.puts.fetch_add(1, Ordering::Relaxed) % self.period {
            0 => {
                // It is cut short.
                let _ = self.inner.append(key, &bytes[..bytes.len() / 2]);
                Err(PutError::Failed("no room".to_owned()))
            }
            _ => self.inner.append(key, bytes),
        }
    }

    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }

    fn list(&self) -> Result<Vec<StoreKey>, StoreError> {
        self.inner.list()
    }

    fn remove(&self, key: StoreKey) -> Result<(), StoreError> {
        self.inner.remove(key)
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.inner.discard(checkpoint)
    }

    fn place_of(&self, key: StoreKey) -> String {
        self.inner.place_of(key)
    }
}
