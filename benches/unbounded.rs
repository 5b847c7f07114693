//! A run whose keys never come back: 100 million records over windows and over state that expires,
//! and how much memory the process has on the way. `cargo bench --bench unbounded -- RECORDS`.
//! Without windows and times to live the state would grow to several gigabytes.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/memory.rs"]
mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::window::Windows;
use cofferdam::runtime::{RunOptions, run};
use cofferdam::state::kinds::{Kinds, ReducingDescriptor, Ttl, ValueCell};
use cofferdam::time::EventTime;
use serde::{Deserialize, Serialize};

use crate::memory::status_kb;

/// A key comes so often in a row, and never again.
const REPEATS: u64 = 20;
const RECORDS_PER_MS: u64 = 100;

fn time_of(number: &u64) -> EventTime {
    EventTime::from_millis((number / RECORDS_PER_MS) as i64)
}

/// Sums that are forgotten a second after the last record of their key.
#[derive(Clone)]
struct Forgetful(ReducingDescriptor<Sum, u64>);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    sum: ValueCell<u64>,
}

impl KeyedProcess for Forgetful {
    type Key = u64;
    type In = u64;
    type State = Sum;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, Sum>,
        out: &mut impl Emit<u64>,
    ) {
        let mut sum = context.reducing(&self.0);
        sum.add(number);
        out.emit(sum.get().copied().unwrap_or_default());
    }

    fn kinds(&self) -> Kinds<Sum> {
        Kinds::new().with(&self.0)
    }
}

fn job(records: u64, seen: Arc<AtomicU64>) -> Job {
    let builder = JobBuilder::new("unbounded", 2);
    let numbers = builder
        .source_with_event_time("numbers", Numbers::up_to(records), time_of, Duration::ZERO)
        .parallelism(1)
        .map("seen", move |number| {
            seen.store(number, Ordering::Relaxed);
            number
        });
    let (to_sums, to_windows) = numbers.fork();
    let add = |sum: &mut u64, number| *sum = sum.wrapping_add(number);
    let sum = ReducingDescriptor::new("sum", |of: &mut Sum| &mut of.sum, add)
        .ttl(Ttl::event_time(Duration::from_secs(1)));
    to_sums
        .key_by(|number| number / REPEATS)
        .parallelism(2)
        .process("forgetful", Forgetful(sum))
        .sink("sums", DiscardSink::new(|sum: &u64| *sum));
    to_windows
        .key_by(|number| number / REPEATS)
        .parallelism(2)
        .window("second", Windows::tumbling(Duration::from_secs(1)), time_of)
        .aggregate(0, |count: &mut u64, _| *count += 1)
        .map("count", |row| row.value)
        .sink("counts", DiscardSink::new(|count: &u64| *count));
    builder.build(JobConfig::default()).expect("the job fits together")
}

fn main() {
    // Cargo adds a flag of its own.
    let records = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(100_000_000);
    let seen = Arc::new(AtomicU64::new(0));
    let job = job(records, seen.clone());
    let begun = Instant::now();
    let running = std::thread::spawn(move || run(&job, RunOptions::default()).map(|_| ()));
    println!("{:>14} {:>8} {:>12}", "records", "seconds", "resident MB");
    let step = records / 20;
    let mut next = 0;
    while !running.is_finished() {
        std::thread::sleep(Duration::from_millis(50));
        let records = seen.load(Ordering::Relaxed);
        if records >= next {
            let seconds = begun.elapsed().as_secs_f64();
            println!("{records:>14} {seconds:>8.1} {:>12}", status_kb("VmRSS") / 1024);
            next = records - records % step + step;
        }
    }
    let done = running.join().expect("the run does not panic");
    done.expect("the run succeeds");
    println!(
        "{records:>14} {:>8.1} {:>12}",
        begun.elapsed().as_secs_f64(),
        status_kb("VmRSS") / 1024
    );
}
