//! Sequential references: what a job must come to, computed one record after the other in plain
//! code that shares nothing with the operators but the types of rows and state and their encoding.
//! They know neither tasks nor channels nor failures.

pub(crate) mod joins;
pub(crate) mod nexmark;
pub(crate) mod random_graph;
pub(crate) mod running;
pub(crate) mod smoke_alarm;
pub(crate) mod visits;
pub(crate) mod windows;

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::state::codec;
use serde::Serialize;

pub use cofferdam::trace::RecordId;

/// How much a record brings about in a run without failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// How often a cell of keyed state takes the record in, over all keyed operators and subtasks.
    pub state: u32,
    /// How many rows it triggers itself, over all sinks. Rows that a timer fires are not counted.
    pub outputs: u32,
}

/// What is not the same in all runs without failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubts {
    /// The operators whose state at the end differs.
    pub cells: BTreeSet<String>,
    /// The sinks whose rows differ.
    pub rows: BTreeSet<String>,
    /// The idempotent sinks whose last rows of each key differ.
    pub tables: BTreeSet<String>,
    /// How often some record is taken into the state differs.
    pub state_effects: bool,
    /// How many rows some record triggers differs.
    pub output_effects: bool,
}

/// That of a job where records can be late: what comes of them depends on when the watermark comes.
pub(crate) fn doubts_of_late(sinks: &[&str]) -> Doubts {
    let sinks: BTreeSet<String> = sinks.iter().map(|uid| (*uid).to_owned()).collect();
    Doubts { rows: sinks.clone(), tables: sinks, output_effects: true, ..Doubts::default() }
}

/// What a job comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Keyed state at the end, by operator uid. A cell whose state is gone is absent.
    pub cells: ByUid<Table>,
    /// Every row that is emitted, by sink uid.
    pub outputs: ByUid<Rows>,
    /// What idempotent sinks show at the end: the last row of each row key, by sink uid.
    pub tables: ByUid<Table>,
}

/// What there is of each operator or sink; those without anything are absent.
pub type ByUid<T> = BTreeMap<String, T>;

/// Encoded values by encoded key.
pub type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// Encoded rows, each as often as there is one; equal in whatever order they are. Nothing is
/// counted or sorted before somebody asks, since that costs more than to make them.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// All of them, one behind the other.
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Rows {
    /// No row.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new() }
    }

    /// Room for so many rows.
    pub fn with_capacity(rows: usize) -> Self {
        let bytes = Vec::with_capacity(rows * ROW_BYTES);
        Self { bytes, ends: Vec::with_capacity(rows) }
    }

    /// Adds a row.
    pub fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }

    /// Adds a row that is yet to be encoded.
    pub fn encode<R: Serialize>(&mut self, row: &R) {
        codec::encode_into(row, &mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// The rows.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    /// How often there is each row.
    pub fn counts(&self) -> BTreeMap<&[u8], u64> {
        let mut counts = BTreeMap::new();
        for row in self.iter() {
            *counts.entry(row).or_default() += 1;
        }
        counts
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        self.counts() == other.counts()
    }
}

impl Eq for Rows {}

/// The sequential reference of one case.
pub trait Reference: Send + Sync {
    /// Whether the rows depend on the order in which the records of a key reach its state, which is
    /// free between source subtasks. Cells and the last row of each key never do.
    fn rows_depend_on_order(&self) -> bool {
        false
    }

    /// What is not the same in all runs without failures, so that nobody can demand it.
    fn doubts(&self) -> Doubts {
        Doubts::default()
    }

    /// What `record` brings about in a run without failures.
    fn effects(&self, record: RecordId) -> Effects;

    /// What comes of applying exactly these records, once per occurrence, in this order. `None` if
    /// this reference can only judge the whole input.
    fn run(&self, applied: &[RecordId]) -> Option<Outcome>;

    /// The encoded value of one cell after exactly these records have had one effect each on it, in
    /// this order. `None` if this reference can not tell the effects of a record apart.
    fn cell(&self, uid: &str, key: &[u8], applied: &[RecordId]) -> Option<Vec<u8>>;

    /// What comes of the whole input.
    fn run_all(&self) -> Outcome;

    /// How rows follow from single cells, if each does from one.
    fn by_cell(&self) -> Option<&dyn ByCell> {
        None
    }
}

/// A reference whose rows each come of one cell.
pub trait ByCell {
    /// The operator whose cells they are.
    fn operator(&self) -> &'static str;

    /// The encoded keys of all cells, also of those that are empty at the end.
    fn keys(&self) -> Vec<Vec<u8>>;

    /// How often a record that touches a cell is taken into it in a run without failures.
    fn effects_on(&self, _key: &[u8], _record: RecordId) -> usize {
        1
    }

    /// What the rows of a cell have to do with each other.
    fn kinship(&self) -> Kinship {
        Kinship::Successors
    }

    /// Whether rows come of what all cells together have taken in, since other state stands behind
    /// them. Then any key stands for all.
    fn is_one(&self) -> bool {
        false
    }

    /// Every row for this sink that a cell gives when it takes in exactly these records, with one
    /// effect for each occurrence, in this order, until nothing can follow; in the order in which
    /// it gives them.
    fn rows(&self, sink: &str, key: &[u8], applied: &[RecordId]) -> Vec<Vec<u8>>;
}

/// What the rows of a cell have to do with each other, and with a record that is taken in twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinship {
    /// They replace each other, since their key is the cell's. What a record that comes again makes
    /// of them is known.
    Successors,
    /// Each has a key of its own. A record that comes again gives rows of its again, or does not.
    Siblings,
    /// Each has a key of its own. A record that comes again is counted in them, or is not.
    Sums,
}

impl Outcome {
    /// The rows for a sink.
    pub(crate) fn rows(&self, sink: &str) -> Vec<Vec<u8>> {
        let rows = self.outputs.get(sink);
        rows.map_or(Vec::new(), |rows| rows.iter().map(<[u8]>::to_vec).collect())
    }

    /// Notes the final value of a cell.
    pub(crate) fn cell<K: Serialize + ?Sized, V: Serialize>(
        &mut self,
        uid: &str,
        key: &K,
        value: &V,
    ) {
        of_uid(&mut self.cells, uid).insert(codec::encode(key), codec::encode(value));
    }

    /// Notes one emitted row, and that it is now the row of the encoded `key` in the table.
    pub(crate) fn row<R: Serialize>(&mut self, uid: &str, key: Vec<u8>, row: &R) {
        self.encoded_row(uid, key, codec::encode(row));
    }

    /// As [`Outcome::row`], of a row that is encoded.
    pub(crate) fn encoded_row(&mut self, uid: &str, key: Vec<u8>, row: Vec<u8>) {
        of_uid(&mut self.outputs, uid).push(&row);
        of_uid(&mut self.tables, uid).insert(key, row);
    }
}

/// The encoded keys that records have, each once.
pub(crate) fn encoded_keys<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    let keys: BTreeSet<&str> = keys.collect();
    keys.into_iter().map(codec::encode).collect()
}

/// More than most rows have.
const ROW_BYTES: usize = 16;

/// What there is of an operator or sink, which begins with nothing.
pub(crate) fn of_uid<'a, T: Default>(all: &'a mut ByUid<T>, uid: &str) -> &'a mut T {
    if !all.contains_key(uid) {
        all.insert(uid.to_owned(), T::default());
    }
    all.get_mut(uid).expect("it was put there if it was missing")
}
