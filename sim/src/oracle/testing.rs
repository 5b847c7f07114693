//! Hand-made traces for the judges' own tests: two sources, tasks 0 and 1, feed task 2 by channels
//! 0 and 1.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::guarantee::{Level, Mechanism, SinkContract};
use cofferdam::id::{
    AttemptId, ChannelId, CheckpointId, SubtaskIndex, TaskId, TransactionId, VertexId,
};
use cofferdam::message::AbortReason;
use cofferdam::time::Instant;
use cofferdam::trace::{Carried, Origin, RecordId, TraceEvent, Traced};

use super::{Cells, Facts, Given, Oracle, RowFact, SinkFacts, StateFacts, Table};

/// Facts that every judge is content with, but for the trace.
pub(super) fn facts(trace: &[Traced]) -> Facts<'_> {
    Facts {
        trace,
        control: trace,
        layouts: &[],
        channels: CHANNELS,
        tasks: 3,
        mechanism: Mechanism::Aligned,
        state_promise: Level::ExactlyOnce,
        state_claim: Level::ExactlyOnce,
        output_claim: Some(Level::ExactlyOnce),
        state_is_idempotent: false,
        is_finished: true,
        faults_stop: Instant::ZERO,
        trigger_delay_max: Duration::ZERO,
        concurrent_max: 1,
        failure: None,
        state: StateFacts {
            incarnations: &[],
            cells: &NO_CELLS,
            expected: &NO_CELLS,
            expected_of_applied: None,
        },
        sinks: &[],
        records: &[],
        is_state_right: OnceCell::new(),
    }
}

/// A sink of which the reference expects nothing.
pub(super) fn sink<'a>(contract: SinkContract, rows: &'a [RowFact<'a>]) -> SinkFacts<'a> {
    static TABLE: Table = Table::new();
    static OF_ATTEMPT: BTreeMap<AttemptId, Vec<&[u8]>> = BTreeMap::new();
    static GIVEN: BTreeMap<Vec<u8>, Given> = BTreeMap::new();
    SinkFacts {
        uid: "out",
        contract,
        rows,
        expected: &[],
        expected_table: &TABLE,
        expected_of_attempt: &OF_ATTEMPT,
        given: &GIVEN,
        fired: None,
    }
}

/// Asks a judge: its first finding must contain `expected`, or there must be none if that is empty.
#[track_caller]
pub(super) fn check(oracle: &Oracle, facts: &Facts<'_>, expected: &str) {
    let findings = (oracle.judge)(facts);
    match findings.first() {
        None => assert_eq!(expected, "", "nothing was found"),
        Some(first) => {
            assert!(!expected.is_empty(), "false alarm: {}", first.text);
            assert!(first.text.contains(expected), "expected '{expected}': {}", first.text);
            assert_eq!(first.oracle, oracle.name);
        }
    }
}

pub(super) fn trace(events: &[TraceEvent]) -> Vec<Traced> {
    events.iter().map(|event| Traced { at: Instant::ZERO, event: *event }).collect()
}

pub(super) fn att(attempt: u64) -> AttemptId {
    AttemptId::new(attempt)
}

pub(super) fn chk(checkpoint: u64) -> CheckpointId {
    CheckpointId::new(checkpoint)
}

pub(super) fn task(task: u32) -> TaskId {
    TaskId::new(task)
}

pub(super) fn barrier(checkpoint: u64) -> Carried {
    Carried::Barrier(chk(checkpoint))
}

pub(super) fn sent(attempt: u64, channel: u32, sequence: u64, what: Carried) -> TraceEvent {
    TraceEvent::Sent { channel: ChannelId::new(channel), attempt: att(attempt), sequence, what }
}

pub(super) fn received(attempt: u64, channel: u32, sequence: u64, what: Carried) -> TraceEvent {
    TraceEvent::Received { channel: ChannelId::new(channel), attempt: att(attempt), sequence, what }
}

pub(super) fn snapshot(attempt: u64, of: u32, checkpoint: u64) -> TraceEvent {
    snapshot_of(attempt, of, checkpoint, 0)
}

pub(super) fn snapshot_of(attempt: u64, of: u32, checkpoint: u64, digest: u64) -> TraceEvent {
    let (task, checkpoint) = (task(of), chk(checkpoint));
    TraceEvent::Snapshot { task, attempt: att(attempt), checkpoint, digest }
}

pub(super) fn stored(attempt: u64, of: u32, checkpoint: u64) -> TraceEvent {
    let (task, checkpoint) = (task(of), chk(checkpoint));
    TraceEvent::StateStored { task, attempt: att(attempt), checkpoint }
}

pub(super) fn acknowledged(attempt: u64, of: u32, checkpoint: u64) -> TraceEvent {
    let (task, checkpoint) = (task(of), chk(checkpoint));
    TraceEvent::Acknowledged { task, attempt: att(attempt), checkpoint }
}

pub(super) fn triggered(checkpoint: u64) -> TraceEvent {
    TraceEvent::Triggered { checkpoint: chk(checkpoint) }
}

pub(super) fn completed(attempt: u64, checkpoint: u64) -> TraceEvent {
    TraceEvent::Completed { checkpoint: chk(checkpoint), attempt: att(attempt) }
}

pub(super) fn expired(checkpoint: u64) -> TraceEvent {
    TraceEvent::Aborted { checkpoint: chk(checkpoint), reason: AbortReason::Expired }
}

pub(super) fn deployed(attempt: u64, restored: Option<u64>) -> TraceEvent {
    TraceEvent::Deployed { attempt: att(attempt), restored: restored.map(chk) }
}

pub(super) fn started(attempt: u64, of: u32, restored: Option<(u64, u64)>) -> TraceEvent {
    let restored = restored.map(|(checkpoint, digest)| (chk(checkpoint), digest));
    TraceEvent::Started { task: task(of), attempt: att(attempt), restored }
}

/// The transaction `sequence` of task 2 in an attempt.
pub(super) fn transaction(attempt: u64, sequence: u64) -> TransactionId {
    let (vertex, subtask) = (VertexId::new(1), SubtaskIndex::new(0));
    TransactionId { vertex, subtask, attempt: att(attempt), sequence }
}

pub(super) fn written(attempt: u64, transaction: Option<TransactionId>) -> TraceEvent {
    TraceEvent::Written { task: task(2), attempt: att(attempt), transaction, rows: 1 }
}

pub(super) fn prepared(transaction: TransactionId, checkpoint: u64) -> TraceEvent {
    TraceEvent::Prepared { transaction, checkpoint: chk(checkpoint) }
}

pub(super) fn committed(attempt: u64, transaction: TransactionId) -> TraceEvent {
    TraceEvent::Committed { transaction, attempt: att(attempt), again: false }
}

pub(super) fn timed_out(transaction: TransactionId) -> TraceEvent {
    TraceEvent::TimedOut { transaction }
}

pub(super) fn rolled_back(attempt: u64, transaction: TransactionId) -> TraceEvent {
    TraceEvent::RolledBack { transaction, attempt: att(attempt) }
}

/// Record `offset` of source 0 on some path.
pub(super) fn origin(offset: u64, path: u64) -> Origin {
    Origin { record: Some(record(offset)), path }
}

pub(super) fn record(offset: u64) -> RecordId {
    RecordId { source: 0, offset }
}

pub(super) static NO_CELLS: Cells = Cells::new();

const CHANNELS: &[(TaskId, TaskId)] =
    &[(TaskId::new(0), TaskId::new(2)), (TaskId::new(1), TaskId::new(2))];
