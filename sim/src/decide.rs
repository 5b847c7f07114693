//! Decisions: everything in a run that could have gone otherwise and is not a planned fault. Each
//! has a kind, a subject and its place among the decisions of both, which is a name that survives
//! changes elsewhere. They are drawn from the seed, or read from a scenario that recorded them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dice::{Dice, Purpose};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// How long an element travels, by channel.
    ChannelDelay,
    /// How long a step takes, by task.
    StepTime,
    /// Which of several ready inputs comes first, by task.
    NextInput,
    /// How many records are read together, by task.
    BatchSize,
    /// How long a message takes, by task.
    MessageDelay,
    /// What becomes of a notice, by task.
    NoticeFate,
    /// How long a write takes, by writer.
    WriteDelay,
    /// What becomes of a write, by writer.
    WriteFate,
    /// What becomes of what was under way at a crash, by task.
    CrashFate,
    /// How long until a crash is noticed, by task.
    Detection,
    /// How long a task takes to start, by task.
    StartDelay,
    /// Whether a stopped task goes on for a while, by task.
    ZombieFate,
    /// What becomes of a commit, by task.
    CommitFate,
    /// When a log drops its oldest records, and how many, by truncation.
    Truncation,
    /// Which message a queue gives out, and when it hears and answers, by task.
    Delivery,
    /// How long a search for splits takes, and whether there are some by now, by source.
    Search,
}

impl Choice {
    const fn purpose(self) -> Purpose {
        match self {
            Self::ChannelDelay
            | Self::StepTime
            | Self::NextInput
            | Self::BatchSize
            | Self::StartDelay
            | Self::Detection => Purpose::Schedule,
            Self::MessageDelay | Self::NoticeFate | Self::ZombieFate => Purpose::Messages,
            Self::WriteDelay | Self::WriteFate | Self::CrashFate | Self::CommitFate => {
                Purpose::Storage
            }
            Self::Truncation | Self::Delivery | Self::Search => Purpose::Upstream,
        }
    }
}

/// The decisions of a run so far: by kind and subject, in order.
pub type Decisions = BTreeMap<(Choice, u32), Vec<u64>>;

/// Makes decisions.
#[derive(Clone, Debug)]
pub struct Decider {
    schedule: Dice,
    messages: Dice,
    storage: Dice,
    upstream: Dice,
    recorded: Option<Decisions>,
    scripted: Option<Script>,
}

#[derive(Clone, Debug)]
struct Script {
    decisions: Decisions,
    used: BTreeMap<(Choice, u32), usize>,
    diverged: Vec<Divergence>,
}

/// A decision of a scenario that did not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Its kind.
    pub choice: Choice,
    /// Its subject.
    pub subject: u32,
    /// Its place among those of its kind and subject, from 0.
    pub occurrence: usize,
}

impl Decider {
    /// Draws every decision from `seed`; keeps them if they are to be written down.
    pub fn new(seed: u64, records: bool) -> Self {
        Self {
            schedule: Dice::new(seed, Purpose::Schedule),
            messages: Dice::new(seed, Purpose::Messages),
            storage: Dice::new(seed, Purpose::Storage),
            upstream: Dice::new(seed, Purpose::Upstream),
            recorded: records.then(Decisions::new),
            scripted: None,
        }
    }

    /// Takes the decisions of a scenario as long as they apply, and draws the others from `seed`.
    pub fn scripted(seed: u64, decisions: Decisions) -> Self {
        let script = Script { decisions, used: BTreeMap::new(), diverged: Vec::new() };
        Self { scripted: Some(script), ..Self::new(seed, true) }
    }

    /// A number from 0 to `bound - 1`.
    pub fn below(&mut self, choice: Choice, subject: u32, bound: u64) -> u64 {
        let dice = match choice.purpose() {
            Purpose::Messages => &mut self.messages,
            Purpose::Storage => &mut self.storage,
            Purpose::Upstream => &mut self.upstream,
            Purpose::Schedule
            | Purpose::Options
            | Purpose::Workload
            | Purpose::Faults
            | Purpose::Pace => &mut self.schedule,
        };
        let drawn = if bound > 1 { dice.below(bound) } else { 0 };
        let decided = match &mut self.scripted {
            Some(script) => script.next(choice, subject, bound).unwrap_or(drawn),
            None => drawn,
        };
        if let Some(recorded) = &mut self.recorded {
            recorded.entry((choice, subject)).or_default().push(decided);
        }
        decided
    }

    /// A number from 0 to `bound - 1`, where small ones are much more frequent: a tenth of the
    /// cases reach the upper half.
    pub fn mostly_short(&mut self, choice: Choice, subject: u32, bound: u64) -> u64 {
        let bound = bound.max(1);
        let number = self.below(choice, subject, bound * 8);
        if number < bound { number } else { number % bound.div_ceil(8) }
    }

    /// True in `permille` of 1000 cases; never drawn if it can not be true.
    pub fn chance(&mut self, choice: Choice, subject: u32, permille: u64) -> bool {
        permille > 0 && self.below(choice, subject, 1000) < permille
    }

    /// The decisions so far, if they are kept.
    pub fn recorded(&self) -> Option<&Decisions> {
        self.recorded.as_ref()
    }

    /// The decisions of the scenario that did not apply, the first one first.
    pub fn diverged(&self) -> Vec<Divergence> {
        let Some(script) = &self.scripted else { return Vec::new() };
        let unused = script.decisions.iter().filter_map(|((choice, subject), values)| {
            let occurrence = script.used.get(&(*choice, *subject)).copied().unwrap_or(0);
            (occurrence < values.len()).then_some(Divergence {
                choice: *choice,
                subject: *subject,
                occurrence,
            })
        });
        self.diverged_so_far().into_iter().chain(unused).collect()
    }

    /// As [`Decider::diverged`], for a run that has not ended: what was not reached is left out.
    pub fn diverged_so_far(&self) -> Vec<Divergence> {
        self.scripted.iter().flat_map(|script| &script.diverged).cloned().collect()
    }
}

impl Script {
    fn next(&mut self, choice: Choice, subject: u32, bound: u64) -> Option<u64> {
        let used = self.used.entry((choice, subject)).or_default();
        let occurrence = *used;
        let value = self.decisions.get(&(choice, subject)).and_then(|all| all.get(occurrence));
        *used += 1;
        match value {
            Some(value) if *value < bound => Some(*value),
            Some(_) | None => {
                self.diverged.push(Divergence { choice, subject, occurrence });
                None
            }
        }
    }
}
