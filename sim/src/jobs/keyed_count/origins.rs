//! The measuring job with rows that say which number they come from.

use cofferdam::connector::memory::Numbers;
use cofferdam::job::Job;
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use serde::{Deserialize, Serialize};

use crate::jobs::ends::{Ends, builder};
use crate::jobs::row::{JsonObject, Origin, Row};
use crate::jobs::{JobError, Setup};
use crate::workload::splitmix64;

/// As [`super::graph`], for who watches the rows and not for who measures how fast they come.
pub(super) fn graph(
    source: Numbers,
    keys: u64,
    ends: &impl Ends,
    setup: &Setup,
) -> Result<Job, JobError> {
    let builder = builder("keyed-count", setup.shape);
    let sums = builder
        .source("numbers", source)
        .map("spread", move |number| (splitmix64(number) % keys, number))
        .key_by_ref(|pair: &(u64, u64)| &pair.0)
        .process("fold", SumOf);
    ends.end(sums, "out");
    Ok(builder.build(setup.config.clone())?)
}

/// Sums up by key.
#[derive(Clone)]
struct SumOf;

impl KeyedProcess for SumOf {
    type Key = u64;
    type In = (u64, u64);
    type State = u64;
    type Out = Sum;

    fn process(
        &mut self,
        (key, number): (u64, u64),
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<Sum>,
    ) {
        let value = context.state().get_or_insert(0);
        *value += number;
        out.emit(Sum { pair: (key, *value), origin: Some(Origin { offset: number, position: 0 }) });
    }

    fn answers_each(&self) -> bool {
        true
    }
}

/// A row that may name the number it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sum {
    pair: (u64, u64),
    origin: Option<Origin>,
}

impl Row for Sum {
    fn row_key(&self) -> Vec<u8> {
        self.pair.row_key()
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        let (key, value) = self.pair;
        let object = JsonObject::begin(out).field("key", &key).field("value", &value);
        match self.origin {
            Some(origin) => object.origin(origin).end(),
            None => object.end(),
        }
    }

    fn read_json(line: &[u8]) -> Option<Self> {
        Some(Self { pair: Row::read_json(line)?, origin: None })
    }
}
