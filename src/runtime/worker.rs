//! A worker: one thread that hosts many tasks and gives each its turn.

use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::id::{AttemptId, TaskId};
use crate::runtime::channel::Exchange;
use crate::runtime::mail::{ToCoordinator, ToWorker, WorkerAddress};
use crate::runtime::slot::{Office, Slot, Surroundings};
use crate::sync::park::Parker;
use crate::task::Task;

/// The addresses of all workers, known once all of them have been started.
pub(super) type Roster = Arc<OnceLock<Vec<WorkerAddress>>>;

pub(super) struct Worker {
    office: Office,
    mail: Receiver<ToWorker>,
    exchange: Exchange,
    attempt: Option<AttemptId>,
    /// By task.
    slots: Vec<Slot>,
}

impl Worker {
    pub(super) fn new(office: Office, mail: Receiver<ToWorker>, exchange: Exchange) -> Self {
        Self { office, mail, exchange, attempt: None, slots: Vec::new() }
    }

    /// Works until it is told to quit.
    pub(super) fn run(mut self, mut parker: Parker) {
        let _alarm = Alarm(self.office.coordinator.clone());
        loop {
            let Some(mut moved) = self.read_mail() else { return };
            let mut around = Surroundings { exchange: &mut self.exchange, office: &self.office };
            for slot in &mut self.slots {
                moved |= slot.step(&mut around);
            }
            self.wake_others();
            if moved {
                parker.go_on();
            } else {
                parker.rest(self.patience());
            }
        }
    }

    /// Handles every message that is there; none if the worker is to end.
    fn read_mail(&mut self) -> Option<bool> {
        let mut found = false;
        loop {
            match self.mail.try_recv() {
                Err(TryRecvError::Empty) => return Some(found),
                Err(TryRecvError::Disconnected) | Ok(ToWorker::Quit) => return None,
                Ok(ToWorker::Deploy { attempt, slots, queues }) => {
                    self.deploy(attempt, slots, queues);
                }
                Ok(ToWorker::Cancel(attempt)) => self.cancel(attempt),
                Ok(ToWorker::Message { attempt, task, message }) => {
                    self.tell(attempt, task, |task| task.handle_message(message));
                }
                Ok(ToWorker::Told { attempt, task, message }) => {
                    self.tell(attempt, task, |task| task.handle_peer(message));
                }
                Ok(ToWorker::Stored { attempt, task, reply }) => {
                    self.tell(attempt, task, |task| task.handle_stored(reply));
                }
            }
            found = true;
        }
    }

    fn deploy(&mut self, attempt: AttemptId, slots: Vec<Slot>, queues: usize) {
        self.attempt = Some(attempt);
        self.exchange.reset(queues);
        self.slots = slots;
        let mut around = Surroundings { exchange: &mut self.exchange, office: &self.office };
        for slot in &mut self.slots {
            slot.begin(&mut around);
        }
    }

    fn cancel(&mut self, attempt: AttemptId) {
        if self.attempt == Some(attempt) {
            self.attempt = None;
            self.slots.clear();
            self.exchange.reset(0);
        }
        // If the coordinator is gone, the next look at the mail ends this worker.
        let _ = self.office.coordinator.send(ToCoordinator::Cancelled(attempt));
    }

    /// Another attempt's messages are for tasks that are no more.
    fn tell(&mut self, attempt: AttemptId, task: TaskId, fact: impl FnOnce(&mut Task)) {
        if self.attempt == Some(attempt)
            && let Ok(position) = self.slots.binary_search_by_key(&task, Slot::task)
        {
            let mut around = Surroundings { exchange: &mut self.exchange, office: &self.office };
            self.slots[position].tell(&mut around, fact);
        }
    }

    fn wake_others(&mut self) {
        for worker in self.exchange.take_given() {
            self.office.colleague(worker).unparker.unpark();
        }
    }

    /// How long the worker may sleep: until a task has asked to be woken.
    fn patience(&self) -> Option<Duration> {
        let first = self.slots.iter().filter_map(|slot| slot.wake_at(&self.office)).min();
        first.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// Tells the coordinator if the worker dies of a panic that no task is to blame for.
struct Alarm(Sender<ToCoordinator>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            let _ = self.0.send(ToCoordinator::Died);
        }
    }
}
