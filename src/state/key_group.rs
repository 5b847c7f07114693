//! Which key belongs to which key group, and which subtask owns which groups (rules 83 to 85).

use std::hash::{Hash, Hasher};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::id::SubtaskIndex;

/// A group of keys that moves as a whole when a job is rescaled.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct KeyGroup(u16);
