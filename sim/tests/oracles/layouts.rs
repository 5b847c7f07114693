//! Built-in jobs: what goes by event time, and other layouts.

use std::fmt;

use cofferdam::guarantee::{Guarantee, Mechanism};
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::jobs::{self, Parameters};
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::oracle::Judgement;
use cofferdam_sim::run::{Mode, RECORDS_DEFAULT, Run};

use crate::case::*;

/// A built-in job under exactly-once.
#[derive(Clone, Copy)]
struct Builtin {
    job: &'static str,
    mechanism: Mechanism,
    faults: FaultProfile,
    /// How many records are read.
    records: usize,
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.job, self.mechanism)
    }
}

impl Trial for Builtin {
    fn judge(self, seed: u64, variant: Option<Variant>) -> Judgement {
        let job = jobs::find(self.job).unwrap();
        let mode = Mode {
            mechanism: self.mechanism,
            faults: self.faults,
            variant,
            records: self.records,
            ..Mode::of(Guarantee::ExactlyOnce, Parameters::of(job))
        };
        Run::new(&job, &mode, seed, None, false).unwrap().finish().judgement
    }
}

const WINDOWS: Builtin = Builtin {
    job: "windows",
    mechanism: Mechanism::Aligned,
    faults: FaultProfile::Default,
    records: RECORDS_DEFAULT,
};
const ENRICHED: Builtin = Builtin { job: "enrich", ..WINDOWS };
const JOINED: Builtin = Builtin { job: "interval-join", ..WINDOWS };

const fn rescaled(trial: Builtin) -> Builtin {
    Builtin { faults: FaultProfile::Rescale, ..trial }
}

#[test]
fn windows_and_joins_are_exactly_once_also_in_other_layouts() {
    for trial in [WINDOWS, ENRICHED, JOINED] {
        for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::Transactional] {
            let trial = Builtin { mechanism, ..trial };
            assert_held(trial);
            assert_held(rescaled(trial));
        }
    }
}

#[test]
fn rule_089_event_time_that_is_not_restored_is_caught() {
    assert_caught(WINDOWS, Variant::WatermarksLeftOut, "recovery");
    assert_caught(WINDOWS, Variant::WatermarkAtEnd, "recovery");
    assert_caught(WINDOWS, Variant::WatermarkAtEnd, "output-delivery");
}

#[test]
fn state_that_is_not_found_again_is_caught() {
    assert_caught(COUNTING, Variant::StateNotFound, "recovery");
    assert_caught(COUNTING, Variant::StateNotFound, "values");
}

#[test]
fn a_watermark_that_is_too_high_is_caught() {
    assert_caught(WINDOWS, Variant::WatermarkTooHigh, "output-delivery");
}

#[test]
fn rule_018_a_barrier_that_an_ended_input_is_not_heard_of_with_is_caught() {
    assert_caught_at_once(WINDOWS, Variant::EndedInputsUnheard, "liveness");
}

#[test]
fn state_that_is_not_all_dealt_out_is_caught() {
    let counting = Builtin { job: "wordcount", ..rescaled(WINDOWS) };
    assert_caught(counting, Variant::LastHandleKept, "values");
    assert_caught(rescaled(WINDOWS), Variant::LastHandleKept, "output-delivery");
    assert_caught(rescaled(WINDOWS), Variant::TimersLeftBehind, "output-delivery");
    let overtaken = Builtin { mechanism: Mechanism::Unaligned, ..rescaled(WINDOWS) };
    assert_caught(overtaken, Variant::HighestWatermark, "output-delivery");
    assert_caught(rescaled(ENRICHED), Variant::NewCopiesEmpty, "output-delivery");
    assert_caught(counting, Variant::MovedSplitsAnew, "state-delivery");
}

#[test]
fn rule_051_a_savepoint_that_a_job_stops_with_before_it_has_committed_is_caught() {
    assert_caught(rescaled(WINDOWS), Variant::SavepointBeforeCommits, "output-delivery");
}

#[test]
fn rule_095_records_in_flight_that_are_lost_on_the_way_to_another_layout_are_caught() {
    let overtaken =
        Builtin { job: "random-graph", mechanism: Mechanism::Unaligned, ..rescaled(WINDOWS) };
    assert_caught(overtaken, Variant::FirstInFlightSkipped, "state-delivery");
    assert_caught(overtaken, Variant::StatelessInFlightLost, "output-delivery");
}

#[test]
fn state_that_is_dealt_out_to_the_wrong_subtask_or_from_the_wrong_moment_is_caught() {
    let counting = Builtin { job: "wordcount", ..rescaled(WINDOWS) };
    assert_caught_at_once(counting, Variant::GroupsDealtEvenly, "liveness");
    // A group has to come back to a subtask with other values.
    let for_long = Builtin { records: 600, ..counting };
    assert_held(for_long);
    assert_caught(for_long, Variant::OldGroupsBelieved, "values");
    assert_caught(counting, Variant::NewSubtaskBehind, "values");
    assert_caught(counting, Variant::EmptyListInvented, "state-delivery");
}
