//! Broken variants of the protocol: each changes what passes a machine's boundary, and the machines
//! themselves stay as they are. A judge that does not notice one of them is blind.

use std::collections::BTreeMap;
use std::fmt;

use cofferdam::element::Element;
use cofferdam::id::{AttemptId, ChannelIndex, CheckpointId, TaskId};
use cofferdam::operator::sink::SinkRequest;
use cofferdam::state::snapshot::{InFlight, TaskSnapshot};
use cofferdam::storage::{
    StateHandle, StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue,
};
use cofferdam::task::TaskOutput;
use smallvec::{SmallVec, smallvec};

/// A broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The barrier of a task's first input channel is held back until those of all others have
    /// come: what follows it on that channel gets into the snapshot.
    BarrierNotAligned,
    /// A two-phase sink commits when it has prepared, not when the checkpoint is complete.
    CommitAtSnapshot,
    /// A task hears that its state is durable before the store has written it.
    AcknowledgeBeforeStored,
    /// Snapshots do not hold the timers.
    TimersLeftOut,
    /// Older attempts are not refused: not by external systems, and not on channels.
    OldAttemptNotFenced,
    /// Snapshots hold no records in flight.
    InFlightLeftOut,
    /// Snapshots hold the records in flight of a task's first input only.
    FirstInputInFlight,
    /// Records in flight are stored twice, as if those of a recovery were recorded again.
    InFlightTwice,
    /// Records in flight are stored in another order than they are in the channel.
    InFlightDisordered,
    /// What a barrier overtakes at the receiver includes what was sent behind it.
    InFlightBehindBarrier,
    /// What a barrier overtakes at the sender is not part of its snapshot.
    OutputNotInFlight,
    /// A barrier that overtakes is handed in after the next record.
    RecordBeforeBarrier,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Self; 12] = [
        Self::BarrierNotAligned,
        Self::CommitAtSnapshot,
        Self::AcknowledgeBeforeStored,
        Self::TimersLeftOut,
        Self::OldAttemptNotFenced,
        Self::InFlightLeftOut,
        Self::FirstInputInFlight,
        Self::InFlightTwice,
        Self::InFlightDisordered,
        Self::InFlightBehindBarrier,
        Self::OutputNotInFlight,
        Self::RecordBeforeBarrier,
    ];
}

impl Variant {
    /// What becomes of a snapshot on its way to the store.
    fn change(self, snapshot: &mut TaskSnapshot) {
        let InFlight { inputs, outputs } = &mut snapshot.in_flight;
        let in_flight = inputs.values_mut().chain(outputs.values_mut());
        match self {
            Self::TimersLeftOut => {
                snapshot.operators.iter_mut().for_each(|operator| operator.timers = None);
            }
            Self::InFlightLeftOut => snapshot.in_flight = InFlight::default(),
            Self::FirstInputInFlight => inputs.retain(|channel, _| channel.get() == 0),
            Self::InFlightTwice => in_flight.for_each(|batches| batches.extend_from_within(..)),
            Self::InFlightDisordered => in_flight.for_each(|batches| batches.reverse()),
            Self::BarrierNotAligned
            | Self::CommitAtSnapshot
            | Self::AcknowledgeBeforeStored
            | Self::OldAttemptNotFenced
            | Self::InFlightBehindBarrier
            | Self::OutputNotInFlight
            | Self::RecordBeforeBarrier => {}
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BarrierNotAligned => "barrier-not-aligned",
            Self::CommitAtSnapshot => "commit-at-snapshot",
            Self::AcknowledgeBeforeStored => "acknowledge-before-stored",
            Self::TimersLeftOut => "timers-left-out",
            Self::OldAttemptNotFenced => "old-attempt-not-fenced",
            Self::InFlightLeftOut => "in-flight-left-out",
            Self::FirstInputInFlight => "first-input-in-flight",
            Self::InFlightTwice => "in-flight-twice",
            Self::InFlightDisordered => "in-flight-disordered",
            Self::InFlightBehindBarrier => "in-flight-behind-barrier",
            Self::OutputNotInFlight => "output-not-in-flight",
            Self::RecordBeforeBarrier => "record-before-barrier",
        })
    }
}

/// Stands at the boundaries of all machines of a world.
#[derive(Clone, Debug, Default)]
pub struct Interposer {
    variant: Option<Variant>,
    alignments: BTreeMap<(TaskId, AttemptId), Alignment>,
}

/// The barriers that a task's channels have brought, for the variant that holds the first one back.
#[derive(Clone, Debug)]
struct Alignment {
    checkpoint: CheckpointId,
    others: usize,
    holds_first: bool,
}

/// What passes a task's boundary in place of one output.
#[derive(Debug)]
pub enum Passed {
    /// To the outside.
    Out(TaskOutput),
    /// Back to the task.
    Stored(StoreReply),
}

impl Interposer {
    /// With no variant everything passes as it is.
    pub fn new(variant: Option<Variant>) -> Self {
        Self { variant, alignments: BTreeMap::new() }
    }

    /// Whether this variant is at work.
    pub fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    /// What becomes of an output.
    pub fn output(&self, output: TaskOutput) -> SmallVec<[Passed; 1]> {
        match (self.variant, output) {
            (Some(Variant::CommitAtSnapshot), TaskOutput::Sink(SinkRequest::Prepare(pending))) => {
                smallvec![
                    Passed::Out(TaskOutput::Sink(SinkRequest::Prepare(pending))),
                    Passed::Out(TaskOutput::Sink(SinkRequest::Commit(pending.transaction))),
                ]
            }
            (
                Some(Variant::AcknowledgeBeforeStored),
                TaskOutput::Store(StoreRequest::Put { key, value: StoreValue::State(snapshot) }),
            ) => {
                let value = StoreValue::State(snapshot);
                let handle = StateHandle::of(key, &value.encode());
                let reply = StoreReply { key, outcome: StoreOutcome::Stored(handle) };
                let put = TaskOutput::Store(StoreRequest::Put { key, value });
                smallvec![Passed::Out(put), Passed::Stored(reply)]
            }
            (
                Some(variant),
                TaskOutput::Store(StoreRequest::Put {
                    key: key @ StoreKey::State { .. },
                    value: StoreValue::State(mut snapshot),
                }),
            ) => {
                variant.change(&mut snapshot);
                let value = StoreValue::State(snapshot);
                smallvec![Passed::Out(TaskOutput::Store(StoreRequest::Put { key, value }))]
            }
            (_, output) => smallvec![Passed::Out(output)],
        }
    }

    /// Which elements reach a task of `channels` inputs when one has been taken from a channel.
    pub fn delivery(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        channels: usize,
        channel: ChannelIndex,
        element: Element,
    ) -> SmallVec<[(ChannelIndex, Element); 1]> {
        let first = ChannelIndex::new(0);
        let Element::Barrier(barrier) = element else { return smallvec![(channel, element)] };
        let checkpoint = barrier.checkpoint;
        if !self.is(Variant::BarrierNotAligned) || channels < 2 {
            return smallvec![(channel, element)];
        }
        let begun = Alignment { checkpoint, others: 0, holds_first: false };
        let alignment = self.alignments.entry((task, attempt)).or_insert(begun.clone());
        if alignment.checkpoint != checkpoint {
            *alignment = begun;
        }
        if channel == first {
            alignment.holds_first = alignment.others < channels - 1;
            return if alignment.holds_first {
                SmallVec::new()
            } else {
                smallvec![(channel, element)]
            };
        }
        alignment.others += 1;
        let mut deliveries = smallvec![(channel, element.clone())];
        if alignment.others == channels - 1 && alignment.holds_first {
            deliveries.push((first, element));
        }
        deliveries
    }
}
