//! `run`: a job on the real engine, over real files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use cofferdam::config::JobConfig;
use cofferdam::coordinator::CoordinatorNote;
use cofferdam::guarantee::SinkContract;
use cofferdam::id::CheckpointId;
use cofferdam::job::{Job, Left};
use cofferdam::message::Loss;
use cofferdam::runtime::{
    self, CheckpointStore, Claim, FileStore, JobHandle, Kept, MemoryStore, Resume, RunError,
    RunEvent, RunOptions, RunReport, StopAt,
};
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cli::barriers::with_default;
use crate::cli::compare::Pace;
use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{self, Description, Folders, Settled};
use crate::cli::mark::{self, History, Mark, OutputLock};
use crate::cli::mode::{Backend, CHECKPOINT_INTERVAL, EngineArgs, Mode};
use crate::cli::output::{Console, grouped, millis, seconds};
use crate::cli::requests::Clerk;
use crate::cli::shown::{Completed, completed};
use crate::cli::signals::stop_flag;
use crate::cli::state::refuse_old_state;
use crate::cli::values::{find_job, positive, positive_size};
use crate::jobs::{FileJob, Files, Output, Setup, Shape};

/// Run a job on the real engine
#[derive(Debug, Args)]
#[command(mut_arg(CHECKPOINT_INTERVAL, |arg| with_default(arg, "1s")))]
pub(crate) struct RunArgs {
    /// The job
    job: String,
    /// What it reads, file after file; left out for a job that makes its own input
    #[arg(long, value_name = "FILE", num_args = 1..)]
    input: Vec<PathBuf>,
    /// The folder that its sinks write into, or sqlite:FILE for tables in a database
    #[arg(long, value_name = "DIR|sqlite:FILE")]
    output: Output,
    /// Where to begin: latest (if any), never (at the start of the input), or the folder of a
    /// checkpoint or savepoint
    #[arg(long, value_name = "WHERE", value_parser = resume, default_value = "latest")]
    resume: Resume,
    /// How many records all sources together may read in a second
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<u64>,
    #[command(flatten)]
    savepoint: SavepointArgs,
    /// Threads that run tasks [default: one for each core]
    #[arg(long, value_name = "N", value_parser = positive_size)]
    workers: Option<usize>,
    /// Let each line say which source record it comes from
    #[arg(long, hide = true)]
    origins: bool,
    /// Give each record when it is due, as `compare` says it: RATE@NANOSECONDS since 1970
    #[arg(long, hide = true, conflicts_with = "rate")]
    pace: Option<Pace>,
    /// Where it is noted how many records were read
    #[arg(long, hide = true, requires = "pace")]
    pace_log: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Where a run stops, and what it goes on from.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Savepoints")]
struct SavepointArgs {
    /// Stop with a savepoint when so many source records are read over all subtasks, or at the end
    /// of the input
    #[arg(long, value_name = "N", value_parser = positive, requires = "savepoint")]
    stop_after: Option<u64>,
    /// The folder of the savepoint, which is made
    #[arg(long, value_name = "DIR", requires = "stop_after")]
    savepoint: Option<PathBuf>,
    /// End the data there: event-time timers fire, and nothing can go on from the savepoint
    #[arg(long, requires = "stop_after")]
    drain: bool,
    /// Whose the checkpoint or savepoint is that --resume names: claim moves it into the folder of
    /// this run's checkpoints, no-claim copies it [default: no-claim, if it lies in another folder]
    #[arg(long, value_enum, value_name = "MODE")]
    claim_mode: Option<ClaimMode>,
    /// Drop restored state that no operator of the job claims, instead of refusing it
    #[arg(long)]
    allow_non_restored: bool,
}

/// As [`Claim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ClaimMode {
    /// The run's: removed when a newer checkpoint takes its place
    Claim,
    /// Yours: never changed or needed
    NoClaim,
}

impl SavepointArgs {
    fn claim(&self, resume: &Resume) -> Result<Option<Claim>, Failure> {
        match (self.claim_mode, resume) {
            (None, _) => Ok(None),
            (Some(ClaimMode::Claim), Resume::From(_)) => Ok(Some(Claim::Run)),
            (Some(ClaimMode::NoClaim), Resume::From(_)) => Ok(Some(Claim::User)),
            (Some(_), Resume::Latest | Resume::Never) => Err(Failure::usage(
                "run",
                "--claim-mode is for a checkpoint or savepoint that --resume names: name it",
            )),
        }
    }

    fn stop_at(&self) -> Option<StopAt> {
        let (records, savepoint) = (self.stop_after?, self.savepoint.clone()?);
        Some(StopAt { records, savepoint, drains: self.drain })
    }

    fn left(&self) -> Left {
        if self.allow_non_restored { Left::Dropped } else { Left::Refused }
    }
}

#[derive(Serialize)]
struct Summary {
    schema: &'static str,
    job: &'static str,
    #[serde(flatten)]
    mode: Mode,
    records_in: u64,
    records_out: u64,
    checkpoints: u64,
    checkpoint_mean_ms: f64,
    checkpoint_max_ms: f64,
    /// The longest that one kept a task from its records.
    checkpoint_sync_max_ms: f64,
    /// Of all of them together.
    checkpoint_bytes: u64,
    restarts: u64,
    wall_s: f64,
    records_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<u64>,
}

pub(crate) fn run(args: &RunArgs, console: &Console) -> Result<Exit, Failure> {
    let job = find_job("run", &args.job)?;
    let mode = args.engine.mode.mode("run")?;
    args.engine.checkpoints.barriers.check("run", &[mode.mechanism])?;
    args.engine.state.check("run", mode.mechanism)?;
    args.engine.checkpoints.tell_unused(mode.mechanism, console);
    let claim = args.savepoint.claim(&args.resume)?;
    let kept = args.engine.checkpoints.kept();
    let setup = mode.setup(args.engine.mode.parallelism, args.engine.parameters.of(job)?);
    let interval = args.engine.checkpoints.interval;
    let mut config = JobConfig {
        checkpoint_interval: interval.unwrap_or(setup.config.checkpoint_interval),
        checkpoints_retained: args.engine.checkpoints.retain,
        state: args.engine.state.home,
        restart: args.engine.restarts.strategy,
        ..setup.config.clone()
    };
    args.engine.checkpoints.barriers.apply(&mut config);
    let files =
        Files { inputs: args.input.clone(), output: args.output.clone(), origins: args.origins };
    let setup = Setup { config, ..setup };
    let built = args.paced(job.over_files(&files, &setup)?);
    let start = args.start(&built.job, console, |output| {
        let Shape { parallelism, .. } = setup.shape;
        let state = args.engine.state.file(output).map(|file| (args.engine.state.home, file));
        Description::new(job, mode, parallelism, &setup.parameters, &args.input, output)
            .with_state(state)
    })?;
    if let (Some(checkpoints), Some(savepoint)) = (&start.folder, &args.savepoint.savepoint) {
        folder::refuse_among(checkpoints, savepoint)?;
    }
    let stop = stop_flag()?;
    let leaves = Leaves {
        folder: start.folder.clone(),
        output: args.output.clone(),
        sink: mode.sink,
        history: start.history.clone(),
    };
    let (handle, orders) = runtime::control();
    let clerk = start.clerk(handle, &args.output)?;
    let progress = console.spinner();
    let options = RunOptions {
        workers: args.workers.unwrap_or(RunOptions::default().workers),
        store: start.store.clone(),
        state_store: args.engine.state.open(&args.output, &start.history.state),
        resume: args.resume.clone(),
        records_per_second: args.rate,
        observer: observer(console, progress.clone(), leaves),
        stop,
        stop_at: args.savepoint.stop_at(),
        orders: Some(orders),
        left: args.savepoint.left(),
        snapshots: args.engine.checkpoints.snapshots(),
        compression: args.engine.checkpoints.compression(),
        kept,
        claim,
    };
    let report = runtime::run(&built.job, options);
    progress.finish_and_clear();
    clerk.into_iter().for_each(Clerk::end);
    let report = start.end(report, kept, mode.sink, &args.output)?;
    if let Some(savepoint) = &args.savepoint.savepoint {
        folder::leave_in_savepoint(savepoint, &start.described, &args.output)?;
        console.note(format!("the savepoint is in {}", savepoint.display()));
    }
    tell(&summary(job.name(), mode, &report, &built), start.is_anew, console);
    Ok(Exit::Done)
}

/// Where a run begins.
struct Start {
    store: Arc<dyn CheckpointStore>,
    /// The folder of the store, if it has one.
    folder: Option<PathBuf>,
    /// It begins at the start of the input.
    is_anew: bool,
    described: Description,
    history: History,
    /// Held until the run has ended.
    _lock: OutputLock,
}

impl Start {
    /// Leaves beside the checkpoints what a later run wants to know, or removes what was left there
    /// if they are not kept.
    fn end(
        &self,
        report: Result<RunReport, RunError>,
        kept: Kept,
        sink: SinkContract,
        output: &Output,
    ) -> Result<RunReport, Failure> {
        let Some(folder) = &self.folder else { return Ok(report?) };
        if !kept.after(&report) {
            folder::clear(folder)?;
            if report == Err(RunError::Stopped) {
                let text = "interrupted; the checkpoints are gone, as --keep-checkpoints says";
                return Err(Failure::again(Exit::Interrupted, text));
            }
            return Ok(report?);
        }
        let report = report?;
        let last = Completed::read(folder)?.unwrap_or_default().checkpoint;
        let left = completed((last, self.history.start), sink, output, true).leave(folder);
        left.map_err(|error| Failure::input(format!("{}: {error}", folder.display())))?;
        Ok(report)
    }

    /// Serves those who want savepoints of the run, if there is a place where they can ask.
    fn clerk(&self, handle: JobHandle, output: &Output) -> Result<Option<Clerk>, Failure> {
        let Some(folder) = self.folder.clone() else { return Ok(None) };
        let note = folder::savepoint_note(&folder)?;
        let (described, output) = (self.described.clone(), output.clone());
        let finish =
            move |savepoint: &Path| folder::leave_in_savepoint(savepoint, &described, &output);
        let clerk = Clerk::start(folder.clone(), handle, note, finish);
        let failed = |error| Failure::input(format!("{}: {error}", folder.display()));
        clerk.map(Some).map_err(failed)
    }
}

/// What a run leaves of each complete checkpoint.
struct Leaves {
    /// The folder of its checkpoints, if it has one.
    folder: Option<PathBuf>,
    output: Output,
    sink: SinkContract,
    history: History,
}

impl Leaves {
    fn leave(&self, checkpoint: CheckpointId) -> io::Result<()> {
        let mark = Mark { history: self.history.clone(), checkpoint: Some(checkpoint) };
        mark.leave_lightly(&self.output)?;
        let Some(folder) = &self.folder else { return Ok(()) };
        let at = (checkpoint, self.history.start);
        completed(at, self.sink, &self.output, false).leave(folder)
    }
}

impl RunArgs {
    /// The job at the pace that was asked for.
    fn paced(&self, built: FileJob) -> FileJob {
        match self.pace {
            Some(pace) => FileJob { job: pace.over(built.job, self.pace_log.as_deref()), ..built },
            None => built,
        }
    }

    /// Looks at whether this run may begin where it is told to, given what earlier ones left.
    fn start(
        &self,
        job: &Job,
        console: &Console,
        describe: impl FnOnce(&Output) -> Description,
    ) -> Result<Start, Failure> {
        let output = folder::prepare_output(&self.output)?;
        #[cfg(feature = "sqlite")]
        folder::refuse_foreign_table(&output, job)?;
        let described = describe(&output);
        if self.engine.checkpoints.backend == Backend::Memory {
            let lock = mark::lock(&output)?;
            let is_anew = !matches!(self.resume, Resume::From(_));
            folder::refuse_old_output(&self.output)?;
            refuse_old_state(self.engine.state.file(&self.output).as_ref())?;
            let history = History::begin();
            Mark { history: history.clone(), checkpoint: None }.leave(&self.output)?;
            let store = Arc::new(MemoryStore::with_limit(self.engine.checkpoints.memory_limit));
            return Ok(Start { store, folder: None, is_anew, described, history, _lock: lock });
        }
        let folder = self.engine.checkpoints.folder(&self.output);
        let store = FileStore::open(&folder)?;
        let lock = mark::lock(&output)?;
        let folders = Folders { checkpoints: &folder, output: &self.output, store: &store };
        let settled = folders.settle(job, &self.resume, &described, console)?;
        let Settled { is_anew, history } = settled;
        let (store, folder) = (Arc::new(store), Some(folder));
        Ok(Start { store, folder, is_anew, described, history, _lock: lock })
    }
}

fn resume(text: &str) -> Result<Resume, String> {
    match text {
        "latest" => Ok(Resume::Latest),
        "never" => Ok(Resume::Never),
        path => Ok(Resume::From(PathBuf::from(path))),
    }
}

/// Shows how far the run has come, says aloud what fails, and leaves what `leaves` says of each
/// complete checkpoint.
fn observer(
    console: &Console,
    progress: ProgressBar,
    leaves: Leaves,
) -> Box<dyn FnMut(RunEvent<'_>)> {
    let console = *console;
    let mut checkpoints = 0_u64;
    let mut last_cause = String::new();
    Box::new(move |event| match event {
        RunEvent::Progress { records_in, records_out } => progress.set_message(format!(
            "{} records in, {} out, {checkpoints} checkpoints",
            grouped(records_in),
            grouped(records_out)
        )),
        RunEvent::NotStored(text) => progress.suspend(|| console.explain(text)),
        RunEvent::Note(note) => {
            progress.suspend(|| tell_note(&console, note, &mut last_cause));
            if let CoordinatorNote::CheckpointCompleted { checkpoint, .. } = note {
                checkpoints += 1;
                if let Err(error) = leaves.leave(*checkpoint) {
                    let text = format!("{checkpoint} could not be noted: {error}");
                    progress.suspend(|| console.note(text));
                }
            }
        }
    })
}

/// A failure is told with the restart that follows it; if none does, it is the run's own error.
fn tell_note(console: &Console, note: &CoordinatorNote, last_cause: &mut String) {
    match note {
        CoordinatorNote::CheckpointTriggered(_) => {}
        CoordinatorNote::CheckpointCompleted { checkpoint, duration, finished } => {
            let end = if *finished { ", it covers the end of the input" } else { "" };
            console.explain(format!("{checkpoint} is complete after {duration:.1?}{end}"));
        }
        CoordinatorNote::CheckpointAborted { checkpoint, reason } => {
            console.explain(format!("{checkpoint} was aborted: {reason}"));
        }
        CoordinatorNote::AttemptNotStored { attempt, text } => {
            *last_cause = format!("the number of attempt {attempt} could not be stored: {text}");
        }
        CoordinatorNote::RecordsLost { loss, .. } => {
            let Loss { split, in_all, .. } = loss;
            console.note(format!("going on without {in_all} records of {split}, which are gone"));
        }
        CoordinatorNote::AttemptFailed { cause, .. } => *last_cause = cause.to_string(),
        CoordinatorNote::Restarting { delay, from, .. } => {
            let from = from.map_or("the start".to_owned(), |checkpoint| checkpoint.to_string());
            console.note(format!("restarting from {from} in {delay:?}, after {last_cause}"));
        }
    }
}

fn summary(job: &'static str, mode: Mode, report: &RunReport, built: &FileJob) -> Summary {
    let checksum = built.checksums.iter().map(|checksum| checksum()).reduce(u64::wrapping_add);
    let wall_s = report.wall.as_secs_f64();
    Summary {
        schema: "cofferdam.run/1",
        job,
        mode,
        records_in: report.records_in,
        records_out: report.records_out,
        checkpoints: report.checkpoints.count,
        checkpoint_mean_ms: millis(report.checkpoints.duration_mean()),
        checkpoint_max_ms: millis(report.checkpoints.duration_max),
        checkpoint_sync_max_ms: millis(report.checkpoints.sync_max),
        checkpoint_bytes: report.checkpoints.bytes,
        restarts: report.restarts,
        wall_s: seconds(report.wall),
        records_per_s: (report.records_in as f64 / wall_s.max(1e-9)).round(),
        checksum,
    }
}

fn tell(summary: &Summary, is_anew: bool, console: &Console) {
    if console.is_json() {
        return console.row(summary);
    }
    let Summary { job, mode, checkpoints, restarts, wall_s, .. } = summary;
    console.say(format!("{}  {mode}", console.paint.bold(job)));
    console.say(format!(
        "  {} records in, {} out, in {wall_s} s ({} a second)",
        grouped(summary.records_in),
        grouped(summary.records_out),
        grouped(summary.records_per_s as u64)
    ));
    let took = match checkpoints {
        0 => String::new(),
        _ => format!(
            " ({} ms each, records stood still for {} ms at the most)",
            summary.checkpoint_mean_ms, summary.checkpoint_sync_max_ms
        ),
    };
    console.say(format!("  checkpoints: {checkpoints}{took}, restarts: {restarts}"));
    if let Some(checksum) = summary.checksum {
        console.say(format!("  checksum {checksum}"));
    }
    if summary.records_in == 0 {
        console.say(match is_anew {
            true => "  the input holds no record",
            false => {
                "  nothing was left to do: an earlier run has come to the end of its data (all the \
                 input was read, or it was drained)"
            }
        });
    }
}
