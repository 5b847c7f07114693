//! How the values of flags are read, the same for every command.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use cofferdam::config::RestartStrategy;
use cofferdam::guarantee::{Guarantee, Mechanism, SinkContract, StateHome};

use crate::cli::exit::Failure;
use crate::jobs::{self, BuiltinJob, Parameter, Parameters, parse_count, parse_duration};

/// A closed list of words, as the engine knows it.
pub(crate) trait Words: FromStr + Clone + Send + Sync + 'static {
    /// The words, each with a phrase for the help.
    fn words() -> Vec<PossibleValue>;
}

macro_rules! words {
    ($name:ident { $($variant:ident: $phrase:literal,)+ }) => {
        impl Words for $name {
            fn words() -> Vec<PossibleValue> {
                let phrase = |value: &Self| match value {
                    $(Self::$variant => $phrase,)+
                };
                let word = |value: &Self| PossibleValue::new(value.word()).help(phrase(value));
                Self::ALL.iter().map(word).collect()
            }
        }
    };
}

words!(Guarantee {
    AtMostOnce: "Once or not at all: nothing is read again",
    AtLeastOnce: "Once or more often: nothing is lost",
    ExactlyOnce: "Once, as if nothing had failed",
});

words!(Mechanism {
    None: "at-most-once: no checkpoints; positions are stored before records are handed out",
    Tracked: "at-least-once: barriers never block a channel",
    Acks: "at-least-once: no checkpoints; what is not acknowledged in time is read again",
    FullReplay: "exactly-once: after a failure everything begins again at the start",
    MiniBatch: "at-least-once: as aligned, and keyed state is dropped at each barrier",
    Aligned: "exactly-once: a channel whose barrier has come waits for the others",
    Unaligned: "exactly-once: barriers overtake records, which the snapshot holds then",
    AlignedTimeout: "exactly-once: as aligned, and after a timeout as unaligned",
    Transactional: "exactly-once: no barriers; each task stores what it did before it sends it on",
});

words!(SinkContract {
    Plain: "A row is visible at once, and again if it is replayed",
    Idempotent: "A row takes the place of the row with its key",
    TwoPhase: "A row is visible when the checkpoint that covers it is complete",
    WriteAhead: "A row waits in the task's state, and is sent when its checkpoint is complete",
    Discard: "Nothing is written: for measuring",
});

words!(StateHome {
    Heap: "In the tasks; checkpoints hold it",
    External: "In a store of its own, which no failure rolls back",
    ExternalTransactional: "In a store of its own, which rolls back with the checkpoint",
});

/// Reads one of the words of `T`; help and errors list them.
pub(crate) fn word<T: Words>() -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(T::words())
        .map(|word| word.parse().ok().expect("only words of the list come through"))
}

/// Reads a seed: decimal, or hexadecimal behind `0x`.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let seed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    seed.map_err(|_| "not a seed such as 7 or 0x1f, below 2^64".to_owned())
}

/// Reads a duration that is not zero.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        interval => Ok(interval),
    }
}

/// A restart strategy as it was typed, and what it means.
#[derive(Clone, Debug)]
pub(crate) struct Restarts {
    pub(crate) text: String,
    pub(crate) strategy: RestartStrategy,
}

/// Reads a restart strategy.
pub(crate) fn restarts(text: &str) -> Result<Restarts, String> {
    let count = |text: &str| {
        let count = parse_count(text)?;
        u32::try_from(count).map_err(|_| format!("'{text}' is too large"))
    };
    let parts: Vec<&str> = text.split(':').collect();
    let strategy = match parts[..] {
        ["none"] => RestartStrategy::None,
        ["fixed", attempts, delay] => RestartStrategy::FixedDelay {
            attempts: count(attempts)?,
            delay: parse_duration(delay)?,
        },
        ["exponential", first, max, quiet] => {
            let (first, max, quiet) = (interval(first)?, interval(max)?, interval(quiet)?);
            if first > max {
                return Err("FIRST is longer than MAX: delays grow from FIRST up to MAX".to_owned());
            }
            RestartStrategy::Exponential { first, max, quiet }
        }
        ["rate", failures, within, delay] => {
            let (failures, interval) = (count(failures)?, interval(within)?);
            if failures == 0 {
                return Err("N must be at least 1; to restart never, say none".to_owned());
            }
            RestartStrategy::FailureRate { failures, interval, delay: parse_duration(delay)? }
        }
        _ => {
            return Err("it is none, fixed:N:DELAY, exponential:FIRST:MAX:QUIET or \
                        rate:N:INTERVAL:DELAY"
                .to_owned());
        }
    };
    Ok(Restarts { text: text.to_owned(), strategy })
}

/// Reads a count of at least one.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("it must be at least 1".to_owned()),
        count => Ok(count),
    }
}

/// Reads a count of things that are kept in memory, at least one.
pub(crate) fn positive_size(text: &str) -> Result<usize, String> {
    usize::try_from(positive(text)?).map_err(|_| "too many for this machine".to_owned())
}

/// The built-in job with this name.
pub(crate) fn find_job(command: &str, name: &str) -> Result<&'static dyn BuiltinJob, Failure> {
    jobs::find(name).ok_or_else(|| {
        let names: Vec<_> = jobs::all().iter().map(|job| job.name()).collect();
        Failure::usage(command, format!("no job '{name}': it is one of {}", names.join(", ")))
    })
}

/// The parameters of all jobs as flags; which ones belong to the job is checked when it is known.
#[derive(Clone, Debug)]
pub(crate) struct JobParameters<const OF_CASE: bool = false>(Vec<(&'static str, String)>);

/// Those of jobs over an input in memory, whose length the commands that simulate say themselves.
pub(crate) type CaseParameters = JobParameters<true>;

impl<const OF_CASE: bool> JobParameters<OF_CASE> {
    /// What was given, for `job`.
    pub(crate) fn of(&self, job: &dyn BuiltinJob) -> Result<Parameters, Failure> {
        let given = self.0.iter().map(|(flag, value)| (*flag, value.as_str()));
        Ok(Parameters::given(job, given)?)
    }

    /// What was given, as words of a command line.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        self.0.iter().flat_map(|(flag, value)| [format!("--{flag}"), value.clone()])
    }

    /// Whether nothing was given.
    pub(crate) fn is_default(&self) -> bool {
        self.0.is_empty()
    }

    /// What was given for one flag.
    pub(crate) fn given(&self, flag: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == flag).map(|(_, value)| value.as_str())
    }

    /// All but what was given for these flags.
    pub(crate) fn without(&self, flags: &[&str]) -> Self {
        let others = self.0.iter().filter(|(flag, _)| !flags.contains(flag));
        Self(others.cloned().collect())
    }

    /// The flags.
    pub(crate) fn flags() -> impl Iterator<Item = &'static str> {
        Self::with_help().into_iter().map(|(flag, _)| flag)
    }

    fn with_help() -> Vec<(&'static str, String)> {
        let of_run = jobs::all().iter().flat_map(|job| of_job(*job, job.parameters()));
        let of_case = jobs::all().iter().flat_map(|job| of_job(*job, job.case_parameters()));
        let of_case = of_case.filter(|_| OF_CASE);
        job_flags(of_run.filter(|(flag, ..)| !(OF_CASE && *flag == "records")).chain(of_case))
    }
}

/// The flags of a job, each with its name and help: what it is for, and the default.
fn of_job(
    job: &dyn BuiltinJob,
    parameters: &[Parameter],
) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let name = job.name();
    parameters.iter().map(move |known| {
        (known.flag, name, format!("{} [default: {}]", known.help, known.default))
    })
}

/// Each flag once, with the help of all jobs that have it; where it says the same of several they
/// are named together.
fn job_flags(
    all: impl Iterator<Item = (&'static str, &'static str, String)>,
) -> Vec<(&'static str, String)> {
    let mut order: Vec<&'static str> = Vec::new();
    let mut helps: BTreeMap<&'static str, Vec<(Vec<&'static str>, String)>> = BTreeMap::new();
    for (flag, job, help) in all {
        let of_flag = helps.entry(flag).or_insert_with(|| {
            order.push(flag);
            Vec::new()
        });
        match of_flag.iter_mut().find(|(_, other)| *other == help) {
            Some((jobs, _)) => jobs.push(job),
            None => of_flag.push((vec![job], help)),
        }
    }
    let text = |flag| {
        let texts = helps[flag].iter().map(|(jobs, help)| format!("{}: {help}", jobs.join(", ")));
        texts.collect::<Vec<String>>().join("; ")
    };
    order.into_iter().map(|flag| (flag, text(flag))).collect()
}

impl<const OF_CASE: bool> FromArgMatches for JobParameters<OF_CASE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::flags()
            .filter_map(|flag| matches.get_one::<String>(flag).map(|value| (flag, value.clone())));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const OF_CASE: bool> Args for JobParameters<OF_CASE> {
    fn augment_args(command: Command) -> Command {
        let flags = Self::with_help().into_iter().map(|(flag, help)| {
            let arg = Arg::new(flag).long(flag).value_name("VALUE").help(help);
            arg.allow_negative_numbers(true).help_heading("Parameters of the jobs")
        });
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(seed("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(seed("0xff"), Ok(255));
        for bad in ["", "0x", "-1", "ff", "18446744073709551616"] {
            assert!(seed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_must_not_be_zero_is_refused() {
        assert_eq!(positive("10k"), Ok(10_000));
        assert!(positive("0").is_err() && interval("0s").is_err());
    }

    #[test]
    fn restart_strategies_are_named_with_their_numbers() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        for (text, strategy) in [
            ("none", RestartStrategy::None),
            ("fixed:3:1s", RestartStrategy::FixedDelay { attempts: 3, delay: second }),
            (
                "exponential:1s:1m:1m",
                RestartStrategy::Exponential { first: second, max: minute, quiet: minute },
            ),
            (
                "rate:5:1m:1s",
                RestartStrategy::FailureRate { failures: 5, interval: minute, delay: second },
            ),
        ] {
            assert_eq!(restarts(text).unwrap().strategy, strategy);
        }
        for bad in ["", "never", "fixed", "fixed:3", "fixed:-1:1s", "rate:5:0s:1s", "none:1"] {
            assert!(restarts(bad).is_err(), "{bad}");
        }
        let refusal = |text| restarts(text).unwrap_err();
        assert!(refusal("exponential:2s:1s:1m").contains("FIRST is longer than MAX"));
        assert!(refusal("rate:0:1m:1s").contains("say none"));
    }

    #[test]
    fn the_flags_of_jobs_are_unique() {
        let mut flags: Vec<_> = CaseParameters::flags().collect();
        let all = flags.len();
        flags.sort_unstable();
        flags.dedup();
        assert_eq!(flags.len(), all);
    }
}
