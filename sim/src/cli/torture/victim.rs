//! The child process: how it is started, when it is killed, and how fast it may read, so that every
//! kill lands before the input ends.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{CheckpointArgs, Mode};
use crate::cli::signals::stop_flag;
use crate::cli::torture::TortureArgs;
use crate::dice::{Dice, Purpose};
use crate::jobs::Output;

/// Several checkpoints fit between two kills.
const INTERVAL_DEFAULT: Duration = Duration::from_millis(20);

/// A job that is killed again and again.
pub(super) struct Victim {
    arguments: Vec<String>,
    checkpoints: PathBuf,
    dice: Dice,
    stop: Arc<AtomicBool>,
    kills_left: u64,
    kills_done: u64,
    restores: u64,
    /// At least so many records will not have been read.
    records_left: f64,
    /// A run that was killed begins at the start of the input again.
    begins_anew: bool,
}

/// When a kill comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// So long after the start, whatever the run has come to.
    AfterStart(Duration),
    /// So long after the first sign of progress.
    AfterProgress(Duration),
}

impl Victim {
    pub(super) fn new(
        args: &TortureArgs,
        input: &Path,
        mode: Mode,
        output: &Output,
        records: usize,
    ) -> Result<Self, Failure> {
        let checkpoints = args.engine.checkpoints.folder(output);
        let interval = args.engine.checkpoints.interval.unwrap_or(INTERVAL_DEFAULT);
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let flags = [
            ("--input", path(input)),
            ("--output", output.to_string()),
            ("--guarantee", mode.guarantee.to_string()),
            ("--mechanism", mode.mechanism.to_string()),
            ("--sink", mode.sink.to_string()),
            ("--parallelism", args.engine.mode.parallelism.to_string()),
            ("--checkpoints", path(&checkpoints)),
            ("--restarts", args.engine.restarts.text.clone()),
        ];
        let flags = flags.into_iter().chain(args.engine.checkpoints.words());
        let mut arguments = vec!["run".to_owned(), args.job.clone(), "--origins".to_owned()];
        arguments.extend(flags.flat_map(|(flag, value)| [flag.to_owned(), value]));
        if CheckpointArgs::go_by_interval(mode.mechanism) {
            let interval = format!("{}ms", interval.as_millis());
            arguments.extend(["--checkpoint-interval".to_owned(), interval]);
        }
        arguments.extend(args.engine.checkpoints.barriers.words(mode.mechanism));
        arguments.extend(args.engine.state.words(output));
        arguments.extend(args.engine.parameters.words());
        Ok(Self {
            arguments,
            checkpoints,
            dice: Dice::new(args.seed, Purpose::Faults),
            stop: stop_flag()?,
            kills_left: args.kills,
            kills_done: 0,
            restores: 0,
            records_left: records as f64,
            begins_anew: mode.mechanism.awaits_end(),
        })
    }

    /// How many runs began at a checkpoint.
    pub(super) fn restores(&self) -> u64 {
        self.restores
    }

    /// Starts or resumes the job and kills it.
    pub(super) fn kill_next(&mut self) -> Result<Moment, Failure> {
        let moment = self.draw_moment();
        let lives = if self.begins_anew { ANEW_LIVES } else { self.kills_left + 1 };
        let rate = (self.records_left / lives as f64 / CYCLE_SECONDS).max(1.0);
        let before = signs(&self.checkpoints);
        let started = Instant::now();
        let mut child = self.start(&["--rate", &format!("{rate:.0}")])?;
        let mut progress_at = None;
        loop {
            let now = Instant::now();
            if progress_at.is_none() && signs(&self.checkpoints) != before {
                progress_at = Some(now);
            }
            let is_due = match (moment, progress_at) {
                (Moment::AfterStart(delay), _) => now >= started + delay,
                (Moment::AfterProgress(delay), Some(progress_at)) => now >= progress_at + delay,
                (Moment::AfterProgress(_), None) => now >= started + PATIENCE,
            };
            if is_due || self.stop.load(Ordering::Relaxed) || has_ended(&mut child)? {
                break;
            }
            std::thread::sleep(GLANCE);
        }
        child.kill().map_err(|error| failed(&error))?;
        let ended = child.wait_with_output().map_err(|error| failed(&error))?;
        if !self.begins_anew {
            let read = started.elapsed().as_secs_f64() * rate;
            self.records_left = (self.records_left - read).max(0.0);
        }
        self.check_killed(&ended)?;
        Ok(moment)
    }

    /// Lets the job come to its end.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        let child = self.start(&[])?;
        let ended = child.wait_with_output().map_err(|error| failed(&error))?;
        match ended.status.success() {
            true => Ok(()),
            false => Err(self.death(&ended)),
        }
    }

    /// Most kills come while records are on their way, some while the run is being restored. Where
    /// nothing is stored on the way there is no progress to see, and each life is as long.
    fn draw_moment(&mut self) -> Moment {
        if self.begins_anew {
            let life = (CYCLE_SECONDS * 1e6) as u64;
            return Moment::AfterStart(Duration::from_micros(self.dice.below(life)));
        }
        match self.dice.chance(EARLY_PERMILLE) {
            true => Moment::AfterStart(Duration::from_millis(self.dice.below(80))),
            false => Moment::AfterProgress(Duration::from_micros(self.dice.below(150_000))),
        }
    }

    fn start(&mut self, more: &[&str]) -> Result<Child, Failure> {
        self.restores += u64::from(holds_checkpoint(&self.checkpoints));
        let program = std::env::current_exe().map_err(|error| failed(&error))?;
        let mut command = Command::new(program);
        command.args(&self.arguments).args(more).args(["--quiet", "--color", "never"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().map_err(|error| failed(&error))
    }

    fn check_killed(&mut self, ended: &process::Output) -> Result<(), Failure> {
        if self.stop.load(Ordering::Relaxed) {
            let text = format!("interrupted after {} kills", self.kills_done);
            return Err(Failure::again(Exit::Interrupted, text));
        }
        match ended.status.code() {
            None => {
                self.kills_done += 1;
                self.kills_left -= 1;
                Ok(())
            }
            Some(0) => Err(Failure::again(
                Exit::Unknown,
                format!(
                    "the input ended after {} of {} kills: give more records or fewer --kills",
                    self.kills_done,
                    self.kills_done + self.kills_left
                ),
            )),
            Some(_) => Err(self.death(ended)),
        }
    }

    /// The run ended with an error of its own. Its input has been checked, so once it was killed it
    /// should have been able to go on.
    fn death(&self, ended: &process::Output) -> Failure {
        let said = String::from_utf8_lossy(&ended.stderr);
        let sentence = said.lines().find_map(|line| line.strip_prefix("error: "));
        let sentence = sentence.unwrap_or("it said nothing").to_owned();
        match self.kills_done {
            0 => Failure::input(sentence),
            kills => Failure::again(
                Exit::Violated,
                format!("stuck: after {kills} kills the run could not go on: {sentence}"),
            ),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AfterStart(delay) => write!(f, "{delay:.1?} after the start"),
            Self::AfterProgress(delay) => write!(f, "{delay:.1?} after the first progress"),
        }
    }
}

/// What changes when a run makes progress: checkpoints come, positions are reserved, or tasks write
/// their progress.
fn signs(checkpoints: &Path) -> Vec<(String, Option<SystemTime>)> {
    let Ok(entries) = fs::read_dir(checkpoints) else { return Vec::new() };
    let signs = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_sign = SIGNS.iter().any(|sign| name.starts_with(sign));
        is_sign.then(|| (name, entry.metadata().ok().and_then(|data| data.modified().ok())))
    });
    let mut signs: Vec<_> = signs.collect();
    signs.sort();
    signs
}

/// Whether a run would be restored: from a checkpoint, or each task from its own progress.
fn holds_checkpoint(checkpoints: &Path) -> bool {
    let Ok(entries) = fs::read_dir(checkpoints) else { return false };
    entries.flatten().any(|entry| {
        let is_progress = entry.file_name().to_string_lossy().starts_with(PROGRESS);
        is_progress || entry.path().join("metadata").is_file()
    })
}

fn has_ended(child: &mut Child) -> Result<bool, Failure> {
    child.try_wait().map(|status| status.is_some()).map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> Failure {
    Failure::input(format!("the run can not be started or killed: {error}"))
}

/// How long a run is expected to live until it is killed; the reading rate follows from it.
const CYCLE_SECONDS: f64 = 0.3;

/// A run that begins anew would have read all of the input after so many cycles, and is killed
/// within the first.
const ANEW_LIVES: u64 = 4;

/// How long to wait for progress.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the names of what a run writes begin.
const SIGNS: [&str; 3] = ["chk-", "reserved-", PROGRESS];
const PROGRESS: &str = "progress-";

/// How often to look at the child.
const GLANCE: Duration = Duration::from_millis(1);

/// How many of 1000 kills come soon after the start.
const EARLY_PERMILLE: u64 = 250;
