//! The end of a part of a job, and of all of it.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, ChannelId, TaskId};
use cofferdam::trace::{Carried, TraceEvent};
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::world::World;

use crate::case::*;
use crate::several::SLOWLY;

/// How many checkpoints become complete that are triggered when one source subtask has ended and
/// another one has not.
fn completed_beside_an_end(world: &World) -> usize {
    let graph = world.plan().job.graph();
    let is_source = |task: &TaskId| graph.inputs(*task).is_empty();
    let sources = graph.tasks().filter(is_source).count();
    let (mut ended, mut triggered, mut completed) = (Vec::new(), Vec::new(), 0);
    for traced in world.trace().iter() {
        let event = traced.event;
        if let TraceEvent::Deployed { .. } = event {
            ended.clear();
        } else if let TraceEvent::Sent { channel, what: Carried::EndOfData, .. } = event {
            let from = graph.channels()[channel.index()].from;
            if is_source(&from) && !ended.contains(&from) {
                ended.push(from);
            }
        } else if let TraceEvent::Triggered { checkpoint } = event
            && (1..sources).contains(&ended.len())
        {
            triggered.push(checkpoint);
        } else if let TraceEvent::Completed { checkpoint, .. } = event {
            completed += usize::from(triggered.contains(&checkpoint));
        }
    }
    completed
}

#[test]
fn rule_098_a_source_that_has_ended_takes_part_in_checkpoints_that_others_go_on_with() {
    let completed = |seed, variant| completed_beside_an_end(&SLOWLY.run(seed, variant));
    let seeds: Vec<u64> = (0..40).filter(|seed| completed(*seed, None) > 0).take(3).collect();
    assert_eq!(seeds.len(), 3, "{seeds:?}");
    for seed in seeds {
        let silent = completed(seed, Some(Variant::EndedSourceSilent));
        assert_eq!(silent, 0, "seed {seed}, where it takes no part");
    }
}

/// What each channel to a committer has brought that it is told of, if the channel has ended.
fn told(world: &World) -> Vec<Vec<Carried>> {
    let graph = world.plan().job.graph();
    let committer = graph.tasks().last().expect("a job has tasks");
    let mut told: BTreeMap<(ChannelId, AttemptId), (Vec<Carried>, bool)> = BTreeMap::new();
    for traced in world.trace().iter() {
        let TraceEvent::Sent { channel, attempt, what, .. } = traced.event else { continue };
        if graph.channels()[channel.index()].to != committer {
            continue;
        }
        let (of_channel, has_ended) = told.entry((channel, attempt)).or_default();
        *has_ended |= what == Carried::EndOfPartition;
        if matches!(what, Carried::Committables(_) | Carried::Barrier(_)) {
            of_channel.push(what);
        }
    }
    told.into_values().filter(|(_, has_ended)| *has_ended).map(|(told, _)| told).collect()
}

#[test]
fn rule_103_the_last_committables_reach_the_committer_ahead_of_the_barrier_that_ends_it() {
    let mut ended = 0;
    for seed in 0..SEEDS {
        let told = told(&IN_STAGES.run(seed, None));
        ended += told.len();
        // Each barrier has what was prepared for it right before it, the last one too.
        let in_order = told.iter().flat_map(|told| told.chunks(2)).all(|pair| {
            let [Carried::Committables(of), Carried::Barrier(barrier)] = pair else { return false };
            of == barrier
        });
        assert!(in_order, "seed {seed}: {told:?}");
    }
    assert!(ended > SEEDS as usize, "{ended}");
    assert_caught(IN_STAGES, Variant::LastCommittablesDropped, "two-phase");
}
