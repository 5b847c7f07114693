//! How long a job stands still that fails inside the process, by the size of its state: from the
//! failure until a row of a record behind it reaches the sink. Sums of eight bytes by keys of
//! eight, exactly once, checkpoints in files, two subtasks.
//!
//! `cargo bench --bench recovery -- [ROUNDS] [KEYS]...`

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/figures.rs"]
mod figures;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::coordinator::CoordinatorNote;
use cofferdam::id::CheckpointId;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::runtime::{FileStore, RunError, RunEvent, RunOptions, run};

use crate::figures::{arguments, median};

fn main() {
    let numbers = arguments();
    let rounds = numbers.first().copied().unwrap_or(3);
    let sizes = match numbers.get(1..) {
        Some(sizes) if !sizes.is_empty() => sizes,
        _ => &SIZES,
    };
    println!("ms from a failure to ..., medians of {rounds} rounds:\n");
    println!("| keys | all tasks stopped | restored, first record read | first row |");
    println!("| --- | --- | --- | --- |");
    for keys in sizes {
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            let steps = Course::default().run(*keys);
            times.iter_mut().zip(steps).for_each(|(times, time)| times.push(time));
        }
        let [stopped, read, row] = times.map(median);
        println!("| {keys} | {stopped:.1} | {read:.1} | {row:.1} |");
    }
}

/// What happens in a run, told by those whom it happens to.
#[derive(Clone, Default)]
struct Course(Arc<Moments>);

#[derive(Default)]
struct Moments {
    /// Every key has state.
    is_full: AtomicBool,
    /// A checkpoint is complete that began after that.
    may_fail: AtomicBool,
    failed: OnceLock<Instant>,
    stopped: OnceLock<Instant>,
    read: OnceLock<Instant>,
    row: OnceLock<Instant>,
    /// The run has shown what it was for.
    is_over: Arc<AtomicBool>,
}

impl Course {
    /// The milliseconds from the failure to each step.
    fn run(self, keys: u64) -> [f64; 3] {
        let job = self.job(keys);
        let folder = tempfile::tempdir().expect("there is room for temporary files");
        let store = FileStore::open(folder.path()).expect("the folder is new");
        let (of_run, mut awaited) = (self.clone(), None);
        let options = RunOptions {
            workers: 2,
            stop: self.0.is_over.clone(),
            observer: Box::new(move |event| of_run.observe(&event, &mut awaited)),
            ..RunOptions::new(store)
        };
        assert_eq!(run(&job, options).err(), Some(RunError::Stopped));
        let Moments { failed, stopped, read, row, .. } = &*self.0;
        let at = |moment: &OnceLock<Instant>| *moment.get().expect("it has come to that");
        [stopped, read, row].map(|moment| (at(moment) - at(failed)).as_secs_f64() * 1e3)
    }

    /// Two sources that go through all keys again and again, the first of which fails.
    fn job(&self, keys: u64) -> Job {
        let builder = JobBuilder::new("recovery", 2);
        let (of_source, of_sink) = (self.0.clone(), self.0.clone());
        let mut is_first = true;
        builder
            .source("numbers", Numbers::up_to(1 << 60))
            .map("fails", move |number| {
                // Each attempt has a copy of its own.
                if std::mem::take(&mut is_first) && of_source.failed.get().is_some() {
                    of_source.read.get_or_init(Instant::now);
                }
                if number == keys {
                    of_source.is_full.store(true, Ordering::Relaxed);
                }
                let fails = of_source.may_fail.load(Ordering::Relaxed);
                if fails && of_source.failed.set(Instant::now()).is_ok() {
                    std::panic::resume_unwind(Box::new("an injected failure"));
                }
                (number % keys, number)
            })
            .key_by(|(key, _)| *key)
            .aggregate("sum", 0, |sum: &mut u64, (_, number)| *sum = sum.wrapping_add(number))
            .sink(
                "out",
                DiscardSink::new(move |(key, _): &(u64, u64)| {
                    if of_sink.read.get().is_some() && of_sink.row.set(Instant::now()).is_ok() {
                        of_sink.is_over.store(true, Ordering::Relaxed);
                    }
                    *key
                }),
            );
        let restart = RestartStrategy::FixedDelay { attempts: 1, delay: Duration::ZERO };
        let checkpoint_interval = Duration::from_millis(200);
        let config = JobConfig { restart, checkpoint_interval, ..JobConfig::default() };
        builder.build(config).expect("it can work")
    }

    /// `awaited` is the first checkpoint that began when every key had state.
    fn observe(&self, event: &RunEvent<'_>, awaited: &mut Option<CheckpointId>) {
        let RunEvent::Note(note) = event else { return };
        let Moments { is_full, may_fail, stopped, .. } = &*self.0;
        if let CoordinatorNote::CheckpointTriggered(checkpoint) = note
            && is_full.load(Ordering::Relaxed)
        {
            awaited.get_or_insert(*checkpoint);
        }
        if let CoordinatorNote::CheckpointCompleted { checkpoint, .. } = note
            && *awaited == Some(*checkpoint)
        {
            may_fail.store(true, Ordering::Relaxed);
        }
        if let CoordinatorNote::Restarting { .. } = note {
            stopped.get_or_init(Instant::now);
        }
    }
}

const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
