//! A trace as people read it: one line an event, with the names of tasks and channels.

use cofferdam::graph::PhysicalGraph;
use cofferdam::id::{AttemptId, ChannelId, CheckpointId, SplitId, TaskId, TransactionId};
use cofferdam::trace::{TraceEvent, Traced, Window};

/// The event in one line.
pub fn line(traced: &Traced, graph: &PhysicalGraph) -> String {
    format!("{:>14}  {}", traced.at.to_string(), words(&traced.event, graph))
}

fn is_laid_out(dealt: Option<(CheckpointId, CheckpointId, AttemptId)>) -> String {
    let place = match dealt {
        None => ", at the start".to_owned(),
        Some((from, to, _)) => format!(": {from} is dealt out to {to}"),
    };
    format!("the job is stopped, and begins again in another layout{place}")
}

fn words(event: &TraceEvent, graph: &PhysicalGraph) -> String {
    let name = |task: TaskId| graph.task_name(task);
    match *event {
        TraceEvent::Deployed { attempt, restored } => begins(attempt, restored),
        TraceEvent::Started { task, restored, .. } => starts(&name(task), restored),
        TraceEvent::Crashed { task, window, .. } => dies(&name(task), window),
        TraceEvent::CoordinatorCrashed { window } => dies("the coordinator", window),
        TraceEvent::LaidOut { dealt, .. } => is_laid_out(dealt),
        TraceEvent::CoordinatorStarted => "a coordinator reads the store".to_owned(),
        TraceEvent::Cancelled { attempt } => format!("attempt {} is stopped", attempt.get()),
        TraceEvent::Sent { channel, sequence, what, .. } => {
            format!("{} sends #{sequence} {what}", ends(channel, graph))
        }
        TraceEvent::Received { channel, sequence, what, .. } => {
            format!("{} delivers #{sequence} {what}", ends(channel, graph))
        }
        TraceEvent::Emitted { channel, content, .. } => {
            format!("{} emits {}", ends(channel, graph), count(content.records, "record"))
        }
        TraceEvent::Overtook { channel, sequence, checkpoint, .. } => {
            format!("{} lets #{sequence}, {checkpoint}'s barrier, overtake", ends(channel, graph))
        }
        TraceEvent::InFlight { channel, checkpoint, is_output, content, .. } => {
            in_flight(&ends(channel, graph), checkpoint, is_output, content.records)
        }
        TraceEvent::Snapshot { task, checkpoint, digest, .. } => {
            format!("{} takes its snapshot for {checkpoint}, state {digest:016x}", name(task))
        }
        TraceEvent::StateStored { task, checkpoint, .. } => {
            format!("{}'s part of {checkpoint} is durable", name(task))
        }
        TraceEvent::ProgressCut { task, write, digest, .. } => cuts(&name(task), write, digest),
        TraceEvent::ProgressStored { task, write, produced, .. } => {
            keeps(&name(task), write, produced)
        }
        TraceEvent::Resumed { task, restored, .. } => resumes(&name(task), restored),
        TraceEvent::Acknowledged { task, checkpoint, .. } => {
            format!("{} acknowledges {checkpoint}", name(task))
        }
        TraceEvent::Triggered { checkpoint } => format!("{checkpoint} is triggered"),
        TraceEvent::Completed { checkpoint, .. } => format!("{checkpoint} is complete"),
        TraceEvent::Aborted { checkpoint, reason } => format!("{checkpoint} is aborted: {reason}"),
        TraceEvent::Written { task, transaction: to, rows, .. } => writes(&name(task), rows, to),
        TraceEvent::Prepared { transaction, checkpoint } => {
            format!("transaction {transaction} is prepared for {checkpoint}")
        }
        TraceEvent::Committed { transaction, again, .. } => committed(transaction, again),
        TraceEvent::RolledBack { transaction: id, .. } => {
            format!("transaction {id} is rolled back")
        }
        TraceEvent::TimedOut { transaction } => format!("transaction {transaction} has timed out"),
        TraceEvent::Logged { task, rows, .. } => logs(&name(task), rows),
        TraceEvent::Delivered { portion, again: true, .. } => format!("{portion} is sent again"),
        TraceEvent::Delivered { portion, .. } => format!("{portion} is sent"),
        TraceEvent::Marked { portion, .. } => format!("{portion} is marked as sent"),
        TraceEvent::Reserved { task, .. } => format!("{} has reserved positions", name(task)),
        TraceEvent::Assigned { task, split, .. } => {
            format!("{split} is assigned to {}", name(task))
        }
        TraceEvent::Truncated { task, split, first } => truncated(&name(task), split, first),
        TraceEvent::LossReported { task, split, wanted, .. } => lost(&name(task), split, wanted),
        TraceEvent::Disturbed { fault, task } => {
            format!("fault: {} ({})", word(fault), task.map_or("the coordinator".to_owned(), name))
        }
        TraceEvent::Finished => "the job is finished".to_owned(),
        TraceEvent::Failed => "the job has failed".to_owned(),
    }
}

/// Without a checkpoint, tasks may still go on from what they have stored on their own.
fn begins(attempt: AttemptId, restored: Option<CheckpointId>) -> String {
    let from = restored.map(|checkpoint| format!("from {checkpoint}"));
    let from = from.unwrap_or("without a checkpoint".to_owned());
    format!("attempt {} begins {from}", attempt.get())
}

fn starts(who: &str, restored: Option<(CheckpointId, u64)>) -> String {
    match restored {
        Some((checkpoint, digest)) => {
            format!("{who} is restored from {checkpoint}, state {digest:016x}")
        }
        None => format!("{who} starts with empty state"),
    }
}

fn committed(transaction: TransactionId, again: bool) -> String {
    let again = if again { " again, which changes nothing" } else { "" };
    format!("transaction {transaction} is committed{again}")
}

fn cuts(who: &str, write: CheckpointId, digest: u64) -> String {
    format!("{who} begins its write {}, state {digest:016x}", write.get())
}

fn keeps(who: &str, write: CheckpointId, produced: u64) -> String {
    let produced = count(produced, "record");
    format!("{who}'s write {} is durable, with {produced} in all", write.get())
}

fn resumes(who: &str, restored: Option<(CheckpointId, u64)>) -> String {
    match restored {
        Some((write, digest)) => {
            format!("{who} goes on from its write {}, state {digest:016x}", write.get())
        }
        None => format!("{who} has written nothing"),
    }
}

fn dies(who: &str, window: Window) -> String {
    format!("{who} dies ({})", word(window))
}

fn writes(who: &str, rows: u32, transaction: Option<TransactionId>) -> String {
    let within = transaction.map(|id| format!(" in transaction {id}")).unwrap_or_default();
    format!("{who} writes {}{within}", count(rows, "row"))
}

fn logs(who: &str, rows: u32) -> String {
    format!("{who} logs {}", count(rows, "row"))
}

fn truncated(who: &str, split: SplitId, first: u64) -> String {
    format!("the log of {who} begins at record {first} of {split} now")
}

fn lost(who: &str, split: SplitId, wanted: u64) -> String {
    format!("{who} reports that record {wanted} of {split} is lost")
}

fn in_flight(ends: &str, checkpoint: CheckpointId, is_output: bool, records: u64) -> String {
    let end = if is_output { "sender" } else { "receiver" };
    format!("{ends} has {} in flight at the {end} in {checkpoint}", count(records, "record"))
}

fn ends(channel: ChannelId, graph: &PhysicalGraph) -> String {
    let channel = graph.channels()[channel.index()];
    format!("{} => {}", graph.task_name(channel.from), graph.task_name(channel.to))
}

fn count(number: impl Into<u64>, what: &str) -> String {
    let number = number.into();
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// The word that a unit variant has in files and JSON.
pub fn word(value: impl serde::Serialize) -> String {
    match toml::Value::try_from(value) {
        Ok(toml::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(error) => error.to_string(),
    }
}
