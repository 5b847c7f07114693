//! What it costs to hand batches from one thread to another: the ring between workers, the standard
//! library's bounded channel and crossbeam's, all polled as a worker polls them. And how long a
//! thread that sleeps takes to answer.
//!
//! ```sh
//! cargo bench --bench channel
//! ```
#![allow(missing_docs, reason = "criterion makes public functions")]
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a bench has threads and a clock"
)]

use std::hint::{self, black_box};
use std::sync::mpsc::{self, TrySendError};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam::sync::park;
use cofferdam::sync::ring::{self, SendError};
use criterion::{
    Bencher, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main,
};

criterion_group!(benches, alone, hand_over, wake_up);
criterion_main!(benches);

/// How many batches are handed over for one figure, whatever their size.
const BATCHES: usize = 256;
/// How many batches a channel holds, as `JobConfig::channel_batches` says by default.
const CAPACITY: usize = 8;

/// How often a thread looks again before it leaves the core to others.
const PAUSES_PER_YIELD: u32 = 256;

type Batch = Vec<u64>;

/// The end of a channel that does not wait.
trait Give: Send + 'static {
    fn give(&mut self, batch: Batch) -> Result<(), Batch>;
}

trait Take: Send + 'static {
    fn take(&mut self) -> Option<Batch>;
}

impl Give for ring::Sender<Batch> {
    fn give(&mut self, batch: Batch) -> Result<(), Batch> {
        self.send(batch).map_err(|error| match error {
            SendError::Full(batch) | SendError::Closed(batch) => batch,
        })
    }
}

impl Take for ring::Receiver<Batch> {
    fn take(&mut self) -> Option<Batch> {
        let batch = self.receive()?;
        // As a worker asks after each batch.
        black_box(self.is_awaited());
        Some(batch)
    }
}

impl Give for mpsc::SyncSender<Batch> {
    fn give(&mut self, batch: Batch) -> Result<(), Batch> {
        self.try_send(batch).map_err(|error| match error {
            TrySendError::Full(batch) | TrySendError::Disconnected(batch) => batch,
        })
    }
}

impl Take for mpsc::Receiver<Batch> {
    fn take(&mut self) -> Option<Batch> {
        self.try_recv().ok()
    }
}

impl Give for crossbeam_channel::Sender<Batch> {
    fn give(&mut self, batch: Batch) -> Result<(), Batch> {
        self.try_send(batch).map_err(|error| error.into_inner())
    }
}

impl Take for crossbeam_channel::Receiver<Batch> {
    fn take(&mut self) -> Option<Batch> {
        self.try_recv().ok()
    }
}

fn own() -> (ring::Sender<Batch>, ring::Receiver<Batch>) {
    ring::ring(CAPACITY)
}

fn standard() -> (mpsc::SyncSender<Batch>, mpsc::Receiver<Batch>) {
    mpsc::sync_channel(CAPACITY)
}

fn crossbeam() -> (crossbeam_channel::Sender<Batch>, crossbeam_channel::Receiver<Batch>) {
    crossbeam_channel::bounded(CAPACITY)
}

/// What the calls cost if nobody is at the other end: one thread fills and empties the channel.
fn alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("channel/alone");
    group.throughput(Throughput::Elements(CAPACITY as u64));
    group.bench_function("ring", |bencher| fill_and_empty(bencher, own()));
    group.bench_function("std", |bencher| fill_and_empty(bencher, standard()));
    group.bench_function("crossbeam", |bencher| fill_and_empty(bencher, crossbeam()));
    group.finish();
}

fn fill_and_empty(bencher: &mut Bencher<'_>, (mut give, mut take): (impl Give, impl Take)) {
    bencher.iter(|| {
        for _ in 0..CAPACITY {
            give.give(black_box(Vec::new())).expect("there is room");
        }
        for _ in 0..CAPACITY {
            black_box(take.take()).expect("it is full");
        }
    });
}

fn hand_over(criterion: &mut Criterion) {
    for (name, recycles) in [("allocated", false), ("recycled", true)] {
        let mut group = criterion.benchmark_group(format!("channel/{name}"));
        // Many short samples, of which some are not disturbed.
        group
            .sampling_mode(SamplingMode::Flat)
            .measurement_time(Duration::from_secs(2))
            .sample_size(30);
        for size in [1, 8, 64, 256, 1024] {
            group.throughput(Throughput::Elements((BATCHES * size) as u64));
            group.bench_function(BenchmarkId::new("ring", size), |bencher| {
                bencher.iter_custom(|times| pass(own, times, size, recycles));
            });
            group.bench_function(BenchmarkId::new("std", size), |bencher| {
                bencher.iter_custom(|times| pass(standard, times, size, recycles));
            });
            group.bench_function(BenchmarkId::new("crossbeam", size), |bencher| {
                bencher.iter_custom(|times| pass(crossbeam, times, size, recycles));
            });
        }
        group.finish();
    }
}

/// How long it takes to pass `times` times the batches, of `size` records each. If `recycles`, the
/// receiver gives each batch back through a second channel, and the sender takes what is there.
fn pass<G: Give, T: Take>(
    channel: fn() -> (G, T),
    times: u64,
    size: usize,
    recycles: bool,
) -> Duration {
    let (mut give, mut take) = channel();
    let (mut give_back, mut spare) = channel();
    let batches = times as usize * BATCHES;
    let begun = Instant::now();
    let sending = thread::spawn(move || {
        let mut pauses = 0;
        for _ in 0..batches {
            let spare = spare.take().filter(|_| recycles);
            let mut batch: Batch = spare.unwrap_or_else(|| Vec::with_capacity(size));
            batch.clear();
            batch.extend(0..size as u64);
            while let Err(again) = give.give(batch) {
                batch = again;
                pause(&mut pauses);
            }
        }
    });
    let (mut sum, mut pauses) = (0, 0);
    let mut received = 0;
    while received < batches {
        let Some(batch) = take.take() else {
            pause(&mut pauses);
            continue;
        };
        received += 1;
        sum += batch.iter().sum::<u64>();
        if recycles {
            // One too many is given back to the allocator.
            let _ = give_back.give(batch);
        }
    }
    let elapsed = begun.elapsed();
    black_box(sum);
    sending.join().expect("the sender does not panic");
    elapsed
}

/// Waits a little for the other thread, and now and then leaves it the core.
fn pause(pauses: &mut u32) {
    *pauses += 1;
    if pauses.is_multiple_of(PAUSES_PER_YIELD) { thread::yield_now() } else { hint::spin_loop() }
}

/// From one thread to another that sleeps, and back.
fn wake_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("channel/ping-pong");
    group
        .sampling_mode(SamplingMode::Flat)
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    group.bench_function("ring", |bencher| bencher.iter_custom(ping_own));
    group.bench_function("std", |bencher| {
        bencher.iter_custom(|times| {
            let ((ping, pinged), (pong, ponged)) = (mpsc::sync_channel(1), mpsc::sync_channel(1));
            let echo = move || pinged.iter().try_for_each(|()| pong.send(()).map_err(drop));
            bounce(times, echo, || ping.send(()).is_ok() && ponged.recv().is_ok())
        });
    });
    group.bench_function("crossbeam", |bencher| {
        bencher.iter_custom(|times| {
            let (ping, pinged) = crossbeam_channel::bounded(1);
            let (pong, ponged) = crossbeam_channel::bounded(1);
            let echo = move || pinged.iter().try_for_each(|()| pong.send(()).map_err(drop));
            bounce(times, echo, || ping.send(()).is_ok() && ponged.recv().is_ok())
        });
    });
    group.finish();
}

fn bounce(
    times: u64,
    echo: impl FnOnce() -> Result<(), ()> + Send + 'static,
    there_and_back: impl Fn() -> bool,
) -> Duration {
    thread::spawn(echo);
    let begun = Instant::now();
    assert!((0..times).all(|_| there_and_back()), "the other thread is there");
    begun.elapsed()
}

fn ping_own(times: u64) -> Duration {
    let (mut ping, mut pinged) = ring::ring(1);
    let (mut pong, mut ponged) = ring::ring(1);
    let (tell, told) = mpsc::channel();
    let echo = move |mut parker: park::Parker| {
        let pinging: park::Unparker = told.recv().expect("it is told below");
        for _ in 0..times {
            wait(&mut parker, &mut pinged);
            pong.send(()).expect("one is under way at a time");
            pinging.unpark();
        }
    };
    let (echoing, _) = park::spawn("echo".to_owned(), echo).expect("there is room for a thread");
    let (say, said) = mpsc::channel();
    let bounce = move |mut parker: park::Parker| {
        let begun = Instant::now();
        for _ in 0..times {
            ping.send(()).expect("one is under way at a time");
            echoing.unpark();
            wait(&mut parker, &mut ponged);
        }
        say.send(begun.elapsed()).expect("it is waited for");
    };
    let (pinging, _) = park::spawn("ping".to_owned(), bounce).expect("there is room for a thread");
    tell.send(pinging).expect("the echo waits for it");
    said.recv().expect("it says how long it took")
}

fn wait(parker: &mut park::Parker, receiver: &mut ring::Receiver<()>) {
    while receiver.receive().is_none() {
        parker.rest(None);
    }
    parker.go_on();
}
