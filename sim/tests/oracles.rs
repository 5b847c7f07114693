//! The judges over whole simulated runs: they are content with the engine as it is, and each broken
//! variant of the protocol is caught by the judge whose rule it breaks.

#![expect(clippy::unwrap_used, reason = "a test says by its name what failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::config::JobConfig;
use cofferdam::connector::log::TruncatedLog;
use cofferdam::connector::memory::{Collect, CollectTransactions, Range, VecSource};
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::coordinator::JobError;
use cofferdam::element::Record;
use cofferdam::guarantee::{Level, Mechanism, SinkContract, StateHome};
use cofferdam::id::{AttemptId, TransactionId, VertexId};
use cofferdam::job::{Job, JobBuilder, Stream};
use cofferdam::operator::Emit;
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::sink::{
    CommitError, Committed, SinkError, TransactionalSink, WriteAheadSink,
};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::state::codec;
use cofferdam::state::key_group::KeyGroupCount;
use cofferdam::time::{EventTime, Instant};
use cofferdam::trace::{RecordId, TraceEvent, Traced};
use cofferdam_sim::decide::Decider;
use cofferdam_sim::fault;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::jobs::OffsetAt;
use cofferdam_sim::log::Log;
use cofferdam_sim::options::{FaultProfile, Options};
use cofferdam_sim::oracle::{
    AppliedFact, Cells, Facts, Judgement, RowFact, SinkFacts, StateFacts, Verdict, judge,
};
use cofferdam_sim::world::{Applied, Ending, Plan, World, events_max};

const RECORDS: u64 = 100;
const SEEDS: u64 = 300;

/// What a test runs.
#[derive(Clone, Copy)]
struct Case {
    mechanism: Mechanism,
    sink: SinkContract,
    make: fn(&Options, Mechanism, SinkContract) -> Job,
    reference: fn(&[u64]) -> Reference,
    /// The job's rows are fired by timers.
    fires: bool,
}

/// What a job comes to.
#[derive(Default)]
struct Reference {
    cells: Cells,
    rows: Vec<Vec<u8>>,
}

const COUNTING: Case = Case {
    mechanism: Mechanism::Aligned,
    sink: SinkContract::TwoPhase,
    make: counting,
    reference: counted,
    fires: false,
};

const IN_STAGES: Case = Case { make: counting_in_stages, ..COUNTING };

const IN_HASTE: Case = Case { make: counting_in_haste, ..COUNTING };

const ALARMS: Case = Case { make: alarms, reference: alarmed, fires: true, ..COUNTING };

/// A write-ahead sink; the simulator's model stands in its place.
#[derive(Clone)]
struct Sent<T> {
    is_idempotent: bool,
    rows: PhantomData<fn(T)>,
}

impl<T: Record> WriteAheadSink for Sent<T> {
    type Record = T;

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    fn send(&mut self, _id: TransactionId, _rows: Vec<T>) -> Result<(), SinkError> {
        Ok(())
    }

    fn mark(&mut self, _id: TransactionId) -> Result<(), SinkError> {
        Ok(())
    }

    fn is_marked(&mut self, _id: TransactionId) -> Result<bool, SinkError> {
        Ok(false)
    }
}

/// A two-phase sink whose transactions time out; the simulator's model stands in its place.
#[derive(Clone)]
struct ShortLived<T: Record>(CollectTransactions<T>);

impl<T: Record> TransactionalSink for ShortLived<T> {
    type Record = T;

    fn write(&mut self, id: TransactionId, rows: Vec<T>) -> Result<(), SinkError> {
        self.0.write(id, rows)
    }

    fn prepare(&mut self, id: TransactionId) -> Result<(), SinkError> {
        self.0.prepare(id)
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(3))
    }

    fn commit(&mut self, id: TransactionId) -> Result<Committed, CommitError> {
        self.0.commit(id)
    }

    fn abort_dangling(&mut self) -> Result<(), SinkError> {
        self.0.abort_dangling()
    }
}

/// The keys that a number is counted under.
fn keys(number: u64) -> impl Iterator<Item = u64> {
    [Some(number % 7), number.is_multiple_of(3).then_some(number % 5)].into_iter().flatten()
}

fn counting(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    counting_into(options, options.job_config(mechanism), sink, true)
}

/// As [`counting`], over a log that drops its oldest records.
fn counting_a_log(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let log = TruncatedLog::from(Arc::new((0..RECORDS).collect()));
    count(
        |builder| builder.source("numbers", log),
        options,
        options.job_config(mechanism),
        sink,
        true,
    )
}

/// As [`counting`], over queues.
fn counting_queues(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers: Vec<u64> = (0..RECORDS).collect();
    let queues = MemoryQueue::new(&numbers, options.parallelism);
    count(
        |builder| builder.queue("numbers", queues),
        options,
        options.job_config(mechanism),
        sink,
        true,
    )
}

/// As [`counting`]; what its write-ahead sink sends twice is visible twice.
fn counting_and_resending(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    counting_into(options, options.job_config(mechanism), sink, false)
}

/// As [`counting`], over a store of keyed state that rolls nothing back.
fn counting_outside(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let config = JobConfig { state: StateHome::External, ..options.job_config(mechanism) };
    counting_into(options, config, sink, true)
}

/// As [`counting`], over one that rolls back with the checkpoint.
fn counting_rolled_back(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let state = StateHome::ExternalTransactional;
    counting_into(options, JobConfig { state, ..options.job_config(mechanism) }, sink, true)
}

/// As [`counting`], with tasks that write and one that commits.
fn counting_in_stages(options: &Options, mechanism: Mechanism, _sink: SinkContract) -> Job {
    let builder = builder("counting", options);
    counts(from_memory(&builder)).two_stage_sink("out", CollectTransactions::default());
    builder.build(options.job_config(mechanism)).unwrap()
}

/// As [`counting`], where the external system does not wait long for a commit.
fn counting_in_haste(options: &Options, mechanism: Mechanism, _sink: SinkContract) -> Job {
    let builder = builder("counting", options);
    counts(from_memory(&builder))
        .transactional_sink("out", ShortLived(CollectTransactions::default()));
    builder.build(options.job_config(mechanism)).unwrap()
}

fn builder(name: &str, options: &Options) -> JobBuilder {
    let builder = JobBuilder::new(name, options.parallelism);
    builder.key_groups(KeyGroupCount::new(options.key_groups).unwrap());
    builder
}

fn counts(numbers: Stream<Pass<u64>>) -> Stream<impl Segment<Out = (u64, u64)>> {
    numbers
        .flat_map("keys", |number: u64, out| keys(number).for_each(|key| out.emit(key)))
        .key_by(|key| *key)
        .aggregate("count", 0u64, |count: &mut u64, _| *count += 1)
}

fn counting_into(
    options: &Options,
    config: JobConfig,
    sink: SinkContract,
    is_idempotent: bool,
) -> Job {
    count(from_memory, options, config, sink, is_idempotent)
}

fn from_memory(builder: &JobBuilder) -> Stream<Pass<u64>> {
    builder.source("numbers", VecSource::new((0..RECORDS).collect()))
}

fn count(
    begin: impl FnOnce(&JobBuilder) -> Stream<Pass<u64>>,
    options: &Options,
    config: JobConfig,
    sink: SinkContract,
    is_idempotent: bool,
) -> Job {
    let builder = builder("counting", options);
    let counts = counts(begin(&builder));
    match sink {
        SinkContract::TwoPhase => {
            counts.transactional_sink("out", CollectTransactions::default());
        }
        SinkContract::WriteAhead => {
            counts.write_ahead_sink("out", Sent { is_idempotent, rows: PhantomData });
        }
        SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
            counts.sink("out", Collect::default());
        }
    }
    builder.build(config).unwrap()
}

fn counted(numbers: &[u64]) -> Reference {
    let mut reference = Reference::default();
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    for key in numbers.iter().flat_map(|number| keys(*number)) {
        let count = counts.entry(key).or_default();
        *count += 1;
        reference.rows.push(codec::encode(&(key, *count)));
    }
    let cells = counts.iter().map(|(key, count)| (codec::encode(key), codec::encode(count)));
    reference.cells = Cells::from([("count".to_owned(), cells.collect())]);
    reference
}

/// Remembers a number of each key until event time has passed it by, then says so.
#[derive(Clone)]
struct Alarm;

impl KeyedProcess for Alarm {
    type Key = u64;
    type In = u64;
    type State = BTreeSet<u64>;
    type Out = u64;

    fn process(
        &mut self,
        number: u64,
        context: &mut KeyedContext<'_, u64, BTreeSet<u64>>,
        _out: &mut impl Emit<u64>,
    ) {
        context.state().get_or_insert_default().insert(number);
        context.register_timer(due(number));
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, u64, BTreeSet<u64>>,
        out: &mut impl Emit<u64>,
    ) {
        let Some(numbers) = context.state() else { return };
        let fired: Vec<u64> = numbers.iter().copied().filter(|n| due(*n) == time).collect();
        for number in fired {
            numbers.remove(&number);
            out.emit(number);
        }
        if numbers.is_empty() {
            *context.state() = None;
        }
    }
}

fn due(number: u64) -> EventTime {
    EventTime::from_millis(number as i64 + 15)
}

/// Gives the first half of the numbers only when it was asked many times.
#[derive(Clone)]
struct Hesitant {
    numbers: VecSource<u64>,
    refusals: u32,
}

impl Source for Hesitant {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        if split.next < RECORDS / 2 && self.refusals > 0 {
            self.refusals -= 1;
            return Ok(Fetch::Nothing);
        }
        self.numbers.read(split, records_max)
    }
}

fn time_of(number: &u64) -> EventTime {
    EventTime::from_millis(*number as i64)
}

fn alarms(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let begin = |builder: &JobBuilder| {
        builder.source_with_event_time("numbers", numbers, time_of, Duration::ZERO)
    };
    alarms_from(begin, options, mechanism, sink)
}

/// As [`alarms`], where some subtasks have nothing for long.
fn alarms_from_idle(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let numbers = VecSource::new((0..RECORDS).collect());
    let source = Hesitant { numbers, refusals: 40 };
    let begin = |builder: &JobBuilder| {
        builder.source_that_may_idle("numbers", source, time_of, Duration::ZERO, 3)
    };
    alarms_from(begin, options, mechanism, sink)
}

fn alarms_from(
    begin: impl FnOnce(&JobBuilder) -> Stream<Pass<u64>>,
    options: &Options,
    mechanism: Mechanism,
    sink: SinkContract,
) -> Job {
    let builder = builder("alarms", options);
    let fired = begin(&builder).key_by(|number| number % 7).process("alarm", Alarm);
    match sink {
        SinkContract::TwoPhase => fired.transactional_sink("out", CollectTransactions::default()),
        SinkContract::WriteAhead => {
            fired.write_ahead_sink("out", Sent { is_idempotent: true, rows: PhantomData });
        }
        SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => {
            fired.sink("out", Collect::default());
        }
    }
    builder.build(options.job_config(mechanism)).unwrap()
}

fn alarmed(numbers: &[u64]) -> Reference {
    let numbers: BTreeSet<&u64> = numbers.iter().collect();
    let rows = numbers.into_iter().map(codec::encode).collect();
    Reference { cells: BTreeMap::new(), rows }
}

impl Case {
    fn run(self, seed: u64, variant: Option<Variant>) -> World {
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
        };
        let mut world = World::new(Rc::new(plan), Decider::new(seed, false));
        world.run();
        world
    }

    /// Judges the run of a seed.
    fn judge(self, seed: u64, variant: Option<Variant>) -> Judgement {
        self.judge_world(&self.run(seed, variant))
    }

    /// A record, how often it is taken into state, and how many rows it triggers.
    fn effects(self, offset: u64) -> (RecordId, u32, u32) {
        let effects = if self.fires { 1 } else { keys(offset).count() as u32 };
        let rows = if self.fires { 0 } else { effects };
        (RecordId { source: 0, offset }, effects, rows)
    }

    fn judge_world(self, world: &World) -> Judgement {
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
            of_attempts.iter().map(|(of, rows)| (*of, rows.as_slice())).collect();
        let empty = BTreeMap::new();
        let sinks = [SinkFacts {
            uid: "out",
            contract: self.sink,
            rows: &rows,
            expected: &whole.rows,
            expected_table: &empty,
            expected_of_attempt: &expected_of_attempt,
        }];
        let records: Vec<_> = (0..RECORDS).map(|offset| self.effects(offset)).collect();
        let failure = match world.ending() {
            Some(Ending::Failed(error)) => Some(error.to_string()),
            Some(Ending::Finished | Ending::Stuck) | None => None,
        };
        let trace: Vec<Traced> = world.trace().to_vec();
        judge(&Facts {
            trace: &trace,
            control: &trace,
            channels: &channels,
            tasks: job.graph().task_count(),
            mechanism: self.mechanism,
            state_claim: claim.state,
            output_claim: claim.output,
            state_is_idempotent: false,
            is_finished: world.ending() == Some(&Ending::Finished),
            faults_stop: world.faults_stop(),
            trigger_delay_max: world.trigger_delay_max(),
            failure,
            state: StateFacts {
                incarnations: &incarnations,
                cells: &cells_of(world),
                expected: &whole.cells,
                expected_of_applied: None,
            },
            sinks: &sinks,
            records: &records,
        })
    }
}

fn cells_of(world: &World) -> Cells {
    let mut cells = Cells::new();
    for (uid, found) in world.tasks().flat_map(|(task, _)| task.stage().cells()) {
        if !found.is_empty() {
            cells.entry(uid.to_string()).or_default().extend(found);
        }
    }
    cells
}

fn applied<'a>(tasks: impl IntoIterator<Item = &'a Log<Applied>>) -> Vec<AppliedFact> {
    let all = tasks.into_iter().flat_map(Log::iter);
    all.map(|Applied { origin, cell }| AppliedFact { origin: *origin, cell: *cell }).collect()
}

/// The numbers that an attempt has taken in at all: no row comes from any other.
fn numbers(applied: &[AppliedFact]) -> Vec<u64> {
    let offsets: BTreeSet<u64> =
        applied.iter().filter_map(|fact| Some(fact.origin.record?.offset)).collect();
    offsets.into_iter().collect()
}

/// The judges that find something against the claims within the seeds, or until `wanted` does, with
/// the first seed and what is said of it.
fn refuted(
    case: Case,
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
fn assert_held(case: Case) {
    let refuted = refuted(case, None, None);
    assert!(refuted.is_empty(), "{refuted:?}");
}

#[track_caller]
fn assert_caught(case: Case, variant: Variant, oracle: &str) {
    let refuted = refuted(case, Some(variant), Some(oracle));
    assert!(refuted.contains_key(oracle), "{variant} is not caught by {oracle}: {refuted:?}");
    // The seeds in docs/MUTANTS.md come from here.
    let seeds: Vec<_> = refuted.iter().map(|(oracle, (seed, _))| (oracle, seed)).collect();
    println!("{variant}: {seeds:?}");
}

/// As [`assert_caught`], up to the first seed: runs that come to no end take long.
#[track_caller]
fn assert_caught_at_once(case: Case, variant: Variant, oracle: &str) {
    let speaks = |seed: &u64| {
        let judgement = case.judge(*seed, Some(variant));
        judgement.violations().any(|finding| finding.oracle == oracle)
    };
    let seed = (0..SEEDS).find(speaks);
    assert!(seed.is_some(), "{variant} is not caught by {oracle}");
    println!("{variant}: [({oracle:?}, {seed:?})]");
}

#[test]
fn aligned_checkpoints_and_transactions_are_exactly_once() {
    for case in [COUNTING, ALARMS] {
        assert_held(case);
        let judgement = case.judge(0, None);
        assert_eq!(judgement.state_level, Level::ExactlyOnce);
        assert_eq!(judgement.output_level, Some(Level::ExactlyOnce));
        assert_eq!((judgement.state, judgement.output), (Verdict::Held, Some(Verdict::Held)));
    }
}

#[test]
fn barriers_that_overtake_are_exactly_once() {
    for mechanism in [Mechanism::Unaligned, Mechanism::AlignedTimeout] {
        for case in [COUNTING, ALARMS] {
            assert_held(Case { mechanism, ..case });
        }
    }
}

#[test]
fn plain_sinks_show_some_rows_twice_as_their_claim_says() {
    let plain = |case| Case { sink: SinkContract::Plain, ..case };
    assert_held(plain(COUNTING));
    assert_held(plain(ALARMS));
    let judgement = plain(COUNTING).judge(1, None);
    assert!(judgement.duplicated > 0 && judgement.lost == 0);
    assert_eq!(judgement.output_level, Some(Level::AtLeastOnce));
}

#[test]
fn rule_073_logged_rows_are_exactly_once_if_sending_them_again_changes_nothing() {
    for case in [COUNTING, ALARMS] {
        assert_held(Case { sink: SinkContract::WriteAhead, ..case });
    }
}

#[test]
fn rule_074_rows_that_are_sent_again_show_twice_unless_the_send_is_idempotent() {
    let case = Case { sink: SinkContract::WriteAhead, make: counting_and_resending, ..COUNTING };
    assert_held(case);
    let repeats = (0..SEEDS).any(|seed| case.judge(seed, None).duplicated > 0);
    assert!(repeats, "no seed has a crash between a send and its mark");
}

#[test]
fn full_replay_is_exact_in_state_and_as_its_sink_in_output() {
    let full = |case, sink| Case { mechanism: Mechanism::FullReplay, sink, ..case };
    for case in [COUNTING, ALARMS] {
        assert_held(full(case, SinkContract::Plain));
        assert_held(full(case, SinkContract::TwoPhase));
    }
    let plain = full(COUNTING, SinkContract::Plain);
    assert!((0..SEEDS).any(|seed| plain.judge(seed, None).duplicated > 0));
}

#[test]
fn mini_batches_lose_what_earlier_ones_left_in_the_state() {
    let batches = Case { mechanism: Mechanism::MiniBatch, ..COUNTING };
    assert_held(batches);
    let judgement = batches.judge(1, None);
    assert_eq!((judgement.state_level, judgement.stuck), (Level::AtMostOnce, false));
    assert!(judgement.lost > 0);
}

#[test]
fn state_outside_counts_again_what_is_replayed_unless_it_rolls_back() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::FullReplay] {
        let outside = Case { mechanism, make: counting_outside, ..COUNTING };
        assert_held(outside);
        let repeats = (0..SEEDS).map(|seed| outside.judge(seed, None));
        let mut repeats = repeats.filter(|judgement| judgement.state_level == Level::AtLeastOnce);
        assert!(repeats.next().is_some(), "no seed replays into {mechanism}");
        assert_held(Case { make: counting_rolled_back, ..outside });
    }
}

#[test]
fn state_outside_whose_numbers_begin_anew_is_rolled_back_to_another_moment() {
    let case = Case { make: counting_rolled_back, ..COUNTING };
    assert_caught(case, Variant::StateNumberedAnew, "state-delivery");
}

#[test]
fn a_barrier_of_one_input_that_stands_for_all_is_caught() {
    assert_caught(COUNTING, Variant::BarrierForAll, "border");
    assert_caught(COUNTING, Variant::BarrierForAll, "state-delivery");
}

#[test]
fn rule_077_a_position_that_is_not_in_step_with_what_was_handed_out_is_caught() {
    for variant in [Variant::PositionAheadOfBarrier, Variant::PositionBeforeLastRead] {
        assert_caught(COUNTING, variant, "state-delivery");
        assert_caught(COUNTING, variant, "output-delivery");
    }
}

#[test]
fn a_source_that_does_not_heed_its_triggers_is_caught_by_what_never_completes() {
    for variant in
        [Variant::EndedSourceSilent, Variant::FirstTriggerUnanswered, Variant::TriggerAwaitsRecord]
    {
        assert_caught_at_once(COUNTING, variant, "liveness");
    }
}

#[test]
fn a_source_that_heeds_its_triggers_late_is_caught_by_the_time_it_takes() {
    assert_caught_at_once(COUNTING, Variant::TriggerAwaitsEnd, "prompt");
}

#[test]
fn tracked_checkpoints_repeat_some_records_as_their_claim_says() {
    for sink in [SinkContract::Plain, SinkContract::TwoPhase] {
        let tracked = |case| Case { mechanism: Mechanism::Tracked, sink, ..case };
        assert_held(tracked(COUNTING));
        assert_held(tracked(ALARMS));
    }
    let tracked = Case { mechanism: Mechanism::Tracked, ..ALARMS };
    let orphans = (0..SEEDS).any(|seed| {
        let findings = tracked.judge(seed, None).findings;
        findings.iter().any(|finding| finding.oracle == "consistent-cut" && finding.allowed)
    });
    assert!(orphans, "no seed has an orphan");
}

#[test]
fn without_checkpoints_some_records_are_lost_and_none_repeated() {
    for case in [COUNTING, ALARMS] {
        assert_held(Case { mechanism: Mechanism::None, sink: SinkContract::Plain, ..case });
    }
}

const ACKNOWLEDGED: Case =
    Case { mechanism: Mechanism::Acks, sink: SinkContract::Plain, ..COUNTING };

#[test]
fn rule_082_acknowledged_records_are_all_there_and_some_are_there_twice() {
    assert_held(ACKNOWLEDGED);
    let judgement = ACKNOWLEDGED.judge(1, None);
    assert_eq!(judgement.output, Some(Verdict::Held));
    assert!(judgement.duplicated > 0);
}

#[test]
fn rule_082_an_acknowledgement_before_the_flush_is_caught() {
    assert_caught(ACKNOWLEDGED, Variant::AcknowledgeBeforeFlushed, "output-delivery");
}

#[test]
fn rule_082_a_tree_that_is_done_while_a_part_of_it_is_open_is_caught() {
    assert_caught(ACKNOWLEDGED, Variant::TreeCutShort, "output-delivery");
}

#[test]
fn rule_082_a_doubled_word_that_ends_a_tree_with_an_open_part_is_caught() {
    assert_caught(ACKNOWLEDGED, Variant::DoubledWordEndsTree, "output-delivery");
}

#[test]
fn rule_082_a_position_behind_what_is_not_acknowledged_is_caught() {
    assert_caught(ACKNOWLEDGED, Variant::PositionBehindOpenReads, "output-delivery");
}

const TRANSACTIONAL: Case = Case { mechanism: Mechanism::Transactional, ..COUNTING };

#[test]
fn transactional_updates_are_exactly_once_whatever_the_sink() {
    let sinks = [SinkContract::TwoPhase, SinkContract::WriteAhead, SinkContract::Plain];
    for sink in sinks {
        assert_held(Case { sink, ..TRANSACTIONAL });
    }
    assert_held(Case { mechanism: Mechanism::Transactional, ..ALARMS });
}

#[test]
fn what_is_sent_before_it_is_durable_is_caught() {
    assert_caught(TRANSACTIONAL, Variant::AcknowledgeBeforeStored, "progress");
}

#[test]
fn productions_that_are_not_kept_are_caught_where_they_are_lost() {
    assert_caught(TRANSACTIONAL, Variant::InFlightLeftOut, "liveness");
    assert_caught(TRANSACTIONAL, Variant::ForgottenEarly, "liveness");
}

#[test]
fn records_that_are_taken_in_twice_are_caught() {
    assert_caught(TRANSACTIONAL, Variant::NumbersStale, "progress");
    assert_caught(TRANSACTIONAL, Variant::NumbersStale, "state-delivery");
}

#[test]
fn a_write_without_timers_is_caught() {
    let alarms = Case { mechanism: Mechanism::Transactional, ..ALARMS };
    assert_caught(alarms, Variant::TimersLeftOut, "progress");
}

#[test]
fn a_write_without_transactions_is_caught() {
    assert_caught(TRANSACTIONAL, Variant::TransactionsLeftOut, "two-phase");
}

#[test]
fn a_write_with_positions_of_an_earlier_one_is_caught() {
    assert_caught(TRANSACTIONAL, Variant::PositionsStale, "progress");
}

#[test]
fn a_barrier_that_is_not_aligned_is_caught_at_the_border_and_in_the_cut() {
    assert_caught(ALARMS, Variant::BarrierNotAligned, "border");
    assert_caught(ALARMS, Variant::BarrierNotAligned, "consistent-cut");
}

#[test]
fn a_commit_at_the_snapshot_is_caught() {
    assert_caught(COUNTING, Variant::CommitAtSnapshot, "two-phase");
}

#[test]
fn an_acknowledgement_before_the_store_has_written_is_caught() {
    assert_caught(COUNTING, Variant::AcknowledgeBeforeStored, "durable-before-ack");
}

#[test]
fn timers_that_are_left_out_are_caught_when_a_task_begins_without_them() {
    assert_caught(ALARMS, Variant::TimersLeftOut, "recovery");
    assert_caught(ALARMS, Variant::TimersLeftOut, "output-delivery");
}

#[test]
fn positions_that_are_left_out_are_caught_by_the_records_that_are_lost() {
    assert_caught(COUNTING, Variant::PositionsLeftOut, "state-delivery");
    assert_caught(COUNTING, Variant::PositionsLeftOut, "output-delivery");
}

#[test]
fn positions_of_another_checkpoint_are_caught_by_what_the_state_has_taken_in() {
    assert_caught(COUNTING, Variant::PositionsStale, "state-delivery");
    assert_caught(COUNTING, Variant::PositionsStale, "output-delivery");
}

const FROM_IDLE: Case = Case { make: alarms_from_idle, ..ALARMS };

/// When the first timer has fired, and its row is written.
fn first_row(world: &World) -> Option<Traced> {
    let is_row = |traced: &&Traced| matches!(traced.event, TraceEvent::Written { .. });
    world.trace().iter().find(is_row).copied()
}

#[test]
fn an_idle_source_holds_back_neither_event_time_nor_checkpoints() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned] {
        assert_held(Case { mechanism, ..FROM_IDLE });
    }
    // A source that hesitates is asked again for so long; by then the others have fired timers, and
    // checkpoints are complete.
    let early = Instant::from_nanos(40 * 100_000);
    let worlds = (0..SEEDS).map(|seed| FROM_IDLE.run(seed, None));
    let mut alone = worlds.filter(|world| world.plan().options.parallelism > 1);
    assert!(alone.any(|world| {
        let is_complete = |traced: &Traced| matches!(traced.event, TraceEvent::Completed { .. });
        first_row(&world).is_some_and(|row| row.at < early)
            && world.trace().iter().any(|traced| is_complete(traced) && traced.at < early)
    }));
}

const FROM_A_LOG: Case = Case { make: counting_a_log, ..COUNTING };

#[test]
fn a_log_that_drops_records_ends_a_job_that_needs_them_and_the_report_names_them() {
    assert_held(FROM_A_LOG);
    let reports = (0..SEEDS).filter_map(|seed| match FROM_A_LOG.run(seed, None).ending() {
        Some(Ending::Failed(error @ JobError::Lost { .. })) => Some(error.to_string()),
        Some(Ending::Failed(_) | Ending::Finished | Ending::Stuck) | None => None,
    });
    let reports: Vec<String> = reports.collect();
    assert!(reports.len() > 5, "{reports:?}");
    assert!(reports[0].contains("of split-"), "{}", reports[0]);
}

#[test]
fn a_gap_in_a_log_that_is_skipped_silently_is_caught() {
    assert_caught(FROM_A_LOG, Variant::GapSkipped, "state-delivery");
    assert_caught(FROM_A_LOG, Variant::GapSkipped, "output-delivery");
}

const FROM_QUEUES: Case = Case { make: counting_queues, ..COUNTING };

#[test]
fn rule_079_messages_that_queues_give_out_again_count_once() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned] {
        assert_held(Case { mechanism, ..FROM_QUEUES });
    }
    let plain = Case { sink: SinkContract::Plain, ..FROM_QUEUES };
    assert_held(Case { mechanism: Mechanism::Tracked, ..plain });
    assert_held(Case { mechanism: Mechanism::None, ..plain });
    assert!((0..SEEDS).any(|seed| plain.judge(seed, None).duplicated > 0));
}

#[test]
fn rule_079_messages_that_are_acknowledged_too_early_are_caught() {
    for variant in [
        Variant::AcknowledgedWhenEmitted,
        Variant::AcknowledgedBeyondCheckpoint,
        Variant::AcknowledgedByTime,
        Variant::WaiterOutlivesAttempt,
    ] {
        assert_caught(FROM_QUEUES, variant, "state-delivery");
        assert_caught(FROM_QUEUES, variant, "output-delivery");
    }
}

#[test]
fn rule_079_messages_that_come_again_and_are_not_known_are_caught() {
    for variant in [
        Variant::IdsResetAtOpen,
        Variant::IdsLeftOut,
        Variant::ConfirmedUnheard,
        Variant::RedeliveredUnderNewId,
    ] {
        assert_caught(FROM_QUEUES, variant, "state-delivery");
    }
}

#[test]
fn rule_079_known_messages_that_are_not_acknowledged_block_the_queue_and_are_caught() {
    assert_caught(FROM_QUEUES, Variant::RestoredNotAcknowledged, "liveness");
}

#[test]
fn logged_rows_that_are_left_out_of_snapshots_are_caught() {
    let case = Case { sink: SinkContract::WriteAhead, ..COUNTING };
    assert_caught(case, Variant::LogLeftOut, "recovery");
    assert_caught(case, Variant::LogLeftOut, "write-ahead");
    assert_caught(case, Variant::LogLeftOut, "output-delivery");
}

#[test]
fn rule_062_transactions_that_are_left_out_of_snapshots_are_caught() {
    assert_caught(COUNTING, Variant::TransactionsLeftOut, "recovery");
    assert_caught(COUNTING, Variant::TransactionsLeftOut, "output-delivery");
}

#[test]
fn rule_062_an_acknowledgement_before_the_prepare_is_caught() {
    assert_caught(COUNTING, Variant::PreparedUnseen, "two-phase");
}

#[test]
fn rule_063_a_commit_that_fails_and_is_taken_for_done_is_caught() {
    assert_caught(COUNTING, Variant::CommitErrorSwallowed, "two-phase");
    assert_caught(COUNTING, Variant::CommitErrorSwallowed, "output-delivery");
}

#[test]
fn rule_064_a_commit_that_is_not_idempotent_is_caught() {
    assert_caught(COUNTING, Variant::RepeatedEffect, "output-delivery");
    let logged = Case { sink: SinkContract::WriteAhead, ..COUNTING };
    assert_caught(logged, Variant::RepeatedEffect, "output-delivery");
}

#[test]
fn rule_064_a_death_that_rolls_back_what_is_prepared_is_caught() {
    assert_caught(COUNTING, Variant::RolledBackAtDeath, "liveness");
}

#[test]
fn two_stage_sinks_keep_what_two_phase_ones_promise() {
    for mechanism in
        [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout, Mechanism::Tracked]
    {
        assert_held(Case { mechanism, ..IN_STAGES });
    }
}

#[test]
fn rule_067_a_transaction_that_times_out_ends_the_job_and_no_loss_is_silent() {
    let (mut finished, mut reported) = (0, 0);
    for seed in 0..SEEDS {
        let world = IN_HASTE.run(seed, None);
        let judgement = IN_HASTE.judge_world(&world);
        assert_eq!(world.plan().job.claim().claim().output, Some(Level::AtMostOnce));
        match world.ending() {
            Some(Ending::Finished) => {
                finished += 1;
                assert_eq!((judgement.lost, judgement.violations().count()), (0, 0), "seed {seed}");
            }
            Some(Ending::Failed(JobError::OutputLost(text))) => {
                reported += 1;
                assert!(text.contains("has timed out"), "{text}");
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(finished > 0 && reported > 0, "{finished} finished, {reported} reported a loss");
}

#[test]
fn rule_068_a_loss_that_is_taken_for_committed_is_caught() {
    assert_caught(IN_HASTE, Variant::LossTakenForDone, "two-phase");
}

#[test]
fn rule_069_what_is_not_known_to_be_committed_and_taken_for_done_is_caught() {
    assert_caught(COUNTING, Variant::UnknownTakenForDone, "two-phase");
    assert_caught(COUNTING, Variant::UnknownTakenForDone, "output-delivery");
    assert_caught(COUNTING, Variant::RefusedTakenForDone, "two-phase");
    assert_caught(COUNTING, Variant::RefusedTakenForDone, "output-delivery");
    assert_caught(COUNTING, Variant::RefusedCommitHeld, "liveness");
}

#[test]
fn rules_064_and_066_a_commit_that_is_not_known_when_it_comes_again_is_caught() {
    assert_caught(COUNTING, Variant::RepeatedCommitFails, "liveness");
    assert_caught(COUNTING, Variant::CommittedForgotten, "liveness");
    assert_caught(COUNTING, Variant::CommitKeyHasAttempt, "output-delivery");
    assert_caught(COUNTING, Variant::PooledHandles, "output-delivery");
}

#[test]
fn rule_062_transactions_of_another_snapshot_are_caught() {
    assert_caught(COUNTING, Variant::TransactionsStale, "recovery");
    assert_caught(COUNTING, Variant::TransactionsStale, "output-delivery");
}

#[test]
fn rule_070_transactions_in_another_order_are_caught() {
    assert_caught(IN_STAGES, Variant::TransactionsDisordered, "recovery");
}

#[test]
fn rule_071_a_late_notice_that_commits_what_is_not_covered_is_caught() {
    assert_caught(COUNTING, Variant::EndIsHighest, "two-phase");
    assert_caught(IN_STAGES, Variant::EndIsHighest, "two-phase");
}

#[test]
fn committables_that_do_not_reach_the_committer_as_they_were_are_caught() {
    assert_caught(IN_STAGES, Variant::LastCommittablesDropped, "two-phase");
    assert_caught(IN_STAGES, Variant::LastCommittablesDropped, "output-delivery");
    assert_caught(IN_STAGES, Variant::CommittablesMerged, "liveness");
    assert_caught(IN_STAGES, Variant::CommittablesWithoutOrigin, "recovery");
    assert_caught(IN_STAGES, Variant::CommittablesWithoutOrigin, "output-delivery");
}

#[test]
fn an_old_attempt_that_goes_on_is_caught() {
    assert_caught(COUNTING, Variant::OldAttemptNotFenced, "recovery");
}

#[test]
fn records_in_flight_that_are_not_kept_as_they_were_are_caught() {
    let unaligned = Case { mechanism: Mechanism::Unaligned, ..COUNTING };
    for variant in [
        Variant::InFlightLeftOut,
        Variant::FirstInputInFlight,
        Variant::InFlightTwice,
        Variant::InFlightDisordered,
        Variant::InFlightCutShort,
        Variant::InFlightBehindBarrier,
        Variant::OutputNotInFlight,
        Variant::RecordBeforeBarrier,
    ] {
        assert_caught(unaligned, variant, "in-flight");
    }
    assert_caught(unaligned, Variant::InFlightLeftOut, "state-delivery");
    assert_caught(unaligned, Variant::InFlightTwice, "state-delivery");
    let timeout = Case { mechanism: Mechanism::AlignedTimeout, ..COUNTING };
    assert_caught(timeout, Variant::InFlightLeftOut, "in-flight");
    assert_caught(timeout, Variant::OutputNotInFlight, "in-flight");
}
