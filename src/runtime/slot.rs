//! One task on a worker: its machine, the ends of its channels, and the hands that carry out what
//! it asks for.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::drive::{TaskDriver, drain};
use crate::element::{Barrier, Batch, Element};
use crate::id::{AttemptId, ChannelIndex, CheckpointId, OutletIndex, SplitId, TaskId};
use crate::message::{FromTask, TaskError, TaskMessage, ToPeer};
use crate::operator::queue::Acknowledgement;
use crate::operator::sink::{ErasedSink, SinkPlace, SinkReply, SinkRequest};
use crate::operator::source::{ErasedSource, ReadOutcome, ReadReply, ReadRequest};
use crate::runtime::channel::{Exchange, Inlet, Port};
use crate::runtime::guard;
use crate::runtime::mail::{ToCoordinator, ToWorker, WorkerAddress};
use crate::runtime::store::CheckpointStore;
use crate::runtime::throttle::{Allowed, Throttle};
use crate::runtime::worker::Roster;
use crate::runtime::writer::{self, Asker, WriteOrder};
use crate::state::codec::Compression;
use crate::state::store::{SavedState, StateSaver};
use crate::storage::{StoreKey, StoreReply, StoreRequest, StoreValue};
use crate::task::{Phase, Task};
use crate::time::{self, ProcessingTime};

/// What the tasks of a worker share with the rest of the run.
pub(super) struct Office {
    pub(super) worker: usize,
    pub(super) roster: Roster,
    /// The worker of every task.
    pub(super) homes: Arc<Vec<usize>>,
    pub(super) coordinator: Sender<ToCoordinator>,
    pub(super) writer: Sender<WriteOrder>,
    pub(super) throttle: Arc<Throttle>,
    pub(super) counters: Arc<Counters>,
    /// The store, if tasks write their parts of checkpoints themselves.
    pub(super) writes: Option<(Arc<dyn CheckpointStore>, Compression)>,
    /// Time is counted from here.
    pub(super) started: Instant,
}

impl Office {
    fn now(&self) -> time::Instant {
        let nanos = self.started.elapsed().as_nanos();
        time::Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// What the clock of the machine says.
    fn clock(&self) -> ProcessingTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ProcessingTime::from_millis(time::whole_millis(since))
    }
}

impl Office {
    /// Another worker, or this one.
    pub(super) fn colleague(&self, worker: usize) -> &WorkerAddress {
        &self.roster.get().expect("no task is deployed before all workers run")[worker]
    }
}

/// Records over all tasks and attempts.
#[derive(Default)]
pub(super) struct Counters {
    /// Given out by sources.
    pub(super) records_in: AtomicU64,
    /// Handed to sinks.
    pub(super) records_out: AtomicU64,
    /// The longest that a checkpoint has kept a task from its records, in nanoseconds.
    pub(super) sync_max: AtomicU64,
}

impl Counters {
    fn count_sync(&self, begun: Instant) {
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.sync_max.fetch_max(nanos, Ordering::Relaxed);
    }
}

/// Where a task runs.
pub(super) struct Surroundings<'a> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) office: &'a Office,
}

/// A task on a worker.
pub(super) struct Slot {
    task: Task,
    /// The inlet to look at first, so that none is starved.
    inlet_next: usize,
    /// Input was handled since the last flush.
    is_unflushed: bool,
    hands: Hands,
}

/// The ends of a task's world.
pub(super) struct Hands {
    inlets: Vec<Inlet>,
    pub(super) ports: Vec<Port>,
    pub(super) source: Option<Box<dyn ErasedSource>>,
    pub(super) sink: Option<(Box<dyn ErasedSink>, SinkPlace)>,
    /// If keyed state lives outside.
    saver: Option<Box<dyn StateSaver>>,
    /// Some port has elements waiting.
    is_congested: bool,
    read: Option<ReadRequest>,
    /// The read is not to be made before.
    read_at: Option<Instant>,
    /// When the task's alarm rings.
    alarm_at: Option<Instant>,
    /// What the clock says when the task is to be told of it.
    clock_at: Option<ProcessingTime>,
    /// What it said when the task was told last.
    clock_told: ProcessingTime,
    /// The times that the task waits for.
    timers: BTreeSet<time::Instant>,
    sink_replies: VecDeque<SinkReply>,
    /// The rows of the portion of a write-ahead log that was sent last. They are counted when it is
    /// marked: until then they may be sent again.
    rows_sent: usize,
    /// What could not be carried out: nothing that follows is.
    failure: Option<TaskError>,
}

impl Slot {
    pub(super) fn new(task: Task, hands: Hands) -> Self {
        Self { task, inlet_next: 0, is_unflushed: false, hands }
    }

    pub(super) fn task(&self) -> TaskId {
        self.task.id()
    }

    /// When there will be something to do although nobody gives anything.
    pub(super) fn wake_at(&self, office: &Office) -> Option<Instant> {
        let read_at = self.hands.read_at.filter(|_| self.may_take_input());
        let timer = self.hands.timers.first();
        let timer = timer.map(|at| office.started + Duration::from_nanos(at.as_nanos()));
        let clock_at = self.hands.clock_at.filter(|_| self.may_take_input());
        let clock = clock_at.map(|at| {
            let left = at.as_millis().saturating_sub(office.clock().as_millis());
            Instant::now() + Duration::from_millis(u64::try_from(left).unwrap_or(0))
        });
        read_at.into_iter().chain(timer).chain(self.hands.alarm_at).chain(clock).min()
    }

    /// Opens the sink and carries out what the task asked for when it was put together.
    pub(super) fn begin(&mut self, around: &mut Surroundings<'_>) {
        self.advance(around, |_, hands| match &mut hands.sink {
            Some((sink, place)) => Ok(sink.open(place)?),
            None => Ok(()),
        });
    }

    /// Hands the task a message or a reply. A dead task hears nothing.
    pub(super) fn tell(&mut self, around: &mut Surroundings<'_>, fact: impl FnOnce(&mut Task)) {
        if self.task.phase() != Phase::Failed {
            self.advance(around, |task, _| {
                fact(task);
                Ok(())
            });
        }
    }

    /// Sends what waits and heeds the barriers that do not wait for their turn, then reads the
    /// source once or takes some elements. Whether anything moved.
    pub(super) fn step(&mut self, around: &mut Surroundings<'_>) -> bool {
        let mut moved = self.send_waiting(around) | self.take_notices(around);
        self.tell_time(around);
        if self.hands.alarm_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.tell(around, Task::handle_alarm);
            moved = true;
        }
        self.tell_clock(around);
        let handed_out = self.may_take_input() && self.hand_out(around);
        if (self.may_take_input() && self.read(around)) || handed_out {
            return true;
        }
        for _ in 0..ELEMENTS_PER_STEP {
            if !self.may_take_input() {
                return (self.task.awaits_flush() && self.flush(around)) || moved;
            }
            let Some((channel, element)) = self.take(around.exchange) else {
                return self.flush(around) || moved;
            };
            moved = true;
            self.is_unflushed = true;
            self.advance(around, |task, _| {
                task.handle_element(channel, element);
                Ok(())
            });
        }
        moved
    }

    fn send_waiting(&mut self, around: &mut Surroundings<'_>) -> bool {
        let mut barriers = Vec::new();
        let went = self.hands.send_waiting(around.exchange, &mut barriers);
        for (outlet, checkpoint) in barriers {
            self.tell(around, |task| task.handle_barrier_sent(outlet, checkpoint, Vec::new()));
        }
        went
    }

    /// Hands in every barrier that overtakes and tells of those that wait for their turn, whether
    /// channels are blocked or outputs full.
    fn take_notices(&mut self, around: &mut Surroundings<'_>) -> bool {
        let mut found = false;
        for position in 0..self.hands.inlets.len() {
            while self.task.accepts_elements()
                && let Some(notice) = self.hands.inlets[position].take_notice()
            {
                found = true;
                let (channel, barrier) = (ChannelIndex::new(position as u32), notice.barrier);
                if barrier.overtakes {
                    let inlet = &mut self.hands.inlets[position];
                    let overtaken = inlet.overtaken(&notice, around.exchange);
                    self.tell(around, |task| task.handle_overtaking(channel, barrier, overtaken));
                } else {
                    self.tell(around, |task| task.handle_announcement(channel, barrier));
                }
            }
        }
        found
    }

    fn tell_time(&mut self, around: &mut Surroundings<'_>) {
        if self.hands.timers.is_empty() {
            return;
        }
        let now = around.office.now();
        while self.hands.timers.first().is_some_and(|at| *at <= now) {
            self.hands.timers.pop_first();
            self.tell(around, |task| task.handle_time(now));
        }
    }

    /// Tells the task what the clock says, if it uses it and that has changed.
    fn tell_clock(&mut self, around: &mut Surroundings<'_>) {
        if !self.task.uses_clock() || !self.may_take_input() {
            return;
        }
        let now = around.office.clock();
        if now <= self.hands.clock_told {
            return;
        }
        self.hands.clock_told = now;
        // What is due fires now, and must not wait for a batch to fill.
        self.is_unflushed |= self.hands.clock_at.take_if(|at| *at <= now).is_some();
        self.tell(around, |task| task.handle_clock(now));
    }

    fn may_take_input(&self) -> bool {
        !self.hands.is_congested && self.task.accepts_elements()
    }

    /// Hands out what the source has read ahead, if that may be.
    fn hand_out(&mut self, around: &mut Surroundings<'_>) -> bool {
        if self.task.reserved().is_none() {
            return false;
        }
        self.is_unflushed = true;
        self.advance(around, |task, _| {
            task.hand_out();
            Ok(())
        });
        true
    }

    /// Makes the read that is due, if one is.
    fn read(&mut self, around: &mut Surroundings<'_>) -> bool {
        let office = around.office;
        let Some(due) = self.hands.due_read(office) else { return false };
        self.is_unflushed = true;
        self.advance(around, |task, hands| {
            let reply = match due {
                DueRead::Source(request) => hands.carry_out(&request, office),
                DueRead::End(split) => ReadReply { split, outcome: ReadOutcome::End },
            };
            task.handle_read(reply);
            Ok(())
        });
        true
    }

    /// The next element of a channel that is not blocked, each channel in its turn.
    fn take(&mut self, exchange: &mut Exchange) -> Option<(ChannelIndex, Element)> {
        let count = self.hands.inlets.len();
        for step in 0..count {
            let position = (self.inlet_next + step) % count;
            let channel = ChannelIndex::new(position as u32);
            if self.task.is_blocked(channel) {
                continue;
            }
            if let Some(element) = self.hands.inlets[position].take(exchange) {
                self.inlet_next = position + 1;
                return Some((channel, element));
            }
        }
        None
    }

    /// No more input is at hand: nothing may wait for a batch to fill.
    fn flush(&mut self, around: &mut Surroundings<'_>) -> bool {
        if !std::mem::take(&mut self.is_unflushed) {
            return false;
        }
        self.advance(around, |task, _| {
            task.flush();
            Ok(())
        });
        true
    }

    /// Changes the task, then carries out all that follows. An error, or a panic of user code,
    /// kills the task and nothing else.
    fn advance(
        &mut self,
        around: &mut Surroundings<'_>,
        change: impl FnOnce(&mut Task, &mut Hands) -> Result<(), TaskError>,
    ) {
        let Self { task, hands, .. } = self;
        let outcome = guard::catch(|| {
            let (begun, cut) = (Instant::now(), task.latest());
            change(task, hands)?;
            if task.latest() != cut {
                around.office.counters.count_sync(begun);
            }
            hands.settle(task, around)
        });
        if let Err(error) = outcome {
            task.fail(error);
            hands.failure = None;
            hands.read = None;
            drain(task, &mut Driver { task: task.id(), attempt: task.attempt(), hands, around });
        }
    }
}

impl Hands {
    pub(super) fn new(
        inlets: Vec<Inlet>,
        ports: Vec<Port>,
        source: Option<Box<dyn ErasedSource>>,
        sink: Option<(Box<dyn ErasedSink>, SinkPlace)>,
        saver: Option<Box<dyn StateSaver>>,
    ) -> Self {
        Self {
            inlets,
            ports,
            source,
            sink,
            saver,
            is_congested: false,
            read: None,
            read_at: None,
            alarm_at: None,
            clock_at: None,
            clock_told: ProcessingTime::MIN,
            timers: BTreeSet::new(),
            sink_replies: VecDeque::new(),
            rows_sent: 0,
            failure: None,
        }
    }

    /// Carries out what the task asks for, and what it asks for in answer to the replies.
    fn settle(&mut self, task: &mut Task, around: &mut Surroundings<'_>) -> Result<(), TaskError> {
        loop {
            let (id, attempt) = (task.id(), task.attempt());
            drain(task, &mut Driver { task: id, attempt, hands: self, around });
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            match self.sink_replies.pop_front() {
                Some(reply) => task.handle_sink(reply),
                None => return Ok(()),
            }
        }
    }

    /// Whether anything went; `barriers` gets those that did.
    fn send_waiting(
        &mut self,
        exchange: &mut Exchange,
        barriers: &mut Vec<(OutletIndex, CheckpointId)>,
    ) -> bool {
        if !self.is_congested {
            return false;
        }
        let mut went = false;
        self.is_congested = false;
        for (position, port) in (0..).zip(&mut self.ports) {
            let outlet = OutletIndex::new(position);
            went |= port.send_waiting(exchange, |barrier| barriers.push((outlet, barrier)));
            self.is_congested |= port.is_waiting();
        }
        went
    }

    /// Takes the read that is asked for if it may be made by now.
    fn due_read(&mut self, office: &Office) -> Option<DueRead> {
        let wanted = self.read.as_ref()?.records_max;
        if self.read_at.is_some_and(|at| at > Instant::now()) {
            return None;
        }
        self.read_at = match office.throttle.allow(wanted) {
            Allowed::Now(records_max) => {
                self.read_at = None;
                let request = self.read.take()?;
                return Some(DueRead::Source(ReadRequest { records_max, ..request }));
            }
            Allowed::End => {
                return self.read.take().map(|request| DueRead::End(request.split));
            }
            Allowed::Later(at) => Some(at),
            Allowed::Nothing => Some(Instant::now() + SOURCE_PAUSE),
        };
        None
    }

    fn carry_out(&mut self, request: &ReadRequest, office: &Office) -> ReadReply {
        let source = self.source.as_mut().expect("only a task with a source reads");
        let outcome = source.read(&request.cursor, request.records_max);
        let mut read = 0;
        match &outcome {
            ReadOutcome::Records { records, .. } | ReadOutcome::Messages { records, .. } => {
                read = records.len();
                office.counters.records_in.fetch_add(records.len() as u64, Ordering::Relaxed);
            }
            ReadOutcome::Nothing => self.read_at = Some(Instant::now() + SOURCE_PAUSE),
            ReadOutcome::End | ReadOutcome::Gone { .. } | ReadOutcome::Failed(_) => {}
        }
        office.throttle.count(request.records_max, read);
        ReadReply { split: request.split, outcome }
    }
}

/// A read whose time has come.
enum DueRead {
    /// Ask the source.
    Source(ReadRequest),
    /// The source has given all that it is to give: the split ends here.
    End(SplitId),
}

/// The hands of one task while it is drained.
struct Driver<'a, 'b> {
    task: TaskId,
    attempt: AttemptId,
    hands: &'a mut Hands,
    around: &'a mut Surroundings<'b>,
}

impl TaskDriver for Driver<'_, '_> {
    fn send(&mut self, outlet: OutletIndex, element: Element) {
        if self.hands.failure.is_none() {
            let port = &mut self.hands.ports[outlet.index()];
            port.send(element, self.around.exchange);
            self.hands.is_congested |= port.is_waiting();
        }
    }

    fn send_barrier(&mut self, outlet: OutletIndex, barrier: Barrier) -> Option<Vec<Batch>> {
        if self.hands.failure.is_some() {
            return None;
        }
        let port = &mut self.hands.ports[outlet.index()];
        let overtaken = port.send_barrier(barrier, self.around.exchange);
        self.hands.is_congested |= port.is_waiting();
        overtaken
    }

    fn hurry(&mut self, outlet: OutletIndex, checkpoint: CheckpointId) -> Option<Vec<Batch>> {
        self.hands.ports[outlet.index()].hurry(checkpoint, self.around.exchange)
    }

    fn overtake(
        &mut self,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
    ) -> Option<(Barrier, Vec<Batch>)> {
        self.hands.inlets[channel.index()].pull(checkpoint, self.around.exchange)
    }

    fn wait_until(&mut self, at: time::Instant) {
        self.hands.timers.insert(at);
    }

    fn wake_at(&mut self, at: ProcessingTime) {
        self.hands.clock_at = Some(at);
    }

    /// The slot asks the task before it takes from a channel, so nothing is to be remembered.
    fn block(&mut self, _channel: ChannelIndex) {}

    fn unblock(&mut self, _channel: ChannelIndex) {}

    fn report(&mut self, body: FromTask) {
        if self.hands.failure.is_none() {
            let message = TaskMessage { task: self.task, attempt: self.attempt, body };
            // If the coordinator is gone, so will this worker be.
            let _ = self.around.office.coordinator.send(ToCoordinator::Message(message));
        }
    }

    fn store(&mut self, request: StoreRequest) {
        if self.hands.failure.is_none()
            && let StoreRequest::Put { key: StoreKey::State { checkpoint, .. }, .. } = &request
            && let Some(saver) = &mut self.hands.saver
        {
            self.hands.failure = saver.note_cut(*checkpoint).err().map(TaskError::from);
        }
        if self.hands.failure.is_some() {
            return;
        }
        let (office, attempt, task) = (self.around.office, self.attempt, self.task);
        match (&office.writes, request) {
            (
                Some((store, compression)),
                StoreRequest::Put { key, value: value @ StoreValue::State(_) },
            ) => {
                let begun = Instant::now();
                let outcome = writer::put(store.as_ref(), *compression, key, &value);
                let reply = StoreReply { key, outcome };
                office.counters.count_sync(begun);
                writer::complain(task, &reply, &office.coordinator);
                // A machine hears of its own request after it has been drained.
                let own = office.colleague(office.worker);
                own.send(ToWorker::Stored { attempt, task, reply });
            }
            (_, request) => {
                let asker = Asker::Task { worker: office.worker, attempt, task };
                // The writer outlives the workers.
                let _ = office.writer.send(WriteOrder { request, asker });
            }
        }
    }

    fn save(&mut self, state: SavedState) {
        if self.hands.failure.is_some() {
            return;
        }
        let saver = self.hands.saver.as_mut().expect("only state outside is saved");
        if let Err(error) = saver.save(&state) {
            self.hands.failure = Some(error.into());
        }
    }

    fn read(&mut self, request: ReadRequest) {
        self.hands.read = Some(request);
    }

    fn acknowledge(&mut self, told: Acknowledgement) -> Option<Acknowledgement> {
        if self.hands.failure.is_some() {
            return None;
        }
        let source = self.hands.source.as_mut().expect("only a task with a source acknowledges");
        match source.acknowledge(&told.cursor, &told.ids) {
            Ok(()) => Some(told),
            Err(error) => {
                self.hands.failure = Some(error);
                None
            }
        }
    }

    fn tell(&mut self, to: TaskId, message: ToPeer) {
        if self.hands.failure.is_none() {
            let Office { homes, .. } = self.around.office;
            let home = self.around.office.colleague(homes[to.index()]);
            home.send(ToWorker::Told { attempt: self.attempt, task: to, message });
        }
    }

    fn alarm(&mut self, after: Duration) {
        self.hands.alarm_at = Some(Instant::now() + after);
    }

    fn sink(&mut self, request: SinkRequest) {
        if self.hands.failure.is_some() {
            return;
        }
        let records = match &request {
            SinkRequest::Write { records, .. } => records.len(),
            SinkRequest::Send { records, .. } => {
                self.hands.rows_sent = records.iter().map(Batch::len).sum();
                0
            }
            SinkRequest::Mark(_) => std::mem::take(&mut self.hands.rows_sent),
            SinkRequest::Flush(_)
            | SinkRequest::Prepare(_)
            | SinkRequest::Commit(_)
            | SinkRequest::AbortDangling
            | SinkRequest::LookUp(_) => 0,
        };
        if records > 0 {
            let counters = &self.around.office.counters;
            counters.records_out.fetch_add(records as u64, Ordering::Relaxed);
        }
        let (sink, _) = self.hands.sink.as_mut().expect("only a task with a sink asks it");
        match sink.carry_out(request) {
            Ok(reply) => self.hands.sink_replies.extend(reply),
            Err(error) => self.hands.failure = Some(error.into()),
        }
    }
}

/// How many elements a task takes before the others of its worker have their turn.
const ELEMENTS_PER_STEP: usize = 4;

/// The time before a source that had nothing is asked again.
const SOURCE_PAUSE: Duration = Duration::from_millis(5);
