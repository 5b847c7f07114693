//! `jobs`: what can be run, and what a job looks like.

use clap::Args;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::graph::{Graph, dot, mermaid, text};
use crate::cli::mode::{ModeArgs, sample};
use crate::cli::output::{Console, Paint, Painted, Table};
use crate::cli::values::{find_job, seed};
use crate::jobs::{self, BuiltinJob, Parameter, Parameters};

/// List the built-in jobs, or show the graph of one
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// The job whose graph is shown
    job: Option<String>,
    /// Print the graph for Graphviz
    #[arg(long, requires = "job")]
    dot: bool,
    /// Print the graph for Mermaid
    #[arg(long, requires = "job", conflicts_with = "dot")]
    mermaid: bool,
    /// What random-graph is drawn from
    #[arg(long, value_parser = seed, default_value = "0")]
    seed: u64,
    #[command(flatten)]
    mode: ModeArgs,
}

/// A job, for scripts.
#[derive(Serialize)]
struct JobRow {
    job: &'static str,
    about: &'static str,
    reads: Option<String>,
    parameters: Vec<ParameterRow>,
}

#[derive(Serialize)]
struct ParameterRow {
    flag: &'static str,
    default: &'static str,
    help: &'static str,
}

#[derive(Serialize)]
struct ListSummary {
    schema: &'static str,
    jobs: usize,
}

#[derive(Serialize)]
struct GraphSummary<'a> {
    schema: &'static str,
    #[serde(flatten)]
    job: JobRow,
    #[serde(flatten)]
    graph: &'a Graph,
}

pub(crate) fn jobs(args: &JobsArgs, console: &Console) -> Result<Exit, Failure> {
    match &args.job {
        Some(name) => show(args, name, console)?,
        None if console.is_json() => {
            for job in jobs::all() {
                console.row(&JobRow::of(*job));
            }
            console.row(&ListSummary { schema: SCHEMA, jobs: jobs::all().len() });
        }
        None => list(console),
    }
    Ok(Exit::Done)
}

fn list(console: &Console) {
    for job in jobs::all() {
        console.say(format!("{}  {}", console.paint.bold(job.name()), job.about()));
        tell_parameters(*job, console);
    }
    console.say(console.paint.dim("\ncofferdam jobs JOB shows a graph, cofferdam run JOB runs it"));
}

fn show(args: &JobsArgs, name: &str, console: &Console) -> Result<(), Failure> {
    let job = find_job("jobs", name)?;
    let mode = args.mode.mode("jobs")?;
    let setup = mode.setup(args.mode.parallelism, Parameters::of(job));
    let graph = Graph::of(&sample(job, &setup, args.seed)?);
    if console.is_json() {
        console.row(&GraphSummary { schema: SCHEMA, job: JobRow::of(job), graph: &graph });
    } else if args.dot {
        console.say(dot(job.name(), &graph));
    } else if args.mermaid {
        console.say(mermaid(&graph));
    } else {
        console.say(format!("{}  {}", console.paint.bold(job.name()), job.about()));
        tell_parameters(job, console);
        console.say(format!("\n{}", text(&graph, console.paint)));
    }
    Ok(())
}

fn tell_parameters(job: &dyn BuiltinJob, console: &Console) {
    let paint = console.paint;
    let mut table = Table::default();
    for Parameter { flag, default, help } in job.parameters() {
        let flag = format!("  --{flag} {default}");
        table.row(paint, [(flag.as_str(), Paint::good as Painted), (help, Paint::plain)]);
    }
    table.lines().for_each(|line| console.say(line));
}

impl JobRow {
    fn of(job: &dyn BuiltinJob) -> Self {
        let parameters = job.parameters().iter();
        Self {
            job: job.name(),
            about: job.about(),
            reads: job.reads().map(|format| format.to_string()),
            parameters: parameters
                .map(|Parameter { flag, default, help }| ParameterRow { flag, default, help })
                .collect(),
        }
    }
}

const SCHEMA: &str = "cofferdam.jobs/1";
