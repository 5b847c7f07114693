//! A task's part in transactional updates, which need no barriers: what it took in, the change of
//! its state and what it produced become durable in one atomic write, and only then is sent what
//! was produced (MillWheel's strong productions: Akidau et al., VLDB 2013, section 6.1).
//!
//! ```text
//!  records -> already taken in? -> stage -> held --- one write at a time ---> sent, until the
//!               (by number)                      state, numbers, positions,   receiver has it
//!                                                held and unacknowledged      durable as well
//! ```
//! Records of a channel are numbered over all attempts, so a receiver knows by one number what it
//! has taken in, and what is sent again after a failure is dropped there. All that comes while a
//! write is under way becomes part of the next one.
//!
//! A write holds the changes of the operators' state since the one before, and now and then, when
//! those have become larger than the state, all of it.
//!
//! Invariants: nothing is sent that is not durable here; nothing is forgotten here that is not
//! durable at the receiver.

use std::collections::VecDeque;

use super::{Phase, Task, TaskOutput};
use crate::element::{Batch, Element};
use crate::id::{ChannelIndex, CheckpointId, OutletIndex, TaskId};
use crate::message::{TaskError, ToPeer};
use crate::operator::sink::SinkMachine;
use crate::state::snapshot::{ChannelNumbers, Extent, InFlight, TaskSnapshot};
use crate::storage::{StoreKey, StoreRequest, StoreValue};

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct Progress {
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    /// What was produced and is not durable, in order.
    held: VecDeque<TaskOutput>,
    /// So many of those have their numbers.
    numbered: usize,
    /// The records among them.
    held_records: usize,
    /// The records that were taken in and are not part of a write.
    open_records: usize,
    /// How many of either there may be before nothing more is taken in.
    records_max: usize,
    /// Something has changed that is not part of a write.
    has_changed: bool,
    /// The operators have said their last words: what comes now was taken in before.
    has_ended: bool,
    /// The last write that was begun, numbered as checkpoints are.
    last: CheckpointId,
    log: LogLength,
    write: Option<Write>,
}

/// A channel to this task.
#[derive(Clone)]
struct Input {
    sender: TaskId,
    outlet: OutletIndex,
    /// The number of the record that was not taken in yet, and the one the sender was told of.
    next: u64,
    told: u64,
}

/// A channel from this task.
#[derive(Clone, Default)]
struct Output {
    /// The number of the record that is produced next.
    next: u64,
    /// What the receiver may not have durable, durable here or not.
    unacknowledged: VecDeque<Batch>,
}

/// How long what the task has written is, in bytes.
#[derive(Clone)]
struct LogLength {
    /// Of the last write of all state; none before the first one of this attempt, which does not
    /// go on with the log of another.
    base: Option<u64>,
    /// Of the writes of changes since then.
    changes: u64,
    /// All state is not written before there are so many of them.
    changes_min: u64,
}

impl LogLength {
    /// What the next write holds.
    fn extent(&self) -> Extent {
        match self.base {
            Some(base) if self.changes <= base.max(self.changes_min) => Extent::Changes,
            Some(_) | None => Extent::Whole,
        }
    }

    fn note(&mut self, extent: Extent, bytes: u64) {
        match extent {
            Extent::Whole => (self.base, self.changes) = (Some(bytes), 0),
            Extent::Changes => self.changes += bytes,
        }
    }
}

/// A write that is under way.
#[derive(Clone)]
struct Write {
    extent: Extent,
    /// So much of what is held is part of it.
    covered: usize,
    /// What was taken in, by input.
    inputs: Vec<u64>,
    finished: bool,
    /// Not yet asked of the store: the sink is to be ready for it before.
    snapshot: Option<Box<TaskSnapshot>>,
}

impl Progress {
    /// Nothing was taken in and nothing produced. `senders`: by input, who sends there and on which
    /// of its outputs.
    pub(crate) fn new(
        senders: Vec<(TaskId, OutletIndex)>,
        outputs: usize,
        records_max: usize,
        changes_min: u64,
    ) -> Self {
        let input = |(sender, outlet)| Input { sender, outlet, next: 0, told: 0 };
        Self {
            inputs: senders.into_iter().map(input).collect(),
            outputs: vec![Output::default(); outputs],
            held: VecDeque::new(),
            numbered: 0,
            held_records: 0,
            open_records: 0,
            records_max,
            has_changed: false,
            has_ended: false,
            last: CheckpointId::default(),
            log: LogLength { base: None, changes: 0, changes_min },
            write: None,
        }
    }

    /// Goes on behind the write `last`, which `finished` says is that of the end. `unacknowledged`
    /// are the records that it held, by output.
    pub(crate) fn restore(
        &mut self,
        last: CheckpointId,
        finished: bool,
        numbers: &ChannelNumbers,
        unacknowledged: Vec<(OutletIndex, Vec<Batch>)>,
    ) {
        (self.last, self.has_ended) = (last, finished);
        for (input, next) in self.inputs.iter_mut().zip(&numbers.inputs) {
            (input.next, input.told) = (*next, *next);
        }
        for (output, next) in self.outputs.iter_mut().zip(&numbers.outputs) {
            output.next = *next;
        }
        for (outlet, batches) in unacknowledged {
            let output = &mut self.outputs[outlet.index()];
            output.next -= batches.iter().map(|records| records.len() as u64).sum::<u64>();
            batches.into_iter().for_each(|records| drop(output.add(records)));
        }
    }

    /// How many of the first records of a batch were taken in before.
    fn known(&self, channel: ChannelIndex, records: &Batch) -> usize {
        let first = records.number().expect("a sender numbers what it produces");
        let known = self.inputs[channel.index()].next.saturating_sub(first);
        records.len().min(known as usize)
    }

    /// What of a batch was not taken in before, which is taken in now.
    ///
    /// # Errors
    /// If records are missing before it.
    fn take_in(
        &mut self,
        own: StoreKey,
        channel: ChannelIndex,
        records: Batch,
    ) -> Result<Batch, TaskError> {
        let known = self.known(channel, &records);
        let records = records.skip(known);
        let next = &mut self.inputs[channel.index()].next;
        if let Some(first) = records.number().filter(|_| !records.is_empty()) {
            if first > *next {
                return Err(TaskError::Restore(format!(
                    "{own} and the progress of a sender do not fit together: the sender of \
                     {channel} goes on with record {first} and this task with record {next}, so \
                     what one of them had written is gone: put the files back as they were, or \
                     begin anew with other folders for output and checkpoints"
                )));
            }
            *next = first + records.len() as u64;
            self.note_taken(records.len());
        }
        Ok(records)
    }

    fn note_taken(&mut self, records: usize) {
        self.open_records += records;
        self.has_changed = true;
    }

    /// Gives what is new among what is held its numbers, and keeps it.
    fn number(&mut self) {
        for output in self.held.range_mut(self.numbered..) {
            if let TaskOutput::Send(outlet, Element::Batch(records)) = output {
                self.held_records += records.len();
                *records = self.outputs[outlet.index()].add(records.clone());
            }
        }
        self.numbered = self.held.len();
    }

    fn is_full(&self) -> bool {
        self.held_records.max(self.open_records) >= self.records_max
    }

    fn numbers(&self) -> ChannelNumbers {
        ChannelNumbers {
            inputs: self.inputs.iter().map(|input| input.next).collect(),
            outputs: self.outputs.iter().map(|output| output.next).collect(),
        }
    }

    fn unacknowledged(&self) -> impl Iterator<Item = (OutletIndex, &VecDeque<Batch>)> {
        let outlets = (0..).map(OutletIndex::new);
        let all = outlets.zip(self.outputs.iter().map(|output| &output.unacknowledged));
        all.filter(|(_, batches)| !batches.is_empty())
    }

    /// The write is durable: what can be sent now, and what the senders may forget.
    fn end_write(&mut self) -> Vec<TaskOutput> {
        let Some(Write { covered, inputs, .. }) = self.write.take() else { return Vec::new() };
        let mut outputs: Vec<TaskOutput> = self.held.drain(..covered).collect();
        self.numbered -= covered;
        self.held_records -= outputs.iter().filter_map(batch).map(Batch::len).sum::<usize>();
        for (input, next) in self.inputs.iter_mut().zip(inputs) {
            if next > input.told {
                input.told = next;
                let message = ToPeer::TakenIn { outlet: input.outlet, next };
                outputs.push(TaskOutput::Tell(input.sender, message));
            }
        }
        outputs
    }
}

fn batch(output: &TaskOutput) -> Option<&Batch> {
    if let TaskOutput::Send(_, element) = output { element.batch() } else { None }
}

impl Output {
    /// Numbers records and keeps them; returns them for the channel.
    fn add(&mut self, mut records: Batch) -> Batch {
        records.set_number(self.next);
        self.next += records.len() as u64;
        self.unacknowledged.push_back(records.clone());
        records
    }

    /// The receiver has everything before `next` durable.
    fn forget_before(&mut self, next: u64) {
        let is_over = |records: &mut Batch| {
            records.number().is_some_and(|first| first + records.len() as u64 <= next)
        };
        while self.unacknowledged.pop_front_if(is_over).is_some() {}
    }
}

impl Task {
    /// How many of the first records of a batch the task has taken in before, in this attempt or an
    /// earlier one: it will drop them.
    pub fn known(&self, channel: ChannelIndex, records: &Batch) -> usize {
        self.progress.as_ref().map_or(0, |progress| progress.known(channel, records))
    }

    /// What the task has produced and holds until it is durable, all but the first `skip` outputs.
    pub fn held(&self, skip: usize) -> impl Iterator<Item = &TaskOutput> {
        self.progress.iter().flat_map(move |progress| progress.held.iter().skip(skip))
    }

    /// Where produced elements go: out, or to what is held.
    pub(super) fn produced(&mut self) -> (&mut super::Outlet, &mut VecDeque<TaskOutput>) {
        let outputs = match &mut self.progress {
            Some(progress) => &mut progress.held,
            None => &mut self.outputs,
        };
        (&mut self.outlet, outputs)
    }

    /// Whether so much is held that nothing more may be taken in.
    pub(super) fn holds_enough(&self) -> bool {
        self.progress.as_ref().is_some_and(Progress::is_full)
    }

    /// Whether a write of the task's progress is under way.
    pub(super) fn is_writing_progress(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.write.is_some())
    }

    /// What of a batch is new, if anything is.
    pub(super) fn take_in(&mut self, channel: ChannelIndex, records: Batch) -> Option<Batch> {
        let own = self.progress_key();
        let Some(progress) = &mut self.progress else { return Some(records) };
        match progress.take_in(own, channel, records) {
            Ok(records) => Some(records).filter(|records| !records.is_empty()),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// The state, the timers or the positions have changed.
    pub(super) fn note_change(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.has_changed = !progress.has_ended;
        }
    }

    /// Whether a write covers the end of the data.
    pub(super) fn has_written_end(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.has_ended)
    }

    /// The end of the data is to be written, then the task is done.
    pub(super) fn write_end(&mut self) {
        self.phase = Phase::AwaitingFinalCheckpoint;
        self.note_change();
        if let Some(progress) = &mut self.progress {
            progress.has_ended = true;
        }
        self.write_progress();
    }

    /// The source has given records.
    pub(super) fn note_read(&mut self, records: &Batch) {
        if let Some(progress) = &mut self.progress {
            progress.note_taken(records.len());
        }
    }

    /// Gives what was produced its numbers.
    pub(super) fn number_produced(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.number();
        }
    }

    /// Whether nothing more is taken in before [`Task::flush`] is called.
    pub fn awaits_flush(&self) -> bool {
        self.holds_enough() && !self.is_writing_progress()
    }

    /// Sends again what the receivers may not have.
    pub(super) fn send_unacknowledged(&mut self) {
        let Some(progress) = &self.progress else { return };
        let again = progress.unacknowledged().flat_map(|(outlet, batches)| {
            batches.iter().map(move |records| (outlet, Element::Batch(records.clone())))
        });
        self.outputs.extend(again.map(|(outlet, element)| TaskOutput::Send(outlet, element)));
    }

    /// The part of a snapshot that says where the channels stand.
    pub(super) fn channels(&self) -> (InFlight<Batch>, Option<ChannelNumbers>) {
        let Some(progress) = &self.progress else { return (InFlight::default(), None) };
        let kept = progress.unacknowledged();
        let outputs = kept.map(|(outlet, batches)| (outlet, batches.iter().cloned().collect()));
        let in_flight = InFlight { outputs: outputs.collect(), ..InFlight::default() };
        (in_flight, Some(progress.numbers()))
    }

    /// Begins a write if something has changed and none is under way.
    pub(super) fn write_progress(&mut self) {
        let is_due = |progress: &Progress| progress.write.is_none() && progress.has_changed;
        let Some(progress) = self.progress.as_mut().filter(|progress| is_due(progress)) else {
            return;
        };
        match self.phase {
            Phase::AwaitingRecords | Phase::AwaitingFinalCheckpoint => {}
            Phase::AwaitingSinkRecovery
            | Phase::AwaitingLastCommits
            | Phase::AwaitingLastFlush
            | Phase::Finished
            | Phase::Failed => return,
        }
        self.outlet.flush(&mut progress.held);
        progress.number();
        progress.has_changed = false;
        progress.open_records = 0;
        progress.last = progress.last.next();
        let (number, extent) = (progress.last, progress.log.extent());
        let covered = progress.held.len();
        let prepare = match self.pre_commit(number) {
            Ok(prepare) => prepare,
            Err(error) => return self.fail(error),
        };
        let is_preparing = self.sink.as_ref().is_some_and(|sink| sink.is_preparing(number));
        if let Some(source) = &mut self.source {
            source.cut(number);
        }
        // The changes are taken in any case: the next ones begin behind this write.
        let mut snapshot = self.capture_of(number, Extent::Changes);
        if extent == Extent::Whole {
            snapshot.operators = self.stage.snapshot();
        }
        let inputs = snapshot.numbers.as_ref().map(|numbers| numbers.inputs.clone());
        let progress = self.progress.as_mut().expect("it was there above");
        let awaits_sink = prepare.is_some() || is_preparing;
        progress.write = Some(Write {
            extent,
            covered,
            inputs: inputs.unwrap_or_default(),
            finished: snapshot.finished,
            snapshot: Some(Box::new(snapshot)),
        });
        self.outputs.push_back(TaskOutput::Cut(number));
        self.outputs.extend(prepare.map(TaskOutput::Sink));
        if !awaits_sink {
            self.store_progress();
        }
    }

    /// The sink is ready for the write that awaits it: what was written is flushed or prepared.
    pub(super) fn store_progress(&mut self) {
        let write = self.progress.as_mut().and_then(|progress| progress.write.as_mut());
        let Some(write) = write else { return };
        let (extent, Some(snapshot)) = (write.extent, write.snapshot.take()) else { return };
        self.outputs.push_back(TaskOutput::Store(StoreRequest::Put {
            key: self.progress_key(),
            value: StoreValue::Progress(snapshot, extent),
        }));
    }

    fn progress_key(&self) -> StoreKey {
        StoreKey::Progress { vertex: self.subtask.vertex, subtask: self.subtask.index }
    }

    /// The sink has confirmed a prepare: that of the write, or of an earlier one.
    pub(super) fn store_prepared_progress(&mut self) {
        let Some(progress) = &self.progress else { return };
        if !self.sink.as_ref().is_some_and(|sink| sink.is_preparing(progress.last)) {
            self.store_progress();
        }
    }

    /// The write is durable, and with it all that it covers.
    pub(super) fn handle_progress_stored(&mut self, bytes: u64) {
        let Some(progress) = &mut self.progress else { return };
        let (number, finished) =
            (progress.last, progress.write.as_ref().is_some_and(|write| write.finished));
        if let Some(write) = &progress.write {
            progress.log.note(write.extent, bytes);
        }
        let sent = progress.end_write();
        self.outputs.extend(sent);
        self.handle_completed(number);
        if finished && self.phase == Phase::AwaitingFinalCheckpoint {
            return self.finish_settled();
        }
        self.pull();
        self.write_progress();
    }

    /// Nothing is left but commits that are not confirmed, if any.
    pub(super) fn finish_settled(&mut self) {
        if self.sink.as_ref().is_none_or(SinkMachine::is_settled) {
            self.finish();
        } else {
            self.phase = Phase::AwaitingLastCommits;
        }
    }

    /// A receiver has records of this task durable.
    pub(super) fn forget_taken_in(&mut self, outlet: OutletIndex, next: u64) {
        if let Some(progress) = &mut self.progress {
            progress.outputs[outlet.index()].forget_before(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_state_is_written_first_and_when_its_changes_have_outgrown_it() {
        let mut log = LogLength { base: None, changes: 0, changes_min: 50 };
        assert_eq!(log.extent(), Extent::Whole, "an attempt begins a log of its own");
        for (written, next) in [
            ((Extent::Whole, 100), Extent::Changes),
            ((Extent::Changes, 100), Extent::Changes),
            ((Extent::Changes, 1), Extent::Whole),
            ((Extent::Whole, 10), Extent::Changes),
            ((Extent::Changes, 50), Extent::Changes),
            ((Extent::Changes, 1), Extent::Whole),
        ] {
            log.note(written.0, written.1);
            assert_eq!(log.extent(), next, "after {written:?}");
        }
    }
}
