//! Crashes: when a planned one strikes, what dies, and what becomes of what was under way.

use cofferdam::id::{AttemptId, TaskId};
use cofferdam::message::{FromTask, TaskError, TaskMessage};
use cofferdam::task::{Phase, Task};
use cofferdam::trace::{Disturbance, TraceEvent, Window};

use super::{Event, Life, World};
use crate::decide::Choice;
use crate::fault::{Cut, Scope, Trigger};

impl World {
    /// Counts a call of a task's machine; the place of a fault that strikes in it.
    pub(super) fn next_call(&mut self, id: TaskId) -> Option<(usize, Cut)> {
        self.calls[id.index()] += 1;
        if !self.may_disturb() {
            return None;
        }
        let calls = self.calls[id.index()];
        self.plan.faults.iter().enumerate().find_map(|(place, fault)| match fault.trigger {
            Trigger::Call { task, number, cut }
                if task == id && number == calls && self.armed[place] =>
            {
                Some((place, cut))
            }
            Trigger::Call { .. } | Trigger::In { .. } | Trigger::Output { .. } => None,
        })
    }

    /// Lets faults strike that wait for a task to be in a window.
    pub(super) fn strike_in_window(&mut self, id: TaskId, attempt: AttemptId) {
        if !self.may_disturb() {
            return;
        }
        let plan = self.plan.clone();
        for (place, fault) in plan.faults.iter().enumerate() {
            let Trigger::In { task, window, occurrence } = fault.trigger else { continue };
            if task != id || !self.armed[place] || !self.is_in(id, attempt, window) {
                continue;
            }
            self.window_counts[place] += 1;
            if self.window_counts[place] == occurrence {
                return self.strike_task(id, attempt, place, None);
            }
        }
    }

    /// A fault strikes a task, or the worker that runs it.
    pub(super) fn strike_task(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        fault: usize,
        cut: Option<Cut>,
    ) {
        self.armed[fault] = false;
        match self.plan.faults[fault].scope {
            Scope::Task => self.crash_task(id, attempt, cut),
            Scope::Worker => {
                let worker = self.worker_of(id);
                let mut tasks: Vec<TaskId> = self.plan.job.graph().tasks().collect();
                tasks.retain(|task| self.worker_of(*task) == worker);
                for task in tasks {
                    self.crash_task(task, attempt, cut.filter(|_| task == id));
                    self.lose_rows(task, attempt);
                }
            }
            Scope::Coordinator => unreachable!("coordinators die between their own outputs"),
        }
    }

    fn crash_task(&mut self, id: TaskId, attempt: AttemptId, cut: Option<Cut>) {
        let Some(slot) = self.slot_mut(id, attempt).filter(|slot| !slot.is_finished) else {
            return;
        };
        let window = match (&slot.life, cut) {
            (Life::Dead, _) => return,
            (Life::Live(_), Some(Cut::Received)) => Window::Receive,
            (Life::Live(_), Some(Cut::Updated)) => Window::Update,
            (Life::Live(_), Some(Cut::Emitted(_))) => Window::Emit,
            (Life::Live(task), Some(Cut::Before) | None) => window_of(task),
            (Life::Starting, _) => Window::Restoring,
        };
        slot.life = Life::Dead;
        slot.inputs.clear();
        slot.waiting.clear();
        self.record(TraceEvent::Crashed { task: id, attempt, window });
        let most = self.plan.options.detection_us;
        let delay = self.delay(Choice::Detection, id.get(), most);
        let text = format!("{} died", self.plan.job.graph().task_name(id));
        let body = FromTask::Failed(TaskError::Crashed(text));
        let noticed = TaskMessage { task: id, attempt, body };
        self.queue.schedule(self.now + delay, Event::Report(noticed));
    }

    /// A dead worker takes with it some of what its sinks wrote since their last flush, unless a
    /// newer attempt writes there by now, on a worker of its own.
    fn lose_rows(&mut self, id: TaskId, attempt: AttemptId) {
        let (vertex, subtask) = self.plan.job.graph().place_of(id);
        if self.plan.job.sink(vertex).is_none()
            || !self.external.is_open_to(vertex, subtask, attempt)
        {
            return;
        }
        self.external.forget_worker(vertex, subtask);
        let unflushed = self.external.unflushed(vertex, subtask, attempt) as u64;
        let lost = self.decider.below(Choice::CrashFate, id.get(), unflushed + 1);
        if lost > 0 {
            self.external.lose(vertex, subtask, lost as usize);
            self.disturbed(Disturbance::RowsLost, Some(id));
        }
    }

    fn worker_of(&self, id: TaskId) -> usize {
        self.plan.job.graph().place_of(id).1.index() % self.plan.options.workers
    }

    pub(super) fn is_in(&mut self, id: TaskId, attempt: AttemptId, window: Window) -> bool {
        match self.slot_mut(id, attempt).map(|slot| &slot.life) {
            Some(Life::Live(task)) => match window {
                Window::Aligning => task.is_collecting_barriers(),
                Window::Snapshotting => task.is_snapshotting(),
                Window::PreCommitted => task.sink().is_some_and(|sink| sink.has_pre_committed()),
                Window::Committing => task.sink().is_some_and(|sink| sink.is_committing()),
                Window::Restoring => task.phase() == Phase::AwaitingSinkRecovery,
                Window::Reserving => task.source().is_some_and(|source| source.is_reserving()),
                Window::Ending => task.phase() == Phase::AwaitingFinalCheckpoint,
                Window::Idle
                | Window::Receive
                | Window::Update
                | Window::Emit
                | Window::Collecting
                | Window::Completing
                | Window::Notifying
                | Window::Recovering => window_of(task) == window,
            },
            Some(Life::Starting) => window == Window::Restoring,
            Some(Life::Dead) | None => false,
        }
    }
}

/// The window that a task is in; of several the one that matters most for what is promised.
fn window_of(task: &Task) -> Window {
    let sink = task.sink();
    if task.phase() == Phase::AwaitingSinkRecovery {
        Window::Restoring
    } else if sink.is_some_and(|sink| sink.is_committing()) {
        Window::Committing
    } else if task.is_collecting_barriers() {
        Window::Aligning
    } else if task.is_snapshotting() {
        Window::Snapshotting
    } else if sink.is_some_and(|sink| sink.has_pre_committed()) {
        Window::PreCommitted
    } else if task.source().is_some_and(|source| source.is_reserving()) {
        Window::Reserving
    } else if task.phase() == Phase::AwaitingFinalCheckpoint {
        Window::Ending
    } else {
        Window::Idle
    }
}
