//! The claim that follows from a job's parts (ORACLES C10): a pipeline is as strong as its weakest
//! link.

use std::sync::Arc;

use crate::guarantee::{Claim, Level, Mechanism, SinkContract};
use crate::id::{TaskId, VertexId};
use crate::job::Job;

/// What a job promises, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredClaim {
    /// For the state of all operators together.
    pub state: Level,
    /// For each sink.
    pub sinks: Vec<SinkClaim>,
    /// The reasons in sentences, the weakest link first.
    pub because: Vec<String>,
}

/// What one sink promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkClaim {
    /// The sink.
    pub uid: Arc<str>,
    /// What it promises about its writes.
    pub contract: SinkContract,
    /// The level that an external reader sees; none for a sink that writes nothing.
    pub level: Option<Level>,
}

impl InferredClaim {
    /// State and the weakest of the sinks.
    pub fn claim(&self) -> Claim {
        let output = self.sinks.iter().filter_map(|sink| sink.level).reduce(Level::weakest);
        Claim { state: self.state, output }
    }
}

/// Reasons, each with the level that it leaves.
#[derive(Default)]
struct Reasons(Vec<(Level, String)>);

impl Reasons {
    fn push(&mut self, level: Level, reason: impl Into<String>) {
        self.0.push((level, reason.into()));
    }

    /// The sentences; those that leave as much stay in the order in which they were found.
    fn weakest_first(mut self) -> Vec<String> {
        self.0.sort_by_key(|(level, _)| match level {
            Level::None => 0,
            Level::AtMostOnce | Level::AtLeastOnce => 1,
            Level::ExactlyOnce => 2,
        });
        self.0.into_iter().map(|(_, reason)| reason).collect()
    }
}

impl Job {
    /// Infers the claim from mechanism, graph, operators and sinks.
    pub fn claim(&self) -> InferredClaim {
        let mut because = Reasons::default();
        let raw = self.raw_state_level(&mut because);
        let state = self.effective_state_level(raw, &mut because);
        let sinks = self.sink_claims(raw, state, &mut because);
        InferredClaim { state, sinks, because: because.weakest_first() }
    }

    /// How often a record may reach an operator's state.
    fn raw_state_level(&self, because: &mut Reasons) -> Level {
        match self.config.mechanism {
            Mechanism::None => {
                because.push(
                    Level::AtMostOnce,
                    "no checkpoints are taken: after a failure state is empty and nothing is \
                     replayed",
                );
                Level::AtMostOnce
            }
            Mechanism::Tracked => match self.first_with_several_inputs() {
                Some(task) => {
                    let reason = format!(
                        "tracked barriers do not block: {} has several input channels, so records \
                         behind the barrier of one can be in the snapshot and are replayed as well",
                        self.graph.task_name(task)
                    );
                    because.push(Level::AtLeastOnce, reason);
                    Level::AtLeastOnce
                }
                None => {
                    because.push(
                        Level::ExactlyOnce,
                        "no task has more than one input channel, so tracked barriers cut exactly \
                         (rule 13)",
                    );
                    Level::ExactlyOnce
                }
            },
            Mechanism::Aligned => {
                because
                    .push(Level::ExactlyOnce, "aligned barriers cut exactly, and sources replay");
                Level::ExactlyOnce
            }
            Mechanism::Unaligned | Mechanism::AlignedTimeout => {
                because.push(
                    Level::ExactlyOnce,
                    "records that a barrier overtakes are part of the snapshot, and sources replay",
                );
                Level::ExactlyOnce
            }
        }
    }

    fn first_with_several_inputs(&self) -> Option<TaskId> {
        self.graph.tasks().find(|task| self.graph.inputs(*task).len() > 1)
    }

    /// Idempotent state is right however often a record reaches it.
    fn effective_state_level(&self, raw: Level, because: &mut Reasons) -> Level {
        if raw != Level::AtLeastOnce {
            return raw;
        }
        let operators = self.vertices.iter().flat_map(|vertex| vertex.stage.describe());
        let stateful: Vec<_> = operators.filter(|(_, traits)| traits.stateful).collect();
        match stateful.iter().find(|(_, traits)| !traits.idempotent) {
            Some(_) => raw,
            None => {
                because.push(
                    Level::ExactlyOnce,
                    "every stateful operator is idempotent: exactly-once effect from \
                     at-least-once",
                );
                Level::ExactlyOnce
            }
        }
    }

    fn sink_claims(&self, raw: Level, state: Level, because: &mut Reasons) -> Vec<SinkClaim> {
        let vertices = self.vertices.iter().enumerate();
        let sinks = vertices.filter_map(|(id, vertex)| Some((id, vertex.sink.as_ref()?)));
        sinks
            .map(|(id, sink)| {
                let contract = sink.sink.contract();
                let vertex = VertexId::new(id as u32);
                let level = self.sink_level(vertex, &sink.uid, contract, raw, state, because);
                SinkClaim { uid: sink.uid.clone(), contract, level }
            })
            .collect()
    }

    fn sink_level(
        &self,
        _vertex: VertexId,
        uid: &str,
        contract: SinkContract,
        raw: Level,
        state: Level,
        because: &mut Reasons,
    ) -> Option<Level> {
        let (level, reason) = match contract {
            SinkContract::Discard => (None, "writes nothing"),
            SinkContract::Plain if raw == Level::AtMostOnce => {
                (Some(raw), "is plain, and nothing is ever written twice without replay")
            }
            SinkContract::Plain => (
                Some(Level::AtLeastOnce),
                "is plain: what was written before a failure is visible and is written again by \
                 the replay; a two-phase or an idempotent sink would lift it",
            ),
            SinkContract::Idempotent => {
                (Some(state), "is idempotent: its final rows are as right as the state behind them")
            }
            SinkContract::TwoPhase => {
                (Some(raw), "is two-phase: it shows exactly what completed checkpoints cover")
            }
        };
        because.push(level.unwrap_or(Level::ExactlyOnce), format!("sink '{uid}' {reason}"));
        level
    }
}
