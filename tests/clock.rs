//! Timers by the clock of the machine on the threaded runtime. Nothing here depends on how fast
//! anything is.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{CollectTransactions, Numbers, Range};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::runtime::{MemoryStore, Resume, RunOptions, StopAt, run};
use cofferdam::time::ProcessingTime;

/// Says a number again when some time has passed.
#[derive(Clone)]
struct Echo {
    after_millis: i64,
    has_fired: Arc<AtomicBool>,
}

impl KeyedProcess for Echo {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        _out: &mut impl Emit<u64>,
    ) {
        context.state().set(number);
        let due = context.processing_time().saturating_add(self.after_millis);
        context.register_processing_timer(due);
    }

    fn on_processing_timer(
        &mut self,
        _time: ProcessingTime,
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<u64>,
    ) {
        self.has_fired.store(true, Ordering::Relaxed);
        if let Some(number) = context.state().take() {
            out.emit(number);
        }
    }

    fn uses_clock(&self) -> bool {
        true
    }
}

/// Gives its numbers, and comes to its end when a timer has fired.
#[derive(Clone)]
struct Patient {
    numbers: Numbers,
    has_fired: Arc<AtomicBool>,
}

impl Source for Patient {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        let fetch = self.numbers.read(split, records_max)?;
        let is_over = matches!(fetch, Fetch::End);
        let waits = is_over && !self.has_fired.load(Ordering::Relaxed);
        Ok(if waits { Fetch::Nothing } else { fetch })
    }
}

fn job(
    source: impl Source<Record = u64>,
    echo: Echo,
    parallelism: usize,
    out: &CollectTransactions<u64>,
) -> Job {
    let builder = JobBuilder::new("echoes", parallelism);
    builder
        .source("numbers", source)
        .key_by(|number| *number)
        .process("echo", echo)
        .transactional_sink("out", out.clone());
    builder.build(JobConfig::default()).unwrap()
}

fn sorted(out: &CollectTransactions<u64>) -> Vec<u64> {
    let mut rows = out.committed();
    rows.sort_unstable();
    rows
}

#[test]
fn a_timer_wakes_a_job_that_has_nothing_else_to_do() {
    let has_fired = Arc::new(AtomicBool::new(false));
    let source = Patient { numbers: Numbers::up_to(5), has_fired: has_fired.clone() };
    let out = CollectTransactions::default();
    let job = job(source, Echo { after_millis: 20, has_fired }, 1, &out);
    run(&job, RunOptions { workers: 2, ..RunOptions::default() }).unwrap();
    assert_eq!(sorted(&out), [0, 1, 2, 3, 4]);
}

#[test]
fn rules_088_and_104_timers_wait_in_a_savepoint_and_fire_once_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let savepoint = folder.path().join("savepoint");
    let echo = Echo { after_millis: 1_000_000, has_fired: Arc::default() };
    let out = CollectTransactions::default();
    let first = job(Numbers::up_to(100), echo.clone(), 2, &out);
    let stop_at = Some(StopAt { records: 40, savepoint: savepoint.clone(), drains: false });
    let stopping = RunOptions { stop_at, ..RunOptions::new(MemoryStore::new()) };
    run(&first, RunOptions { workers: 2, ..stopping }).unwrap();
    assert_eq!(sorted(&out), [0; 0], "no timer fires because the job stops");

    let out = CollectTransactions::default();
    let second = job(Numbers::up_to(100), echo, 3, &out);
    let resume = Resume::From(savepoint);
    let going_on = RunOptions { resume, ..RunOptions::new(MemoryStore::new()) };
    run(&second, RunOptions { workers: 2, ..going_on }).unwrap();
    assert_eq!(sorted(&out), (0..100).collect::<Vec<u64>>(), "the end of data fires all");
}
