//! The flags that say where keyed state lives on the real engine.

use std::path::{self, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
#[cfg(feature = "sqlite")]
use cofferdam::connector::sqlite::{self, SqliteStateStore};
use cofferdam::guarantee::{Mechanism, StateHome};
use cofferdam::state::store::StateStore;

#[cfg(feature = "sqlite")]
use crate::cli::distant::Distant;
use crate::cli::exit::Failure;
use crate::cli::values::{interval, word};
use crate::jobs::{Output, SQLITE};

/// The flags.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "State")]
pub(crate) struct StateArgs {
    /// Where keyed state lives
    #[arg(
        long = "state",
        value_name = "WHERE",
        value_parser = word::<StateHome>(),
        default_value = "heap"
    )]
    pub(crate) home: StateHome,
    /// The store of state that is external, a SQLite database [default: OUTPUT/.state.db, or
    /// FILE.state beside a database]
    #[arg(long = "state-store", value_name = "sqlite:FILE", value_parser = database)]
    store: Option<PathBuf>,
    /// How long each access to state that is external takes besides, as if it were far away
    #[arg(long = "state-latency", value_name = "DURATION", value_parser = interval)]
    latency: Option<Duration>,
}

impl StateArgs {
    /// Refuses what this program can not do, and a store that nothing would live in; `command` is
    /// the one that asks.
    pub(crate) fn check(&self, command: &str, mechanism: Mechanism) -> Result<(), Failure> {
        check_home(command, self.home, mechanism)?;
        let is_external = self.home.is_external();
        let reason = if self.store.is_some() && !is_external {
            "--state-store is for state that is external: add --state external or \
             --state external-transactional, or leave it out"
        } else if self.latency.is_some() && !is_external {
            "--state-latency is for state that is external: add --state external or \
             --state external-transactional, or leave it out"
        } else if is_external && !cfg!(feature = "sqlite") {
            "--state: this program was built without the feature 'sqlite', which external state \
             lives in"
        } else {
            return Ok(());
        };
        Err(Failure::usage(command, reason))
    }

    /// The file of the store of a run that writes into `output`, if state is external.
    pub(crate) fn file(&self, output: &Output) -> Option<PathBuf> {
        let file = || self.store.clone().unwrap_or_else(|| output.state());
        self.home.is_external().then(file).map(|file| path::absolute(&file).unwrap_or(file))
    }

    /// That store, which the run of this name has begun or begins.
    #[cfg(feature = "sqlite")]
    pub(crate) fn open(&self, output: &Output, run: &str) -> Option<Arc<dyn StateStore>> {
        let rolls_back = self.home == StateHome::ExternalTransactional;
        let store = SqliteStateStore::new(self.file(output)?, rolls_back);
        let store = Arc::new(store.of_run(run.to_owned()));
        Some(match self.latency {
            Some(way) => Arc::new(Distant::new(store, way)),
            None => store,
        })
    }

    /// No store is built in.
    #[cfg(not(feature = "sqlite"))]
    pub(crate) fn open(&self, _output: &Output, _run: &str) -> Option<Arc<dyn StateStore>> {
        None
    }

    /// The flags again, for a run that writes into `output`.
    pub(crate) fn words(&self, output: &Output) -> Vec<String> {
        let Some(file) = self.file(output) else { return Vec::new() };
        let store = format!("{SQLITE}{}", file.display());
        let mut words =
            ["--state", self.home.word(), "--state-store", &store].map(str::to_owned).to_vec();
        if let Some(way) = self.latency {
            words.extend(["--state-latency".to_owned(), format!("{}ms", way.as_millis())]);
        }
        words
    }
}

/// Refuses state outside where no checkpoint keeps it in step; `command` is the one that asks.
pub(crate) fn check_home(
    command: &str,
    home: StateHome,
    mechanism: Mechanism,
) -> Result<(), Failure> {
    if !home.is_external() || mechanism.keeps_state() {
        return Ok(());
    }
    let keeping = Mechanism::ALL.iter().filter(|other| other.keeps_state());
    let keeping: Vec<&str> = keeping.map(|other| other.word()).collect();
    Err(Failure::usage(
        command,
        format!(
            "--state {home} with --mechanism {mechanism}: that mechanism takes no checkpoints or \
             keeps no state between them: leave out --state, or use one of {}",
            keeping.join(", ")
        ),
    ))
}

/// Why what a job goes on from can not be dealt out to another parallelism, if so.
pub(crate) fn binding(mechanism: Mechanism, home: StateHome) -> Option<String> {
    if !mechanism.takes_checkpoints() {
        Some(format!(
            "under --mechanism {mechanism} each task goes on from what it has left itself"
        ))
    } else if home.is_external() {
        Some(format!("what a task keeps under --state {home} can not be dealt out to others"))
    } else {
        None
    }
}

/// Checks that the store of a run that goes on from a checkpoint is there: whether it is the one
/// that the checkpoint rests on is found when it is opened.
pub(crate) fn refuse_lost_state(file: Option<&PathBuf>) -> Result<(), Failure> {
    match file.filter(|file| !file.exists()) {
        Some(file) => Err(Failure::input(format!(
            "--state-store {SQLITE}{}: it is gone, but the checkpoints rest on the state \
             as it was in the store: put it back as it was, its -wal file too, or begin anew with \
             another one and other folders for --output and --checkpoints",
            file.display()
        ))),
        None => check_store(file),
    }
}

/// A run from the start would go on with the state that an earlier one has left.
pub(crate) fn refuse_old_state(file: Option<&PathBuf>) -> Result<(), Failure> {
    match file.filter(|file| is_used(file)) {
        Some(file) => Err(Failure::input(format!(
            "--state-store {SQLITE}{}: state of another run is there, and this one begins at the \
             start of the input: remove it or name another file",
            file.display()
        ))),
        None => check_store(file),
    }
}

/// Checks that the store can be written; it is made if it is not there.
pub(crate) fn check_store(file: Option<&PathBuf>) -> Result<(), Failure> {
    file.map_or(Ok(()), |file| check(file))
}

#[cfg(feature = "sqlite")]
fn check(file: &Path) -> Result<(), Failure> {
    sqlite::check(file).map_err(|error| Failure::input(format!("--state-store {SQLITE}{error}")))
}

#[cfg(not(feature = "sqlite"))]
fn check(_file: &Path) -> Result<(), Failure> {
    Ok(())
}

#[cfg(feature = "sqlite")]
fn is_used(file: &Path) -> bool {
    SqliteStateStore::is_used(file)
}

#[cfg(not(feature = "sqlite"))]
fn is_used(_file: &Path) -> bool {
    false
}

fn database(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix(SQLITE) {
        Some("") => Err(format!("name the file of the database behind {SQLITE}")),
        Some(file) => Ok(file.into()),
        None => Err(format!("a store of state is a database: write {SQLITE}{text}")),
    }
}
