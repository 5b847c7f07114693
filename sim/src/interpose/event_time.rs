//! Broken variants of event time on its way through channels.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::element::Element;
use cofferdam::id::{AttemptId, ChannelIndex, TaskId};
use cofferdam::time::EventTime;
use smallvec::{SmallVec, smallvec};

use super::{Interposer, Variant};

/// What the variants remember of channels.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// The highest watermark that each channel has brought in any attempt.
    highest: BTreeMap<(TaskId, ChannelIndex), EventTime>,
    /// The channels that bring none any more.
    stopped: BTreeSet<(TaskId, AttemptId, ChannelIndex)>,
    /// The channels of each task whose end is held back until all have ended.
    held: BTreeMap<(TaskId, AttemptId), BTreeSet<ChannelIndex>>,
}

impl Interposer {
    /// What reaches a task of `channels` inputs in place of something that is neither a barrier nor
    /// records.
    pub(super) fn event_time(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        channels: usize,
        channel: ChannelIndex,
        element: Element,
    ) -> SmallVec<[(ChannelIndex, Element); 1]> {
        let passes = match (self.variant, &element) {
            (Some(Variant::WatermarkTooHigh), Element::Watermark(watermark)) => {
                let higher = watermark.saturating_add(1);
                return smallvec![(channel, Element::Watermark(higher))];
            }
            (Some(Variant::IdleUnheard), Element::Idle) => false,
            (Some(Variant::LowerWatermarkStops), Element::Watermark(watermark)) => {
                let highest = self.times.highest.entry((task, channel)).or_insert(*watermark);
                if watermark < highest {
                    self.times.stopped.insert((task, attempt, channel));
                }
                *highest = (*watermark).max(*highest);
                !self.times.stopped.contains(&(task, attempt, channel))
            }
            (Some(Variant::LowerWatermarkStops), Element::Idle) => {
                !self.times.stopped.contains(&(task, attempt, channel))
            }
            (Some(Variant::EndedInputHoldsTime), Element::EndOfData) => {
                let held = self.times.held.entry((task, attempt)).or_default();
                held.insert(channel);
                if held.len() < channels {
                    return SmallVec::new();
                }
                return held.iter().map(|held| (*held, Element::EndOfData)).collect();
            }
            (_, _) => true,
        };
        if passes { smallvec![(channel, element)] } else { SmallVec::new() }
    }
}
