//! What the state behind a sink has given, where the sink does not show what the whole input gives:
//! the reference's rows for what each cell had taken in between two losses of its state.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use cofferdam::guarantee::{Mechanism, SinkContract, StateHome};
use cofferdam::id::AttemptId;
use cofferdam::trace::{Origin, RecordId};

use super::{Shown, Sinks, vertices_of};
use crate::jobs::Case;
use crate::log::Log;
use crate::oracle::{Fired, Given, RowFact, are_same_rows};
use crate::reference::{ByCell, Kinship, Outcome, Table};
use crate::world::{Applied, World, cell_hash};

/// The name of all cells together.
const ALL: u64 = 0;

/// What each cell has taken in.
pub(super) struct Taken<'a> {
    case: &'a Case,
    mechanism: Mechanism,
    last: AttemptId,
    lists: BTreeMap<u64, Vec<List>>,
}

/// What a cell has taken in since its state began anew, in an attempt.
struct List {
    attempt: AttemptId,
    origins: Vec<Origin>,
}

impl<'a> Taken<'a> {
    pub(super) fn of(world: &World, case: &'a Case, mechanism: Mechanism) -> Self {
        let last = world.attempt();
        let mut taken = Self { case, mechanism, last, lists: BTreeMap::new() };
        for (attempt, logs) in world.incarnations() {
            logs.iter().for_each(|log| taken.add(attempt, log));
        }
        world.tasks().for_each(|(_, log)| taken.add(last, log));
        taken
    }

    fn add(&mut self, attempt: AttemptId, log: &Log<Applied>) {
        let mut of_cells: BTreeMap<u64, Vec<Origin>> = BTreeMap::new();
        for applied in log.iter() {
            of_cells.entry(applied.cell).or_default().push(applied.origin);
        }
        let is_one = self.case.reference.by_cell().is_some_and(ByCell::is_one);
        let is_kept = self.is_kept();
        for (cell, origins) in of_cells {
            let cell = if is_one { ALL } else { cell };
            let lists = self.lists.entry(cell).or_default();
            match lists.last_mut().filter(|list| is_kept && list.attempt == attempt) {
                // What was dealt out anew is with the first subtask, whoever has the cell.
                Some(list) => list.origins.extend(origins),
                None => lists.push(List { attempt, origins }),
            }
        }
    }

    fn lists(&self, cells: &dyn ByCell, key: &[u8]) -> &[List] {
        let vertices = vertices_of(&self.case.job);
        let cell = match cells.is_one() {
            true => Some(ALL),
            false => vertices.get(cells.operator()).map(|vertex| cell_hash(*vertex, key)),
        };
        cell.and_then(|cell| self.lists.get(&cell)).map_or(&[], Vec::as_slice)
    }

    /// What was taken in by the state that a row comes from; of a key without a row, by the last
    /// state. Where failures take state back that holds whatever came of earlier ones.
    fn behind<'b>(
        &self,
        lists: &'b [List],
        row: Option<&RowFact<'_>>,
        rows: impl Fn(&[Origin]) -> Vec<Vec<u8>>,
    ) -> &'b [Origin] {
        let attempt = row.filter(|_| !self.is_kept()).map_or(self.last, |row| row.attempt);
        let lists = || lists.iter().rev().filter(|list| list.attempt == attempt);
        // A batch may give the key no row.
        let gives = |list: &&List| {
            row.is_some_and(|row| rows(&list.origins).iter().any(|given| given == row.bytes))
        };
        let list = lists().find(gives).or_else(|| lists().next());
        list.map_or(&[], |list| &list.origins)
    }

    /// What was given to the keys at which a table is not the expected one.
    pub(super) fn table(
        &self,
        sink: &str,
        rows: &[RowFact<'_>],
        expected: &Table,
        of_attempts: &BTreeMap<AttemptId, Outcome>,
    ) -> BTreeMap<Vec<u8>, Given> {
        let shown = rows.iter().filter_map(|row| Some((row.key?, row)));
        let shown: BTreeMap<&[u8], &RowFact<'_>> = shown.collect();
        let keys: BTreeSet<&[u8]> =
            shown.keys().copied().chain(expected.keys().map(Vec::as_slice)).collect();
        let mut given = BTreeMap::new();
        for key in keys {
            let (row, due) = (shown.get(key), expected.get(key));
            if row.map(|row| row.bytes) == due.map(Vec::as_slice) {
                continue;
            }
            let cells = self.case.reference.by_cell();
            let cells = cells.filter(|of| of.kinship() == Kinship::Successors);
            let of_key = match (cells, row) {
                (Some(cells), row) => {
                    let rows = |origins: &[Origin]| cells.rows(sink, key, &records(origins));
                    let origins = self.behind(self.lists(cells, key), row.copied(), rows);
                    // By record: in another layout its parts may come in another order, and so
                    // under other paths.
                    let mut seen: BTreeMap<RecordId, usize> = BTreeMap::new();
                    let is_new = |origin: &Origin| {
                        origin.record.is_some_and(|record| {
                            let often = seen.entry(record).or_default();
                            *often += 1;
                            *often <= cells.effects_on(key, record)
                        })
                    };
                    let once: Vec<Origin> = origins.iter().copied().filter(is_new).collect();
                    Given { rows: rows(origins), once: rows(&once).pop() }
                }
                // Nothing is read twice: what its attempt gives has each record once.
                (None, Some(row))
                    if self.mechanism == Mechanism::None && gives(of_attempts, sink, row) =>
                {
                    continue;
                }
                // Each row has a key of its own: it is due or it is not.
                (None, Some(row)) if due.is_none() && !of_attempts.is_empty() => {
                    Given { rows: vec![row.bytes.to_vec()], once: None }
                }
                (None, None) if !of_attempts.is_empty() => Given::default(),
                (None, _) => continue,
            };
            given.insert(key.to_vec(), of_key);
        }
        given
    }

    /// What was given to a sink that shows nothing but rows that timers fire, or rows of which no
    /// one record is known to trigger them.
    pub(super) fn fired(&self, sink: &str, rows: &[RowFact<'_>], due: &[&[u8]]) -> Option<Fired> {
        let cells = self.case.reference.by_cell()?;
        // Where barriers empty cells, nobody has noted what all of them held together. Where
        // failures take no state back, a later stage may miss what the first one has given.
        let stays = self.case.job.config().state == StateHome::External;
        if cells.is_one() && (stays || !self.is_kept()) {
            return None;
        }
        let mut fired = Fired::default();
        if !self.is_kept() {
            fired.due = counts(due.iter().map(|row| row.to_vec()));
        }
        let shown: BTreeSet<(AttemptId, &[u8])> =
            rows.iter().map(|row| (row.attempt, row.bytes)).collect();
        let keys = if cells.is_one() { vec![Vec::new()] } else { cells.keys() };
        for key in &keys {
            let lists = self.lists(cells, key);
            let repeats = |list: &List| without_repeats(&list.origins).len() < list.origins.len();
            let kinship = cells.kinship();
            if kinship == Kinship::Sums && lists.iter().any(repeats) {
                return None;
            }
            let rows = |origins: &[Origin]| match kinship {
                Kinship::Siblings => cells.rows(sink, key, &records(&without_repeats(origins))),
                Kinship::Successors | Kinship::Sums => cells.rows(sink, key, &records(origins)),
            };
            if self.is_kept() {
                fired.due.extend(counts(rows(self.behind(lists, None, rows)).into_iter()));
            }
            let mut seen: BTreeMap<Vec<u8>, BTreeSet<Origin>> = BTreeMap::new();
            for List { attempt, origins } in lists {
                let given = counts(rows(origins).into_iter());
                let given = given.into_iter().filter(|(row, _)| shown.contains(&(*attempt, row)));
                for (row, count) in given {
                    let most = fired.most.entry(row.clone()).or_default();
                    let seen = seen.entry(row).or_default();
                    let is_apart = origins.iter().all(|origin| !seen.contains(origin));
                    *most = if is_apart { *most + count } else { (*most).max(count) };
                    seen.extend(origins);
                }
            }
        }
        Some(fired)
    }

    /// Whether failures take state back, and nothing else does.
    fn is_kept(&self) -> bool {
        self.mechanism.restores() && !self.mechanism.drops_state()
    }
}

impl Sinks<'_> {
    /// Finds out what was given to those sinks that do not show what is expected.
    pub(super) fn look_behind<'b>(
        &mut self,
        taken: &dyn Fn() -> Taken<'b>,
        of_attempts: &BTreeMap<AttemptId, Outcome>,
        records_trigger: bool,
    ) {
        let taken = LazyCell::new(taken);
        for sink in &mut self.0 {
            match sink.contract {
                SinkContract::Idempotent if !sink.is_expected_table() => {
                    let Shown { uid, rows, expected_table, .. } = sink;
                    sink.given = taken.table(uid, rows, expected_table, of_attempts);
                }
                SinkContract::Plain | SinkContract::TwoPhase | SinkContract::WriteAhead
                    if !(sink.is_expected() || records_trigger && sink.shows_triggered()) =>
                {
                    let Shown { uid, rows, expected, .. } = sink;
                    sink.fired = taken.fired(uid, rows, expected);
                }
                SinkContract::Plain
                | SinkContract::Idempotent
                | SinkContract::TwoPhase
                | SinkContract::WriteAhead
                | SinkContract::Discard => {}
            }
        }
    }
}

impl Shown<'_> {
    fn is_expected_table(&self) -> bool {
        let shown = self.rows.iter().filter_map(|row| Some((row.key?, row.bytes)));
        let shown: BTreeMap<&[u8], &[u8]> = shown.collect();
        let expected =
            self.expected_table.iter().map(|(key, row)| (key.as_slice(), row.as_slice()));
        shown.into_iter().eq(expected)
    }

    /// Whether a record triggered any of its rows.
    fn shows_triggered(&self) -> bool {
        self.rows.iter().any(|row| row.origin.record.is_some())
    }

    /// Whether it shows the rows that are expected.
    fn is_expected(&self) -> bool {
        are_same_rows(&self.rows, &self.expected)
    }
}

/// Whether a row of a table is what its attempt gives that key.
fn gives(of_attempts: &BTreeMap<AttemptId, Outcome>, sink: &str, row: &RowFact<'_>) -> bool {
    let table = of_attempts.get(&row.attempt).and_then(|outcome| outcome.tables.get(sink));
    table.zip(row.key).and_then(|(table, key)| table.get(key)).is_some_and(|of| of == row.bytes)
}

fn counts(rows: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, u64> {
    let mut counts = BTreeMap::new();
    rows.for_each(|row| *counts.entry(row).or_default() += 1);
    counts
}

fn without_repeats(origins: &[Origin]) -> Vec<Origin> {
    let mut seen = BTreeSet::new();
    origins.iter().copied().filter(|origin| seen.insert(*origin)).collect()
}

fn records(origins: &[Origin]) -> Vec<RecordId> {
    origins.iter().filter_map(|origin| origin.record).collect()
}
