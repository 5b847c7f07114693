//! C14, liveness: once faults have stopped the job comes to its end; every checkpoint that begins
//! is completed or aborted (L1); from then on checkpoints go on completing (L2); every failure is
//! followed by another attempt or the end (L5); attempts do not go on failing without a fault (L6).
//!
//! The false alarms it avoids: a checkpoint may stay without an outcome if its coordinator dies or
//! the run ends; a task of an older attempt may die unnoticed. When faults have stopped checkpoints
//! may still run out of time, and attempts fail of that: only many in a row are suspicious. A job
//! that gives up because its input has lost records, and says so, has done what it promised.

use cofferdam::guarantee::Level;
use cofferdam::id::{AttemptId, TaskId};
use cofferdam::time::Instant;
use cofferdam::trace::{TraceEvent, Traced};

use super::completions::Completions;
use super::{Anomaly, Facts, Finding, Oracle, Scope, Subject};

/// The judge.
pub(super) const ORACLE: Oracle = Oracle {
    name: "liveness",
    property: "C14: the job ends, every checkpoint has an outcome, every failure a recovery, and \
               without faults checkpoints complete and attempts last",
    judge,
    scope: Scope::LastLayout,
};

struct Progress {
    completions: Completions,
    attempt: AttemptId,
    started: Vec<bool>,
    /// A task of the current attempt that died.
    crashed: Option<TaskId>,
    /// The attempt that last reported that records are gone.
    loss_reported: Option<AttemptId>,
    has_ended: bool,
    has_coordinator: bool,
    quiet: Quiet,
}

/// What happened since faults stopped.
struct Quiet {
    since: Instant,
    /// Checkpoints that were triggered since one completed.
    triggers: u32,
    deployments: u32,
}

fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let mut progress = Progress {
        completions: Completions::new(facts.tasks),
        attempt: AttemptId::default(),
        started: vec![false; facts.tasks],
        crashed: None,
        loss_reported: None,
        has_ended: false,
        has_coordinator: false,
        quiet: Quiet { since: facts.faults_stop, triggers: 0, deployments: 0 },
    };
    let mut problems = Vec::new();
    for traced in facts.control {
        problems.extend(progress.note(traced, facts.concurrent_max));
    }
    if let Some(task) = progress.crashed.filter(|_| !progress.has_ended) {
        let attempt = progress.attempt;
        problems.push(format!("{task} died in attempt {attempt}, and no other attempt followed"));
    }
    let protocol = |text| Finding::protocol(ORACLE.name, Subject::State, text);
    let mut findings: Vec<Finding> = problems.into_iter().map(protocol).collect();
    let has_lost = facts.failure.is_some() && progress.loss_reported == Some(progress.attempt);
    if !facts.is_finished && !has_lost {
        findings.extend(stuck(facts, &progress));
    }
    findings
}

fn stuck(facts: &Facts<'_>, progress: &Progress) -> impl Iterator<Item = Finding> {
    let text = match &facts.failure {
        Some(failure) => format!("the job gave up: {failure}"),
        None => progress.whereabouts(),
    };
    let subjects =
        [(Subject::State, Some(facts.state_claim)), (Subject::Output, facts.output_claim)];
    let claimed = |(subject, claim): (Subject, Option<Level>)| claim.map(|_| subject);
    subjects.into_iter().filter_map(claimed).map(move |subject| Finding {
        oracle: ORACLE.name,
        subject,
        anomaly: Anomaly::Stuck,
        allowed: false,
        record: None,
        text: text.clone(),
    })
}

impl Quiet {
    fn note(&mut self, traced: &Traced, has_completed: bool) -> Option<String> {
        if traced.at < self.since {
            return None;
        }
        if has_completed {
            self.triggers = 0;
        }
        match traced.event {
            TraceEvent::Triggered { checkpoint } => {
                self.triggers += 1;
                (self.triggers == TRIGGERS_MAX).then(|| {
                    format!(
                        "{checkpoint} is the {TRIGGERS_MAX}th in a row since faults stopped, and \
                         none was completed"
                    )
                })
            }
            TraceEvent::Deployed { attempt, .. } => {
                self.deployments += 1;
                (self.deployments == DEPLOYMENTS_MAX).then(|| {
                    format!("attempt {attempt} is the {DEPLOYMENTS_MAX}th since faults stopped")
                })
            }
            _ => None,
        }
    }
}

impl Progress {
    fn note(&mut self, traced: &Traced, concurrent_max: usize) -> Vec<String> {
        let event = &traced.event;
        let left: Vec<_> = self.completions.in_flight().collect();
        match *event {
            TraceEvent::Deployed { attempt, .. } => {
                self.attempt = attempt;
                self.started.fill(false);
                self.crashed = None;
            }
            TraceEvent::Started { task, attempt, .. } if attempt == self.attempt => {
                self.started[task.index()] = true;
            }
            TraceEvent::Crashed { task, attempt, .. } if attempt == self.attempt => {
                self.crashed.get_or_insert(task);
            }
            TraceEvent::LossReported { attempt, .. } => self.loss_reported = Some(attempt),
            TraceEvent::CoordinatorStarted => self.has_coordinator = true,
            TraceEvent::CoordinatorCrashed { .. } => self.has_coordinator = false,
            TraceEvent::Finished | TraceEvent::Failed => self.has_ended = true,
            _ => {}
        }
        let has_completed = self.completions.note(event).is_some();
        let suspicious = self.quiet.note(traced, has_completed);
        let (next, allowed) = match event {
            TraceEvent::Triggered { checkpoint } => (checkpoint.to_string(), concurrent_max - 1),
            TraceEvent::Deployed { attempt, .. } => (format!("attempt {attempt}"), 0),
            _ => return suspicious.into_iter().collect(),
        };
        let count = left.len().saturating_sub(allowed);
        let left = left.into_iter().take(count);
        let left = left.map(|checkpoint| format!("{checkpoint} had no outcome when {next} began"));
        left.chain(suspicious).collect()
    }

    /// Where a job hangs.
    fn whereabouts(&self) -> String {
        let mut text = format!("the job does not end: it hangs in attempt {}", self.attempt);
        if !self.has_coordinator {
            text += ", without a coordinator";
        }
        if let Some(task) = self.crashed {
            text += &format!(", in which {task} died");
        }
        let idle: Vec<String> = (0..self.started.len())
            .filter(|task| !self.started[*task])
            .map(|task| TaskId::new(task as u32).to_string())
            .collect();
        if !idle.is_empty() {
            text += &format!(", which {} never started", idle.join(", "));
        }
        match (self.completions.in_flight().next(), self.completions.latest()) {
            (Some(checkpoint), _) => text += &format!("; {checkpoint} is without an outcome"),
            (None, Some(latest)) => {
                text += &format!("; the last checkpoint is {}", latest.checkpoint)
            }
            (None, None) => text += "; no checkpoint was ever complete",
        }
        text
    }
}

/// More checkpoints fail in a row without a fault in no run that ends.
const TRIGGERS_MAX: u32 = 40;
/// More attempts fail without a fault in no run that ends.
const DEPLOYMENTS_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use cofferdam::trace::Window;

    fn crashed(attempt: u64) -> TraceEvent {
        TraceEvent::Crashed { task: task(1), attempt: att(attempt), window: Window::Idle }
    }

    #[test]
    fn a_job_that_ends_is_alive() {
        let events = [
            deployed(1, None),
            triggered(1),
            completed(1, 1),
            crashed(1),
            deployed(2, Some(1)),
            crashed(1),
            triggered(2),
            TraceEvent::Finished,
        ];
        check(&ORACLE, &facts(&trace(&events)), "");
    }

    #[test]
    fn a_job_that_does_not_end_is_stuck_somewhere() {
        let events = [deployed(1, None), started(1, 0, None), started(1, 2, None), triggered(1)];
        let trace = trace(&events);
        let stuck = Facts { is_finished: false, ..facts(&trace) };
        check(&ORACLE, &stuck, "attempt a1, without a coordinator, which t1 never started; chk-1");
        let findings = judge(&stuck);
        assert_eq!(findings.len(), 2, "state and output");
        assert_eq!(findings[0].anomaly, Anomaly::Stuck);
        let failed = Facts { failure: Some("no memory".to_owned()), ..stuck };
        check(&ORACLE, &failed, "gave up: no memory");
    }

    #[test]
    fn checkpoints_have_an_outcome_and_failures_a_recovery() {
        let events = [deployed(1, None), triggered(1), triggered(2)];
        let begun = trace(&events);
        check(&ORACLE, &facts(&begun), "chk-1 had no outcome when chk-2 began");
        let overlapping = Facts { concurrent_max: 2, ..facts(&begun) };
        check(&ORACLE, &overlapping, "");
        let died = TraceEvent::CoordinatorCrashed { window: Window::Collecting };
        let events = [deployed(1, None), triggered(1), died, deployed(2, None), triggered(1)];
        check(&ORACLE, &facts(&trace(&events)), "");
        check(&ORACLE, &facts(&trace(&[deployed(1, None), crashed(1)])), "t1 died in attempt a1");
    }

    #[test]
    fn without_faults_checkpoints_complete_and_attempts_last() {
        let failing = (1..=50).flat_map(|n| [triggered(n), expired(n)]);
        let events: Vec<TraceEvent> = [deployed(1, None)].into_iter().chain(failing).collect();
        let early = trace(&events);
        check(&ORACLE, &facts(&early), "chk-40 is the 40th in a row since faults stopped");
        let faulty = Facts { faults_stop: Instant::from_nanos(1), ..facts(&early) };
        check(&ORACLE, &faulty, "");
        let pairs = (1..=50).flat_map(|n| [triggered(n), completed(1, n)]);
        let events: Vec<TraceEvent> = [deployed(1, None)].into_iter().chain(pairs).collect();
        check(&ORACLE, &facts(&trace(&events)), "");
        let events: Vec<TraceEvent> = (1..=50).map(|attempt| deployed(attempt, None)).collect();
        check(&ORACLE, &facts(&trace(&events)), "attempt a40 is the 40th since faults stopped");
    }
}
