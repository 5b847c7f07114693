//! The command line: what users type, what they see, and the exit code. Each command is a file; it
//! returns how it ended, and nothing but `main` ends the process, except for a second Ctrl-C.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "people wait in real time, and torture kills at real moments"
)]
// These panic when nobody reads; `output` does not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod analyze;
mod barriers;
mod compare;
#[cfg(feature = "sqlite")]
mod database;
#[cfg(feature = "sqlite")]
mod distant;
mod edit;
mod exit;
mod folder;
mod graph;
mod jobs;
mod leaks;
mod mark;
mod mode;
mod output;
mod readable;
mod replay;
mod requests;
mod run;
mod shown;
mod signals;
mod simulated;
mod snapshots;
mod state;
mod suite;
mod torture;
mod values;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use exit::Failure;
use output::{Console, ConsoleArgs};

pub use exit::Exit;

/// A stream engine with checkpoint barriers, and the simulator that tries to refute what it claims.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    console: ConsoleArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Jobs(jobs::JobsArgs),
    Analyze(analyze::AnalyzeArgs),
    Run(run::RunArgs),
    Torture(torture::TortureArgs),
    Compare(compare::CompareArgs),
    Suite(suite::SuiteArgs),
    Replay(replay::ReplayArgs),
    Savepoint(snapshots::SavepointArgs),
    State(snapshots::StateArgs),
}

impl Command {
    fn execute(&self, console: &Console) -> Result<Exit, Failure> {
        match self {
            Self::Jobs(args) => jobs::jobs(args, console),
            Self::Analyze(args) => analyze::analyze(args, console),
            Self::Run(args) => run::run(args, console),
            Self::Torture(args) => torture::torture(args, console),
            Self::Compare(args) => compare::compare(args, console),
            Self::Suite(args) => suite::suite(args, console),
            Self::Replay(args) => replay::replay(args, console),
            Self::Savepoint(args) => snapshots::savepoint(args, console),
            Self::State(args) => snapshots::state(args, console),
        }
    }
}

/// Reads the command line, does what it says, and returns the exit code.
pub fn main() -> ExitCode {
    signals::exit_on_panic();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error).into(),
    };
    let console = Console::new(&cli.console);
    let exit = cli.command.execute(&console).unwrap_or_else(|failure| {
        console.fail(&failure);
        failure.exit
    });
    exit.into()
}

/// Shows the help or version that was asked for, or says what is wrong with the command line.
fn not_parsed(error: &clap::Error) -> Exit {
    let console = Console::new(&ConsoleArgs::default());
    if !error.use_stderr() {
        console.say(error.render().to_string().trim_end());
        return Exit::Done;
    }
    let is_bare = error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    let text = if is_bare { "a command is missing" } else { &*error.render().to_string() };
    // What clap adds, usage and a hint at help, the command below it gives in full.
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let ends = ["\n\nUsage:", "\n\nFor more information"].map(|head| text.find(head));
    let end = ends.into_iter().flatten().min().unwrap_or(text.len());
    let commands = Cli::command();
    let named = std::env::args().skip(1).find(|word| commands.find_subcommand(word).is_some());
    let failure = Failure::usage(&named.unwrap_or_default(), text[..end].trim_end());
    console.fail(&failure);
    failure.exit
}
