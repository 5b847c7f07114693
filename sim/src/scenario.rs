//! Scenarios: a run written down as readable TOML, with every decision by a stable name, so that it
//! can be played again when generators have changed.

use std::collections::BTreeMap;

use cofferdam::graph::PhysicalGraph;
use cofferdam::guarantee::{Claim, Guarantee, Level, Mechanism, SinkContract, StateHome};
use cofferdam::id::TaskId;
use cofferdam::trace::Window;
use serde::{Deserialize, Serialize};

use crate::decide::{Choice, Decisions};
use crate::fault::{Cut, Fault, Scope, Trigger};
use crate::options::Options;
use crate::run::{Run, Script};
use crate::story::word;
use crate::world::{Plan, hash_bytes};

/// A scenario file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The version of the format.
    pub version: u32,
    /// The job.
    pub job: String,
    /// The guarantee.
    pub guarantee: Guarantee,
    /// The mechanism; the guarantee's usual one if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// The sink; the guarantee's usual one if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<SinkContract>,
    /// Where keyed state lives; on the heap if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateHome>,
    /// The seed that the run was drawn from.
    pub seed: Seed,
    /// The build that wrote the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The hash of the trace, to be reached again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_hash: Option<String>,
    /// The hash of the rest of the file, to tell whether somebody has edited it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// The claim that was judged, where it does not follow from the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimText>,
    /// The job's parameters that differ from their defaults.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// The input's lines, where they are not drawn from the seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// What is drawn before the run begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Options>,
    /// The source records, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<RecordText>,
    /// The crashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Vec<FaultText>>,
    /// Everything else that could have gone otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decisions: Option<Vec<DecisionText>>,
}

/// A seed. TOML numbers end at 2^63, so greater ones are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "SeedText", try_from = "SeedText")]
pub struct Seed(
    /// The number.
    pub u64,
);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SeedText {
    Number(i64),
    Text(String),
}

impl From<Seed> for SeedText {
    fn from(seed: Seed) -> Self {
        i64::try_from(seed.0).map_or_else(|_| Self::Text(format!("{:#x}", seed.0)), Self::Number)
    }
}

impl TryFrom<SeedText> for Seed {
    type Error = String;

    fn try_from(text: SeedText) -> Result<Self, String> {
        let number = match &text {
            SeedText::Number(number) => u64::try_from(*number).ok(),
            SeedText::Text(text) => match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16).ok(),
                None => text.parse().ok(),
            },
        };
        number.map(Self).ok_or_else(|| "a seed is a number from 0 to 2^64 - 1".to_owned())
    }
}

/// A claim as it is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimText {
    /// For the state.
    pub state: Level,
    /// For the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Level>,
}

/// A source record as people read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordText {
    /// Which source of the job.
    pub source: u32,
    /// The place in its input.
    pub offset: u64,
    /// The record.
    pub text: String,
}

/// A crash as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultText {
    /// What dies.
    pub crash: Scope,
    /// The task whose call or window it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// In the how-manieth call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// Where in the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
    /// In which window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The how-manieth time there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occurrence: Option<u64>,
    /// Before the coordinator's how-manieth output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}

/// The decisions of one kind about one subject, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionText {
    /// The kind.
    pub choice: Choice,
    /// The task, channel or coordinator.
    pub subject: String,
    /// What was decided, occurrence by occurrence.
    pub values: Vec<u64>,
}

/// A scenario in a graph: what of it can be played there.
#[derive(Clone, Debug)]
pub struct Matched {
    /// What is played.
    pub script: Script,
    /// The faults and decisions about tasks and channels that the graph does not have.
    pub unknown: Vec<String>,
    /// How many are about tasks and channels that it has.
    pub known: usize,
}

/// Why a scenario can not be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// Not TOML, or not these fields.
    #[error("{0}")]
    Parse(String),
    /// A newer version, or none that there ever was.
    #[error("it has version {found}, and this build reads versions from 1 to {VERSION}")]
    Version {
        /// The version found.
        found: u32,
    },
    /// Options that no run can have.
    #[error("[options] {0}")]
    Options(String),
    /// A crash that says neither where nor when.
    #[error("fault {place} says neither call and cut, nor window and occurrence, nor output")]
    Fault {
        /// Its place in the file, from 1.
        place: usize,
    },
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// If the text is none.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        #[derive(Deserialize)]
        struct Head {
            version: Option<u32>,
        }
        let parse_error = |error: toml::de::Error| {
            let line = |at: usize| 1 + text[..at].matches('\n').count();
            let place = error.span().map(|span| format!("line {}: ", line(span.start)));
            let what = error.message().trim_end().replace('\n', ", ");
            ScenarioError::Parse(place.unwrap_or_default() + &what)
        };
        let head: Head = toml::from_str(text).map_err(parse_error)?;
        match head.version {
            Some(found) if !(1..=VERSION).contains(&found) => Err(ScenarioError::Version { found }),
            Some(_) | None => {
                let scenario: Self = toml::from_str(text).map_err(parse_error)?;
                let options = scenario.options.as_ref();
                options.map_or(Ok(()), Options::check).map_err(ScenarioError::Options)?;
                Ok(scenario)
            }
        }
    }

    /// A hash of all that it says but what it says of itself.
    pub fn content(&self) -> u64 {
        hash_bytes(0, Self { content_hash: None, ..self.clone() }.text().as_bytes())
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        toml::to_string(self).expect("every field of a scenario can be written as TOML")
    }

    /// The claim to judge by, if it does not follow from the job.
    pub fn claim(&self) -> Option<Claim> {
        self.claim.map(|claim| Claim { state: claim.state, output: claim.output })
    }

    /// Writes down the options, crashes and decisions of a run that kept them. Of a run in several
    /// layouts only the options: its tasks have no names that hold in all, so the rest is drawn
    /// from the seed again.
    pub fn take_from(&mut self, run: &Run) {
        let plan = run.world().plan();
        let graph = plan.job.graph();
        self.options = Some(plan.options.clone());
        if is_full(&plan.options) {
            let faults = plan.faults.iter().map(|fault| FaultText::of(fault, graph));
            self.faults = Some(faults.collect());
            let decisions = run.world().decider().recorded().into_iter().flatten();
            let decisions = decisions.map(|((choice, subject), values)| DecisionText {
                choice: *choice,
                subject: subject_name(*choice, *subject, graph),
                values: values.clone(),
            });
            self.decisions = Some(decisions.collect());
        }
        let inputs = run.case().inputs.iter().enumerate();
        self.records = inputs
            .flat_map(|(source, input)| {
                (0..input.records).map(move |offset| RecordText {
                    source: source as u32,
                    offset,
                    text: (input.text)(offset),
                })
            })
            .collect();
    }

    /// What is to be played again. `plan` is that of a run with the options of this scenario, or
    /// those of its seed if it has none: its graph gives names a meaning.
    ///
    /// # Errors
    /// If a fault is incomplete.
    pub fn script(&self, plan: &Plan) -> Result<Matched, ScenarioError> {
        let names = Names::of(plan.job.graph());
        let mut unknown = Vec::new();
        let mut known = 0;
        let mut faults = Vec::new();
        for (position, fault) in self.faults.iter().flatten().enumerate() {
            let place = position + 1;
            let task = match &fault.task {
                Some(name) => match names.tasks.get(name) {
                    Some(task) => {
                        known += 1;
                        *task
                    }
                    None => {
                        unknown.push(format!("fault {place} concerns the unknown task '{name}'"));
                        continue;
                    }
                },
                None => TaskId::new(0),
            };
            let trigger = fault.trigger(task).ok_or(ScenarioError::Fault { place })?;
            faults.push(Fault { scope: fault.crash, trigger });
        }
        let mut decisions = Decisions::new();
        for decision in self.decisions.iter().flatten() {
            match names.subject(decision.choice, &decision.subject) {
                Some(subject) => {
                    known += usize::from(decision.subject != COORDINATOR);
                    decisions.insert((decision.choice, subject), decision.values.clone());
                }
                None => unknown.push(format!(
                    "{} of the unknown '{}'",
                    word(decision.choice),
                    decision.subject
                )),
            }
        }
        let is_full = self.options.as_ref().is_some_and(is_full);
        let script = Script {
            options: plan.options.clone(),
            faults: (is_full || self.faults.is_some()).then_some(faults),
            decisions: (is_full || self.decisions.is_some()).then_some(decisions),
        };
        Ok(Matched { script, unknown, known })
    }
}

/// Whether whoever writes down these options writes down all: what is left out does not happen.
fn is_full(options: &Options) -> bool {
    options.rescales.is_empty()
}

impl FaultText {
    fn of(fault: &Fault, graph: &PhysicalGraph) -> Self {
        let mut text = Self {
            crash: fault.scope,
            task: None,
            call: None,
            cut: None,
            window: None,
            occurrence: None,
            output: None,
        };
        match fault.trigger {
            Trigger::Call { task, number, cut } => {
                text.task = Some(graph.task_name(task));
                text.call = Some(number);
                text.cut = Some(cut);
            }
            Trigger::In { task, window, occurrence } => {
                text.task = Some(graph.task_name(task));
                text.window = Some(window);
                text.occurrence = Some(occurrence);
            }
            Trigger::Output { number } => text.output = Some(number),
        }
        text
    }

    fn trigger(&self, task: TaskId) -> Option<Trigger> {
        match (self.call, self.window, self.output) {
            (Some(number), None, None) => Some(Trigger::Call { task, number, cut: self.cut? }),
            (None, Some(window), None) => {
                Some(Trigger::In { task, window, occurrence: self.occurrence? })
            }
            (None, None, Some(number)) => Some(Trigger::Output { number }),
            _ => None,
        }
    }
}

/// The numbers of everything that has a name in a graph.
struct Names {
    tasks: BTreeMap<String, TaskId>,
    channels: BTreeMap<String, u32>,
}

impl Names {
    fn of(graph: &PhysicalGraph) -> Self {
        let tasks = graph.tasks().map(|task| (graph.task_name(task), task));
        let channels = graph.channels().iter();
        let channels =
            channels.map(|channel| (channel_name(graph, channel.id.index()), channel.id.get()));
        Self { tasks: tasks.collect(), channels: channels.collect() }
    }

    fn subject(&self, choice: Choice, name: &str) -> Option<u32> {
        if choice == Choice::ChannelDelay {
            return self.channels.get(name).copied();
        }
        if name == COORDINATOR {
            return Some(u32::MAX);
        }
        self.tasks.get(name).map(|task| task.get())
    }
}

/// The name of what a decision is about.
pub fn subject_name(choice: Choice, subject: u32, graph: &PhysicalGraph) -> String {
    if choice == Choice::ChannelDelay {
        channel_name(graph, subject as usize)
    } else if subject == u32::MAX {
        COORDINATOR.to_owned()
    } else {
        graph.task_name(TaskId::new(subject))
    }
}

/// The name of a channel: its edge counts, since two edges may join the same tasks.
fn channel_name(graph: &PhysicalGraph, channel: usize) -> String {
    let channel = graph.channels()[channel];
    let (from, to) = (graph.task_name(channel.from), graph.task_name(channel.to));
    format!("{from} => {to} by edge {}", channel.edge)
}

/// The version of the format that this build writes.
pub const VERSION: u32 = 1;
const COORDINATOR: &str = "coordinator";
