//! The queues behind sources, as a model: each gives out a message until it is acknowledged, again
//! when its receiver is gone or when it has had it for too long, in no order, and has only so many
//! in one receiver's hands. What it is told, and what it answers, may be lost, late or doubled.
//! Queues outlive every crash.

use std::rc::Rc;
use std::time::Duration;

use cofferdam::element::Batch;
use cofferdam::id::{AttemptId, MessageId, SplitId, TaskId, VertexId};
use cofferdam::operator::queue::Acknowledgement;
use cofferdam::operator::source::{ReadOutcome, ReadReply, ReadRequest};
use cofferdam::time::Instant;
use cofferdam::trace::{Origin, RecordId};

use super::{Event, Life, Plan, World};
use crate::decide::Choice;
use crate::interpose::Variant;
use crate::link::Origins;

/// One queue.
#[derive(Clone)]
pub(super) struct Queue {
    /// By [`RecordId::source`].
    source: u32,
    messages: Rc<[Message]>,
    states: Vec<State>,
    reads: u64,
}

struct Message {
    id: MessageId,
    offset: u64,
    record: Batch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Given { to: AttemptId, at: Instant },
    Acknowledged,
}

/// What a queue gives: messages with their places, or the reason why there is none.
enum Given {
    Messages(Vec<usize>),
    Nothing,
    End,
}

impl Queue {
    /// All queues of a job's sources, filled with what a consumer that acknowledges nothing gets.
    pub(super) fn all(plan: &Plan) -> impl Iterator<Item = ((VertexId, SplitId), Self)> + '_ {
        let sources = plan.sources.iter().zip(0..);
        sources.flat_map(move |((vertex, _), source)| {
            let client = plan.job.source(*vertex).filter(|client| client.is_queue());
            client.into_iter().flat_map(move |mut client| {
                let tasks = plan.job.graph().tasks_of(*vertex);
                let splits = tasks.filter_map(|task| plan.initial[task.index()].as_ref());
                let mut splits: Vec<_> = splits.flat_map(|state| &state.splits).collect();
                splits.sort_by_key(|split| split.split);
                let mut offset = 0;
                let queues = splits.into_iter().map(|split| {
                    let mut messages = Vec::new();
                    while let ReadOutcome::Messages { records, ids } = client.read(&split.cursor, 1)
                    {
                        let ids = ids.into_iter().zip(offset..);
                        messages.extend(
                            ids.zip(records.split()).map(|((id, offset), record)| Message {
                                id,
                                offset,
                                record,
                            }),
                        );
                        offset = messages.last().map_or(offset, |last| last.offset + 1);
                    }
                    let states = vec![State::Waiting; messages.len()];
                    let queue = Self { source, messages: messages.into(), states, reads: 0 };
                    ((*vertex, split.split), queue)
                });
                queues.collect::<Vec<_>>()
            })
        })
    }

    /// Nobody gets these messages any more.
    fn acknowledge(&mut self, ids: &[MessageId]) {
        for (message, state) in self.messages.iter().zip(&mut self.states) {
            if ids.contains(&message.id) {
                *state = State::Acknowledged;
            }
        }
    }

    /// The ids of the messages that attempts of which `is_meant` says so have been given.
    fn given_to(&self, is_meant: impl Fn(AttemptId) -> bool) -> Vec<MessageId> {
        let states = self.messages.iter().zip(&self.states);
        let given = states.filter(|(_, state)| match state {
            State::Given { to, .. } => is_meant(*to),
            State::Waiting | State::Acknowledged => false,
        });
        given.map(|(message, _)| message.id).collect()
    }
}

impl World {
    /// Reads from a queue.
    pub(super) fn receive(&mut self, id: TaskId, attempt: AttemptId, request: &ReadRequest) {
        let (vertex, _) = self.plan.job.graph().place_of(id);
        let key = (vertex, request.split);
        let mut queue = self.queues.remove(&key).expect("every queue is modelled");
        let given = self.give(&mut queue, id, attempt, request.records_max);
        let reply = |outcome| ReadReply { split: request.split, outcome };
        match given {
            Given::Messages(places) => {
                let messages = || places.iter().map(|place| &queue.messages[*place]);
                let is_again = |place: &usize| queue.states[*place] != State::Waiting;
                let renames = self.interposer.is(Variant::RedeliveredUnderNewId);
                let ids: Vec<MessageId> = places
                    .iter()
                    .map(|place| {
                        let id = queue.messages[*place].id;
                        if renames && is_again(place) { renamed(id) } else { id }
                    })
                    .collect();
                let mut records = messages().map(|message| message.record.clone());
                let mut batch = records.next().expect("something was given");
                records.for_each(|record| batch.append(record));
                let origins = messages().map(|message| Origin {
                    record: Some(RecordId { source: queue.source, offset: message.offset }),
                    path: 0,
                });
                let origins: Origins = origins.collect();
                for place in &places {
                    queue.states[*place] = State::Given { to: attempt, at: self.now };
                }
                if self.interposer.is(Variant::AcknowledgedWhenEmitted) {
                    queue.acknowledge(&ids);
                }
                self.queues.insert(key, queue);
                self.hand_in_messages(id, attempt, request.split, (batch, ids), origins);
            }
            Given::Nothing => {
                self.queues.insert(key, queue);
                self.hand_in(id, attempt, reply(ReadOutcome::Nothing), Origins::new());
            }
            Given::End => {
                self.queues.insert(key, queue);
                self.hand_in(id, attempt, reply(ReadOutcome::End), Origins::new());
            }
        }
    }

    /// Hands in messages; only those that the task has not seen reach its operators.
    fn hand_in_messages(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        split: SplitId,
        (records, ids): (Batch, Vec<MessageId>),
        origins: Origins,
    ) {
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Live(task) = &slot.life else { return };
        let source = task.source().expect("a task that reads begins with a source");
        let parts = ids.iter().zip(origins).zip(records.clone().split());
        let fresh: Vec<(Origin, Batch)> = parts
            .filter(|((id, _), _)| !source.is_known(split, **id))
            .map(|((_, origin), record)| (origin, record))
            .collect();
        let outcome = ReadOutcome::Messages { records, ids };
        let reply = ReadReply { split, outcome };
        let (origins, mut records): (Origins, Vec<Batch>) = fresh.into_iter().unzip();
        if records.is_empty() {
            return self.with_task(id, attempt, |task| task.handle_read(reply));
        }
        let mut batch = records.remove(0);
        records.into_iter().for_each(|record| batch.append(record));
        let lineage = self.note_emission(id, attempt, &batch, &origins);
        self.call(id, attempt, lineage, |task| task.handle_read(reply));
    }

    /// The places of the messages that a receiver gets: what comes next, or what comes again.
    fn give(
        &mut self,
        queue: &mut Queue,
        id: TaskId,
        attempt: AttemptId,
        messages_max: usize,
    ) -> Given {
        queue.reads += 1;
        let options = &self.plan.options;
        let (most, patience) = (options.queue_open_max, options.queue_redelivery_us);
        if self.interposer.is(Variant::AcknowledgedByTime) && queue.reads.is_multiple_of(8) {
            queue.acknowledge(&queue.given_to(|to| to == attempt));
        }
        let is_open = |state: &State| match *state {
            State::Given { to, at } => {
                let until = at + Duration::from_micros(patience);
                self.is_alive(id, to) && (patience == 0 || self.now < until)
            }
            State::Waiting | State::Acknowledged => false,
        };
        let is_mine = |state: &&State| match **state {
            State::Given { to, .. } => to == attempt && is_open(state),
            State::Waiting | State::Acknowledged => false,
        };
        let room = most.saturating_sub(queue.states.iter().filter(is_mine).count());
        let again = |(_, state): &(usize, &State)| match state {
            State::Given { .. } => !is_open(state),
            State::Waiting | State::Acknowledged => false,
        };
        let states = || queue.states.iter().enumerate();
        let mut choices: Vec<usize> = states().filter(again).map(|(place, _)| place).collect();
        let next = states().filter(|(_, state)| **state == State::Waiting).map(|(place, _)| place);
        choices.extend(next.take(messages_max));
        if choices.is_empty() {
            let is_done = |state: &State| match *state {
                State::Given { to, .. } => to == attempt,
                State::Acknowledged => true,
                State::Waiting => false,
            };
            return if queue.states.iter().all(is_done) { Given::End } else { Given::Nothing };
        }
        let mut places = Vec::new();
        while places.len() < messages_max.min(room) && !choices.is_empty() {
            let choice = self.decider.below(Choice::Delivery, id.get(), choices.len() as u64);
            places.push(choices.remove(choice as usize));
        }
        if places.is_empty() { Given::Nothing } else { Given::Messages(places) }
    }

    fn is_alive(&self, task: TaskId, attempt: AttemptId) -> bool {
        let mut slots = self.slots.iter().chain(&self.zombies);
        let found = slots.find(|slot| (slot.task, slot.attempt) == (task, attempt));
        found.is_some_and(|slot| matches!(slot.life, Life::Live(_)))
    }

    /// A task tells its queue something; nobody knows whether it is heard.
    pub(super) fn tell_queue(&mut self, id: TaskId, attempt: AttemptId, told: Acknowledgement) {
        let most = self.plan.options.external_delay_us;
        let at = self.now + self.delay(Choice::Delivery, id.get(), most);
        for at in self.fates(id, at) {
            self.queue.schedule(at, Event::QueueTold(id, attempt, told.clone()));
        }
    }

    pub(super) fn queue_told(&mut self, id: TaskId, attempt: AttemptId, told: Acknowledgement) {
        let (vertex, _) = self.plan.job.graph().place_of(id);
        let queue = self.queues.get_mut(&(vertex, told.split)).expect("every queue is modelled");
        let ids: Vec<MessageId> = told.ids.iter().map(|id| named(*id)).collect();
        queue.acknowledge(&ids);
        if self.interposer.is(Variant::AcknowledgedBeyondCheckpoint) {
            queue.acknowledge(&queue.given_to(|to| to == attempt));
        }
        if self.interposer.is(Variant::WaiterOutlivesAttempt) {
            queue.acknowledge(&queue.given_to(|to| to < attempt));
        }
        let most = self.plan.options.external_delay_us;
        let at = self.now + self.delay(Choice::Delivery, id.get(), most);
        for at in self.fates(id, at) {
            self.queue.schedule(at, Event::QueueConfirmed(id, attempt, told.clone()));
        }
    }
}

/// Another name for a message, for the variant that gives it one.
fn renamed(id: MessageId) -> MessageId {
    MessageId::new(id.get() | NEW_NAME)
}

fn named(id: MessageId) -> MessageId {
    MessageId::new(id.get() & !NEW_NAME)
}

const NEW_NAME: u64 = 1 << 63;
