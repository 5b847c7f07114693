//! How the records of an edge are spread over the subtasks of its receiver.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Partition {
    /// Subtask i to subtask i: both sides have the same parallelism.
    Forward,
    /// To the subtask that owns the key group of the record's key.
    Hash,
    /// To each subtask in turn.
    Rebalance,
    /// To every subtask.
    Broadcast,
}

impl Partition {
    /// Whether barriers may overtake the records of such an edge. Not those of a forward edge, nor
    /// of a broadcast: each receiver has a copy, and the copies would not be cut at one place (rule
    /// 28).
    pub const fn allows_overtaking(self) -> bool {
        match self {
            Self::Forward | Self::Broadcast => false,
            Self::Hash | Self::Rebalance => true,
        }
    }

    /// Whether a sending subtask has a channel to each receiving one, not just to its own.
    pub const fn is_all_to_all(self) -> bool {
        match self {
            Self::Forward => false,
            Self::Hash | Self::Rebalance | Self::Broadcast => true,
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forward => "forward",
            Self::Hash => "hash",
            Self::Rebalance => "rebalance",
            Self::Broadcast => "broadcast",
        })
    }
}
