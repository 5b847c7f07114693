//! C1, channel order: what is received on a channel within an attempt is a prefix of what was sent
//! on it, with no gap, no repeat and nothing changed on the way.
//!
//! The false alarm it avoids: records may be joined to a batch that is still under way, so that
//! several sendings share one place on the channel; their numbers of records add up. A barrier may
//! be taken ahead of its turn, and its place is skipped afterwards.

use cofferdam::id::{ChannelId, CheckpointId};
use cofferdam::trace::{Carried, TraceEvent};

use super::by_attempt::ByAttempt;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "channel-order",
    property: "C1: a channel delivers a prefix of what was sent, in order, each element once",
    judge,
    scope: Scope::Layout,
};

#[derive(Clone, Default)]
struct Channel {
    sent: Vec<Carried>,
    received: usize,
    /// Places of barriers that were taken ahead of their turn.
    overtook: Vec<u64>,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut attempts = ByAttempt::new(vec![Channel::default(); facts.channels.len()]);
    let mut findings = Vec::new();
    for traced in facts.trace {
        let problem = match traced.event {
            TraceEvent::Sent { channel, attempt, sequence, what } => {
                attempts.at(attempt)[channel.index()].send(channel, sequence, what)
            }
            TraceEvent::Received { channel, attempt, sequence, what } => {
                attempts.at(attempt)[channel.index()].receive(channel, sequence, what)
            }
            TraceEvent::Overtook { channel, attempt, sequence, checkpoint } => {
                attempts.at(attempt)[channel.index()].overtake(channel, sequence, checkpoint)
            }
            _ => None,
        };
        let finding = |text| Finding::protocol(ORACLE.name, Subject::State, text);
        findings.extend(problem.map(finding));
    }
    findings
}

impl Channel {
    fn send(&mut self, channel: ChannelId, sequence: u64, what: Carried) -> Option<String> {
        if sequence as usize == self.sent.len() {
            self.sent.push(what);
            return None;
        }
        if sequence as usize + 1 == self.sent.len()
            && let Some(Carried::Records(joined)) = self.sent.last_mut()
            && let Carried::Records(records) = what
        {
            *joined += records;
            return None;
        }
        let sent = self.sent.len();
        Some(format!("{channel}: place {sequence} has {what} after {sent} elements"))
    }

    fn overtake(
        &mut self,
        channel: ChannelId,
        sequence: u64,
        checkpoint: CheckpointId,
    ) -> Option<String> {
        let was_taken = sequence < self.received as u64 || self.overtook.contains(&sequence);
        self.overtook.push(sequence);
        if was_taken {
            return Some(format!("{channel}: place {sequence} was received and then overtook"));
        }
        match self.sent.get(sequence as usize) {
            Some(Carried::Barrier(sent)) if *sent == checkpoint => None,
            Some(_) | None => Some(format!(
                "{channel}: place {sequence} does not hold the barrier of {checkpoint}"
            )),
        }
    }

    fn receive(&mut self, channel: ChannelId, sequence: u64, what: Carried) -> Option<String> {
        while self.overtook.contains(&(self.received as u64)) {
            self.received += 1;
        }
        let awaited = self.received;
        self.received = sequence as usize + 1;
        if sequence as usize != awaited {
            return Some(format!("{channel}: place {sequence} was received, not place {awaited}"));
        }
        match self.sent.get(awaited) {
            Some(sent) if *sent == what => None,
            Some(sent) => Some(format!(
                "{channel}: place {sequence} had {sent} when sent, {what} when received"
            )),
            None => Some(format!("{channel}: place {sequence} has {what}, which was never sent")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_channel_delivers_what_was_sent() {
        let (two, three) = (Carried::Records(2), Carried::Records(3));
        let table: [(&str, &[TraceEvent]); 5] = [
            (
                "",
                &[sent(1, 0, 0, two), sent(1, 0, 0, Carried::Records(1)), received(1, 0, 0, three)],
            ),
            ("", &[sent(1, 0, 0, two), sent(2, 0, 0, two), received(2, 0, 0, two)]),
            ("not place 0", &[sent(1, 0, 0, two), sent(1, 0, 1, two), received(1, 0, 1, two)]),
            ("not place 1", &[sent(1, 0, 0, two), received(1, 0, 0, two), received(1, 0, 0, two)]),
            ("never sent", &[sent(1, 0, 0, two), received(2, 0, 0, two)]),
        ];
        for (expected, events) in table {
            check(&ORACLE, &facts(&trace(events)), expected);
        }
    }

    #[test]
    fn a_barrier_may_overtake_once() {
        let overtook = |sequence| TraceEvent::Overtook {
            channel: ChannelId::new(0),
            attempt: att(1),
            sequence,
            checkpoint: chk(1),
        };
        let records = Carried::Records(1);
        let sent = [sent(1, 0, 0, records), sent(1, 0, 1, barrier(1)), sent(1, 0, 2, records)];
        let rest = [received(1, 0, 0, records), received(1, 0, 2, records)];
        let table: [(&str, &[TraceEvent]); 4] = [
            ("", &[overtook(1), rest[0], rest[1]]),
            ("does not hold the barrier", &[overtook(0)]),
            ("and then overtook", &[rest[0], received(1, 0, 1, barrier(1)), overtook(1)]),
            ("not place 2", &[overtook(1), rest[0], received(1, 0, 1, barrier(1))]),
        ];
        for (expected, events) in table {
            check(&ORACLE, &facts(&trace(&[&sent[..], events].concat())), expected);
        }
    }

    #[test]
    fn what_changes_on_the_way_is_seen() {
        let events = [sent(1, 0, 0, Carried::Records(2)), received(1, 0, 0, Carried::Records(1))];
        check(&ORACLE, &facts(&trace(&events)), "place 0 had 2 records when sent, 1 record");
        let events = [sent(1, 0, 0, Carried::EndOfData), sent(1, 0, 0, Carried::EndOfData)];
        check(&ORACLE, &facts(&trace(&events)), "after 1 elements");
    }
}
