//! Sinks whose commits do not go well, and sinks in two stages, on the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cofferdam::config::{CommitRetry, JobConfig, RestartStrategy};
use cofferdam::connector::memory::{CollectTransactions, Numbers};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::TransactionId;
use cofferdam::job::JobBuilder;
use cofferdam::operator::sink::{CommitError, Committed, SinkError, SinkPlace, TransactionalSink};
use cofferdam::runtime::{self, RunError, RunOptions};

const RECORDS: u64 = 5_000;

fn config(mechanism: Mechanism) -> JobConfig {
    JobConfig {
        mechanism,
        checkpoint_interval: Duration::from_millis(2),
        restart: RestartStrategy::FixedDelay { attempts: 50, delay: Duration::from_millis(1) },
        batch_records: 16,
        commit_retry: CommitRetry { tries: 2, pause: Duration::from_millis(1) },
        ..JobConfig::default()
    }
}

/// Of its commits some are refused, some done without an answer.
#[derive(Clone)]
struct Unreliable {
    inner: CollectTransactions<u64>,
    commits: Arc<AtomicU64>,
    loses: bool,
}

impl Unreliable {
    fn new(loses: bool) -> Self {
        Self { inner: CollectTransactions::default(), commits: Arc::default(), loses }
    }
}

impl TransactionalSink for Unreliable {
    type Record = u64;

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.inner.open(place)
    }

    fn write(&mut self, id: TransactionId, records: Vec<u64>) -> Result<(), SinkError> {
        self.inner.write(id, records)
    }

    fn prepare(&mut self, id: TransactionId) -> Result<(), SinkError> {
        self.inner.prepare(id)
    }

    fn commit(&mut self, id: TransactionId) -> Result<Committed, CommitError> {
        match self.commits.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(CommitError::Retry("busy".to_owned())),
            2 => {
                self.inner.commit(id)?;
                Err(CommitError::Unknown("no answer".to_owned()))
            }
            3 if self.loses => Err(CommitError::Lost("it has timed out".to_owned())),
            _ => self.inner.commit(id),
        }
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        self.inner.abort_dangling()
    }
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

#[test]
fn rule_069_commits_that_are_refused_or_not_answered_change_nothing_in_the_end() {
    for in_stages in [false, true] {
        let sink = Unreliable::new(false);
        let builder = JobBuilder::new("numbers", 2);
        let numbers = builder.source("numbers", Numbers::up_to(RECORDS));
        match in_stages {
            true => numbers.two_stage_sink("out", sink.clone()),
            false => numbers.transactional_sink("out", sink.clone()),
        }
        let job = builder.build(config(Mechanism::Aligned)).unwrap();
        runtime::run(&job, RunOptions::default()).unwrap();
        assert_eq!(sorted(sink.inner.committed()), (0..RECORDS).collect::<Vec<_>>());
        assert!(sink.commits.load(Ordering::Relaxed) > 2);
    }
}

#[test]
fn rule_068_a_transaction_that_is_lost_ends_the_job_at_once() {
    let sink = Unreliable::new(true);
    let builder = JobBuilder::new("numbers", 1);
    builder.source("numbers", Numbers::up_to(400_000)).transactional_sink("out", sink.clone());
    let job = builder.build(config(Mechanism::Aligned)).unwrap();
    let error = runtime::run(&job, RunOptions::default()).unwrap_err();
    assert_eq!(error, RunError::OutputLost("it has timed out".to_owned()));
}

#[test]
fn two_stage_sinks_show_every_row_once() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout] {
        let sink = CollectTransactions::default();
        let builder = JobBuilder::new("numbers", 3);
        let numbers = builder.source("numbers", Numbers::up_to(RECORDS)).rebalance();
        numbers.two_stage_sink("out", sink.clone());
        let job = builder.build(config(mechanism)).unwrap();
        runtime::run(&job, RunOptions::default()).unwrap();
        assert_eq!(sorted(sink.committed()), (0..RECORDS).collect::<Vec<_>>());
    }
}
