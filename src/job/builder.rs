//! The typed builder: a chain of calls from sources to sinks. Types are checked by the compiler,
//! the rest by [`JobBuilder::build`].
#![expect(
    clippy::type_complexity,
    reason = "a chain's type names its operators: they are one loop"
)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::config::JobConfig;
use crate::element::Record;
use crate::graph::Partition;
use crate::graph::physical::{Edge, PhysicalGraph, Vertex};
use crate::guarantee::Mechanism;
use crate::id::VertexId;
use crate::job::{
    GraphError, Job, RouteFactory, RoutePlace, SinkParts, SinkStage, SourceParts, VertexParts,
};
use crate::operator::Emit;
use crate::operator::Operator;
use crate::operator::chain::{Chain, Named, Pass, Segment};
use crate::operator::join::{Either, EitherKey};
use crate::operator::keyed::{Aggregate, ByRef, ByValue, KeySelector, Keyed, KeyedProcess};
use crate::operator::queue::{FromQueue, Queue};
use crate::operator::route::{Broadcast, ByKey, Forward, Rebalance, Route};
use crate::operator::sink::{
    Committing, Direct, ErasedSink, Logged, Sink, Transactional, TransactionalSink, WriteAheadSink,
};
use crate::operator::source::{ErasedSource, EventTimes, Source, TimeOf, WatermarkStrategy};
use crate::operator::split_source::{Assigned, SplitSource};
use crate::operator::stage::Fused;
use crate::operator::stateless::{FilterMap, FlatMap};
use crate::state::key_group::{Key, KeyGroupCount, default_max_parallelism};
use crate::time::{EventTime, whole_millis};

/// Builds a [`Job`].
///
/// ```
/// use cofferdam::config::JobConfig;
/// use cofferdam::connector::memory::{Collect, Numbers};
/// use cofferdam::job::JobBuilder;
///
/// let builder = JobBuilder::new("evens", 2);
/// builder
///     .source("numbers", Numbers::up_to(100))
///     .filter("even", |number| number % 2 == 0)
///     .key_by(|number| number % 10)
///     .aggregate("sum", 0, |sum: &mut u64, number| *sum += number)
///     .sink("out", Collect::default());
/// let job = builder.build(JobConfig::default())?;
/// assert_eq!(job.graph().task_count(), 4);
/// # Ok::<(), cofferdam::job::GraphError>(())
/// ```
pub struct JobBuilder {
    draft: Rc<RefCell<Draft>>,
}

/// A stream under construction: the operators since the last exchange are still one chain.
#[must_use = "a stream must end in a sink"]
pub struct Stream<S: Segment> {
    draft: Rc<RefCell<Draft>>,
    head: Head,
    segment: S,
    uids: Vec<String>,
    parallelism: usize,
}

/// A stream whose records are spread by key.
#[must_use = "a stream must end in a sink"]
pub struct KeyedStream<T: Record, K> {
    stream: Stream<Pass<T>>,
    selector: K,
}

/// Two streams side by side.
#[must_use = "a stream must end in a sink"]
pub struct Connected<S: Segment, R: Segment> {
    uid: String,
    left: Stream<S>,
    right: Stream<R>,
}

struct Draft {
    name: String,
    parallelism: usize,
    key_groups: Option<KeyGroupCount>,
    vertices: Vec<(Vertex, VertexParts)>,
    edges: Vec<Edge>,
    uids: BTreeSet<String>,
    duplicate: Option<String>,
    /// What was wrong with a call: that only [`JobBuilder::build`] can say. The first of it.
    refused: Option<GraphError>,
    /// Streams that have been begun and not yet ended, by a number of their own.
    open: BTreeMap<usize, String>,
    begun: usize,
}

struct Head {
    open: usize,
    source: Option<SourceParts>,
    inputs: Vec<Input>,
}

struct Input {
    from: VertexId,
    partition: Partition,
    factory: Arc<dyn RouteFactory>,
}

impl JobBuilder {
    /// An empty job. Operators have `parallelism` subtasks unless told otherwise.
    pub fn new(name: &str, parallelism: usize) -> Self {
        Self {
            draft: Rc::new(RefCell::new(Draft {
                name: name.to_owned(),
                parallelism,
                key_groups: None,
                vertices: Vec::new(),
                edges: Vec::new(),
                uids: BTreeSet::new(),
                duplicate: None,
                refused: None,
                open: BTreeMap::new(),
                begun: 0,
            })),
        }
    }

    /// Sets the number of key groups, which is the greatest parallelism that the job can ever have.
    /// By default it follows from the parallelism (rule 85).
    pub fn key_groups(&self, count: KeyGroupCount) -> &Self {
        self.draft.borrow_mut().key_groups = Some(count);
        self
    }

    /// Begins a stream with a source.
    pub fn source<S: Source>(&self, uid: &str, source: S) -> Stream<Pass<S::Record>> {
        self.begin(uid, SourceParts { source: Box::new(source), watermarks: None })
    }

    /// Begins a stream with a source whose splits are assigned to the tasks that ask for one.
    pub fn split_source<S: SplitSource>(&self, uid: &str, source: S) -> Stream<Pass<S::Record>> {
        self.begin(uid, SourceParts { source: Box::new(Assigned(source)), watermarks: None })
    }

    /// As [`JobBuilder::split_source`], of a source that makes watermarks: `time_of` reads a
    /// record's event time, and no record is older than one before it in its split, or in an
    /// earlier split, by more than `disorder`. Readers are given splits in their order, so none
    /// is late that is found later. A reader that waits for one holds back event time.
    pub fn split_source_with_event_time<S: SplitSource>(
        &self,
        uid: &str,
        source: S,
        time_of: impl Fn(&S::Record) -> EventTime + Clone + Send + 'static,
        disorder: Duration,
    ) -> Stream<Pass<S::Record>> {
        self.begin_timed(uid, Box::new(Assigned(source)), TimeOf::new(time_of), disorder, None)
    }

    /// Begins a stream with a source that reads queues: messages are acknowledged when a checkpoint
    /// that covers them is complete, and what is given out again is known by its id (rule 79).
    /// Without checkpoints they are acknowledged as they are emitted, which promises nothing.
    pub fn queue<Q: Queue>(&self, uid: &str, queue: Q) -> Stream<Pass<Q::Record>> {
        self.begin(uid, SourceParts { source: Box::new(FromQueue(queue)), watermarks: None })
    }

    /// Begins a stream with a source that makes watermarks: `time_of` reads a record's event time,
    /// and within a split no record is older than one before it by more than `disorder` (counted in
    /// whole milliseconds).
    pub fn source_with_event_time<S: Source>(
        &self,
        uid: &str,
        source: S,
        time_of: impl Fn(&S::Record) -> EventTime + Clone + Send + 'static,
        disorder: Duration,
    ) -> Stream<Pass<S::Record>> {
        self.begin_timed(uid, Box::new(source), TimeOf::new(time_of), disorder, None)
    }

    /// As [`JobBuilder::source_with_event_time`], of a source that may have nothing for long: a
    /// split that has given nothing so many times in a row holds back no watermark until it has
    /// records again. Those may be late then.
    pub fn source_that_may_idle<S: Source>(
        &self,
        uid: &str,
        source: S,
        time_of: impl Fn(&S::Record) -> EventTime + Clone + Send + 'static,
        disorder: Duration,
        idle_after: u32,
    ) -> Stream<Pass<S::Record>> {
        self.begin_timed(uid, Box::new(source), TimeOf::new(time_of), disorder, Some(idle_after))
    }

    fn begin_timed<T: Record>(
        &self,
        uid: &str,
        source: Box<dyn ErasedSource>,
        times: impl EventTimes + 'static,
        disorder: Duration,
        idle_after: Option<u32>,
    ) -> Stream<Pass<T>> {
        let disorder_ms = whole_millis(disorder);
        let watermarks = WatermarkStrategy { times: Box::new(times), disorder_ms, idle_after };
        self.begin(uid, SourceParts { source, watermarks: Some(watermarks) })
    }

    fn begin<T: Record>(&self, uid: &str, source: SourceParts) -> Stream<Pass<T>> {
        let parallelism = self.draft.borrow().parallelism;
        let mut stream = Stream::begin(&self.draft, parallelism, Some(source), Vec::new());
        stream.take_uid(uid);
        stream
    }

    /// Checks the job.
    ///
    /// # Errors
    /// If it can not work, with the reason.
    pub fn build(self, config: JobConfig) -> Result<Job, GraphError> {
        let draft = self.draft.borrow();
        if let Some(error) = &draft.refused {
            return Err(error.clone());
        }
        if let Some(uid) = &draft.duplicate {
            return Err(GraphError::DuplicateUid(uid.clone()));
        }
        if let Some(stream) = draft.open.values().next() {
            return Err(GraphError::NoSink(stream.clone()));
        }
        if draft.vertices.is_empty() {
            return Err(GraphError::NoSource(draft.name.clone()));
        }
        let widest = draft.vertices.iter().map(|(vertex, _)| vertex.parallelism).max();
        let are_key_groups_given = draft.key_groups.is_some();
        let key_groups = draft.key_groups.unwrap_or_else(|| {
            default_max_parallelism(widest.unwrap_or(1).clamp(1, 32_768) as u32)
        });
        for (vertex, _) in &draft.vertices {
            let parallelism = vertex.parallelism;
            if parallelism == 0 || parallelism > key_groups.get() as usize {
                let uid = vertex.name.to_string();
                return Err(GraphError::Parallelism { uid, parallelism, max: key_groups.get() });
            }
        }
        check_settings(&config)?;
        check_mechanism(&draft.vertices, &config)?;
        check_destinations(&draft.vertices)?;
        let (vertices, parts) = draft.vertices.iter().cloned().unzip();
        let graph = PhysicalGraph::new(vertices, draft.edges.clone())?;
        Ok(Job {
            name: draft.name.clone(),
            config,
            graph,
            vertices: parts,
            key_groups,
            are_key_groups_given,
        })
    }
}

impl<S: Segment> Stream<S> {
    /// Chains an operator of one's own.
    pub fn operator<O: Operator<In = S::Out>>(
        self,
        uid: &str,
        operator: O,
    ) -> Stream<Chain<S, Named<O>>> {
        self.chain(uid, Named::new(uid, operator))
    }

    /// Replaces each record.
    pub fn map<T: Record, F: FnMut(S::Out) -> T + Clone + Send + 'static>(
        self,
        uid: &str,
        mut function: F,
    ) -> Stream<Chain<S, Named<impl Operator<In = S::Out, Out = T> + use<S, T, F>>>> {
        self.operator(uid, FilterMap::new(move |record| Some(function(record))))
    }

    /// Keeps the records for which the closure is true.
    pub fn filter<F: FnMut(&S::Out) -> bool + Clone + Send + 'static>(
        self,
        uid: &str,
        mut keep: F,
    ) -> Stream<Chain<S, Named<impl Operator<In = S::Out, Out = S::Out> + use<S, F>>>> {
        self.operator(uid, FilterMap::new(move |record| keep(&record).then_some(record)))
    }

    /// Replaces each record by at most one.
    pub fn filter_map<T: Record, F: FnMut(S::Out) -> Option<T> + Clone + Send + 'static>(
        self,
        uid: &str,
        function: F,
    ) -> Stream<Chain<S, Named<FilterMap<S::Out, T, F>>>> {
        self.operator(uid, FilterMap::new(function))
    }

    /// Replaces each record by any number of them.
    pub fn flat_map<T: Record, F: FnMut(S::Out, &mut dyn Emit<T>) + Clone + Send + 'static>(
        self,
        uid: &str,
        function: F,
    ) -> Stream<Chain<S, Named<FlatMap<S::Out, T, F>>>> {
        self.operator(uid, FlatMap::new(function))
    }

    /// Spreads the records evenly over the subtasks of what follows.
    pub fn rebalance(self) -> Stream<Pass<S::Out>> {
        self.exchange(Partition::Rebalance, |place: &RoutePlace| -> Box<dyn Route> {
            let channels = place.receivers.parallelism() as usize;
            Box::new(Rebalance::new(channels, place.sender.index()))
        })
    }

    /// Gives every record to every subtask of what follows.
    pub fn broadcast(self) -> Stream<Pass<S::Out>> {
        self.exchange(Partition::Broadcast, |place: &RoutePlace| -> Box<dyn Route> {
            Box::new(Broadcast { channels: place.receivers.parallelism() as usize })
        })
    }

    /// Two streams with all records each.
    pub fn fork(self) -> (Stream<Pass<S::Out>>, Stream<Pass<S::Out>>) {
        let (draft, parallelism) = (self.draft.clone(), self.parallelism);
        let vertex = self.seal(None);
        let branch = || Stream::begin(&draft, parallelism, None, vec![Input::forward(vertex)]);
        (branch(), branch())
    }

    /// The records of both streams, which must be of one [`JobBuilder`].
    pub fn union<R: Segment<Out = S::Out>>(self, other: Stream<R>) -> Stream<Pass<S::Out>> {
        self.must_be_beside(&other);
        self.onward().beside(other.onward())
    }

    /// Both streams, which must be of one [`JobBuilder`], their records told apart: for what takes
    /// two inputs. The maps that do it are named `{uid}-left` and `{uid}-right`.
    pub fn connect<R: Segment>(self, uid: &str, other: Stream<R>) -> Connected<S, R> {
        self.must_be_beside(&other);
        Connected { uid: uid.to_owned(), left: self, right: other }
    }

    /// A vertex of another builder means nothing here, so neither of the two can be built.
    fn must_be_beside<R: Segment>(&self, other: &Stream<R>) {
        if !Rc::ptr_eq(&self.draft, &other.draft) {
            let error = GraphError::OtherBuilder { first: self.name(), second: other.name() };
            other.draft.borrow_mut().refuse(error.clone());
            self.draft.borrow_mut().refuse(error);
        }
    }

    /// A chain behind this one, which each subtask hands its own records.
    fn onward(self) -> Stream<Pass<S::Out>> {
        let (draft, parallelism) = (self.draft.clone(), self.parallelism);
        let input = Input::forward(self.seal(None));
        Stream::begin(&draft, parallelism, None, vec![input])
    }

    /// The last operator with a name, and the job.
    fn name(&self) -> String {
        let draft = self.draft.borrow();
        format!("'{}' of job '{}'", draft.open[&self.head.open], draft.name)
    }

    /// Spreads the records by a key that `key_of` computes: all records of a key meet in one
    /// subtask.
    pub fn key_by<K: Key>(
        self,
        key_of: impl Fn(&S::Out) -> K + Clone + Send + Sync + 'static,
    ) -> KeyedStream<S::Out, impl KeySelector<S::Out, Key = K>> {
        self.keyed(ByValue(key_of))
    }

    /// As [`Stream::key_by`], with a key that lies in the record and is not copied.
    pub fn key_by_ref<K: Key>(
        self,
        key_of: impl Fn(&S::Out) -> &K + Clone + Send + Sync + 'static,
    ) -> KeyedStream<S::Out, impl KeySelector<S::Out, Key = K>> {
        self.keyed(ByRef(key_of))
    }

    /// Ends the stream in a sink whose writes are visible at once, are upserts, or go nowhere.
    pub fn sink<K: Sink<Record = S::Out>>(self, uid: &str, sink: K) {
        self.end(uid, Box::new(Direct(sink)));
    }

    /// Ends the stream in a sink whose writes become visible when a checkpoint is complete.
    pub fn transactional_sink<K: TransactionalSink<Record = S::Out>>(self, uid: &str, sink: K) {
        self.end(uid, Box::new(Transactional(sink)));
    }

    /// Ends the stream in a sink whose rows wait in its task's state for a complete checkpoint.
    pub fn write_ahead_sink<K: WriteAheadSink<Record = S::Out>>(self, uid: &str, sink: K) {
        self.end(uid, Box::new(Logged(sink)));
    }

    /// As [`Stream::transactional_sink`], in two stages: the subtasks write and prepare, and one
    /// more task commits what they have prepared. For external systems where one client has to make
    /// all commits.
    pub fn two_stage_sink<K: TransactionalSink<Record = S::Out>>(mut self, uid: &str, sink: K) {
        self.take_uid(uid);
        let (draft, writers) = (self.draft.clone(), self.parallelism);
        let committing = Box::new(Committing::new(sink.clone(), writers));
        let (sink, stage) = (Box::new(Transactional(sink)), SinkStage::Writers);
        let writers = self.seal(Some(SinkParts { uid: uid.into(), sink, stage }));
        let inputs = vec![Input::gather(writers)];
        let mut committer = Stream::<Pass<()>>::begin(&draft, 1, None, inputs);
        let uid = format!("{uid}-committer");
        committer.take_uid(&uid);
        let stage = SinkStage::Committer(writers);
        committer.seal(Some(SinkParts { uid: uid.into(), sink: committing, stage }));
    }

    fn end(mut self, uid: &str, sink: Box<dyn ErasedSink>) {
        self.take_uid(uid);
        self.seal(Some(SinkParts { uid: uid.into(), sink, stage: SinkStage::Whole }));
    }

    fn keyed<K: KeySelector<S::Out> + Sync>(self, selector: K) -> KeyedStream<S::Out, K> {
        let routes = selector.clone();
        let stream = self.exchange(Partition::Hash, move |place: &RoutePlace| -> Box<dyn Route> {
            Box::new(ByKey::new(routes.clone(), place.receivers, place.batch_records))
        });
        KeyedStream { stream, selector }
    }

    fn exchange(
        self,
        partition: Partition,
        factory: impl Fn(&RoutePlace) -> Box<dyn Route> + Send + Sync + 'static,
    ) -> Stream<Pass<S::Out>> {
        let (draft, parallelism) = (self.draft.clone(), self.parallelism);
        let from = self.seal(None);
        let input = Input { from, partition, factory: Arc::new(factory) };
        Stream::begin(&draft, parallelism, None, vec![input])
    }

    fn chain<N: Segment<In = S::Out>>(mut self, uid: &str, next: N) -> Stream<Chain<S, N>> {
        self.take_uid(uid);
        let Self { draft, head, segment, uids, parallelism } = self;
        Stream { draft, head, segment: Chain::new(segment, next), uids, parallelism }
    }

    fn take_uid(&mut self, uid: &str) {
        let mut draft = self.draft.borrow_mut();
        if !draft.uids.insert(uid.to_owned()) {
            draft.duplicate = Some(uid.to_owned());
        }
        self.uids.push(uid.to_owned());
        draft.open.insert(self.head.open, uid.to_owned());
    }

    /// Makes a vertex of the chain.
    fn seal(self, sink: Option<SinkParts>) -> VertexId {
        let mut draft = self.draft.borrow_mut();
        draft.open.remove(&self.head.open);
        let vertex = VertexId::new(draft.vertices.len() as u32);
        for input in self.head.inputs {
            let from = &mut draft.vertices[input.from.index()];
            let input = if from.0.parallelism == self.parallelism { input } else { input.spread() };
            from.1.routes.push(input.factory);
            draft.edges.push(Edge { from: input.from, to: vertex, partition: input.partition });
        }
        let name = match self.uids.is_empty() {
            true => format!("pass-{}", vertex.get()),
            false => self.uids.join(" -> "),
        };
        draft.vertices.push((
            Vertex {
                name: name.into(),
                uids: self.uids.iter().map(|uid| uid.as_str().into()).collect(),
                parallelism: self.parallelism,
                is_source: self.head.source.is_some(),
            },
            VertexParts {
                source: self.head.source,
                stage: Box::new(Fused(self.segment)),
                routes: Vec::new(),
                sink,
            },
        ));
        vertex
    }
}

impl<T: Record> Stream<Pass<T>> {
    /// Sets the parallelism of the operators that follow, up to the next exchange.
    pub fn parallelism(mut self, parallelism: usize) -> Self {
        self.parallelism = parallelism;
        self
    }

    /// One chain for the inputs of two that nothing stands in yet.
    fn beside(mut self, other: Self) -> Self {
        other.draft.borrow_mut().open.remove(&other.head.open);
        if Rc::ptr_eq(&self.draft, &other.draft) {
            self.head.inputs.extend(other.head.inputs);
        }
        self.parallelism = self.parallelism.max(other.parallelism);
        self
    }

    /// Begins the chain with `segment`: nothing stands before it.
    fn head<N: Segment<In = T>>(mut self, uid: &str, segment: N) -> Stream<N> {
        self.take_uid(uid);
        let Self { draft, head, uids, parallelism, .. } = self;
        Stream { draft, head, segment, uids, parallelism }
    }

    fn begin(
        draft: &Rc<RefCell<Draft>>,
        parallelism: usize,
        source: Option<SourceParts>,
        inputs: Vec<Input>,
    ) -> Self {
        let open = {
            let mut draft = draft.borrow_mut();
            let before =
                inputs.first().map(|input| draft.vertices[input.from.index()].0.name.clone());
            let open = draft.begun;
            draft.begun += 1;
            draft.open.insert(open, before.unwrap_or_default().to_string());
            open
        };
        let head = Head { open, source, inputs };
        Self { draft: draft.clone(), head, segment: Pass::default(), uids: Vec::new(), parallelism }
    }
}

impl<T: Record, K: KeySelector<T>> KeyedStream<T, K> {
    /// The job can not be built.
    pub(super) fn refuse(&self, error: GraphError) {
        self.stream.draft.borrow_mut().refuse(error);
    }

    /// Sets the parallelism of the operators that follow, up to the next exchange.
    pub fn parallelism(self, parallelism: usize) -> Self {
        Self { stream: self.stream.parallelism(parallelism), selector: self.selector }
    }

    /// Runs a process of one's own on each key.
    pub fn process<P: KeyedProcess<In = T, Key = K::Key>>(
        self,
        uid: &str,
        process: P,
    ) -> Stream<Named<Keyed<P, K>>> {
        let operator = Keyed::new(process, self.selector);
        if let Some(state) = operator.kinds().name_twice() {
            let error = GraphError::StateTwice { uid: uid.to_owned(), state };
            self.stream.draft.borrow_mut().refused.get_or_insert(error);
        }
        let segment = Named::new(uid, operator);
        self.stream.head(uid, segment)
    }

    /// Keeps a value for each key, from `init`; takes each record in by `fold` and emits the key
    /// with its value so far.
    pub fn aggregate<V: Record, F: FnMut(&mut V, T) + Clone + Send + 'static>(
        self,
        uid: &str,
        init: V,
        fold: F,
    ) -> Stream<Named<Keyed<Aggregate<K::Key, T, V, F>, K>>> {
        self.process(uid, Aggregate::new(init, fold, false))
    }

    /// As [`KeyedStream::aggregate`], for a `fold` that changes nothing when it takes the same
    /// record in again, as a maximum does.
    pub fn aggregate_idempotent<V: Record, F: FnMut(&mut V, T) + Clone + Send + 'static>(
        self,
        uid: &str,
        init: V,
        fold: F,
    ) -> Stream<Named<Keyed<Aggregate<K::Key, T, V, F>, K>>> {
        self.process(uid, Aggregate::new(init, fold, true))
    }
}

impl<S: Segment, R: Segment> Connected<S, R> {
    /// Spreads the records of both streams by a key that both have: all records of a key meet in
    /// one subtask.
    pub fn key_by<K: Key>(
        self,
        left_key: impl Fn(&S::Out) -> K + Clone + Send + Sync + 'static,
        right_key: impl Fn(&R::Out) -> K + Clone + Send + Sync + 'static,
    ) -> KeyedStream<Either<S::Out, R::Out>, impl KeySelector<Either<S::Out, R::Out>, Key = K>>
    {
        let selector = EitherKey::new(ByValue(left_key), ByValue(right_key));
        let (left, right) = self.told_apart();
        let KeyedStream { stream, selector } = left.keyed(selector);
        let right = right.keyed(selector.clone()).stream;
        KeyedStream { stream: stream.beside(right), selector }
    }

    /// Gives every record of the second stream to every subtask of what follows, and spreads those
    /// of the first one evenly if the parallelism changes.
    pub fn broadcast_right(self) -> Stream<Pass<Either<S::Out, R::Out>>> {
        let (left, right) = self.told_apart();
        left.onward().beside(right.broadcast())
    }

    fn told_apart(
        self,
    ) -> (
        Stream<impl Segment<Out = Either<S::Out, R::Out>>>,
        Stream<impl Segment<Out = Either<S::Out, R::Out>>>,
    ) {
        let Self { uid, left, right } = self;
        let left = left.map(&format!("{uid}-left"), Either::Left);
        (left, right.map(&format!("{uid}-right"), Either::Right))
    }
}

impl Draft {
    fn refuse(&mut self, error: GraphError) {
        self.refused.get_or_insert(error);
    }
}

impl Input {
    fn forward(from: VertexId) -> Self {
        let factory = |_: &RoutePlace| -> Box<dyn Route> { Box::new(Forward) };
        Self { from, partition: Partition::Forward, factory: Arc::new(factory) }
    }

    /// From all subtasks to one. No barrier overtakes there (rule 28), as on any broadcast.
    fn gather(from: VertexId) -> Self {
        let factory = |_: &RoutePlace| -> Box<dyn Route> { Box::new(Broadcast { channels: 1 }) };
        Self { from, partition: Partition::Broadcast, factory: Arc::new(factory) }
    }

    /// Where the parallelism differs, forward is not possible.
    fn spread(self) -> Self {
        match self.partition {
            Partition::Forward => {
                let factory = |place: &RoutePlace| -> Box<dyn Route> {
                    let channels = place.receivers.parallelism() as usize;
                    Box::new(Rebalance::new(channels, place.sender.index()))
                };
                let partition = Partition::Rebalance;
                Self { from: self.from, partition, factory: Arc::new(factory) }
            }
            Partition::Hash | Partition::Rebalance | Partition::Broadcast => self,
        }
    }
}

fn check_destinations(vertices: &[(Vertex, VertexParts)]) -> Result<(), GraphError> {
    let mut taken = BTreeMap::new();
    for sink in vertices.iter().filter_map(|(_, parts)| parts.sink.as_ref()) {
        let Some(destination) = sink.sink.destination() else { continue };
        let second = sink.uid.to_string();
        if let Some(first) = taken.insert(destination.clone(), second.clone()) {
            return Err(GraphError::SharedDestination { first, second, destination });
        }
    }
    Ok(())
}

/// What is zero here would hang a job, or leave it without what it resumes from.
fn check_settings(config: &JobConfig) -> Result<(), GraphError> {
    let (time, one) = ("a nanosecond", "1");
    let settings = [
        ("checkpoint_interval", config.checkpoint_interval.is_zero(), time),
        ("checkpoint_timeout", config.checkpoint_timeout.is_zero(), time),
        ("checkpoints_concurrent", config.checkpoints_concurrent == 0, one),
        ("checkpoints_retained", config.checkpoints_retained == 0, one),
        ("batch_records", config.batch_records == 0, one),
        ("channel_batches", config.channel_batches == 0, one),
    ];
    match settings.into_iter().find(|(_, is_zero, _)| *is_zero) {
        Some((setting, _, least)) => Err(GraphError::ZeroSetting { setting, least }),
        None => Ok(()),
    }
}

fn check_mechanism(
    vertices: &[(Vertex, VertexParts)],
    config: &JobConfig,
) -> Result<(), GraphError> {
    let JobConfig { mechanism, state: home, checkpoints_concurrent: concurrent, .. } = *config;
    if home.is_external() && !mechanism.keeps_state() {
        return Err(GraphError::StateHome { home, mechanism });
    }
    if concurrent > 1 && !mechanism.overlaps() {
        return Err(GraphError::Overlapping { concurrent, mechanism });
    }
    for (vertex, parts) in vertices {
        if let Some(SourceParts { source, .. }) = &parts.source {
            let uid = vertex.name.to_string();
            if mechanism.replays() && !source.is_replayable() {
                return Err(GraphError::NotReplayable { uid, mechanism });
            }
            if (mechanism == Mechanism::Acks || mechanism.awaits_end()) && source.is_queue() {
                return Err(GraphError::NoPositions { uid, mechanism });
            }
            if !mechanism.takes_checkpoints() && source.is_assigned() {
                return Err(GraphError::NothingKeepsSplits { uid, mechanism });
            }
            if mechanism.awaits_end() && source.is_endless() {
                return Err(GraphError::NeverEnds { uid, mechanism });
            }
        }
        let Some(sink) = &parts.sink else { continue };
        let (uid, contract) = (sink.uid.to_string(), sink.sink.contract());
        if !contract.awaits_completion() {
            continue;
        }
        if sink.sink.is_direct() {
            return Err(GraphError::NotDirect { uid, contract });
        }
        if !mechanism.restores() {
            let uid = sink.uid.to_string();
            return Err(GraphError::NothingCommits { uid, contract, mechanism });
        }
        if !matches!(sink.stage, SinkStage::Whole) && !mechanism.takes_checkpoints() {
            return Err(GraphError::NothingGathers { uid, mechanism });
        }
    }
    Ok(())
}
