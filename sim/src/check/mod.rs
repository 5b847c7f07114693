//! Simulating a job of one's own: its real operators, barriers and tasks, with its sources read in
//! memory and models in place of its sinks. What ought to come of it is observed in runs without
//! faults, so no reference has to be written. What differs between those is not judged, and the
//! result says so.

mod checked;
mod observed;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam::config::JobConfig;

use cofferdam::element::Batch;
use cofferdam::guarantee::Guarantee;
use cofferdam::job::{GraphError, Job};
use cofferdam::message::Found;
use cofferdam::operator::source::{ErasedSource, ReadOutcome, SourceError};
use serde::Serialize;

use crate::campaign::{self, Conduct, Row, Seeds, Tally};
use crate::jobs::{Case, CaseData, CaseInput, JobError, Parameters, Setup, Shape};
use crate::options::{FaultProfile, Options};
use crate::reference::Outcome;
use crate::run::{CaseSource, Mode};

pub use self::checked::Checked;
use self::observed::{Observed, observe};

/// A job of one's own under the simulator.
///
/// ```
/// use cofferdam::connector::memory::{CollectTransactions, VecSource};
/// use cofferdam::job::JobBuilder;
/// use cofferdam_sim::check::Check;
///
/// let checked = Check::new("parity", |setup| {
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
/// assert!(checked.is_held(), "{checked}");
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
        let records = inputs.iter().map(|input| input.records as usize).sum();
        let options = Options::draw(SCHEDULE, records, FaultProfile::None);
        let seen = observe(&job, &inputs, SCHEDULE, options)?;
        Ok((job, seen.outcome))
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

type ByShape<T> = BTreeMap<(usize, Option<u32>), T>;

struct OwnJob<F> {
    name: String,
    build: F,
    /// How many runs without faults of each shape are looked at.
    looks: u64,
    /// What has come of them, by parallelism and number of key groups.
    observed: Mutex<ByShape<Arc<Observed>>>,
    /// The seed of the run with faults that is under way.
    seed: Mutex<Option<u64>>,
}

impl<F: Fn(&Setup) -> Result<Job, GraphError> + Sync> Check<F> {
    /// The job that `build` makes, exactly-once unless another guarantee is set. The parallelism,
    /// and how checkpoints are taken, change from seed to seed; `build` gets both.
    pub fn new(name: &str, build: F) -> Self {
        Self {
            source: OwnJob {
                name: name.to_owned(),
                build,
                looks: LOOKS,
                observed: Mutex::default(),
                seed: Mutex::default(),
            },
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
        variation(&self.source, &DATA, &self.setup())
    }

    /// Runs every seed in this thread.
    ///
    /// What the runs with faults are compared with has come of runs without. So if one of them
    /// refutes the claim, many more of those are looked at, and all is judged again by what is the
    /// same in all of them.
    ///
    /// # Errors
    /// If the job can not be put together, does not come to its end even without faults, or panics.
    pub fn run(mut self) -> Result<Checked, JobError> {
        let caught = catch_unwind(AssertUnwindSafe(|| self.checked()));
        caught.unwrap_or_else(|panic| {
            let seed = *self.source.seed.lock().unwrap_or_else(PoisonError::into_inner);
            Err(JobError::Panicked { seed, text: text_of(&*panic) })
        })
    }

    fn checked(&mut self) -> Result<Checked, JobError> {
        let job = (self.source.build)(&self.setup())?;
        let [inputs, again] = [read_inputs(&job)?, read_inputs(&job)?];
        self.mode.records = inputs.iter().map(|input| input.records as usize).sum();
        let mut tally = self.tally()?;
        if tally.refuted > 0 {
            self.source.looks = MANY_LOOKS;
            self.source.observed = Mutex::default();
            tally = self.tally()?;
        }
        let mut reasons = rereads(&job, &inputs, &again);
        if job.config().mechanism.restores() && tally.restored == 0 {
            reasons.push(NOT_RESTORED.to_owned());
        }
        if !tally.unjudged.is_empty() {
            let variation = self.variation()?;
            reasons.push(if variation.is_none() {
                ORDER.to_owned()
            } else {
                variation.to_string()
            });
        }
        Ok(Checked::new(tally, reasons))
    }

    fn setup(&self) -> Setup {
        let options = Options::draw(SCHEDULE, 0, FaultProfile::None);
        Setup {
            shape: Shape { parallelism: PARALLELISM, key_groups: None, first: None },
            sink: self.mode.sink,
            config: options.job_config(self.mode.mechanism),
            parameters: Parameters::none(),
        }
    }

    fn tally(&self) -> Result<Tally, JobError> {
        let row = Row { source: &self.source, mode: self.mode.clone(), until_refuted: false };
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

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        *self.seed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let job = (self.build)(setup)?;
        let inputs = read_inputs(&job)?;
        let reference = self.observed(&inputs, setup)?;
        *self.seed.lock().unwrap_or_else(PoisonError::into_inner) = Some(data.seed);
        Ok(Case { job, reference: Box::new(reference), inputs })
    }
}

impl<F: Fn(&Setup) -> Result<Job, GraphError> + Sync> OwnJob<F> {
    /// What comes of the job in this shape. It depends on nothing else, so that a seed means the
    /// same whichever were run before it.
    fn observed(&self, inputs: &[CaseInput], setup: &Setup) -> Result<Arc<Observed>, JobError> {
        let Shape { parallelism, key_groups, .. } = setup.shape;
        let shape = (parallelism, key_groups.map(|count| count.get()));
        let known = || self.observed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observed) = known().get(&shape) {
            return Ok(observed.clone());
        }
        let records = inputs.iter().map(|input| input.records as usize).sum();
        let seen = (0..self.looks).map(|seed| {
            let options = quiet(seed, records);
            let mechanism = setup.config.mechanism;
            let config = JobConfig { state: setup.config.state, ..options.job_config(mechanism) };
            let job = (self.build)(&Setup { config, ..setup.clone() })?;
            observe(&job, inputs, seed, options)
        });
        let observed = Arc::new(Observed::of(seen.collect::<Result<_, JobError>>()?));
        known().insert(shape, observed.clone());
        Ok(observed)
    }
}

/// The options of a run in which nothing happens twice.
fn quiet(seed: u64, records: usize) -> Options {
    Options {
        // A checkpoint that takes too long would be followed by a restart.
        checkpoint_timeout_us: 10_000_000,
        checkpoint_failures: u32::MAX,
        queue_redelivery_us: 0,
        ..Options::draw(seed, records, FaultProfile::None)
    }
}

/// Says which sources do not give the same records again.
fn rereads(job: &Job, inputs: &[CaseInput], again: &[CaseInput]) -> Vec<String> {
    let texts = |input: &CaseInput| (0..input.records).map(&input.text).collect::<Vec<_>>();
    let others = inputs.iter().zip(again).filter(|(first, second)| texts(first) != texts(second));
    let named = others.map(|(input, _)| {
        let name = &job.graph().vertices()[input.vertex.index()].name;
        format!(
            "the source of '{name}' gives other records when it is read again: what is restored \
             can not be replayed"
        )
    });
    named.collect()
}

/// What a panic says.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word").to_owned()
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

/// The seed of the schedule that is run twice, and the parallelism.
const SCHEDULE: u64 = 1;
const PARALLELISM: usize = 2;
const DATA: CaseData = CaseData { seed: SCHEDULE, records: 0, lines: None };
/// Enough to see that a job depends on the order of its records, if it often does.
const LOOKS: u64 = 4;
/// Enough to see it if it seldom does.
const MANY_LOOKS: u64 = 40;
const NOT_RESTORED: &str = "no run went on from a checkpoint in the midst of the input: give more \
                            records or seeds";
const ORDER: &str = "the order in which records of several sources or subtasks arrive is free, and \
                     what is not judged depends on it; with a single source and parallelism 1 \
                     there is one order";
