//! Simulating a job of one's own: its real operators, barriers and tasks, with its sources read in
//! memory and models in place of its sinks. What ought to come of it is observed in runs without
//! faults, so no reference has to be written.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cofferdam::element::Batch;
use cofferdam::guarantee::Guarantee;
use cofferdam::job::{GraphError, Job};
use cofferdam::message::Found;
use cofferdam::operator::source::{ErasedSource, ReadOutcome, SourceError};
use serde::Serialize;

use crate::campaign::{self, Conduct, Row, Seeds, Tally};
use crate::decide::Decider;
use crate::jobs::{Case, CaseData, CaseInput, JobError, Parameters, Setup, Shape};
use crate::options::{FaultProfile, Options};
use crate::reference::{Effects, Outcome, RecordId, Reference, of_uid};
use crate::run::{CaseSource, Mode};
use crate::world::{Ending, Plan, World, events_max};

/// A job of one's own under the simulator.
///
/// ```
/// use cofferdam::connector::memory::{CollectTransactions, VecSource};
/// use cofferdam::job::JobBuilder;
/// use cofferdam_sim::check::Check;
///
/// let tally = Check::new("parity", |setup| {
///     let builder = JobBuilder::new("parity", setup.shape.parallelism);
///     builder
///         .source("numbers", VecSource::new((0..50_u64).collect()))
///         .key_by(|number| number % 2)
///         .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
///         .transactional_sink("out", CollectTransactions::default());
///     builder.build(setup.config.clone())
/// })
/// .seeds(0..20)
/// .run()?;
/// assert!(tally.is_held(), "seed {:?}", tally.first_refuting_seed);
/// # Ok::<(), cofferdam_sim::jobs::JobError>(())
/// ```
pub struct Check<F> {
    source: OwnJob<F>,
    mode: Mode,
    seeds: std::ops::Range<u64>,
}

/// What was not the same in two runs of one schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Variation {
    /// The operators whose state differs, those nearest to the sources first.
    pub state: Vec<String>,
    /// The sinks whose rows differ.
    pub output: Vec<String>,
}

impl Variation {
    /// Whether everything was the same.
    pub fn is_none(&self) -> bool {
        self.state.is_empty() && self.output.is_empty()
    }
}

impl fmt::Display for Variation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |uids: &[String]| {
            uids.iter().map(|uid| format!("'{uid}'")).collect::<Vec<_>>().join(", ")
        };
        match (&self.state[..], &self.output[..]) {
            ([], []) => f.write_str("two runs of one schedule come to the same"),
            ([], output) => write!(
                f,
                "exactly-once state, output may differ: an operator before {} reads a clock, \
                 draws numbers or depends on hash order",
                named(output)
            ),
            (state, _) => write!(
                f,
                "state may differ: {}, or an operator before it, reads a clock, draws numbers or \
                 depends on hash order",
                named(state)
            ),
        }
    }
}

/// Looks for operators that are not deterministic (ORACLES C15 D4): puts the job together twice,
/// runs both over the same schedule without faults, and compares what they come to. Two maps of the
/// standard library differ in their order even within a process, and so do two readings of a clock.
///
/// # Errors
/// If the job can not be put together, or does not come to its end.
pub fn variation(
    source: &dyn CaseSource,
    data: &CaseData,
    setup: &Setup,
) -> Result<Variation, JobError> {
    let run = || -> Result<(Job, Outcome), JobError> {
        let Case { job, inputs, .. } = source.case(data, setup)?;
        let (outcome, _) = observe(&job, &inputs, SCHEDULE)?;
        Ok((job, outcome))
    };
    let ((job, first), (_, second)) = (run()?, run()?);
    let mut variation = Variation::default();
    for vertex in job.graph().vertex_ids() {
        for (uid, _) in job.operators(vertex) {
            if first.cells.get(&*uid) != second.cells.get(&*uid) {
                variation.state.push(uid.to_string());
            }
        }
        if let Some((uid, _)) = job.sink(vertex)
            && first.outputs.get(&**uid) != second.outputs.get(&**uid)
        {
            variation.output.push(uid.to_string());
        }
    }
    Ok(variation)
}

struct OwnJob<F> {
    name: String,
    build: F,
}

impl<F: Fn(&Setup) -> Result<Job, GraphError> + Sync> Check<F> {
    /// The job that `build` makes, exactly-once unless another guarantee is set. The parallelism,
    /// and how checkpoints are taken, change from seed to seed; `build` gets both.
    pub fn new(name: &str, build: F) -> Self {
        Self {
            source: OwnJob { name: name.to_owned(), build },
            mode: Mode::of(Guarantee::ExactlyOnce, Parameters::none()),
            seeds: 0..200,
        }
    }

    /// Sets the guarantee.
    #[must_use]
    pub fn guarantee(mut self, guarantee: Guarantee) -> Self {
        self.mode.guarantee = guarantee;
        self.mode.mechanism = guarantee.default_mechanism();
        self
    }

    /// Sets how many faults there are.
    #[must_use]
    pub fn faults(mut self, faults: FaultProfile) -> Self {
        self.mode.faults = faults;
        self
    }

    /// Sets the seeds; 200 of them, from 0, by default.
    #[must_use]
    pub fn seeds(mut self, seeds: std::ops::Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// As [`variation`].
    ///
    /// # Errors
    /// As [`variation`].
    pub fn variation(&self) -> Result<Variation, JobError> {
        let options = Options::draw(SCHEDULE, 0, FaultProfile::None);
        let setup = Setup {
            shape: Shape { parallelism: PARALLELISM, key_groups: None },
            sink: self.mode.sink,
            config: options.job_config(self.mode.mechanism),
            parameters: Parameters::none(),
        };
        variation(&self.source, &CaseData { seed: SCHEDULE, records: 0, lines: None }, &setup)
    }

    /// Runs every seed in this thread.
    ///
    /// # Errors
    /// If the job can not be put together.
    pub fn run(self) -> Result<Tally, JobError> {
        let row = Row { source: &self.source, mode: self.mode };
        let count = self.seeds.end.saturating_sub(self.seeds.start);
        let seeds = Seeds { first: self.seeds.start, count, part: (0, 1) };
        let stop = AtomicBool::new(false);
        let conduct =
            Conduct { threads: 1, stop: &stop, is_given_up: &|| false, progress: &|_| () };
        let mut outcome = campaign::run(&[row], seeds, &conduct)?;
        Ok(outcome.tallies.remove(0))
    }
}

impl<F: Fn(&Setup) -> Result<Job, GraphError> + Sync> CaseSource for OwnJob<F> {
    fn name(&self) -> &str {
        &self.name
    }

    fn case(&self, _data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let job = (self.build)(setup)?;
        let inputs = read_inputs(&job)?;
        let reference = Observed::of(&job, &inputs)?;
        Ok(Case { job, reference: Box::new(reference), inputs })
    }
}

/// Reads every source to its end, so that each cursor can be told from its encoding.
fn read_inputs(job: &Job) -> Result<Vec<CaseInput>, JobError> {
    let vertices = job.graph().vertex_ids();
    let sources = vertices.filter_map(|vertex| Some((vertex, job.source(vertex)?)));
    let mut inputs = Vec::new();
    for (vertex, mut source) in sources {
        let parallelism = job.graph().vertices()[vertex.index()].parallelism;
        let mut records: Vec<Batch> = Vec::new();
        let mut offsets = BTreeMap::new();
        for mut cursor in splits_of(source.as_mut(), parallelism)? {
            loop {
                offsets.insert(cursor.clone(), records.len() as u64);
                match source.read(&cursor, 1) {
                    ReadOutcome::Records { records: read, cursor: next } => {
                        records.push(read);
                        cursor = next;
                    }
                    ReadOutcome::Messages { records: read, .. } => records.push(read),
                    ReadOutcome::End => break,
                    ReadOutcome::Nothing => {
                        return Err(JobError::Input(NO_END.to_owned()));
                    }
                    ReadOutcome::Gone { wanted, .. } => {
                        let text = format!("record {wanted} of a source is gone before the run");
                        return Err(JobError::Input(text));
                    }
                    ReadOutcome::Failed(error) => return Err(JobError::Input(error.to_string())),
                }
            }
        }
        inputs.push(CaseInput {
            vertex,
            records: records.len() as u64,
            text: Box::new(move |offset| records[offset as usize].record_text(0)),
            offset_at: Arc::new(move |cursor| offsets.get(cursor).copied().unwrap_or(u64::MAX)),
        });
    }
    Ok(inputs)
}

/// The cursors at the beginning of all splits.
fn splits_of(source: &mut dyn ErasedSource, parallelism: usize) -> Result<Vec<Vec<u8>>, JobError> {
    let wrong = |error: SourceError| JobError::Input(error.to_string());
    if !source.is_assigned() {
        return source.discover(parallelism).map_err(wrong);
    }
    let mut splits = Vec::new();
    loop {
        match source.search(splits.len() as u32).map_err(wrong)? {
            Found::Splits(found) => splits.extend(found),
            Found::Nothing => return Err(JobError::Input(NO_END.to_owned())),
            Found::End => return Ok(splits),
        }
    }
}

const NO_END: &str = "a simulated source has to come to an end";

/// What comes of a job in a run without faults.
struct Observed {
    outcome: Outcome,
    effects: BTreeMap<RecordId, Effects>,
    rows_depend_on_order: bool,
}

impl Observed {
    fn of(job: &Job, inputs: &[CaseInput]) -> Result<Self, JobError> {
        let (outcome, effects) = observe(job, inputs, 1)?;
        let (other, _) = observe(job, inputs, 2)?;
        let rows_depend_on_order = outcome.outputs != other.outputs;
        Ok(Self { outcome, effects, rows_depend_on_order })
    }
}

impl Reference for Observed {
    fn rows_depend_on_order(&self) -> bool {
        self.rows_depend_on_order
    }

    fn effects(&self, record: RecordId) -> Effects {
        self.effects.get(&record).copied().unwrap_or_default()
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

fn observe(
    job: &Job,
    inputs: &[CaseInput],
    seed: u64,
) -> Result<(Outcome, BTreeMap<RecordId, Effects>), JobError> {
    let initial = job.discover().map_err(|error| JobError::Input(error.to_string()))?;
    let records = inputs.iter().map(|input| input.records as usize).sum();
    let mut options = Options::draw(seed, records, FaultProfile::None);
    options.whole_batches = false;
    let plan = Plan {
        job: job.clone(),
        sources: inputs.iter().map(|i| (i.vertex, i.offset_at.clone())).collect(),
        initial,
        options,
        faults: Vec::new(),
        variant: None,
        // Nobody knows the effects of a record yet.
        events_max: events_max(1_000 * records as u64),
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

fn look(world: &World, job: &Job) -> (Outcome, BTreeMap<RecordId, Effects>) {
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
    (outcome, effects)
}

/// The seed of the schedule that is run twice, and the parallelism.
const SCHEDULE: u64 = 1;
const PARALLELISM: usize = 2;
