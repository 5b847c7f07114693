//! One job over every store of checkpoints, with snapshots that are written on the way or by the
//! tasks: what comes of it is the same, and savepoints go from one to the other.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "not all of it is needed here")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::file::{LineSource, TransactionalFileSink};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::CheckpointId;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::runtime::{
    CheckpointStore, FileStore, MemoryStore, PutError, Resume, RunEvent, RunOptions, Snapshots,
    StopAt, StoreError, run,
};
use cofferdam::state::codec::Compression;
use cofferdam::storage::StoreKey;

use support::{count_words, often, write_count, write_text};

const LINES: u64 = 600;

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

/// Counts words of a text into the folder `out`; `trip` is called for each word.
fn word_count(
    folder: &Path,
    out: &str,
    config: JobConfig,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let builder = JobBuilder::new("words", 2);
    builder
        .source("lines", LineSource::new([folder.join("text")], parse))
        .flat_map("split", move |line: String, out| {
            trip();
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .aggregate("count", 0, |count: &mut u64, _| *count += 1)
        .transactional_sink("out", TransactionalFileSink::new(folder.join(out), write_count));
    builder.build(config).unwrap()
}

/// A store whose checkpoints share what they have in common: a part is kept as pieces by their
/// content, a piece is kept once, and is removed with the last part that has it.
#[derive(Clone, Default)]
struct SharingStore(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    values: BTreeMap<StoreKey, Vec<Vec<u8>>>,
    /// How many parts have a piece.
    pieces: BTreeMap<Vec<u8>, usize>,
    pieces_taken: usize,
    pieces_new: usize,
}

impl Shared {
    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let pieces: Vec<Vec<u8>> = bytes.chunks(64).map(<[u8]>::to_vec).collect();
        for piece in &pieces {
            let parts = self.pieces.entry(piece.clone()).or_default();
            self.pieces_taken += 1;
            self.pieces_new += usize::from(*parts == 0);
            *parts += 1;
        }
        pieces
    }

    fn remove(&mut self, key: StoreKey) {
        for piece in self.values.remove(&key).into_iter().flatten() {
            let parts = self.pieces.get_mut(&piece).expect("no piece goes before its parts");
            *parts -= 1;
            if *parts == 0 {
                self.pieces.remove(&piece);
            }
        }
    }

    /// Every piece is of a part that is there, and the other way round.
    fn check(&self) {
        let held: BTreeSet<&Vec<u8>> = self.values.values().flatten().collect();
        assert_eq!(held, self.pieces.keys().collect::<BTreeSet<_>>());
    }
}

impl CheckpointStore for SharingStore {
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let mut shared = self.0.lock().unwrap();
        let pieces = shared.take(bytes);
        shared.remove(key);
        shared.values.insert(key, pieces);
        shared.check();
        Ok(())
    }

    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let mut shared = self.0.lock().unwrap();
        let pieces = shared.take(bytes);
        shared.values.entry(key).or_default().extend(pieces);
        Ok(())
    }

    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.lock().unwrap().values.get(&key).map(|pieces| pieces.concat()))
    }

    fn list(&self) -> Result<Vec<StoreKey>, StoreError> {
        let keys: Vec<StoreKey> = self.0.lock().unwrap().values.keys().copied().collect();
        Ok(keys.into_iter().filter(|key| key.complete_checkpoint().is_some()).collect())
    }

    fn remove(&self, key: StoreKey) -> Result<(), StoreError> {
        self.0.lock().unwrap().remove(key);
        Ok(())
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        let mut shared = self.0.lock().unwrap();
        let is_of = |key: &StoreKey| match key {
            StoreKey::State { checkpoint: of, .. } | StoreKey::Metadata(of) => *of == checkpoint,
            StoreKey::Reservation { .. } | StoreKey::Progress { .. } | StoreKey::Attempt => false,
        };
        let keys: Vec<StoreKey> = shared.values.keys().copied().filter(is_of).collect();
        keys.into_iter().for_each(|key| shared.remove(key));
        shared.check();
        Ok(())
    }

    fn place_of(&self, key: StoreKey) -> String {
        key.to_string()
    }
}

const STORES: [&str; 3] = ["memory", "files", "shared"];

fn over(store: &str, folder: &Path) -> RunOptions {
    let options = match store {
        "memory" => RunOptions::new(MemoryStore::new()),
        "files" => RunOptions::new(FileStore::open(folder.join("store")).unwrap()),
        _ => RunOptions::new(SharingStore::default()),
    };
    RunOptions { workers: 2, ..options }
}

#[test]
fn a_job_that_fails_now_and_then_gives_the_same_over_every_store_however_snapshots_are_written() {
    for (number, store) in STORES.into_iter().enumerate() {
        for (snapshots, compression) in
            [(Snapshots::Async, Compression::None), (Snapshots::Sync, Compression::Lz4)]
        {
            let folder = tempfile::tempdir().unwrap();
            let expected = write_text(folder.path(), LINES);
            let lines = Arc::new(AtomicU64::new(0));
            let trip = move || {
                let line = lines.fetch_add(1, Ordering::Relaxed) + 1;
                assert!(line != 150 && line != 400, "injected at line {line}");
            };
            let mechanism =
                [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout][number];
            let config = JobConfig { mechanism, ..often() };
            let job = word_count(folder.path(), "out", config, trip);
            let options = over(store, folder.path());
            let report = run(&job, RunOptions { snapshots, compression, ..options }).unwrap();
            // Both subtasks may trip in one attempt.
            assert!((1..=2).contains(&report.restarts), "{}", report.restarts);
            assert_eq!(count_words(&folder.path().join("out")), expected, "{store}, {snapshots:?}");
            assert!(!report.checkpoints.sync_max.is_zero());
        }
    }
}

#[test]
fn rule_117_a_savepoint_of_one_store_restores_into_any_other() {
    for (number, before) in STORES.into_iter().enumerate() {
        let after = STORES[(number + 1) % STORES.len()];
        let folder = tempfile::tempdir().unwrap();
        let expected = write_text(folder.path(), LINES);
        let savepoint = folder.path().join("savepoint");
        let job = |out| word_count(folder.path(), out, often(), || {});
        let stop_at = StopAt { records: 200, savepoint: savepoint.clone(), drains: false };
        let options = RunOptions { stop_at: Some(stop_at), ..over(before, folder.path()) };
        run(&job("a"), options).unwrap();
        let other = folder.path().join("other");
        let options = RunOptions { resume: Resume::From(savepoint), ..over(after, &other) };
        assert_eq!(run(&job("b"), options).unwrap().records_in, LINES - 200);
        let mut rows = ["a", "b"].map(|out| count_words(&folder.path().join(out))).concat();
        rows.sort();
        assert_eq!(rows, expected, "{before} to {after}");
    }
}

#[test]
fn rules_107_to_109_checkpoints_may_share_what_they_have_in_common_below_the_stores_contract() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), LINES);
    let store = SharingStore::default();
    let slow = Some(3_000);
    let options =
        RunOptions { records_per_second: slow, workers: 2, ..RunOptions::new(store.clone()) };
    let config = JobConfig { checkpoints_retained: 2, ..often() };
    run(&word_count(folder.path(), "out", config, || {}), options).unwrap();
    let shared = store.0.lock().unwrap();
    assert!(shared.pieces_new < shared.pieces_taken, "{} new", shared.pieces_new);
    let complete = shared.values.keys().filter(|key| key.complete_checkpoint().is_some());
    assert_eq!(complete.count(), 2);
    shared.check();
}

#[test]
fn a_checkpoint_that_is_too_large_for_memory_fails_and_says_whose_part_it_was_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), LINES);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let observer = move |event: RunEvent<'_>| {
        if let RunEvent::NotStored(text) = event {
            tell.lock().unwrap().push(text.to_owned());
        }
    };
    let options = RunOptions {
        observer: Box::new(observer),
        workers: 2,
        ..RunOptions::new(MemoryStore::with_limit(2_000))
    };
    let config = JobConfig { restart: RestartStrategy::None, ..often() };
    let error = run(&word_count(folder.path(), "out", config, || {}), options);
    let error = error.unwrap_err().to_string();
    for words in ["a task could not write its state", "'count -> out' (t", "the limit of 2000"] {
        assert!(error.contains(words), "{error}");
    }
    assert!(error.ends_with("raise the limit or keep checkpoints in files"), "{error}");
    assert!(told.lock().unwrap().iter().any(|text| error.ends_with(text)));
}
