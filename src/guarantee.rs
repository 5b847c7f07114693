//! The words that name a mode of the engine, and the levels that a result can reach.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Declares a closed list of words that users write and read: the enum, its names, `Display`,
/// `FromStr`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order in which it is listed for people.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The word that users write for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                let known = Self::ALL.iter().copied().find(|value| value.word() == word);
                known.ok_or_else(|| UnknownWord {
                    what: $what,
                    word: word.to_owned(),
                    known: Self::ALL.iter().map(|value| value.word()).collect(),
                })
            }
        }
    };
}

/// A word that names no value of the list it was looked up in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{word}': it is one of {}", known.join(", "))]
pub struct UnknownWord {
    what: &'static str,
    word: String,
    known: Vec<&'static str>,
}

words!(
    /// What a user asks for: how often each source record may count.
    Guarantee, "guarantee" {
        /// Nothing is replayed and no state is restored: a record counts once or not at all.
        AtMostOnce = "at-most-once",
        /// Nothing is lost; a record may count more than once.
        AtLeastOnce = "at-least-once",
        /// As if no failure had happened.
        ExactlyOnce = "exactly-once",
    }
);

words!(
    /// How the guarantee is reached.
    Mechanism, "mechanism" {
        /// No checkpoints; sources reserve positions before they hand records out.
        None = "none",
        /// Barriers are counted and never block a channel.
        Tracked = "tracked",
        /// No checkpoints; a source keeps what it has read until every task has acknowledged it.
        Acks = "acks",
        /// Everything begins again at the first positions, with empty state. The one checkpoint
        /// that is taken covers the end of all input.
        FullReplay = "full-replay",
        /// As aligned, and keyed state dies at each barrier: the records between two are a batch of
        /// their own.
        MiniBatch = "mini-batch",
        /// A channel whose barrier has come is blocked until all barriers have come.
        Aligned = "aligned",
        /// Barriers overtake the data before them, which becomes part of the snapshot.
        Unaligned = "unaligned",
        /// As aligned, until a checkpoint has taken too long: then as unaligned.
        AlignedTimeout = "aligned-timeout",
        /// No barriers: each task writes its state, its positions and what it has produced in one
        /// transaction, before it sends anything.
        Transactional = "transactional",
    }
);

words!(
    /// Where keyed state lives.
    StateHome, "state" {
        /// In the task's memory; checkpoints hold it.
        Heap = "heap",
        /// In a store of its own, which each record changes at once and no failure rolls back.
        External = "external",
        /// As external; beside each value stands the checkpoint that it follows, and a restore
        /// takes back what follows its own.
        ExternalTransactional = "external-transactional",
    }
);

words!(
    /// What a sink promises about its writes.
    SinkContract, "sink" {
        /// Every write is visible at once and can not be taken back.
        Plain = "plain",
        /// Writes are upserts by key: writing again what was written changes nothing.
        Idempotent = "idempotent",
        /// Writes become visible only when the checkpoint that covers them is complete.
        TwoPhase = "two-phase",
        /// Rows wait in the state of the sink's task until the checkpoint that covers them is
        /// complete, and are sent then.
        WriteAhead = "write-ahead",
        /// Nothing is written: for measuring.
        Discard = "discard",
    }
);

words!(
    /// A delivery level (ORACLES C10). `AtMostOnce` and `AtLeastOnce` are not ordered between each
    /// other: compare with [`Level::satisfies`], not with `<`.
    Level, "level" {
        /// Records may be lost and may count more than once.
        None = "none",
        /// No record counts more than once.
        AtMostOnce = "at-most-once",
        /// No record is lost.
        AtLeastOnce = "at-least-once",
        /// Both.
        ExactlyOnce = "exactly-once",
    }
);

impl Guarantee {
    /// The mechanism that is used unless another is named.
    pub const fn default_mechanism(self) -> Mechanism {
        match self {
            Self::AtMostOnce => Mechanism::None,
            Self::AtLeastOnce => Mechanism::Tracked,
            Self::ExactlyOnce => Mechanism::Aligned,
        }
    }

    /// The sink that is used unless another is named.
    pub const fn default_sink(self) -> SinkContract {
        match self {
            Self::AtMostOnce | Self::AtLeastOnce => SinkContract::Plain,
            Self::ExactlyOnce => SinkContract::TwoPhase,
        }
    }

    /// The level with the same promise.
    pub const fn level(self) -> Level {
        match self {
            Self::AtMostOnce => Level::AtMostOnce,
            Self::AtLeastOnce => Level::AtLeastOnce,
            Self::ExactlyOnce => Level::ExactlyOnce,
        }
    }
}

impl Mechanism {
    /// The guarantee that this mechanism reaches.
    pub const fn guarantee(self) -> Guarantee {
        match self {
            Self::None => Guarantee::AtMostOnce,
            Self::Tracked | Self::Acks | Self::MiniBatch => Guarantee::AtLeastOnce,
            Self::FullReplay
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout
            | Self::Transactional => Guarantee::ExactlyOnce,
        }
    }

    /// Whether checkpoints are taken.
    pub const fn takes_checkpoints(self) -> bool {
        match self {
            Self::None | Self::Acks | Self::Transactional => false,
            Self::Tracked
            | Self::FullReplay
            | Self::MiniBatch
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout => true,
        }
    }

    /// Whether checkpoints are taken and keyed state goes on from one to the next.
    pub const fn keeps_state(self) -> bool {
        self.takes_checkpoints() && !self.drops_state()
    }

    /// Whether keyed state begins empty behind each barrier, and no snapshot holds it.
    pub const fn drops_state(self) -> bool {
        match self {
            Self::MiniBatch => true,
            Self::None
            | Self::Tracked
            | Self::Acks
            | Self::FullReplay
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout
            | Self::Transactional => false,
        }
    }

    /// Whether the only checkpoint is the one that covers the end of all input.
    pub const fn awaits_end(self) -> bool {
        match self {
            Self::FullReplay => true,
            Self::None
            | Self::Tracked
            | Self::Acks
            | Self::MiniBatch
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout
            | Self::Transactional => false,
        }
    }

    /// Whether snapshots can hold records that were under way.
    pub const fn stores_in_flight(self) -> bool {
        match self {
            Self::None
            | Self::Tracked
            | Self::Acks
            | Self::FullReplay
            | Self::MiniBatch
            | Self::Aligned
            | Self::Transactional => false,
            Self::Unaligned | Self::AlignedTimeout => true,
        }
    }

    /// Whether a checkpoint may begin while an older one is in flight. Where barriers overtake only
    /// one snapshot is recorded at a time (rules 24, 27).
    pub const fn overlaps(self) -> bool {
        self.takes_checkpoints() && !self.awaits_end() && !self.stores_in_flight()
    }

    /// Whether what a source has read is read again after a failure.
    pub const fn replays(self) -> bool {
        match self {
            Self::None => false,
            Self::Tracked
            | Self::Acks
            | Self::FullReplay
            | Self::MiniBatch
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout
            | Self::Transactional => true,
        }
    }

    /// Whether a restart goes on from a checkpoint, or from the last writes of the tasks.
    pub const fn restores(self) -> bool {
        match self {
            Self::None | Self::Acks => false,
            Self::Tracked
            | Self::FullReplay
            | Self::MiniBatch
            | Self::Aligned
            | Self::Unaligned
            | Self::AlignedTimeout
            | Self::Transactional => true,
        }
    }
}

impl StateHome {
    /// Whether it is outside of the task, so that checkpoints do not hold it.
    pub const fn is_external(self) -> bool {
        match self {
            Self::Heap => false,
            Self::External | Self::ExternalTransactional => true,
        }
    }
}

impl SinkContract {
    /// Whether rows become visible when a checkpoint completes, so that there have to be some.
    pub const fn awaits_completion(self) -> bool {
        match self {
            Self::TwoPhase | Self::WriteAhead => true,
            Self::Plain | Self::Idempotent | Self::Discard => false,
        }
    }
}

impl Level {
    /// The level at which losses are (not) possible and duplicates are (not) possible.
    pub const fn of(may_lose: bool, may_duplicate: bool) -> Self {
        match (may_lose, may_duplicate) {
            (true, true) => Self::None,
            (true, false) => Self::AtMostOnce,
            (false, true) => Self::AtLeastOnce,
            (false, false) => Self::ExactlyOnce,
        }
    }

    /// Whether the level allows that a record is lost.
    pub const fn may_lose(self) -> bool {
        matches!(self, Self::None | Self::AtMostOnce)
    }

    /// Whether the level allows that a record counts more than once.
    pub const fn may_duplicate(self) -> bool {
        matches!(self, Self::None | Self::AtLeastOnce)
    }

    /// Whether a result at this level keeps the promise `claim`.
    pub const fn satisfies(self, claim: Self) -> bool {
        (claim.may_lose() || !self.may_lose()) && (claim.may_duplicate() || !self.may_duplicate())
    }

    /// The weakest levels that promise more.
    pub const fn next_stronger(self) -> &'static [Self] {
        match self {
            Self::None => &[Self::AtMostOnce, Self::AtLeastOnce],
            Self::AtMostOnce | Self::AtLeastOnce => &[Self::ExactlyOnce],
            Self::ExactlyOnce => &[],
        }
    }

    /// The strongest level that both `self` and `other` keep: a pipeline is as strong as its
    /// weakest link.
    pub const fn weakest(self, other: Self) -> Self {
        Self::of(self.may_lose() || other.may_lose(), self.may_duplicate() || other.may_duplicate())
    }
}

/// The levels that a job promises: its state and its output are judged apart (ORACLES C10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// For the state of the operators.
    pub state: Level,
    /// For what an external reader of committed data sees; `None` if the job has no such output.
    pub output: Option<Level>,
}

impl Claim {
    /// What both promise.
    #[must_use]
    pub fn weakest(self, other: Self) -> Self {
        let output = self.output.zip(other.output).map(|(own, other)| own.weakest(other));
        Self { state: self.state.weakest(other.state), output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_unknown_ones_name_the_choices() {
        for guarantee in Guarantee::ALL {
            assert_eq!(guarantee.word().parse(), Ok(*guarantee));
        }
        let error = "exactly-twice".parse::<Guarantee>().unwrap_err().to_string();
        assert!(error.contains("exactly-twice") && error.contains("at-most-once"), "{error}");
    }

    #[test]
    fn the_two_levels_in_the_middle_are_not_ordered() {
        assert!(!Level::AtMostOnce.satisfies(Level::AtLeastOnce));
        assert!(!Level::AtLeastOnce.satisfies(Level::AtMostOnce));
        assert_eq!(Level::AtMostOnce.weakest(Level::AtLeastOnce), Level::None);
        for level in Level::ALL {
            assert!(Level::ExactlyOnce.satisfies(*level));
            assert!(level.satisfies(Level::None));
            assert!(level.next_stronger().iter().all(|more| more.satisfies(*level)));
        }
    }
}
