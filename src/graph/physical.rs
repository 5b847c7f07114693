//! The parallel form of a graph. Tasks and channels are numbered by position alone, so that two
//! builds of the same job agree about every number.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::graph::Partition;
use crate::id::{AttemptId, ChannelId, ChannelIndex, OutletIndex, SubtaskIndex, TaskId, VertexId};
use crate::state::key_group::{KeyGroupAssigner, KeyGroupCount, KeyGroupRange};

/// A vertex: one or more chained operators that run in each of its subtasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vertex {
    /// The uids of its operators, joined by " -> ".
    pub name: Arc<str>,
    /// These uids: its source's first, its sink's last.
    pub uids: Vec<Arc<str>>,
    /// How many subtasks it has.
    pub parallelism: usize,
    /// Whether it begins with a source.
    pub is_source: bool,
}

/// How a job was laid out when a checkpoint was taken: what is needed to deal its state out to
/// another layout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobShape {
    /// How many key groups there are.
    pub key_groups: u32,
    /// The vertices, in order.
    pub vertices: Vec<VertexShape>,
    /// The edges, in order.
    pub edges: Vec<Edge>,
}

/// How a vertex was laid out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VertexShape {
    /// As [`Vertex::uids`].
    pub uids: Vec<String>,
    /// Whether it begins with a source.
    pub is_source: bool,
    /// How many subtasks it has.
    pub parallelism: u32,
}

impl JobShape {
    /// As many key groups, and nothing else.
    pub fn without_vertices(&self) -> Self {
        Self { key_groups: self.key_groups, ..Self::default() }
    }

    /// The graph of this shape.
    ///
    /// # Errors
    /// If there is no such graph: the shape is not one that a job had.
    pub fn graph(&self) -> Result<PhysicalGraph, ShapeError> {
        self.check()?;
        let vertex = |shape: &VertexShape| {
            let uids: Vec<Arc<str>> = shape.uids.iter().map(|uid| uid.as_str().into()).collect();
            let VertexShape { parallelism, is_source, .. } = *shape;
            Vertex {
                name: uids.join(" -> ").into(),
                uids,
                parallelism: parallelism as usize,
                is_source,
            }
        };
        Ok(PhysicalGraph::new(self.vertices.iter().map(vertex).collect(), self.edges.clone())?)
    }

    /// Checks what the builder of a job checks.
    fn check(&self) -> Result<(), ShapeError> {
        let key_groups = KeyGroupCount::new(self.key_groups);
        let key_groups = key_groups.ok_or(ShapeError::KeyGroups(self.key_groups))?;
        for VertexShape { uids, parallelism, .. } in &self.vertices {
            if uids.is_empty() || !(1..=key_groups.get()).contains(parallelism) {
                return Err(ShapeError::Vertex(uids.join(" -> ")));
            }
        }
        let parallelism = |vertex: VertexId| Some(self.vertices.get(vertex.index())?.parallelism);
        for (place, Edge { from, to, partition }) in self.edges.iter().enumerate() {
            let fits = match (parallelism(*from), parallelism(*to)) {
                (Some(from), Some(to)) => from == to || partition.is_all_to_all(),
                (None, _) | (_, None) => false,
            };
            if !fits {
                return Err(ShapeError::Edge(place));
            }
        }
        Ok(())
    }
}

/// Why a shape is none that a job had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// There can not be so many key groups.
    #[error("no job has {0} key groups")]
    KeyGroups(u32),
    /// A vertex has no operator, no subtask, or more than there are key groups.
    #[error("no job has a vertex like '{0}'")]
    Vertex(String),
    /// An edge leads from or to no vertex, or forward to another number of subtasks.
    #[error("no job has an edge like the one at position {0}")]
    Edge(EdgeId),
    /// Edges lead in a circle.
    #[error(transparent)]
    Cycle(#[from] Cycle),
}

/// The position of an edge in the order in which edges were added.
pub type EdgeId = usize;

/// An edge between two vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The sender.
    pub from: VertexId,
    /// The receiver.
    pub to: VertexId,
    /// How records are spread.
    pub partition: Partition,
}

/// A channel between two tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// The channel.
    pub id: ChannelId,
    /// The edge that it is part of.
    pub edge: EdgeId,
    /// The sender.
    pub from: TaskId,
    /// Its place among the sender's outputs.
    pub outlet: OutletIndex,
    /// The receiver.
    pub to: TaskId,
    /// Its place among the receiver's inputs.
    pub index: ChannelIndex,
}

/// One subtask: which copy of a vertex, in which attempt.
#[derive(Clone, Debug)]
pub struct Subtask {
    /// The task.
    pub task: TaskId,
    /// The vertex.
    pub vertex: VertexId,
    /// Which of the vertex's subtasks.
    pub index: SubtaskIndex,
    /// How many the vertex has.
    pub parallelism: usize,
    /// The attempt.
    pub attempt: AttemptId,
    pub(crate) assigner: KeyGroupAssigner,
}

impl Subtask {
    /// The key groups that it owns.
    pub fn key_groups(&self) -> KeyGroupRange {
        self.assigner.range(self.index)
    }
}

/// Edges lead in a circle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the graph has a cycle through '{0}': feedback edges are not supported")]
pub struct Cycle(
    /// A vertex in the circle, or behind it.
    pub String,
);

/// All vertices, edges, tasks and channels of a job.
///
/// Invariant: tasks are numbered in vertex order, subtask by subtask; channels in edge order, then
/// by sender, then by receiver; a task's inputs and outputs in channel order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalGraph {
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    channels: Vec<Channel>,
    first_tasks: Vec<u32>,
    /// The vertex and the position of each task.
    places: Vec<(VertexId, SubtaskIndex)>,
    inputs: Vec<Vec<ChannelId>>,
    outputs: Vec<Vec<ChannelId>>,
}

impl PhysicalGraph {
    /// Lays vertices and edges out.
    ///
    /// # Errors
    /// If edges lead in a circle: a barrier would follow itself round for ever.
    ///
    /// # Panics
    /// If an edge names a vertex that is not there, or a forward edge joins vertices of different
    /// parallelism: the builder checks both.
    pub fn new(vertices: Vec<Vertex>, edges: Vec<Edge>) -> Result<Self, Cycle> {
        check_acyclic(&vertices, &edges)?;
        let (mut first_tasks, mut places) = (vec![0], Vec::new());
        for (id, vertex) in (0..).map(VertexId::new).zip(&vertices) {
            let subtasks = 0..vertex.parallelism as u32;
            places.extend(subtasks.map(|index| (id, SubtaskIndex::new(index))));
            first_tasks.push(places.len() as u32);
        }
        let tasks = places.len();
        let mut graph = Self {
            vertices,
            edges: Vec::new(),
            channels: Vec::new(),
            first_tasks,
            places,
            inputs: vec![Vec::new(); tasks],
            outputs: vec![Vec::new(); tasks],
        };
        for edge in edges {
            graph.add_edge(edge);
        }
        Ok(graph)
    }

    /// The vertices, by id.
    pub fn vertices(&self) -> &[Vertex] {
        &self.vertices
    }

    /// Every vertex, in order.
    pub fn vertex_ids(&self) -> impl Iterator<Item = VertexId> + use<> {
        (0..self.vertices.len() as u32).map(VertexId::new)
    }

    /// The edges, by id.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The channels, by id.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// How many tasks there are.
    pub fn task_count(&self) -> usize {
        self.inputs.len()
    }

    /// Every task, in order.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.task_count() as u32).map(TaskId::new)
    }

    /// Every task of a vertex, in order.
    pub fn tasks_of(&self, vertex: VertexId) -> impl Iterator<Item = TaskId> + use<> {
        let index = vertex.index();
        (self.first_tasks[index]..self.first_tasks[index + 1]).map(TaskId::new)
    }

    /// Every task that begins with a source, in order.
    pub fn source_tasks(&self) -> Vec<TaskId> {
        self.tasks().filter(|task| self.vertex_of(*task).is_source).collect()
    }

    /// The vertex and the position of a task.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn place_of(&self, task: TaskId) -> (VertexId, SubtaskIndex) {
        self.places[task.index()]
    }

    /// The vertex of a task.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn vertex_of(&self, task: TaskId) -> &Vertex {
        &self.vertices[self.place_of(task).0.index()]
    }

    /// A task's name for people and scenario files: the vertex and the subtask, as `count/1`.
    ///
    /// # Panics
    /// If there is no such task.
    pub fn task_name(&self, task: TaskId) -> String {
        let (vertex, index) = self.place_of(task);
        format!("{}/{}", self.vertices[vertex.index()].name, index)
    }

    /// The channels that a task receives from, by [`ChannelIndex`].
    ///
    /// # Panics
    /// If there is no such task.
    pub fn inputs(&self, task: TaskId) -> &[ChannelId] {
        &self.inputs[task.index()]
    }

    /// The channels that a task sends on, by [`OutletIndex`].
    ///
    /// # Panics
    /// If there is no such task.
    pub fn outputs(&self, task: TaskId) -> &[ChannelId] {
        &self.outputs[task.index()]
    }

    /// The edges that leave a vertex, in order.
    pub fn edges_from(&self, vertex: VertexId) -> impl Iterator<Item = &Edge> {
        self.edges.iter().filter(move |edge| edge.from == vertex)
    }

    /// Whether barriers may overtake the records on every edge that leads to a vertex: if not on
    /// one, they do on none, so that its tasks align all their inputs (rule 28).
    pub fn allows_overtaking(&self, vertex: VertexId) -> bool {
        let mut inputs = self.edges.iter().filter(|edge| edge.to == vertex);
        inputs.all(|edge| edge.partition.allows_overtaking())
    }

    fn add_edge(&mut self, edge: Edge) {
        let id = self.edges.len();
        let receivers: Vec<_> = self.tasks_of(edge.to).collect();
        let senders: Vec<_> = self.tasks_of(edge.from).collect();
        if !edge.partition.is_all_to_all() {
            assert_eq!(senders.len(), receivers.len(), "a forward edge joins equal parallelism");
        }
        for (position, from) in senders.into_iter().enumerate() {
            let own = position..position + 1;
            let targets = if edge.partition.is_all_to_all() { 0..receivers.len() } else { own };
            for to in &receivers[targets] {
                self.add_channel(id, from, *to);
            }
        }
        self.edges.push(edge);
    }

    fn add_channel(&mut self, edge: EdgeId, from: TaskId, to: TaskId) {
        let id = ChannelId::new(self.channels.len() as u32);
        let outlet = OutletIndex::new(self.outputs[from.index()].len() as u32);
        let index = ChannelIndex::new(self.inputs[to.index()].len() as u32);
        self.channels.push(Channel { id, edge, from, outlet, to, index });
        self.outputs[from.index()].push(id);
        self.inputs[to.index()].push(id);
    }
}

/// Takes away, again and again, the vertices that no edge leads to; a circle stays.
fn check_acyclic(vertices: &[Vertex], edges: &[Edge]) -> Result<(), Cycle> {
    let mut left: Vec<usize> = (0..vertices.len()).collect();
    loop {
        let is_fed = |vertex: &usize| {
            edges.iter().any(|edge| edge.to.index() == *vertex && left.contains(&edge.from.index()))
        };
        let fed: Vec<usize> = left.iter().copied().filter(is_fed).collect();
        match fed.first() {
            None => return Ok(()),
            Some(vertex) if fed.len() == left.len() => {
                return Err(Cycle(vertices[*vertex].name.to_string()));
            }
            Some(_) => left = fed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_is_refused_by_the_name_of_a_vertex_in_it() {
        let vertex = |name: &str| Vertex {
            name: name.into(),
            uids: vec![name.into()],
            parallelism: 1,
            is_source: false,
        };
        let edge = |from, to| Edge {
            from: VertexId::new(from),
            to: VertexId::new(to),
            partition: Partition::Forward,
        };
        let vertices = vec![vertex("in"), vertex("again"), vertex("back"), vertex("out")];
        let straight = vec![edge(0, 1), edge(1, 2), edge(2, 3)];
        assert!(PhysicalGraph::new(vertices.clone(), straight.clone()).is_ok());
        let round = [&straight[..], &[edge(2, 1)]].concat();
        assert_eq!(PhysicalGraph::new(vertices, round), Err(Cycle("again".to_owned())));
    }

    #[test]
    fn tasks_and_channels_are_numbered_by_position() {
        let vertex = |name: &str, parallelism, is_source| Vertex {
            name: name.into(),
            uids: vec![name.into()],
            parallelism,
            is_source,
        };
        let edge = |from, to, partition| Edge {
            from: VertexId::new(from),
            to: VertexId::new(to),
            partition,
        };
        let graph = PhysicalGraph::new(
            vec![vertex("lines", 2, true), vertex("count", 3, false), vertex("out", 3, false)],
            vec![edge(0, 1, Partition::Hash), edge(1, 2, Partition::Forward)],
        )
        .unwrap();
        assert_eq!((graph.task_count(), graph.channels().len()), (8, 9));
        assert_eq!(graph.task_name(TaskId::new(4)), "count/2");
        assert_eq!(graph.source_tasks(), [TaskId::new(0), TaskId::new(1)]);
        assert_eq!(graph.inputs(TaskId::new(3)), [ChannelId::new(1), ChannelId::new(4)]);
        let second = graph.channels()[4];
        assert_eq!((second.from, second.outlet.get(), second.index.get()), (TaskId::new(1), 1, 1));
        assert_eq!(graph.outputs(TaskId::new(3)), [ChannelId::new(7)]);
    }
}
