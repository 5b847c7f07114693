//! Whole jobs on the threaded runtime: real threads, real files. Nothing here depends on how fast
//! anything is.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::file::{LineSource, PlainFileSink, TransactionalFileSink};
use cofferdam::connector::memory::{Collect, CollectTransactions, Numbers};
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::coordinator::CoordinatorNote;
use cofferdam::guarantee::{Mechanism, StateHome};
use cofferdam::id::CheckpointId;
use cofferdam::job::{Job, JobBuilder, Stream};
use cofferdam::operator::chain::Pass;
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::split_source::Pieces;
use cofferdam::runtime::{FileStore, Resume, RunError, RunEvent, RunOptions, RunReport, run};
use cofferdam::storage::ProgressLog;

use support::{FailingStore, count_words, lines_in, often, write_count, write_text};

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

/// Counts words of a text into files, exactly once. `trip` is called for each word.
fn word_count(
    folder: &Path,
    parallelism: usize,
    config: JobConfig,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    word_count_of(
        |builder, lines| builder.source("lines", lines),
        folder,
        parallelism,
        config,
        trip,
    )
}

/// As [`word_count`], of lines in splits that are assigned on the way.
fn word_count_in_splits(
    folder: &Path,
    parallelism: usize,
    config: JobConfig,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    let begin =
        |builder: &JobBuilder, lines| builder.split_source("lines", Pieces::new(lines, 40, 7));
    word_count_of(begin, folder, parallelism, config, trip)
}

fn word_count_of(
    begin: impl FnOnce(&JobBuilder, LineSource<ParseLine>) -> Stream<Pass<String>>,
    folder: &Path,
    parallelism: usize,
    config: JobConfig,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let builder = JobBuilder::new("words", parallelism);
    begin(&builder, LineSource::new([folder.join("text")], parse))
        .flat_map("split", move |line: String, out| {
            for word in line.split_whitespace() {
                trip();
                out.emit(word.to_owned());
            }
        })
        .key_by(|word| word.clone())
        .aggregate("count", 0, |count: &mut u64, _| *count += 1)
        .transactional_sink("out", TransactionalFileSink::new(folder.join("out"), write_count));
    builder.build(config).unwrap()
}

fn options(folder: &Path) -> RunOptions {
    RunOptions { workers: 2, ..RunOptions::new(FileStore::open(folder.join("store")).unwrap()) }
}

fn run_in(folder: &Path, job: &Job) -> Result<RunReport, RunError> {
    run(job, options(folder))
}

/// Runs a job that fails once, and returns why. A failure that nothing planned is told.
fn run_failing_once(job: &Job, options: RunOptions) -> (RunReport, String) {
    let (tell, told) = mpsc::channel();
    let observer = move |event: RunEvent<'_>| {
        if let RunEvent::Note(CoordinatorNote::AttemptFailed { cause, .. }) = event {
            tell.send(cause.to_string()).unwrap();
        }
    };
    let report = run(job, RunOptions { observer: Box::new(observer), ..options }).unwrap();
    let causes: Vec<String> = told.iter().collect();
    assert_eq!((report.restarts, causes.len()), (1, 1), "{causes:?}");
    (report, causes.concat())
}

/// Stops the run when that many checkpoints are complete.
fn stop_after_checkpoints(options: RunOptions, checkpoints: u64) -> RunOptions {
    let stop = options.stop.clone();
    let mut seen = 0;
    let observer = move |event: RunEvent<'_>| {
        if let RunEvent::Note(CoordinatorNote::CheckpointCompleted { .. }) = event {
            seen += 1;
            if seen == checkpoints {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    RunOptions { observer: Box::new(observer), ..options }
}

#[test]
fn words_are_counted_exactly_once_at_any_parallelism() {
    for parallelism in [1, 2, 4] {
        let folder = tempfile::tempdir().unwrap();
        let expected = write_text(folder.path(), 2_000);
        let job = word_count(folder.path(), parallelism, often(), || {});
        let report = run_in(folder.path(), &job).unwrap();
        assert_eq!(report.records_in, 2_000);
        assert_eq!(count_words(&folder.path().join("out")), expected);
        assert!(report.checkpoints.count > 0 && report.checkpoints.bytes > 0);
    }
}

#[test]
fn an_operator_that_panics_once_is_recovered_inside_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 2_000);
    let words = Arc::new(AtomicU64::new(0));
    let trip = {
        let words = words.clone();
        move || assert!(words.fetch_add(1, Ordering::Relaxed) != 3_000, "tripped")
    };
    let job = word_count(folder.path(), 2, often(), trip);
    let (_, cause) = run_failing_once(&job, options(folder.path()));
    assert!(cause.contains("tripped") && cause.contains("runtime.rs"), "{cause}");
    assert_eq!(count_words(&folder.path().join("out")), expected);
}

#[test]
fn rule_079_queues_are_counted_exactly_once_over_a_failure_and_left_empty() {
    let folder = tempfile::tempdir().unwrap();
    let numbers: Vec<u64> = (0..5_000).collect();
    let queues = MemoryQueue::new(&numbers, 2);
    let counts = CollectTransactions::default();
    let seen = Arc::new(AtomicU64::new(0));
    let builder = JobBuilder::new("queues", 2);
    builder
        .queue("numbers", queues.clone())
        .map("trip", move |number| {
            assert!(seen.fetch_add(1, Ordering::Relaxed) != 3_000, "tripped");
            number
        })
        .key_by(|number| number % 7)
        .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
        .transactional_sink("out", counts.clone());
    run_failing_once(&builder.build(often()).unwrap(), options(folder.path()));
    let mut found = counts.committed();
    found.sort_unstable();
    let expected = (0..7).flat_map(|key| {
        let numbers = numbers.iter().filter(|number| **number % 7 == key).count() as u64;
        (1..=numbers).map(move |count| (key, count))
    });
    assert_eq!(found, expected.collect::<Vec<(u64, u64)>>());
    assert_eq!(queues.unacknowledged(), 0);
}

#[test]
fn rule_081_splits_are_read_once_over_failures_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 20_000);
    let words = Arc::new(AtomicU64::new(0));
    let trip = move || {
        let count = words.fetch_add(1, Ordering::Relaxed);
        assert!(![3_000, 30_000].contains(&count), "tripped");
    };
    run_over_stops(folder.path(), || word_count_in_splits(folder.path(), 3, often(), trip.clone()));
    assert_eq!(count_words(&folder.path().join("out")), expected);
}

#[test]
fn an_operator_that_always_panics_fails_the_job_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 10);
    let job = word_count(folder.path(), 2, often(), || panic!("never works"));
    let RunError::Failed(text) = run_in(folder.path(), &job).unwrap_err() else { panic!("kind") };
    assert!(text.contains("never works") && text.contains("3 restarts"), "{text}");
}

#[test]
fn a_run_that_was_stopped_is_resumed_with_exact_output() {
    check_resumed(often());
}

#[test]
fn rule_030_records_in_flight_outlive_a_stop() {
    for mechanism in [Mechanism::Unaligned, Mechanism::AlignedTimeout] {
        let alignment_timeout = Duration::ZERO;
        check_resumed(JobConfig { mechanism, alignment_timeout, channel_batches: 1, ..often() });
    }
}

/// Runs a job to its end, which is stopped again and again.
fn run_over_stops(folder: &Path, job: impl Fn() -> Job) {
    let mut stops = 0;
    loop {
        match run(&job(), stop_after_checkpoints(options(folder), 2)) {
            Err(RunError::Stopped) => stops += 1,
            finished => {
                finished.unwrap();
                break;
            }
        }
    }
    assert!(stops > 0, "the run was too short to be stopped");
}

fn check_resumed(config: JobConfig) {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 20_000);
    run_over_stops(folder.path(), || word_count(folder.path(), 2, config.clone(), || {}));
    assert_eq!(count_words(&folder.path().join("out")), expected);
    assert!(
        !folder
            .path()
            .join("store")
            .read_dir()
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with(".tmp-") })
    );
}

#[test]
fn a_finished_run_that_is_resumed_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 500);
    let job = word_count(folder.path(), 2, often(), || {});
    run_in(folder.path(), &job).unwrap();
    let before = lines_in(&folder.path().join("out"));
    let report = run_in(folder.path(), &job).unwrap();
    assert_eq!((report.records_in, report.records_out, report.checkpoints.count), (0, 0, 0));
    assert_eq!(lines_in(&folder.path().join("out")), before);
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 500);
    let job = word_count(folder.path(), 2, often(), || {});
    run_in(folder.path(), &job).unwrap();
    let checkpoint = fs::read_dir(folder.path().join("store")).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.join("metadata").is_file().then_some(path)
    });
    let checkpoint = checkpoint.unwrap();
    let state = fs::read_dir(&checkpoint).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        path.to_string_lossy().contains("/t2-").then_some(path)
    });
    for file in [state.unwrap(), checkpoint.join("metadata")] {
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for damaged in [&whole[..whole.len() / 2], &flipped, &[]] {
            fs::write(&file, damaged).unwrap();
            let RunError::Restore(text) = run_in(folder.path(), &job).unwrap_err() else {
                panic!("kind")
            };
            assert!(text.contains(&*file.to_string_lossy()), "{text}");
        }
        fs::write(&file, whole).unwrap();
    }
    run_in(folder.path(), &job).unwrap();
}

#[test]
fn another_jobs_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 100);
    run_in(folder.path(), &word_count(folder.path(), 2, often(), || {})).unwrap();
    let builder = JobBuilder::new("other", 1);
    builder.source("numbers", Numbers::up_to(1)).sink("out", Collect::default());
    let other = builder.build(often()).unwrap();
    let error = run_in(folder.path(), &other).unwrap_err().to_string();
    assert!(error.contains("belongs to the job 'words', not to 'other'"), "{error}");
    let fresh = RunOptions { resume: Resume::Never, ..options(folder.path()) };
    assert_eq!(run(&other, fresh).unwrap().records_in, 1);
}

#[test]
fn a_run_goes_on_from_a_checkpoint_of_another_store() {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 20_000);
    let job = word_count(folder.path(), 2, often(), || {});
    // On a busy machine a run may reach its end before it has taken so many checkpoints.
    let stopped = |result| assert!(matches!(result, Ok(_) | Err(RunError::Stopped)), "{result:?}");
    stopped(run(&job, stop_after_checkpoints(options(folder.path()), 3)));
    let moved = folder.path().join("moved");
    fs::rename(folder.path().join("store"), &moved).unwrap();
    let names = fs::read_dir(&moved).unwrap().map(|entry| entry.unwrap().path());
    let checkpoint = names.filter(|path| path.join("metadata").is_file()).max().unwrap();
    let from = RunOptions { resume: Resume::From(checkpoint.clone()), ..options(folder.path()) };
    stopped(run(&job, stop_after_checkpoints(from, 1)));
    run_in(folder.path(), &job).unwrap();
    assert_eq!(count_words(&folder.path().join("out")), expected);
    let nothing = RunOptions { resume: Resume::From(moved), ..options(folder.path()) };
    assert!(matches!(run(&job, nothing), Err(RunError::Restore(_))));
}

#[test]
fn wrong_input_ends_the_job_without_a_restart_and_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 100);
    let mut text = fs::read(folder.path().join("text")).unwrap();
    text.extend(b"\n\xff\xfe\n");
    fs::write(folder.path().join("text"), text).unwrap();
    let job = word_count(folder.path(), 2, often(), || {});
    let RunError::Input(text) = run_in(folder.path(), &job).unwrap_err() else { panic!("kind") };
    assert!(text.ends_with("text, line 101: not UTF-8"), "{text}");
    fs::remove_file(folder.path().join("text")).unwrap();
    let fresh = RunOptions { resume: Resume::Never, ..options(folder.path()) };
    assert!(matches!(run(&job, fresh), Err(RunError::Input(_))));
}

#[test]
fn a_store_that_fails_now_and_then_costs_checkpoints_but_no_record() {
    let out = CollectTransactions::default();
    let builder = JobBuilder::new("numbers", 2);
    builder.source("numbers", Numbers::up_to(50_000)).transactional_sink("out", out.clone());
    let config = JobConfig { checkpoint_failures_tolerable: 1_000, ..often() };
    let job = builder.build(config).unwrap();
    let store = FailingStore::every(5);
    run(&job, RunOptions { workers: 2, ..RunOptions::new(store) }).unwrap();
    let mut numbers = out.committed();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50_000).collect::<Vec<u64>>());
}

/// Numbers whose reading fails once.
#[derive(Clone)]
struct Flaky {
    numbers: Numbers,
    is_broken: Arc<AtomicBool>,
}

impl Source for Flaky {
    type Record = u64;
    type Split = <Numbers as Source>::Split;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Self::Split>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(
        &mut self,
        split: &mut Self::Split,
        records_max: usize,
    ) -> Result<Fetch<u64>, SourceError> {
        if split.next > 300 && self.is_broken.swap(false, Ordering::Relaxed) {
            return Err(SourceError::Io("the line went dead".to_owned()));
        }
        self.numbers.read(split, records_max)
    }
}

#[test]
fn a_source_that_can_not_be_read_for_once_is_read_again() {
    let out = CollectTransactions::default();
    let source = Flaky { numbers: Numbers::up_to(1_000), is_broken: Arc::new(true.into()) };
    let builder = JobBuilder::new("flaky", 1);
    builder.source("numbers", source).transactional_sink("out", out.clone());
    run_failing_once(&builder.build(often()).unwrap(), RunOptions::default());
    assert_eq!(out.committed(), (0..1_000).collect::<Vec<u64>>());
}

fn without_checkpoints(
    mechanism: Mechanism,
    folder: &Path,
    parallelism: usize,
    trip: Option<u64>,
) -> Job {
    let seen = Arc::new(AtomicU64::new(0));
    let builder = JobBuilder::new("without-checkpoints", parallelism);
    builder
        .source("numbers", Numbers::up_to(10_000))
        .map("trip", move |number| {
            let seen = seen.fetch_add(1, Ordering::Relaxed);
            assert!(Some(seen) != trip, "tripped");
            number
        })
        .sink(
            "out",
            PlainFileSink::new(folder.join("out"), |number, line| {
                line.extend_from_slice(format!("{number}\n").as_bytes());
            }),
        );
    let config = JobConfig {
        mechanism,
        batch_records: 100,
        reservation_records: 100,
        unacknowledged_max: 400,
        ..often()
    };
    builder.build(config).unwrap()
}

#[test]
fn two_sinks_do_not_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let build = |second: &str| {
        let write = |number: &u64, line: &mut Vec<u8>| {
            line.extend_from_slice(format!("{number}\n").as_bytes());
        };
        let builder = JobBuilder::new("two", 1);
        for (uid, name) in [("first", "out"), ("second", second)] {
            let source = builder.source(&format!("to-{uid}"), Numbers::up_to(1));
            source.sink(uid, PlainFileSink::new(folder.path().join(name), write));
        }
        builder.build(often())
    };
    let error = build("out").err().unwrap().to_string();
    assert!(error.contains("'first' and 'second'") && error.contains("/out:"), "{error}");
    assert!(build("out/second").is_ok());
}

#[test]
fn without_checkpoints_a_restart_reads_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    let job = without_checkpoints(Mechanism::None, folder.path(), 2, Some(4_000));
    let (report, _) = run_failing_once(&job, options(folder.path()));
    assert_eq!(report.checkpoints.count, 0);
    let numbers = lines_in(&folder.path().join("out"));
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    assert_eq!(numbers.len(), distinct.len(), "a record was handed out twice");
    assert!(numbers.len() < 10_000, "the records in flight at the failure are lost");
    let again = run_in(folder.path(), &job).unwrap();
    assert_eq!(again.records_in, 0, "the end is recorded");
    assert_eq!(lines_in(&folder.path().join("out")), numbers);
    let wider = without_checkpoints(Mechanism::None, folder.path(), 4, None);
    let error = run_in(folder.path(), &wider).unwrap_err().to_string();
    assert!(error.contains("another parallelism"), "{error}");
}

fn assert_all_are_there_and_nothing_is_left_to_do(folder: &Path, job: &Job) {
    let numbers = lines_in(&folder.join("out"));
    let distinct: std::collections::BTreeSet<_> = numbers.iter().collect();
    assert_eq!(distinct.len(), 10_000, "a record was lost");
    let again = run_in(folder, job).unwrap();
    assert_eq!(again.records_in, 0, "the end is recorded");
    assert_eq!(lines_in(&folder.join("out")), numbers);
}

#[test]
fn rule_082_acknowledged_records_are_all_there_after_a_restart_and_the_end_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let job = without_checkpoints(Mechanism::Acks, folder.path(), 2, Some(4_000));
    let (report, _) = run_failing_once(&job, options(folder.path()));
    assert_eq!(report.checkpoints.count, 0);
    let again: usize = (0..2)
        .map(|subtask| folder.path().join(format!("out/part-2-{subtask}.ndjson")))
        .map(|part| fs::read_to_string(part).unwrap_or_default().lines().count())
        .sum();
    assert!(0 < again && again < 10_000, "it goes on from what was acknowledged: {again}");
    assert_all_are_there_and_nothing_is_left_to_do(folder.path(), &job);
}

#[test]
fn full_replay_begins_at_the_start_after_a_failure_and_the_end_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let job = without_checkpoints(Mechanism::FullReplay, folder.path(), 2, Some(4_000));
    let (report, _) = run_failing_once(&job, options(folder.path()));
    assert_eq!(report.checkpoints.count, 1);
    assert!(report.records_in > 13_000, "all is read again: {}", report.records_in);
    assert_all_are_there_and_nothing_is_left_to_do(folder.path(), &job);
}

#[test]
fn a_log_of_changes_may_be_cut_short_at_its_end_and_is_refused_by_name_if_it_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 2_000);
    let config = JobConfig {
        mechanism: Mechanism::Transactional,
        restart: RestartStrategy::None,
        changes_min_bytes: 2_000,
        // So that a task has to write many times on the way.
        unacknowledged_max: 200,
        channel_batches: 1,
        ..often()
    };
    let words = Arc::new(AtomicU64::new(0));
    let trip = move || assert!(words.fetch_add(1, Ordering::Relaxed) != 6_000, "tripped");
    let error = run_in(folder.path(), &word_count(folder.path(), 1, config.clone(), trip));
    assert!(error.unwrap_err().to_string().contains("tripped"));
    let path = folder.path().join("store/progress-v1-0");
    let written = fs::read(&path).unwrap();
    assert!(ProgressLog::read(&written).unwrap().last().checkpoint > CheckpointId::new(1));

    let job = word_count(folder.path(), 1, config, || {});
    let mut damaged = written.clone();
    damaged[written.len() / 2] ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = run_in(folder.path(), &job).unwrap_err().to_string();
    assert!(error.contains("progress-v1-0"), "{error}");
    fs::write(&path, [&written[..], &[7; 5]].concat()).unwrap();
    run_in(folder.path(), &job).unwrap();
    assert_eq!(count_words(&folder.path().join("out")), expected);
}

#[test]
fn state_that_lives_outside_is_refused_without_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let builder = JobBuilder::new("outside", 1);
    builder.source("numbers", Numbers::up_to(1)).sink("out", Collect::default());
    let config = JobConfig { state: StateHome::External, ..often() };
    let error = run_in(folder.path(), &builder.build(config).unwrap()).unwrap_err().to_string();
    assert!(error.contains("needs a store to live in"), "{error}");
}

#[cfg(feature = "sqlite")]
#[test]
fn state_that_lives_outside_counts_words_again_after_a_failure_unless_it_rolls_back() {
    use cofferdam::connector::sqlite::SqliteStateStore;
    for state in [StateHome::External, StateHome::ExternalTransactional] {
        let folder = tempfile::tempdir().unwrap();
        let expected = write_text(folder.path(), 2_000);
        let words = Arc::new(AtomicU64::new(0));
        let trip = move || assert!(words.fetch_add(1, Ordering::Relaxed) != 6_000, "tripped");
        // No checkpoint before the failure: all is read again.
        let config =
            JobConfig { state, checkpoint_interval: Duration::from_secs(3_600), ..often() };
        let job = word_count(folder.path(), 1, config, trip);
        let rolls_back = state == StateHome::ExternalTransactional;
        let store = SqliteStateStore::new(folder.path().join("state.db"), rolls_back);
        let options = RunOptions { state_store: Some(Arc::new(store)), ..options(folder.path()) };
        run_failing_once(&job, options);
        let counted = count_words(&folder.path().join("out"));
        assert_eq!(counted == expected, rolls_back, "{state}");
        assert_eq!(counted.len(), expected.len(), "each word has one row for each time it came");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn state_that_rolls_back_outside_is_right_over_runs_that_are_stopped() {
    use cofferdam::connector::sqlite::SqliteStateStore;
    let folder = tempfile::tempdir().unwrap();
    let expected = write_text(folder.path(), 2_000);
    let config = JobConfig { state: StateHome::ExternalTransactional, ..often() };
    let job = word_count(folder.path(), 2, config, || {});
    let options = || {
        let store = SqliteStateStore::new(folder.path().join("state.db"), true);
        RunOptions { state_store: Some(Arc::new(store)), ..options(folder.path()) }
    };
    let stopped = run(&job, stop_after_checkpoints(options(), 2));
    assert_eq!(stopped.unwrap_err(), RunError::Stopped);
    run(&job, options()).unwrap();
    assert_eq!(count_words(&folder.path().join("out")), expected);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_store_of_state_that_is_older_than_the_checkpoint_ends_the_job_at_once() {
    use cofferdam::connector::sqlite::SqliteStateStore;
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 2_000);
    let config = JobConfig { state: StateHome::External, ..often() };
    let job = word_count(folder.path(), 2, config, || {});
    let options = |name: &str| {
        let store = SqliteStateStore::new(folder.path().join(name), false);
        RunOptions { state_store: Some(Arc::new(store)), ..options(folder.path()) }
    };
    let stopped = run(&job, stop_after_checkpoints(options("state.db"), 1));
    assert_eq!(stopped.unwrap_err(), RunError::Stopped);
    fs::copy(folder.path().join("state.db"), folder.path().join("older.db")).unwrap();
    let stopped = run(&job, stop_after_checkpoints(options("state.db"), 1));
    assert_eq!(stopped.unwrap_err(), RunError::Stopped);
    for (name, word) in [("none.db", "it is gone"), ("older.db", "older than the checkpoint")] {
        let error = run(&job, options(name)).unwrap_err();
        let is_said = |text: &str| text.contains(name) && text.contains(word);
        assert!(matches!(&error, RunError::Restore(text) if is_said(text)), "{error}");
    }
    run(&job, options("state.db")).unwrap();
}

#[cfg(feature = "sqlite")]
#[test]
fn a_store_of_state_that_another_process_keeps_locked_is_named_at_the_end() {
    use std::sync::Mutex;

    use cofferdam::connector::sqlite::SqliteStateStore;
    use rusqlite::Connection;
    let folder = tempfile::tempdir().unwrap();
    write_text(folder.path(), 2_000);
    let database = folder.path().join("state.db");
    let (words, other) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let (file, locks) = (database.clone(), other.clone());
    let trip = move || {
        if words.fetch_add(1, Ordering::Relaxed) == 3_000 {
            let connection = Connection::open(&file).unwrap();
            connection.busy_timeout(Duration::from_secs(60)).unwrap();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            *locks.lock().unwrap() = Some(connection);
        }
    };
    let config = JobConfig { state: StateHome::ExternalTransactional, ..often() };
    let job = word_count(folder.path(), 2, config, trip);
    let store = SqliteStateStore::new(database, true).with_patience(Duration::from_millis(200));
    let options = RunOptions { state_store: Some(Arc::new(store)), ..options(folder.path()) };
    let error = run(&job, options).unwrap_err();
    let is_said = |text: &str| text.contains("state.db: another process has locked");
    assert!(matches!(&error, RunError::Failed(text) if is_said(text)), "{error}");
    assert!(other.lock().unwrap().is_some());
}

#[test]
fn first_positions_that_were_stored_in_part_are_not_taken_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let job = without_checkpoints(Mechanism::None, folder.path(), 3, None);
    run_in(folder.path(), &job).unwrap();
    fs::remove_file(folder.path().join("store/reserved-v0-0")).unwrap();
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    assert_eq!(run_in(folder.path(), &job).unwrap().records_in, 10_000);
}
