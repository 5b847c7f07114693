//! What a run leaves beside its checkpoints, so that no later run takes them for its own: which job
//! it was, in which mode, with which parameters, over which files, and what they held.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};

use cofferdam::connector::file::Fingerprint;
use cofferdam::guarantee::{SinkContract, StateHome};
use cofferdam::job::Job;
use cofferdam::runtime::{self, CheckpointStore, Resume, Savepoint};
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
use crate::cli::database;
use crate::cli::exit::Failure;
use crate::cli::mode::Mode;
use crate::cli::output::Console;
use crate::cli::shown::{Completed, extents, first_row, refuse_rewind, rows};
use crate::cli::state::refuse_old_state;
use crate::jobs::{BuiltinJob, Output, Parameters, SQLITE};

/// What has to be the same for a run to go on from another's checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    job: String,
    #[serde(flatten)]
    mode: Mode,
    parallelism: usize,
    parameters: Vec<(String, String)>,
    input: Vec<PathBuf>,
    output: String,
    /// Where keyed state lives, and the file of its store; none if it lives in the tasks.
    #[serde(default)]
    state: Option<(StateHome, PathBuf)>,
}

impl Description {
    /// `output` is what [`prepare_output`] gives.
    pub(crate) fn new(
        job: &dyn BuiltinJob,
        mode: Mode,
        parallelism: usize,
        parameters: &Parameters,
        input: &[PathBuf],
        output: &Output,
    ) -> Self {
        let owned = |(flag, value): (&str, &str)| (flag.to_owned(), value.to_owned());
        let absolute = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        Self {
            job: job.name().to_owned(),
            mode,
            parallelism,
            parameters: parameters.iter().map(owned).collect(),
            input: input.iter().map(absolute).collect(),
            output: output.to_string(),
            state: None,
        }
    }

    /// Whether a run that is described like this may go on where one has stopped that was described
    /// `before`: all is the same but for the parallelism, which may change where state can be dealt
    /// out anew.
    fn may_follow(&self, before: &Self) -> bool {
        // A table in files has a file for each subtask, which knows its own keys only.
        let is_table_in_files =
            self.mode.sink == SinkContract::Idempotent && !self.output.starts_with(SQLITE);
        let is_dealt_out =
            self.mode.mechanism.takes_checkpoints() && self.state.is_none() && !is_table_in_files;
        let parallelism = if is_dealt_out { before.parallelism } else { self.parallelism };
        *before == Self { parallelism, ..self.clone() }
    }

    /// With keyed state outside of the tasks, in this file.
    pub(crate) fn with_state(self, state: Option<(StateHome, PathBuf)>) -> Self {
        Self { state, ..self }
    }

    /// The first thing in which `self` differs from what was there `before`.
    fn difference(&self, before: &Self) -> String {
        let mut pairs = before.texts().into_iter().zip(self.texts());
        let pair = pairs.find(|(before, now)| before != now);
        let (before, now) = pair.unwrap_or_else(|| ("other parameters".into(), "these".into()));
        format!("{before}, not with {now}")
    }

    /// Every part as on a command line.
    fn texts(&self) -> Vec<String> {
        let input: Vec<_> = self.input.iter().map(|path| path.to_string_lossy()).collect();
        let mut texts = vec![
            format!("job {}", self.job),
            format!("--guarantee {}", self.mode.guarantee),
            format!("--mechanism {}", self.mode.mechanism),
            format!("--sink {}", self.mode.sink),
            format!("--parallelism {}", self.parallelism),
            format!("--input {}", input.join(" ")),
            format!("--output {}", self.output),
        ];
        texts.push(match &self.state {
            None => format!("--state {}", StateHome::Heap),
            Some((home, file)) => {
                format!("--state {home} --state-store sqlite:{}", file.display())
            }
        });
        texts.extend(self.parameters.iter().map(|(flag, value)| format!("--{flag} {value}")));
        texts
    }
}

/// The description with what the input files held.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Left {
    #[serde(flatten)]
    description: Description,
    contents: Vec<Fingerprint>,
    /// What was shown when a savepoint was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shown: Vec<(String, u64)>,
}

/// The folders of a run, and the store in the one of its checkpoints, which is locked for it.
pub(crate) struct Folders<'a> {
    pub(crate) checkpoints: &'a Path,
    pub(crate) output: &'a Output,
    pub(crate) store: &'a dyn CheckpointStore,
}

impl Folders<'_> {
    /// Checks that `job`, a run that is described like this, may begin where `resume` says, and
    /// leaves the description for later runs. Whether it begins at the start of the input.
    pub(crate) fn settle(
        &self,
        job: &Job,
        resume: &Resume,
        described: &Description,
        console: &Console,
    ) -> Result<bool, Failure> {
        let inputs = &described.input;
        let is_latest = *resume == Resume::Latest;
        let begins_anew = is_latest && runtime::begins_anew(job, self.store)?;
        match (resume, read(&self.checkpoints.join(NAME))?) {
            (Resume::Latest, Some(before)) if described.may_follow(&before.description) => {
                if begins_anew {
                    self.refuse_lost_checkpoints(described.mode)?;
                } else if let Some(completed) = Completed::read(self.checkpoints)? {
                    completed.check_rows(self.output)?;
                }
                if !begins_anew || first_row(self.output).is_some() {
                    check_contents(&before.contents, inputs, console)?;
                    self.leave(described, before.contents)?;
                    return Ok(begins_anew);
                }
            }
            (Resume::Latest, before) if !self.store.list()?.is_empty() => {
                return Err(self.foreign(described, before.as_ref()));
            }
            (Resume::Latest | Resume::Never, _) => {
                refuse_old_output(self.output)?;
                refuse_old_state(described.state.as_ref().map(|(_, file)| file))?;
            }
            (Resume::From(path), _) if Savepoint::is_at(path) => {
                let before = Savepoint::note(path).map_err(Failure::input)?;
                refuse_shown(path, before.as_ref(), described, self.output)?;
                if let Some(before) = before.filter(|before| before.is_same_job(described)) {
                    Completed::forget(self.checkpoints)?;
                    check_contents(&before.contents, inputs, console)?;
                    self.leave(described, before.contents)?;
                    return Ok(false);
                }
            }
            (Resume::From(path), _) => {
                let before = read(&path.with_file_name(NAME))?;
                let is_of_output = before
                    .as_ref()
                    .is_some_and(|before| before.description.output == described.output);
                refuse_rewind(path, described.mode.sink, self.output, is_of_output)?;
                if let Some(before) = before {
                    Completed::forget(self.checkpoints)?;
                    check_contents(&before.contents, inputs, console)?;
                    self.leave(described, before.contents)?;
                    return Ok(false);
                }
            }
        }
        let contents = inputs.iter().map(|path| Fingerprint::of(path)).collect::<Result<_, _>>();
        Completed::forget(self.checkpoints)?;
        self.leave(described, contents.map_err(Failure::input)?)?;
        Ok(!matches!(resume, Resume::From(_)))
    }

    /// A run from the start writes all rows again. That is no loss to a table. With a plain sink it
    /// is what happens before the first checkpoint is complete, and only then. Committed rows are
    /// there only if a checkpoint is; and without checkpoints a reserved position comes before all.
    fn refuse_lost_checkpoints(&self, mode: Mode) -> Result<(), Failure> {
        let may_repeat = match mode.sink {
            SinkContract::TwoPhase | SinkContract::WriteAhead => false,
            SinkContract::Plain => {
                mode.mechanism.takes_checkpoints() && Completed::read(self.checkpoints)?.is_none()
            }
            SinkContract::Idempotent | SinkContract::Discard => true,
        };
        match first_row(self.output).filter(|_| !may_repeat) {
            None => Ok(()),
            Some(rows) => Err(Failure::input(format!(
                "{}: what said how far the run had come is gone, and from the start of the input \
                 it would write all of {rows} again: put it back, or give other folders for \
                 --output and --checkpoints",
                self.checkpoints.display()
            ))),
        }
    }

    /// What lies in the folder was not left by a run like this.
    fn foreign(&self, described: &Description, before: Option<&Left>) -> Failure {
        let checkpoints = self.checkpoints.display();
        Failure::input(match before {
            Some(before) => format!(
                "{checkpoints}: these checkpoints were made with {}: give the same, or other \
                 folders for --output and --checkpoints",
                described.difference(&before.description)
            ),
            None => format!(
                "{checkpoints}: {NAME} is gone, which says what these checkpoints were made with: \
                 put it back, or give other folders for --output and --checkpoints"
            ),
        })
    }

    fn leave(&self, described: &Description, contents: Vec<Fingerprint>) -> Result<(), Failure> {
        let description = described.clone();
        Left { description, contents, shown: Vec::new() }.write(self.checkpoints)
    }
}

impl Left {
    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).expect("a description is plain data");
        let path = folder.join(NAME);
        replace(&path, &text)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))
    }

    fn is_same_job(&self, described: &Description) -> bool {
        self.description.job == described.job
    }
}

/// Leaves in a savepoint what its run was, and what it has shown.
pub(crate) fn leave_in_savepoint(
    savepoint: &Path,
    described: &Description,
    output: &Output,
) -> Result<(), Failure> {
    let contents = described.input.iter().map(|path| Fingerprint::of(path));
    let contents = contents.collect::<Result<_, _>>().map_err(Failure::input)?;
    let description = described.clone();
    let left = Left { description, contents, shown: extents(output) };
    Savepoint::leave_note(savepoint, &left).map_err(Failure::input)
}

/// Checks that a sink which shows rows once has shown none behind a savepoint: a run that began
/// there would write them again.
fn refuse_shown(
    savepoint: &Path,
    before: Option<&Left>,
    described: &Description,
    output: &Output,
) -> Result<(), Failure> {
    if !described.mode.sink.awaits_completion() {
        return Ok(());
    }
    let shown = extents(output);
    let is_known =
        |before: &Left| before.description.output == described.output && before.shown == shown;
    match first_row(output).filter(|_| !before.is_some_and(is_known)) {
        None => Ok(()),
        Some(row) => Err(Failure::input(format!(
            "--resume {}: {row} may hold rows that were committed after this savepoint, and they \
             would be there twice: name another --output",
            savepoint.display()
        ))),
    }
}

/// Checks that the input is what it was. Files that have grown are told of.
fn check_contents(
    before: &[Fingerprint],
    inputs: &[PathBuf],
    console: &Console,
) -> Result<(), Failure> {
    if before.len() != inputs.len() {
        let (before, now) = (before.len(), inputs.len());
        return Err(Failure::input(format!(
            "--input names {now} files, but named {before} before"
        )));
    }
    for (fingerprint, path) in before.iter().zip(inputs) {
        let grown = fingerprint.check(path).map_err(Failure::input)?;
        if grown > 0 {
            console.note(format!(
                "{}: {grown} bytes were appended since the first start; they are not read",
                path.display()
            ));
        }
    }
    Ok(())
}

/// Makes the place of the output. Its name, by which it is known from everywhere.
pub(crate) fn prepare_output(output: &Output) -> Result<Output, Failure> {
    match output {
        Output::Folder(path) => make_folder(path)?,
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => database::check(file)?,
    }
    Ok(output.absolute())
}

fn make_folder(path: &Path) -> Result<(), Failure> {
    let failed =
        |error: &dyn Display| Failure::input(format!("--output {}: {error}", path.display()));
    if path.exists() && !path.is_dir() {
        return Err(failed(&"it is a file, not a folder"));
    }
    fs::create_dir_all(path).map_err(|error| failed(&error))
}

/// A run from the start would add its output to what is there: everything would seem doubled.
pub(crate) fn refuse_old_output(output: &Output) -> Result<(), Failure> {
    let (old, other) = match output {
        Output::Folder(_) => (rows(output).into_iter().next(), "folder"),
        #[cfg(feature = "sqlite")]
        Output::Sqlite(file) => {
            (database::first_opened_table(file).map(|table| format!("the table {table}")), "file")
        }
    };
    match old {
        Some(old) => Err(Failure::input(format!(
            "--output {output}: {old} of another run is there, and this one begins at the start of \
             the input: remove it or name another {other}"
        ))),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Left>, Failure> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?,
    };
    let left = serde_json::from_slice(&text);
    left.map(Some)
        .map_err(|error| Failure::input(format!("{}: it is damaged: {error}", path.display())))
}

/// Writes a file as a whole or not at all.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = path.with_file_name(format!(".{NAME}"));
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

const NAME: &str = "run.json";
