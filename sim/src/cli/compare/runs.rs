//! The runs of a comparison: each is a `run` in a process of its own, so that one which fails or is
//! killed takes nothing with it, and none finds memory that another has left.

use std::cell::Cell;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cofferdam::guarantee::StateHome;
use serde::{Deserialize, Serialize};

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{CheckpointArgs, Mode};

/// What is compared: a mode, and where keyed state lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contender {
    #[serde(flatten)]
    pub(super) mode: Mode,
    pub(super) state: StateHome,
}

/// What the summary of a run says.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Report {
    pub(super) records_in: u64,
    pub(super) checkpoints: u64,
    pub(super) checkpoint_mean_ms: f64,
    pub(super) checkpoint_bytes: u64,
    pub(super) records_per_s: f64,
}

/// What all runs of a comparison have in common.
pub(super) struct Common {
    pub(super) job: &'static str,
    pub(super) parallelism: usize,
    /// Between checkpoints.
    pub(super) interval: Duration,
    /// What each access to state that is external takes besides.
    pub(super) state_latency: Option<Duration>,
    /// The parameters of the job, as words.
    pub(super) parameters: Vec<String>,
}

/// Starts runs and waits for them.
pub(super) struct Runs {
    pub(super) common: Common,
    /// Holds inputs and outputs; removed at the end.
    folder: PathBuf,
    outputs: Cell<u64>,
    stop: Arc<AtomicBool>,
}

/// What one run reads, and where it writes.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) input: Input,
    pub(super) output: PathBuf,
}

/// What a run reads: a file, or so many numbers.
#[derive(Clone, Debug)]
pub(super) enum Input {
    File(PathBuf),
    Numbers { records: u64, keys: u64 },
}

impl Input {
    fn words(&self) -> Vec<String> {
        match self {
            Self::File(path) => vec!["--input".to_owned(), text(path)],
            Self::Numbers { records, keys } => {
                let flags = [("--records", records), ("--keys", keys)];
                flags.iter().flat_map(|(flag, n)| [(*flag).to_owned(), n.to_string()]).collect()
            }
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.is_external() {
            true => write!(f, "{}, state {}", self.mode, self.state),
            false => self.mode.fmt(f),
        }
    }
}

impl Runs {
    /// Runs in a folder of their own below `scratch`, or below that for temporary files.
    pub(super) fn new(
        common: Common,
        scratch: Option<&Path>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let below = scratch.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = below.join(format!("cofferdam-compare-{}", process::id()));
        let failed = |error| Failure::input(format!("--scratch {}: {error}", folder.display()));
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self { common, folder, outputs: Cell::new(0), stop })
    }

    /// A file for input.
    pub(super) fn input(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A place that nobody has written to.
    pub(super) fn place(&self, input: Input) -> Place {
        self.outputs.set(self.outputs.get() + 1);
        Place { input, output: self.folder.join(format!("out-{}", self.outputs.get())) }
    }

    /// Starts a run, or resumes the one that has written to the place.
    pub(super) fn start(
        &self,
        contender: Contender,
        place: &Place,
        more: &[&str],
    ) -> Result<Running, Failure> {
        let Mode { guarantee, mechanism, sink } = contender.mode;
        let Common { job, parallelism, interval, state_latency, parameters } = &self.common;
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(["run", job, "--output", &text(&place.output)]);
        command.args(["--guarantee", guarantee.word(), "--mechanism", mechanism.word()]);
        command.args(["--sink", sink.word(), "--parallelism", &parallelism.to_string()]);
        command.args(["--restarts", "none", "--quiet", "--color", "never", "--format", "json"]);
        if CheckpointArgs::go_by_interval(mechanism) {
            let interval = format!("{}ms", interval.as_millis());
            command.args(["--checkpoint-interval", &interval]);
        }
        command.args(["--state", contender.state.word()]);
        if let Some(way) = state_latency.filter(|_| contender.state.is_external()) {
            command.args(["--state-latency", &format!("{}ms", way.as_millis())]);
        }
        command.args(place.input.words()).args(parameters).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Running(Some(command.spawn().map_err(|error| failed(&error))?)))
    }

    /// Waits for the end of a run: its report, or what it died of.
    pub(super) fn finish(&self, mut run: Running) -> Result<Result<Report, String>, Failure> {
        let child = run.0.take().expect("it is taken at its end");
        let ended = child.wait_with_output().map_err(|error| failed(&error))?;
        self.check()?;
        if ended.status.success() {
            let said = String::from_utf8_lossy(&ended.stdout);
            let report = said.lines().last().map(serde_json::from_str);
            return match report {
                Some(Ok(report)) => Ok(Ok(report)),
                Some(Err(_)) | None => Ok(Err("it did not say what it came to".to_owned())),
            };
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let sentence = said.lines().find_map(|line| line.strip_prefix("error: "));
        Ok(Err(sentence.unwrap_or("it ended without a word").to_owned()))
    }

    /// Calls `look` every millisecond until the run has ended, or `look` has seen enough.
    pub(super) fn watch(
        &self,
        run: &mut Running,
        mut look: impl FnMut() -> io::Result<bool>,
    ) -> Result<(), Failure> {
        loop {
            self.check()?;
            let has_ended = run.has_ended()?;
            if look().map_err(|error| failed(&error))? || has_ended {
                return Ok(());
            }
            thread::sleep(GLANCE);
        }
    }

    /// Whether somebody wants it to end.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Failure::again(Exit::Interrupted, "interrupted")),
            false => Ok(()),
        }
    }

    /// Removes what a run has written.
    pub(super) fn clear(&self, place: &Place) {
        // What stays goes with the folder.
        let _ = fs::remove_dir_all(&place.output);
    }
}

/// A run that goes on. It ends with who started it.
pub(super) struct Running(Option<Child>);

impl Running {
    pub(super) fn has_ended(&mut self) -> Result<bool, Failure> {
        let status = self.child().try_wait().map_err(|error| failed(&error))?;
        Ok(status.is_some())
    }

    /// Kills it with SIGKILL, unless it has ended.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        self.child().kill().map_err(|error| failed(&error))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("it is taken at its end")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended; there is nobody left to tell.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // Nothing depends on it, and there is nobody left to tell.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub(super) fn failed(error: &io::Error) -> Failure {
    Failure::input(format!("a run can not be started, watched or killed: {error}"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// How often a run is looked at.
const GLANCE: Duration = Duration::from_millis(1);
