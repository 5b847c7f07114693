//! Reads in the world, and the systems behind the sources: logs that drop their oldest records when
//! the seed says so. They outlive every crash.

use cofferdam::id::{AttemptId, SplitId, TaskId};
use cofferdam::operator::source::{ErasedSource, ReadOutcome, ReadReply, ReadRequest};
use cofferdam::time::Instant;
use cofferdam::trace::{Origin, RecordId, TraceEvent};

use super::{Event, World};
use crate::decide::Choice;
use crate::interpose::Variant;
use crate::link::Origins;

/// A log behind one split, in offsets of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    /// The first record that is left.
    first: u64,
    /// Behind the last record that was ever read.
    read: u64,
}

impl World {
    /// Draws when logs are truncated, if the job reads any.
    pub(super) fn plan_truncations(&mut self) {
        let plan = self.plan.clone();
        let mut sources = plan.sources.iter().filter_map(|(vertex, _)| plan.job.source(*vertex));
        if !sources.any(|source| source.is_truncated()) {
            return;
        }
        for number in 0..plan.options.truncations as u32 {
            let micros = plan.options.faults_until_us.max(1);
            let at = self.decider.mostly_short(Choice::Truncation, number, micros);
            self.queue.schedule(Instant::from_nanos(at * 1000), Event::Truncation(number));
        }
    }

    /// Every log drops some of its oldest records, now and then also such as nobody has read yet.
    pub(super) fn truncate(&mut self, number: u32) {
        if !self.may_disturb() {
            return;
        }
        for ((task, split), mut log) in self.logs.clone() {
            let most = log.read.saturating_sub(log.first) + UNREAD_MAX;
            let first = log.first + self.decider.below(Choice::Truncation, number, most);
            if first > log.first {
                log.first = first;
                self.logs.insert((task, split), log);
                self.record(TraceEvent::Truncated { task, split, first });
            }
        }
    }

    /// Reads from a source as often as the drawn batch size says.
    pub(super) fn read_source(&mut self, id: TaskId, attempt: AttemptId) {
        let (calls, records_max) = self.draw_calls(id);
        for _ in 0..calls {
            let Some(slot) = self.slot_mut(id, attempt) else { return };
            let Some(mut request) = slot.read.take() else { return };
            let client = slot.client.take();
            let mut client = client.expect("a task that reads begins with a source");
            request.records_max = request.records_max.min(records_max);
            if client.is_queue() {
                slot.client = Some(client);
                self.receive(id, attempt, &request);
                continue;
            }
            let (outcome, origins) = self.read_log(id, client.as_mut(), &request);
            if let Some(slot) = self.slot_mut(id, attempt) {
                slot.client = Some(client);
            }
            self.hand_in(id, attempt, ReadReply { split: request.split, outcome }, origins);
        }
    }

    /// How many calls of a source's machine make a step, and how many records each may bring.
    pub(super) fn draw_calls(&mut self, id: TaskId) -> (u64, usize) {
        let options = &self.plan.options;
        let (most, whole) = (options.batch_records_max, options.whole_batches);
        let records = 1 + self.decider.mostly_short(Choice::BatchSize, id.get(), most);
        if whole { (1, records as usize) } else { (records, 1) }
    }

    /// Reads at a cursor, if what stands there is still there.
    fn read_log(
        &mut self,
        id: TaskId,
        client: &mut dyn ErasedSource,
        request: &ReadRequest,
    ) -> (ReadOutcome, Origins) {
        let plan = self.plan.clone();
        let (vertex, _) = plan.job.graph().place_of(id);
        let source = plan.sources.iter().position(|(source, _)| *source == vertex);
        let source = source.expect("every source is in the plan");
        let mut offset = (plan.sources[source].1)(&request.cursor);
        let behind_gap;
        let mut cursor = &request.cursor;
        if client.is_truncated()
            && let Some(gone) = self.gone(id, request.split, offset)
            && let ReadOutcome::Records { records, cursor: behind } = client.read(cursor, gone)
        {
            let first = offset + records.len() as u64;
            if !self.interposer.is(Variant::GapSkipped) {
                let outcome = ReadOutcome::Gone { wanted: offset, first, cursor: behind };
                return (outcome, Origins::new());
            }
            behind_gap = behind;
            (offset, cursor) = (first, &behind_gap);
        }
        let outcome = client.read(cursor, request.records_max);
        let count = match &outcome {
            ReadOutcome::Records { records, .. } => records.len() as u64,
            ReadOutcome::Nothing
            | ReadOutcome::End
            | ReadOutcome::Messages { .. }
            | ReadOutcome::Gone { .. }
            | ReadOutcome::Failed(_) => 0,
        };
        if client.is_truncated() {
            let begun = Log { first: offset, read: offset };
            let log = self.logs.entry((id, request.split)).or_insert(begun);
            log.read = log.read.max(offset + count);
        }
        let origin = |position| Origin {
            record: Some(RecordId { source: source as u32, offset: offset + position }),
            path: 0,
        };
        (outcome, (0..count).map(origin).collect())
    }

    /// How many records are gone from `offset` on, if any.
    fn gone(&self, task: TaskId, split: SplitId, offset: u64) -> Option<usize> {
        let log = self.logs.get(&(task, split))?;
        (offset < log.first).then(|| (log.first - offset) as usize)
    }
}

/// How many records that nobody has read a truncation drops at the most.
const UNREAD_MAX: u64 = 3;
