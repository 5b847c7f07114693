//! What a run leaves beside its checkpoints, so that no later run takes them for its own: which job
//! it was, in which mode, with which parameters, over which files, and what they held.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};

use cofferdam::connector::file::Fingerprint;
use cofferdam::guarantee::{SinkContract, StateHome};
use cofferdam::id::CheckpointId;
use cofferdam::job::Job;
use cofferdam::runtime::{self, CheckpointStore, Resume, Savepoint, SavepointNote};
use cofferdam::storage::StoreKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(feature = "sqlite")]
use crate::cli::database;
use crate::cli::exit::Failure;
#[cfg(feature = "sqlite")]
use crate::cli::mark::refuse_other_database;
use crate::cli::mark::{History, Mark};
use crate::cli::mode::Mode;
use crate::cli::output::Console;
use crate::cli::shown::{Completed, checkpoint_of, extents, first_row, refuse_rewind, rows};
use crate::cli::state::{binding, check_store, refuse_lost_state, refuse_old_state};
#[cfg(feature = "sqlite")]
use crate::jobs::sqlite::table_name;
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
        let is_of_run = |flag| job.parameters().iter().any(|known| known.flag == flag);
        let absolute = |path: &PathBuf| {
            path.canonicalize().or_else(|_| path::absolute(path)).unwrap_or_else(|_| path.clone())
        };
        Self {
            job: job.name().to_owned(),
            mode,
            parallelism,
            parameters: parameters.iter().filter(|(flag, _)| is_of_run(*flag)).map(owned).collect(),
            input: input.iter().map(absolute).collect(),
            output: output.to_string(),
            state: None,
        }
    }

    /// Whether a run that is described like this may go on where one has stopped that was described
    /// `before`: all is the same but for the parallelism, which may change where state can be dealt
    /// out anew.
    fn may_follow(&self, before: &Self) -> bool {
        let parallelism = if self.is_dealt_out() { before.parallelism } else { self.parallelism };
        *before == Self { parallelism, ..self.clone() }
    }

    /// As it is where the output was moved to, with all that is in it or beside it.
    fn moved_to(&self, now: &Self) -> Self {
        let state =
            self.state.clone().map(|(home, file)| (home, now.store().cloned().unwrap_or(file)));
        Self { output: now.output.clone(), state, ..self.clone() }
    }

    /// Whether the parallelism may change.
    fn is_dealt_out(&self) -> bool {
        self.binding().is_none()
    }

    /// Why the parallelism may not change, if so.
    fn binding(&self) -> Option<String> {
        let home = self.state.as_ref().map_or(StateHome::Heap, |(home, _)| *home);
        let of_table = || {
            "each file of a table holds the keys of one task, so that some would be in two files \
             (a table of a database, --output sqlite:FILE, may go on at any parallelism)"
                .to_owned()
        };
        binding(self.mode.mechanism, home).or_else(|| self.is_table_in_files().then(of_table))
    }

    /// The file of the store of keyed state, if that lives outside of the tasks.
    fn store(&self) -> Option<&PathBuf> {
        self.state.as_ref().map(|(_, file)| file)
    }

    /// Whether the output is a file for each subtask, which knows its own keys only.
    fn is_table_in_files(&self) -> bool {
        self.mode.sink == SinkContract::Idempotent && !self.output.starts_with(SQLITE)
    }

    /// As [`Self::may_follow`], at a checkpoint or savepoint that is named: the output may be
    /// another, and the input may lie elsewhere, if it holds the same. All that is pending in a
    /// savepoint has been committed, so that the sink may change there, and the mechanism within
    /// its guarantee.
    fn may_resume(&self, before: &Self, is_savepoint: bool) -> Result<(), String> {
        let is_dealt_out = self.is_dealt_out() || self.output != before.output;
        let parallelism = if is_dealt_out { before.parallelism } else { self.parallelism };
        let mode = match is_savepoint && self.mode.guarantee == before.mode.guarantee {
            true => before.mode,
            false => self.mode,
        };
        let (input, output) = (before.input.clone(), before.output.clone());
        let now = Self { parallelism, mode, input, output, ..self.clone() };
        if *before == now { Ok(()) } else { Err(now.difference(before)) }
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
        let reason = self.binding().filter(|_| before.starts_with("--parallelism"));
        let reason = reason.map(|reason| format!(", and {reason}")).unwrap_or_default();
        format!("{before}, not with {now}{reason}")
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
    /// None in a savepoint, which belongs to no history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history: Option<History>,
    contents: Vec<Fingerprint>,
    /// What was shown when a savepoint was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shown: Vec<(String, u64)>,
    /// It goes on behind the savepoint, or had not come to its end.
    #[serde(default)]
    goes_on: bool,
    /// Where it begins, if a checkpoint or savepoint was named for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    begins_at: Option<PathBuf>,
}

/// The folders of a run, and the store in the one of its checkpoints, which is locked for it.
pub(crate) struct Folders<'a> {
    pub(crate) checkpoints: &'a Path,
    pub(crate) output: &'a Output,
    pub(crate) store: &'a dyn CheckpointStore,
}

/// Where a run begins, and as a part of what.
pub(crate) struct Settled {
    /// At the start of the input.
    pub(crate) is_anew: bool,
    pub(crate) history: History,
}

impl Folders<'_> {
    /// Checks that `job`, a run that is described like this, may begin where `resume` says, and
    /// leaves the description for later runs.
    pub(crate) fn settle(
        &self,
        job: &Job,
        resume: &Resume,
        described: &Description,
        console: &Console,
    ) -> Result<Settled, Failure> {
        let (inputs, store) = (&described.input, described.store());
        let mut history = History::begin();
        match (resume, read::<Left>(&self.checkpoints.join(NAME))?) {
            (Resume::Latest, Some(before)) if self.goes_on(described, &before)? => {
                let is_anew = runtime::begins_anew(job, self.store)?;
                let is_there = match is_anew {
                    true => self.refuse_lost_start(described.mode, job),
                    false => self.refuse_lost_progress(described.mode, &before),
                };
                is_there.map_err(|failure| before.with_way_out(failure))?;
                match is_anew {
                    true => check_store(store)?,
                    false => refuse_lost_state(store)?,
                }
                if (!is_anew || first_row(self.output).is_some())
                    && let Some(history) = before.history
                {
                    #[cfg(feature = "sqlite")]
                    refuse_other_database(self.output, &history.run)?;
                    check_contents(&before.contents, inputs, console)?;
                    let history = history.again();
                    self.leave(described, before.contents, &history, self.newest()?, None)?;
                    return Ok(Settled { is_anew, history });
                }
                history = history.with_state_of(before.history.as_ref());
            }
            (Resume::Latest, before) if !self.store.list()?.is_empty() => {
                return Err(self.foreign(described, before.as_ref()));
            }
            (Resume::Latest | Resume::Never, _) => {
                refuse_old_output(self.output)?;
                refuse_old_state(store)?;
            }
            (Resume::From(path), _) => {
                if let Some(before) = self.check_resumed(path, described)? {
                    check_contents(&before.contents, inputs, console)?;
                    refuse_lost_state(store)?;
                    history = history.with_state_of(before.history.as_ref());
                    self.begin(described, before.contents, &history, Some(path))?;
                    return Ok(Settled { is_anew: false, history });
                }
            }
        }
        let contents = inputs.iter().map(|path| Fingerprint::of(path)).collect::<Result<_, _>>();
        let named = if let Resume::From(path) = resume { Some(&**path) } else { None };
        self.begin(described, contents.map_err(Failure::input)?, &history, named)?;
        Ok(Settled { is_anew: named.is_none(), history })
    }

    /// Whether a run that is described like this goes on where another has stopped. An output says
    /// itself which run it is of, so that it may lie somewhere else by now.
    fn goes_on(&self, described: &Description, before: &Left) -> Result<bool, Failure> {
        let of = |history: &History| history.run.clone();
        let run = Mark::read(self.output)?.map(|mark| of(&mark.history));
        let is_own = run.is_some() && run == before.history.as_ref().map(of);
        let before = &before.description;
        Ok(match is_own {
            true => described.may_follow(&before.moved_to(described)),
            false => described.may_follow(before),
        })
    }

    /// Checks that a run may go on from the checkpoint or savepoint at `path`. What its run has
    /// left; none if another job takes over from a savepoint.
    fn check_resumed(&self, path: &Path, described: &Description) -> Result<Option<Left>, Failure> {
        let refused = |text: String| Failure::input(format!("--resume {}: {text}", path.display()));
        let is_savepoint = Savepoint::is_at(path);
        let is_checkpoint = path.is_dir() && checkpoint_of(path).is_some();
        if !(is_savepoint || is_checkpoint) {
            let text = "no checkpoint is there (a folder chk-<number>), and no savepoint";
            return Err(refused(text.to_owned()));
        }
        let before = match is_savepoint {
            true => Savepoint::note(path).map_err(Failure::input)?,
            false => read(&path.with_file_name(NAME))?,
        };
        if is_savepoint {
            refuse_shown(path, before.as_ref(), described, self.output)?;
            if !before.as_ref().is_some_and(|before| before.is_same_job(described)) {
                return Ok(None);
            }
        } else {
            let history = before.as_ref().and_then(|before| before.history.as_ref());
            let mark = Mark::read(self.output)?.filter(|_| history.is_some());
            let is_newest = mark.is_some_and(|Mark { history: of, checkpoint }| {
                // A crash may have come before the newest one was noted, and so before its rows.
                history.is_some_and(|history| history.run == of.run)
                    && checkpoint <= checkpoint_of(path)
            });
            refuse_rewind(path, described.mode.sink, self.output, is_newest)?;
        }
        let Some(before) = before else {
            return Err(refused(format!(
                "{NAME} is not beside it, which says what it was made with: put both into one \
                 folder"
            )));
        };
        let differs = described.may_resume(&before.description, is_savepoint);
        differs.map_err(|text| refused(format!("it was made with {text}: give the same")))?;
        Ok(Some(before))
    }

    /// The newest complete checkpoint.
    fn newest(&self) -> Result<Option<CheckpointId>, Failure> {
        Ok(self.store.list()?.into_iter().filter_map(StoreKey::complete_checkpoint).max())
    }

    /// Checks that output and checkpoints belong together, and that neither is behind what the
    /// other rests on: a run would lose rows, or show them twice.
    fn refuse_lost_progress(&self, mode: Mode, before: &Left) -> Result<(), Failure> {
        let completed = Completed::read(self.checkpoints)?;
        if let Some(completed) = &completed {
            completed.check_rows(self.output)?;
        }
        let path = self.output.mark();
        let Some(mark) = Mark::read(self.output)? else {
            return Err(Failure::input(format!(
                "{}: it is gone, and with it the output that the checkpoints rest on: put it back, \
                 or give other folders for --output and --checkpoints",
                path.display()
            )));
        };
        let history = before.history.as_ref();
        if history.is_none_or(|history| history.run != mark.history.run) {
            return Err(Failure::input(format!(
                "{}: the output was written over other checkpoints than {}: give those, or other \
                 folders for --output and --checkpoints",
                path.display(),
                self.checkpoints.display()
            )));
        }
        if completed.as_ref().is_some_and(|completed| completed.start > mark.history.start) {
            return Err(Failure::input(format!(
                "{}: the output is older than the checkpoints that rest on it: put it back as it \
                 was, or give other folders for --output and --checkpoints",
                path.display()
            )));
        }
        if mode.mechanism.takes_checkpoints() && self.may_repeat(mode)? {
            return Ok(());
        }
        if history.is_some_and(|history| history.start < mark.history.start) {
            return Err(Failure::input(format!(
                "{}: these checkpoints are older than the output: put those back that it was \
                 written over, or give other folders for --output and --checkpoints",
                self.checkpoints.display()
            )));
        }
        let newest = self.newest()?;
        let wanted = completed.map(|completed| completed.checkpoint).max(mark.checkpoint);
        match wanted.filter(|wanted| mode.mechanism.takes_checkpoints() && newest < Some(*wanted)) {
            None => Ok(()),
            Some(wanted) => Err(self.lost(&self.metadata_of(wanted))),
        }
    }

    /// Whether rows that were written may be written again. That is no loss to a table. With a
    /// plain sink it is what happens before the first checkpoint is complete, and only then.
    /// Committed rows are there only if a checkpoint is; and without checkpoints a reserved
    /// position comes before all.
    fn may_repeat(&self, mode: Mode) -> Result<bool, Failure> {
        Ok(match mode.sink {
            SinkContract::TwoPhase | SinkContract::WriteAhead => false,
            SinkContract::Plain => {
                mode.mechanism.takes_checkpoints() && Completed::read(self.checkpoints)?.is_none()
            }
            SinkContract::Idempotent | SinkContract::Discard => true,
        })
    }

    /// Nothing says how far the run had come, so that it would begin at the start of the input.
    fn refuse_lost_start(&self, mode: Mode, job: &Job) -> Result<(), Failure> {
        if first_row(self.output).is_none() || self.may_repeat(mode)? {
            return Ok(());
        }
        let marked = Mark::read(self.output)?.and_then(|mark| mark.checkpoint);
        let completed = Completed::read(self.checkpoints)?.map(|completed| completed.checkpoint);
        Err(match completed.max(marked) {
            Some(checkpoint) => self.lost(&self.metadata_of(checkpoint)),
            None => match runtime::first_reservation(job) {
                Some(first) => self.lost(&self.store.place_of(first)),
                None => self.lost(&self.checkpoints.display().to_string()),
            },
        })
    }

    fn metadata_of(&self, checkpoint: CheckpointId) -> String {
        self.store.place_of(StoreKey::Metadata(checkpoint))
    }

    /// What lay at `place` said how far the output has come.
    fn lost(&self, place: &str) -> Failure {
        let shown = first_row(self.output).unwrap_or_else(|| self.output.to_string());
        Failure::input(format!(
            "{place}: what said how far the run had come is gone, and without it rows of {shown} \
             would be written again: put it back, or give other folders for --output and \
             --checkpoints"
        ))
    }

    /// What lies in the folder was not left by a run like this.
    fn foreign(&self, described: &Description, before: Option<&Left>) -> Failure {
        let checkpoints = self.checkpoints.display();
        Failure::input(match before {
            Some(before) => format!(
                "{checkpoints}: these checkpoints were made with {}: give the same, or other \
                 folders for --output and --checkpoints (an output that was moved is known by {}, \
                 which has to be moved with it)",
                described.difference(&before.description),
                self.output.mark().display()
            ),
            None => format!(
                "{checkpoints}: {NAME} is gone, which says what these checkpoints were made with: \
                 put it back, or give other folders for --output and --checkpoints"
            ),
        })
    }

    /// Begins a history at the start of the input, or at what is named.
    fn begin(
        &self,
        described: &Description,
        contents: Vec<Fingerprint>,
        history: &History,
        at: Option<&Path>,
    ) -> Result<(), Failure> {
        Completed::forget(self.checkpoints)?;
        let checkpoint = at.filter(|at| !Savepoint::is_at(at)).and_then(checkpoint_of);
        self.leave(described, contents, history, checkpoint, at)
    }

    /// The checkpoints come first: those of a history that was started once more than the output
    /// knows have lost nothing.
    fn leave(
        &self,
        described: &Description,
        contents: Vec<Fingerprint>,
        history: &History,
        checkpoint: Option<CheckpointId>,
        begins_at: Option<&Path>,
    ) -> Result<(), Failure> {
        let (description, history) = (described.clone(), history.clone());
        let left = Left {
            description,
            history: Some(history.clone()),
            contents,
            shown: Vec::new(),
            goes_on: true,
            begins_at: begins_at.map(Path::to_owned),
        };
        left.write(self.checkpoints)?;
        Mark { history, checkpoint }.leave(self.output)
    }
}

impl Left {
    fn write(&self, folder: &Path) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).expect("a description is plain data");
        let path = folder.join(NAME);
        replace(&path, &text)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))
    }

    /// Says what else may have come before a failure to go on: a run that was to begin somewhere
    /// was killed before it came to that.
    fn with_way_out(&self, failure: Failure) -> Failure {
        match &self.begins_at {
            Some(path) => Failure {
                text: format!(
                    "{}; if the last run was killed before its first checkpoint, give --resume {} \
                     again, with which it was to begin",
                    failure.text,
                    path.display()
                ),
                ..failure
            },
            None => failure,
        }
    }

    /// As what it is left in a savepoint, which belongs to no history.
    fn note(self) -> SavepointNote {
        SavepointNote::of(&Self { history: None, begins_at: None, ..self })
    }

    fn is_same_job(&self, described: &Description) -> bool {
        self.description.job == described.job
    }
}

/// Leaves in a savepoint that a run has ended with what the run was, and what it has shown.
pub(crate) fn leave_in_savepoint(
    savepoint: &Path,
    described: &Description,
    output: &Output,
) -> Result<(), Failure> {
    let contents = described.input.iter().map(|path| Fingerprint::of(path));
    let contents = contents.collect::<Result<_, _>>().map_err(Failure::input)?;
    let (description, shown) = (described.clone(), extents(output));
    let (history, goes_on, begins_at) = (None, false, None);
    let left = Left { description, history, contents, shown, goes_on, begins_at };
    Savepoint::leave_note(savepoint, &SavepointNote::of(&left)).map_err(Failure::input)
}

/// What is to be left in savepoints of a run that goes on, whose checkpoints are in this folder.
pub(crate) fn savepoint_note(checkpoints: &Path) -> Result<SavepointNote, Failure> {
    let path = checkpoints.join(NAME);
    let Some(left) = read::<Left>(&path)? else {
        return Err(Failure::input(format!("{}: it is gone", path.display())));
    };
    Ok(left.note())
}

/// Checks that a new savepoint is not to lie among the checkpoints of a run, which removes them.
pub(crate) fn refuse_among(checkpoints: &Path, savepoint: &Path) -> Result<(), Failure> {
    let own = checkpoints.canonicalize().ok();
    let is_own = |above: &Path| own.is_some() && above.canonicalize().ok() == own;
    match savepoint.ancestors().any(is_own) {
        true => Err(Failure::input(format!(
            "{}: {} is for the run's own checkpoints: name a folder outside of it",
            savepoint.display(),
            checkpoints.display()
        ))),
        false => Ok(()),
    }
}

/// What lies beside the checkpoint or savepoint in this folder, for a savepoint that is made of it.
pub(crate) fn note_beside(folder: &Path) -> Result<Option<SavepointNote>, Failure> {
    let left: Option<Left> = match Savepoint::is_at(folder) {
        true => Savepoint::note(folder).map_err(Failure::input)?,
        false => read(&folder.with_file_name(NAME))?,
    };
    Ok(left.map(Left::note))
}

/// Checks that a sink which shows rows once has shown none behind a savepoint: a run that began
/// there would write them again.
fn refuse_shown(
    savepoint: &Path,
    before: Option<&Left>,
    described: &Description,
    output: &Output,
) -> Result<(), Failure> {
    let is_of_output = |before: &&Left| before.description.output == described.output;
    let is_table = |mode: Mode| mode.sink == SinkContract::Idempotent;
    if let Some(Left { description: Description { mode, .. }, .. }) = before.filter(is_of_output)
        && is_table(*mode) != is_table(described.mode)
        && let Some(row) = first_row(output)
    {
        return Err(Failure::input(format!(
            "--resume {}: {row} holds what --sink {} has left, and --sink {} would not replace it: \
             of the two only a table has one row for each key: name another --output",
            savepoint.display(),
            mode.sink,
            described.mode.sink
        )));
    }
    let parallelism = before.filter(is_of_output).map(|before| before.description.parallelism);
    if described.is_table_in_files()
        && parallelism != Some(described.parallelism)
        && let Some(row) = first_row(output)
    {
        return Err(Failure::input(format!(
            "--resume {}: {row} holds a part of a table, and at another parallelism the keys would \
             be in two files: name another --output",
            savepoint.display()
        )));
    }
    if !described.mode.sink.awaits_completion() {
        return Ok(());
    }
    let is_of_running =
        |before: &Left| before.description.output == described.output && before.goes_on;
    if before.is_some_and(is_of_running) {
        return Err(Failure::input(format!(
            "--resume {}: the run that it was taken of went on, and commits rows to {output} that \
             would be there twice: name another --output",
            savepoint.display()
        )));
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

/// Sinks write only into tables that sinks have made.
#[cfg(feature = "sqlite")]
pub(crate) fn refuse_foreign_table(output: &Output, job: &Job) -> Result<(), Failure> {
    let Output::Sqlite(file) = output else { return Ok(()) };
    let sinks = job.graph().vertex_ids().filter_map(|vertex| job.sink(vertex));
    match database::foreign_table(file, sinks.map(|(uid, _)| table_name(uid))) {
        None => Ok(()),
        Some(table) => Err(Failure::input(format!(
            "--output {output}: a table {table} is there that no run has made: rename it, or name \
             another file"
        ))),
    }
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

/// Removes what a run leaves beside its checkpoints, which are gone, and their folder with its lock
/// unless somebody else keeps something there.
pub(crate) fn clear(checkpoints: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::input(format!("{}: {error}", checkpoints.display()));
    Completed::forget(checkpoints)?;
    for name in [NAME, ".lock"] {
        match fs::remove_file(checkpoints.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    match fs::remove_dir(checkpoints) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(failed(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What an earlier run has left in a file, if it is there.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Failure> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?,
    };
    let left = serde_json::from_slice(&text);
    left.map(Some)
        .map_err(|error| Failure::input(format!("{}: it is damaged: {error}", path.display())))
}

/// Writes a file as a whole or not at all, durably.
pub(crate) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    let mut file = File::create(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Where a file is written before it takes its name.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".tmp-{name}"))
}

const NAME: &str = "run.json";
