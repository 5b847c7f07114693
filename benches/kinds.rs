//! What an access to a kind of state costs: keyed operators that sum numbers by key, as one plain
//! value, as a value that expires, and in a map of four entries that expire. Compare ratios taken
//! in one run.

use std::hint::black_box;
use std::time::Duration;

use cofferdam::operator::keyed::{KeySelector, Keyed, KeyedContext, KeyedProcess};
use cofferdam::operator::{Emit, Operator};
use cofferdam::state::kinds::{Kinds, MapCell, MapDescriptor, ReducingDescriptor, Ttl, ValueCell};
use cofferdam::time::EventTime;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde::{Deserialize, Serialize};

const RECORDS: u64 = 1 << 18;
/// Few enough for the caches, and more.
const KEYS: [u64; 2] = [1_000, 100_000];

/// Spreads numbers over so many keys.
#[derive(Clone)]
struct Spread(u64);

impl KeySelector<u64> for Spread {
    type Key = u64;

    #[inline]
    fn with_key<R>(&self, number: &u64, then: impl FnOnce(&u64) -> R) -> R {
        then(&(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_rem(self.0))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    sum: ValueCell<u64>,
    parts: MapCell<u64, u64>,
}

#[derive(Clone)]
struct Plain;

impl KeyedProcess for Plain {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = u64;

    #[inline]
    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<u64>,
    ) {
        let sum = context.state().get_or_insert(0);
        *sum = sum.wrapping_add(number);
        out.emit(*sum);
    }
}

#[derive(Clone)]
struct Reduced(ReducingDescriptor<Sums, u64>);

impl KeyedProcess for Reduced {
    type Key = u64;
    type In = u64;
    type State = Sums;
    type Out = u64;

    #[inline]
    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, Sums>,
        out: &mut impl Emit<u64>,
    ) {
        let mut sum = context.reducing(&self.0);
        sum.add(number);
        out.emit(sum.get().copied().unwrap_or(0));
    }

    fn kinds(&self) -> Kinds<Sums> {
        Kinds::new().with(&self.0)
    }
}

#[derive(Clone)]
struct Mapped(MapDescriptor<Sums, u64, u64>);

impl KeyedProcess for Mapped {
    type Key = u64;
    type In = u64;
    type State = Sums;
    type Out = u64;

    #[inline]
    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, Sums>,
        out: &mut impl Emit<u64>,
    ) {
        let mut parts = context.map(&self.0);
        let part = number % 4;
        let sum = parts.get(&part).copied().unwrap_or(0).wrapping_add(number);
        parts.insert(part, sum);
        out.emit(sum);
    }

    fn kinds(&self) -> Kinds<Sums> {
        Kinds::new().with(&self.0)
    }
}

fn kinds(c: &mut Criterion) {
    let ttl = Ttl::event_time(Duration::from_secs(1));
    let add = |sum: &mut u64, number| *sum = sum.wrapping_add(number);
    let sum = ReducingDescriptor::new("sum", |sums: &mut Sums| &mut sums.sum, add);
    let parts = MapDescriptor::new("parts", |sums: &mut Sums| &mut sums.parts);
    for keys in KEYS {
        let mut group = c.benchmark_group(format!("kinds/{keys}"));
        group.throughput(Throughput::Elements(RECORDS));
        let mut run = |name: &str, mut pass: Box<dyn FnMut() -> u64>| {
            group.bench_function(name, |b| b.iter(|| black_box(pass())));
        };
        run("plain", pass(Plain, keys));
        run("reducing", pass(Reduced(sum.clone()), keys));
        run("reducing, expires", pass(Reduced(sum.clone().ttl(ttl)), keys));
        run("map", pass(Mapped(parts.clone()), keys));
        run("map, expires", pass(Mapped(parts.clone().ttl(ttl)), keys));
        group.finish();
    }
}

/// Hands an operator the same records in each pass, in which nothing expires.
fn pass<P: KeyedProcess<Key = u64, In = u64, Out = u64>>(
    process: P,
    keys: u64,
) -> Box<dyn FnMut() -> u64> {
    let mut operator = Keyed::new(process, Spread(keys));
    operator.on_watermark(EventTime::from_millis(0), &mut Vec::new());
    let mut out = Vec::with_capacity(RECORDS as usize);
    Box::new(move || {
        out.clear();
        (0..RECORDS).for_each(|number| operator.process(number, &mut out));
        out.iter().fold(0, |check, sum| check ^ sum)
    })
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = kinds
}
criterion_main!(benches);
