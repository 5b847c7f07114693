//! Stores, sources, operators and orders that are broken on purpose, each in a way in which stream
//! engines have been: what a whole run leaves is looked at by several judges, and the one that is
//! named has to speak. docs/MUTANTS.md lists them.
#![expect(clippy::wildcard_enum_match_arm, reason = "a fault changes one thing and no other")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod savepoints;
#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../support/mod.rs"]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::file::{LineSource, TransactionalFileSink};
use cofferdam::coordinator::CoordinatorNote;
use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::{Emit, Operator, OperatorTraits, StateParts};
use cofferdam::runtime::{
    AfterSavepoint, CheckpointStore, FileStore, PutError, Resume, RunError, RunEvent, RunOptions,
    Savepoint, SavepointOrder, StoreError, control, run,
};
use cofferdam::state::RestoreError;
use cofferdam::state::operator::{OperatorList, Redistribution};
use cofferdam::state::snapshot::OperatorState;
use cofferdam::storage::StoreKey;

use support::{lines_in, often, write_count, write_text};

const LINES: u64 = 300;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A part is said to be stored before it is.
    ConfirmedUnstored,
    /// A part is cut short.
    CutShort,
    /// After a start the complete checkpoints are not found.
    ListForgotten,
    /// Only the metadata of a checkpoint is discarded.
    PartsLeft,
    /// What a dead run was to discard is not discarded by the next one.
    NothingDiscarded,
    /// A discard removes a part of the checkpoint that is kept.
    KeptPartRemoved,
    /// A checkpoint that completes is discarded with the one that it takes the place of.
    NewestDiscarded,
    /// A checkpoint is discarded while it is read.
    DiscardedWhileRead,
    /// A job that is to stop is drained.
    StopDrains,
    /// An operator that collects records does not say its last words.
    EndNotFlushed,
    /// An operator that collects records says its last words twice.
    EndSaidTwice,
    /// Some parts can not be stored, which is no fault of the store: nothing may come of it.
    PutsFail,
    /// As that, and what was stored of such a checkpoint is not deleted.
    AbortedLeft,
    /// A part of one more checkpoint is stored when all else is cleaned up.
    LatePart,
    /// A checkpoint that a savepoint is a copy of is discarded when the savepoint is taken.
    SavepointEvicts,
    /// A job that is to be drained just stops.
    DrainStops,
    /// A source's last read before the job stops gives half of what it has moved over.
    HalfRead,
    /// The parts of the checkpoint that a savepoint is to be a copy of can not be read, which is no
    /// fault of the store: nothing may come of it.
    CopyFails,
    /// As that, and the job is taken for stopped with its savepoint.
    FailureIsDone,
    /// A run goes on from the savepoint although there are newer checkpoints.
    SavepointPreferred,
    /// A run takes a savepoint for its own that is the user's.
    SavepointClaimed,
}

struct BrokenStore {
    inner: FileStore,
    fault: Fault,
    /// The newest complete checkpoint.
    newest: AtomicU64,
    /// A checkpoint of which parts were read.
    read: AtomicU64,
    puts: AtomicU64,
}

impl BrokenStore {
    fn open(folder: &Path, fault: Fault) -> Self {
        let inner = FileStore::open(folder.join("store")).unwrap();
        let [newest, read, puts] = [0; 3].map(AtomicU64::new);
        Self { inner, fault, newest, read, puts }
    }

    fn newest(&self) -> CheckpointId {
        CheckpointId::new(self.newest.load(Ordering::Relaxed))
    }

    /// Discards what a savepoint was taken of.
    fn evict(&self) -> Result<(), StoreError> {
        match self.read.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            read => self.inner.discard(CheckpointId::new(read)),
        }
    }

    /// Whether this put fails of a fault that lets some of them do so.
    fn fails(&self, key: StoreKey) -> bool {
        let may_fail = matches!(self.fault, Fault::PutsFail | Fault::AbortedLeft);
        let is_part = matches!(key, StoreKey::State { .. });
        may_fail && is_part && self.puts.fetch_add(1, Ordering::Relaxed) % 7 == 6
    }
}

impl CheckpointStore for BrokenStore {
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        if let Some(checkpoint) = key.complete_checkpoint() {
            self.newest.store(checkpoint.get(), Ordering::Relaxed);
        }
        if self.fails(key) {
            return Err(PutError::Failed("no room".to_owned()));
        }
        self.evict().map_err(|error| PutError::Failed(error.to_string()))?;
        let is_part = matches!(key, StoreKey::State { task, .. } if task.get() == 3);
        match self.fault {
            Fault::ConfirmedUnstored if is_part => Ok(()),
            Fault::CutShort if is_part => self.inner.put(key, &bytes[..bytes.len() / 2]),
            _ => self.inner.put(key, bytes),
        }
    }

    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        self.inner.append(key, bytes)
    }

    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError> {
        if self.fault == Fault::DiscardedWhileRead && matches!(key, StoreKey::State { .. }) {
            self.inner.discard(self.newest())?;
        }
        if let StoreKey::State { checkpoint, .. } = key {
            match self.fault {
                Fault::SavepointEvicts => self.read.store(checkpoint.get(), Ordering::Relaxed),
                Fault::CopyFails | Fault::FailureIsDone => return Ok(None),
                _ => {}
            }
        }
        self.inner.get(key)
    }

    fn list(&self) -> Result<Vec<StoreKey>, StoreError> {
        match self.fault {
            Fault::ListForgotten => Ok(Vec::new()),
            _ => self.inner.list(),
        }
    }

    fn remove(&self, key: StoreKey) -> Result<(), StoreError> {
        self.inner.remove(key)
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        match self.fault {
            Fault::PartsLeft => self.inner.remove(StoreKey::Metadata(checkpoint)),
            Fault::NothingDiscarded => Ok(()),
            Fault::AbortedLeft if checkpoint > self.newest() => Ok(()),
            Fault::KeptPartRemoved => {
                let folder = self.inner.place_of(StoreKey::Metadata(self.newest()));
                let folder = Path::new(&folder).parent().unwrap();
                let parts = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
                parts.filter(|part| part.extension().is_some()).take(1).for_each(|part| {
                    fs::remove_file(part).unwrap();
                });
                self.inner.discard(checkpoint)
            }
            Fault::NewestDiscarded => {
                self.inner.discard(checkpoint).and_then(|()| self.inner.discard(self.newest()))
            }
            _ => self.inner.discard(checkpoint),
        }
    }

    fn sweep(&self) -> Result<(), StoreError> {
        self.evict()?;
        match self.fault {
            Fault::PartsLeft | Fault::AbortedLeft => Ok(()),
            Fault::LatePart => {
                self.inner.sweep()?;
                let checkpoint = self.newest().next();
                let (attempt, task) = (AttemptId::new(1), TaskId::new(0));
                let part = StoreKey::State { checkpoint, attempt, task };
                self.inner.put(part, b"late").map_err(|error| StoreError(error.to_string()))
            }
            _ => self.inner.sweep(),
        }
    }

    fn place_of(&self, key: StoreKey) -> String {
        self.inner.place_of(key)
    }
}

/// Hands words on two at a time.
#[derive(Clone)]
struct Pairs {
    kept: OperatorList<String>,
    fault: Fault,
}

impl Operator for Pairs {
    type In = String;
    type Out = String;

    fn process(&mut self, word: String, out: &mut impl Emit<String>) {
        self.kept.get_mut().push(word);
        if self.kept.get().len() == 2 {
            self.kept.get_mut().drain(..).for_each(|word| out.emit(word));
        }
    }

    fn on_end_of_data(&mut self, out: &mut impl Emit<String>) {
        let times = match self.fault {
            Fault::EndNotFlushed => 0,
            Fault::EndSaidTwice => 2,
            _ => 1,
        };
        let kept: Vec<String> = self.kept.get_mut().drain(..).collect();
        for word in std::iter::repeat_n(kept, times).flatten() {
            out.emit(word);
        }
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.kept.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.kept.restore(state)
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits { stateful: true, ..OperatorTraits::default() }
    }
}

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

/// Reads lines; with the fault it gives half of those of a read that may not be a whole one.
#[derive(Clone)]
struct Lines {
    lines: LineSource<ParseLine>,
    fault: Fault,
}

impl Source for Lines {
    type Record = String;
    type Split = <LineSource<ParseLine> as Source>::Split;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Self::Split>, SourceError> {
        self.lines.discover(parallelism)
    }

    fn read(
        &mut self,
        split: &mut Self::Split,
        records_max: usize,
    ) -> Result<Fetch<String>, SourceError> {
        let fetch = self.lines.read(split, records_max)?;
        Ok(match fetch {
            Fetch::Records(mut lines) if self.fault == Fault::HalfRead && records_max < 16 => {
                lines.truncate(lines.len().div_ceil(2));
                Fetch::Records(lines)
            }
            fetch => fetch,
        })
    }
}

fn word_count(folder: &Path, fault: Fault) -> Job {
    word_count_of(folder, fault, 2, often().checkpoint_interval)
}

fn word_count_of(folder: &Path, fault: Fault, parallelism: usize, interval: Duration) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let builder = JobBuilder::new("words", parallelism);
    let kept = OperatorList::new("kept", Redistribution::Split);
    builder
        .source("lines", Lines { lines: LineSource::new([folder.join("text")], parse), fault })
        .flat_map("split", |line: String, out| {
            line.split_whitespace().skip(1).for_each(|word| out.emit(word.to_owned()));
        })
        .operator("pairs", Pairs { kept, fault })
        .key_by(|word: &String| word.clone())
        .aggregate("count", 0, |count: &mut u64, _| *count += 1)
        .transactional_sink("out", TransactionalFileSink::new(folder.join("out"), write_count));
    let restart = RestartStrategy::None;
    let checkpoint_interval = interval;
    let config = JobConfig { restart, checkpoint_interval, ..often() };
    builder.build(JobConfig { checkpoint_failures_tolerable: 1_000, ..config }).unwrap()
}

/// A run that is stopped at its third checkpoint, and one that goes on from there: how the second
/// one ended.
fn run_twice(folder: &Path, fault: Fault) -> Result<(), RunError> {
    let options = RunOptions::new(BrokenStore::open(folder, fault));
    let stop = options.stop.clone();
    let mut seen = 0;
    let observer = move |event: RunEvent<'_>| {
        if let RunEvent::Note(CoordinatorNote::CheckpointCompleted { .. }) = event {
            seen += 1;
            stop.store(seen >= 3, Ordering::Relaxed);
        }
    };
    let slow = Some(1_500);
    let options = RunOptions { observer: Box::new(observer), records_per_second: slow, ..options };
    let first = run(&word_count(folder, fault), RunOptions { workers: 2, ..options });
    assert_eq!(first, Err(RunError::Stopped));
    let options = RunOptions::new(BrokenStore::open(folder, fault));
    let job = word_count(folder, fault);
    run(&job, RunOptions { records_per_second: slow, workers: 2, ..options }).map(drop)
}

/// A run that is stopped with a savepoint, and one that goes on from there.
fn stop_and_go_on(folder: &Path, fault: Fault) -> Result<(), RunError> {
    let then = match fault {
        Fault::StopDrains => AfterSavepoint::Drain,
        _ => AfterSavepoint::Stop,
    };
    let savepoint = folder.join("savepoint");
    let (handle, orders) = control();
    let awaited =
        handle.take_savepoint(SavepointOrder { folder: savepoint.clone(), then, note: None });
    let (orders, slow) = (Some(orders), Some(1_500));
    let options = RunOptions::new(BrokenStore::open(folder, fault));
    let options = RunOptions { orders, records_per_second: slow, workers: 2, ..options };
    run(&word_count(folder, fault), options)?;
    awaited.wait(Duration::ZERO)?;
    let options = RunOptions::new(BrokenStore::open(&folder.join("other"), fault));
    let resume = Resume::From(savepoint);
    run(&word_count(folder, fault), RunOptions { resume, workers: 2, ..options }).map(drop)
}

/// What the judges say of what the runs have left.
fn judge(fault: Fault) -> BTreeSet<&'static str> {
    judge_after(run_twice, fault)
}

fn judge_after(
    runs: impl FnOnce(&Path, Fault) -> Result<(), RunError>,
    fault: Fault,
) -> BTreeSet<&'static str> {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), LINES);
    let mut wanted = Vec::new();
    let mut counts = BTreeMap::new();
    let text = fs::read_to_string(folder.path().join("text")).unwrap();
    for word in text.lines().flat_map(|line| line.split_whitespace().skip(1)) {
        let count: &mut u64 = counts.entry(word).or_default();
        *count += 1;
        wanted.push(format!("{{\"key\":\"{word}\",\"value\":{count}}}"));
    }
    let mut said = BTreeSet::new();
    if runs(folder.path(), fault).is_err() {
        said.insert("restore");
    }
    let there = count_each(lines_in(&folder.path().join("out")));
    let wanted = count_each(wanted);
    if there.iter().any(|(row, count)| wanted.get(row) < Some(count)) {
        said.insert("duplicated");
    }
    if wanted.iter().any(|(row, count)| there.get(row) < Some(count)) {
        said.insert("lost");
    }
    if leaks(&folder.path().join("store"), 1) {
        said.insert("leak");
    }
    said
}

fn count_each(rows: Vec<String>) -> BTreeMap<String, u64> {
    rows.into_iter().fold(BTreeMap::new(), |mut counts, row| {
        *counts.entry(row).or_default() += 1;
        counts
    })
}

/// Whether there is more, or less, than so many complete checkpoints with all their parts.
fn leaks(store: &Path, kept: usize) -> bool {
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut checkpoints = names(store);
    checkpoints.retain(|name| ![".lock", "attempt"].contains(&name.as_str()));
    let is_whole = |name: &String| {
        let folder = store.join(name);
        let Ok(Some(metadata)) = Savepoint::metadata_at(&folder) else { return false };
        let parts = metadata.tasks.iter().map(|handle| {
            let key = handle.key.to_string();
            format!("{}.state", key.split_once('/').unwrap().1)
        });
        parts.chain(["metadata".to_owned()]).collect::<BTreeSet<_>>() == names(&folder)
    };
    checkpoints.len() != kept || !checkpoints.iter().all(is_whole)
}

#[test]
fn the_judges_are_silent_where_nothing_is_broken() {
    assert_eq!(judge(Fault::None), BTreeSet::new());
    assert_eq!(judge(Fault::PutsFail), BTreeSet::new());
    assert_eq!(judge_after(stop_and_go_on, Fault::None), BTreeSet::new());
}

#[test]
fn sp_01_a_job_that_is_drained_where_it_is_to_stop_loses_what_is_left() {
    assert!(judge_after(stop_and_go_on, Fault::StopDrains).contains("lost"));
}

#[test]
fn gc_07_a_checkpoint_that_is_discarded_while_it_is_copied_makes_no_savepoint() {
    assert!(judge_after(stop_and_go_on, Fault::DiscardedWhileRead).contains("restore"));
}

#[test]
fn rs_17_a_part_that_is_confirmed_and_not_stored_is_missed_by_the_restore() {
    assert!(judge(Fault::ConfirmedUnstored).contains("restore"));
    assert!(judge(Fault::CutShort).contains("restore"));
}

#[test]
fn rs_18_and_gc_06_a_job_that_begins_anew_over_its_output_duplicates() {
    let said = judge(Fault::ListForgotten);
    assert!(said.contains("duplicated") || said.contains("restore"), "{said:?}");
}

#[test]
fn gc_01_and_gc_02_parts_that_nobody_needs_are_found() {
    assert!(judge(Fault::PartsLeft).contains("leak"));
}

#[test]
fn gc_03_what_is_stored_of_a_checkpoint_that_fails_half_way_is_found() {
    assert!(judge(Fault::AbortedLeft).contains("leak"));
}

#[test]
fn gc_08_checkpoints_that_are_never_deleted_are_found() {
    assert!(judge(Fault::NothingDiscarded).contains("leak"));
}

#[test]
fn gc_05_what_a_kept_checkpoint_needs_and_is_gone_is_found() {
    for fault in [Fault::KeptPartRemoved, Fault::NewestDiscarded] {
        let said = judge(fault);
        assert!(said.contains("restore") || said.contains("duplicated"), "{fault:?}: {said:?}");
    }
}

#[test]
fn fn_04_what_an_operator_keeps_at_the_end_of_its_data_is_lost() {
    assert_eq!(judge(Fault::EndNotFlushed), BTreeSet::from(["lost"]));
}
