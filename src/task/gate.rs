//! The inputs of a task: the watermark that all of them have reached, which have ended, and which
//! are idle.

use crate::id::ChannelIndex;
use crate::time::{EventTime, Progress};

/// Invariant: `lowest` never falls, and is [`EventTime::MAX`] exactly when all channels have ended.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    channels: Vec<Input>,
    lowest: EventTime,
    /// The task has said that it is idle, and nothing else since.
    is_idle: bool,
}

#[derive(Clone, Copy, Debug)]
enum Input {
    /// It has brought this watermark.
    Active(EventTime),
    /// As that, and no other one is waited for.
    Idle(EventTime),
    Ended,
}

impl Gate {
    /// With `finished`, all channels had ended before.
    pub(crate) fn new(channels: usize, finished: bool) -> Self {
        let (input, lowest) = if finished {
            (Input::Ended, EventTime::MAX)
        } else {
            (Input::Active(EventTime::MIN), EventTime::MIN)
        };
        Self { channels: vec![input; channels], lowest, is_idle: false }
    }

    /// Whether all channels have ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.lowest == EventTime::MAX
    }

    /// A watermark has come. One that falls back is ignored, but the channel is not idle any more.
    pub(crate) fn handle_watermark(
        &mut self,
        channel: ChannelIndex,
        watermark: EventTime,
    ) -> Option<Progress> {
        let own = &mut self.channels[channel.index()];
        *own = match *own {
            Input::Active(before) | Input::Idle(before) => Input::Active(watermark.max(before)),
            Input::Ended => Input::Ended,
        };
        self.advance()
    }

    /// A channel is idle.
    pub(crate) fn handle_idle(&mut self, channel: ChannelIndex) -> Option<Progress> {
        let own = &mut self.channels[channel.index()];
        *own = match *own {
            Input::Active(before) | Input::Idle(before) => Input::Idle(before),
            Input::Ended => Input::Ended,
        };
        self.advance()
    }

    /// A channel has ended: no watermark of it is waited for any more.
    pub(crate) fn handle_end_of_data(&mut self, channel: ChannelIndex) -> Option<Progress> {
        self.channels[channel.index()] = Input::Ended;
        self.advance()
    }

    /// What is new, if anything is: idle channels are not waited for, and where all are idle the
    /// farthest of them waits for no other one.
    fn advance(&mut self) -> Option<Progress> {
        let active = self.channels.iter().filter_map(|input| match input {
            Input::Active(watermark) => Some(*watermark),
            Input::Idle(_) | Input::Ended => None,
        });
        let idle = self.channels.iter().filter_map(|input| match input {
            Input::Idle(watermark) => Some(*watermark),
            Input::Active(_) | Input::Ended => None,
        });
        let lowest = match (active.min(), idle.max()) {
            (Some(lowest), _) => lowest,
            (None, Some(farthest)) => {
                let was_idle = std::mem::replace(&mut self.is_idle, true);
                let reached = (farthest > self.lowest).then_some(farthest);
                self.lowest = self.lowest.max(farthest);
                return (!was_idle || reached.is_some()).then_some(Progress::Idle(reached));
            }
            (None, None) => EventTime::MAX,
        };
        let was_idle = std::mem::take(&mut self.is_idle);
        let has_risen = lowest > self.lowest;
        self.lowest = self.lowest.max(lowest);
        (has_risen || was_idle).then_some(Progress::Watermark(self.lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: ChannelIndex = ChannelIndex::new(0);
    const RIGHT: ChannelIndex = ChannelIndex::new(1);

    fn at(millis: i64) -> EventTime {
        EventTime::from_millis(millis)
    }

    fn reached(time: EventTime) -> Option<Progress> {
        Some(Progress::Watermark(time))
    }

    #[test]
    fn the_watermark_is_the_least_over_the_channels_and_never_falls() {
        let mut gate = Gate::new(2, false);
        assert_eq!(gate.handle_watermark(LEFT, at(5)), None);
        assert_eq!(gate.handle_watermark(RIGHT, at(3)), reached(at(3)));
        assert_eq!(gate.handle_watermark(RIGHT, at(1)), None);
        assert_eq!(gate.handle_end_of_data(RIGHT), reached(at(5)));
        assert_eq!(gate.handle_end_of_data(LEFT), reached(EventTime::MAX));
        assert_eq!(gate.handle_end_of_data(LEFT), None);
    }

    #[test]
    fn an_idle_channel_is_not_waited_for_until_it_brings_a_watermark_again() {
        let mut gate = Gate::new(2, false);
        assert_eq!(gate.handle_watermark(LEFT, at(5)), None);
        assert_eq!(gate.handle_idle(RIGHT), reached(at(5)));
        assert_eq!(gate.handle_watermark(LEFT, at(7)), reached(at(7)));
        // It is behind: what it brings may be late, but event time never falls.
        assert_eq!(gate.handle_watermark(RIGHT, at(2)), None);
        assert_eq!(gate.handle_watermark(LEFT, at(9)), None);
        assert_eq!(gate.handle_watermark(RIGHT, at(8)), reached(at(8)));
    }

    #[test]
    fn where_all_channels_are_idle_event_time_comes_to_where_the_farthest_is() {
        let mut gate = Gate::new(2, false);
        assert_eq!(gate.handle_watermark(LEFT, at(9)), None);
        assert_eq!(gate.handle_idle(LEFT), None);
        assert_eq!(gate.handle_idle(RIGHT), Some(Progress::Idle(Some(at(9)))));
        // It never falls behind that again.
        assert_eq!(gate.handle_watermark(RIGHT, at(4)), reached(at(9)));
        assert_eq!(gate.handle_idle(RIGHT), Some(Progress::Idle(None)));
    }

    #[test]
    fn a_task_is_idle_when_all_its_open_channels_are_and_says_when_it_is_not_any_more() {
        let mut gate = Gate::new(2, false);
        assert_eq!(gate.handle_watermark(LEFT, at(5)), None);
        assert_eq!(gate.handle_end_of_data(RIGHT), reached(at(5)));
        assert_eq!(gate.handle_idle(LEFT), Some(Progress::Idle(None)));
        assert_eq!(gate.handle_idle(LEFT), None);
        assert_eq!(gate.handle_watermark(LEFT, at(5)), reached(at(5)));
        assert_eq!(gate.handle_idle(LEFT), Some(Progress::Idle(None)));
        assert_eq!(gate.handle_end_of_data(LEFT), reached(EventTime::MAX));
        assert!(gate.is_finished());
    }
}
