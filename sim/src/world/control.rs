//! The coordinator in the world: its outputs, its death between any two of them, and its successor.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cofferdam::coordinator::{Coordinator, CoordinatorNote, CoordinatorOutput, Phase};
use cofferdam::id::{AttemptId, TaskId};
use cofferdam::message::{Assignment, TaskMessage, ToTask};
use cofferdam::storage::{CheckpointMetadata, StoreKey, StoreRequest, StoreValue};
use cofferdam::time::Instant;
use cofferdam::trace::{Disturbance, TraceEvent, Window};
use smallvec::{SmallVec, smallvec};

use super::{Ending, Event, Life, Put, Slot, World, Writer};
use crate::decide::Choice;
use crate::fault::Trigger;
use crate::interpose::Variant;
use crate::link::Link;
use crate::log::Log;

impl World {
    /// A coordinator begins: it reads what earlier ones left in the store.
    pub(super) fn start_coordinator(&mut self) {
        let job = &self.plan.job;
        let plan = job.plan();
        let (name, config) = (job.name().to_owned(), job.config().clone());
        let mut recovered = self.store.recovered();
        self.interposer.recovered(&mut recovered);
        let machine = Coordinator::new(name, plan, config, recovered, self.now);
        self.control.life += 1;
        self.control.machine = Some(Box::new(machine));
        self.record(TraceEvent::CoordinatorStarted);
        self.with_coordinator(|_, _| ());
    }

    /// Calls the coordinator, if it is alive, and carries out what it asks for.
    pub(super) fn with_coordinator(&mut self, call: impl FnOnce(&mut Coordinator, Instant)) {
        let Some(mut machine) = self.control.machine.take() else { return };
        call(&mut machine, self.now);
        if self.stopping {
            machine.stop(self.now);
        }
        let mut has_completed = false;
        while let Some(output) = machine.poll_output() {
            self.control.outputs += 1;
            if self.coordinator_dies() {
                return self.crash_coordinator(&machine);
            }
            has_completed |= is_completion(&output);
            self.carry_out_control(output);
        }
        self.control.machine = Some(machine);
        // Splits that have waited for the end of a checkpoint are on their way by now (rule 80).
        if has_completed {
            self.stop_if_quiet();
        }
    }

    /// The time has come that a coordinator has waited for.
    pub(super) fn tell_time(&mut self) {
        let waits_for_trigger =
            self.control.machine.as_ref().is_some_and(|of| window_of(of) == Window::Idle);
        if !waits_for_trigger || !self.interposer.ends_triggers() {
            self.with_coordinator(|machine, now| machine.handle_time(now));
        }
    }

    fn coordinator_dies(&mut self) -> bool {
        let outputs = self.control.outputs;
        let struck = self.plan.faults.iter().enumerate().find_map(|(place, fault)| {
            let due = fault.trigger == Trigger::Output { number: outputs };
            (due && self.armed[place]).then_some(place)
        });
        match struck.filter(|_| self.may_disturb()) {
            Some(place) => {
                self.armed[place] = false;
                true
            }
            None => false,
        }
    }

    /// The coordinator's memory is gone. A write of its own that was under way has landed by the
    /// time its successor looks, was cut in the middle, or never lands.
    fn crash_coordinator(&mut self, machine: &Coordinator) {
        self.record(TraceEvent::CoordinatorCrashed { window: window_of(machine) });
        for number in std::mem::take(&mut self.control.puts) {
            self.settle_write(number);
        }
        let most = self.plan.options.detection_us;
        let delay = self.delay(Choice::Detection, u32::MAX, most);
        self.queue.schedule(self.now + delay, Event::CoordinatorRestart);
    }

    pub(super) fn settle_write(&mut self, number: u64) {
        let write = self.queue.find(|event| {
            let Event::Write { put, number: of, .. } = event else { return None };
            (*of == number).then(|| (put.key, put.bytes.clone()))
        });
        let Some((key, bytes)) = write else { return };
        self.lost_writes.insert(number);
        match self.decider.below(Choice::CrashFate, u32::MAX, 3) {
            0 => {}
            1 => {
                self.store.put(key, bytes, false);
            }
            // Only a value that nobody was told of can be cut: the attempt's number is replaced
            // as a whole or not at all, like every value that replaces another.
            _ => {
                if let StoreKey::Metadata(_) = key {
                    let kept = bytes.len() / 2;
                    self.store.put(key, bytes[..kept].into(), false);
                    self.disturbed(Disturbance::StoreTorn, None);
                }
            }
        }
    }

    fn carry_out_control(&mut self, output: CoordinatorOutput) {
        match output {
            CoordinatorOutput::Send { task, attempt, message } => {
                self.say(task, attempt, message);
            }
            CoordinatorOutput::Store(StoreRequest::Put { key, mut value }) => {
                self.change_pools(&mut value);
                let writer = Writer::Coordinator(self.control.life);
                let bytes: Arc<[u8]> = value.encode().into();
                if let Some(reply) = self.interposer.stored_at_once(key, &bytes) {
                    self.queue.schedule(self.now, Event::Written { writer, reply });
                }
                self.put(writer, Put { key, bytes, is_appended: false });
            }
            CoordinatorOutput::Store(StoreRequest::Discard(checkpoint)) => {
                if !self.interposer.keeps(checkpoint) {
                    self.store.discard(checkpoint);
                }
            }
            CoordinatorOutput::Deploy { attempt, restore, halts } => {
                let restore = self.interposer.begins(restore);
                let at = restore.as_ref().map(|metadata| metadata.checkpoint);
                self.control.halts = at.filter(|_| halts);
                self.deploy(attempt, restore);
            }
            CoordinatorOutput::Search { source, known } => self.search(source, known),
            CoordinatorOutput::Cancel(attempt) => {
                self.stop_tasks();
                self.record(TraceEvent::Cancelled { attempt });
                let most = self.plan.options.message_delay_us;
                let delay = self.delay(Choice::MessageDelay, u32::MAX, most);
                self.queue.schedule(self.now + delay, Event::Cancelled(attempt));
            }
            CoordinatorOutput::WaitUntil(at) => {
                self.queue.schedule(at.max(self.now), Event::Timer(self.control.life));
            }
            CoordinatorOutput::Note(note) => self.note(&note),
            CoordinatorOutput::Finished if self.has_stopped() => {
                self.queue.schedule(self.now, Event::Saved);
            }
            CoordinatorOutput::Finished => {
                self.record(TraceEvent::Finished);
                self.ending.get_or_insert(Ending::Finished);
            }
            CoordinatorOutput::Failed(error) => {
                self.record(TraceEvent::Failed);
                self.ending.get_or_insert(Ending::Failed(error));
            }
        }
    }

    fn note(&mut self, note: &CoordinatorNote) {
        self.interposer.noted(note);
        match *note {
            CoordinatorNote::CheckpointTriggered(checkpoint) => {
                self.send_held(None);
                self.record(TraceEvent::Triggered { checkpoint });
            }
            CoordinatorNote::CheckpointCompleted { checkpoint, .. } => {
                let attempt = self.control.attempt;
                self.record(TraceEvent::Completed { checkpoint, attempt });
                if self.stopping && self.interposer.is(Variant::SavepointBeforeCommits) {
                    self.queue.schedule(self.now, Event::Saved);
                }
            }
            CoordinatorNote::CheckpointAborted { checkpoint, reason } => {
                self.record(TraceEvent::Aborted { checkpoint, reason });
            }
            CoordinatorNote::AttemptNotStored { .. }
            | CoordinatorNote::RecordsLost { .. }
            | CoordinatorNote::AttemptFailed { .. }
            | CoordinatorNote::Restarting { .. } => {}
        }
    }

    /// Triggers come in order, and are not lost unless the next one may come before their
    /// checkpoint is over: its barrier says that they were. Notices may be lost, late or doubled
    /// (rule 58). What is said of splits is not lost and comes ahead of a later trigger, but may
    /// overtake an earlier one.
    pub(super) fn send_to_task(&mut self, task: TaskId, attempt: AttemptId, message: ToTask) {
        let subject = task.get();
        if let ToTask::Assign(Assignment { split, .. }) = message {
            let (source, _) = self.plan.job.graph().place_of(task);
            self.record(TraceEvent::Assigned { task, attempt, source, split });
            self.last_moved = self.now;
        }
        let most = self.plan.options.message_delay_us;
        let at = self.now + self.delay(Choice::MessageDelay, subject, most);
        let is_notice = match message {
            ToTask::Trigger { .. } | ToTask::Assign(_) | ToTask::NoMoreSplits => false,
            ToTask::Completed(_) | ToTask::Finish(_) | ToTask::Aborted { .. } => true,
        };
        if !is_notice || !self.may_disturb() {
            let lost = self.plan.options.notices_lost_permille;
            if self.plan.job.config().checkpoints_concurrent > 1
                && matches!(message, ToTask::Trigger { .. })
                && self.may_disturb()
                && self.decider.chance(Choice::NoticeFate, subject, lost)
            {
                return self.disturbed(Disturbance::NoticeLost, Some(task));
            }
            let Some(slot) = self.slot_mut(task, attempt) else { return };
            let may_overtake = matches!(message, ToTask::Assign(_) | ToTask::NoMoreSplits);
            let at = if may_overtake { at } else { at.max(slot.last_notice) };
            slot.last_notice = at.max(slot.last_notice);
            return self.queue.schedule(at, Event::Notice(task, attempt, message));
        }
        for at in self.fates(task, at) {
            self.queue.schedule(at, Event::Notice(task, attempt, message.clone()));
        }
    }

    /// When a message comes to a task that would come at `at`: never, later, or twice, if
    /// faults may still happen.
    pub(super) fn fates(&mut self, task: TaskId, at: Instant) -> SmallVec<[Instant; 2]> {
        if !self.may_disturb() {
            return smallvec![at];
        }
        let subject = task.get();
        let options = &self.plan.options;
        let most = options.message_delay_us;
        let (lost, late, doubled) = (
            options.notices_lost_permille,
            options.notices_late_permille,
            options.notices_doubled_permille,
        );
        if self.decider.chance(Choice::NoticeFate, subject, lost) {
            self.disturbed(Disturbance::NoticeLost, Some(task));
            return SmallVec::new();
        }
        let mut copies = smallvec![at];
        if self.decider.chance(Choice::NoticeFate, subject, late) {
            self.disturbed(Disturbance::NoticeLate, Some(task));
            copies[0] = at + self.delay(Choice::MessageDelay, subject, 30 * most);
        }
        if self.decider.chance(Choice::NoticeFate, subject, doubled) {
            self.disturbed(Disturbance::NoticeDoubled, Some(task));
            copies.push(at + self.delay(Choice::MessageDelay, subject, 10 * most));
        }
        copies
    }

    fn deploy(&mut self, attempt: AttemptId, restore: Option<CheckpointMetadata>) {
        self.stop_tasks();
        let restored = restore.as_ref().map(|metadata| metadata.checkpoint);
        self.record(TraceEvent::Deployed { attempt, restored });
        self.last_moved = self.now;
        self.control.attempt = attempt;
        self.control.restore = restore;
        let plan = self.plan.clone();
        let capacity = plan.options.channel_batches;
        self.slots = plan
            .job
            .graph()
            .tasks()
            .map(|task| Slot {
                task,
                attempt,
                life: Life::Starting,
                inputs: plan.job.graph().inputs(task).iter().map(|_| Link::new(capacity)).collect(),
                waiting: VecDeque::new(),
                client: plan.job.source(plan.job.graph().place_of(task).0),
                read: None,
                read_from: Instant::ZERO,
                is_restored: false,
                read_ahead: VecDeque::new(),
                applied: Log::new(),
                cut: None,
                in_flight: BTreeMap::new(),
                productions: BTreeMap::new(),
                step_at: None,
                busy_until: Instant::ZERO,
                is_finished: false,
                last_report: Instant::ZERO,
                last_notice: Instant::ZERO,
                last_external: Instant::ZERO,
            })
            .collect();
        if let Some(restore) = self.control.restore.clone() {
            self.refill(attempt, &restore);
        }
        self.deploy_readers(attempt);
        for task in plan.job.graph().tasks() {
            let delay = self.delay(Choice::StartDelay, task.get(), plan.options.start_us);
            self.queue.schedule(self.now + delay, Event::Start(task, attempt));
        }
    }

    /// Stops every task. Some do not notice for a while: what they still send and ask for carries
    /// their old attempt.
    fn stop_tasks(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let permille = self.plan.options.zombies_permille;
        for slot in slots {
            let id = slot.task;
            let lives_on = matches!(slot.life, Life::Live(_))
                && self.may_disturb()
                && self.decider.chance(Choice::ZombieFate, id.get(), permille);
            if lives_on || self.interposer.is(Variant::OldAttemptNotFenced) {
                self.disturbed(Disturbance::Zombie, Some(id));
                let most = 4 * self.plan.options.detection_us;
                let life: Duration = self.delay(Choice::ZombieFate, id.get(), most);
                self.queue.schedule(self.now + life, Event::ZombieEnd(id, slot.attempt));
                self.zombies.push(slot);
            } else {
                self.incarnations.entry(slot.attempt).or_default().push(slot.applied);
            }
        }
    }
}

impl World {
    /// The coordinator hears of a task. A variant may make a checkpoint complete by it.
    pub(super) fn hear(&mut self, message: TaskMessage) {
        let complete = self.interposer.heard(&message, &self.plan.job);
        self.with_coordinator(|machine, now| machine.handle_message(now, message));
        if let Some(metadata) = complete {
            let CheckpointMetadata { checkpoint, attempt, .. } = metadata;
            let bytes = StoreValue::Metadata(Box::new(metadata)).encode().into();
            self.store.put(StoreKey::Metadata(checkpoint), bytes, false);
            self.record(TraceEvent::Completed { checkpoint, attempt });
        }
    }

    pub(super) fn end_zombie(&mut self, task: TaskId, attempt: AttemptId) {
        let is_meant = |slot: &Slot| (slot.task, slot.attempt) == (task, attempt);
        if let Some(position) = self.zombies.iter().position(is_meant) {
            let slot = self.zombies.remove(position);
            self.incarnations.entry(attempt).or_default().push(slot.applied);
        }
    }
}

fn window_of(machine: &Coordinator) -> Window {
    match machine.phase() {
        Phase::Finishing { .. } => Window::Notifying,
        Phase::Running { .. } if machine.is_in_flight() => Window::Collecting,
        Phase::AwaitingMetadata { .. } => Window::Completing,
        Phase::Running { .. } => Window::Idle,
        Phase::AwaitingAttempt
        | Phase::AwaitingTasks
        | Phase::AwaitingCancelled { .. }
        | Phase::AwaitingRestart { .. }
        | Phase::Ended => Window::Recovering,
    }
}

fn is_completion(output: &CoordinatorOutput) -> bool {
    matches!(output, CoordinatorOutput::Note(CoordinatorNote::CheckpointCompleted { .. }))
}
