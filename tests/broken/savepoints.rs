//! Faults around savepoints and the end of a job: each over several drawn moments and layouts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cofferdam::coordinator::CoordinatorNote;
use cofferdam::graph::Subtask;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::{Emit, Operator, OperatorTraits, StateParts};
use cofferdam::runtime::{
    AfterSavepoint, Claim, Kept, Resume, RunError, RunEvent, RunOptions, Savepoint, SavepointOrder,
    StopAt, control, run,
};
use cofferdam::state::RestoreError;
use cofferdam::state::operator::{OperatorList, Redistribution};
use cofferdam::state::snapshot::OperatorState;

use super::support::{lines_in, often, write_text};
use super::*;

const DRAWS: u64 = 8;

/// When a run ends, and how the next one is laid out.
#[derive(Clone, Copy, Debug)]
struct Draw {
    before: usize,
    after: usize,
    /// The records that are read by then.
    records: u64,
    /// The checkpoints that are complete by then, behind that of the savepoint if there is one.
    checkpoints: u64,
    interval: Duration,
}

impl Draw {
    fn number(number: u64) -> Self {
        // Where no checkpoint is to follow none may be due soon.
        let checkpoints = number % 3;
        let interval = Duration::from_millis(if checkpoints == 0 { 200 } else { 2 });
        Self {
            before: 1 + number as usize / 3 % 3,
            after: 1 + number as usize / 2 % 3,
            records: 20 + number * 97 % (LINES - 40),
            checkpoints,
            interval,
        }
    }

    fn first(self, folder: &Path, fault: Fault) -> Job {
        word_count_of(folder, fault, self.before, self.interval)
    }

    fn second(self, folder: &Path, fault: Fault) -> Job {
        word_count_of(folder, fault, self.after, self.interval)
    }
}

type Runs = fn(&Path, Fault, Draw) -> Result<(), RunError>;

/// What the judges say of any draw.
fn said(runs: Runs, fault: Fault) -> BTreeSet<&'static str> {
    let all = (0..DRAWS).map(Draw::number);
    all.flat_map(|draw| judge_after(|folder, fault| runs(folder, fault, draw), fault)).collect()
}

fn options(folder: &Path, store: &str, fault: Fault) -> RunOptions {
    RunOptions { workers: 2, ..RunOptions::new(BrokenStore::open(&folder.join(store), fault)) }
}

/// A run that stops with a savepoint, and one that goes on from there. If no savepoint is there the
/// second one goes on from the first one's checkpoints.
fn stop_and_go_on_drawn(folder: &Path, fault: Fault, draw: Draw) -> Result<(), RunError> {
    let savepoint = folder.join("savepoint");
    let stop_at = StopAt { records: draw.records, savepoint: savepoint.clone(), drains: false };
    let first = RunOptions { stop_at: Some(stop_at), ..options(folder, ".", fault) };
    let stopped = run(&draw.first(folder, fault), first);
    let is_done = stopped.is_ok() || fault == Fault::FailureIsDone;
    let resume = if is_done { Resume::From(savepoint.clone()) } else { Resume::Latest };
    if is_done {
        fs::remove_dir_all(folder.join("store")).unwrap();
    }
    let fault = if stopped.is_ok() { fault } else { Fault::None };
    let claim = (fault == Fault::SavepointClaimed).then_some(Claim::Run);
    let second = RunOptions { resume, claim, ..options(folder, ".", fault) };
    run(&draw.second(folder, fault), second)?;
    if is_done {
        Savepoint::read(&savepoint)?;
    }
    Ok(())
}

/// A run that takes a savepoint on the way and dies later, and one that goes on.
fn take_and_go_on(folder: &Path, fault: Fault, draw: Draw) -> Result<(), RunError> {
    let savepoint = folder.join("savepoint");
    let (handle, orders) = control();
    let then = AfterSavepoint::GoOn;
    let order = SavepointOrder { folder: savepoint.clone(), then, note: None };
    let _awaited = handle.take_savepoint(order);
    let first = options(folder, ".", fault);
    let stop = first.stop.clone();
    let (taken, out) = (savepoint.clone(), folder.join("out"));
    let (mut seen, mut covered) = (0, None);
    let observer = move |event: RunEvent<'_>| {
        let is_complete =
            matches!(event, RunEvent::Note(CoordinatorNote::CheckpointCompleted { .. }));
        if Savepoint::is_at(&taken) {
            // Checkpoints that cover no record more than the savepoint are as good as it is. Its
            // own rows are there once the next one is complete.
            seen += u64::from(is_complete);
            let committed = lines_in(&out).len();
            let has_more = seen > 0 && committed > *covered.get_or_insert(committed);
            let is_enough = seen >= draw.checkpoints && (has_more || draw.checkpoints == 0);
            stop.store(is_enough, Ordering::Relaxed);
        }
    };
    let (orders, slow) = (Some(orders), Some(600));
    let observer = Box::new(observer);
    let first = RunOptions { orders, records_per_second: slow, observer, ..first };
    assert_eq!(run(&draw.first(folder, fault), first), Err(RunError::Stopped));
    let resume = match fault {
        Fault::SavepointPreferred => Resume::From(savepoint),
        _ => Resume::Latest,
    };
    let second = RunOptions { resume, ..options(folder, ".", fault) };
    run(&draw.second(folder, fault), second).map(drop)
}

#[test]
fn the_judges_are_silent_where_savepoints_are_taken_and_nothing_is_broken() {
    for fault in [Fault::None, Fault::CopyFails] {
        assert_eq!(said(stop_and_go_on_drawn, fault), BTreeSet::new(), "{fault:?}");
    }
    assert_eq!(said(take_and_go_on, Fault::None), BTreeSet::new());
}

#[test]
fn sp_04_a_run_that_goes_on_from_a_savepoint_and_not_from_a_newer_checkpoint_duplicates() {
    let said = said(take_and_go_on, Fault::SavepointPreferred);
    assert!(said.contains("duplicated"), "{said:?}");
}

#[test]
fn sb_08_a_checkpoint_that_goes_because_a_savepoint_is_newer_is_missed() {
    let said = said(take_and_go_on, Fault::SavepointEvicts);
    assert!(said.contains("duplicated") || said.contains("restore"), "{said:?}");
}

#[test]
fn sp_06_a_read_that_the_stop_has_cut_in_half_loses_records() {
    let said = said(stop_and_go_on_drawn, Fault::HalfRead);
    assert!(said.contains("lost"), "{said:?}");
}

#[test]
fn sp_08_a_job_that_failed_on_its_way_to_a_savepoint_is_not_suspended() {
    let said = said(stop_and_go_on_drawn, Fault::FailureIsDone);
    assert!(said.contains("restore"), "{said:?}");
}

#[test]
fn sb_02_a_savepoint_that_is_the_users_and_is_gone_is_missed() {
    let said = said(stop_and_go_on_drawn, Fault::SavepointClaimed);
    assert!(said.contains("restore"), "{said:?}");
}

/// What comes of jobs that are drained: each line that was read gives three rows.
fn said_of_drained(fault: Fault) -> BTreeSet<&'static str> {
    let said = (0..DRAWS).map(Draw::number).map(|draw| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_text(folder, LINES);
        let savepoint = folder.join("savepoint");
        let drains = fault != Fault::DrainStops;
        let stop_at = StopAt { records: draw.records, savepoint, drains };
        let options = RunOptions { stop_at: Some(stop_at), ..options(folder, ".", fault) };
        let report = run(&draw.first(folder, fault), options).unwrap();
        let rows = lines_in(&folder.join("out")).len() as u64;
        match rows.cmp(&(3 * report.records_in)) {
            std::cmp::Ordering::Less => "lost",
            std::cmp::Ordering::Equal => "",
            std::cmp::Ordering::Greater => "duplicated",
        }
    });
    said.filter(|word| !word.is_empty()).collect()
}

#[test]
fn sp_02_and_fn_02_operators_say_their_last_words_once_where_a_job_is_drained() {
    assert_eq!(said_of_drained(Fault::None), BTreeSet::new());
    assert_eq!(said_of_drained(Fault::DrainStops), BTreeSet::from(["lost"]));
    assert_eq!(said_of_drained(Fault::EndNotFlushed), BTreeSet::from(["lost"]));
    assert_eq!(said_of_drained(Fault::EndSaidTwice), BTreeSet::from(["duplicated"]));
}

/// Whether runs to their end that are to leave nothing do leave something.
fn leaves(fault: Fault) -> bool {
    (0..DRAWS).map(Draw::number).any(|draw| {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_text(folder, draw.records);
        let options = RunOptions { kept: Kept::Never, ..options(folder, ".", fault) };
        run(&draw.first(folder, fault), options).unwrap();
        leaks(&folder.join("store"), 0)
    })
}

#[test]
fn gc_09_a_part_that_comes_when_all_else_is_cleaned_up_is_found() {
    assert!(!leaves(Fault::None));
    assert!(leaves(Fault::LatePart));
}

/// Hands records on; each subtask keeps its own number in a list that all get back.
#[derive(Clone)]
struct Roster {
    numbers: OperatorList<usize>,
    own: usize,
    keeps_all: bool,
}

impl Operator for Roster {
    type In = String;
    type Out = String;

    fn process(&mut self, line: String, out: &mut impl Emit<String>) {
        out.emit(line);
    }

    fn open(&mut self, subtask: &Subtask) {
        self.own = subtask.index.index();
        *self.numbers.get_mut() = vec![self.own];
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.numbers.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.numbers.restore(state)?;
        if !self.keeps_all {
            *self.numbers.get_mut() = vec![self.own];
        }
        Ok(())
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits { stateful: true, ..OperatorTraits::default() }
    }
}

fn roster(folder: &Path, keeps_all: bool, parallelism: usize) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let numbers = OperatorList::new("numbers", Redistribution::Union);
    let builder = JobBuilder::new("roster", parallelism);
    builder
        .source("lines", LineSource::new([folder.join("text")], parse))
        .operator("roster", Roster { numbers, own: 0, keeps_all })
        .map("once", |line: String| (line, 1))
        .transactional_sink("out", TransactionalFileSink::new(folder.join("out"), write_count));
    builder.build(often()).unwrap()
}

/// Whether a list that all subtasks get back has more elements in any of the savepoints that runs
/// go on from than there are subtasks.
fn grows(keeps_all: bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_text(folder, LINES);
    let mut resume = Resume::Latest;
    (0..DRAWS).map(Draw::number).enumerate().any(|(round, draw)| {
        let savepoint = folder.join(format!("savepoint-{round}"));
        let stop_at = StopAt { records: 9, savepoint: savepoint.clone(), drains: false };
        let of_round = options(folder, &round.to_string(), Fault::None);
        let resume = std::mem::replace(&mut resume, Resume::From(savepoint.clone()));
        let options = RunOptions { stop_at: Some(stop_at), resume, ..of_round };
        run(&roster(folder, keeps_all, draw.before), options).unwrap();
        let states = Savepoint::read(&savepoint).unwrap().states;
        let lists = states.iter().flat_map(|state| &state.operators).flat_map(|of| &of.lists);
        lists.map(|list| list.elements.len()).sum::<usize>() > draw.before
    })
}

#[test]
fn rs_11_a_list_that_each_subtask_writes_back_in_full_is_seen_to_grow() {
    assert!(!grows(false));
    assert!(grows(true));
}
