//! The judges. Each looks at what can be seen of a run from outside, one property a file, and knows
//! neither machines nor the world: a judge must not share a bug with the judged. What has to be
//! known about the job comes as plain data in [`Facts`].

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a judge picks the few events that its property speaks of: a new kind of event is no \
              reason to touch the other judges"
)]

mod by_attempt;
mod c01_channel_order;
mod c02_border;
mod c03_consistent_cut;
mod c03_in_flight;
mod c07_recovery;
mod c10_loss;
mod c10_output;
mod c10_state;
mod c13_progress;
mod c13_two_phase;
mod c13_write_ahead;
mod c14_liveness;
mod c14_prompt;
mod completions;
mod covered;
mod delivery;
mod durable_before_ack;
mod given;
mod judgement;
mod seen;
mod split_order;
#[cfg(test)]
mod testing;
mod values;

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use cofferdam::guarantee::{Level, Mechanism, SinkContract};
use cofferdam::id::{AttemptId, TaskId};
use cofferdam::time::Instant;
use cofferdam::trace::{Origin, RecordId, Traced};

pub(crate) use self::delivery::are_same_rows;
pub use self::given::{Fired, Given};
pub use self::judgement::{Judgement, Verdict, judge, judge_claims};
pub use self::seen::{Levels, Seen};

/// A judge.
pub struct Oracle {
    /// What reports call it.
    pub name: &'static str,
    /// What it says, with its number in ORACLES.
    pub property: &'static str,
    /// Everything that speaks against it.
    pub judge: fn(&Facts<'_>) -> Vec<Finding>,
    /// What it is asked about.
    pub scope: Scope,
}

/// What a judge is asked about, where a job goes on in another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The run as a whole.
    Run,
    /// Each layout on its own: it speaks of channels or snapshots, which are numbered anew.
    Layout,
    /// The last layout: what an earlier one would have come to, nobody knows.
    LastLayout,
}

/// Every judge: rules of the protocol first, then what came of it.
pub const ORACLES: &[Oracle] = &[
    c01_channel_order::ORACLE,
    c02_border::ORACLE,
    c03_consistent_cut::ORACLE,
    c03_in_flight::ORACLE,
    durable_before_ack::ORACLE,
    c07_recovery::ORACLE,
    split_order::ORACLE,
    c13_progress::ORACLE,
    c13_two_phase::ORACLE,
    c13_write_ahead::ORACLE,
    c14_liveness::ORACLE,
    c14_prompt::ORACLE,
    c10_loss::ORACLE,
    c10_state::ORACLE,
    c10_output::ORACLE,
    values::ORACLE,
];

/// What is judged: a run from its beginning to its end, and what ought to have come of it.
#[derive(Clone)]
pub struct Facts<'a> {
    /// What happened, in order.
    pub trace: &'a [Traced],
    /// The same without what was sent and received on channels, which is most of it.
    pub control: &'a [Traced],
    /// Sender and receiver of each channel, by channel.
    pub channels: &'a [(TaskId, TaskId)],
    /// How many tasks there are; those of the first layout.
    pub tasks: usize,
    /// The layouts of the job, one behind the other.
    pub layouts: &'a [Layout],
    /// How the guarantee is reached.
    pub mechanism: Mechanism,
    /// What the job itself promises of its state, whatever is claimed.
    pub state_promise: Level,
    /// The claim for the state.
    pub state_claim: Level,
    /// The claim for what sinks show, weakest sink.
    pub output_claim: Option<Level>,
    /// Every operator with state says that a record that is processed again changes nothing.
    pub state_is_idempotent: bool,
    /// The run came to its end: faults have stopped and all input is drained.
    pub is_finished: bool,
    /// When faults stopped; nothing was broken on purpose from then on.
    pub faults_stop: Instant,
    /// How long the coordinator's trigger is under way to a source at the most.
    pub trigger_delay_max: Duration,
    /// How many checkpoints may be in flight.
    pub concurrent_max: usize,
    /// Why the job gave up, if it did.
    pub failure: Option<String>,
    /// What is in the state at the end.
    pub state: StateFacts<'a>,
    /// What the sinks show at the end.
    pub sinks: &'a [SinkFacts<'a>],
    /// Every source record, with how often a run without failures takes it into state and how many
    /// rows it triggers itself.
    pub records: &'a [(RecordId, u32, u32)],
    /// Whether the final state is that of the whole input, as soon as a judge has asked.
    pub is_state_right: OnceCell<bool>,
}

/// Tasks and channels of a job.
#[derive(Clone, Debug)]
pub struct Layout {
    /// As [`Facts::channels`].
    pub channels: Vec<(TaskId, TaskId)>,
    /// How many tasks there are.
    pub tasks: usize,
}

/// The state of a job at its end.
#[derive(Clone)]
pub struct StateFacts<'a> {
    /// What each attempt had taken into its state when it ended, the last one at the end of the
    /// run.
    pub incarnations: &'a [(AttemptId, Vec<AppliedFact>)],
    /// The cells, by operator and encoded key.
    pub cells: &'a Cells,
    /// The cells of the reference for the whole input.
    pub expected: &'a Cells,
    /// The cells of the reference for just what the last incarnation has taken in; none if the
    /// reference can not say, or if the claim asks for the whole input and the cells are those of
    /// the whole input.
    pub expected_of_applied: Option<&'a Cells>,
}

/// Encoded values by encoded key, by operator; one without any is absent.
pub type Cells = BTreeMap<String, Table>;

/// Encoded values by encoded key.
pub type Table = BTreeMap<Vec<u8>, Vec<u8>>;

/// A record that was taken into a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedFact {
    /// The record.
    pub origin: Origin,
    /// The cell.
    pub cell: u64,
}

/// One sink at the end.
pub struct SinkFacts<'a> {
    /// The sink.
    pub uid: &'a str,
    /// What it promises.
    pub contract: SinkContract,
    /// Every visible row, in the order of becoming visible within a subtask.
    pub rows: &'a [RowFact<'a>],
    /// Every row that the reference has, for the whole input, in no order.
    pub expected: &'a [&'a [u8]],
    /// The reference's last row of each key, for the whole input.
    pub expected_table: &'a Table,
    /// Every row that the reference has for just what one attempt has taken in, by attempt;
    /// only for at-most-once, and empty if the reference can not say.
    pub expected_of_attempt: &'a BTreeMap<AttemptId, Vec<&'a [u8]>>,
    /// What the state has given the keys at which the table is not the reference's; those of which
    /// nobody can say it are left out.
    pub given: &'a BTreeMap<Vec<u8>, Given>,
    /// Likewise of rows that timers fire, if they are not the reference's.
    pub fired: Option<&'a Fired>,
}

/// A visible row.
#[derive(Clone, Copy, Debug)]
pub struct RowFact<'a> {
    /// Where it comes from.
    pub origin: Origin,
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// The row.
    pub bytes: &'a [u8],
    /// Its key, where rows replace each other.
    pub key: Option<&'a [u8]>,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Anomaly {
    /// A record has no effect.
    Lost,
    /// A record has its effect more than once.
    Duplicated,
    /// There is something that no record explains.
    Unexpected,
    /// A value is not what the records give.
    Wrong,
    /// The job does not come to its end.
    Stuck,
    /// A rule of the protocol was broken, whatever came of it.
    Protocol,
}

/// Whose promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The state's.
    State,
    /// The output's.
    Output,
}

impl Subject {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Output => "output",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The judge: a name of [`ORACLES`].
    pub oracle: &'static str,
    /// Whose promise it concerns.
    pub subject: Subject,
    /// What went wrong.
    pub anomaly: Anomaly,
    /// Whether the claim allows it. What is allowed is counted and breaks nothing.
    pub allowed: bool,
    /// The source record that it concerns, if it is one.
    pub record: Option<RecordId>,
    /// The finding in a sentence.
    pub text: String,
}

impl Anomaly {
    /// Whether a claim allows it.
    pub const fn is_allowed(self, claim: Level) -> bool {
        match self {
            Self::Lost => claim.may_lose(),
            Self::Duplicated => claim.may_duplicate(),
            Self::Unexpected | Self::Wrong | Self::Stuck | Self::Protocol => false,
        }
    }
}

impl Finding {
    /// A broken rule of the protocol: no claim allows that.
    fn protocol(oracle: &'static str, subject: Subject, text: String) -> Self {
        let anomaly = Anomaly::Protocol;
        Self { oracle, subject, anomaly, allowed: false, record: None, text }
    }
}
