//! Savepoints of a job that runs, by its handle.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "a job that is slow and one that has run for a while"
)]

#[expect(dead_code, reason = "not all of it is needed here")]
mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::file::{LineSource, TransactionalFileSink};
use cofferdam::guarantee::Mechanism;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::runtime::{
    AfterSavepoint, AwaitedSavepoint, JobHandle, MemoryStore, Resume, RunError, RunOptions,
    RunReport, Savepoint, SavepointOrder, control, run,
};
use cofferdam::state::snapshot::SourceState;

use support::{count_words, often, write_count, write_text};

const LINES: u64 = 600;

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

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
        .flat_map("split", |line: String, out| {
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .aggregate("count", 0, move |count: &mut u64, _| {
            trip();
            *count += 1;
        })
        .transactional_sink("out", TransactionalFileSink::new(folder.join(out), write_count));
    builder.build(config).unwrap()
}

/// Runs the job at a pace at which it takes a third of a second, and talks to it meanwhile.
fn run_and_talk<T>(
    job: Job,
    talk: impl FnOnce(&JobHandle) -> T,
) -> (Result<RunReport, RunError>, T) {
    run_over_and_talk(MemoryStore::new(), job, talk)
}

fn run_over_and_talk<T>(
    store: MemoryStore,
    job: Job,
    talk: impl FnOnce(&JobHandle) -> T,
) -> (Result<RunReport, RunError>, T) {
    let (handle, orders) = control();
    let running = thread::spawn(move || {
        let (records_per_second, orders) = (Some(3 * LINES), Some(orders));
        let options = RunOptions::new(store);
        run(&job, RunOptions { records_per_second, orders, workers: 2, ..options })
    });
    let said = talk(&handle);
    (running.join().unwrap(), said)
}

fn order(folder: PathBuf, then: AfterSavepoint) -> SavepointOrder {
    SavepointOrder { folder, then, note: None }
}

fn answer(awaited: &AwaitedSavepoint) -> Result<(), RunError> {
    let answer = awaited.wait(Duration::from_secs(60));
    answer.map(|checkpoint| assert!(checkpoint.is_some(), "it was not answered"))
}

fn records_before(savepoint: &Path) -> u64 {
    let states = Savepoint::read(savepoint).unwrap().states;
    states.iter().filter_map(|state| state.source.as_ref()).map(SourceState::records).sum()
}

/// Goes on from a savepoint into `out`: what it reads and writes.
fn go_on(folder: &Path, savepoint: &Path, out: &str, mechanism: Mechanism) -> (u64, Vec<String>) {
    let job = word_count(folder, out, JobConfig { mechanism, ..often() }, || {});
    let options = RunOptions::new(MemoryStore::new());
    let resume = Resume::From(savepoint.to_owned());
    let report = run(&job, RunOptions { resume, workers: 2, ..options }).unwrap();
    (report.records_in, count_words(&folder.join(out)))
}

#[test]
fn rule_051_a_savepoint_is_taken_while_the_job_runs_and_changes_nothing_for_it() {
    let mechanisms =
        [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout, Mechanism::Tracked];
    for mechanism in mechanisms {
        let folder = tempfile::tempdir().unwrap();
        let expected = write_text(folder.path(), LINES);
        // No checkpoint would come in time by itself.
        let checkpoint_interval = Duration::from_secs(3_600);
        let config = JobConfig { mechanism, checkpoint_interval, ..often() };
        // So slow that records wait in the channels, which barriers overtake.
        let job =
            word_count(folder.path(), "a", config, || thread::sleep(Duration::from_micros(300)));
        let savepoint = folder.path().join("savepoint");
        let (report, answered) = run_and_talk(job, |handle| {
            thread::sleep(Duration::from_millis(100));
            answer(&handle.take_savepoint(order(savepoint.clone(), AfterSavepoint::GoOn)))
        });
        answered.unwrap();
        assert_eq!(
            (report.unwrap().records_in, count_words(&folder.path().join("a"))),
            (LINES, expected.clone())
        );
        let before = records_before(&savepoint);
        assert!(before < LINES, "it was taken at the end");
        let states = Savepoint::read(&savepoint).unwrap().states;
        assert!(states.iter().all(|state| state.transactions.is_empty()), "they are the job's");
        // Also where nothing in flight would be kept.
        let (read, rows) = go_on(folder.path(), &savepoint, "b", Mechanism::Aligned);
        assert_eq!(read, LINES - before, "{mechanism}");
        // A row a word that was not counted: those of all lines behind, and those in flight.
        assert!(rows.len() as u64 >= 4 * read);
        let is_exact = mechanism != Mechanism::Tracked;
        assert!(!is_exact || rows.iter().all(|row| expected.contains(row)), "{mechanism}");
        let last = |count: u64| format!("{{\"key\":\"common\",\"value\":{count}}}");
        assert!(rows.contains(&last(LINES)), "no word is lost: {mechanism}");
    }
}

#[test]
fn every_order_is_answered_and_one_that_can_not_be_followed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), LINES);
    let words = Arc::new(AtomicU64::new(0));
    let trip = move || assert!(words.fetch_add(1, Ordering::Relaxed) != 200, "injected");
    let job = word_count(folder.path(), "a", often(), trip);
    let places = ["x", "y", "z"].map(|name| folder.path().join(name));
    let (report, ()) = run_and_talk(job, |handle| {
        let all = places.clone().map(|to| handle.take_savepoint(order(to, AfterSavepoint::GoOn)));
        for awaited in all {
            answer(&awaited).unwrap();
        }
        let again = handle.take_savepoint(order(places[0].clone(), AfterSavepoint::GoOn));
        let error = answer(&again).unwrap_err().to_string();
        assert!(error.contains("something is there already"), "{error}");
    });
    assert_eq!(report.unwrap().restarts, 1);
    assert!(places.iter().all(|place| Savepoint::read(place).is_ok()));
}

#[test]
fn a_job_stops_or_drains_by_an_order_and_all_before_is_committed() {
    for then in [AfterSavepoint::Stop, AfterSavepoint::Drain] {
        let folder = tempfile::tempdir().unwrap();
        let expected = write_text(folder.path(), LINES);
        let savepoint = folder.path().join("savepoint");
        let job = word_count(folder.path(), "a", often(), || {});
        let (report, answered) = run_and_talk(job, |handle| {
            answer(&handle.take_savepoint(order(savepoint.clone(), then)))
        });
        answered.unwrap();
        let before = records_before(&savepoint);
        assert!(before < LINES);
        // What was read when the source was told to stop is read again.
        assert!(report.unwrap().records_in >= before);
        let (read, rows) = go_on(folder.path(), &savepoint, "b", Mechanism::Aligned);
        let mut both = [count_words(&folder.path().join("a")), rows].concat();
        both.sort();
        match then {
            AfterSavepoint::Stop => assert_eq!((read, both), (LINES - before, expected)),
            AfterSavepoint::GoOn | AfterSavepoint::Drain => {
                assert_eq!((read, both.len() as u64), (0, 4 * before))
            }
        }
    }
}

#[test]
fn an_order_to_a_run_that_fails_or_has_ended_is_answered_too() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), LINES);
    // No checkpoint completes, which the job does not survive.
    let store = MemoryStore::with_limit(100);
    let config = JobConfig { restart: RestartStrategy::None, ..often() };
    let job = word_count(folder.path(), "a", config, || {});
    let savepoint = folder.path().join("savepoint");
    let ended = run_over_and_talk(store, job, |handle| {
        let awaited = handle.take_savepoint(order(savepoint.clone(), AfterSavepoint::GoOn));
        (answer(&awaited), handle.clone())
    });
    let (Err(RunError::Failed(_)), (answered, handle)) = ended else { panic!("{ended:?}") };
    assert_eq!(answered.unwrap_err().to_string(), "the run has ended without it");
    let awaited = handle.take_savepoint(order(savepoint.clone(), AfterSavepoint::Stop));
    assert_eq!(answer(&awaited).unwrap_err().to_string(), "the run has ended without it");
    assert!(!savepoint.exists());
}
