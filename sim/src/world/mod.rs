//! A world: the real machines of a job, and models of everything between and behind them, under
//! virtual time. One event at a time; every choice comes from the [`Decider`].
//!
//! ```text
//!   EventQueue -> World::handle -> Task / Coordinator (real) -> outputs -> World::carry_out
//!                    ^                                                         |
//!                    +---- links, messages, store, external systems <----------+
//! ```
//! A world can be copied at any event; the copy goes its own way.

mod clock;
mod commits;
mod control;
mod crash;
mod endless;
mod in_flight;
mod layout;
mod lineage;
mod outputs;
mod progress;
mod queues;
mod saved;
mod splits;
mod steps;
mod upstream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cofferdam::coordinator::{Coordinator, JobError};
use cofferdam::element::Element;
use cofferdam::id::{
    AttemptId, ChannelId, CheckpointId, OutletIndex, SplitId, TaskId, TransactionId, VertexId,
};
use cofferdam::job::Job;
use cofferdam::message::{TaskMessage, ToPeer, ToTask};
use cofferdam::operator::queue::Acknowledgement;
use cofferdam::operator::sink::SinkRequest;
use cofferdam::operator::source::{ErasedSource, ReadRequest};
use cofferdam::state::hash::KeyHash;
use cofferdam::state::snapshot::{InFlight, SourceState};
use cofferdam::storage::{CheckpointMetadata, StoreKey, StoreReply};
use cofferdam::task::Task;
use cofferdam::time::Instant;
use cofferdam::trace::{Disturbance, Origin, TraceEvent, Traced};

use crate::decide::{Choice, Decider};
use crate::external::External;
use crate::fault::Fault;
use crate::interpose::{Interposer, Variant};
use crate::jobs::OffsetAt;
use crate::link::{Link, Origins};
use crate::log::Log;
use crate::options::Options;
use crate::queue::EventQueue;
use crate::store::Store;

use in_flight::Shadow;
pub use lineage::Applied;
pub(crate) use lineage::{cell_hash, hash_bytes, mix};
use saved::Saved;

/// What all copies of a world share.
pub struct Plan {
    /// The job.
    pub job: Job,
    /// Its sources, by [`cofferdam::trace::RecordId::source`]: the vertex, and the offset of the
    /// record at an encoded cursor.
    pub sources: Vec<(VertexId, OffsetAt)>,
    /// What each task begins with at the first start.
    pub initial: Vec<Option<SourceState>>,
    /// The options.
    pub options: Options,
    /// The planned crashes.
    pub faults: Vec<Fault>,
    /// The broken variant that is at work, if any.
    pub variant: Option<Variant>,
    /// A run of more events goes round in circles: see [`events_max`].
    pub events_max: u64,
    /// If the job begins again in another layout.
    pub next: Option<NextLayout>,
}

/// The end of one layout, and what follows it.
pub struct NextLayout {
    /// When the job is killed, or told to stop.
    pub at: Instant,
    /// It stops with a savepoint.
    pub stops: bool,
    /// The plan from then on.
    pub plan: Rc<Plan>,
}

/// The state of a simulated run.
#[derive(Clone)]
pub struct World {
    plan: Rc<Plan>,
    now: Instant,
    queue: EventQueue<Event>,
    decider: Decider,
    slots: Vec<Slot>,
    zombies: Vec<Slot>,
    control: Control,
    store: Store,
    external: External,
    /// Keyed state, where it lives outside of the tasks.
    saved: Saved,
    /// The logs that are truncated, as far as they were read, by reader.
    logs: BTreeMap<(TaskId, SplitId), upstream::Log>,
    queues: BTreeMap<(VertexId, SplitId), queues::Queue>,
    interposer: Interposer,
    /// What each snapshot held of whom, by the key of the task's part.
    shadows: BTreeMap<StoreKey, Shadow>,
    /// The same of each write of a task's progress, by its number.
    progress: BTreeMap<(StoreKey, CheckpointId), Shadow>,
    /// Where the rows of each portion come from that write-ahead sinks keep in their tasks' state.
    logged: BTreeMap<TransactionId, Log<Origin>>,
    /// Faults that have not struck, by their place in the plan.
    armed: Vec<bool>,
    /// How often the task of each planned fault was in the fault's window.
    window_counts: Vec<u64>,
    /// Writes so far, and those that will not land because their writer died.
    writes: u64,
    lost_writes: BTreeSet<u64>,
    calls: Vec<u64>,
    trace: Log<Traced>,
    /// Records applied by attempts that are over, for judging each on its own.
    incarnations: BTreeMap<AttemptId, Vec<Log<Applied>>>,
    events: u64,
    ending: Option<Ending>,
    /// The job is to stop with a savepoint, from which the next layout begins.
    stopping: bool,
    /// When a task last took in a record or was given a split, or an attempt began.
    last_moved: Instant,
    /// A source that was restored behind some record has read another.
    is_restored: bool,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job is done.
    Finished,
    /// The job has given up.
    Failed(JobError),
    /// The job is endless: it was stopped when all that its sources had given was covered.
    Stopped,
    /// Nothing more happens, or too much, and the job is not done.
    Stuck,
}

/// One task in one attempt: its machine, its input channels and what waits for it.
#[derive(Clone)]
struct Slot {
    task: TaskId,
    attempt: AttemptId,
    life: Life,
    inputs: Vec<Link>,
    /// What did not fit into the channels behind.
    waiting: VecDeque<(ChannelId, Element, Origins)>,
    /// What reads, if the task begins with a source.
    client: Option<Box<dyn ErasedSource>>,
    read: Option<ReadRequest>,
    /// The read is not to be made before.
    read_from: Instant,
    /// Its source goes on behind some record.
    is_restored: bool,
    /// Where the records come from that were read and not handed out, by read (at-most-once).
    read_ahead: VecDeque<Origins>,
    applied: Log<Applied>,
    /// The last cut, with what keyed state held then, where snapshots hold records in flight.
    cut: Option<(CheckpointId, Log<Applied>)>,
    /// The origins of the records in flight that may become part of a snapshot.
    in_flight: BTreeMap<CheckpointId, InFlight<Origin>>,
    /// Where the records come from that the task has produced under transactional updates, by
    /// output and number.
    productions: BTreeMap<OutletIndex, Log<Origin>>,
    step_at: Option<Instant>,
    /// The end of the last step.
    busy_until: Instant,
    /// It has reported that nothing is left to do: its death would change nothing.
    is_finished: bool,
    last_report: Instant,
    last_notice: Instant,
    last_external: Instant,
}

#[derive(Clone)]
enum Life {
    Starting,
    Live(Box<Task>),
    Dead,
}

#[derive(Clone)]
struct Control {
    machine: Option<Box<Coordinator>>,
    /// How many coordinators there have been.
    life: u64,
    /// Outputs over all lives.
    outputs: u64,
    attempt: AttemptId,
    restore: Option<CheckpointMetadata>,
    /// The checkpoint that the job stops at, if the attempt begins there.
    halts: Option<CheckpointId>,
    /// Puts of the coordinator that are under way, for the moment it dies.
    puts: Vec<u64>,
}

/// Who asked the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Task(TaskId, AttemptId),
    Coordinator(u64),
}

/// What is to be written.
#[derive(Clone, Debug)]
struct Put {
    key: StoreKey,
    bytes: Arc<[u8]>,
    /// Behind what is there, and not in place of it.
    is_appended: bool,
}

#[derive(Clone, Debug)]
enum Event {
    Step(TaskId, AttemptId),
    Start(TaskId, AttemptId),
    Notice(TaskId, AttemptId, ToTask),
    Told(TaskId, AttemptId, ToPeer),
    Alarm(TaskId, AttemptId),
    Report(TaskMessage),
    Timer(u64),
    TaskTimer(TaskId, AttemptId),
    /// A task has asked to be told the time.
    Clock(TaskId, AttemptId),
    Write {
        writer: Writer,
        put: Put,
        number: u64,
    },
    Written {
        writer: Writer,
        reply: StoreReply,
    },
    External {
        task: TaskId,
        attempt: AttemptId,
        request: SinkRequest,
    },
    Cancelled(AttemptId),
    Search {
        life: u64,
        source: VertexId,
        known: u32,
    },
    Truncation(u32),
    Layout,
    /// The job has stopped with a savepoint.
    Saved,
    QueueTold(TaskId, AttemptId, Acknowledgement),
    QueueConfirmed(TaskId, AttemptId, Acknowledgement),
    CoordinatorRestart,
    ZombieEnd(TaskId, AttemptId),
}

impl World {
    /// A world at its beginning.
    pub fn new(plan: Rc<Plan>, decider: Decider) -> Self {
        let mut external = External::new(plan.variant);
        let timeout = match plan.options.transaction_timeout_us {
            0 => None,
            timeout => Some(Duration::from_micros(timeout)),
        };
        let graph = plan.job.graph();
        for vertex in graph.vertex_ids() {
            if let Some((_, sink)) = plan.job.sink(vertex) {
                external.add(vertex, sink, timeout);
            }
        }
        let tasks = graph.task_count();
        let mut world = Self {
            now: Instant::ZERO,
            queue: EventQueue::new(),
            decider,
            slots: Vec::new(),
            zombies: Vec::new(),
            control: Control {
                machine: None,
                life: 0,
                outputs: 0,
                attempt: AttemptId::default(),
                restore: None,
                halts: None,
                puts: Vec::new(),
            },
            store: Store::new(plan.variant),
            external,
            saved: Saved::new(plan.job.config().state, plan.variant),
            logs: BTreeMap::new(),
            queues: queues::Queue::all(&plan).collect(),
            interposer: Interposer::new(plan.variant),
            shadows: BTreeMap::new(),
            progress: BTreeMap::new(),
            logged: BTreeMap::new(),
            armed: vec![true; plan.faults.len()],
            window_counts: vec![0; plan.faults.len()],
            writes: 0,
            lost_writes: BTreeSet::new(),
            calls: vec![0; tasks],
            trace: Log::new(),
            incarnations: BTreeMap::new(),
            events: 0,
            ending: None,
            stopping: false,
            last_moved: Instant::ZERO,
            is_restored: false,
            plan,
        };
        world.plan_truncations();
        world.plan_layout();
        world.start_coordinator();
        world
    }

    /// A copy that goes its own way. Shares what it can: keyed state is copied only where one of
    /// the two changes it.
    pub fn fork(&mut self) -> Self {
        for slot in self.slots.iter_mut().chain(&mut self.zombies) {
            if let Life::Live(task) = &mut slot.life {
                task.share_state();
            }
        }
        self.clone()
    }

    /// Runs until nothing is left to do, or more happens than any correct run needs.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// As [`World::run`], unless `is_given_up` says so between two events; whether it has come to
    /// its end.
    pub fn run_unless(&mut self, is_given_up: &dyn Fn() -> bool) -> bool {
        while !is_given_up() {
            if !self.step() {
                return true;
            }
        }
        false
    }

    /// Handles the next event; false if there was none.
    pub fn step(&mut self) -> bool {
        if self.events >= self.plan.events_max {
            self.ending.get_or_insert(Ending::Stuck);
            return false;
        }
        if self.ending == Some(Ending::Stopped) {
            return false;
        }
        let Some((at, event)) = self.queue.pop() else {
            self.ending.get_or_insert(Ending::Stuck);
            return false;
        };
        self.now = at;
        self.events += 1;
        self.handle(event);
        true
    }

    /// How many events were handled.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The virtual time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether an attempt has gone on from stored positions in the midst of the input.
    pub fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// What happened so far.
    pub fn trace(&self) -> &Log<Traced> {
        &self.trace
    }

    /// How it ended, if it has.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// What all copies share.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The decisions made so far.
    pub fn decider(&self) -> &Decider {
        &self.decider
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        matches!(self.ending, Some(Ending::Finished | Ending::Stopped))
    }

    /// The external systems.
    pub fn external(&self) -> &External {
        &self.external
    }

    /// The tasks of the current attempt, those that are alive.
    pub fn tasks(&self) -> impl Iterator<Item = (&Task, &Log<Applied>)> {
        self.slots.iter().filter_map(|slot| match &slot.life {
            Life::Live(task) => Some((task.as_ref(), &slot.applied)),
            Life::Starting | Life::Dead => None,
        })
    }

    /// The current attempt, or the last one.
    pub fn attempt(&self) -> AttemptId {
        self.control.attempt
    }

    /// A hash over everything that happened so far, in order.
    pub fn trace_hash(&self) -> u64 {
        self.trace.iter().fold(0, |hash, traced| mix(hash, KeyHash::of(traced).get()))
    }

    /// What the tasks of earlier attempts had taken into their state when they ended, or each time
    /// that a barrier emptied it.
    pub fn incarnations(&self) -> BTreeMap<AttemptId, Vec<Log<Applied>>> {
        let mut incarnations = self.incarnations.clone();
        for slot in &self.zombies {
            incarnations.entry(slot.attempt).or_default().push(slot.applied.clone());
        }
        incarnations
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Step(task, attempt) => self.step_task(task, attempt),
            Event::Start(task, attempt) => self.start_task(task, attempt),
            Event::Notice(task, attempt, message) => self.notify(task, attempt, message),
            Event::Told(task, attempt, message) => {
                let message = self.interposer.told(attempt, message);
                self.with_task(task, attempt, |task| task.handle_peer(message));
            }
            Event::Alarm(task, attempt) => self.with_task(task, attempt, Task::handle_alarm),
            Event::Report(message) => self.hear(message),
            Event::Timer(life) => {
                if life == self.control.life {
                    self.tell_time();
                }
            }
            Event::TaskTimer(task, attempt) => {
                let now = self.now;
                self.with_task(task, attempt, |task| task.handle_time(now));
            }
            // It tells the time before all else.
            Event::Clock(task, attempt) => self.wake(task, attempt, self.now),
            Event::Write { writer, put, number } => self.write(writer, put, number),
            Event::Written { writer, reply } => self.written(writer, reply),
            Event::External { task, attempt, request } => self.ask_external(task, attempt, request),
            Event::Cancelled(attempt) => self.with_coordinator(|machine, now| {
                machine.handle_cancelled(now, attempt);
            }),
            Event::Search { life, source, known } => self.end_search(life, source, known),
            Event::QueueTold(task, attempt, told) => self.queue_told(task, attempt, told),
            Event::QueueConfirmed(task, attempt, confirmed) => {
                self.with_task(task, attempt, |task| task.handle_confirmed(&confirmed));
            }
            Event::Truncation(number) => self.truncate(number),
            Event::Layout => self.leave_layout(),
            Event::Saved => self.change_layout(),
            Event::CoordinatorRestart => self.start_coordinator(),
            Event::ZombieEnd(task, attempt) => {
                self.end_zombie(task, attempt);
            }
        }
    }

    /// Whether faults may still happen.
    fn may_disturb(&self) -> bool {
        self.ending.is_none() && self.now < self.faults_stop()
    }

    /// When faults stop.
    pub fn faults_stop(&self) -> Instant {
        Instant::from_nanos(self.plan.options.faults_until_us * 1000)
    }

    /// How long a trigger is under way at the most: neither is it lost nor does it wait.
    pub fn trigger_delay_max(&self) -> Duration {
        delay_max(self.plan.options.message_delay_us)
    }

    fn delay(&mut self, choice: Choice, subject: u32, most_us: u64) -> Duration {
        let most = delay_max(most_us).as_nanos() as u64 - DELAY_MIN_NANOS;
        let delay = DELAY_MIN_NANOS + self.decider.mostly_short(choice, subject, most);
        Duration::from_nanos(delay)
    }

    fn record(&mut self, event: TraceEvent) {
        self.trace.push(Traced { at: self.now, event });
    }

    fn disturbed(&mut self, fault: Disturbance, task: Option<TaskId>) {
        self.record(TraceEvent::Disturbed { fault, task });
    }

    fn slot_mut(&mut self, task: TaskId, attempt: AttemptId) -> Option<&mut Slot> {
        match self.slots.get_mut(task.index()) {
            Some(slot) if slot.attempt == attempt => Some(slot),
            Some(_) | None => {
                self.zombies.iter_mut().find(|slot| (slot.task, slot.attempt) == (task, attempt))
            }
        }
    }

    /// Lets a task look for work at `at`, or when its last step is over, unless it does so earlier.
    fn wake(&mut self, task: TaskId, attempt: AttemptId, at: Instant) {
        let now = self.now;
        let Some(slot) = self.slot_mut(task, attempt) else { return };
        let at = at.max(now).max(slot.busy_until);
        if slot.step_at.is_none_or(|earlier| at < earlier) {
            slot.step_at = Some(at);
            self.queue.schedule(at, Event::Step(task, attempt));
        }
    }
}

/// What a delay of at most so many microseconds can come to.
fn delay_max(most_us: u64) -> Duration {
    Duration::from_nanos(DELAY_MIN_NANOS + most_us.max(1) * 1000)
}

/// Nothing takes no time.
const DELAY_MIN_NANOS: u64 = 1000;

/// More events than any correct run needs whose records have so many effects, on state and sinks.
pub const fn events_max(effects: u64) -> u64 {
    400_000 + 1_000 * effects
}
