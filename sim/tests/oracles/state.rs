//! State and timers of operators: what a snapshot holds of them, and what comes of it when it does
//! not.

use cofferdam::guarantee::Mechanism;
use cofferdam::trace::{Carried, TraceEvent};
use cofferdam_sim::interpose::Variant;

use crate::case::*;

#[test]
fn rule_088_timers_of_the_clock_fire_once_whatever_fails() {
    for mechanism in [
        Mechanism::Aligned,
        Mechanism::Unaligned,
        Mechanism::AlignedTimeout,
        Mechanism::Transactional,
        Mechanism::Tracked,
        Mechanism::FullReplay,
    ] {
        assert_held(Case { mechanism, ..ECHOES });
    }
}

#[test]
fn timers_of_the_clock_fire_while_the_data_goes_on() {
    let is_end =
        |event: &TraceEvent| matches!(event, TraceEvent::Sent { what: Carried::EndOfData, .. });
    let fires = |seed| {
        let world = ECHOES.run(seed, None);
        let events = world.trace().iter().map(|traced| &traced.event);
        let mut before_end = events.take_while(|event| !is_end(event));
        before_end.any(|event| matches!(event, TraceEvent::Written { .. }))
    };
    assert!((0..20).any(fires), "no run takes longer than its timers");
}

#[test]
fn rule_088_timers_of_the_clock_that_are_not_restored_are_caught() {
    for variant in [Variant::ClockTimersLeftOut, Variant::ClockTimersNotArmed] {
        assert_caught(ECHOES, variant, "recovery");
        assert_caught(ECHOES, variant, "output-delivery");
    }
    let written = Case { mechanism: Mechanism::Transactional, ..ECHOES };
    assert_caught(written, Variant::ClockTimersLeftOut, "progress");
}

#[test]
fn timers_that_are_restored_in_part_are_caught() {
    for case in [ALARMS, ECHOES] {
        assert_caught(case, Variant::TimersCutShort, "recovery");
        assert_caught(case, Variant::TimersCutShort, "output-delivery");
    }
}

#[test]
fn rule_114_state_that_goes_on_changing_in_a_snapshot_is_caught() {
    let unaligned = Case { mechanism: Mechanism::Unaligned, ..COUNTING };
    assert_caught(unaligned, Variant::LaterStateInSnapshot, "recovery");
    assert_caught(unaligned, Variant::LaterStateInSnapshot, "values");
    let alarms = Case { mechanism: Mechanism::Unaligned, ..ALARMS };
    assert_caught(alarms, Variant::LaterWatermarkInSnapshot, "recovery");
}

#[test]
fn state_that_is_left_out_because_nothing_has_changed_is_caught() {
    assert_caught(COUNTING, Variant::UnchangedStateLeftOut, "recovery");
    assert_caught(COUNTING, Variant::UnchangedStateLeftOut, "values");
}

#[test]
fn changes_in_another_order_are_caught() {
    let written = Case { mechanism: Mechanism::Transactional, ..COUNTING };
    assert_caught(written, Variant::ChangesReversed, "progress");
    assert_caught(written, Variant::ChangesReversed, "values");
}
