//! What `suite` and `replay` share: the flags that shape simulated runs, and the commands that name
//! one of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use cofferdam::guarantee::{Claim, Level, Mechanism, StateHome};

use crate::cli::barriers::{BarrierArgs, with_default};
use crate::cli::exit::Failure;
use crate::cli::mode::sample;
use crate::cli::output::{command_line, grouped};
use crate::cli::state::{binding, check_home};
use crate::cli::values::{CaseParameters, positive_size, word};
use crate::jobs::{BuiltinJob, CaseData, Parameters, Setup};
use crate::options::{FaultProfile, RECORDS_MAX};
use crate::run::{self, Mode, RECORDS_DEFAULT};

/// The flags.
#[derive(Clone, Debug, Args)]
#[command(
    next_help_heading = "Simulation",
    mut_arg("alignment_timeout", |arg| with_default(arg, "drawn from the seed")),
    mut_arg("concurrent_checkpoints", |arg| with_default(arg, "drawn from the seed"))
)]
pub(crate) struct SimulationArgs {
    /// Take the records from a file and not from the seed
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Source records in each run
    #[arg(long, value_name = "N", value_parser = records, default_value_t = RECORDS_DEFAULT)]
    records: usize,
    /// Subtasks of each operator [default: drawn from the seed, 1 to 3]
    #[arg(long, value_name = "N", value_parser = positive_size)]
    parallelism: Option<usize>,
    /// Which faults there are
    #[arg(long, value_enum, default_value_t = Faults::Default)]
    faults: Faults,
    /// Where keyed state lives
    #[arg(long, value_name = "WHERE", value_parser = word::<StateHome>(), default_value = "heap")]
    state: StateHome,
    #[command(flatten)]
    barriers: BarrierArgs,
    /// The claim to judge by: LEVEL, or state=LEVEL,output=LEVEL [default: it follows from the job]
    #[arg(long, value_name = "CLAIM", value_parser = claim)]
    claim: Option<ClaimArg>,
    #[command(flatten)]
    parameters: CaseParameters,
}

/// Which faults simulated runs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Faults {
    /// Nothing goes wrong
    None,
    /// Kinds drawn from the seed
    Default,
    /// Every kind in each run
    Full,
    /// As default, and the job goes on with another parallelism on the way
    Rescale,
}

impl Faults {
    pub(crate) fn profile(self) -> FaultProfile {
        match self {
            Self::None => FaultProfile::None,
            Self::Default => FaultProfile::Default,
            Self::Full => FaultProfile::Full,
            Self::Rescale => FaultProfile::Rescale,
        }
    }

    /// Those that a row of this mode has: where a job can not go on at another parallelism it does
    /// not.
    pub(crate) fn of(self, mechanism: Mechanism, state: StateHome) -> Self {
        let is_bound = binding(mechanism, state).is_some();
        if self == Self::Rescale && is_bound { Self::Default } else { self }
    }

    /// Refuses to go on at another parallelism where a real run would under each of the mechanisms;
    /// `command` is the one that asks.
    pub(crate) fn check(
        self,
        command: &str,
        state: StateHome,
        mechanisms: &[Mechanism],
    ) -> Result<(), Failure> {
        let is_dealt_out = |of: &Mechanism| self.of(*of, state) == self;
        // What the state says holds for each of them.
        let of_state = mechanisms.iter().find(|of| of.takes_checkpoints());
        let reason = of_state.or(mechanisms.first()).and_then(|of| binding(*of, state));
        match reason.filter(|_| !mechanisms.iter().any(is_dealt_out)) {
            Some(reason) => {
                let text = format!("--faults rescale: {reason}: leave one of the two out");
                Err(Failure::usage(command, text))
            }
            None => Ok(()),
        }
    }

    /// The words of a command line that say the same; none for the default.
    pub(crate) fn words(self) -> Vec<String> {
        let word = match self {
            Self::None => "none",
            Self::Default => return Vec::new(),
            Self::Full => "full",
            Self::Rescale => "rescale",
        };
        ["--faults", word].map(str::to_owned).to_vec()
    }
}

/// A claim as it is typed: what is not named follows from the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimArg {
    state: Option<Level>,
    output: Option<Level>,
}

impl SimulationArgs {
    /// Whether everything is left at its default.
    pub(crate) fn is_default(&self) -> bool {
        self.input.is_none()
            && self.records == RECORDS_DEFAULT
            && self.parallelism.is_none()
            && self.faults == Faults::Default
            && self.state == StateHome::Heap
            && self.barriers.is_default()
            && self.claim.is_none()
            && self.parameters.is_default()
    }

    /// The parameters of a job.
    pub(crate) fn parameters(&self, job: &dyn BuiltinJob) -> Result<Parameters, Failure> {
        self.parameters.of(job)
    }

    /// Refuses flags that do not go with the mechanisms; `command` is the one that asks.
    pub(crate) fn check(&self, command: &str, mechanisms: &[Mechanism]) -> Result<(), Failure> {
        self.barriers.check(command, mechanisms)?;
        mechanisms.iter().try_for_each(|mechanism| check_home(command, self.state, *mechanism))?;
        self.faults.check(command, self.state, mechanisms)
    }

    /// The input's lines, if a file was given.
    pub(crate) fn lines(&self) -> Result<Option<Arc<[String]>>, Failure> {
        self.input.as_deref().map(read_lines).transpose()
    }

    /// The claim that follows from a job, after a look at whether it can read `lines`, all of them:
    /// a run takes only some.
    pub(crate) fn inferred_claim(
        &self,
        job: &dyn BuiltinJob,
        mut setup: Setup,
        lines: Option<&Arc<[String]>>,
    ) -> Result<Claim, Failure> {
        setup.config.state = self.state;
        let setup = &setup;
        let Some((path, lines)) = self.input.as_ref().zip(lines) else {
            return Ok(sample(job, setup, 0)?.claim().claim());
        };
        let Some(format) = job.reads() else {
            return Err(Failure::input(format!(
                "--input {}: job '{}' makes its own input: leave the flag out, or name only jobs \
                 that read a file",
                path.display(),
                job.name()
            )));
        };
        let records = lines.len() - usize::from(format.has_header() && !lines.is_empty());
        let data = CaseData { seed: 0, records, lines: Some(lines.clone()) };
        let case = job.case(&data, setup);
        let case = case.map_err(|error| {
            let (name, path) = (job.name(), path.display());
            Failure::input(format!("--input {path}: job '{name}' can not read it: {error}"))
        })?;
        Ok(case.job.claim().claim())
    }

    /// Puts the flags into a mode. `inferred` is the claim that follows from the job.
    pub(crate) fn apply(&self, mode: &mut Mode, lines: Option<Arc<[String]>>, inferred: Claim) {
        mode.records = self.records;
        mode.parallelism = self.parallelism;
        mode.state = self.state;
        self.barriers.fix(mode);
        mode.lines = lines;
        mode.faults = self.faults.of(mode.mechanism, self.state).profile();
        mode.claim = self.claim.map(|claim| claim.over(inferred));
    }

    /// Whether nothing is to go wrong.
    pub(crate) fn is_without_faults(&self) -> bool {
        self.faults == Faults::None
    }

    /// The command that replays one seed of a row with these flags.
    pub(crate) fn replay_command(&self, job: &str, mode: &run::Mode, seed: u64) -> String {
        command_line(self.replay_words(job, mode, seed))
    }

    /// The words of that command.
    pub(crate) fn replay_words(&self, job: &str, mode: &run::Mode, seed: u64) -> Vec<String> {
        let mut words: Vec<String> = ["replay", "--job", job].map(str::to_owned).to_vec();
        words.extend(["--guarantee".to_owned(), mode.guarantee.to_string()]);
        words.extend(["--mechanism".to_owned(), mode.mechanism.to_string()]);
        words.extend(["--sink".to_owned(), mode.sink.to_string()]);
        if self.state != StateHome::Heap {
            words.extend(["--state".to_owned(), self.state.to_string()]);
        }
        words.extend(self.barriers.words(mode.mechanism));
        if let Some(claim) = self.claim {
            words.extend(["--claim".to_owned(), claim.text()]);
        }
        if let Some(input) = &self.input {
            words.extend(["--input".to_owned(), input.display().to_string()]);
        }
        if self.records != RECORDS_DEFAULT {
            words.extend(["--records".to_owned(), self.records.to_string()]);
        }
        if let Some(parallelism) = self.parallelism {
            words.extend(["--parallelism".to_owned(), parallelism.to_string()]);
        }
        words.extend(self.faults.of(mode.mechanism, self.state).words());
        words.extend(self.parameters.words());
        words.extend(["--seed".to_owned(), seed.to_string()]);
        words
    }
}

impl ClaimArg {
    pub(crate) fn over(self, inferred: Claim) -> Claim {
        Claim {
            state: self.state.unwrap_or(inferred.state),
            // A job whose sinks show nothing has no output to make claims about.
            output: inferred.output.map(|level| self.output.unwrap_or(level)),
        }
    }

    fn text(self) -> String {
        match (self.state, self.output) {
            (Some(state), Some(output)) if state == output => state.to_string(),
            (state, output) => {
                let state = state.map(|level| format!("state={level}"));
                let output = output.map(|level| format!("output={level}"));
                state.into_iter().chain(output).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// Reads how many records a run has.
fn records(text: &str) -> Result<usize, String> {
    match positive_size(text)? {
        records if records > RECORDS_MAX => {
            Err(format!("a simulated run has at most {} records", grouped(RECORDS_MAX as u64)))
        }
        records => Ok(records),
    }
}

/// Reads a claim as it is typed.
pub(crate) fn claim(text: &str) -> Result<ClaimArg, String> {
    let level = |word: &str| word.parse::<Level>().map_err(|error| error.to_string());
    if !text.contains('=') {
        let level = Some(level(text)?);
        return Ok(ClaimArg { state: level, output: level });
    }
    let mut claim = ClaimArg { state: None, output: None };
    for part in text.split(',') {
        let (side, word) = match part.split_once('=') {
            Some(("state", word)) => (&mut claim.state, word),
            Some(("output", word)) => (&mut claim.output, word),
            Some(_) | None => {
                return Err(format!("'{part}' is neither state=LEVEL nor output=LEVEL"));
            }
        };
        if side.replace(level(word)?).is_some() {
            return Err(format!("'{part}' comes on top of another level for the same side"));
        }
    }
    Ok(claim)
}

/// The lines of a text file.
fn read_lines(path: &Path) -> Result<Arc<[String]>, Failure> {
    let input = |text: String| Failure::input(format!("--input {}: {text}", path.display()));
    let bytes = fs::read(path).map_err(|error| input(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        input(format!("line {line} is not UTF-8"))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.is_empty() {
        return Err(input("it is empty".to_owned()));
    }
    Ok(text.lines().map(str::to_owned).collect())
}

/// What built this program: for scenario files, whose replay warns of another build.
pub(crate) fn build() -> String {
    format!(
        "{} {} {}",
        env!("CARGO_PKG_VERSION"),
        env!("COFFERDAM_REVISION"),
        env!("COFFERDAM_RUSTC")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_one_level_or_one_for_each_side() {
        let inferred = Claim { state: Level::ExactlyOnce, output: Some(Level::AtLeastOnce) };
        let both = claim("at-most-once").unwrap().over(inferred);
        assert_eq!(both.output, Some(Level::AtMostOnce));
        let output = claim("output=exactly-once").unwrap();
        assert_eq!(output.over(inferred).state, Level::ExactlyOnce);
        assert_eq!(output.text(), "output=exactly-once");
        assert!(claim("exactly-twice").unwrap_err().contains("exactly-twice"));
        assert!(claim("state=none,state=exactly-once").unwrap_err().contains("exactly-once"));
        assert!(claim("sink=none").unwrap_err().contains("state=LEVEL"));
    }
}
