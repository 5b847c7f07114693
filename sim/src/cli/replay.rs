//! `replay`: one simulated run again, from a scenario file or a seed, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cofferdam::guarantee::{Claim, Level};
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::mode::{Mode, ModeArgs, sample};
use crate::cli::output::{Console, own_command_line};
use crate::cli::simulated::{SimulationArgs, build};
use crate::cli::suite::subject_word;
use crate::cli::values::{find_job, positive, seed};
use crate::jobs::{BuiltinJob, Parameters};
use crate::oracle::{Anomaly, Finding, Judgement, Verdict};
use crate::run::{self, Report, Run, Script};
use crate::scenario::{ClaimText, Scenario, Seed, VERSION, subject_name};
use crate::story;

/// Run one simulation again, byte for byte
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The scenario file
    #[arg(required_unless_present = "seed", conflicts_with_all = ["seed", "job"])]
    scenario: Option<PathBuf>,
    /// The job
    #[arg(long, requires = "seed")]
    job: Option<String>,
    /// The seed
    #[arg(long, value_name = "S", value_parser = seed, requires = "job")]
    seed: Option<u64>,
    #[command(flatten)]
    mode: SimulatedModeArgs,
    #[command(flatten)]
    simulation: SimulationArgs,
    /// Print every event, a line each
    #[arg(long)]
    trace: bool,
    /// Stop after this many events of the simulation; nothing is judged then
    #[arg(long, value_name = "STEP", value_parser = positive)]
    until: Option<u64>,
    /// Print the options that were drawn from the seed
    #[arg(long)]
    options: bool,
    /// Fail if a decision of the scenario no longer applies
    #[arg(long)]
    strict: bool,
}
