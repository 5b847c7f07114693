//! The judges over whole simulated runs: they are content with the engine as it is, and each broken
//! variant of the protocol is caught by the judge whose rule it breaks.

#![expect(clippy::unwrap_used, reason = "a test says by its name what failed")]

mod case;
mod ends;
mod event_time;
mod jobs;
mod layouts;
mod restores;
mod several;
mod sources;
mod splits;
mod state;

use cofferdam::coordinator::JobError;
use cofferdam::guarantee::{Level, Mechanism, SinkContract};
use cofferdam::time::Instant;
use cofferdam::trace::{TraceEvent, Traced};
use cofferdam_sim::interpose::Variant;
use cofferdam_sim::oracle::{Seen, Verdict};
use cofferdam_sim::world::{Ending, World};

use case::*;
use jobs::*;

#[test]
fn aligned_checkpoints_and_transactions_are_exactly_once() {
    for case in [COUNTING, ALARMS] {
        assert_held(case);
        let judgement = case.judge(0, None);
        assert_eq!(judgement.levels.unwrap().state, Some(Seen::Only(Level::ExactlyOnce)));
        assert_eq!(judgement.levels.unwrap().output, Some(Seen::Only(Level::ExactlyOnce)));
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
fn rule_031_event_time_does_not_fall_for_records_in_flight_when_tasks_are_restored() {
    let watching = Case { make: watching, mechanism: Mechanism::Unaligned, ..ALARMS };
    assert_held(watching);
    assert_held(Case { mechanism: Mechanism::Aligned, ..watching });
    assert_caught(watching, Variant::WatermarksLeftOut, "values");
}

#[test]
fn plain_sinks_show_some_rows_twice_as_their_claim_says() {
    let plain = |case| Case { sink: SinkContract::Plain, ..case };
    assert_held(plain(COUNTING));
    assert_held(plain(ALARMS));
    let judgement = plain(COUNTING).judge(1, None);
    assert!(judgement.duplicated > 0 && judgement.lost == 0);
    assert_eq!(judgement.levels.unwrap().output, Some(Seen::Only(Level::AtLeastOnce)));
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
    assert_eq!(
        (judgement.levels.unwrap().state, judgement.stuck),
        (Some(Seen::Only(Level::AtMostOnce)), false)
    );
    assert!(judgement.lost > 0);
}

#[test]
fn state_outside_counts_again_what_is_replayed_unless_it_rolls_back() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::FullReplay] {
        let outside = Case { mechanism, make: counting_outside, ..COUNTING };
        assert_held(outside);
        let repeats = (0..SEEDS).map(|seed| outside.judge(seed, None));
        let mut repeats = repeats.filter(|judgement| {
            judgement.levels.unwrap().state == Some(Seen::Only(Level::AtLeastOnce))
        });
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
fn rule_004_a_barrier_that_counts_for_an_older_checkpoint_is_caught() {
    assert_caught(COUNTING, Variant::LaterBarrierCounts, "border");
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

#[test]
fn what_is_handed_out_and_not_reserved_is_caught_when_it_is_handed_out_again() {
    let case = Case { mechanism: Mechanism::None, sink: SinkContract::Plain, ..COUNTING };
    for variant in [Variant::AcknowledgeBeforeStored, Variant::EmittedReserved] {
        assert_caught(case, variant, "state-delivery");
        assert_caught(case, variant, "output-delivery");
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
    for sink in [SinkContract::TwoPhase, SinkContract::WriteAhead] {
        assert_held(Case { mechanism: Mechanism::Transactional, sink, ..ALARMS });
    }
}

#[test]
fn what_is_sent_before_it_is_durable_is_caught() {
    assert_caught(TRANSACTIONAL, Variant::AcknowledgeBeforeStored, "progress");
}

#[test]
fn productions_that_are_not_kept_are_caught_where_they_are_lost() {
    assert_caught(TRANSACTIONAL, Variant::InFlightLeftOut, "liveness");
    assert_caught(TRANSACTIONAL, Variant::InFlightLeftOut, "state-delivery");
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

#[test]
fn positions_of_splits_that_have_not_moved_are_part_of_a_snapshot() {
    assert_caught(COUNTING, Variant::PositionsOfMovedOnly, "recovery");
}

#[test]
fn first_positions_that_are_chosen_anew_at_a_restart_are_caught_by_what_is_lost() {
    assert_caught(COUNTING, Variant::StartPolicyAgain, "state-delivery");
}

#[test]
fn a_restart_that_goes_back_behind_a_complete_checkpoint_is_caught() {
    assert_caught(COUNTING, Variant::NewestCheckpointUnseen, "recovery");
    assert_caught(COUNTING, Variant::NewestCheckpointUnseen, "output-delivery");
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
        Some(Ending::Failed(_) | Ending::Finished | Ending::Stopped | Ending::Stuck) | None => None,
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

const FROM_WHAT_IS_LEFT: Case = Case { make: counting_what_is_left, ..COUNTING };

#[test]
fn a_job_that_goes_on_without_what_is_gone_says_so_and_loses_nothing_else() {
    for mechanism in [Mechanism::Aligned, Mechanism::Unaligned, Mechanism::Transactional] {
        assert_held(Case { mechanism, ..FROM_WHAT_IS_LEFT });
    }
    let lossy = (0..SEEDS).map(|seed| FROM_WHAT_IS_LEFT.judge(seed, None)).filter(|judgement| {
        assert!(!judgement.stuck);
        judgement.lost > 0
    });
    let levels: Vec<_> = lossy
        .filter_map(|lossy| lossy.levels)
        .map(|levels| (levels.state, levels.output))
        .collect();
    assert!(levels.len() > 5, "{levels:?}");
    let most = Some(Seen::Only(Level::AtMostOnce));
    assert!(levels.iter().all(|level| *level == (most, most)));
}

#[test]
fn a_gap_that_a_claim_allows_and_nobody_reports_is_caught() {
    assert_caught(FROM_WHAT_IS_LEFT, Variant::GapSkipped, "loss-report");
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
        assert_caught_by_delivery(FROM_QUEUES, variant);
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
fn a_snapshot_that_takes_what_is_pending_for_shown_is_caught() {
    assert_caught(COUNTING, Variant::PendingTakenForShown, "liveness");
    assert_caught(TRANSACTIONAL, Variant::PendingTakenForShown, "liveness");
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
fn rule_071_a_late_notice_that_commits_what_is_not_covered_is_caught_in_stages() {
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
