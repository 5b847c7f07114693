//! What a task is restored from: logs, stores of keyed state, lists, the parts of a checkpoint.

use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::Job;
use cofferdam::operator::{Emit, Operator, OperatorTraits, StateParts};
use cofferdam::state::RestoreError;
use cofferdam::state::operator::{OperatorList, Redistribution};
use cofferdam::state::snapshot::OperatorState;
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::options::Options;

use crate::case::*;
use crate::jobs::{count, counting_rolled_back, from_memory};
use crate::several::SLOWLY;

/// Hands every record on and remembers how many there were.
#[derive(Clone)]
struct Tally(OperatorList<u64>);

impl Operator for Tally {
    type In = u64;
    type Out = u64;

    fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
        match self.0.get_mut().first_mut() {
            Some(seen) => *seen += 1,
            None => self.0.get_mut().push(1),
        }
        out.emit(number);
    }

    fn snapshot(&mut self) -> StateParts {
        StateParts { lists: vec![self.0.share()], ..StateParts::default() }
    }

    fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        self.0.restore(state)
    }

    fn traits(&self) -> OperatorTraits {
        OperatorTraits { stateful: true, ..OperatorTraits::default() }
    }
}

/// As [`crate::jobs::counting`], and each source subtask has a list.
fn counting_in_lists(options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let tally = Tally(OperatorList::new("seen", Redistribution::Split));
    let begin = |builder: &_| from_memory(builder).operator("tally", tally);
    count(begin, options, options.job_config(mechanism), sink, true)
}

const WRITTEN: Case = Case { mechanism: Mechanism::Transactional, ..COUNTING };

#[test]
fn rule_091_lists_that_change_hands_at_equal_parallelism_are_caught() {
    let listed = Case { make: counting_in_lists, ..COUNTING };
    assert_held(listed);
    assert_caught(listed, Variant::ListsReshuffled, "recovery");
}

#[test]
fn a_log_that_is_put_together_in_another_way_than_it_was_written_is_caught() {
    let alarms = Case { mechanism: Mechanism::Transactional, ..ALARMS };
    assert_caught(alarms, Variant::RemovalsAsEmpty, "progress");
    assert_caught(alarms, Variant::RemovalsAsEmpty, "values");
    for variant in [Variant::LogsCutEven, Variant::LogTrimmedTooFar, Variant::IdleLogRemoved] {
        assert_caught(WRITTEN, variant, "progress");
    }
    assert_caught(WRITTEN, Variant::LogTrimmedTooFar, "values");
}

#[test]
fn a_store_that_keeps_what_was_not_committed_is_caught() {
    let case = Case { make: counting_rolled_back, ..COUNTING };
    assert_caught(case, Variant::ChangesNotRolledBack, "state-delivery");
}

#[test]
fn a_task_that_begins_before_its_state_is_read_is_caught() {
    assert_caught(COUNTING, Variant::ReadBeforeRecovered, "recovery");
    assert_caught(COUNTING, Variant::ReadBeforeRecovered, "values");
}

#[test]
fn rule_121_a_recovery_that_knows_no_prepared_transaction_is_caught() {
    assert_caught_at_once(COUNTING, Variant::RestoredCommitFails, "liveness");
}

#[test]
fn parts_of_several_attempts_under_one_name_are_caught() {
    for variant in [Variant::FirstPartStays, Variant::PartOfOlderAttempt] {
        assert_caught_at_once(SLOWLY, variant, "liveness");
    }
}
