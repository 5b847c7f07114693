//! Whole simulated runs: a seed is a run, a fork is the same run, a scenario is the same run; and
//! the strongest guarantee holds in all of them.

use std::collections::BTreeMap;

use cofferdam::guarantee::{Claim, Guarantee, Level, Mechanism, SinkContract, StateHome};
use cofferdam_sim::jobs::{self, BuiltinJob, Parameters};
use cofferdam_sim::options::FaultProfile;
use cofferdam_sim::oracle::{Levels, Verdict};
use cofferdam_sim::run::{Hashes, Mode, Report, Run, Script};
use cofferdam_sim::scenario::{Scenario, Seed, VERSION};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn exactly_once_is_held_and_a_seed_is_a_run(job in job(), seed: u64) {
        let mode = mode(job, Guarantee::ExactlyOnce);
        let (report, hashes) = finish(job, &mode, seed);
        prop_assert_eq!(report.judgement.state, Verdict::Held, "{:?}", report.judgement);
        prop_assert_eq!(report.judgement.output, Some(Verdict::Held), "{:?}", report.judgement);
        let (again, hashes_again) = finish(job, &mode, seed);
        prop_assert_eq!(hashes_again, hashes);
        prop_assert_eq!(again.judgement, report.judgement);
    }

    #[test]
    fn rule_023_barriers_that_overtake_reach_what_aligned_ones_reach(seed: u64) {
        let job = "random-graph";
        let reports = [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::AlignedTimeout]
            .map(|mechanism| Mode { mechanism, ..mode(job, Guarantee::ExactlyOnce) })
            .map(|mode| finish(job, &mode, seed));
        let (_, first) = reports[0];
        for (report, hashes) in &reports {
            prop_assert_eq!(report.judgement.state, Verdict::Held, "{:?}", report.judgement);
            prop_assert_eq!(report.judgement.output, Some(Verdict::Held), "{:?}", report.judgement);
            prop_assert_eq!((hashes.state, hashes.output), (first.state, first.output));
        }
    }

    #[test]
    fn exactly_once_is_held_where_barriers_overtake(job in job(), seed: u64, waits: bool) {
        let mechanism = if waits { Mechanism::AlignedTimeout } else { Mechanism::Unaligned };
        let mode = Mode { mechanism, ..mode(job, Guarantee::ExactlyOnce) };
        let report = run(job, &mode, seed, None).finish();
        prop_assert_eq!(report.judgement.state, Verdict::Held, "{:?}", report.judgement);
        prop_assert_eq!(report.judgement.output, Some(Verdict::Held), "{:?}", report.judgement);
    }

    #[test]
    fn a_run_keeps_just_the_claims_that_its_levels_keep(
        job in job(),
        mechanism in select(Mechanism::ALL),
        sink in select(SinkContract::ALL),
        state in select(StateHome::ALL),
        seed: u64,
    ) {
        let faults = FaultProfile::Full;
        let mode = Mode { mechanism, sink, state, faults, ..mode(job, mechanism.guarantee()) };
        let shown = |level| {
            let claim = Claim { state: level, output: Some(level) };
            let mode = Mode { claim: Some(claim), ..mode.clone() };
            let run = Run::new(&find(job), &mode, seed, None, false).ok();
            run.map(|mut run| run.finish().judgement)
        };
        let judgements: Option<Vec<_>> = Level::ALL.iter().map(|level| shown(*level)).collect();
        prop_assume!(judgements.is_some(), "not every mechanism goes with every sink");
        let judgements = judgements.expect("it is there");
        let first = judgements[0].levels;
        for (claim, judgement) in Level::ALL.iter().zip(&judgements) {
            prop_assert_eq!(judgement.levels, first, "{}", claim);
            prop_assert!(judgement.broken_rule().is_none() && !judgement.stuck);
            let Levels { state, output } = judgement.levels.expect("it was judged in full");
            let is_kept = |verdict| verdict != Verdict::Violated;
            let found = judgement.violation();
            // What was not judged in full shows no level.
            for (verdict, seen) in [(Some(judgement.state), state), (judgement.output, output)] {
                let Some(seen) = seen else { continue };
                let kept = verdict.map(is_kept);
                prop_assert_eq!(kept, Some(seen.satisfies(*claim)), "{} {:?}", claim, found);
            }
        }
    }

    #[test]
    fn a_fork_ends_as_the_original_and_does_not_disturb_it(
        job in job(),
        guarantee in guarantee(),
        seed: u64,
        at: Index,
    ) {
        let mode = mode(job, guarantee);
        let (expected, hashes) = finish(job, &mode, seed);
        let mut original = run(job, &mode, seed, None);
        for _ in 0..at.index(expected.events as usize) {
            original.world_mut().step();
        }
        let mut fork = original.world_mut().fork();
        fork.run();
        prop_assert_eq!(fork.trace_hash(), hashes.trace);
        prop_assert_eq!(fork.events(), expected.events);
        let report = original.finish();
        prop_assert_eq!(original.hashes(), hashes);
        prop_assert_eq!(report.judgement, expected.judgement);
    }

    #[test]
    fn a_recorded_run_is_played_again_from_its_scenario(
        job in job(),
        guarantee in guarantee(),
        seed: u64,
    ) {
        let mode = mode(job, guarantee);
        let mut recorded = run(job, &mode, seed, None);
        let expected = recorded.finish();
        let written = scenario(job, guarantee, seed, &recorded);
        let read = Scenario::parse(&written.text()).expect("it was just written");
        prop_assert_eq!(&read, &written);
        let matched = read.script(recorded.world().plan()).expect("its faults are complete");
        prop_assert_eq!(matched.unknown, Vec::<String>::new());
        let mut played = run(job, &mode, seed, Some(matched.script));
        let report = played.finish();
        prop_assert_eq!(report.diverged, []);
        prop_assert_eq!(played.hashes(), recorded.hashes());
        prop_assert_eq!(report.judgement, expected.judgement);
    }

    #[test]
    fn a_damaged_scenario_is_refused_or_read_but_never_a_panic(
        job in job(),
        seed: u64,
        damage in vec((any::<Index>(), any::<Index>(), any::<Option<char>>()), 1..4),
    ) {
        let guarantee = Guarantee::ExactlyOnce;
        let mut recorded = run(job, &mode(job, guarantee), seed, None);
        for _ in 0..STEPS_BEFORE_DAMAGE {
            recorded.world_mut().step();
        }
        let written = scenario(job, guarantee, seed, &recorded).text();
        let mut text: Vec<char> = written.chars().collect();
        for (from, length, replacement) in damage {
            let from = from.index(text.len());
            let until = text.len().min(from + length.index(DAMAGED_MAX));
            text.splice(from..until, replacement);
        }
        let text: String = text.into_iter().collect();
        if let Ok(scenario) = Scenario::parse(&text) {
            // Names may be unknown and faults incomplete; both are told.
            let _ = scenario.script(recorded.world().plan());
            let read_again = Scenario::parse(&scenario.text());
            prop_assert_eq!(read_again.expect("what was read can be written"), scenario);
        }
    }
}

fn finish(job: &'static str, mode: &Mode, seed: u64) -> (Report, Hashes) {
    let mut run = run(job, mode, seed, None);
    (run.finish(), run.hashes())
}

/// The name of a built-in job.
fn job() -> impl Strategy<Value = &'static str> {
    (0..jobs::all().len()).prop_map(|position| jobs::all()[position].name())
}

fn guarantee() -> impl Strategy<Value = Guarantee> {
    (0..Guarantee::ALL.len()).prop_map(|position| Guarantee::ALL[position])
}

fn mode(job: &str, guarantee: Guarantee) -> Mode {
    Mode { records: RECORDS, ..Mode::of(guarantee, Parameters::of(find(job))) }
}

fn find(job: &str) -> &'static dyn BuiltinJob {
    jobs::find(job).expect("it is one of them")
}

/// A run that keeps its decisions.
fn run(job: &str, mode: &Mode, seed: u64, script: Option<Script>) -> Run {
    Run::new(&find(job), mode, seed, script, true).expect("a built-in job can be put together")
}

fn scenario(job: &str, guarantee: Guarantee, seed: u64, run: &Run) -> Scenario {
    let mut scenario = Scenario {
        version: VERSION,
        job: job.to_owned(),
        guarantee,
        mechanism: None,
        sink: None,
        state: None,
        seed: Seed(seed),
        build: None,
        trace_hash: None,
        content_hash: None,
        claim: None,
        parameters: BTreeMap::new(),
        lines: None,
        options: None,
        records: Vec::new(),
        faults: None,
        decisions: None,
    };
    scenario.take_from(run);
    scenario
}

const CASES: u32 = 100;
const RECORDS: usize = 60;
/// Enough to have made decisions of most kinds.
const STEPS_BEFORE_DAMAGE: usize = 60;
const DAMAGED_MAX: usize = 20;
