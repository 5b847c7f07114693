//! A job of one's own under the simulator: what is right is not refuted, what was not judged is not
//! held, and operators that are not deterministic are told.

#![expect(clippy::disallowed_types, reason = "the order of such a map is what is to be found")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam::connector::memory::{CollectTransactions, VecSource};
use cofferdam::job::{GraphError, Job, JobBuilder};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam::operator::split_source::Pieces;
use cofferdam::operator::{Emit, Operator, StateParts};
use cofferdam::state::RestoreError;
use cofferdam::state::operator::{OperatorList, Redistribution};
use cofferdam::state::snapshot::OperatorState;
use cofferdam_sim::check::Check;
use cofferdam_sim::jobs::Setup;
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::oracle::Verdict;

/// Counts numbers by what `change` makes of them, and shows what `show` makes of the counts.
fn counting(
    setup: &Setup,
    change: impl FnMut(u64) -> u64 + Clone + Send + 'static,
    show: impl FnMut((u64, u64)) -> u64 + Clone + Send + 'static,
) -> Result<Job, GraphError> {
    let builder = JobBuilder::new("counting", setup.shape.parallelism);
    builder
        .source("numbers", VecSource::new((0..60_u64).collect()))
        .map("change", change)
        .key_by(|number| number % 3)
        .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
        .map("show", show)
        .transactional_sink("out", CollectTransactions::default());
    builder.build(setup.config.clone())
}

#[test]
fn a_deterministic_job_comes_to_the_same_twice() {
    let check = Check::new("same", |setup| counting(setup, |number| number, |(key, _)| key));
    let variation = check.variation().unwrap();
    assert!(variation.is_none(), "{variation}");
}

#[test]
fn a_job_whose_splits_are_assigned_is_tried_with_all_its_records() {
    let check = Check::new("splits", |setup| {
        let builder = JobBuilder::new("splits", setup.shape.parallelism);
        let numbers = VecSource::new((0..40_u64).collect());
        builder
            .split_source("numbers", Pieces::new(numbers, 7, 3))
            .key_by(|number| number % 3)
            .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = check.seeds(0..20).run().unwrap();
    assert!(checked.is_held(), "{checked}");
}

#[test]
fn an_operator_that_depends_on_hash_order_is_told_by_its_output() {
    let first = |(key, count): (u64, u64)| {
        let numbers: HashSet<u64> = (0..100).map(|number| number + key + count).collect();
        numbers.into_iter().next().unwrap()
    };
    let check = Check::new("hashes", move |setup| counting(setup, |number| number, first));
    let variation = check.variation().unwrap();
    assert_eq!((variation.state.len(), &variation.output[..]), (0, &["out".to_owned()][..]));
    assert!(variation.to_string().starts_with("exactly-once state, output may differ"));
}

#[test]
fn an_operator_that_reads_a_clock_into_a_key_is_told_by_the_state_behind_it() {
    // A clock that goes on while the test runs, as any clock does.
    let clock = Arc::new(AtomicU64::new(0));
    let check = Check::new("clock", move |setup| {
        let clock = clock.clone();
        let read = move |_| clock.fetch_add(7, Ordering::Relaxed) / 100;
        counting(setup, read, |(key, _)| key)
    });
    let variation = check.variation().unwrap();
    assert_eq!(variation.state, ["count"]);
    assert!(variation.to_string().starts_with("state may differ: 'count'"), "{variation}");
}

/// Emits for every fourth record of a key; which one that is depends on the order.
#[derive(Clone)]
struct Window;

impl KeyedProcess for Window {
    type Key = u64;
    type In = u64;
    type State = u64;
    type Out = (u64, u64);

    fn process(
        &mut self,
        _number: u64,
        context: &mut KeyedContext<'_, u64, u64>,
        out: &mut impl Emit<(u64, u64)>,
    ) {
        let key = *context.key();
        let count = context.state().get().copied().unwrap_or(0) + 1;
        context.state().set(count % 4);
        if count == 4 {
            out.emit((key, count));
        }
    }
}

/// Counts in a field that no snapshot holds, and shows it.
#[derive(Clone)]
struct Hidden(u64);

impl Operator for Hidden {
    type In = u64;
    type Out = (u64, u64);

    fn process(&mut self, number: u64, out: &mut impl Emit<(u64, u64)>) {
        self.0 += 1;
        out.emit((number, self.0));
    }
}

fn numbers() -> VecSource<u64> {
    VecSource::new((0..60_u64).collect())
}

fn windows(setup: &Setup) -> Result<Job, GraphError> {
    let builder = JobBuilder::new("windows", setup.shape.parallelism);
    builder
        .source("numbers", numbers())
        .key_by(|number| number % 3)
        .process("window", Window)
        .transactional_sink("out", CollectTransactions::default());
    builder.build(setup.config.clone())
}

#[test]
fn which_record_gives_a_row_may_depend_on_the_order_and_its_value_is_judged() {
    let checked = Check::new("windows", windows).seeds(0..150).run().unwrap();
    assert!(checked.is_held(), "{checked}");
    let checked = Check::new("windows", |setup| {
        let builder = JobBuilder::new("windows", setup.shape.parallelism);
        let others = builder.source("others", numbers());
        builder
            .source("numbers", numbers())
            .union(others)
            .key_by(|number| number % 3)
            .process("window", Window)
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = checked.seeds(0..150).run().unwrap();
    assert!(checked.is_held(), "{checked}");
}

#[test]
fn what_was_not_put_to_the_test_is_not_held() {
    let check = Check::new("windows", windows).faults(FaultProfile::None).seeds(0..100);
    let checked = check.run().unwrap();
    assert_eq!((checked.tally.refuted, checked.verdict()), (0, Verdict::Unknown), "{checked}");
    assert!(checked.to_string().contains("no fault hit any run"), "{checked}");
    let checked = Check::new("windows", windows).seeds(5..5).run().unwrap();
    assert!(!checked.is_held() && checked.to_string().contains("no seed was run"), "{checked}");
}

/// Every other record of those that come, as its snapshots say.
#[derive(Clone)]
struct EveryOther(OperatorList<bool>);

impl Operator for EveryOther {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        if self.0.get().is_empty() {
            self.0.get_mut().push(true);
            out.emit(number);
        } else {
            self.0.get_mut().clear();
        }
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.0.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.0.restore(state)
    }
}

#[test]
fn what_depends_on_the_order_is_unknown_and_the_result_says_so() {
    let checked = Check::new("every other", |setup| {
        let builder = JobBuilder::new("every other", setup.shape.parallelism);
        let others = builder.source("others", numbers());
        builder
            .source("numbers", numbers())
            .union(others)
            .rebalance()
            .operator("every other", EveryOther(OperatorList::new("held", Redistribution::Split)))
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = checked.seeds(0..60).run().unwrap();
    assert_eq!((checked.tally.refuted, checked.verdict()), (0, Verdict::Unknown), "{checked}");
    let text = checked.to_string();
    assert!(text.contains("the rows of 'out' are not the same in all runs"), "{text}");
    assert!(text.contains("the order in which records"), "{text}");
}

/// Passes all on. Its list says, of any subtask that it knows of, the first record that came there.
#[derive(Clone)]
struct Acquainted {
    firsts: OperatorList<u64>,
    has_own: bool,
    met: Arc<AtomicU64>,
}

impl Operator for Acquainted {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        if !self.has_own {
            self.has_own = true;
            self.firsts.get_mut().push(number);
        }
        out.emit(number);
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.firsts.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.firsts.restore(state)?;
        let known: HashSet<u64> = self.firsts.get().iter().copied().collect();
        self.met.fetch_max(known.len() as u64, Ordering::Relaxed);
        self.firsts.get_mut().sort_unstable();
        self.firsts.get_mut().dedup();
        self.has_own = true;
        Ok(())
    }
}

#[test]
fn rule_092_a_restart_in_the_same_layout_gives_each_subtask_all_of_a_union_list() {
    let met = Arc::new(AtomicU64::new(0));
    let check = Check::new("acquainted", |setup| {
        let builder = JobBuilder::new("acquainted", setup.shape.parallelism);
        let firsts = OperatorList::new("firsts", Redistribution::Union);
        builder
            .source("numbers", numbers())
            .rebalance()
            .operator("acquainted", Acquainted { firsts, has_own: false, met: met.clone() })
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = check.seeds(0..60).run().unwrap();
    assert!(checked.is_held(), "{checked}");
    assert_eq!(met.load(Ordering::Relaxed), 3, "the greatest parallelism that is drawn");
}

#[test]
fn a_counter_that_no_snapshot_holds_is_found() {
    // In one chain, as in the README: it shows only in a run that goes on in the midst.
    let checked = Check::new("hidden", |setup| {
        let builder = JobBuilder::new("hidden", setup.shape.parallelism);
        builder
            .source("numbers", numbers())
            .operator("hidden", Hidden(0))
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = checked.seeds(0..200).run().unwrap();
    assert_eq!(checked.verdict(), Verdict::Violated, "{checked}");
    assert!(checked.tally.restored > 20, "{checked}");
}

#[test]
fn a_counter_that_no_snapshot_holds_is_never_held_where_the_order_is_free() {
    let checked = Check::new("hidden", |setup| {
        let builder = JobBuilder::new("hidden", setup.shape.parallelism);
        let others = builder.source("others", numbers());
        builder
            .source("numbers", numbers())
            .union(others)
            .operator("hidden", Hidden(0))
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = checked.seeds(0..60).run().unwrap();
    assert_eq!(checked.verdict(), Verdict::Unknown, "{checked}");
}

#[test]
fn a_job_that_comes_to_something_else_each_time_is_not_held() {
    let counter = Arc::new(AtomicU64::new(0));
    let check = Check::new("static", move |setup| {
        let counter = counter.clone();
        counting(setup, |number| number, move |_| counter.fetch_add(1, Ordering::Relaxed))
    });
    let checked = check.seeds(0..20).run().unwrap();
    assert_eq!((checked.tally.refuted, checked.verdict()), (0, Verdict::Unknown), "{checked}");
    assert!(checked.to_string().contains("an operator before 'out' reads a clock"), "{checked}");
}

/// Gives other records whenever it is read.
#[derive(Clone)]
struct Varying(Arc<AtomicU64>);

impl Source for Varying {
    type Record = u64;
    type Split = u64;

    fn discover(&mut self, _parallelism: usize) -> Result<Vec<u64>, SourceError> {
        Ok(vec![0])
    }

    fn read(&mut self, split: &mut u64, _records_max: usize) -> Result<Fetch<u64>, SourceError> {
        *split += 1;
        let next = || vec![self.0.fetch_add(1, Ordering::Relaxed)];
        Ok(if *split > 50 { Fetch::End } else { Fetch::Records(next()) })
    }
}

#[test]
fn a_source_that_gives_other_records_when_it_is_read_again_is_named() {
    let source = Varying(Arc::default());
    let check = Check::new("varying", move |setup| {
        let builder = JobBuilder::new("varying", setup.shape.parallelism);
        builder
            .source("changing", source.clone())
            .transactional_sink("out", CollectTransactions::default());
        builder.build(setup.config.clone())
    });
    let checked = check.seeds(0..20).run().unwrap();
    assert_eq!(checked.verdict(), Verdict::Unknown, "{checked}");
    assert!(checked.to_string().contains("gives other records when it is read again"));
}

/// Can not be restored.
#[derive(Clone)]
struct Unrestorable(OperatorList<u64>);

impl Operator for Unrestorable {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        assert_ne!(number, 99, "poison");
        out.emit(number);
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.0.share()], ..StateParts::default() }
    }

    fn restore(&mut self, _state: &OperatorState) -> Result<(), RestoreError> {
        panic!("in restore")
    }
}

#[test]
fn a_panic_is_told_with_its_seed() {
    let of = |last: u64| {
        let check = Check::new("panics", move |setup| {
            let builder = JobBuilder::new("panics", setup.shape.parallelism);
            builder
                .source("numbers", VecSource::new((0..last).collect()))
                .operator("panics", Unrestorable(OperatorList::new("none", Redistribution::Split)))
                .transactional_sink("out", CollectTransactions::default());
            builder.build(setup.config.clone())
        });
        check.seeds(0..100).run().unwrap_err().to_string()
    };
    assert!(of(100).contains("in a run without faults") && of(100).contains("poison"));
    let text = of(60);
    assert!(text.contains("in the run of seed ") && text.ends_with("in restore"), "{text}");
}
