//! What ought to come of a job of a user's own: what comes of it in runs without faults. What is
//! not the same in all of those nobody can demand of a run with faults.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use cofferdam::job::Job;

use crate::decide::Decider;
use crate::jobs::{CaseInput, JobError};
use crate::options::Options;
use crate::reference::{ByUid, Doubts, Effects, Outcome, RecordId, Reference, of_uid};
use crate::world::{Ending, Plan, World, events_max};

/// What has come of runs without faults.
#[derive(Debug, Default)]
pub(super) struct Observed {
    outcome: Outcome,
    effects: BTreeMap<RecordId, Effects>,
    doubts: Doubts,
}

impl Observed {
    /// What is the same in all `runs`, of which there is at least one, and what is not.
    pub(super) fn of(runs: Vec<Seen>) -> Self {
        let mut runs = runs.into_iter();
        let Seen { outcome, effects } = runs.next().unwrap_or_default();
        let mut doubts = Doubts::default();
        for other in runs {
            doubts.cells.extend(differing(&outcome.cells, &other.outcome.cells));
            doubts.rows.extend(differing(&outcome.outputs, &other.outcome.outputs));
            doubts.tables.extend(differing(&outcome.tables, &other.outcome.tables));
            let of = |effects: &BTreeMap<RecordId, Effects>, part: fn(&Effects) -> u32| {
                let parts = effects.iter().map(|(record, effects)| (*record, part(effects)));
                parts.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
            };
            let differ = |part| of(&effects, part) != of(&other.effects, part);
            doubts.state_effects |= differ(|effects| effects.state);
            doubts.output_effects |= differ(|effects| effects.outputs);
        }
        Self { outcome, effects, doubts }
    }
}

impl Reference for Arc<Observed> {
    fn doubts(&self) -> Doubts {
        self.doubts.clone()
    }

    /// Nothing is demanded of a record that may have another effect in another run: neither of one
    /// that had the same in all runs that were looked at, if others had not.
    fn effects(&self, record: RecordId) -> Effects {
        let Effects { state, outputs } = self.effects.get(&record).copied().unwrap_or_default();
        Effects {
            state: if self.doubts.state_effects { 0 } else { state },
            outputs: if self.doubts.output_effects { 0 } else { outputs },
        }
    }

    fn run(&self, _applied: &[RecordId]) -> Option<Outcome> {
        None
    }

    fn cell(&self, _uid: &str, _key: &[u8], _applied: &[RecordId]) -> Option<Vec<u8>> {
        None
    }

    fn run_all(&self) -> Outcome {
        self.outcome.clone()
    }
}

/// Who has something else, or nothing, in the other run.
fn differing<T: PartialEq>(left: &ByUid<T>, right: &ByUid<T>) -> Vec<String> {
    let uids = left.keys().chain(right.keys());
    uids.filter(|uid| left.get(*uid) != right.get(*uid)).cloned().collect()
}

/// What has come of one run.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) outcome: Outcome,
    effects: BTreeMap<RecordId, Effects>,
}

/// Runs a job without faults over the schedule of this seed.
pub(super) fn observe(
    job: &Job,
    inputs: &[CaseInput],
    seed: u64,
    options: Options,
) -> Result<Seen, JobError> {
    let initial = job.discover().map_err(|error| JobError::Input(error.to_string()))?;
    let records: u64 = inputs.iter().map(|input| input.records).sum();
    let plan = Plan {
        job: job.clone(),
        sources: inputs.iter().map(|i| (i.vertex, i.offset_at.clone())).collect(),
        initial,
        options: Options { whole_batches: false, ..options },
        faults: Vec::new(),
        variant: None,
        // Nobody knows the effects of a record yet.
        events_max: events_max(1_000 * records),
        next: None,
    };
    let mut world = World::new(Rc::new(plan), Decider::new(seed, false));
    world.run();
    match world.ending() {
        Some(Ending::Finished) => Ok(look(&world, job)),
        Some(Ending::Failed(error)) => Err(JobError::Input(error.to_string())),
        Some(Ending::Stopped | Ending::Stuck) | None => {
            Err(JobError::Input("the job does not come to its end even without faults".to_owned()))
        }
    }
}

fn look(world: &World, job: &Job) -> Seen {
    let mut outcome = Outcome::default();
    let mut effects: BTreeMap<RecordId, Effects> = BTreeMap::new();
    for (task, applied) in world.tasks() {
        for record in applied.iter().filter_map(|applied| applied.origin.record) {
            effects.entry(record).or_default().state += 1;
        }
        for (uid, cells) in task.stage().cells() {
            if !cells.is_empty() {
                of_uid(&mut outcome.cells, &uid).extend(cells);
            }
        }
    }
    for vertex in job.graph().vertex_ids() {
        let Some((uid, _)) = job.sink(vertex) else { continue };
        let uid = uid.to_string();
        for row in world.external().visible(vertex) {
            if let Some(record) = row.origin.record {
                effects.entry(record).or_default().outputs += 1;
            }
            let bytes = row.bytes.to_vec();
            if let Some(key) = &row.key {
                of_uid(&mut outcome.tables, &uid).insert(key.to_vec(), bytes.clone());
            }
            of_uid(&mut outcome.outputs, &uid).push(&bytes);
        }
    }
    Seen { outcome, effects }
}
