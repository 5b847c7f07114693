//! The flags that say how barriers travel, and which mechanisms heed them.

use std::time::Duration;

use clap::{Arg, Args};
use cofferdam::config::JobConfig;
use cofferdam::guarantee::Mechanism;

use crate::cli::exit::Failure;
use crate::cli::values::positive_size;
use crate::jobs::parse_duration;
use crate::run;

/// The flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub(crate) struct BarrierArgs {
    /// Under aligned-timeout: how long after its trigger a checkpoint is still aligned
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    alignment_timeout: Option<Duration>,
    /// How many checkpoints may be under way at a time, where barriers do not overtake
    #[arg(long, value_name = "N", value_parser = positive_size)]
    concurrent_checkpoints: Option<usize>,
}

/// Says in the help of a flag what holds without it, which is another thing in each command.
pub(crate) fn with_default(arg: Arg, default: &str) -> Arg {
    let help = format!("{} [default: {default}]", arg.get_help().cloned().unwrap_or_default());
    arg.help(help)
}

impl BarrierArgs {
    /// Whether nothing was given.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses a flag that means nothing under any of the mechanisms; `command` is the one that
    /// asks.
    pub(crate) fn check(&self, command: &str, mechanisms: &[Mechanism]) -> Result<(), Failure> {
        let [mechanism, ..] = *mechanisms else { return Ok(()) };
        let refuse = |text: String| Err(Failure::usage(command, text));
        if self.alignment_timeout.is_some() && !mechanisms.contains(&Mechanism::AlignedTimeout) {
            return refuse(format!(
                "--alignment-timeout is for --mechanism aligned-timeout, and this is {mechanism}: \
                 leave it out or name that mechanism"
            ));
        }
        let overlaps = mechanisms.iter().any(|mechanism| mechanism.overlaps());
        if self.concurrent_checkpoints.is_some_and(|most| most > 1) && !overlaps {
            return refuse(format!(
                "--concurrent-checkpoints: under --mechanism {mechanism} only one checkpoint is \
                 under way at a time: leave it out, or use aligned, tracked or mini-batch"
            ));
        }
        Ok(())
    }

    /// Puts the flags into what a job is run with.
    pub(crate) fn apply(&self, config: &mut JobConfig) {
        config.alignment_timeout = self.alignment_timeout.unwrap_or(config.alignment_timeout);
        config.checkpoints_concurrent =
            self.concurrent_checkpoints.unwrap_or(config.checkpoints_concurrent);
    }

    /// Puts the flags into a mode of simulated runs, in place of what those draw.
    pub(crate) fn fix(&self, mode: &mut run::Mode) {
        mode.alignment_timeout = self.alignment_timeout;
        mode.checkpoints_concurrent = self.concurrent_checkpoints;
    }

    /// The flags again, those that mean something under `mechanism`.
    pub(crate) fn words(&self, mechanism: Mechanism) -> Vec<String> {
        let timeout = self.alignment_timeout.filter(|_| mechanism == Mechanism::AlignedTimeout);
        let timeout = timeout.map(|timeout| format!("{}ms", timeout.as_millis()));
        let most = self.concurrent_checkpoints.filter(|_| mechanism.overlaps());
        let flags = [
            ("--alignment-timeout", timeout),
            ("--concurrent-checkpoints", most.map(|most| most.to_string())),
        ];
        let given = flags.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        given.flatten().collect()
    }
}
