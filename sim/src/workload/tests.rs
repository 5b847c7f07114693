use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::dice::Purpose;
use crate::jobs::smoke_alarm::{Alert, Reading};
use plan::{Exit, Plan};

fn dice(seed: u64) -> Dice {
    Dice::new(seed, Purpose::Workload)
}

/// FNV-1a of the debug text.
fn hash(value: &impl std::fmt::Debug) -> u64 {
    format!("{value:?}").bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const ALERT: Alert = Alert { hot: 40.0, within: Duration::from_millis(600_000) };

#[test]
fn a_seed_keeps_its_meaning() {
    assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
    let plan = Plan::draw(&mut dice(7), 3);
    let disorder = disorder(&mut dice(7), ALERT.within_ms());
    let hashes = [
        hash(&text::lines(&mut dice(7), 50)),
        hash(&text::repeated_lines(&mut dice(7), 50)),
        hash(&text::numbers(&mut dice(7), 50)),
        hash(&text::prices(&mut dice(7), 50)),
        hash(&readings::readings(&mut dice(7), 50, ALERT, disorder)),
        hash(&(&plan, plan::items(&mut dice(7), &plan, 50))),
    ];
    assert_eq!(
        hashes,
        [
            0xd566_fbf5_54f9_0d20,
            0x93de_a996_ec2f_f5e7,
            0x585f_3d3e_24ad_f5dc,
            0x7ec6_8438_5de6_6b25,
            0x1345_c5c8_7543_255f,
            0x23ed_79fd_a426_8899,
        ]
    );
}

#[test]
fn lines_are_nasty() {
    let lines = text::lines(&mut dice(1), 300);
    let any = |test: &dyn Fn(&str) -> bool| lines.iter().any(|line| test(&line.key));
    assert!(any(&|line| line.is_empty()));
    assert!(any(&|line| !line.is_empty() && line.trim().is_empty()));
    assert!(any(&|line| line.contains('\u{2003}')));
    assert!(any(&|line| line.contains('"')));
    assert!(any(&|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.iter().collect::<BTreeSet<_>>().len() < words.len()
    }));
}

#[test]
fn numbers_reach_the_ends_of_their_range() {
    let numbers = text::numbers(&mut dice(1), 300);
    for value in [i64::MIN, i64::MAX, 0, -1] {
        assert!(numbers.iter().any(|entry| entry.value == value), "{value}");
    }
    let keys: BTreeSet<_> = numbers.iter().map(|entry| &entry.key).collect();
    assert!(keys.len() > 20, "{} keys", keys.len());
    assert!(numbers.iter().filter(|entry| &*entry.key == "the").count() > 50);
    assert!(text::prices(&mut dice(1), 300).iter().any(|entry| entry.value == u64::MAX));
}

#[test]
fn readings_keep_their_bound_and_meet_every_corner() {
    let mut corners = BTreeSet::new();
    for seed in 0..50 {
        let mut dice = dice(seed);
        let disorder = disorder(&mut dice, ALERT.within_ms());
        let readings = readings::readings(&mut dice, 100, ALERT, disorder);
        assert_eq!(readings.len(), 100);
        assert!(latest_gap(&readings) <= disorder, "seed {seed}");
        corners.extend(gaps_of_heat(&readings));
        if latest_gap(&readings) > Duration::ZERO {
            corners.insert("disorder");
        }
    }
    assert_eq!(corners, BTreeSet::from(["boundary", "disorder", "later", "tie"]));
}

/// By how much a reading is older than one before it, at most.
fn latest_gap(readings: &[Reading]) -> Duration {
    let mut latest = i64::MIN;
    let gap = |reading: &Reading| {
        latest = latest.max(reading.at.as_millis());
        latest.abs_diff(reading.at.as_millis())
    };
    Duration::from_millis(readings.iter().map(gap).max().unwrap_or(0))
}

/// How long after a hot reading the sensor's next smoke comes.
fn gaps_of_heat(readings: &[Reading]) -> BTreeSet<&'static str> {
    let mut sorted: Vec<_> = readings.iter().collect();
    sorted.sort_by_key(|reading| (&reading.sensor, reading.at, reading.offset));
    let corner = |pair: &[&Reading]| {
        let gap = pair[1].at.as_millis() - pair[0].at.as_millis();
        let relevant =
            pair[0].sensor == pair[1].sensor && pair[0].temperature > ALERT.hot && pair[1].smoke;
        match gap {
            _ if !relevant => None,
            0 => Some("tie"),
            600_000 => Some("boundary"),
            600_001 => Some("later"),
            _ => None,
        }
    };
    sorted.windows(2).filter_map(corner).collect()
}

#[test]
fn plans_have_every_shape_and_stay_small() {
    let mut shapes = BTreeSet::new();
    for seed in 0..500 {
        let plan = Plan::draw(&mut dice(seed), 3);
        assert!(plan.steps.iter().any(|step| !step.keyed.is_empty()), "seed {seed}");
        shapes.insert(if plan.sources.len() == 2 { "two sources" } else { "one source" });
        shapes.extend(plan.steps.iter().map(|step| match step.exit {
            Exit::Rebalance => "rebalance",
            Exit::Broadcast => "broadcast",
            Exit::Sink => "sink",
            Exit::Fork => "fork",
            Exit::Diamond(..) => "diamond",
        }));
        shapes.extend(plan.steps.iter().any(|step| step.keyed.len() > 1).then_some("key-by twice"));
    }
    assert_eq!(shapes.len(), 8, "{shapes:?}");
}
