//! Why keyed state can not be restored from what was stored.

use crate::state::codec::DecodeError;
use crate::state::key_group::{KeyGroup, KeyGroupRange};

/// Why keyed state or timers can not be restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The state of this operator can not be restored.
    #[error("the state of '{uid}': {error}")]
    Operator {
        /// The operator.
        uid: String,
        /// Why not.
        error: Box<RestoreError>,
    },
    /// The bytes of a group are not entries of the types that the job declares.
    #[error("{group}: {}{error}", of_field(.field))]
    Decode {
        /// The group.
        group: KeyGroup,
        /// The field of the state that is not what the job declares, if it is known: what a
        /// descriptor finds, if the state has any.
        field: Option<String>,
        /// What is wrong with its bytes.
        error: DecodeError,
    },
    /// An element of a list of operator state is not of the type that the job declares.
    #[error("the list '{list}': {error}")]
    List {
        /// The list's name.
        list: String,
        /// What is wrong with an element's bytes.
        error: DecodeError,
    },
    /// The rows of a write-ahead sink are not of the type that the job declares.
    #[error("rows that wait to be sent: {0}")]
    Rows(DecodeError),
    /// The bytes of records in flight are not records of the type that the job declares.
    #[error("records in flight: {0}")]
    InFlight(DecodeError),
    /// The group belongs to another subtask.
    #[error("{group} is not among the groups {range} of this subtask")]
    ForeignGroup {
        /// The group.
        group: KeyGroup,
        /// The groups of the subtask.
        range: KeyGroupRange,
    },
    /// A key is stored in a group that is not its own: the number of key groups or the key's hash
    /// has changed since.
    #[error("{group} holds a key of {owner}")]
    ForeignKey {
        /// The group that holds the key.
        group: KeyGroup,
        /// The group that the key belongs to.
        owner: KeyGroup,
    },
    /// An entry is stored twice.
    #[error("{group} holds an entry twice")]
    Duplicate {
        /// The group.
        group: KeyGroup,
    },
}

fn of_field(field: &Option<String>) -> String {
    field.as_ref().map_or_else(String::new, |field| format!("'{field}' of a key's state: "))
}
