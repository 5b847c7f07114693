//! The built-in jobs: what every command can run, simulate and judge without a line of user code.
//! They know neither the simulator nor the runtime: a job is a graph over sources and sinks that it
//! is given.

mod disorder;
mod ends;
#[cfg(feature = "cli")]
mod files;
mod keyed_count;
mod lines;
pub mod nexmark;
#[cfg(feature = "cli")]
mod output;
mod parameters;
mod random_graph;
pub mod row;
mod running;
pub mod seconds;
pub mod smoke_alarm;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod sums;
pub(crate) mod timed;
pub mod visits;
mod wordcount;

use std::sync::Arc;

use cofferdam::config::JobConfig;
use cofferdam::connector::memory::Range;
use cofferdam::element::Record;
use cofferdam::guarantee::SinkContract;
use cofferdam::id::VertexId;
use cofferdam::job::{GraphError, Job};
use cofferdam::state::codec::{self, DecodeError};
use cofferdam::state::key_group::KeyGroupCount;

use crate::reference::Reference;

#[cfg(feature = "cli")]
pub use files::{FileJob, Files};
pub use lines::Format;
#[cfg(feature = "cli")]
pub use output::Output;
#[cfg(feature = "cli")]
pub(crate) use output::SQLITE;
pub use parameters::{Parameter, Parameters, parse_count, parse_duration};

/// A job that every command knows by name.
pub trait BuiltinJob: Sync {
    /// The name that users write.
    fn name(&self) -> &'static str;

    /// What it does, in one line.
    fn about(&self) -> &'static str;

    /// What can be set.
    fn parameters(&self) -> &'static [Parameter] {
        &[]
    }

    /// What can be set as well where its input lies in memory.
    fn case_parameters(&self) -> &'static [Parameter] {
        &[]
    }

    /// What its input files hold; none if it makes its own input.
    fn reads(&self) -> Option<Format> {
        None
    }

    /// Whether records of several tasks meet in one: if not, there is nothing to align.
    fn merges(&self) -> bool {
        true
    }

    /// The JSON of a row of the sink `uid`, given in the checkpoint encoding.
    ///
    /// # Errors
    /// If the bytes are no row of that sink.
    fn row_json(&self, uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError>;

    /// The job over an input in memory, with its reference.
    ///
    /// # Errors
    /// If a parameter or a line of the input is wrong, or the graph can not work.
    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError>;

    /// The job over real files.
    ///
    /// # Errors
    /// If a parameter is wrong, an input file is missing or not wanted, or the graph can not work.
    /// What is wrong inside a file shows when it is read.
    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError>;
}

/// How a job is put together in one run. The mechanism stands in `config`.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How the graph is laid out.
    pub shape: Shape,
    /// What its sinks promise.
    pub sink: SinkContract,
    /// Checkpoints and restarts.
    pub config: JobConfig,
    /// The job's own parameters.
    pub parameters: Parameters,
}

/// How a graph is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Subtasks of each operator.
    pub parallelism: usize,
    /// The number of key groups; by default it follows from the parallelism.
    pub key_groups: Option<KeyGroupCount>,
    /// The parallelism that the job had at first, if it goes on in another layout: what comes of a
    /// record stays the same.
    pub first: Option<usize>,
}

/// What the input of a case is made from.
#[derive(Clone, Debug)]
pub struct CaseData {
    /// Where everything that is drawn comes from.
    pub seed: u64,
    /// How many records over all sources.
    pub records: usize,
    /// The lines of a user's file, with the header if there is one. Jobs without a file ignore it.
    /// If there are not exactly `records` of them, they are taken in turn from a drawn start on.
    pub lines: Option<Arc<[String]>>,
}

/// A job over an input in memory, and what must come of it.
pub struct Case {
    /// The job.
    pub job: Job,
    /// Its reference.
    pub reference: Box<dyn Reference>,
    /// The inputs, one a source; [`crate::reference::RecordId::source`] counts them.
    pub inputs: Vec<CaseInput>,
}

/// The input of one source of a case.
pub struct CaseInput {
    /// The vertex that begins with the source.
    pub vertex: VertexId,
    /// How many records it has.
    pub records: u64,
    /// The record at an offset as people read it.
    pub text: Box<dyn Fn(u64) -> String + Send + Sync>,
    /// The offset of the record that stands at an encoded cursor; those behind it in the same read
    /// follow one by one.
    pub offset_at: OffsetAt,
}

/// Tells an offset from an encoded cursor.
pub type OffsetAt = Arc<dyn Fn(&[u8]) -> u64 + Send + Sync>;

impl CaseInput {
    /// The inputs of a job whose sources read `lists`, in the order of the sources. `text` is a
    /// record as people read it.
    pub(crate) fn of<T: Record>(
        job: &Job,
        lists: Vec<Arc<Vec<T>>>,
        text: fn(&T) -> String,
    ) -> Vec<Self> {
        let sources = job.graph().vertices().iter().enumerate().filter(|(_, v)| v.is_source);
        let inputs = sources.zip(lists).map(|((vertex, _), list)| Self {
            vertex: VertexId::new(vertex as u32),
            records: list.len() as u64,
            text: Box::new(move |offset| text(&list[offset as usize])),
            offset_at: Arc::new(offset_at),
        });
        inputs.collect()
    }
}

/// Why a built-in job can not be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The input is wrong; the text names the line.
    #[error("{0}")]
    Input(String),
    /// A parameter that the job does not have.
    #[error("job '{job}' has no parameter --{flag}")]
    UnknownParameter {
        /// The job.
        job: &'static str,
        /// The parameter.
        flag: String,
    },
    /// A parameter with a value that can not be.
    #[error("--{flag} {value}: {reason}")]
    Parameter {
        /// The parameter.
        flag: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A job that runs on the simulator only.
    #[error("job '{0}' has no input but what is drawn from a seed: it can only be simulated")]
    SimulatedOnly(&'static str),
    /// An operator or a source of a user's own job panicked.
    #[error("the job panicked {}: {text}", match seed {
        Some(seed) => format!("in the run of seed {seed}"),
        None => "in a run without faults".to_owned(),
    })]
    Panicked {
        /// The seed of the run; none if there were no faults in it.
        seed: Option<u64>,
        /// What the panic said.
        text: String,
    },
    /// The graph can not work.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// Every built-in job, in the order in which they are listed for people.
pub fn all() -> &'static [&'static dyn BuiltinJob] {
    &[
        &wordcount::WordCount,
        &keyed_count::KeyedCount,
        &sums::RollingSum,
        &smoke_alarm::SmokeAlarm,
        &visits::Visits,
        &sums::AdBilling,
        &sums::Seen,
        &sums::Max,
        &timed::ByTime::<timed::Windows>::NEW,
        &timed::ByTime::<timed::IntervalJoin>::NEW,
        &timed::ByTime::<timed::Enrich>::NEW,
        &nexmark::Nexmark::<nexmark::PassThrough>::NEW,
        &nexmark::Nexmark::<nexmark::CurrencyConversion>::NEW,
        &nexmark::Nexmark::<nexmark::Selection>::NEW,
        &nexmark::Nexmark::<nexmark::LocalItems>::NEW,
        &nexmark::Nexmark::<nexmark::CategoryPrices>::NEW,
        &nexmark::Nexmark::<nexmark::HotItems>::NEW,
        &nexmark::Nexmark::<nexmark::SellerPrices>::NEW,
        &nexmark::Nexmark::<nexmark::HighestBids>::NEW,
        &nexmark::Nexmark::<nexmark::NewUsers>::NEW,
        &random_graph::RandomGraph,
    ]
}

/// The job with this name.
pub fn find(name: &str) -> Option<&'static dyn BuiltinJob> {
    all().iter().copied().find(|job| job.name() == name)
}

/// The cursor of a source in memory is a range of offsets.
fn offset_at(cursor: &[u8]) -> u64 {
    let range: Range = codec::decode(cursor).expect("the cursor of a source in memory");
    range.next
}
