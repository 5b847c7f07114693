//! What a test runs, and how it is judged.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use cofferdam::connector::memory::Range;
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::id::{AttemptId, VertexId};
use cofferdam::job::Job;
use cofferdam::state::codec;
use cofferdam::trace::{RecordId, Traced};
use cofferdam_sim::decide::Decider;
use cofferdam_sim::fault;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::jobs::OffsetAt;
use cofferdam_sim::log::Log;
use cofferdam_sim::options::{FaultProfile, Options};
use cofferdam_sim::oracle::{
    AppliedFact, Cells, Facts, Judgement, RowFact, SinkFacts, StateFacts, judge,
};
use cofferdam_sim::world::{Applied, Ending, Plan, World, events_max};

use crate::jobs::*;

pub(crate) const RECORDS: u64 = 100;
pub(crate) const SEEDS: u64 = 300;
/// What a test runs.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) mechanism: Mechanism,
    pub(crate) sink: SinkContract,
    pub(crate) make: fn(&Options, Mechanism, SinkContract) -> Job,
    pub(crate) reference: fn(&[u64]) -> Reference,
    /// The job's rows are fired by timers.
    pub(crate) fires: bool,
    /// Whether a number gets to the state at all.
    pub(crate) is_taken: fn(u64) -> bool,
}

/// What a job comes to.
#[derive(Default)]
pub(crate) struct Reference {
    pub(crate) cells: Cells,
    pub(crate) rows: Vec<Vec<u8>>,
}

pub(crate) const COUNTING: Case = Case {
    mechanism: Mechanism::Aligned,
    sink: SinkContract::TwoPhase,
    make: counting,
    reference: counted,
    fires: false,
    is_taken: |_| true,
};

pub(crate) const IN_STAGES: Case = Case { make: counting_in_stages, ..COUNTING };

pub(crate) const IN_HASTE: Case = Case { make: counting_in_haste, ..COUNTING };

pub(crate) const ALARMS: Case = Case { make: alarms, reference: alarmed, fires: true, ..COUNTING };

/// What is run over seeds and judged.
pub(crate) trait Trial: Copy + std::fmt::Display {
    /// Judges the run of a seed.
    fn judge(self, seed: u64, variant: Option<Variant>) -> Judgement;
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.mechanism, self.sink)
    }
}

impl Trial for Case {
    fn judge(self, seed: u64, variant: Option<Variant>) -> Judgement {
        self.judge_world(&self.run(seed, variant))
    }
}
pub(crate) const ECHOES: Case = Case { make: echoes, ..ALARMS };

impl Case {
    pub(crate) fn run(self, seed: u64, variant: Option<Variant>) -> World {
        let options = Options::draw(seed, RECORDS as usize, FaultProfile::Default);
        let job = (self.make)(&options, self.mechanism, self.sink);
        let faults = fault::plan(seed, &options, job.graph());
        let initial = job.discover().unwrap();
        let offset = |cursor: &[u8]| codec::decode::<Range>(cursor).unwrap().next;
        let sources = vec![(VertexId::new(0), Arc::new(offset) as OffsetAt)];
        let plan = Plan {
            job,
            sources,
            initial,
            options,
            faults,
            variant,
            events_max: events_max(RECORDS * 10),
            next: None,
        };
        let mut world = World::new(Rc::new(plan), Decider::new(seed, false));
        world.run();
        world
    }

    /// A record, how often it is taken into state, and how many rows it triggers.
    pub(crate) fn effects(self, offset: u64) -> (RecordId, u32, u32) {
        let effects = if self.fires { 1 } else { keys(offset).count() as u32 };
        let effects = if (self.is_taken)(offset) { effects } else { 0 };
        let rows = if self.fires { 0 } else { effects };
        (RecordId { source: 0, offset }, effects, rows)
    }

    pub(crate) fn judge_world(self, world: &World) -> Judgement {
        let job = &world.plan().job;
        let claim = job.claim().claim();
        let channels: Vec<_> =
            job.graph().channels().iter().map(|channel| (channel.from, channel.to)).collect();
        let mut incarnations: Vec<(AttemptId, Vec<AppliedFact>)> = world
            .incarnations()
            .iter()
            .map(|(attempt, tasks)| (*attempt, applied(tasks)))
            .collect();
        incarnations.push((world.attempt(), applied(world.tasks().map(|(_, of)| of))));
        let whole = (self.reference)(&(0..RECORDS).collect::<Vec<u64>>());
        let rows: Vec<RowFact<'_>> = world
            .external()
            .visible(VertexId::new(1))
            .map(|row| RowFact {
                origin: row.origin,
                attempt: row.attempt,
                bytes: &row.bytes,
                key: row.key.as_deref(),
            })
            .collect();
        // Where records are acknowledged an attempt takes some in again, which gives other rows.
        let is_counted = self.mechanism == Mechanism::None;
        let of_attempt = |(attempt, applied): &(AttemptId, Vec<AppliedFact>)| {
            (*attempt, (self.reference)(&numbers(applied)).rows)
        };
        let of_attempts: BTreeMap<AttemptId, Vec<Vec<u8>>> =
            incarnations.iter().filter(|_| is_counted).map(of_attempt).collect();
        let expected_of_attempt =
            of_attempts.iter().map(|(of, rows)| (*of, slices(rows))).collect();
        let empty = BTreeMap::new();
        let sinks = [SinkFacts {
            uid: "out",
            contract: self.sink,
            rows: &rows,
            expected: &slices(&whole.rows),
            expected_table: &empty,
            expected_of_attempt: &expected_of_attempt,
            given: &BTreeMap::new(),
            fired: None,
        }];
        let trace: Vec<Traced> = world.trace().to_vec();
        judge(&Facts {
            trace: &trace,
            control: &trace,
            channels: &channels,
            tasks: job.graph().task_count(),
            layouts: &[],
            mechanism: self.mechanism,
            state_promise: claim.state,
            state_claim: claim.state,
            output_claim: claim.output,
            state_is_idempotent: false,
            is_finished: world.is_done(),
            faults_stop: world.faults_stop(),
            trigger_delay_max: world.trigger_delay_max(),
            concurrent_max: job.config().checkpoints_concurrent,
            failure: failure_of(world),
            state: StateFacts {
                incarnations: &incarnations,
                cells: &cells_of(world),
                expected: &whole.cells,
                expected_of_applied: None,
            },
            sinks: &sinks,
            records: &(0..RECORDS).map(|offset| self.effects(offset)).collect::<Vec<_>>(),
            is_state_right: OnceCell::new(),
        })
    }
}

fn failure_of(world: &World) -> Option<String> {
    match world.ending() {
        Some(Ending::Failed(error)) => Some(error.to_string()),
        Some(Ending::Finished | Ending::Stopped | Ending::Stuck) | None => None,
    }
}

pub(crate) fn cells_of(world: &World) -> Cells {
    let mut cells = Cells::new();
    for (uid, found) in world.tasks().flat_map(|(task, _)| task.stage().cells()) {
        if !found.is_empty() {
            cells.entry(uid.to_string()).or_default().extend(found);
        }
    }
    cells
}

pub(crate) fn applied<'a>(tasks: impl IntoIterator<Item = &'a Log<Applied>>) -> Vec<AppliedFact> {
    let all = tasks.into_iter().flat_map(Log::iter);
    all.map(|Applied { origin, cell }| AppliedFact { origin: *origin, cell: *cell }).collect()
}

/// The numbers that an attempt has taken in at all: no row comes from any other.
pub(crate) fn numbers(applied: &[AppliedFact]) -> Vec<u64> {
    let offsets: BTreeSet<u64> =
        applied.iter().filter_map(|fact| Some(fact.origin.record?.offset)).collect();
    offsets.into_iter().collect()
}

/// The judges that find something against the claims within the seeds, or until `wanted` does, with
/// the first seed and what is said of it.
pub(crate) fn refuted(
    case: impl Trial,
    variant: Option<Variant>,
    wanted: Option<&str>,
) -> BTreeMap<&'static str, (u64, String)> {
    let mut refuted = BTreeMap::new();
    for seed in 0..SEEDS {
        for finding in case.judge(seed, variant).violations() {
            refuted.entry(finding.oracle).or_insert_with(|| (seed, finding.text.clone()));
        }
        if wanted.is_some_and(|oracle| refuted.contains_key(oracle)) {
            break;
        }
    }
    refuted
}

#[track_caller]
pub(crate) fn assert_held(case: impl Trial) {
    let refuted = refuted(case, None, None);
    assert!(refuted.is_empty(), "{refuted:?}");
}

#[track_caller]
pub(crate) fn assert_caught(case: impl Trial, variant: Variant, oracle: &str) {
    let refuted = refuted(case, Some(variant), Some(oracle));
    assert!(refuted.contains_key(oracle), "{variant} is not caught by {oracle}: {refuted:?}");
    // The seeds in docs/MUTANTS.md come from here.
    let seeds: Vec<_> = refuted.iter().map(|(oracle, (seed, _))| (oracle, seed)).collect();
    println!("{variant}: {seeds:?}");
    tell_median(case, variant, oracle);
}

/// Both judges of delivery catch it.
#[track_caller]
pub(crate) fn assert_caught_by_delivery(case: impl Trial, variant: Variant) {
    assert_caught(case, variant, "state-delivery");
    assert_caught(case, variant, "output-delivery");
}

/// As [`assert_caught`], up to the first seed: runs that come to no end take long.
#[track_caller]
pub(crate) fn assert_caught_at_once(case: impl Trial, variant: Variant, oracle: &str) {
    let seed = first_caught(case, variant, oracle, 0);
    assert!(seed.is_some(), "{variant} is not caught by {oracle}");
    println!("{variant}: [({oracle:?}, {seed:?})]");
    tell_median(case, variant, oracle);
}

fn slices(rows: &[Vec<u8>]) -> Vec<&[u8]> {
    rows.iter().map(Vec::as_slice).collect()
}
/// The first seed from `start` on at which the judge speaks, of as many as a test tries.
fn first_caught(case: impl Trial, variant: Variant, oracle: &str, start: u64) -> Option<u64> {
    (start..start + SEEDS).find(|seed| {
        let judgement = case.judge(*seed, Some(variant));
        judgement.violations().any(|finding| finding.oracle == oracle)
    })
}

/// If it is asked for, says how many seeds it takes until the judge speaks: the median over
/// starting points that lie apart. Those in docs/MUTANTS.md come from here.
fn tell_median(case: impl Trial, variant: Variant, oracle: &str) {
    if std::env::var_os("COFFERDAM_MEDIANS").is_none() {
        return;
    }
    let mut caught = None;
    let takes = (0..STARTS).map(|start| start * APART).map(|start| {
        if caught.is_none_or(|seed| seed < start) {
            caught = first_caught(case, variant, oracle, start);
        }
        caught.map_or(u64::MAX, |seed| seed - start + 1)
    });
    let mut takes: Vec<u64> = takes.collect();
    takes.sort_unstable();
    let median = match takes[takes.len() / 2] {
        u64::MAX => format!("over {SEEDS}"),
        seeds => seeds.to_string(),
    };
    println!("median of {variant}, {case}, {oracle}: {median}");
}

const STARTS: u64 = 21;
const APART: u64 = 50;

/// As [`assert_caught`], of a job that is broken itself.
#[track_caller]
pub(crate) fn assert_speaks(case: impl Trial, oracle: &str) {
    let refuted = refuted(case, None, Some(oracle));
    assert!(refuted.contains_key(oracle), "it is not caught by {oracle}: {refuted:?}");
    let seeds: Vec<_> = refuted.iter().map(|(oracle, (seed, _))| (oracle, seed)).collect();
    println!("{case}: {seeds:?}");
}
