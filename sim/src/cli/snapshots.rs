//! Looking into checkpoints and savepoints, and making others of them: `savepoint` and `state`.

use std::fs;
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use cofferdam::config::JobConfig;
use cofferdam::graph::VertexShape;
use cofferdam::guarantee::SinkContract;
use cofferdam::job::Job;
use cofferdam::runtime::{AfterSavepoint, FileStore, Savepoint, SavepointError};
use cofferdam::storage::CheckpointMetadata;
use serde::Serialize;
use serde_json::Value as Json;

use crate::cli::edit;
use crate::cli::exit::{Exit, Failure};
use crate::cli::folder;
use crate::cli::output::{Console, Paint, Painted, Table, grouped};
use crate::cli::readable::rows;
use crate::cli::requests::{Wanted, no_run};
use crate::cli::values::{find_job, interval};
use crate::jobs::{CaseData, Output, Parameters, Setup, Shape};

/// Look into savepoints and checkpoints, and make savepoints of them
#[derive(Debug, Args)]
pub(crate) struct SavepointArgs {
    #[command(subcommand)]
    command: SavepointCommand,
}

#[derive(Debug, Subcommand)]
enum SavepointCommand {
    /// List the savepoints and complete checkpoints in folders and those below them
    List {
        /// The folders
        #[arg(value_name = "DIR", required = true)]
        folders: Vec<PathBuf>,
    },
    /// Show what a savepoint or checkpoint was taken of
    Show {
        /// The folder of the savepoint, or of the checkpoint (chk-<number>)
        path: PathBuf,
    },
    /// Have a job that runs take a savepoint
    Take(TakeArgs),
    /// Make a savepoint of a checkpoint of a built-in job
    Convert {
        /// The folder of the checkpoint (chk-<number>) or savepoint
        path: PathBuf,
        /// The folder of the new savepoint, which is made
        savepoint: PathBuf,
    },
    /// Make a savepoint with the value of one key set or removed; the old one stays as it is
    Edit(EditArgs),
}

#[derive(Debug, Args)]
struct TakeArgs {
    /// The folder of the checkpoints of the run, or of its output if they lie there
    #[arg(long, value_name = "DIR")]
    job_folder: PathBuf,
    /// The folder of the savepoint, which is made
    savepoint: PathBuf,
    /// Stop the job there: all that came before is committed
    #[arg(long)]
    stop: bool,
    /// End its data there: event-time timers fire, and nothing can go on from the savepoint
    #[arg(long, requires = "stop")]
    drain: bool,
    /// How long to wait for it
    #[arg(long, value_name = "DURATION", value_parser = interval, default_value = "10m")]
    timeout: Duration,
}

#[derive(Debug, Args)]
struct EditArgs {
    /// The folder of the savepoint
    path: PathBuf,
    /// The folder of the new savepoint, which is made
    savepoint: PathBuf,
    /// The uid of the operator
    #[arg(long, value_name = "UID")]
    operator: String,
    /// The key, as `state show` prints it in JSON
    #[arg(long, value_name = "JSON", allow_negative_numbers = true)]
    key: String,
    /// The new value, in JSON; the key is added if it is not there
    #[arg(
        long,
        value_name = "JSON",
        allow_negative_numbers = true,
        required_unless_present = "remove"
    )]
    set: Option<String>,
    /// Remove the key with its value and timers
    #[arg(long, conflicts_with = "set")]
    remove: bool,
}

/// Show the state in a savepoint or checkpoint: keys, values, timers, positions, what is pending
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    #[command(subcommand)]
    command: StateCommand,
}

#[derive(Debug, Subcommand)]
enum StateCommand {
    /// Print all of it, a row each
    Show {
        /// The folder of the savepoint, or of the checkpoint (chk-<number>)
        path: PathBuf,
        /// Only the state of this operator
        #[arg(long, value_name = "UID")]
        operator: Option<String>,
    },
}

pub(crate) fn savepoint(args: &SavepointArgs, console: &Console) -> Result<Exit, Failure> {
    match &args.command {
        SavepointCommand::List { folders } => list(folders, console),
        SavepointCommand::Show { path } => show(path, console),
        SavepointCommand::Take(args) => take(args, console),
        SavepointCommand::Convert { path, savepoint } => {
            write(&open(path)?, path, savepoint, console)
        }
        SavepointCommand::Edit(args) => edit(args, console),
    }
}

pub(crate) fn state(args: &StateArgs, console: &Console) -> Result<Exit, Failure> {
    let StateCommand::Show { path, operator } = &args.command;
    let savepoint = open(path)?;
    let mut rows = rows(&savepoint).map_err(|text| input(path, text))?;
    if let Some(uid) = operator {
        rows.retain(|row| row.operator.as_ref() == Some(uid));
    }
    if console.is_json() {
        rows.iter().for_each(|row| console.row(row));
        console.row(&StateSummary { schema: "cofferdam.state/1", rows: rows.len() });
        return Ok(Exit::Done);
    }
    let columns = ["OPERATOR", "WHAT", "PLACE", "KEY", "VALUE"];
    let mut table = Table::under(console.paint, &columns);
    for row in &rows {
        let cells = row.cells();
        table.row(console.paint, cells.iter().map(|cell| (&**cell, Paint::plain as Painted)));
    }
    table.lines().for_each(|line| console.say(line));
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct StateSummary {
    schema: &'static str,
    rows: usize,
}

/// Reads a savepoint, or a checkpoint of a built-in job as one.
fn open(path: &Path) -> Result<Savepoint, Failure> {
    let read = match Savepoint::is_at(path) {
        true => Savepoint::read(path),
        false => Savepoint::read_checkpoint(path, job_of),
    };
    read.map_err(Failure::input)
}

/// The job that a checkpoint was taken of, over no input: its types read the state.
fn job_of(metadata: &CheckpointMetadata) -> Result<Job, String> {
    let job = find_job("savepoint", &metadata.job).map_err(|failure| failure.text)?;
    let widths = metadata.shape.vertices.iter().map(|vertex| vertex.parallelism as usize);
    let shape = Shape { parallelism: widths.max().unwrap_or(1), key_groups: None, first: None };
    let parameters = Parameters::of(job);
    let (sink, config) = (SinkContract::Plain, JobConfig::default());
    let data = CaseData { seed: 0, records: 0, lines: None };
    let case = job.case(&data, &Setup { shape, sink, config, parameters });
    case.map(|case| case.job).map_err(|error| error.to_string())
}

#[derive(Serialize)]
struct ListRow {
    kind: &'static str,
    path: String,
    job: String,
    checkpoint: u64,
    tasks: usize,
    bytes: u64,
    finished: bool,
}

#[derive(Serialize)]
struct ListSummary {
    schema: &'static str,
    found: usize,
}

fn list(folders: &[PathBuf], console: &Console) -> Result<Exit, Failure> {
    let mut found = Vec::new();
    for folder in folders {
        if !folder.is_dir() {
            return Err(input(folder, "it is not a folder"));
        }
        gather(folder, &mut found)?;
    }
    if console.is_json() {
        found.iter().for_each(|row| console.row(row));
        console.row(&ListSummary { schema: "cofferdam.savepoint/1", found: found.len() });
        return Ok(Exit::Done);
    }
    if found.is_empty() {
        console.say("no savepoint and no complete checkpoint is there");
        return Ok(Exit::Done);
    }
    let columns = ["PATH", "KIND", "JOB", "NUMBER", "TASKS", "BYTES"];
    let mut table = Table::under(console.paint, &columns);
    for row in &found {
        let ListRow { kind, path, job, checkpoint, tasks, bytes, .. } = row;
        let numbers = [checkpoint.to_string(), tasks.to_string(), grouped(*bytes)];
        let cells = [&**path, *kind, &**job, &numbers[0], &numbers[1], &numbers[2]];
        table.row(console.paint, cells.map(|cell| (cell, Paint::plain as Painted)));
    }
    table.lines().for_each(|line| console.say(line));
    Ok(Exit::Done)
}

/// Adds what lies in `folder` or below it, in the order of names.
fn gather(folder: &Path, found: &mut Vec<ListRow>) -> Result<(), Failure> {
    let kind = if Savepoint::is_at(folder) { "savepoint" } else { "checkpoint" };
    match Savepoint::metadata_at(folder).map_err(Failure::input)? {
        Some(metadata) => found.push(ListRow {
            kind,
            path: folder.display().to_string(),
            checkpoint: metadata.checkpoint.get(),
            tasks: metadata.tasks.len(),
            bytes: metadata.tasks.iter().map(|part| part.bytes).sum(),
            finished: metadata.finished,
            job: metadata.job,
        }),
        None => {
            let entries = fs::read_dir(folder).map_err(|error| input(folder, error))?;
            let mut below: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            below.sort();
            let mut below = below.iter().filter(|path| path.is_dir());
            below.try_for_each(|path| gather(path, found))?;
        }
    }
    Ok(())
}

#[derive(Serialize)]
struct ShowSummary {
    schema: &'static str,
    path: String,
    job: String,
    checkpoint: u64,
    attempt: u64,
    finished: bool,
    key_groups: u32,
    bytes: u64,
    vertices: Vec<VertexShape>,
}

fn show(path: &Path, console: &Console) -> Result<Exit, Failure> {
    let metadata = Savepoint::metadata_at(path).map_err(Failure::input)?;
    let Some(CheckpointMetadata { checkpoint, attempt, job, shape, tasks, finished, .. }) =
        metadata
    else {
        return Err(Failure::input(SavepointError::Missing(path.to_owned())));
    };
    let summary = ShowSummary {
        schema: "cofferdam.savepoint/1",
        path: path.display().to_string(),
        job,
        checkpoint: checkpoint.get(),
        attempt: attempt.get(),
        finished,
        key_groups: shape.key_groups,
        bytes: tasks.iter().map(|part| part.bytes).sum(),
        vertices: shape.vertices,
    };
    if console.is_json() {
        console.row(&summary);
        return Ok(Exit::Done);
    }
    let ShowSummary { job, attempt, key_groups, bytes, .. } = &summary;
    console.say(format!("{}  {checkpoint}, taken in attempt {attempt}", console.paint.bold(job)));
    let end = if finished { "; it covers the end of the input" } else { "" };
    console.say(format!("  {} bytes, {key_groups} key groups{end}", grouped(*bytes)));
    for vertex in &summary.vertices {
        console.say(format!("  {} x {}", vertex.uids.join(" -> "), vertex.parallelism));
    }
    Ok(Exit::Done)
}

/// Writes what was made of the checkpoint or savepoint at `path`, of which all else is true too.
fn write(
    savepoint: &Savepoint,
    path: &Path,
    folder: &Path,
    console: &Console,
) -> Result<Exit, Failure> {
    let note = folder::note_beside(path)?;
    savepoint.write(folder, note.as_ref()).map_err(Failure::input)?;
    console.note(format!("the savepoint is in {}", folder.display()));
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct TakeSummary<'a> {
    schema: &'static str,
    path: &'a Path,
    checkpoint: u64,
    stopped: bool,
}

fn take(args: &TakeArgs, console: &Console) -> Result<Exit, Failure> {
    let below = Output::Folder(args.job_folder.clone()).checkpoints();
    let folder = if below.is_dir() { &below } else { &args.job_folder };
    if !FileStore::is_used(folder) {
        return Err(no_run(folder));
    }
    let then = match (args.stop, args.drain) {
        (_, true) => AfterSavepoint::Drain,
        (true, false) => AfterSavepoint::Stop,
        (false, false) => AfterSavepoint::GoOn,
    };
    let savepoint = path::absolute(&args.savepoint);
    let savepoint = savepoint.map_err(|error| input(&args.savepoint, error))?;
    folder::refuse_among(folder, &savepoint)?;
    let checkpoint = Wanted { folder, savepoint, then, within: args.timeout }.ask()?;
    if console.is_json() {
        console.row(&TakeSummary {
            schema: "cofferdam.savepoint/1",
            path: &args.savepoint,
            checkpoint: checkpoint.get(),
            stopped: args.stop,
        });
    } else {
        let end = if args.stop { "; the job has stopped" } else { "" };
        console.say(format!("{checkpoint} is in {}{end}", args.savepoint.display()));
    }
    Ok(Exit::Done)
}

fn edit(args: &EditArgs, console: &Console) -> Result<Exit, Failure> {
    let mut savepoint = open(&args.path)?;
    let read = |text: &str, flag: &str| {
        serde_json::from_str(text)
            .map_err(|error| Failure::usage("savepoint edit", format!("--{flag} {text}: {error}")))
    };
    let key: Json = read(&args.key, "key")?;
    let value = args.set.as_ref().map(|text| read(text, "set")).transpose()?;
    edit::edit(&mut savepoint, &args.operator, &key, value.as_ref())
        .map_err(|text| input(&args.path, format!("the operator '{}': {text}", args.operator)))?;
    // What no run could restore is of no use, and the old one may be gone when a run says so.
    let job = job_of(&savepoint.metadata).map_err(|text| input(&args.path, text))?;
    savepoint.check_for(&job, &format!("--set {}", args.set.as_deref().unwrap_or_default()))?;
    write(&savepoint, &args.path, &args.savepoint, console)
}

fn input(path: &Path, text: impl std::fmt::Display) -> Failure {
    Failure::input(format!("{}: {text}", path.display()))
}
