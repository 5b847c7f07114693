//! Savepoints of jobs of which a part has come to its end (rules 98 to 101).
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "not all of it is needed here")]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cofferdam::connector::memory::{CollectTransactions, Range, VecSource};
use cofferdam::graph::Subtask;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::{Emit, Operator, OperatorTraits, StateParts};
use cofferdam::runtime::{MemoryStore, Resume, RunError, RunOptions, Savepoint, StopAt, run};
use cofferdam::state::RestoreError;
use cofferdam::state::operator::{OperatorList, Redistribution};
use cofferdam::state::snapshot::OperatorState;

use support::often;

const NUMBERS: u64 = 400;

/// The first split has one number. Its reader is at its end before the other one gives a number, if
/// it is to be.
#[derive(Clone)]
struct Uneven {
    numbers: VecSource<u64>,
    may_go_on: Arc<AtomicBool>,
}

impl Source for Uneven {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, _parallelism: usize) -> Result<Vec<Range>, SourceError> {
        Ok(vec![Range { next: 0, end: 1 }, Range { next: 1, end: NUMBERS }])
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        if split.end == NUMBERS && !self.may_go_on.load(Ordering::Relaxed) {
            return Ok(Fetch::Nothing);
        }
        let fetch = self.numbers.read(split, records_max)?;
        self.may_go_on.fetch_or(fetch == Fetch::End, Ordering::Relaxed);
        Ok(fetch)
    }
}

/// Each subtask keeps its own number in a list that all get back, and notes what it gets.
#[derive(Clone)]
struct Roster {
    numbers: OperatorList<u32>,
    restored: Arc<Mutex<Vec<BTreeSet<u32>>>>,
}

impl Operator for Roster {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        out.emit(number);
    }

    fn open(&mut self, subtask: &Subtask) {
        *self.numbers.get_mut() = vec![subtask.index.get()];
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.numbers.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.numbers.restore(state)?;
        self.restored.lock().unwrap().push(self.numbers.get().iter().copied().collect());
        Ok(())
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits { stateful: true, ..OperatorTraits::default() }
    }
}

type Restored = Arc<Mutex<Vec<BTreeSet<u32>>>>;

fn roster(parallelism: usize, out: CollectTransactions<u64>, is_first: bool) -> (Job, Restored) {
    let may_go_on = Arc::new(AtomicBool::new(!is_first));
    let numbers = VecSource::new((0..NUMBERS).collect());
    let source = Uneven { numbers, may_go_on };
    let restored = Restored::default();
    let numbers = OperatorList::new("numbers", Redistribution::Union);
    let builder = JobBuilder::new("roster", parallelism);
    builder
        .source("numbers", source)
        .operator("roster", Roster { numbers, restored: restored.clone() })
        .transactional_sink("out", out);
    (builder.build(often()).unwrap(), restored)
}

fn stopping(folder: &Path, records: u64) -> RunOptions {
    let savepoint = folder.join("savepoint");
    let stop_at = StopAt { records, savepoint, drains: false };
    RunOptions { stop_at: Some(stop_at), workers: 2, ..RunOptions::new(MemoryStore::new()) }
}

fn going_on(savepoint: &Path) -> RunOptions {
    let resume = Resume::From(savepoint.to_owned());
    RunOptions { resume, workers: 2, ..RunOptions::new(MemoryStore::new()) }
}

/// Whether all subtasks of another layout get back what both of the first one had.
fn all_come_back(savepoint: &Path, after: usize) -> bool {
    let (job, restored) = roster(after, CollectTransactions::default(), false);
    run(&job, going_on(savepoint)).unwrap();
    let restored = restored.lock().unwrap();
    restored.len() >= after && restored.iter().all(|numbers| *numbers == BTreeSet::from([0, 1]))
}

#[test]
fn rule_098_a_savepoint_is_taken_of_all_tasks_when_some_have_ended_and_the_rest_goes_on() {
    for records in [120, 200, 390] {
        let folder = tempfile::tempdir().unwrap();
        let out = CollectTransactions::default();
        let report =
            run(&roster(2, out.clone(), true).0, stopping(folder.path(), records)).unwrap();
        assert_eq!(report.records_in, records);
        let savepoint = Savepoint::read(&folder.path().join("savepoint")).unwrap();
        let finished: Vec<bool> = savepoint.states.iter().map(|state| state.finished).collect();
        assert_eq!(finished, [true, false], "each has a part in it");
        assert!(!savepoint.metadata.finished);
        let second = roster(2, out.clone(), false).0;
        let report = run(&second, going_on(&folder.path().join("savepoint"))).unwrap();
        assert_eq!(report.records_in, NUMBERS - records);
        let mut rows = out.committed();
        rows.sort_unstable();
        assert_eq!(rows, (0..NUMBERS).collect::<Vec<_>>());
    }
}

#[test]
fn rule_100_lists_of_a_vertex_that_has_ended_in_part_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("savepoint");
    let first = roster(2, CollectTransactions::default(), true).0;
    run(&first, stopping(folder.path(), 200)).unwrap();
    for after in [1, 2, 3] {
        assert!(all_come_back(&path, after), "to {after}");
    }
    // What a subtask that has ended had in its lists is part of that.
    let mut broken = Savepoint::read(&path).unwrap();
    let ended = broken.states.iter_mut().filter(|state| state.finished);
    ended.for_each(|state| state.operators.clear());
    let path = folder.path().join("broken");
    broken.write(&path, None).unwrap();
    assert!(!all_come_back(&path, 3), "the fault is seen");
}

/// Doubles numbers, of one source or of two.
fn doubling(sources: usize, out: CollectTransactions<u64>) -> Job {
    let builder = JobBuilder::new("doubling", 2);
    let first = builder.source("first", VecSource::new((0..NUMBERS).collect())).rebalance();
    let numbers = match sources {
        1 => first,
        _ => first.union(builder.source("second", VecSource::new(vec![7, 8, 9])).rebalance()),
    };
    numbers.map("double", |number: u64| 2 * number).transactional_sink("out", out);
    builder.build(often()).unwrap()
}

#[test]
fn rule_101_what_has_ended_is_not_put_behind_what_has_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("savepoint");
    let out = CollectTransactions::default();
    run(&doubling(1, out.clone()), stopping(folder.path(), 10 * NUMBERS)).unwrap();
    let again = run(&doubling(1, out.clone()), going_on(&path)).unwrap();
    assert_eq!(again.records_in, 0, "it has ended, and goes on as that");
    let Err(RunError::Restore(text)) = run(&doubling(2, out.clone()), going_on(&path)) else {
        panic!("it is to be refused")
    };
    for words in ["'double' has seen the end of its data", "'second' has not", "savepoint"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(out.committed().len(), NUMBERS as usize, "nothing was run");
}
