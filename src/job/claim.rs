//! The claim that follows from a job's parts (ORACLES C10): a pipeline is as strong as its weakest
//! link.
//!
//! Records are followed from the sources to the sinks, vertex by vertex. At each it is asked how
//! they come in, relative to the cut that a checkpoint makes there ([`Arrival`]). From that and
//! from what the operators declare follow the level of the vertex's state, how records leave, and
//! at a sink the level of the output.

use std::sync::Arc;

use crate::config::OnLoss;
use crate::graph::Vertex;
use crate::guarantee::{Claim, Level, Mechanism, SinkContract, StateHome};
use crate::id::{TaskId, VertexId};
use crate::job::Job;
use crate::operator::{OperatorTraits, RowsRestOn};

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

/// How the records of a stream come, over all attempts that a restored state has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    /// Each once, if at all: nothing is replayed.
    OnceOrNot,
    /// Each exactly once.
    Exact,
    /// Each, and some again just as they were.
    Again,
    /// Each, and some again just as they were, but not all that came behind them.
    Disordered,
    /// Each, and some again with other content: a state that had seen them already answered.
    AgainChanged,
    /// Each exactly once, with content that a state gave which each barrier empties.
    Emptied,
    /// Each once, if at all: a state that no failure takes back gave them, and does not again.
    Unrepeated,
    /// Each once, if at all: a state that each barrier empties owed them.
    Cut,
    /// Each, and some again, where no failure brings a state back.
    Unrestored,
    /// As that, with content that a state gave which failures empty.
    Forgetful,
    /// Some are missing: a state that failures empty owed them.
    Withheld,
}

/// What a stream has been through on its way from the sources.
#[derive(Clone, Copy, Debug)]
struct Passed {
    arrival: Arrival,
    /// The weakest state on the way, or behind it.
    state: Level,
    /// The weakest state that the content of records depends on.
    content: Level,
    /// An operator on the way may give other records when it is run again.
    varies: bool,
}

/// What becomes of the state of an operator when a checkpoint is taken, and after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A failure takes it back to the latest checkpoint, or empties it if none is taken.
    Restored,
    /// Each checkpoint empties it.
    Dropped,
    /// No failure takes it back.
    Stays,
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
        self.explain_mechanism(&mut because);
        self.explain_queues(&mut because);
        self.explain_retention(&mut because);
        let mut passed: Vec<Option<Passed>> = vec![None; self.vertices.len()];
        let mut state = self.first_state();
        let mut sinks = Vec::new();
        // The builder makes a vertex after all that it reads from.
        for vertex in self.graph.vertex_ids() {
            if self.committer(vertex).is_some() {
                continue;
            }
            let into = self.graph.edges().iter().filter(|edge| edge.to == vertex);
            let before = into.filter_map(|edge| passed[edge.from.index()]);
            let before = before.reduce(Passed::weakest).unwrap_or(Passed {
                arrival: self.first_arrival(),
                state: self.first_state(),
                content: self.first_state(),
                varies: false,
            });
            let behind = self.pass(vertex, before, &mut because);
            state = state.weakest(behind.state);
            passed[vertex.index()] = Some(behind);
            sinks.extend(self.sink_claim(vertex, behind, &mut because));
        }
        if self.may_pass_over() {
            state = state.weakest(Level::AtMostOnce);
            for sink in &mut sinks {
                sink.level = sink.level.map(|level| level.weakest(Level::AtMostOnce));
            }
        }
        InferredClaim { state, sinks, because: because.weakest_first() }
    }

    /// Whether a source may go on without records that its log has dropped.
    fn may_pass_over(&self) -> bool {
        self.config.on_loss == OnLoss::GoOn && self.truncated_sources().next().is_some()
    }

    /// The vertices whose source keeps its records for a limited time.
    fn truncated_sources(&self) -> impl Iterator<Item = &Vertex> {
        let sources = self.vertices.iter().zip(self.graph.vertices());
        let truncated = sources.filter(|(parts, _)| {
            parts.source.as_ref().is_some_and(|parts| parts.source.is_truncated())
        });
        truncated.map(|(_, vertex)| vertex)
    }

    /// How records leave a source.
    fn first_arrival(&self) -> Arrival {
        match self.config.mechanism {
            // Acknowledged and lost, or emitted and given out again.
            Mechanism::None if self.queues().next().is_some() => Arrival::Withheld,
            Mechanism::None => Arrival::OnceOrNot,
            Mechanism::Tracked
            | Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout
            | Mechanism::Transactional => Arrival::Exact,
            Mechanism::Acks => Arrival::Unrestored,
        }
    }

    /// The level of state that takes in what leaves a source, where a record that comes again
    /// changes nothing.
    fn first_state(&self) -> Level {
        match self.first_arrival() {
            // A failure empties it, and what was acknowledged does not come again.
            Arrival::Unrestored => Level::AtMostOnce,
            arrival @ (Arrival::OnceOrNot
            | Arrival::Exact
            | Arrival::Again
            | Arrival::Disordered
            | Arrival::AgainChanged
            | Arrival::Emptied
            | Arrival::Unrepeated
            | Arrival::Cut
            | Arrival::Forgetful
            | Arrival::Withheld) => arrival.level(),
        }
    }

    /// Whether a checkpoint cuts so that no record of a later epoch is in it, however many input
    /// channels a task has.
    fn cuts_at_merges(&self) -> bool {
        match self.config.mechanism {
            Mechanism::None
            | Mechanism::Acks
            | Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout
            | Mechanism::Transactional => true,
            Mechanism::Tracked => false,
        }
    }

    fn explain_mechanism(&self, because: &mut Reasons) {
        let (level, reason) = match self.config.mechanism {
            Mechanism::None => (
                Level::AtMostOnce,
                "no checkpoints are taken: after a failure state is empty and nothing is \
                 replayed; a stronger guarantee would lift it",
            ),
            Mechanism::Tracked => match self.first_with_several_inputs() {
                Some(_) => return,
                None => (
                    Level::ExactlyOnce,
                    "no task has more than one input channel, so tracked barriers cut exactly \
                     (rule 13)",
                ),
            },
            Mechanism::Unaligned | Mechanism::AlignedTimeout => (
                Level::ExactlyOnce,
                "records that a barrier overtakes are part of the snapshot, and sources replay",
            ),
            Mechanism::Acks => (
                Level::None,
                "records are acknowledged and state is not stored: after a failure it is empty, \
                 and what was acknowledged is not replayed; checkpoints would lift it",
            ),
            Mechanism::FullReplay => (
                Level::ExactlyOnce,
                "everything begins again at the start of the input with empty state: exact, and \
                 all the work so far is done again; checkpoints would lift that",
            ),
            Mechanism::MiniBatch => (
                Level::ExactlyOnce,
                "each batch is read and committed once, and sources replay one that is cut short",
            ),
            Mechanism::Aligned => {
                (Level::ExactlyOnce, "aligned barriers cut exactly, and sources replay")
            }
            Mechanism::Transactional => (
                Level::ExactlyOnce,
                "each task writes its state, what it has taken in and what it has produced in one \
                 transaction, and drops records that it has taken in before",
            ),
        };
        because.push(level, reason);
    }

    fn queues(&self) -> impl Iterator<Item = &str> {
        let sources = self.vertices.iter().zip(self.graph.vertices());
        let queues = sources.filter(|(parts, _)| {
            parts.source.as_ref().is_some_and(|parts| parts.source.is_queue())
        });
        queues.map(|(_, vertex)| &*vertex.name)
    }

    /// A queue gives out again what is not acknowledged, and nothing else.
    fn explain_queues(&self, because: &mut Reasons) {
        let (level, what) = if self.config.mechanism.restores() {
            (
                Level::ExactlyOnce,
                "gives out messages again until they are acknowledged: they are when a complete \
                 checkpoint covers them, and by then their ids are known (rule 79)",
            )
        } else {
            (
                Level::None,
                "is acknowledged as its messages are emitted: a failure loses some, and those \
                 whose acknowledgement was lost come again; checkpoints would lift it",
            )
        };
        for uid in self.queues() {
            because.push(level, format!("queue '{uid}' {what}"));
        }
    }

    /// What a log no longer holds can not be replayed. If the job fails then it hides nothing, and
    /// the level stays.
    fn explain_retention(&self, because: &mut Reasons) {
        let (level, what) = match self.config.on_loss {
            OnLoss::Fail => (
                Level::ExactlyOnce,
                "which bounds this claim: a restart that needs older ones fails and says which; a \
                 longer retention would lift it",
            ),
            OnLoss::GoOn => (
                Level::AtMostOnce,
                "and goes on without those that are gone, which are counted and reported: to fail \
                 instead (on_loss) would lift it",
            ),
        };
        for vertex in self.truncated_sources() {
            let name = &vertex.name;
            let text = format!("source '{name}' keeps its records for a limited time, {what}");
            because.push(level, text);
        }
    }

    fn first_with_several_inputs(&self) -> Option<TaskId> {
        let mut tasks = self.graph.tasks();
        tasks.find(|task| {
            let is_committer = self.committer(self.graph.place_of(*task).0).is_some();
            self.graph.inputs(*task).len() > 1 && !is_committer
        })
    }

    /// What a stream has been through behind `vertex`.
    fn pass(&self, vertex: VertexId, before: Passed, because: &mut Reasons) -> Passed {
        let mut passed = before;
        let merging = self.graph.tasks_of(vertex).find(|task| self.graph.inputs(*task).len() > 1);
        if let Some(task) = merging.filter(|_| !self.cuts_at_merges()) {
            if passed.arrival != Arrival::Unrepeated {
                passed.arrival = passed.arrival.weakest(Arrival::Again);
            }
            let reason = format!(
                "tracked barriers do not block: {} has several input channels, so records behind \
                 the barrier of one can be in the snapshot and are replayed as well; aligned \
                 barriers would lift it",
                self.graph.task_name(task)
            );
            because.push(passed.arrival.level(), reason);
        }
        for (uid, traits) in self.vertices[vertex.index()].stage.describe() {
            passed.through(&uid, traits, self.fate(), because);
        }
        passed
    }

    /// What becomes of the state of an operator.
    fn fate(&self) -> Fate {
        match self.config.state {
            StateHome::External => Fate::Stays,
            StateHome::Heap | StateHome::ExternalTransactional
                if self.config.mechanism.drops_state() =>
            {
                Fate::Dropped
            }
            StateHome::Heap | StateHome::ExternalTransactional => Fate::Restored,
        }
    }

    fn sink_claim(
        &self,
        vertex: VertexId,
        passed: Passed,
        because: &mut Reasons,
    ) -> Option<SinkClaim> {
        let (uid, sink) = self.sink(vertex)?;
        let contract = sink.contract();
        let (mut level, reason) =
            sink_level(contract, passed, sink.resends_idempotently(), sink.is_key_whole());
        because.push(level.unwrap_or(Level::ExactlyOnce), format!("sink '{uid}' {reason}"));
        let needed = self.config.commit_within();
        if let Some(timeout) = sink.timeout().filter(|timeout| *timeout <= needed) {
            level = level.map(|level| level.weakest(Level::AtMostOnce));
            let reason = format!(
                "sink '{uid}' rolls back what is not committed {timeout:?} after it was prepared, \
                 and checkpoints and a restart may take {needed:?}: the job fails and says so, but \
                 rows are lost (rule 67); a longer timeout there, or shorter ones here, would lift \
                 it"
            );
            because.push(level.unwrap_or(Level::ExactlyOnce), reason);
        }
        Some(SinkClaim { uid: uid.clone(), contract, level })
    }
}

impl Arrival {
    /// How often a record counts that comes so and is counted each time.
    const fn level(self) -> Level {
        match self {
            Self::OnceOrNot | Self::Unrepeated | Self::Cut => Level::AtMostOnce,
            Self::Exact => Level::ExactlyOnce,
            Self::Again | Self::Disordered | Self::AgainChanged | Self::Emptied => {
                Level::AtLeastOnce
            }
            Self::Unrestored | Self::Forgetful | Self::Withheld => Level::None,
        }
    }

    /// How the records of two streams come together.
    fn weakest(self, other: Self) -> Self {
        match (self.min(other), self.max(other)) {
            // Some of them are replayed, and some are missing.
            (Self::Exact, Self::Unrepeated) => Self::Cut,
            (Self::Again | Self::Disordered | Self::AgainChanged, Self::Unrepeated | Self::Cut) => {
                Self::Withheld
            }
            (_, most) => most,
        }
    }
}

impl Passed {
    fn weakest(self, other: Self) -> Self {
        Self {
            arrival: self.arrival.weakest(other.arrival),
            state: self.state.weakest(other.state),
            content: self.content.weakest(other.content),
            varies: self.varies || other.varies,
        }
    }

    /// Takes the stream through one operator.
    fn through(&mut self, uid: &str, traits: OperatorTraits, fate: Fate, because: &mut Reasons) {
        if traits.varies {
            self.varies = true;
            because.push(
                Level::ExactlyOnce,
                format!(
                    "'{uid}' says that it is not deterministic: its state counts each record as \
                     the claim says, but a replay may give other output"
                ),
            );
        }
        match fate {
            _ if !traits.stateful => {}
            Fate::Restored => self.through_restored(uid, traits, because),
            Fate::Dropped => self.through_dropped(uid, traits, because),
            Fate::Stays => self.through_staying(uid, traits, because),
        }
    }

    /// The operator's state has this level, and what it gives has been through it.
    fn hold(&mut self, traits: OperatorTraits, state: Level, arrival: Arrival) {
        self.state = self.state.weakest(state);
        let content = match (traits.rows, state) {
            // Where nothing is missing, all of them are answered as if each had come once.
            (RowsRestOn::Nothing, _) | (RowsRestOn::Records, Level::AtLeastOnce) => {
                Level::ExactlyOnce
            }
            (RowsRestOn::Records | RowsRestOn::Counts, state) => state,
        };
        self.content = self.content.weakest(content);
        if !is_alike(traits) {
            self.arrival = arrival;
        }
    }

    /// As [`Passed::through`], an operator whose state is in step with the records before it.
    fn through_restored(&mut self, uid: &str, traits: OperatorTraits, because: &mut Reasons) {
        let comes_as_it_was = matches!(self.arrival, Arrival::Again | Arrival::Disordered);
        let is_answered_again = comes_as_it_was && traits.idempotent;
        let again = match traits.rows {
            RowsRestOn::Counts => Arrival::AgainChanged,
            RowsRestOn::Records | RowsRestOn::Nothing => Arrival::Disordered,
        };
        let (state, arrival) = match self.arrival {
            Arrival::OnceOrNot
            | Arrival::Exact
            | Arrival::Emptied
            | Arrival::Unrepeated
            | Arrival::Cut => return,
            Arrival::Unrestored | Arrival::Forgetful | Arrival::Withheld => {
                return self.through_unrestored(uid, traits, because);
            }
            Arrival::Again | Arrival::Disordered if traits.absorbs => {
                (Level::ExactlyOnce, Arrival::Exact)
            }
            Arrival::Again | Arrival::Disordered if traits.idempotent => {
                (Level::ExactlyOnce, again)
            }
            Arrival::Again | Arrival::Disordered => (Level::AtLeastOnce, again),
            Arrival::AgainChanged => (Level::AtLeastOnce, Arrival::AgainChanged),
        };
        let reason = match (is_answered_again, traits.absorbs) {
            (true, true) => format!(
                "'{uid}' is idempotent and answers a record that comes again with nothing: \
                 exactly-once effect from at-least-once, for its state and for what follows"
            ),
            (true, false) => format!(
                "'{uid}' is an idempotent aggregate: exactly-once effect from at-least-once in \
                 its state, but a record that comes again is answered again"
            ),
            (false, _) if traits.idempotent => format!(
                "'{uid}' is idempotent, but what comes again has been through another state and \
                 may have changed"
            ),
            (false, _) => format!(
                "'{uid}' counts what comes again: an idempotent operator or a mechanism that cuts \
                 exactly would lift it"
            ),
        };
        self.hold(traits, state, arrival);
        because.push(state, reason);
    }

    /// As [`Passed::through`], an operator whose state each checkpoint empties.
    fn through_dropped(&mut self, uid: &str, traits: OperatorTraits, because: &mut Reasons) {
        let arrival = if traits.answers { Arrival::Emptied } else { Arrival::Cut };
        self.hold(traits, Level::AtMostOnce, self.arrival.max(arrival));
        let rows = match is_alike(traits) {
            true => "its rows do not depend on it",
            false => "its rows are those of one batch",
        };
        because.push(
            Level::AtMostOnce,
            format!(
                "'{uid}' begins each batch with empty state: what earlier batches left in it is \
                 lost, and {rows}; state that outlives a batch would lift it"
            ),
        );
    }

    /// As [`Passed::through`], an operator whose state no failure takes back: after one it is ahead
    /// of the records that are replayed, so each of them may come again.
    fn through_staying(&mut self, uid: &str, traits: OperatorTraits, because: &mut Reasons) {
        let state = match self.arrival {
            Arrival::Exact | Arrival::Again | Arrival::Disordered if traits.idempotent => {
                Level::ExactlyOnce
            }
            Arrival::Exact | Arrival::Again | Arrival::Disordered | Arrival::AgainChanged => {
                Level::AtLeastOnce
            }
            Arrival::OnceOrNot | Arrival::Unrepeated => Level::AtMostOnce,
            Arrival::Emptied
            | Arrival::Cut
            | Arrival::Unrestored
            | Arrival::Forgetful
            | Arrival::Withheld => Level::None,
        };
        let (home, rolls_back) = (format!("the state of '{uid}' is external"), "no failure rolls");
        let reason = match state {
            Level::ExactlyOnce => format!(
                "{home} and {rolls_back} it back; it is idempotent, so a record that is replayed \
                 into it changes nothing"
            ),
            Level::AtMostOnce | Level::None => {
                format!("{home}, and what it is given misses rows that a failure took")
            }
            Level::AtLeastOnce => format!(
                "{home} and {rolls_back} it back: it counts again what is replayed; \
                 external-transactional state would lift it"
            ),
        };
        because.push(state, reason);
        let arrival = match self.arrival {
            Arrival::OnceOrNot | Arrival::Unrepeated => Arrival::Unrepeated,
            Arrival::Exact | Arrival::Again | Arrival::Disordered if traits.absorbs => {
                Arrival::Unrepeated
            }
            Arrival::Exact | Arrival::Again | Arrival::Disordered | Arrival::AgainChanged
                if traits.answers && !traits.absorbs =>
            {
                Arrival::AgainChanged
            }
            Arrival::Exact
            | Arrival::Again
            | Arrival::Disordered
            | Arrival::AgainChanged
            | Arrival::Emptied
            | Arrival::Cut
            | Arrival::Unrestored
            | Arrival::Forgetful
            | Arrival::Withheld => Arrival::Withheld,
        };
        self.hold(traits, state, arrival);
        if matches!(self.arrival, Arrival::Unrepeated | Arrival::Withheld) {
            because.push(
                self.arrival.level(),
                format!(
                    "'{uid}' does not answer again a record that its external state has seen: a \
                     row that a failure took is lost"
                ),
            );
        }
    }

    /// As [`Passed::through`], an operator whose state is gone after a failure.
    fn through_unrestored(&mut self, uid: &str, traits: OperatorTraits, because: &mut Reasons) {
        if traits.idempotent && self.arrival == Arrival::Unrestored {
            self.hold(traits, Level::AtMostOnce, Arrival::Forgetful);
            because.push(
                Level::AtMostOnce,
                format!("'{uid}' is idempotent: a record that comes again changes nothing in it"),
            );
        } else {
            self.hold(traits, Level::None, self.arrival.max(Arrival::Forgetful));
        }
        if !traits.answers {
            self.arrival = Arrival::Withheld;
            because.push(
                Level::None,
                format!(
                    "'{uid}' gives rows that its state owes, and a failure takes state whose \
                     records are acknowledged: such rows can be lost"
                ),
            );
        }
    }
}

/// Whether an operator hands on what comes as it comes: it answers each record, and always with the
/// same.
fn is_alike(traits: OperatorTraits) -> bool {
    traits.answers && traits.rows == RowsRestOn::Nothing
}

/// As [`sink_level`], for an idempotent sink.
fn table_level(passed: Passed, is_key_whole: bool) -> (Option<Level>, &'static str) {
    let Passed { arrival, content, varies, .. } = passed;
    match arrival {
        Arrival::Withheld | Arrival::Unrepeated | Arrival::Cut => (
            Some(content.weakest(Level::AtMostOnce)),
            "is idempotent, and shows what an operator before it gives: rows that the operator's \
             state owed are missing",
        ),
        Arrival::Exact
        | Arrival::Again
        | Arrival::Disordered
        | Arrival::AgainChanged
        | Arrival::Emptied
        | Arrival::Unrestored
        | Arrival::Forgetful
            if varies =>
        {
            (
                Some(Level::AtLeastOnce),
                "is idempotent, but an operator before it is not deterministic: rows of a replay \
                 may have other keys; a two-phase sink would lift it",
            )
        }
        Arrival::Unrestored if is_key_whole => (
            Some(Level::ExactlyOnce),
            "is idempotent: each of its rows is there, and one that comes again changes nothing, \
             since its key says all that it does",
        ),
        Arrival::Unrestored => (
            Some(Level::AtLeastOnce),
            "is idempotent: each of its rows is there, but a replay can put an old one in the \
             place of a newer one; keys that say all that their rows do would lift it",
        ),
        Arrival::Disordered if !is_key_whole => (
            Some(content.weakest(Level::AtLeastOnce)),
            "is idempotent: each of its rows is there, but one that comes again can take the \
             place of a newer one; keys that say all that their rows do would lift it",
        ),
        Arrival::OnceOrNot
        | Arrival::Exact
        | Arrival::Again
        | Arrival::Disordered
        | Arrival::AgainChanged
        | Arrival::Emptied
        | Arrival::Forgetful => (
            Some(content),
            "is idempotent: its final rows are as right as the state behind them, though readers \
             may see old ones again until a replay has caught up",
        ),
    }
}

/// What a reader sees of a sink that this stream ends in, and why.
fn sink_level(
    contract: SinkContract,
    passed: Passed,
    resends_idempotently: bool,
    is_key_whole: bool,
) -> (Option<Level>, &'static str) {
    let arrival = passed.arrival;
    match contract {
        SinkContract::Idempotent => table_level(passed, is_key_whole),
        SinkContract::Discard => (None, "writes nothing"),
        SinkContract::Plain if arrival == Arrival::OnceOrNot => {
            (Some(Level::AtMostOnce), "is plain, and nothing is written twice without replay")
        }
        SinkContract::Plain if arrival == Arrival::Unrepeated => (
            Some(Level::AtMostOnce),
            "is plain, and shows what an operator before it gives, which gives no row again",
        ),
        SinkContract::Plain | SinkContract::WriteAhead | SinkContract::TwoPhase
            if arrival == Arrival::Withheld =>
        {
            (Some(Level::None), "shows what an operator before it gives, and no more")
        }
        SinkContract::Plain if arrival == Arrival::Cut => (
            Some(Level::None),
            "is plain: it shows what an operator before it gives, and again what is replayed",
        ),
        SinkContract::Plain => (
            Some(Level::AtLeastOnce),
            "is plain: what was written before a failure is visible and is written again by the \
             replay; a two-phase or an idempotent sink would lift it",
        ),
        SinkContract::WriteAhead if !resends_idempotently => (
            Some(arrival.level().weakest(Level::AtLeastOnce)),
            "is write-ahead, and a crash between sending rows and marking them as sent shows them \
             again: a send that is idempotent, or atomic with the mark, would lift it",
        ),
        SinkContract::WriteAhead => (
            Some(arrival.level()),
            "is write-ahead, and sending rows again changes nothing: it shows exactly what \
             completed checkpoints cover",
        ),
        SinkContract::TwoPhase => two_phase_level(arrival),
    }
}

fn two_phase_level(arrival: Arrival) -> (Option<Level>, &'static str) {
    match arrival {
        Arrival::Again | Arrival::Disordered | Arrival::AgainChanged => (
            Some(Level::AtLeastOnce),
            "is two-phase: it shows what completed checkpoints cover, and in those records \
             come again; an idempotent sink or a mechanism that cuts exactly would lift it",
        ),
        Arrival::Emptied => (
            Some(arrival.level()),
            "is two-phase: it shows the rows of each record once, with what the state of one \
             batch made of it",
        ),
        Arrival::Unrepeated => (
            Some(arrival.level()),
            "is two-phase, and what a failure takes of its rows is not given again",
        ),
        Arrival::Cut => {
            (Some(arrival.level()), "is two-phase: it shows what the state of each batch has given")
        }
        Arrival::Unrestored | Arrival::Forgetful | Arrival::Withheld => {
            (Some(Level::None), "is two-phase, and without checkpoints nothing commits")
        }
        Arrival::OnceOrNot | Arrival::Exact => (
            Some(arrival.level()),
            "is two-phase: it shows exactly what completed checkpoints cover",
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;
    use std::time::Duration;

    use super::*;
    use crate::config::JobConfig;
    use crate::connector::log::TruncatedLog;
    use crate::connector::memory::{Collect, CollectTransactions, VecSource};
    use crate::connector::queue::MemoryQueue;
    use crate::element::Record;
    use crate::id::TransactionId;
    use crate::job::{GraphError, JobBuilder, KeyedStream, Stream};
    use crate::operator::chain::Pass;
    use crate::operator::join::Interval;
    use crate::operator::keyed::{KeySelector, KeyedContext, KeyedProcess};
    use crate::operator::sink::{CommitError, Committed, Sink, SinkError, TransactionalSink};
    use crate::operator::split_source::Pieces;
    use crate::operator::{Emit, Operator};
    use crate::time::EventTime;

    type Numbers = Stream<Pass<u64>>;

    fn claim(mechanism: Mechanism, parallelism: usize, end: impl FnOnce(Numbers)) -> InferredClaim {
        let builder = JobBuilder::new("job", parallelism);
        end(builder.source("numbers", VecSource::new(vec![1_u64, 2, 3])));
        let config = JobConfig { mechanism, ..JobConfig::default() };
        builder.build(config).unwrap().claim()
    }

    fn keyed(numbers: Numbers) -> KeyedStream<u64, impl KeySelector<u64, Key = u64> + Sync> {
        numbers.key_by(|number| number % 2)
    }

    fn counted(numbers: Numbers) {
        let counts = keyed(numbers).aggregate("count", 0_u64, |count: &mut u64, _| *count += 1);
        counts.transactional_sink("out", CollectTransactions::default());
    }

    const EXACTLY: Level = Level::ExactlyOnce;
    const AT_LEAST: Level = Level::AtLeastOnce;

    #[test]
    fn rule_013_a_task_with_one_input_channel_is_exact_under_tracked_barriers() {
        let one = claim(Mechanism::Tracked, 1, counted);
        assert_eq!((one.state, one.sinks[0].level), (EXACTLY, Some(EXACTLY)));
        let two = claim(Mechanism::Tracked, 2, counted);
        assert_eq!((two.state, two.sinks[0].level), (AT_LEAST, Some(AT_LEAST)));
        assert!(two.because[0].contains("several input channels"), "{:?}", two.because);
    }

    #[test]
    fn what_merges_behind_the_state_is_a_matter_of_the_output_alone() {
        let merged = claim(Mechanism::Tracked, 1, |numbers| {
            let counts = keyed(numbers).aggregate("count", 0_u64, |count: &mut u64, _| *count += 1);
            let (left, right) = counts.fork();
            left.union(right).transactional_sink("out", CollectTransactions::default());
        });
        assert_eq!((merged.state, merged.sinks[0].level), (EXACTLY, Some(AT_LEAST)));
    }

    #[test]
    fn an_idempotent_aggregate_lifts_its_state_and_an_absorbing_one_what_follows_too() {
        let largest = claim(Mechanism::Tracked, 2, |numbers| {
            let fold = |max: &mut u64, number: u64| *max = number.max(*max);
            let largest = keyed(numbers).aggregate_idempotent("max", 0_u64, fold);
            largest.transactional_sink("out", CollectTransactions::default());
        });
        assert_eq!((largest.state, largest.sinks[0].level), (EXACTLY, Some(AT_LEAST)));
        let first = claim(Mechanism::Tracked, 2, |numbers| {
            let first = keyed(numbers).process("first", First);
            first.transactional_sink("out", CollectTransactions::default());
        });
        assert_eq!((first.state, first.sinks[0].level), (EXACTLY, Some(EXACTLY)));
    }

    #[test]
    fn an_idempotent_operator_behind_one_that_counts_lifts_nothing() {
        let behind = claim(Mechanism::Tracked, 2, |numbers| {
            let counts = keyed(numbers).aggregate("count", 0_u64, |count: &mut u64, _| *count += 1);
            let keys = counts.map("key", |(key, _)| key);
            let first = keyed(keys.rebalance()).process("first", First);
            first.sink("out", Collect::default());
        });
        assert_eq!(behind.state, AT_LEAST);
        assert!(behind.because.iter().any(|reason| reason.contains("'first' is idempotent, but")));
    }

    fn counted_in(state: StateHome, mechanism: Mechanism) -> InferredClaim {
        let builder = JobBuilder::new("job", 2);
        counted(builder.source("numbers", VecSource::new(vec![1_u64, 2, 3])));
        let config = JobConfig { mechanism, state, ..JobConfig::default() };
        builder.build(config).unwrap().claim()
    }

    #[test]
    fn state_outside_is_the_weakest_link_unless_it_rolls_back() {
        let outside = counted_in(StateHome::External, Mechanism::Aligned);
        assert_eq!((outside.state, outside.sinks[0].level), (AT_LEAST, Some(AT_LEAST)));
        assert!(outside.because[0].contains("external"), "{:?}", outside.because);
        let rolled_back = counted_in(StateHome::ExternalTransactional, Mechanism::Aligned);
        assert_eq!((rolled_back.state, rolled_back.sinks[0].level), (EXACTLY, Some(EXACTLY)));
    }

    #[test]
    fn state_that_each_batch_begins_without_loses_records_and_rows_keep_theirs() {
        let batches = counted_in(StateHome::Heap, Mechanism::MiniBatch);
        let expected = (Level::AtMostOnce, Some(AT_LEAST));
        assert_eq!((batches.state, batches.sinks[0].level), expected);
        let full = counted_in(StateHome::Heap, Mechanism::FullReplay);
        assert_eq!((full.state, full.sinks[0].level), (EXACTLY, Some(EXACTLY)));
    }

    #[test]
    fn state_outside_is_refused_where_no_checkpoint_keeps_it_in_step() {
        for mechanism in [Mechanism::None, Mechanism::Acks, Mechanism::MiniBatch] {
            let builder = JobBuilder::new("job", 1);
            builder.source("numbers", VecSource::new(vec![1_u64])).sink("out", Collect::default());
            let config =
                JobConfig { mechanism, state: StateHome::External, ..JobConfig::default() };
            let error = builder.build(config).err().unwrap().to_string();
            assert!(error.contains("external") && error.contains(mechanism.word()), "{error}");
        }
    }

    #[test]
    fn rows_that_do_not_depend_on_the_state_are_exact_without_it() {
        let seen = |numbers: Numbers| {
            let seen = keyed(numbers).process("seen", Seen);
            seen.transactional_sink("out", CollectTransactions::default());
        };
        let batches = claim(Mechanism::MiniBatch, 2, seen);
        assert_eq!((batches.state, batches.sinks[0].level), (Level::AtMostOnce, Some(EXACTLY)));
    }

    #[test]
    fn idempotent_state_that_failures_empty_misses_records_and_counts_none_twice() {
        let acknowledged = claim(Mechanism::Acks, 2, |numbers| {
            keyed(numbers).process("seen", Seen).sink("out", Collect::default());
        });
        let levels = (acknowledged.state, acknowledged.sinks[0].level);
        assert_eq!(levels, (Level::AtMostOnce, Some(AT_LEAST)));
        let counted = claim(Mechanism::Acks, 2, |numbers| {
            let counts = keyed(numbers).aggregate("count", 0_u64, |count: &mut u64, _| *count += 1);
            counts.sink("out", Collect::default());
        });
        assert_eq!((counted.state, counted.sinks[0].level), (Level::None, Some(AT_LEAST)));
    }

    #[test]
    fn rows_that_the_state_of_a_batch_owes_are_there_once_if_at_all() {
        let owing = |numbers: Numbers| keyed(numbers).process("first", First);
        let committed = claim(Mechanism::MiniBatch, 2, |numbers| {
            owing(numbers).transactional_sink("out", CollectTransactions::default());
        });
        assert_eq!(committed.sinks[0].level, Some(Level::AtMostOnce));
        let plain = claim(Mechanism::MiniBatch, 2, |numbers| {
            owing(numbers).sink("out", Collect::default());
        });
        assert_eq!(plain.sinks[0].level, Some(Level::None));
        let of_table = |arrival, content| {
            let passed = Passed { arrival, state: content, content, varies: false };
            sink_level(SinkContract::Idempotent, passed, true, false).0
        };
        assert_eq!(of_table(Arrival::Cut, Level::AtMostOnce), Some(Level::AtMostOnce));
        assert_eq!(of_table(Arrival::Withheld, EXACTLY), Some(Level::AtMostOnce));
        assert_eq!(of_table(Arrival::Withheld, Level::None), Some(Level::None));
    }

    /// A sink whose rows replace those of their key.
    #[derive(Clone)]
    struct Upserts<T> {
        is_key_whole: bool,
        rows: PhantomData<fn(T)>,
    }

    impl<T> Upserts<T> {
        fn new(is_key_whole: bool) -> Self {
            Self { is_key_whole, rows: PhantomData }
        }
    }

    impl<T: Record> Sink for Upserts<T> {
        type Record = T;

        fn contract(&self) -> SinkContract {
            SinkContract::Idempotent
        }

        fn is_key_whole(&self) -> bool {
            self.is_key_whole
        }

        fn write(&mut self, _rows: Vec<T>) -> Result<(), SinkError> {
            Ok(())
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn time_of(number: &u64) -> EventTime {
        EventTime::from_millis(*number as i64)
    }

    /// The levels of state and output of an interval join that ends in such a sink.
    fn of_pairs(mechanism: Mechanism, is_key_whole: bool) -> (Level, Option<Level>) {
        let of = claim(mechanism, 2, |numbers| {
            let (left, right) = numbers.fork();
            let sides = left.connect("sides", right).key_by(|_| 0_u64, |_| 0_u64);
            let interval = Interval { from_ms: -1, to_ms: 1 };
            let pairs = sides.interval_join("join", interval, time_of, time_of);
            pairs.sink("out", Upserts::new(is_key_whole));
        });
        (of.state, of.sinks[0].level)
    }

    #[test]
    fn pairs_are_right_whatever_the_state_counts_and_come_again_without_what_followed_them() {
        assert_eq!(of_pairs(Mechanism::Tracked, true), (AT_LEAST, Some(EXACTLY)));
        // A pair that comes again may take the place of a newer one.
        assert_eq!(of_pairs(Mechanism::Tracked, false), (AT_LEAST, Some(AT_LEAST)));
        assert_eq!(of_pairs(Mechanism::Acks, true), (Level::None, Some(Level::AtMostOnce)));
        assert_eq!(of_pairs(Mechanism::MiniBatch, true).1, Some(Level::AtMostOnce));
    }

    #[test]
    fn a_row_with_its_table_is_right_if_the_state_misses_nothing() {
        let enriched = |mechanism| {
            let of = claim(mechanism, 2, |numbers| {
                let (left, right) = numbers.fork();
                let place = |number: &u64| (0_u64, time_of(number));
                let sides = left.connect("sides", right).broadcast_right();
                let joined = sides.broadcast_join("join", place, place);
                joined.sink("out", Upserts::new(true));
            });
            (of.state, of.sinks[0].level)
        };
        assert_eq!(enriched(Mechanism::Tracked), (AT_LEAST, Some(EXACTLY)));
        assert_eq!(enriched(Mechanism::Acks), (Level::None, Some(Level::None)));
    }

    #[test]
    fn rows_that_are_read_again_change_no_table_whose_keys_say_all() {
        let seen = |is_key_whole| {
            let of = claim(Mechanism::Acks, 2, |numbers| {
                keyed(numbers).process("seen", Seen).sink("out", Upserts::new(is_key_whole));
            });
            of.sinks[0].level
        };
        assert_eq!((seen(true), seen(false)), (Some(EXACTLY), Some(AT_LEAST)));
    }

    fn outside(mechanism: Mechanism, end: impl FnOnce(Numbers)) -> InferredClaim {
        let builder = JobBuilder::new("job", 2);
        end(builder.source("numbers", VecSource::new(vec![1_u64, 2, 3])));
        let config = JobConfig { mechanism, state: StateHome::External, ..JobConfig::default() };
        builder.build(config).unwrap().claim()
    }

    #[test]
    fn state_outside_that_absorbs_what_comes_again_gives_each_row_once_if_at_all() {
        for mechanism in [Mechanism::Aligned, Mechanism::Tracked] {
            let plain = outside(mechanism, |numbers| {
                keyed(numbers).process("first", First).sink("out", Collect::default());
            });
            let levels = (plain.state, plain.sinks[0].level);
            assert_eq!(levels, (EXACTLY, Some(Level::AtMostOnce)));
            let table = outside(mechanism, |numbers| {
                keyed(numbers).process("first", First).sink("out", Upserts::new(false));
            });
            assert_eq!(table.sinks[0].level, Some(Level::AtMostOnce));
        }
        let beside = |mechanism| {
            let claim = outside(mechanism, |numbers| {
                let (numbers, others) = numbers.fork();
                let first = keyed(numbers).process("first", First);
                let all = first.union(others);
                all.transactional_sink("out", CollectTransactions::default());
            });
            claim.sinks[0].level
        };
        // The others are replayed, and under tracked barriers some of them are there again.
        assert_eq!(beside(Mechanism::Aligned), Some(Level::AtMostOnce));
        assert_eq!(beside(Mechanism::Tracked), Some(Level::None));
    }

    #[test]
    fn state_outside_misses_the_rows_that_one_before_it_does_not_give_again() {
        let count = |count: &mut u64, _| *count += 1;
        let behind = outside(Mechanism::Aligned, |numbers| {
            let first = keyed(numbers).process("first", First);
            let counts = keyed(first.rebalance()).aggregate("count", 0_u64, count);
            counts.transactional_sink("out", CollectTransactions::default());
        });
        let expected = (Level::AtMostOnce, Some(Level::AtMostOnce));
        assert_eq!((behind.state, behind.sinks[0].level), expected);
    }

    fn claim_of_queue(mechanism: Mechanism) -> Result<InferredClaim, GraphError> {
        let builder = JobBuilder::new("job", 1);
        let numbers = builder.queue("messages", MemoryQueue::new(&[1_u64, 2], 1));
        keyed(numbers)
            .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
            .sink("out", Collect::default());
        Ok(builder.build(JobConfig { mechanism, ..JobConfig::default() })?.claim())
    }

    #[test]
    fn rule_079_a_queue_is_exact_with_checkpoints_and_promises_nothing_without() {
        let aligned = claim_of_queue(Mechanism::Aligned).unwrap();
        assert_eq!((aligned.state, aligned.sinks[0].level), (EXACTLY, Some(AT_LEAST)));
        assert!(aligned.because.iter().any(|reason| reason.contains("queue 'messages")));
        let none = claim_of_queue(Mechanism::None).unwrap();
        assert_eq!((none.state, none.sinks[0].level), (Level::None, Some(Level::None)));
        let refused = claim_of_queue(Mechanism::Acks).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("has none: use a mechanism that takes checkpoints on the way")
        );
    }

    #[test]
    fn retention_bounds_a_claim_and_is_named() {
        let builder = JobBuilder::new("job", 1);
        let log = TruncatedLog::from(Arc::new(vec![1_u64, 2]));
        builder.source("log", log).sink("out", Collect::default());
        let claim = builder.build(JobConfig::default()).unwrap().claim();
        assert_eq!(claim.state, EXACTLY);
        let named = |reason: &String| reason.contains("source 'log") && reason.contains("bounds");
        assert!(claim.because.iter().any(named), "{:?}", claim.because);
    }

    #[test]
    fn a_source_that_goes_on_without_what_is_gone_claims_no_more_than_at_most_once() {
        for is_assigned in [false, true] {
            let builder = JobBuilder::new("job", 1);
            let log = TruncatedLog::from(Arc::new(vec![1_u64, 2]));
            let numbers = match is_assigned {
                true => builder.split_source("log", Pieces::new(log, 2, 1)),
                false => builder.source("log", log),
            };
            numbers.transactional_sink("out", CollectTransactions::default());
            let config = JobConfig { on_loss: OnLoss::GoOn, ..JobConfig::default() };
            let claim = builder.build(config).unwrap().claim();
            let levels = (claim.state, claim.sinks[0].level);
            assert_eq!(levels, (Level::AtMostOnce, Some(Level::AtMostOnce)));
            assert!(claim.because[0].starts_with("source 'log"), "{:?}", claim.because);
        }
    }

    #[test]
    fn an_operator_that_varies_is_named_and_spoils_a_table_of_rows() {
        let drawn = claim(Mechanism::Aligned, 2, |numbers| {
            numbers
                .operator("clock", Clock)
                .transactional_sink("out", CollectTransactions::default())
        });
        assert_eq!((drawn.state, drawn.sinks[0].level), (EXACTLY, Some(EXACTLY)));
        assert!(drawn.because.iter().any(|reason| reason.contains("'clock' says")));
    }

    #[test]
    fn rule_067_transactions_that_time_out_sooner_than_a_job_commits_can_lose_rows() {
        let of = |timeout| {
            claim(Mechanism::Aligned, 2, |numbers| {
                let sink = ShortLived(Duration::from_secs(timeout), CollectTransactions::default());
                numbers.transactional_sink("out", sink);
            })
        };
        let (long, short) = (of(602), of(601));
        assert_eq!((long.sinks[0].level, long.state), (Some(EXACTLY), EXACTLY));
        assert_eq!((short.sinks[0].level, short.state), (Some(Level::AtMostOnce), EXACTLY));
        assert!(short.because[0].contains("601s after it was prepared"), "{:?}", short.because);
    }

    #[derive(Clone)]
    struct ShortLived(Duration, CollectTransactions<u64>);

    impl TransactionalSink for ShortLived {
        type Record = u64;

        fn write(&mut self, id: TransactionId, records: Vec<u64>) -> Result<(), SinkError> {
            self.1.write(id, records)
        }

        fn prepare(&mut self, id: TransactionId) -> Result<(), SinkError> {
            self.1.prepare(id)
        }

        fn timeout(&self) -> Option<Duration> {
            Some(self.0)
        }

        fn commit(&mut self, id: TransactionId) -> Result<Committed, CommitError> {
            self.1.commit(id)
        }

        fn abort_dangling(&mut self) -> Result<(), SinkError> {
            self.1.abort_dangling()
        }
    }

    #[test]
    fn a_two_stage_sink_promises_what_a_two_phase_one_does() {
        for mechanism in [Mechanism::Aligned, Mechanism::Tracked] {
            let whole = claim(mechanism, 2, |numbers| {
                numbers.transactional_sink("out", CollectTransactions::default());
            });
            let staged = claim(mechanism, 2, |numbers| {
                numbers.two_stage_sink("out", CollectTransactions::default());
            });
            assert_eq!(staged, whole);
        }
    }

    #[derive(Clone)]
    struct Seen;

    impl KeyedProcess for Seen {
        type Key = u64;
        type In = u64;
        type State = ();
        type Out = u64;

        fn process(
            &mut self,
            number: u64,
            context: &mut KeyedContext<'_, u64, ()>,
            out: &mut impl Emit<u64>,
        ) {
            context.state().set(());
            out.emit(number);
        }

        fn is_idempotent(&self) -> bool {
            true
        }

        fn answers_each(&self) -> bool {
            true
        }

        fn rows_rest_on(&self) -> RowsRestOn {
            RowsRestOn::Nothing
        }
    }

    #[derive(Clone)]
    struct First;

    impl KeyedProcess for First {
        type Key = u64;
        type In = u64;
        type State = ();
        type Out = u64;

        fn process(
            &mut self,
            number: u64,
            context: &mut KeyedContext<'_, u64, ()>,
            out: &mut impl Emit<u64>,
        ) {
            if context.state().replace(()).is_none() {
                out.emit(number);
            }
        }

        fn is_idempotent(&self) -> bool {
            true
        }

        fn absorbs_repeats(&self) -> bool {
            true
        }
    }

    #[derive(Clone)]
    struct Clock;

    impl Operator for Clock {
        type In = u64;
        type Out = u64;

        fn process(&mut self, number: u64, out: &mut impl Emit<u64>) {
            out.emit(number);
        }

        fn traits(&self) -> OperatorTraits {
            OperatorTraits { varies: true, ..OperatorTraits::default() }
        }
    }
}
