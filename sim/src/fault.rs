//! Planned faults: crashes, each at a place in the protocol that a name can be given to.

use std::fmt;

use cofferdam::graph::PhysicalGraph;
use cofferdam::id::TaskId;
use cofferdam::trace::Window;
use serde::{Deserialize, Serialize};

use crate::dice::{Dice, Purpose};
use crate::options::Options;

/// A crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What dies.
    pub scope: Scope,
    /// When.
    pub trigger: Trigger,
}

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One task.
    Task,
    /// A worker with all its tasks, and what they had not flushed.
    Worker,
    /// The coordinator.
    Coordinator,
}

/// When a crash happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// In the how-manieth call of this task's machine over all attempts, counted from 1, and where
    /// in it.
    Call {
        /// The task.
        task: TaskId,
        /// The call.
        number: u64,
        /// Where in it.
        cut: Cut,
    },
    /// When this task is in this window after a call for the how-manieth time, counted from 1.
    In {
        /// The task.
        task: TaskId,
        /// The window.
        window: Window,
        /// The occurrence.
        occurrence: u64,
    },
    /// Before the coordinator carries out its how-manieth output over all its lives, counted from
    /// 1.
    Output {
        /// The output.
        number: u64,
    },
}

/// Where in a call a task dies: the three steps of handling a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cut {
    /// Before the element is taken.
    Before,
    /// The element is taken and not processed.
    Received,
    /// State is updated and nothing is emitted.
    Updated,
    /// So many outputs are emitted and the others are not.
    Emitted(u32),
}

/// Draws the crashes of a run.
pub fn plan(seed: u64, options: &Options, graph: &PhysicalGraph) -> Vec<Fault> {
    let dice = &mut Dice::new(seed, Purpose::Faults);
    let tasks = graph.task_count() as u64;
    // About as many calls as a task makes: records, and some control elements.
    let calls = (options.records as u64 * 2 / options.parallelism as u64).max(8);
    let mut faults = Vec::new();
    for (scope, count) in
        [(Scope::Task, options.task_crashes), (Scope::Worker, options.worker_crashes)]
    {
        for _ in 0..count {
            let task = TaskId::new(dice.below(tasks) as u32);
            faults.push(Fault { scope, trigger: task_trigger(dice, task, calls) });
        }
    }
    for _ in 0..options.coordinator_crashes {
        let number = dice.between(1, 20 + 6 * tasks);
        faults.push(Fault { scope: Scope::Coordinator, trigger: Trigger::Output { number } });
    }
    faults
}

fn task_trigger(dice: &mut Dice, task: TaskId, calls: u64) -> Trigger {
    if dice.chance(500) {
        let window = *dice.pick(&TASK_WINDOWS);
        return Trigger::In { task, window, occurrence: dice.between(1, 6) };
    }
    let emitted = Cut::Emitted(dice.between(1, 3) as u32);
    let cut = *dice.pick(&[Cut::Before, Cut::Received, Cut::Updated, emitted]);
    Trigger::Call { task, number: dice.between(1, calls), cut }
}

const TASK_WINDOWS: [Window; 7] = [
    Window::Aligning,
    Window::Snapshotting,
    Window::PreCommitted,
    Window::Committing,
    Window::Restoring,
    Window::Reserving,
    Window::Ending,
];

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Before => f.write_str("before the element is taken"),
            Self::Received => f.write_str("with the element taken and not processed"),
            Self::Updated => f.write_str("with state updated and nothing emitted"),
            Self::Emitted(outputs) => write!(f, "with {outputs} outputs emitted"),
        }
    }
}
