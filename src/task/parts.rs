//! What a task is put together from; it does not know by whom.

use std::time::Duration;

use super::{Outlet, Progress};
use crate::graph::Subtask;
use crate::guarantee::Mechanism;
use crate::operator::sink::SinkMachine;
use crate::operator::source::SourceMachine;
use crate::operator::stage::Stage;

/// What a task is put together from.
pub(crate) struct TaskParts {
    pub(crate) subtask: Subtask,
    pub(crate) mechanism: Mechanism,
    /// Keyed state lives outside.
    pub(crate) is_external: bool,
    /// The operators without state, where state does not outlive a barrier.
    pub(crate) blank: Option<Box<dyn Stage>>,
    pub(crate) acknowledge_timeout: Duration,
    /// Barriers may overtake on its inputs.
    pub(crate) may_overtake: bool,
    pub(crate) alignment_timeout: Duration,
    pub(crate) inputs: usize,
    pub(crate) source: Option<SourceMachine>,
    pub(crate) stage: Box<dyn Stage>,
    pub(crate) sink: Option<SinkMachine>,
    pub(crate) outlet: Outlet,
    /// Under transactional updates.
    pub(crate) progress: Option<Progress>,
}
