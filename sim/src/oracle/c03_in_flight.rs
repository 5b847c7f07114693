//! C3, the consistent cut where barriers overtake: in a complete checkpoint, the records that the
//! snapshots of both ends of a channel hold as in flight are, in their order, those that were
//! emitted before the sender's cut and not received before the receiver's. So a bad checkpoint is
//! found out before any failure shows it.
//!
//! The false alarm it avoids: the sender's cut counts what it has emitted, whether that had left it
//! or waited for room; which of the two ends keeps a record is their affair.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, ChannelId, CheckpointId};
use cofferdam::trace::{Carried, Content, TraceEvent};

use super::by_attempt::ByAttempt;
use super::completions::{Completion, Completions};
use super::{Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "in-flight",
    property: "C3: a complete checkpoint holds each channel's records in flight, in order",
    judge,
    scope: Scope::Layout,
};

/// What an attempt has done with a channel.
#[derive(Clone, Default)]
struct Progress {
    /// Everything emitted up to each of its pieces; no element ends between two.
    emitted: Vec<Content>,
    received: u64,
}

/// Where a checkpoint cuts a channel, and what it holds of it.
#[derive(Clone, Copy, Default)]
struct Cut {
    emitted: Content,
    received: u64,
    at_receiver: Content,
    at_sender: Content,
}

type Cuts = BTreeMap<(AttemptId, CheckpointId), Vec<Cut>>;

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    if !facts.mechanism.stores_in_flight() {
        return Vec::new();
    }
    let mut now = ByAttempt::new(vec![Progress::default(); facts.channels.len()]);
    let mut cuts = Cuts::new();
    let mut completions = Completions::new(facts.tasks);
    let mut findings = Vec::new();
    let none = vec![Cut::default(); facts.channels.len()];
    for traced in facts.trace {
        match traced.event {
            TraceEvent::Emitted { channel, attempt, content } => {
                now.at(attempt)[channel.index()].emit(content);
            }
            TraceEvent::Received { channel, attempt, what: Carried::Records(more), .. } => {
                now.at(attempt)[channel.index()].received += u64::from(more);
            }
            TraceEvent::Snapshot { task, attempt, checkpoint, .. } => {
                let cut = cuts.entry((attempt, checkpoint)).or_insert_with(|| none.clone());
                let progress = now.at(attempt);
                for (place, (sender, receiver)) in facts.channels.iter().enumerate() {
                    if *sender == task {
                        cut[place].emitted = progress[place].all();
                    }
                    if *receiver == task {
                        cut[place].received = progress[place].received;
                    }
                }
            }
            TraceEvent::InFlight { channel, attempt, checkpoint, is_output, content } => {
                let cut = cuts.entry((attempt, checkpoint)).or_insert_with(|| none.clone());
                let cut = &mut cut[channel.index()];
                let side = if is_output { &mut cut.at_sender } else { &mut cut.at_receiver };
                *side = content;
            }
            event => {
                if let Some(Completion { attempt, checkpoint }) = completions.note(&event) {
                    let cut = cuts.get(&(attempt, checkpoint)).unwrap_or(&none);
                    let progress = now.at(attempt);
                    let judged = cut.iter().zip(progress.iter()).enumerate();
                    findings.extend(judged.filter_map(|(place, (cut, progress))| {
                        let channel = ChannelId::new(place as u32);
                        let text = cut.compare(facts, checkpoint, channel, progress)?;
                        Some(Finding::protocol(ORACLE.name, Subject::State, text))
                    }));
                }
            }
        }
    }
    findings
}

impl Progress {
    fn emit(&mut self, content: Content) {
        self.emitted.push(self.all().then(content));
    }

    fn all(&self) -> Content {
        self.emitted.last().copied().unwrap_or_default()
    }

    /// The first `records` that were emitted.
    fn first(&self, records: u64) -> Option<Content> {
        if records == 0 {
            return Some(Content::default());
        }
        let place = self.emitted.binary_search_by_key(&records, |content| content.records);
        place.ok().map(|place| self.emitted[place])
    }
}

impl Cut {
    fn compare(
        &self,
        facts: &Facts<'_>,
        checkpoint: CheckpointId,
        channel: ChannelId,
        progress: &Progress,
    ) -> Option<String> {
        let (sender, receiver) = facts.channels[channel.index()];
        let Self { emitted, received, at_receiver, at_sender } = *self;
        if received > emitted.records {
            return Some(format!(
                "{checkpoint} holds {} records of {channel} at {receiver} that {sender} sends \
                 again after it",
                received - emitted.records
            ));
        }
        let Some(before) = progress.first(received) else {
            return Some(format!("{receiver} took a part of an element of {channel}"));
        };
        let (due, held) = (emitted.without(before), at_receiver.then(at_sender));
        if due.records != held.records {
            return Some(format!(
                "{checkpoint} holds {} records in flight on {channel} from {sender} to {receiver}, \
                 and there were {}",
                held.records, due.records
            ));
        }
        (due != held).then(|| {
            format!(
                "{checkpoint} holds other records than were in flight on {channel} from {sender} \
                 to {receiver}, or in another order"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::guarantee::Mechanism;

    fn records(hashes: &[u64]) -> Content {
        hashes.iter().copied().map(Content::of).fold(Content::default(), Content::then)
    }

    fn emitted(hashes: &[u64]) -> TraceEvent {
        let (channel, content) = (ChannelId::new(0), records(hashes));
        TraceEvent::Emitted { channel, attempt: att(1), content }
    }

    fn held(is_output: bool, hashes: &[u64]) -> TraceEvent {
        let (channel, content, checkpoint) = (ChannelId::new(0), records(hashes), chk(1));
        TraceEvent::InFlight { channel, attempt: att(1), checkpoint, is_output, content }
    }

    /// Task 0 has emitted four records before its cut, and task 2 has received two before its own.
    fn run(at_receiver: &[u64], at_sender: &[u64]) -> Vec<TraceEvent> {
        vec![
            deployed(1, None),
            triggered(1),
            emitted(&[7, 8]),
            emitted(&[9]),
            received(1, 0, 0, Carried::Records(2)),
            emitted(&[6]),
            snapshot(1, 0, 1),
            held(true, at_sender),
            emitted(&[5]),
            snapshot(1, 2, 1),
            received(1, 0, 1, Carried::Records(1)),
            held(false, at_receiver),
            completed(1, 1),
        ]
    }

    fn verdict(events: &[TraceEvent], expected: &str) {
        let trace = trace(events);
        check(&ORACLE, &Facts { mechanism: Mechanism::Unaligned, ..facts(&trace) }, expected);
    }

    #[test]
    fn the_two_ends_hold_what_lies_between_their_cuts() {
        verdict(&run(&[9, 6], &[]), "");
        verdict(&run(&[9], &[6]), "");
        verdict(&run(&[], &[9, 6]), "");
    }

    #[test]
    fn losses_duplicates_and_disorder_are_found() {
        verdict(&run(&[9], &[]), "holds 1 records in flight on c0 from t0 to t2, and there were 2");
        verdict(&run(&[9, 6], &[6]), "holds 3 records");
        verdict(&run(&[9, 6], &[5]), "holds 3 records");
        verdict(&run(&[6, 9], &[]), "or in another order");
        verdict(&run(&[9, 5], &[]), "other records");
    }

    #[test]
    fn what_was_received_before_it_was_sent_is_an_orphan() {
        let mut events = run(&[], &[]);
        // The sender cuts before it emits the fourth record, the receiver behind that.
        events.swap(5, 6);
        events.insert(9, received(1, 0, 1, Carried::Records(2)));
        verdict(&events, "1 records of c0 at t2 that t0 sends again");
    }

    #[test]
    fn incomplete_checkpoints_do_not_matter() {
        let mut events = run(&[9], &[]);
        events.pop();
        verdict(&events, "");
    }
}
