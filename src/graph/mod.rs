//! The graph of a job as data: vertices, edges, and the parallel tasks and channels they become.

pub mod partition;
pub mod physical;

pub use partition::Partition;
pub use physical::{
    Channel, Cycle, Edge, EdgeId, JobShape, PhysicalGraph, ShapeError, Subtask, Vertex, VertexShape,
};
