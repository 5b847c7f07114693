//! The inputs of a task: the watermark that all of them have reached, and which have ended.

use crate::id::ChannelIndex;
use crate::time::EventTime;

/// Invariant: `lowest` is the least of `watermarks`; a channel whose data has ended counts as
/// [`EventTime::MAX`], so `lowest` is that exactly when all have ended.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    watermarks: Vec<EventTime>,
    lowest: EventTime,
}

impl Gate {
    /// With `finished`, all channels had ended before.
    pub(crate) fn new(channels: usize, finished: bool) -> Self {
        let lowest = if finished { EventTime::MAX } else { EventTime::MIN };
        Self { watermarks: vec![lowest; channels], lowest }
    }

    /// Whether all channels have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.lowest == EventTime::MAX
    }

    /// The watermark of all channels, if it has risen. One that falls back is ignored.
    pub(crate) fn handle_watermark(
        &mut self,
        channel: ChannelIndex,
        watermark: EventTime,
    ) -> Option<EventTime> {
        let own = &mut self.watermarks[channel.index()];
        *own = watermark.max(*own);
        let lowest = self.watermarks.iter().copied().min()?;
        (lowest > self.lowest).then(|| {
            self.lowest = lowest;
            lowest
        })
    }

    /// As [`Gate::handle_watermark`]; [`EventTime::MAX`] once, when the last channel ends.
    pub(crate) fn handle_end_of_data(&mut self, channel: ChannelIndex) -> Option<EventTime> {
        self.handle_watermark(channel, EventTime::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_is_the_least_over_the_channels_and_never_falls() {
        let mut gate = Gate::new(2, false);
        let (left, right) = (ChannelIndex::new(0), ChannelIndex::new(1));
        let at = EventTime::from_millis;
        assert_eq!(gate.handle_watermark(left, at(5)), None);
        assert_eq!(gate.handle_watermark(right, at(3)), Some(at(3)));
        assert_eq!(gate.handle_watermark(right, at(1)), None);
        assert_eq!(gate.handle_end_of_data(right), Some(at(5)));
        assert_eq!(gate.handle_end_of_data(left), Some(EventTime::MAX));
        assert_eq!(gate.handle_end_of_data(left), None);
    }
}
