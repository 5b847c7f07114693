//! How `savepoint take` talks to a run in another process: by a file in the folder of its
//! checkpoints. Who asks makes it, the run puts its answer in its place, and who asked removes it.
//!
//! Whatever dies at whatever moment, nothing but such a file is left: the next run in the folder
//! removes those that it finds at its start. Who asked and finds its file gone asks again, and who
//! finds no run gives up. A savepoint is whole or none, and no run relies on one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cofferdam::id::CheckpointId;
use cofferdam::runtime::{
    AfterSavepoint, AwaitedSavepoint, FileStore, JobHandle, RunError, SavepointNote, SavepointOrder,
};
use serde::{Deserialize, Serialize};

use crate::cli::exit::Failure;
use crate::cli::folder::{read, temporary};

/// What the file holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Wanted { savepoint: PathBuf, stops: bool, drains: bool },
    Taken { checkpoint: CheckpointId },
    Refused { text: String },
}

/// A savepoint that somebody wants of the run that uses `folder`.
pub(crate) struct Wanted<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) savepoint: PathBuf,
    pub(crate) then: AfterSavepoint,
    pub(crate) within: Duration,
}

impl Wanted<'_> {
    /// Asks for it and waits for the answer.
    pub(crate) fn ask(self) -> Result<CheckpointId, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let file = self.folder.join(format!("{PREFIX}{now:x}-{:x}", process::id()));
        let answer = self.answer(&file);
        // Without it a run would take a savepoint that nobody waits for.
        let removed = fs::remove_file(&file);
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&file, &error)),
            Ok(()) | Err(_) => answer,
        }
    }

    fn answer(&self, file: &Path) -> Result<CheckpointId, Failure> {
        let Self { folder, savepoint, then, within } = self;
        let (stops, drains) = (*then != AfterSavepoint::GoOn, *then == AfterSavepoint::Drain);
        let request = Request::Wanted { savepoint: savepoint.clone(), stops, drains };
        let begun = Instant::now();
        let mut look_at = begun + LOOK;
        loop {
            match read(file)? {
                Some(Request::Taken { checkpoint }) => return Ok(checkpoint),
                Some(Request::Refused { text }) => return Err(Failure::input(text)),
                Some(Request::Wanted { .. }) => {}
                None => leave(file, &request).map_err(|error| failed(file, &error))?,
            }
            if begun.elapsed() > *within {
                return Err(Failure::input(format!(
                    "{}: the run has not answered within {within:?}; it may take the savepoint yet",
                    folder.display()
                )));
            }
            if look_at <= Instant::now() {
                look_at = Instant::now() + LOOK;
                // Its answer may have come just before it ended.
                if !FileStore::is_used(folder)
                    && matches!(read(file)?, Some(Request::Wanted { .. }) | None)
                {
                    return Err(no_run(folder));
                }
            }
            thread::sleep(GLANCE);
        }
    }
}

/// Why nobody is asked.
pub(crate) fn no_run(folder: &Path) -> Failure {
    Failure::input(format!(
        "{}: no run uses these checkpoints: start it, or make a savepoint of its latest one by \
         `savepoint convert` (one with --backend memory takes savepoints where it is told to stop: \
         --stop-after)",
        folder.display()
    ))
}

/// Serves the requests in a folder while a run uses it.
pub(crate) struct Clerk {
    thread: JoinHandle<()>,
    has_ended: Arc<AtomicBool>,
}

impl Clerk {
    /// Removes what is left of earlier ones. `note` is to be left beside each savepoint, and
    /// `finish` adds to one that the run has stopped with.
    pub(crate) fn start(
        folder: PathBuf,
        handle: JobHandle,
        note: SavepointNote,
        finish: impl Fn(&Path) -> Result<(), Failure> + Send + 'static,
    ) -> io::Result<Self> {
        for file in requests(&folder)? {
            fs::remove_file(file)?;
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        let desk = Desk { folder, handle, note, finish, waiting: BTreeMap::new() };
        let thread = thread::Builder::new().name("clerk".to_owned());
        Ok(Self { thread: thread.spawn(move || desk.serve(&ends))?, has_ended })
    }

    /// The run has ended: gives the answers that are left.
    pub(crate) fn end(self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // A panic has been told by the hook.
        let _ = self.thread.join();
    }
}

struct Desk<F> {
    folder: PathBuf,
    handle: JobHandle,
    note: SavepointNote,
    finish: F,
    waiting: BTreeMap<PathBuf, (SavepointOrder, AwaitedSavepoint)>,
}

impl<F: Fn(&Path) -> Result<(), Failure>> Desk<F> {
    fn serve(mut self, ends: &AtomicBool) {
        loop {
            let is_last = ends.load(Ordering::Relaxed);
            // A folder that can not be read is the run's own trouble.
            for file in requests(&self.folder).unwrap_or_default() {
                self.take_in(file);
            }
            self.answer();
            if is_last {
                return;
            }
            thread::sleep(GLANCE);
        }
    }

    fn take_in(&mut self, file: PathBuf) {
        // One that is not ours, or was removed just now, is nobody's.
        let Ok(Some(Request::Wanted { savepoint, stops, drains })) = read(&file) else { return };
        if self.waiting.contains_key(&file) {
            return;
        }
        let then = match (stops, drains) {
            (_, true) => AfterSavepoint::Drain,
            (true, false) => AfterSavepoint::Stop,
            (false, false) => AfterSavepoint::GoOn,
        };
        let order = SavepointOrder { folder: savepoint, then, note: Some(self.note.clone()) };
        let awaited = self.handle.take_savepoint(order.clone());
        self.waiting.insert(file, (order, awaited));
    }

    fn answer(&mut self) {
        let finish = &self.finish;
        let done = self.waiting.extract_if(.., |file, (order, awaited)| {
            let answer = match awaited.wait(Duration::ZERO) {
                Ok(None) => return false,
                Ok(Some(checkpoint)) => match order.then {
                    AfterSavepoint::GoOn => Request::Taken { checkpoint },
                    AfterSavepoint::Stop | AfterSavepoint::Drain => match finish(&order.folder) {
                        Ok(()) => Request::Taken { checkpoint },
                        Err(failure) => Request::Refused { text: failure.text },
                    },
                },
                Err(error) => Request::Refused { text: refusal(&error) },
            };
            // Who has given up has removed it. What can not be written is waited for in vain.
            if file.exists() {
                let _ = leave(file, &answer);
            }
            true
        });
        done.for_each(drop);
    }
}

fn refusal(error: &RunError) -> String {
    format!("no savepoint was taken: {error}")
}

fn requests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    Ok(ours.map(|entry| entry.path()).collect())
}

/// Puts a file there as a whole. It need not outlive the machine: neither does who waits for it.
fn leave(file: &Path, request: &Request) -> io::Result<()> {
    let temporary = temporary(file);
    fs::write(&temporary, serde_json::to_vec(request).expect("it is plain data"))?;
    fs::rename(&temporary, file)
}

fn failed(file: &Path, error: &io::Error) -> Failure {
    Failure::input(format!("{}: {error}", file.display()))
}

const PREFIX: &str = ".savepoint-";
/// How often files are looked at.
const GLANCE: Duration = Duration::from_millis(20);
/// How often it is looked whether there still is a run.
const LOOK: Duration = Duration::from_millis(500);
