//! How throughput, memory, checkpoints and recovery grow with keys, with the size of their state,
//! with subtasks and with sources: keyed-count, exactly once, checkpoints in files.
//! `cargo bench --bench growth -- [MILLION_RECORDS]`. Each row is a process of its own, so that the
//! memory of one is not that of another. With the word `memory`: only what a key takes, beside a
//! hash map.
#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time")]
#![expect(clippy::print_stdout, reason = "it is read by people")]

#[path = "common/memory.rs"]
mod memory;
#[path = "common/mixed.rs"]
mod mixed;

use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cofferdam::config::{JobConfig, RestartStrategy};
use cofferdam::connector::memory::{DiscardSink, Numbers};
use cofferdam::element::Record;
use cofferdam::job::JobBuilder;
use cofferdam::runtime::{FileStore, RunOptions, RunReport, run};
use cofferdam::state::heap::KeyedState;
use cofferdam::state::key_group::{KeyGroupCount, KeyGroupRange};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::memory::status_kb;
use crate::mixed::splitmix64;

/// What a row is about.
#[derive(Clone, Copy)]
struct Row {
    keys: u64,
    /// Of each key, in words of eight bytes, beside the sum.
    padding: u64,
    subtasks: u64,
    sources: u64,
    records: u64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if words.first().is_some_and(|word| word == "memory") {
        return match numbers[..] {
            [keys, of_engine] => println!("{:.1}", bytes_a_key(keys, of_engine == 1)),
            _ => show_memory(),
        };
    }
    if let [keys, padding, subtasks, sources, records] = numbers[..] {
        return measure(Row { keys, padding, subtasks, sources, records });
    }
    let records = numbers.first().copied().unwrap_or(50) * 1_000_000;
    let plain = Row { keys: 100_000, padding: 0, subtasks: 2, sources: 2, records };
    println!("{records} records; a checkpoint every {} ms", INTERVAL.as_millis());
    let title = ["M records/s", "peak MB", "checkpoints", "ms each", "MB each", "longest stall us"];
    let title = title.map(|word| format!("{word:>17}")).concat();
    println!("{:<34}{title}{:>17}", "", "recovery ms");
    let of_keys = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
    of_keys.into_iter().for_each(|keys| show("keys", keys, Row { keys, ..plain }));
    for padding in PADDINGS {
        show("bytes of state a key", 8 + 8 * padding, Row { padding, ..plain });
    }
    for subtasks in [1, 2, 10, 100, 1_000] {
        show("subtasks", subtasks, Row { subtasks, ..plain });
    }
    for sources in [1, 2, 10, 100] {
        show("sources", sources, Row { sources, ..plain });
    }
}

/// The memory that a key and its state of eight bytes each take, in keyed state and in a hash map
/// that both grow from nothing.
fn show_memory() {
    println!("resident bytes a key of (u64, u64):\n\n| keys | engine | hashbrown |");
    println!("| --- | --- | --- |");
    for keys in [1_000_000_u64, 10_000_000] {
        let [engine, map] =
            ["1", "0"].map(|which| in_another_process(&["memory", &keys.to_string(), which]));
        println!("| {keys} | {} | {} |", engine.trim_end(), map.trim_end());
    }
}

fn bytes_a_key(keys: u64, of_engine: bool) -> f64 {
    let before = status_kb("VmRSS");
    let all = KeyGroupCount::new(128).expect("a number of groups that there can be");
    let mut state = KeyedState::<u64, u64>::new(KeyGroupRange::all(all), all);
    let mut map = HashMap::<u64, u64, FixedState>::default();
    for number in 0..keys {
        let key = splitmix64(number);
        if of_engine {
            state.update(&key, |_, mut slot| slot.set(number));
        } else {
            map.insert(key, number);
        }
    }
    let resident = status_kb("VmRSS") - before;
    assert_eq!((state.len() + map.len()) as u64, keys);
    (resident * 1024) as f64 / keys as f64
}

/// What the program prints if it is started with these arguments.
fn in_another_process(arguments: &[&str]) -> String {
    let this = std::env::current_exe().expect("the program has a name");
    let done = Command::new(this).args(arguments).output().expect("it can be started again");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Measures a row in another process, which prints it.
fn show(what: &str, how_much: u64, row: Row) {
    let Row { keys, padding, subtasks, sources, records } = row;
    let words = [keys, padding, subtasks, sources, records].map(|number| number.to_string());
    let figures = in_another_process(&words.each_ref().map(String::as_str));
    println!("{:<34}{}", format!("{how_much} {what}"), figures.trim_end());
}

fn measure(row: Row) {
    let (report, _) = of_size(row, None);
    let memory = status_kb("VmHWM") / 1000;
    let (_, recovery) = of_size(row, Some(row.records / row.sources * 6 / 10));
    let rate = row.records as f64 / report.wall.as_secs_f64() / 1e6;
    let checkpoints = report.checkpoints;
    let each = checkpoints.duration_mean().as_secs_f64() * 1e3;
    let bytes = checkpoints.bytes as f64 / checkpoints.count.max(1) as f64 / 1e6;
    let stall = checkpoints.sync_max.as_micros();
    let recovery = recovery.map_or("none".to_owned(), |time| format!("{:.1}", time * 1e3));
    println!(
        "{rate:>17.1}{memory:>17}{:>17}{each:>17.1}{bytes:>17.1}{stall:>17}{recovery:>17}",
        checkpoints.count
    );
}

/// The run, and the seconds from a failure to the next record that is read, if it fails there.
fn of_size(row: Row, fails_at: Option<u64>) -> (RunReport, Option<f64>) {
    match row.padding {
        0 => of_state::<Sum<0>>(row, fails_at),
        7 => of_state::<Sum<7>>(row, fails_at),
        31 => of_state::<Sum<31>>(row, fails_at),
        other => panic!("no state is padded by {other} words"),
    }
}

const PADDINGS: [u64; 3] = [0, 7, 31];

/// A sum, and words that only take room.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sum<const N: usize>(u64, #[serde(with = "padding")] [u64; N]);

mod padding {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer, const N: usize>(
        words: &[u64; N],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        words.as_slice().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        deserializer: D,
    ) -> Result<[u64; N], D::Error> {
        let words = Vec::deserialize(deserializer)?;
        words.try_into().map_err(|_| serde::de::Error::custom("another number of words"))
    }
}

trait State: Record {
    fn first() -> Self;
    fn add(&mut self, number: u64);
}

impl<const N: usize> State for Sum<N> {
    fn first() -> Self {
        Self(0, [u64::MAX; N])
    }

    fn add(&mut self, number: u64) {
        self.0 = self.0.wrapping_add(number);
    }
}

fn of_state<S: State>(row: Row, fails_at: Option<u64>) -> (RunReport, Option<f64>) {
    let times: Arc<[OnceLock<Instant>; 2]> = Arc::default();
    let builder = JobBuilder::new("keyed-count", row.subtasks as usize);
    let (keys, of_run, mut is_first) = (row.keys, times.clone(), true);
    builder
        .source("numbers", Numbers::up_to(row.records))
        .parallelism(row.sources as usize)
        .map("spread", move |number| {
            let [failed, goes_on] = &*of_run;
            // Each attempt has copies of its own.
            if std::mem::take(&mut is_first) && failed.get().is_some() {
                goes_on.get_or_init(Instant::now);
            }
            if fails_at == Some(number) && failed.set(Instant::now()).is_ok() {
                std::panic::resume_unwind(Box::new("an injected failure"));
            }
            (splitmix64(number) % keys, number)
        })
        .key_by(|(key, _)| *key)
        .parallelism(row.subtasks as usize)
        .aggregate("sum", S::first(), |sum: &mut S, (_, number)| sum.add(number))
        .sink("out", DiscardSink::new(|(key, _): &(u64, S)| *key));
    let restart = RestartStrategy::FixedDelay { attempts: 1, delay: Duration::ZERO };
    let config = JobConfig { checkpoint_interval: INTERVAL, restart, ..JobConfig::default() };
    let job = builder.build(config).expect("it can work");
    let folder = tempfile::tempdir().expect("there is room for temporary files");
    let store = FileStore::open(folder.path()).expect("the folder is new");
    let report = run(&job, RunOptions::new(store)).expect("it fails once at the most");
    let [failed, goes_on] = &*times;
    let recovery = failed.get().zip(goes_on.get()).map(|(from, to)| (*to - *from).as_secs_f64());
    (report, recovery)
}

const INTERVAL: Duration = Duration::from_millis(200);
