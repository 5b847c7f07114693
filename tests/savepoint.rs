//! Savepoints and other layouts on the threaded runtime, over real files.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::file::{LineSource, TransactionalFileSink};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{CheckpointId, VertexId};
use cofferdam::job::{Job, JobBuilder, Left};
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::runtime::{
    Claim, FileStore, Kept, MemoryStore, Resume, RunError, RunOptions, RunReport, Savepoint,
    SavepointError, StopAt, run,
};
use cofferdam::state::codec::Compression;
use cofferdam::state::key_group::KeyGroup;
use cofferdam::state::snapshot::{SourceState, TaskState};
use cofferdam::time::EventTime;
use tempfile::TempDir;

const LINES: u64 = 500;
const BARRIERS: [Mechanism; 4] =
    [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout, Mechanism::Tracked];

/// Counts words, and says the last count of each when the data ends.
#[derive(Clone)]
struct Count;

impl KeyedProcess for Count {
    type Key = String;
    type In = String;
    type State = u64;
    type Out = (String, String);

    fn process(
        &mut self,
        _word: String,
        context: &mut KeyedContext<'_, String, u64>,
        out: &mut impl Emit<(String, String)>,
    ) {
        let count = context.state().get_or_insert(0);
        *count += 1;
        let count = *count;
        out.emit((context.key().clone(), count.to_string()));
        context.register_timer(EventTime::MAX);
    }

    fn on_timer(
        &mut self,
        _time: EventTime,
        context: &mut KeyedContext<'_, String, u64>,
        out: &mut impl Emit<(String, String)>,
    ) {
        let count = context.state().get().copied().unwrap_or_default();
        out.emit((context.key().clone(), format!("{count} in all")));
    }
}

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

/// Counts the words of `text` into the folder `output`. `trip` is called for each line.
fn job(
    folder: &Path,
    output: &str,
    parallelism: usize,
    mechanism: Mechanism,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    let restart = RestartStrategy::FixedDelay { attempts: 3, delay: Duration::from_millis(1) };
    let checkpoint_interval = Duration::from_millis(2);
    let config = JobConfig {
        mechanism,
        restart,
        checkpoint_interval,
        batch_records: 7,
        ..JobConfig::default()
    };
    job_of(folder, output, parallelism, config, trip)
}

/// As [`job`].
fn job_of(
    folder: &Path,
    output: &str,
    parallelism: usize,
    config: JobConfig,
    trip: impl Fn() + Clone + Send + 'static,
) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let write = |(word, count): &(String, String), line: &mut Vec<u8>| {
        line.extend_from_slice(format!("{word} {count}\n").as_bytes());
    };
    let builder = JobBuilder::new("words", parallelism);
    builder
        .source("lines", LineSource::new([folder.join("text")], parse))
        .flat_map("split", move |line: String, out| {
            trip();
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .process("count", Count)
        .transactional_sink("out", TransactionalFileSink::new(folder.join(output), write));
    builder.build(config).unwrap()
}

/// A folder with a text, and how often each word is in it.
fn text() -> (TempDir, BTreeMap<String, u64>) {
    let folder = tempfile::tempdir().unwrap();
    let line = |number: u64| format!("w{} w{} common w{}", number % 7, number % 50, number);
    let text: Vec<String> = (0..LINES).map(line).collect();
    fs::write(folder.path().join("text"), text.join("\n")).unwrap();
    let mut counts = BTreeMap::new();
    for word in text.iter().flat_map(|line| line.split_whitespace()) {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    (folder, counts)
}

/// Every change and every last count, sorted.
fn all_lines(counts: &BTreeMap<String, u64>) -> Vec<String> {
    let changes = counts
        .iter()
        .flat_map(|(word, count)| (1..=*count).map(move |so_far| format!("{word} {so_far}")));
    let ends = counts.iter().map(|(word, count)| format!("{word} {count} in all"));
    let mut lines: Vec<String> = changes.chain(ends).collect();
    lines.sort();
    lines
}

/// The committed lines of these folders, sorted; nothing that is not committed may be left.
fn committed(folder: &Path, outputs: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    for output in outputs {
        for entry in fs::read_dir(folder.join(output)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".shown") {
                continue;
            }
            assert!(name.starts_with("part-"), "{name} is left over in {output}");
            lines.extend(fs::read_to_string(path).unwrap().lines().map(str::to_owned));
        }
    }
    lines.sort();
    lines
}

fn stopping(folder: &Path, records: u64) -> RunOptions {
    let savepoint = folder.join("savepoint");
    let stop_at = Some(StopAt { records, savepoint, drains: false });
    RunOptions { stop_at, workers: 2, ..RunOptions::new(MemoryStore::new()) }
}

fn going_on(folder: &Path) -> RunOptions {
    let resume = Resume::From(folder.join("savepoint"));
    RunOptions { resume, workers: 2, ..RunOptions::new(MemoryStore::new()) }
}

#[test]
fn rule_051_a_job_stops_with_a_savepoint_after_so_many_records_and_goes_on_at_any_parallelism() {
    for (number, (before, after)) in
        [(1, 4), (4, 1), (2, 3), (3, 2), (5, 7)].into_iter().enumerate()
    {
        let mechanism = BARRIERS[number % BARRIERS.len()];
        let (folder, counts) = text();
        let path = folder.path();
        let first = run(&job(path, "a", before, mechanism, || {}), stopping(path, 200)).unwrap();
        assert_eq!(first.records_in, 200);
        assert_eq!(committed(path, &["a"]).len(), 800, "all of them are committed: {mechanism}");
        let savepoint = Savepoint::read(&path.join("savepoint")).unwrap();
        assert!(savepoint.states.iter().all(|state| state.transactions.is_empty()));
        let second = run(&job(path, "b", after, mechanism, || {}), going_on(path)).unwrap();
        assert_eq!(second.records_in, LINES - 200);
        assert_eq!(committed(path, &["a", "b"]), all_lines(&counts), "{before} to {after}");
    }
}

#[test]
fn rule_102_a_failure_on_the_way_to_the_savepoint_changes_nothing() {
    for period in [30, 90, 170] {
        let (folder, counts) = text();
        let path = folder.path();
        let lines = Arc::new(AtomicU64::new(0));
        let trip = move || {
            let line = lines.fetch_add(1, Ordering::Relaxed) + 1;
            assert!(!line.is_multiple_of(period) || line > 3 * period, "injected at line {line}");
        };
        let report = run(&job(path, "a", 3, Mechanism::Aligned, trip), stopping(path, 200));
        let report: RunReport = report.unwrap();
        assert!(report.restarts > 0 && report.records_in >= 200, "{report:?}");
        assert_eq!(committed(path, &["a"]).len(), 800);
        run(&job(path, "b", 2, Mechanism::Aligned, || {}), going_on(path)).unwrap();
        assert_eq!(committed(path, &["a", "b"]), all_lines(&counts));
    }
}

#[test]
fn rule_104_a_drained_job_fires_its_timers_and_nothing_goes_on_from_there() {
    let (folder, _) = text();
    let path = folder.path();
    let mut options = stopping(path, 200);
    options.stop_at.as_mut().unwrap().drains = true;
    run(&job(path, "a", 2, Mechanism::Aligned, || {}), options).unwrap();
    let lines = committed(path, &["a"]);
    let ends = lines.iter().filter(|line| line.ends_with("in all")).count();
    assert_eq!(lines.len(), 800 + ends);
    assert!(ends > 50);
    let report = run(&job(path, "b", 2, Mechanism::Aligned, || {}), going_on(path)).unwrap();
    assert_eq!(report.records_in, 0);
    assert_eq!(committed(path, &["b"]), [""; 0]);
}

#[test]
fn a_savepoint_at_the_end_of_the_input_is_written_too() {
    let (folder, counts) = text();
    let path = folder.path();
    run(&job(path, "a", 2, Mechanism::Aligned, || {}), stopping(path, 10 * LINES)).unwrap();
    assert_eq!(committed(path, &["a"]), all_lines(&counts));
    let report = run(&job(path, "b", 3, Mechanism::Aligned, || {}), going_on(path)).unwrap();
    assert_eq!(report.records_in, 0);
    assert_eq!(committed(path, &["b"]), [""; 0]);
}

#[test]
fn a_savepoint_is_not_written_over_anything_nor_where_there_is_no_state() {
    let (folder, _) = text();
    let path = folder.path();
    fs::create_dir(path.join("savepoint")).unwrap();
    fs::write(path.join("savepoint/diary"), "mine").unwrap();
    let refused = |mechanism| {
        let job = job(path, "a", 2, mechanism, || {});
        let Err(RunError::Savepoint(text)) = run(&job, stopping(path, 200)) else {
            panic!("{mechanism} is to be refused")
        };
        assert!(!path.join("a").exists(), "nothing was run");
        text
    };
    assert!(refused(Mechanism::Aligned).contains("something is there already"));
    assert_eq!(fs::read(path.join("savepoint/diary")).unwrap(), b"mine");
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_snapshot_s_files_is_told_of_the_file() {
    [Compression::None, Compression::Lz4].into_iter().for_each(damage_is_told_of_the_file);
}

fn damage_is_told_of_the_file(compression: Compression) {
    let (folder, _) = text();
    let path = folder.path();
    let job = job(path, "a", 2, Mechanism::Aligned, || {});
    let store = FileStore::open(path.join("store")).unwrap();
    let stop_at = stopping(path, 5).stop_at;
    run(&job, RunOptions { stop_at, compression, ..RunOptions::new(store) }).unwrap();
    let refuses_damage = |folder: &Path, read: &dyn Fn() -> Result<Savepoint, SavepointError>| {
        read().unwrap();
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            let whole = fs::read(&file).unwrap();
            let is_refused = |bytes: &[u8], what: &str, at: usize| {
                fs::write(&file, bytes).unwrap();
                let refused = read().expect_err(&format!("{what} {at} of {}", file.display()));
                assert!(refused.to_string().contains(file.to_str().unwrap()), "{refused}");
            };
            let mut flipped = whole.clone();
            for at in 0..whole.len() {
                flipped[at] ^= 1 << (at % 8);
                is_refused(&flipped, "byte", at);
                flipped[at] = whole[at];
                is_refused(&whole[..at], "cut at", at);
            }
            fs::write(&file, whole).unwrap();
        }
    };
    let savepoint = path.join("savepoint");
    refuses_damage(&savepoint, &|| Savepoint::read(&savepoint));
    let folders = fs::read_dir(path.join("store")).unwrap().map(|entry| entry.unwrap().path());
    let checkpoints: Vec<_> = folders.filter(|path| path.join("metadata").is_file()).collect();
    let [checkpoint] = &checkpoints[..] else { panic!("{checkpoints:?}") };
    refuses_damage(checkpoint, &|| Savepoint::read_checkpoint(checkpoint, |_| Ok(job.clone())));
}

/// What a run would leave out without a word, or stumble over, if it were not refused.
#[test]
fn a_savepoint_whose_parts_do_not_belong_together_is_refused() {
    let (folder, _) = text();
    let folder = folder.path();
    run(&job(folder, "out", 2, Mechanism::Aligned, || ()), stopping(folder, 100)).unwrap();
    let whole = Savepoint::read(&folder.join("savepoint")).unwrap();
    let source = whole.states.iter().position(|state| state.source.is_some()).unwrap();
    let has_keys = |state: &TaskState| state.operators.iter().any(|of| of.keyed.is_some());
    let keyed = whole.states.iter().position(has_keys).unwrap();
    let forged: [&dyn Fn(&mut Savepoint); 12] = [
        &|of| of.metadata.shape.vertices[1].parallelism = 3,
        &|of| of.metadata.shape.vertices[1].parallelism = u32::MAX,
        &|of| of.metadata.shape.vertices.clear(),
        &|of| of.metadata.shape.edges[0].to = VertexId::new(99),
        &|of| of.metadata.shape.key_groups = 0,
        &|of| of.metadata.checkpoint = CheckpointId::new(u64::MAX),
        &|of| of.states[source].source = None,
        &|of| of.states[keyed].source = Some(SourceState::default()),
        &|of| {
            let splits = &mut of.states[source].source.as_mut().unwrap().splits;
            splits.push(splits[0].clone());
        },
        &|of| of.states[keyed].operators[0].uid.push('2'),
        &|of| {
            let twice = of.states[keyed].operators[0].clone();
            of.states[keyed].operators.push(twice);
        },
        &|of| {
            let keyed = of.states[keyed].operators.iter_mut().find_map(|of| of.keyed.as_mut());
            keyed.unwrap().last_mut().unwrap().0 = KeyGroup::new(u16::MAX);
        },
    ];
    for (number, forge) in forged.into_iter().enumerate() {
        let mut savepoint = whole.clone();
        forge(&mut savepoint);
        let place = folder.join(format!("forged-{number}"));
        savepoint.write(&place, None).unwrap();
        let error = Savepoint::read(&place).unwrap_err();
        assert!(matches!(error, SavepointError::Torn { .. }), "{number}: {error}");
    }
}

/// Stops a run at its second checkpoint: there is nothing to wait for but that.
fn until_second_checkpoint(store: FileStore) -> RunOptions {
    let options = RunOptions { workers: 2, ..RunOptions::new(store) };
    let stop = options.stop.clone();
    let mut seen = 0;
    let observer = move |event: cofferdam::runtime::RunEvent<'_>| {
        use cofferdam::coordinator::CoordinatorNote::CheckpointCompleted;
        if let cofferdam::runtime::RunEvent::Note(CheckpointCompleted { .. }) = event {
            seen += 1;
            stop.store(seen >= 2, Ordering::Relaxed);
        }
    };
    RunOptions { observer: Box::new(observer), records_per_second: Some(2_000), ..options }
}

#[test]
fn rule_087_a_checkpoint_goes_on_at_another_parallelism_with_its_transactions_and_in_flight_data() {
    let parallelisms = [(1, 3), (4, 1), (3, 2), (2, 5)];
    for (number, (before, after)) in parallelisms.into_iter().enumerate() {
        let mechanism = BARRIERS[number % 3];
        let (folder, counts) = text();
        let path = folder.path();
        let open = || FileStore::open(path.join("store")).unwrap();
        let stopped =
            run(&job(path, "a", before, mechanism, || {}), until_second_checkpoint(open()));
        assert_eq!(stopped, Err(RunError::Stopped));
        let options = RunOptions { workers: 2, ..RunOptions::new(open()) };
        run(&job(path, "a", after, mechanism, || {}), options).unwrap();
        assert_eq!(committed(path, &["a"]), all_lines(&counts), "{before} to {after}, {mechanism}");
        let options = RunOptions { workers: 2, ..RunOptions::new(open()) };
        let again = run(&job(path, "a", before, mechanism, || {}), options).unwrap();
        assert_eq!(again.records_in, 0, "a finished run stays finished at any parallelism");
    }
}

/// As [`Count`], in a state of another type.
#[derive(Clone)]
struct Texts;

impl KeyedProcess for Texts {
    type Key = String;
    type In = String;
    type State = String;
    type Out = (String, String);

    fn process(
        &mut self,
        _word: String,
        context: &mut KeyedContext<'_, String, String>,
        _out: &mut impl Emit<(String, String)>,
    ) {
        context.state().set(String::new());
    }
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: std::path::PathBuf| match path.is_dir() {
        true => files(&path).into_iter().collect(),
        false => vec![(path.display().to_string(), fs::read(&path).unwrap())],
    };
    entries.flat_map(of).collect()
}

#[test]
fn rule_116_a_state_of_another_type_is_refused_by_operator_and_place_and_nothing_is_changed() {
    let (folder, _) = text();
    let path = folder.path();
    run(&job(path, "a", 2, Mechanism::Aligned, || {}), stopping(path, 200)).unwrap();
    let stopped = until_second_checkpoint(FileStore::open(path.join("store")).unwrap());
    run(&job(path, "c", 2, Mechanism::Aligned, || {}), stopped).unwrap_err();
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let write = |(word, count): &(String, String), line: &mut Vec<u8>| {
        line.extend_from_slice(format!("{word} {count}\n").as_bytes());
    };
    let builder = JobBuilder::new("words", 2);
    builder
        .source("lines", LineSource::new([path.join("text")], parse))
        .flat_map("split", |line: String, out| {
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .process("count", Texts)
        .transactional_sink("out", TransactionalFileSink::new(path.join("b"), write));
    let changed = builder.build(JobConfig::default()).unwrap();
    let store = path.join("store");
    let checkpoint = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let checkpoint = checkpoint.filter(|path| path.is_dir()).max().unwrap();
    let before = (files(&path.join("savepoint")), files(&store));
    for (resume, own) in [
        (path.join("savepoint"), "elsewhere"),
        (checkpoint.clone(), "elsewhere"),
        (checkpoint.clone(), "store"),
    ] {
        let name = resume.file_name().unwrap().to_str().unwrap().to_owned();
        let claim = (own == "elsewhere").then_some(Claim::Run);
        let own = FileStore::open(path.join(own)).unwrap();
        let options = RunOptions { claim, ..RunOptions::new(own) };
        let options = RunOptions { resume: Resume::From(resume), ..options };
        let Err(RunError::Restore(text)) = run(&changed, options) else { panic!("refused") };
        for words in [&*name, "count -> out/", "the state of 'count'", "not the expected value"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!((files(&path.join("savepoint")), files(&store)), before);
    }
}

#[test]
fn rule_112_a_claimed_savepoint_or_checkpoint_is_the_runs_and_one_that_is_not_stays() {
    for (claim, from_checkpoint) in
        [(Claim::Run, true), (Claim::Run, false), (Claim::User, true), (Claim::User, false)]
    {
        let (folder, counts) = text();
        let path = folder.path();
        let resume = if from_checkpoint {
            let store = FileStore::open(path.join("store")).unwrap();
            let stopped = until_second_checkpoint(store);
            run(&job(path, "a", 2, Mechanism::Aligned, || {}), stopped).unwrap_err();
            let found = fs::read_dir(path.join("store")).unwrap();
            let mut found = found.map(|entry| entry.unwrap().path());
            found.find(|path| path.is_dir()).unwrap()
        } else {
            run(&job(path, "a", 2, Mechanism::Aligned, || {}), stopping(path, 200)).unwrap();
            path.join("savepoint")
        };
        let before = files(&resume);
        let own = FileStore::open(path.join("own")).unwrap();
        let options = RunOptions { workers: 2, claim: Some(claim), ..RunOptions::new(own) };
        let options = RunOptions { resume: Resume::From(resume.clone()), ..options };
        run(&job(path, "a", 2, Mechanism::Aligned, || {}), options).unwrap();
        assert_eq!(committed(path, &["a"]), all_lines(&counts));
        match claim {
            Claim::Run => assert!(!resume.exists(), "it is moved"),
            Claim::User => assert_eq!(files(&resume), before),
        }
    }
}

#[test]
fn rule_112_a_checkpoint_in_the_runs_own_store_can_not_stay_the_users() {
    let (folder, _) = text();
    let path = folder.path();
    let open = || FileStore::open(path.join("store")).unwrap();
    run(&job(path, "a", 2, Mechanism::Aligned, || {}), until_second_checkpoint(open()))
        .unwrap_err();
    let before = files(&path.join("store"));
    let mut found = fs::read_dir(path.join("store")).unwrap().map(|entry| entry.unwrap().path());
    let resume = Resume::From(found.find(|path| path.is_dir()).unwrap());
    let options = RunOptions { resume, claim: Some(Claim::User), ..RunOptions::new(open()) };
    let refused = run(&job(path, "a", 2, Mechanism::Aligned, || {}), options);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("in the run's own store is the run's"), "{error}");
    assert_eq!(files(&path.join("store")), before);
}

#[test]
fn rule_111_what_a_run_leaves_behind_follows_from_its_end() {
    let wanted = [
        (Kept::Always, [true, true, true]),
        (Kept::OnCancel, [false, true, true]),
        (Kept::OnFailure, [false, false, true]),
        (Kept::Never, [false, false, false]),
    ];
    for (kept, wanted) in wanted {
        let is_kept = [0, 1, 2].map(|end| {
            let (folder, _) = text();
            let path = folder.path();
            let store = FileStore::open(path.join("store")).unwrap();
            let options = match end {
                1 => until_second_checkpoint(store),
                _ => RunOptions { workers: 2, ..RunOptions::new(store) },
            };
            let lines = AtomicU64::new(0);
            let lines = Arc::new(lines);
            let trip = move || {
                assert!(end < 2 || lines.fetch_add(1, Ordering::Relaxed) < 150, "injected");
            };
            let slow = RunOptions { records_per_second: Some(2_000), kept, ..options };
            let config = JobConfig {
                restart: RestartStrategy::None,
                checkpoint_interval: Duration::from_millis(2),
                ..JobConfig::default()
            };
            let ended = run(&job_of(path, "a", 2, config, trip), slow);
            assert_eq!(ended.is_ok(), end == 0, "{ended:?}");
            let left: Vec<String> = files(&path.join("store")).into_keys().collect();
            let is_lock = |name: &String| name.ends_with(".lock");
            assert_eq!(left.iter().filter(|name| is_lock(name)).count(), 1);
            left.len() > 1
        });
        assert_eq!(is_kept, wanted, "{kept:?}");
    }
}

#[test]
fn rule_110_checkpoints_that_a_dead_run_did_not_come_to_discard_go_with_the_next_one() {
    let (folder, _) = text();
    let path = folder.path();
    let again = |retained| {
        let checkpoint_interval = Duration::from_millis(2);
        let config = JobConfig {
            checkpoints_retained: retained,
            checkpoint_interval,
            ..JobConfig::default()
        };
        let job = job_of(path, "a", 2, config, || {});
        let store = FileStore::open(path.join("store")).unwrap();
        let slow = Some(3_000);
        let options = RunOptions { records_per_second: slow, ..RunOptions::new(store) };
        run(&job, RunOptions { workers: 2, ..options }).unwrap();
        let found = fs::read_dir(path.join("store")).unwrap();
        found.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count()
    };
    assert_eq!([again(3), again(3), again(1)], [3, 3, 1]);
}

#[test]
fn another_jobs_savepoint_is_refused_unless_it_may_be_dropped() {
    let (folder, counts) = text();
    let path = folder.path();
    run(&job(path, "a", 2, Mechanism::Aligned, || {}), stopping(path, 200)).unwrap();
    let builder = JobBuilder::new("other", 2);
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let write = |(_, count): &(String, String), line: &mut Vec<u8>| {
        line.extend_from_slice(format!("{count}\n").as_bytes());
    };
    builder
        .source("lines", LineSource::new([path.join("text")], parse))
        .flat_map("split", |line: String, out| {
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .process("count", Count)
        .transactional_sink("out", TransactionalFileSink::new(path.join("b"), write));
    let other = builder.build(JobConfig::default()).unwrap();
    let Err(RunError::Restore(text)) = run(&other, going_on(path)) else { panic!("refused") };
    assert!(text.contains("it belongs to the job 'words', not to 'other'"), "{text}");
    let report = run(&other, RunOptions { left: Left::Dropped, ..going_on(path) }).unwrap();
    assert_eq!(report.records_in, LINES, "it begins at the start");
    assert_eq!(committed(path, &["b"]).len(), all_lines(&counts).len());
}
