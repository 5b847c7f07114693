//! C3, the consistent cut: in a complete checkpoint, what a task has received on a channel before
//! its snapshot is what the sender has sent on it before its own. More is an orphan, which recovery
//! makes a duplicate; less is a loss, since nobody will send it again. So a bad checkpoint is found
//! out before any failure shows it.
//!
//! Where snapshots hold records in flight, the judge `in-flight` looks at those as well.
//!
//! Channels are first in first out, hence numbers of records are enough. Tracked barriers allow
//! orphans: a finding, but no violation.
//!
//! The false alarm it avoids: what a task has sent may wait for room in the channel, and then gets
//! there after the task's snapshot. Its barrier waits behind it, so the sender's cut is where the
//! barrier stands, or where the snapshot stands if that comes later.

use cofferdam::guarantee::Mechanism;
use cofferdam::id::{AttemptId, ChannelId, CheckpointId};
use cofferdam::trace::{Carried, TraceEvent};

use super::by_attempt::ByAttempt;
use super::completions::{Completion, Completions};
use super::{Anomaly, Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "consistent-cut",
    property: "C3: a complete checkpoint cuts every channel at one place: no orphan and no loss",
    judge,
    scope: Scope::Layout,
};

/// Records on a channel.
#[derive(Clone, Copy, Default)]
struct Records {
    sent: u64,
    received: u64,
}

/// Where a checkpoint cuts each channel.
struct Cut {
    attempt: AttemptId,
    checkpoint: CheckpointId,
    channels: Vec<Records>,
}

#[derive(Default)]
struct Cuts(Vec<Cut>);

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    if facts.mechanism.stores_in_flight() {
        // Another judge compares what is in flight with what is held of it.
        return Vec::new();
    }
    let mut now = ByAttempt::new(vec![Records::default(); facts.channels.len()]);
    let mut cuts = Cuts::default();
    let mut completions = Completions::new(facts.tasks);
    let mut findings = Vec::new();
    for traced in facts.trace {
        match traced.event {
            TraceEvent::Sent { channel, attempt, what, .. } => {
                let records = &mut now.at(attempt)[channel.index()];
                match what {
                    Carried::Records(more) => records.sent += u64::from(more),
                    Carried::Barrier(checkpoint) => {
                        let cut = cuts.of(attempt, checkpoint, facts.channels.len());
                        cut[channel.index()].sent = records.sent;
                    }
                    Carried::Watermark(_)
                    | Carried::Committables(_)
                    | Carried::Idle
                    | Carried::Cancel(_)
                    | Carried::EndOfData
                    | Carried::EndOfPartition => {}
                }
            }
            TraceEvent::Received { channel, attempt, what: Carried::Records(more), .. } => {
                now.at(attempt)[channel.index()].received += u64::from(more);
            }
            TraceEvent::Snapshot { task, attempt, checkpoint, .. } => {
                let cut = cuts.of(attempt, checkpoint, facts.channels.len());
                let records = now.at(attempt);
                for (place, (sender, receiver)) in facts.channels.iter().enumerate() {
                    if *sender == task {
                        cut[place].sent = records[place].sent;
                    }
                    if *receiver == task {
                        cut[place].received = records[place].received;
                    }
                }
            }
            event => {
                if let Some(completion) = completions.note(&event) {
                    findings.extend(cuts.compare(facts, completion));
                }
            }
        }
    }
    findings
}

impl Cuts {
    fn of(
        &mut self,
        attempt: AttemptId,
        checkpoint: CheckpointId,
        channels: usize,
    ) -> &mut [Records] {
        let is_it = |cut: &Cut| (cut.attempt, cut.checkpoint) == (attempt, checkpoint);
        let place = self.0.iter().rposition(is_it).unwrap_or_else(|| {
            let channels = vec![Records::default(); channels];
            self.0.push(Cut { attempt, checkpoint, channels });
            self.0.len() - 1
        });
        &mut self.0[place].channels
    }

    fn compare(&mut self, facts: &Facts<'_>, completion: Completion) -> Vec<Finding> {
        let Completion { checkpoint, attempt } = completion;
        let cut = self.of(attempt, checkpoint, facts.channels.len());
        let uneven = cut.iter().enumerate().filter(|(_, records)| records.sent != records.received);
        uneven.map(|(place, records)| uneven_cut(facts, checkpoint, place, *records)).collect()
    }
}

fn uneven_cut(
    facts: &Facts<'_>,
    checkpoint: CheckpointId,
    place: usize,
    Records { sent, received }: Records,
) -> Finding {
    let (sender, receiver) = facts.channels[place];
    let channel = ChannelId::new(place as u32);
    let is_orphan = received > sent;
    let text = if is_orphan {
        format!(
            "{checkpoint} holds {} records of {channel} at {receiver} that {sender} sends again \
             after it",
            received - sent
        )
    } else {
        format!(
            "{checkpoint} holds neither at {sender} nor at {receiver} {} records of {channel}",
            sent - received
        )
    };
    Finding {
        oracle: ORACLE.name,
        subject: Subject::State,
        anomaly: Anomaly::Protocol,
        allowed: is_orphan && facts.mechanism == Mechanism::Tracked,
        record: None,
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn run(behind: u32, before: u32, late: bool) -> Vec<TraceEvent> {
        let mut events = vec![deployed(1, None), triggered(1)];
        let records = sent(1, 0, 0, Carried::Records(2));
        let border = [sent(1, 0, 1, barrier(1)), snapshot(1, 0, 1)];
        if late {
            events.extend([border[1], records, border[0]]);
        } else {
            events.extend([records, border[0], border[1]]);
        }
        events.push(received(1, 0, 0, Carried::Records(before)));
        events.push(received(1, 0, 1, barrier(1)));
        if behind > 0 {
            events.push(sent(1, 0, 2, Carried::Records(behind)));
            events.push(received(1, 0, 2, Carried::Records(behind)));
        }
        events.extend([snapshot(1, 1, 1), snapshot(1, 2, 1), completed(1, 1)]);
        events
    }

    #[test]
    fn both_ends_of_a_channel_are_cut_at_one_place() {
        check(&ORACLE, &facts(&trace(&run(0, 2, false))), "");
        check(&ORACLE, &facts(&trace(&run(0, 2, true))), "");
    }

    #[test]
    fn orphans_break_aligned_checkpoints_and_are_noted_in_tracked_ones() {
        let trace = trace(&run(3, 2, false));
        check(&ORACLE, &facts(&trace), "chk-1 holds 3 records of c0 at t2 that t0 sends again");
        let tracked = Facts { mechanism: Mechanism::Tracked, ..facts(&trace) };
        assert!(judge(&tracked)[0].allowed);
        assert!(!judge(&facts(&trace))[0].allowed);
    }

    #[test]
    fn losses_break_every_checkpoint() {
        let trace = trace(&run(0, 1, false));
        check(&ORACLE, &facts(&trace), "neither at t0 nor at t2 1 records of c0");
        let tracked = Facts { mechanism: Mechanism::Tracked, ..facts(&trace) };
        assert!(!judge(&tracked)[0].allowed);
    }

    #[test]
    fn a_record_between_barrier_and_snapshot_is_lost() {
        let mut events = run(0, 2, false);
        events.insert(4, sent(1, 0, 2, Carried::Records(1)));
        check(&ORACLE, &facts(&trace(&events)), "1 records of c0");
    }

    #[test]
    fn incomplete_checkpoints_do_not_matter() {
        let mut events = run(3, 2, false);
        events.pop();
        check(&ORACLE, &facts(&trace(&events)), "");
    }
}
