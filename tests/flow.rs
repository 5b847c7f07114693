//! How records flow through whole jobs on the threaded runtime: narrow channels, many subtasks,
//! branches, rates and rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{Collect, CollectTransactions, DiscardSink, Numbers, VecSource};
use cofferdam::guarantee::Mechanism;
use cofferdam::job::{GraphError, JobBuilder, Stream};
use cofferdam::operator::chain::Pass;
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::split_source::Pieces;
use cofferdam::runtime::{RunError, RunEvent, RunOptions, run};

fn often() -> JobConfig {
    let checkpoint_interval = Duration::from_millis(2);
    JobConfig { checkpoint_interval, batch_records: 16, ..JobConfig::default() }
}

#[test]
fn channels_of_one_batch_and_many_subtasks_on_two_workers_do() {
    for (parallelism, channel_batches) in [(1, 1), (3, 1), (50, 2)] {
        let out = CollectTransactions::default();
        let builder = JobBuilder::new("wide", parallelism);
        builder
            .source("numbers", Numbers::up_to(20_000))
            .rebalance()
            .map("twice", |number| number * 2)
            .key_by(|number| number % 1_000)
            .aggregate("count", 0, |count: &mut u64, _| *count += 1)
            .transactional_sink("out", out.clone());
        let config = JobConfig { channel_batches, batch_records: 8, ..often() };
        let options = RunOptions { workers: 2, ..RunOptions::default() };
        run(&builder.build(config).unwrap(), options).unwrap();
        let mut counts = out.committed();
        counts.sort_unstable();
        let expected: Vec<(u64, u64)> =
            (0..1_000).step_by(2).flat_map(|key| (1..=40).map(move |count| (key, count))).collect();
        assert_eq!(counts, expected, "{parallelism} x {channel_batches}");
    }
}

#[test]
fn two_branches_that_meet_again_align() {
    let out = CollectTransactions::default();
    let builder = JobBuilder::new("diamond", 2);
    let (left, right) = builder.source("numbers", VecSource::new((0..5_000_u64).collect())).fork();
    left.map("left", |number| number * 2)
        .union(right.rebalance().map("right", |number| number * 2 + 1))
        .transactional_sink("out", out.clone());
    let config = JobConfig { channel_batches: 1, ..often() };
    let options = RunOptions { workers: 2, ..RunOptions::default() };
    run(&builder.build(config).unwrap(), options).unwrap();
    let mut numbers = out.committed();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..10_000).collect::<Vec<u64>>());
}

#[test]
fn an_endless_source_shows_all_it_has_without_a_last_checkpoint() {
    let numbers = || VecSource::new((0..5_000_u64).collect());
    let cut: fn(&JobBuilder, VecSource<u64>) -> Stream<Pass<u64>> =
        |builder, numbers| builder.source("numbers", numbers.endless());
    let assigned: fn(&JobBuilder, VecSource<u64>) -> Stream<Pass<u64>> =
        |builder, numbers| builder.split_source("numbers", Pieces::new(numbers, 9, 2).endless());
    for begin in [cut, assigned] {
        let out = CollectTransactions::default();
        let builder = JobBuilder::new("endless", 2);
        begin(&builder, numbers()).transactional_sink("out", out.clone());
        let options = RunOptions::default();
        let (shown, stop) = (out.clone(), options.stop.clone());
        let observer = move |_: RunEvent<'_>| {
            stop.store(shown.committed().len() == 5_000, Ordering::Relaxed);
        };
        let options = RunOptions { observer: Box::new(observer), ..options };
        let stopped = run(&builder.build(often()).unwrap(), options);
        assert!(matches!(stopped, Err(RunError::Stopped)), "{stopped:?}");
        let mut numbers = out.committed();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..5_000).collect::<Vec<u64>>());
    }
}

#[test]
fn splits_and_endless_sources_are_refused_where_a_mechanism_can_not_keep_them() {
    let numbers = || VecSource::new((0..9_u64).collect());
    let refused = |begin: &dyn Fn(&JobBuilder) -> Stream<Pass<u64>>, mechanism| {
        let builder = JobBuilder::new("refused", 1);
        begin(&builder).sink("out", Collect::default());
        let job = builder.build(JobConfig { mechanism, ..often() });
        job.err().map(|error| error.to_string()).unwrap_or_default()
    };
    for mechanism in [Mechanism::None, Mechanism::Acks, Mechanism::Transactional] {
        let begin = |builder: &JobBuilder| builder.split_source("n", Pieces::new(numbers(), 3, 3));
        let text = refused(&begin, mechanism);
        assert!(text.contains("are assigned on the way"), "{text}");
    }
    let begin = |builder: &JobBuilder| builder.source("n", numbers().endless());
    let text = refused(&begin, Mechanism::FullReplay);
    assert!(text.contains("never ends"), "{text}");
}

/// A source that counts how often it is asked and has nothing until it is told to end.
#[derive(Clone)]
struct Silent {
    asked: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
}

impl Source for Silent {
    type Record = u64;
    type Split = u64;

    fn discover(&mut self, _parallelism: usize) -> Result<Vec<u64>, SourceError> {
        Ok(vec![0])
    }

    fn read(&mut self, _split: &mut u64, _records_max: usize) -> Result<Fetch<u64>, SourceError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let is_over = self.ends.load(Ordering::Relaxed);
        Ok(if is_over { Fetch::End } else { Fetch::Nothing })
    }
}

#[test]
fn a_worker_without_work_does_not_spin() {
    let (asked, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let source = Silent { asked: asked.clone(), ends: ends.clone() };
    let builder = JobBuilder::new("silent", 1);
    builder.source("nothing", source).sink("out", DiscardSink::new(|_: &u64| 0));
    let job = builder.build(JobConfig::default()).unwrap();
    let mut glances = 0;
    let observer = move |event: RunEvent<'_>| {
        if let RunEvent::Progress { .. } = event {
            glances += 1;
            ends.store(glances == 5, Ordering::Relaxed);
        }
    };
    let options = RunOptions { observer: Box::new(observer), ..RunOptions::default() };
    let wall = run(&job, options).unwrap().wall;
    let pauses = wall.as_millis() as u64 / 5;
    assert!(
        asked.load(Ordering::Relaxed) <= pauses + 1,
        "a source is asked every five milliseconds"
    );
}

#[test]
fn a_rate_is_kept_to() {
    let builder = JobBuilder::new("slow", 2);
    builder.source("numbers", Numbers::up_to(50)).sink("out", Collect::default());
    let options = RunOptions { records_per_second: Some(500), ..RunOptions::default() };
    let report = run(&builder.build(JobConfig::default()).unwrap(), options).unwrap();
    assert_eq!(report.records_in, 50);
    assert!(report.wall >= Duration::from_millis(80), "{:?}", report.wall);
}

#[test]
fn streams_of_two_builders_are_not_united() {
    let stream = |builder: &JobBuilder, uid: &str| builder.source(uid, VecSource::new(vec![1_u64]));
    let [own, other] = ["own", "other"].map(|name| JobBuilder::new(name, 1));
    let joined = stream(&own, "numbers").union(stream(&other, "more").map("changed", |n| n));
    joined.sink("out", Collect::default());
    let wanted = GraphError::OtherBuilder {
        first: "'numbers' of job 'own'".to_owned(),
        second: "'changed' of job 'other'".to_owned(),
    };
    assert!(wanted.to_string().ends_with("begin both streams with one JobBuilder"));
    for builder in [own, other] {
        assert_eq!(builder.build(JobConfig::default()).err(), Some(wanted.clone()));
    }
}

#[test]
fn settings_with_which_nothing_happens_are_refused() {
    let build = |config: JobConfig| {
        let builder = JobBuilder::new("numbers", 1);
        builder.source("numbers", Numbers::up_to(10)).sink("out", Collect::default());
        builder.build(config).map(|_| ()).map_err(|error| error.to_string())
    };
    let zero = |checkpoint_interval| JobConfig { checkpoint_interval, ..JobConfig::default() };
    let refused = build(zero(Duration::ZERO)).unwrap_err();
    assert_eq!(refused, "checkpoint_interval is zero: it must be at least a nanosecond");
    let refused = build(JobConfig { checkpoints_retained: 0, ..JobConfig::default() });
    assert_eq!(refused.unwrap_err(), "checkpoints_retained is zero: it must be at least 1");
    assert!(build(JobConfig { checkpoints_concurrent: 0, ..JobConfig::default() }).is_err());
    assert_eq!(build(zero(Duration::from_nanos(1))), Ok(()));
}

/// Gives no records and does not say that there are none.
#[derive(Clone)]
struct Mute;

impl Source for Mute {
    type Record = u64;
    type Split = u64;

    fn discover(&mut self, _parallelism: usize) -> Result<Vec<u64>, SourceError> {
        Ok(vec![0])
    }

    fn read(&mut self, _split: &mut u64, _records_max: usize) -> Result<Fetch<u64>, SourceError> {
        Ok(Fetch::Records(Vec::new()))
    }
}

#[test]
fn a_source_that_gives_nothing_and_stays_where_it_is_ends_the_run() {
    let builder = JobBuilder::new("mute", 1);
    builder.source("mute", Mute).sink("out", Collect::default());
    let job = builder.build(JobConfig::default()).unwrap();
    let error = run(&job, RunOptions::default()).unwrap_err();
    assert!(error.to_string().contains("gave no records and stayed where it was"), "{error}");
}
