//! One simulated run: a job over a drawn or given input, under drawn faults, and what the judges
//! say.

mod given;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::graph::PhysicalGraph;
use cofferdam::guarantee::{Claim, Guarantee, Level, Mechanism, SinkContract, StateHome};
use cofferdam::id::{AttemptId, TaskId, VertexId};
use cofferdam::job::{Job, deal_splits};
use cofferdam::state::key_group::KeyGroupCount;
use cofferdam::state::snapshot::SourceState;
use cofferdam::time::Instant;
use cofferdam::trace::{Disturbance, RecordId, TraceEvent, Traced, Window};

use self::given::Taken;
use crate::decide::{Decider, Decisions, Divergence};
use crate::fault::{self, Fault};
use crate::interpose::Variant;
use crate::jobs::{BuiltinJob, Case, CaseData, JobError, OffsetAt, Parameters, Setup, Shape};
use crate::log::Log;
use crate::options::{FaultProfile, Options};
use crate::oracle::{
    self, AppliedFact, Cells, Facts, Fired, Given, Judgement, Layout, Levels, RowFact, Seen,
    SinkFacts, StateFacts, Subject,
};
use crate::reference::{ByUid, Doubts, Outcome, Rows, Table, of_uid};
use crate::world::{
    Applied, Ending, NextLayout, Plan, World, cell_hash, events_max, hash_bytes, mix,
};

/// Where cases come from: a built-in job, or one of a user's own.
pub trait CaseSource: Sync {
    /// The job's name.
    fn name(&self) -> &str;

    /// The job over an input in memory, with its reference.
    ///
    /// # Errors
    /// If a parameter or a line of the input is wrong, or the graph can not work.
    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError>;
}

/// What is the same for all runs of a row of a suite.
#[derive(Clone, Debug)]
pub struct Mode {
    /// What is asked for.
    pub guarantee: Guarantee,
    /// How it is reached.
    pub mechanism: Mechanism,
    /// What the sinks promise.
    pub sink: SinkContract,
    /// Where keyed state lives.
    pub state: StateHome,
    /// The claim to judge by; what follows from the job, if none is given.
    pub claim: Option<Claim>,
    /// How many source records a run has.
    pub records: usize,
    /// The lines of a user's file.
    pub lines: Option<Arc<[String]>>,
    /// The job's parameters.
    pub parameters: Parameters,
    /// Which faults there are.
    pub faults: FaultProfile,
    /// A broken variant of the protocol.
    pub variant: Option<Variant>,
    /// A fixed parallelism, where it is not to be drawn.
    pub parallelism: Option<usize>,
    /// Likewise, under aligned-timeout, the time after which barriers overtake.
    pub alignment_timeout: Option<Duration>,
    /// Likewise how many checkpoints may be in flight.
    pub checkpoints_concurrent: Option<usize>,
}

impl<J: BuiltinJob + ?Sized> CaseSource for &J {
    fn name(&self) -> &str {
        BuiltinJob::name(*self)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        BuiltinJob::case(*self, data, setup)
    }
}

impl Mode {
    /// A mode with everything at its default.
    pub fn of(guarantee: Guarantee, parameters: Parameters) -> Self {
        Self {
            guarantee,
            mechanism: guarantee.default_mechanism(),
            sink: guarantee.default_sink(),
            state: StateHome::Heap,
            claim: None,
            records: RECORDS_DEFAULT,
            lines: None,
            parameters,
            faults: FaultProfile::Default,
            variant: None,
            parallelism: None,
            alignment_timeout: None,
            checkpoints_concurrent: None,
        }
    }

    /// The options of a run, drawn from its seed where nothing is fixed.
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::draw(seed, self.records, self.faults);
        options.parallelism = self.parallelism.unwrap_or(options.parallelism);
        options.checkpoints_concurrent =
            self.checkpoints_concurrent.unwrap_or(options.checkpoints_concurrent);
        if let Some(timeout) = self.alignment_timeout {
            options.alignment_timeout_us = timeout.as_micros() as u64;
        }
        options.draw_pause(seed);
        options
    }
}

/// What is fixed beforehand in a run that is played again from a scenario.
#[derive(Clone, Debug)]
pub struct Script {
    /// The options.
    pub options: Options,
    /// The crashes; drawn from the seed if there are none.
    pub faults: Option<Vec<Fault>>,
    /// The other decisions; likewise.
    pub decisions: Option<Decisions>,
}

/// A run that has not begun.
pub struct Run {
    case: Case,
    /// The job in each of its layouts.
    jobs: Vec<Job>,
    /// As [`Facts::records`].
    records: Vec<(RecordId, u32, u32)>,
    world: World,
    seed: u64,
    mode: Mode,
    /// What the job promises.
    promise: Claim,
    /// What is claimed.
    claim: Claim,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The claim it was judged by.
    pub claim: Claim,
    /// How many events it had.
    pub events: u64,
    /// What the judges say.
    pub judgement: Judgement,
    /// How it ended, if it has.
    pub ending: Option<Ending>,
    /// How often a crash hit each window.
    pub windows: BTreeMap<Window, u64>,
    /// How often each other fault happened.
    pub disturbances: BTreeMap<Disturbance, u64>,
    /// How often readers of idempotent sinks saw a row again that had been replaced, until the
    /// replay had caught up.
    pub seen_again: u64,
    /// An attempt went on from a checkpoint in the midst of the input.
    pub is_restored: bool,
    /// Decisions of the scenario that did not apply.
    pub diverged: Vec<Divergence>,
}

/// What the judges are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// Whether the claims hold: thousands of runs need no more.
    Claims,
    /// And which levels were seen.
    Levels,
}

/// What tells whether two runs are the same, or end the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes {
    /// Over everything that happened, in order.
    pub trace: u64,
    /// Over the state, in no order.
    pub state: u64,
    /// Over the visible rows, in no order.
    pub output: u64,
}

impl Run {
    /// Draws a run from `seed`, or takes it from a script.
    ///
    /// # Errors
    /// If the job can not be put together.
    pub fn new(
        source: &dyn CaseSource,
        mode: &Mode,
        seed: u64,
        script: Option<Script>,
        records_decisions: bool,
    ) -> Result<Self, JobError> {
        let is_drawn = script.is_none();
        let (mut options, faults, decider) = match script {
            Some(Script { options, faults, decisions }) => {
                let decider = match decisions {
                    Some(decisions) => Decider::scripted(seed, decisions),
                    None => Decider::new(seed, records_decisions),
                };
                (options, faults, decider)
            }
            None => (mode.options(seed), None, Decider::new(seed, records_decisions)),
        };
        let mut case = put_together(source, mode, seed, &options, None)?;
        if is_drawn {
            let needed_us = options.checkpoint_needs_us(case.job.graph());
            if options.checkpoint_timeout_us < needed_us {
                options.checkpoint_timeout_us = needed_us;
                case = put_together(source, mode, seed, &options, None)?;
            }
        }
        let faults = faults.unwrap_or_else(|| fault::plan(seed, &options, case.job.graph()));
        let initial = case.job.discover().map_err(|error| JobError::Input(error.to_string()))?;
        let records = records_with_effects(&case);
        let effects = records.iter().map(|(_, state, rows)| u64::from(1 + state + rows)).sum();
        let drawn = options.clone();
        let layouts = 1 + options.rescales.len() as u64;
        let events_max = layouts * events_max(effects);
        let mut plan = Plan {
            job: case.job.clone(),
            sources: sources_of(&case),
            initial,
            options,
            faults,
            variant: mode.variant,
            events_max,
            next: None,
        };
        let layouts = plan.plan_layouts(seed, |parallelism| {
            put_together(source, mode, seed, &drawn, Some(parallelism))
        })?;
        let jobs: Vec<Job> = std::iter::once(case.job.clone()).chain(layouts).collect();
        // With one task there is nothing to align: what a layout promises, another one may not.
        let of_layouts = jobs.iter().map(|job| job.claim().claim()).reduce(Claim::weakest);
        let promise = of_layouts.expect("there is a first layout");
        let claim = mode.claim.unwrap_or(promise);
        let world = World::new(Rc::new(plan), decider);
        Ok(Self { case, jobs, records, world, seed, mode: mode.clone(), promise, claim })
    }

    /// The world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, to be moved on by hand.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// The graph of each layout that was planned, the first one first.
    pub fn graphs(&self) -> impl Iterator<Item = &PhysicalGraph> {
        self.jobs.iter().map(Job::graph)
    }

    /// The job over its input.
    pub fn case(&self) -> &Case {
        &self.case
    }

    /// Runs to the end and asks the judges.
    pub fn finish(&mut self) -> Report {
        self.world.run();
        self.report(Asked::Levels)
    }

    /// What has come of it so far; nothing is judged before the end.
    pub fn pause(&self) -> Report {
        let diverged = self.world.decider().diverged_so_far();
        Report { diverged, ..self.report_with(Judgement::pending(self.claim.output)) }
    }

    /// As [`Run::finish`] for the claims alone, unless `is_given_up` says so between two events:
    /// then there is nothing to report.
    pub fn finish_unless(&mut self, is_given_up: &dyn Fn() -> bool) -> Option<Report> {
        self.world.run_unless(is_given_up).then(|| self.report(Asked::Claims))
    }

    fn report(&self, asked: Asked) -> Report {
        let last = self.last_incarnation();
        let state = State::of(&self.world, &self.case, &last, asked, self.claim);
        self.report_with(self.judge(&state, &last, asked))
    }

    fn report_with(&self, judgement: Judgement) -> Report {
        let world = &self.world;
        let mut windows = BTreeMap::new();
        let mut disturbances = BTreeMap::new();
        for traced in world.trace().iter() {
            if let TraceEvent::Crashed { window, .. } | TraceEvent::CoordinatorCrashed { window } =
                traced.event
            {
                *windows.entry(window).or_default() += 1;
            }
            if let TraceEvent::Disturbed { fault, .. } = traced.event {
                *disturbances.entry(fault).or_default() += 1;
            }
        }
        Report {
            seed: self.seed,
            seen_again: self.sinks().map(|vertex| world.external().seen_again(vertex)).sum(),
            claim: self.claim,
            events: world.events(),
            judgement,
            ending: world.ending().cloned(),
            windows,
            disturbances,
            is_restored: world.is_restored(),
            diverged: world.decider().diverged(),
        }
    }

    fn last_incarnation(&self) -> Vec<Applied> {
        joined(self.world.tasks().map(|(_, applied)| applied))
    }

    fn judge(&self, state: &State, last: &[Applied], asked: Asked) -> Judgement {
        let (world, job) = (&self.world, &self.case.job);
        let fact = |applied: &Applied| AppliedFact { origin: applied.origin, cell: applied.cell };
        let mut incarnations: Vec<(AttemptId, Vec<AppliedFact>)> = world
            .incarnations()
            .iter()
            .map(|(attempt, tasks)| (*attempt, joined(tasks).iter().map(fact).collect()))
            .collect();
        incarnations.push((world.attempt(), last.iter().map(fact).collect()));
        let of_attempts = self.outcomes_of_attempts();
        let mut sinks = Sinks::of(world, job, state, &of_attempts);
        if world.is_done() {
            let records_trigger = self.records.iter().any(|(_, _, rows)| *rows > 0);
            let taken = || Taken::of(world, &self.case, self.mode.mechanism);
            sinks.look_behind(&taken, &of_attempts, records_trigger);
        }
        let layouts: Vec<Layout> = self.jobs.iter().map(layout_of).collect();
        let operators = job.graph().vertex_ids().flat_map(|vertex| job.operators(vertex));
        let trace = world.trace().to_vec();
        let is_control = |traced: &&Traced| {
            !matches!(
                traced.event,
                TraceEvent::Sent { .. } | TraceEvent::Received { .. } | TraceEvent::Emitted { .. }
            )
        };
        let mut control = Vec::with_capacity(trace.len());
        control.extend(trace.iter().filter(is_control).copied());
        let failure = match world.ending() {
            Some(Ending::Failed(error)) => Some(error.to_string()),
            Some(Ending::Finished | Ending::Stopped | Ending::Stuck) | None => None,
        };
        let judge = if asked == Asked::Levels { oracle::judge } else { oracle::judge_claims };
        let mut judgement = judge(&Facts {
            trace: &trace,
            control: &control,
            channels: &layouts[0].channels,
            tasks: layouts[0].tasks,
            layouts: &layouts,
            mechanism: self.mode.mechanism,
            state_promise: self.promise.state,
            state_claim: self.claim.state,
            output_claim: self.claim.output,
            state_is_idempotent: operators
                .filter(|(_, traits)| traits.stateful)
                .all(|(_, traits)| traits.idempotent),
            is_finished: world.is_done(),
            faults_stop: world.faults_stop(),
            trigger_delay_max: world.trigger_delay_max(),
            concurrent_max: job.config().checkpoints_concurrent,
            failure,
            state: StateFacts {
                incarnations: &incarnations,
                cells: &state.cells,
                expected: &state.expected.cells,
                expected_of_applied: state.of_applied.as_ref(),
            },
            sinks: &sinks.facts(),
            records: &self.records,
            is_state_right: OnceCell::new(),
        });
        for (subject, reason) in unjudged(&state.doubts, job, self.claim) {
            judgement.leave_open(subject, reason);
        }
        if let Some(levels) = &mut judgement.levels {
            forget_doubtful(levels, &state.doubts, job);
        }
        judgement
    }

    /// What the reference makes of just what each attempt had taken in, where attempts share
    /// nothing.
    fn outcomes_of_attempts(&self) -> BTreeMap<AttemptId, Outcome> {
        if self.mode.mechanism.restores() {
            return BTreeMap::new();
        }
        let world = &self.world;
        let earlier = world.incarnations().into_iter();
        let earlier = earlier.map(|(attempt, tasks)| (attempt, joined(&tasks)));
        earlier
            .chain([(world.attempt(), self.last_incarnation())])
            .filter_map(|(attempt, applied)| {
                Some((attempt, self.case.reference.run(&records_of(&applied))?))
            })
            .collect()
    }

    /// The vertices that end in a sink.
    fn sinks(&self) -> impl Iterator<Item = VertexId> {
        let job = &self.case.job;
        job.graph().vertex_ids().filter(|vertex| job.sink(*vertex).is_some())
    }

    /// What has come of it so far, in three numbers.
    pub fn hashes(&self) -> Hashes {
        let (state, output) = (self.state_hash(), self.output_hash());
        Hashes { trace: self.world.trace_hash(), state, output }
    }

    fn state_hash(&self) -> u64 {
        let cells = cells_of(&self.world);
        let hashes = cells.iter().flat_map(|(uid, of_operator)| {
            let uid = hash_bytes(0, uid.as_bytes());
            of_operator
                .iter()
                .map(move |(key, value)| mix(hash_bytes(uid, key), hash_bytes(1, value)))
        });
        hashes.fold(0, u64::wrapping_add)
    }

    fn output_hash(&self) -> u64 {
        let rows = self.sinks().flat_map(|vertex| {
            let rows = self.world.external().visible(vertex);
            rows.map(move |row| hash_bytes(u64::from(vertex.get()), &row.bytes))
        });
        rows.fold(0, u64::wrapping_add)
    }
}

/// The job in the shape that the options say, or in a later one with this parallelism.
fn put_together(
    source: &dyn CaseSource,
    mode: &Mode,
    seed: u64,
    options: &Options,
    later: Option<usize>,
) -> Result<Case, JobError> {
    let key_groups = options.key_groups.max(options.parallelism_max() as u32);
    let setup = Setup {
        shape: Shape {
            parallelism: later.unwrap_or(options.parallelism),
            key_groups: KeyGroupCount::new(key_groups),
            first: later.map(|_| options.parallelism),
        },
        sink: mode.sink,
        config: JobConfig { state: mode.state, ..options.job_config(mode.mechanism) },
        parameters: mode.parameters.clone(),
    };
    source.case(&CaseData { seed, records: options.records, lines: mode.lines.clone() }, &setup)
}

/// The state at the end of a run beside what the reference has.
struct State {
    cells: Cells,
    expected: Outcome,
    /// The values that the cells should have after what they have taken in.
    of_applied: Option<Cells>,
    /// The rows that are due, where they follow from the order in which records reached the state.
    of_order: Option<ByUid<Rows>>,
    /// What is compared with itself, since nobody can say what it should be.
    doubts: Doubts,
}

impl State {
    fn of(world: &World, case: &Case, last: &[Applied], asked: Asked, claim: Claim) -> Self {
        let cells = cells_of(world);
        let doubts = case.reference.doubts();
        let expected = undisputed(case.reference.run_all(), &doubts, &cells, world, &case.job);
        let is_claimed = asked == Asked::Claims && claim.state == Level::ExactlyOnce;
        let is_right = is_claimed && cells == expected.cells;
        let of_applied = if is_right { None } else { values_of_applied(case, &cells, last) };
        let depends = case.reference.rows_depend_on_order();
        let of_order = if depends { case.reference.run(&records_of(last)) } else { None };
        let of_order = of_order.map(|outcome| outcome.outputs);
        Self { cells, expected, of_applied, of_order, doubts }
    }

    /// The rows that a sink should show.
    fn rows(&self, uid: &str) -> &Rows {
        self.of_order.as_ref().unwrap_or(&self.expected.outputs).get(uid).unwrap_or(&NO_ROWS)
    }
}

/// What all tasks of an attempt have taken into their state.
fn joined<'a>(tasks: impl IntoIterator<Item = &'a Log<Applied>>) -> Vec<Applied> {
    let tasks: Vec<&Log<Applied>> = tasks.into_iter().collect();
    let mut all = Vec::with_capacity(tasks.iter().map(|applied| applied.len()).sum());
    all.extend(tasks.into_iter().flat_map(Log::iter).copied());
    all
}

/// The cells of all tasks that are alive.
fn cells_of(world: &World) -> Cells {
    let mut cells = Cells::new();
    for (task, _) in world.tasks() {
        for (uid, of_operator) in task.stage().cells() {
            if !of_operator.is_empty() {
                of_uid(&mut cells, &uid).extend(of_operator);
            }
        }
    }
    cells
}

fn layout_of(job: &Job) -> Layout {
    let graph = job.graph();
    let channels = graph.channels().iter().map(|channel| (channel.from, channel.to));
    Layout { channels: channels.collect(), tasks: graph.task_count() }
}

/// As [`Plan::sources`].
fn sources_of(case: &Case) -> Vec<(VertexId, OffsetAt)> {
    case.inputs.iter().map(|input| (input.vertex, input.offset_at.clone())).collect()
}

impl Plan {
    /// Plans the layouts that follow this one; the job in each of them. Where state does not lie in
    /// checkpoints there is none.
    fn plan_layouts(
        &mut self,
        seed: u64,
        case_of: impl Fn(usize) -> Result<Case, JobError>,
    ) -> Result<Vec<Job>, JobError> {
        let config = self.job.config();
        let is_dealt_out = match config.mechanism {
            Mechanism::Tracked
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout => !config.state.is_external(),
            Mechanism::None
            | Mechanism::Acks
            | Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Transactional => false,
        };
        let mut jobs = Vec::new();
        for rescale in self.options.rescales.iter().rev().filter(|_| is_dealt_out) {
            let case = case_of(rescale.parallelism)?;
            let graph = case.job.graph();
            let initial = self.deal_first_positions(graph);
            let next = Plan {
                job: case.job.clone(),
                sources: sources_of(&case),
                initial,
                options: self.options.clone(),
                faults: fault::plan(seed.wrapping_add(rescale.at_us), &self.options, graph),
                variant: self.variant,
                events_max: self.events_max,
                next: self.next.take(),
            };
            let at = Instant::from_nanos(1_000 * rescale.at_us);
            self.next = Some(NextLayout { at, stops: rescale.stops, plan: Rc::new(next) });
            jobs.insert(0, case.job);
        }
        Ok(jobs)
    }
}

impl Plan {
    /// What the source tasks of another layout begin with, if they begin at the start: the splits
    /// of this one.
    fn deal_first_positions(&self, other: &PhysicalGraph) -> Vec<Option<SourceState>> {
        let mut dealt = vec![None; other.task_count()];
        for (vertex, _) in &self.sources {
            let first = self.job.graph().tasks_of(*vertex);
            let first: Vec<SourceState> =
                first.filter_map(|task| self.initial[task.index()].clone()).collect();
            let tasks: Vec<TaskId> = other.tasks_of(*vertex).collect();
            for (task, state) in tasks.iter().zip(deal_splits(&first, tasks.len())) {
                dealt[task.index()] = Some(state);
            }
        }
        dealt
    }
}

/// As [`Facts::records`].
fn records_with_effects(case: &Case) -> Vec<(RecordId, u32, u32)> {
    let records = case.inputs.iter().enumerate().flat_map(|(source, input)| {
        (0..input.records).map(move |offset| RecordId { source: source as u32, offset })
    });
    let with_effects = records.map(|record| {
        let effects = case.reference.effects(record);
        (record, effects.state, effects.outputs)
    });
    with_effects.collect()
}

/// What the reference makes of what each cell has taken in; none if it can not say.
fn values_of_applied(case: &Case, cells: &Cells, last: &[Applied]) -> Option<Cells> {
    let mut applied: BTreeMap<u64, Vec<RecordId>> = BTreeMap::new();
    for taken in last {
        applied.entry(taken.cell).or_default().extend(taken.origin.record);
    }
    let vertices = vertices_of(&case.job);
    let mut values = Cells::new();
    for (uid, of_operator) in cells {
        let vertex = vertices[uid.as_str()];
        let value = |key: &Vec<u8>| {
            let taken = applied.get(&cell_hash(vertex, key)).map_or(&[][..], Vec::as_slice);
            Some((key.clone(), case.reference.cell(uid, key, taken)?))
        };
        values.insert(uid.clone(), of_operator.keys().map(value).collect::<Option<_>>()?);
    }
    Some(values)
}

/// Where each operator is.
fn vertices_of(job: &Job) -> BTreeMap<Arc<str>, VertexId> {
    let operators = job
        .graph()
        .vertex_ids()
        .flat_map(|vertex| job.operators(vertex).into_iter().map(move |(uid, _)| (uid, vertex)));
    operators.collect()
}

/// What is expected, with what is in doubt as it was found.
fn undisputed(
    mut expected: Outcome,
    doubts: &Doubts,
    cells: &Cells,
    world: &World,
    job: &Job,
) -> Outcome {
    for uid in &doubts.cells {
        expected.cells.insert(uid.clone(), cells.get(uid).cloned().unwrap_or_default());
    }
    for vertex in job.graph().vertex_ids() {
        let Some((uid, _)) = job.sink(vertex) else { continue };
        let uid = uid.to_string();
        if doubts.rows.contains(&uid) {
            let mut found = Rows::new();
            world.external().visible(vertex).for_each(|row| found.push(&row.bytes));
            expected.outputs.insert(uid.clone(), found);
        }
        if doubts.tables.contains(&uid) {
            let rows = world.external().visible(vertex);
            let keyed =
                rows.filter_map(|row| Some((row.key.as_ref()?.to_vec(), row.bytes.to_vec())));
            expected.tables.insert(uid, keyed.collect());
        }
    }
    expected
}

/// Says nothing of what was seen where that would rest on what is in doubt. It goes by what was
/// seen and not by the claim, and so is the same under every claim.
fn forget_doubtful(levels: &mut Levels, doubts: &Doubts, job: &Job) {
    let seen = Claim {
        state: levels.state.map_or(Level::None, Seen::rests_on),
        output: levels.output.map(Seen::rests_on),
    };
    for (subject, _) in unjudged(doubts, job, seen) {
        match subject {
            Subject::State => levels.state = None,
            Subject::Output => levels.output = None,
        }
    }
}

/// What the claim speaks of and is in doubt.
fn unjudged(doubts: &Doubts, job: &Job, claim: Claim) -> Vec<(Subject, String)> {
    let mut open = Vec::new();
    let mut differs = |subject, what: String| {
        open.push((subject, format!("{what} not the same in all runs without faults")));
    };
    match claim.state {
        Level::ExactlyOnce => {
            for uid in &doubts.cells {
                differs(Subject::State, format!("the state of '{uid}' is"));
            }
        }
        Level::AtLeastOnce if doubts.state_effects => {
            differs(Subject::State, "the records that are taken into the state are".to_owned());
        }
        Level::AtLeastOnce | Level::AtMostOnce | Level::None => (),
    }
    let counts_only = match claim.output {
        Some(Level::ExactlyOnce) => false,
        Some(Level::AtLeastOnce) => true,
        Some(Level::AtMostOnce | Level::None) | None => return open,
    };
    for vertex in job.graph().vertex_ids() {
        let Some((uid, sink)) = job.sink(vertex) else { continue };
        let (in_doubt, what) = match sink.contract() {
            SinkContract::TwoPhase | SinkContract::WriteAhead if !counts_only => {
                (doubts.rows.contains(&**uid), "rows")
            }
            SinkContract::Idempotent if !counts_only => {
                (doubts.tables.contains(&**uid), "last rows of the keys")
            }
            SinkContract::TwoPhase
            | SinkContract::WriteAhead
            | SinkContract::Idempotent
            | SinkContract::Plain
            | SinkContract::Discard => (doubts.output_effects, "records that give rows"),
        };
        if in_doubt {
            differs(Subject::Output, format!("the {what} of '{uid}' are"));
        }
    }
    open
}

fn records_of(applied: &[Applied]) -> Vec<RecordId> {
    applied.iter().filter_map(|applied| applied.origin.record).collect()
}

/// What the sinks show, kept for as long as the judges look at it.
struct Sinks<'a>(Vec<Shown<'a>>);

struct Shown<'a> {
    uid: &'a str,
    contract: SinkContract,
    rows: Vec<RowFact<'a>>,
    expected: Vec<&'a [u8]>,
    expected_table: &'a Table,
    expected_of_attempt: BTreeMap<AttemptId, Vec<&'a [u8]>>,
    given: BTreeMap<Vec<u8>, Given>,
    fired: Option<Fired>,
}

impl<'a> Sinks<'a> {
    fn of(
        world: &'a World,
        job: &'a Job,
        state: &'a State,
        of_attempts: &'a BTreeMap<AttemptId, Outcome>,
    ) -> Self {
        let vertices = job.graph().vertex_ids();
        let sinks = vertices.filter_map(|vertex| Some((vertex, job.sink(vertex)?)));
        let shown = sinks.map(|(vertex, (uid, sink))| {
            let rows = world.external().visible(vertex).map(|row| RowFact {
                origin: row.origin,
                attempt: row.attempt,
                bytes: &row.bytes,
                key: row.key.as_deref(),
            });
            let expected_of_attempt = of_attempts.iter().map(|(attempt, outcome)| {
                (*attempt, outcome.outputs.get(&**uid).unwrap_or(&NO_ROWS).iter().collect())
            });
            Shown {
                contract: sink.contract(),
                rows: rows.collect(),
                expected: state.rows(uid).iter().collect(),
                expected_table: state.expected.tables.get(&**uid).unwrap_or(&NO_TABLE),
                expected_of_attempt: expected_of_attempt.collect(),
                given: BTreeMap::new(),
                fired: None,
                uid,
            }
        });
        Self(shown.collect())
    }

    fn facts(&self) -> Vec<SinkFacts<'_>> {
        let facts = self.0.iter().map(|shown| SinkFacts {
            uid: shown.uid,
            contract: shown.contract,
            rows: &shown.rows,
            expected: &shown.expected,
            expected_table: shown.expected_table,
            expected_of_attempt: &shown.expected_of_attempt,
            given: &shown.given,
            fired: shown.fired.as_ref(),
        });
        facts.collect()
    }
}

static NO_ROWS: Rows = Rows::new();
static NO_TABLE: Table = Table::new();

/// Enough for several checkpoints and few enough for thousands of runs a second.
pub const RECORDS_DEFAULT: usize = 100;
