//! C2, the border rule of asynchronous barrier snapshotting: a task takes its snapshot only when
//! the barrier has come on every channel, and where barriers are aligned it processes nothing in
//! between of a channel that has delivered its barrier. Where barriers overtake, it takes its
//! snapshot only when one has come, and acknowledges only when all have.
//!
//! The false alarms it avoids: a barrier that is stale, since a newer one or a cancel marker came
//! before, holds nothing back; a newer barrier, a cancel marker and the coordinator's abort let go
//! of what is held back, the last as soon as it is decided, since nobody sees when the task hears
//! of it. A channel that has ended owes no barrier. Tracked barriers hold nothing back at all.

use cofferdam::guarantee::Mechanism;
use cofferdam::id::{ChannelId, CheckpointId, TaskId};
use cofferdam::trace::{Carried, TraceEvent};

use super::by_attempt::ByAttempt;
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "border",
    property: "C2: no snapshot before every barrier, and aligned, no record between the two",
    judge,
    scope: Scope::Layout,
};

/// The border of one attempt.
#[derive(Clone)]
struct Border {
    tasks: Vec<Progress>,
    channels: Vec<Channel>,
}

#[derive(Clone, Default)]
struct Progress {
    /// The greatest id that a barrier, a cancel marker or an abort has carried.
    newest: Option<CheckpointId>,
    /// Some of its barriers have come and others have not.
    awaited: Option<CheckpointId>,
    snapshot: Option<CheckpointId>,
}

#[derive(Clone, Default)]
struct Channel {
    barriers: Vec<CheckpointId>,
    has_ended: bool,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut attempts = ByAttempt::new(Border {
        tasks: vec![Progress::default(); facts.tasks],
        channels: vec![Channel::default(); facts.channels.len()],
    });
    let mut findings = Vec::new();
    for traced in facts.trace {
        let problem = match traced.event {
            TraceEvent::Received { channel, attempt, what, .. } => {
                attempts.at(attempt).receive(facts, channel, what)
            }
            TraceEvent::Overtook { channel, attempt, checkpoint, .. } => {
                attempts.at(attempt).receive(facts, channel, Carried::Barrier(checkpoint))
            }
            TraceEvent::Snapshot { task, attempt, checkpoint, .. } => {
                attempts.at(attempt).cut(facts, task, checkpoint)
            }
            TraceEvent::Acknowledged { task, attempt, checkpoint } => {
                let owes = attempts.at(attempt).owing(facts, task, checkpoint).next();
                owes.map(|channel| {
                    format!("{task} acknowledged {checkpoint} before its barrier came on {channel}")
                })
            }
            TraceEvent::Aborted { checkpoint, .. } => {
                attempts.values_mut().for_each(|border| border.let_go(checkpoint));
                None
            }
            _ => None,
        };
        let finding = |text| Finding::protocol(ORACLE.name, Subject::State, text);
        findings.extend(problem.map(finding));
    }
    findings
}

impl Border {
    fn receive(&mut self, facts: &Facts<'_>, id: ChannelId, what: Carried) -> Option<String> {
        let (_, receiver) = facts.channels[id.index()];
        let task = &mut self.tasks[receiver.index()];
        let channel = &mut self.channels[id.index()];
        match what {
            Carried::Records(records) => {
                let awaited = task.awaited.filter(|_| facts.mechanism == Mechanism::Aligned)?;
                channel.barriers.contains(&awaited).then(|| {
                    format!(
                        "{receiver} took {records} records from {id} behind the barrier of \
                         {awaited} and before its snapshot"
                    )
                })
            }
            Carried::Barrier(checkpoint) => {
                channel.barriers.push(checkpoint);
                if Some(checkpoint) > task.newest {
                    task.newest = Some(checkpoint);
                    task.awaited = Some(checkpoint);
                }
                None
            }
            Carried::Cancel(checkpoint) => {
                task.let_go(checkpoint);
                None
            }
            Carried::EndOfPartition => {
                channel.has_ended = true;
                None
            }
            Carried::Watermark(_)
            | Carried::Idle
            | Carried::Committables(_)
            | Carried::EndOfData => None,
        }
    }

    fn cut(&mut self, facts: &Facts<'_>, id: TaskId, checkpoint: CheckpointId) -> Option<String> {
        let task = &mut self.tasks[id.index()];
        task.awaited = None;
        let earlier = task.snapshot.replace(checkpoint);
        if let Some(earlier) = earlier.filter(|earlier| *earlier >= checkpoint) {
            return Some(format!("{id} took snapshot {checkpoint} after snapshot {earlier}"));
        }
        let mut owing = self.owing(facts, id, checkpoint);
        if facts.mechanism.stores_in_flight() {
            let channels = facts.channels.iter().filter(|(_, receiver)| *receiver == id).count();
            let is_early = channels > 0 && owing.count() == channels;
            return is_early
                .then(|| format!("{id} took snapshot {checkpoint} before any barrier came"));
        }
        owing.next().map(|channel| {
            format!("{id} took snapshot {checkpoint} before the barrier came on {channel}")
        })
    }

    /// The channels of a task that have not ended and have not delivered the barrier.
    fn owing(
        &self,
        facts: &Facts<'_>,
        id: TaskId,
        checkpoint: CheckpointId,
    ) -> impl Iterator<Item = ChannelId> {
        let channels = self.channels.iter().zip(facts.channels).enumerate();
        channels.filter_map(move |(place, (channel, (_, receiver)))| {
            let owes = !channel.has_ended && !channel.barriers.contains(&checkpoint);
            (*receiver == id && owes).then(|| ChannelId::new(place as u32))
        })
    }

    fn let_go(&mut self, checkpoint: CheckpointId) {
        self.tasks.iter_mut().for_each(|task| task.let_go(checkpoint));
    }
}

impl Progress {
    fn let_go(&mut self, checkpoint: CheckpointId) {
        self.awaited = self.awaited.filter(|awaited| *awaited > checkpoint);
        self.newest = self.newest.max(Some(checkpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::message::AbortReason;

    const RECORDS: Carried = Carried::Records(3);

    #[test]
    fn records_wait_behind_a_barrier_until_the_snapshot() {
        let begun = [received(1, 0, 0, barrier(1)), received(1, 1, 0, RECORDS)];
        let whole = [received(1, 1, 1, barrier(1)), snapshot(1, 2, 1), received(1, 0, 1, RECORDS)];
        check(&ORACLE, &facts(&trace(&[&begun[..], &whole].concat())), "");
        let broken = trace(&[&begun[..], &[received(1, 0, 1, RECORDS)]].concat());
        check(&ORACLE, &facts(&broken), "t2 took 3 records from c0 behind the barrier of chk-1");
        check(&ORACLE, &Facts { mechanism: Mechanism::Tracked, ..facts(&broken) }, "");
    }

    #[test]
    fn whatever_ends_a_checkpoint_lets_records_go() {
        let aborted = TraceEvent::Aborted { checkpoint: chk(1), reason: AbortReason::Expired };
        let ends =
            [received(1, 1, 0, barrier(2)), received(1, 1, 0, Carried::Cancel(chk(1))), aborted];
        for end in ends {
            let events = [received(1, 0, 0, barrier(1)), end, received(1, 0, 1, RECORDS)];
            check(&ORACLE, &facts(&trace(&events)), "");
        }
        let stale = [received(1, 1, 0, barrier(2)), received(1, 0, 0, barrier(1))];
        check(&ORACLE, &facts(&trace(&[&stale[..], &[received(1, 0, 1, RECORDS)]].concat())), "");
    }

    #[test]
    fn a_snapshot_needs_every_barrier_or_the_end() {
        let events = [received(1, 0, 0, barrier(1)), snapshot(1, 2, 1)];
        check(&ORACLE, &facts(&trace(&events)), "before the barrier came on c1");
        let end = received(1, 1, 0, Carried::EndOfPartition);
        check(&ORACLE, &facts(&trace(&[&[end], &events[..]].concat())), "");
    }

    #[test]
    fn where_barriers_overtake_the_snapshot_needs_one_and_the_acknowledgement_all() {
        let overtook = TraceEvent::Overtook {
            channel: ChannelId::new(0),
            attempt: att(1),
            sequence: 1,
            checkpoint: chk(1),
        };
        let unaligned = |events: &[TraceEvent], expected| {
            let trace = trace(events);
            check(&ORACLE, &Facts { mechanism: Mechanism::Unaligned, ..facts(&trace) }, expected);
        };
        unaligned(&[overtook, snapshot(1, 2, 1), received(1, 0, 0, RECORDS)], "");
        unaligned(&[snapshot(1, 2, 1)], "before any barrier came");
        let early = [overtook, snapshot(1, 2, 1), acknowledged(1, 2, 1)];
        unaligned(&early, "t2 acknowledged chk-1 before its barrier came on c1");
    }

    #[test]
    fn snapshots_go_forward() {
        check(&ORACLE, &facts(&trace(&[snapshot(1, 0, 1), snapshot(2, 0, 1)])), "");
        let events = [snapshot(1, 0, 2), snapshot(1, 0, 1)];
        check(&ORACLE, &facts(&trace(&events)), "t0 took snapshot chk-1 after snapshot chk-2");
    }
}
