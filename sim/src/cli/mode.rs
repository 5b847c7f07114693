//! The flags that name a mode, and what they come to together.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use cofferdam::config::JobConfig;
use cofferdam::guarantee::{Guarantee, Mechanism, SinkContract};
use cofferdam::job::Job;
use cofferdam::runtime::{Kept, Snapshots};
use cofferdam::state::codec::Compression;
use serde::{Deserialize, Serialize};

use crate::cli::barriers::{BarrierArgs, with_default};
use crate::cli::exit::Failure;
use crate::cli::output::Console;
use crate::cli::state::StateArgs;
use crate::cli::values::{
    JobParameters, Restarts, interval, positive, positive_size, restarts, word,
};
use crate::jobs::{BuiltinJob, CaseData, JobError, Output, Parameters, Setup, Shape};

/// The flags of a mode that runs with a given parallelism.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Mode")]
pub(crate) struct ModeArgs {
    #[command(flatten)]
    level: LevelArgs,
    /// Subtasks of each operator
    #[arg(long, value_name = "N", value_parser = positive_size, default_value = "2")]
    pub(crate) parallelism: usize,
}

/// The flags of a mode.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Mode")]
pub(crate) struct LevelArgs {
    /// How often each source record may count
    #[arg(
        long,
        value_name = "LEVEL",
        value_parser = word::<Guarantee>(),
        default_value = "exactly-once"
    )]
    guarantee: Guarantee,
    /// How the guarantee is reached; analyze --matrix shows what goes with what [default: none for
    /// at-most-once, tracked for at-least-once, aligned for exactly-once]
    #[arg(long, value_parser = word::<Mechanism>())]
    mechanism: Option<Mechanism>,
    /// What the sinks promise about their writes [default: two-phase for exactly-once, else plain]
    #[arg(long, value_parser = word::<SinkContract>())]
    sink: Option<SinkContract>,
}

/// How a job is run on the real engine.
#[derive(Clone, Debug, Args)]
pub(crate) struct EngineArgs {
    #[command(flatten)]
    pub(crate) mode: ModeArgs,
    #[command(flatten)]
    pub(crate) checkpoints: CheckpointArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// What follows a failure that another attempt may get past: none, fixed:N:DELAY,
    /// exponential:FIRST:MAX:QUIET or rate:N:INTERVAL:DELAY
    ///
    /// none: the job fails
    ///
    /// fixed: it is restarted after DELAY, at most N times until a checkpoint completes
    ///
    /// exponential: it always is, after FIRST, then twice that, up to MAX, and after FIRST again
    /// when it ran for QUIET
    ///
    /// rate: it is, after DELAY, unless it fails more than N times within INTERVAL
    #[arg(
        long,
        help_heading = "Restarts",
        value_name = "STRATEGY",
        value_parser = restarts,
        default_value = "fixed:3:100ms"
    )]
    pub(crate) restarts: Restarts,
    #[command(flatten)]
    pub(crate) parameters: JobParameters,
}

/// When checkpoints are taken and where they go.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Checkpoints",
    mut_arg("alignment_timeout", |arg| with_default(arg, "100ms")),
    mut_arg("concurrent_checkpoints", |arg| with_default(arg, "1"))
)]
pub(crate) struct CheckpointArgs {
    /// The time between two checkpoints
    // Each command has a default of its own.
    #[arg(id = CHECKPOINT_INTERVAL, long, value_name = "DURATION", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// Their folder [default: OUTPUT/.checkpoints, or FILE.checkpoints beside a database]
    #[arg(long, value_name = "DIR")]
    checkpoints: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) barriers: BarrierArgs,
    /// How many complete ones are kept
    #[arg(long, value_name = "N", value_parser = positive_size, default_value = "1")]
    pub(crate) retain: usize,
    /// When they are left behind by a run that ends; one that is killed leaves them
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = KeptArg::Always)]
    keep_checkpoints: KeptArg,
    /// Where they lie
    #[arg(long, value_enum, default_value_t = Backend::Fs)]
    pub(crate) backend: Backend,
    /// How many bytes of checkpoints --backend memory holds, the one that is taken among them
    #[arg(long, value_name = "BYTES", value_parser = positive, default_value = "1G")]
    pub(crate) memory_limit: u64,
    /// Who encodes and writes a task's part of a checkpoint
    #[arg(long, value_enum, default_value_t = SnapshotArg::Async)]
    snapshots: SnapshotArg,
    /// Whether tasks' parts of checkpoints are compressed
    #[arg(long, value_enum, default_value_t = CompressionArg::None)]
    compression: CompressionArg,
}

/// As [`Kept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KeptArg {
    /// Whatever its end is: started again, it goes on, or finds its work done
    Always,
    /// When it was interrupted, or failed
    OnCancel,
    /// When it failed
    OnFailure,
    /// Never
    Never,
}

/// As [`Snapshots`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SnapshotArg {
    /// Another thread, while the task goes on with its records and copies what it changes
    Async,
    /// The task, which stops until its part is stored
    Sync,
}

/// As [`Compression`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompressionArg {
    /// Written as they are
    None,
    /// By LZ4: fewer bytes for some more work
    Lz4,
}

/// The name of a flag whose default each command gives.
pub(crate) const CHECKPOINT_INTERVAL: &str = "checkpoint-interval";

/// What keeps checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// Gone with the process
    Memory,
    /// Files
    Fs,
}

impl CheckpointArgs {
    /// Whether checkpoints are taken on the way.
    pub(crate) fn go_by_interval(mechanism: Mechanism) -> bool {
        mechanism.takes_checkpoints() && !mechanism.awaits_end()
    }

    /// Tells of a folder that nothing will lie in, and of an interval that nothing goes by.
    pub(crate) fn tell_unused(&self, mechanism: Mechanism, console: &Console) {
        if self.interval.is_some() && !Self::go_by_interval(mechanism) {
            console.note(format!(
                "--checkpoint-interval: nothing goes by it, for --mechanism {mechanism} takes no \
                 checkpoints on the way"
            ));
        }
        if self.backend == Backend::Memory && self.checkpoints.is_some() {
            console.note("--checkpoints: nothing is put there, for --backend is memory");
        }
    }

    /// The flags that torture hands on, each with its value.
    pub(crate) fn words(&self) -> [(&'static str, String); 3] {
        let snapshots = match self.snapshots {
            SnapshotArg::Async => "async",
            SnapshotArg::Sync => "sync",
        };
        let compression = match self.compression {
            CompressionArg::None => "none",
            CompressionArg::Lz4 => "lz4",
        };
        [
            ("--retain", self.retain.to_string()),
            ("--snapshots", snapshots.to_owned()),
            ("--compression", compression.to_owned()),
        ]
    }

    pub(crate) fn compression(&self) -> Compression {
        match self.compression {
            CompressionArg::None => Compression::None,
            CompressionArg::Lz4 => Compression::Lz4,
        }
    }

    pub(crate) fn kept(&self) -> Kept {
        match self.keep_checkpoints {
            KeptArg::Always => Kept::Always,
            KeptArg::OnCancel => Kept::OnCancel,
            KeptArg::OnFailure => Kept::OnFailure,
            KeptArg::Never => Kept::Never,
        }
    }

    pub(crate) fn snapshots(&self) -> Snapshots {
        match self.snapshots {
            SnapshotArg::Async => Snapshots::Async,
            SnapshotArg::Sync => Snapshots::Sync,
        }
    }

    /// The folder of the checkpoints of a run that writes into `output`.
    pub(crate) fn folder(&self, output: &Output) -> PathBuf {
        self.checkpoints.clone().unwrap_or_else(|| output.checkpoints())
    }
}

/// A guarantee with how it is reached and what the sinks promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mode {
    pub(crate) guarantee: Guarantee,
    pub(crate) mechanism: Mechanism,
    pub(crate) sink: SinkContract,
}

impl ModeArgs {
    /// As [`LevelArgs::mode`].
    pub(crate) fn mode(&self, command: &str) -> Result<Mode, Failure> {
        self.level.mode(command)
    }
}

impl LevelArgs {
    /// The mode, with the defaults of the guarantee; `command` is the one that asks.
    pub(crate) fn mode(&self, command: &str) -> Result<Mode, Failure> {
        let guarantee = self.guarantee;
        let mode = Mode {
            guarantee,
            mechanism: self.mechanism.unwrap_or(guarantee.default_mechanism()),
            sink: self.sink.unwrap_or(guarantee.default_sink()),
        };
        match mode.refusal() {
            Some(reason) => Err(Failure::usage(command, reason)),
            None => Ok(mode),
        }
    }
}

impl Mode {
    /// Every mode that exists.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::every().filter(|mode| mode.refusal().is_none())
    }

    /// Every combination of words, whether its parts go together or not.
    pub(crate) fn every() -> impl Iterator<Item = Self> {
        let mechanisms = Guarantee::ALL
            .iter()
            .flat_map(|guarantee| Mechanism::ALL.iter().map(|mechanism| (*guarantee, *mechanism)));
        mechanisms.flat_map(|(guarantee, mechanism)| {
            SinkContract::ALL.iter().map(move |sink| Self { guarantee, mechanism, sink: *sink })
        })
    }

    /// Why the parts do not go together, if they do not.
    pub(crate) fn refusal(self) -> Option<String> {
        let Self { guarantee, mechanism, sink } = self;
        if mechanism.guarantee() != guarantee {
            return Some(format!(
                "--mechanism {mechanism} reaches {}, not {guarantee}: leave it out or add \
                 --guarantee {}",
                mechanism.guarantee(),
                mechanism.guarantee()
            ));
        }
        if sink.awaits_completion() && !mechanism.restores() {
            return Some(format!(
                "--sink {sink} shows rows when a checkpoint completes, and --mechanism {mechanism} \
                 takes none: use --sink plain or another mechanism"
            ));
        }
        None
    }

    /// How a job is put together in this mode.
    pub(crate) fn setup(self, parallelism: usize, parameters: Parameters) -> Setup {
        Setup {
            shape: Shape { parallelism, key_groups: None, first: None },
            sink: self.sink,
            config: JobConfig { mechanism: self.mechanism, ..JobConfig::default() },
            parameters,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.guarantee, self.mechanism, self.sink)
    }
}

/// The job over a few drawn records: enough to look at its graph.
pub(crate) fn sample(job: &dyn BuiltinJob, setup: &Setup, seed: u64) -> Result<Job, JobError> {
    let data = CaseData { seed, records: 16, lines: None };
    Ok(job.case(&data, setup)?.job)
}
