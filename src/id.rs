//! Identities. Each is a type of its own, so that an input position can not be taken for an output
//! position, nor an attempt for a checkpoint.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($number:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize,
            Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name($number);

        impl $name {
            /// The identity with this number.
            pub const fn new(number: $number) -> Self {
                Self(number)
            }

            /// The number behind the identity.
            pub const fn get(self) -> $number {
                self.0
            }

            /// The number as an index into a vector that is laid out in the order of these
            /// identities.
            pub const fn index(self) -> usize {
                self.0 as usize
            }

            /// The identity that follows this one.
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A vertex of the graph: a source or an operator with all that is chained behind it.
    VertexId(u32), "v"
);
id!(
    /// One parallel subtask of one vertex, numbered over the whole job in vertex order.
    TaskId(u32), "t"
);
id!(
    /// The position of a subtask among those of its vertex, from 0.
    SubtaskIndex(u32), ""
);
id!(
    /// A physical channel between two tasks, numbered over the whole job.
    ChannelId(u32), "c"
);
id!(
    /// The position of a channel in the gate of the task that receives from it.
    ChannelIndex(u32), "in"
);
id!(
    /// The position of a channel in the outlet of the task that sends on it.
    OutletIndex(u32), "out"
);
id!(
    /// A checkpoint. Ids strictly increase over the life of a job, restarts included (rule 41).
    CheckpointId(u64), "chk-"
);
id!(
    /// One execution of the whole job between two failures. A later attempt fences all earlier
    /// ones.
    AttemptId(u64), "a"
);
id!(
    /// A part of a source's input that is read on its own.
    SplitId(u32), "split-"
);
id!(
    /// A message of a queue: the queue gives each a number of its own and keeps it when it gives
    /// the message out again.
    MessageId(u64), "m"
);

/// A transaction of a two-phase sink: which sink subtask opened it, in which attempt, as its
/// how-manieth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId {
    /// The sink's vertex.
    pub vertex: VertexId,
    /// The sink's subtask.
    pub subtask: SubtaskIndex,
    /// The attempt that opened the transaction.
    pub attempt: AttemptId,
    /// The position among the transactions that this subtask opened in this attempt, from 0.
    pub sequence: u64,
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.vertex, self.subtask, self.attempt.get(), self.sequence)
    }
}
