//! State that is not keyed: lists of elements, each under a name. When the parallelism of an
//! operator changes, its subtasks' lists are dealt out anew, as each list says.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::state::codec::Format;
use crate::state::error::RestoreError;
use crate::state::snapshot::{Bytes, OperatorState};

/// Which elements a subtask gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Redistribution {
    /// Its own, as long as the parallelism is the same; otherwise all elements are one list that is
    /// cut into even parts (rule 91).
    Split,
    /// All elements of all subtasks, also if the parallelism is the same: each takes what is its
    /// own (rule 92). To keep more than that makes the state grow with every restore.
    Union,
    /// Every subtask has the same elements at a barrier, and gets them back (rule 93).
    Broadcast,
}

/// A list of operator state, to be kept in an operator: give [`OperatorList::share`] out in a
/// snapshot and hand [`OperatorList::restore`] what is restored.
#[derive(Clone, Debug)]
pub struct OperatorList<T> {
    name: Arc<str>,
    redistribution: Redistribution,
    elements: Arc<Vec<T>>,
}

impl<T: Record> OperatorList<T> {
    /// An empty list. Its name must be unique within its operator.
    pub fn new(name: &str, redistribution: Redistribution) -> Self {
        Self { name: name.into(), redistribution, elements: Arc::default() }
    }

    /// The elements.
    pub fn get(&self) -> &[T] {
        &self.elements
    }

    /// The elements, to be changed. Copies them if a snapshot still needs them as they are.
    pub fn get_mut(&mut self) -> &mut Vec<T> {
        Arc::make_mut(&mut self.elements)
    }

    /// The list as it is now, whatever is changed later. Copies nothing.
    pub fn share(&self) -> ListShare {
        let Self { name, redistribution, elements } = self.clone();
        ListShare { name, redistribution, elements }
    }

    /// Takes over what was stored under its name; without that it becomes empty.
    ///
    /// # Errors
    /// If an element is of another type; the list is unchanged then.
    pub fn restore(&mut self, state: &OperatorState) -> Result<(), RestoreError> {
        let stored = state.lists.iter().find(|list| *list.name == *self.name);
        let elements = stored.map_or(&[][..], |list| &list.elements);
        let decoded = elements.iter().map(|bytes| state.format.decode(bytes));
        let decoded: Result<Vec<T>, _> = decoded.collect();
        let list = &self.name;
        self.elements = Arc::new(
            decoded.map_err(|error| RestoreError::List { list: list.to_string(), error })?,
        );
        Ok(())
    }
}

/// A list in a snapshot: turns into bytes later.
#[derive(Clone)]
pub struct ListShare {
    name: Arc<str>,
    redistribution: Redistribution,
    elements: Arc<dyn Elements>,
}

impl ListShare {
    /// Encodes its elements.
    pub fn to_state(&self, format: Format) -> StoredList {
        StoredList {
            name: self.name.to_string(),
            redistribution: self.redistribution,
            elements: self.elements.encode(format),
        }
    }
}

impl fmt::Debug for ListShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListShare({})", self.name)
    }
}

trait Elements: Send + Sync {
    fn encode(&self, format: Format) -> Vec<Bytes>;
}

impl<T: Record> Elements for Vec<T> {
    fn encode(&self, format: Format) -> Vec<Bytes> {
        self.iter().map(|element| Bytes::from(format.encode(element))).collect()
    }
}

/// A list as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredList {
    /// Its name.
    pub name: String,
    /// How it is dealt out.
    pub redistribution: Redistribution,
    /// Its elements, each encoded.
    pub elements: Vec<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_in_either_format_and_a_share_does_not_change() {
        let mut list = OperatorList::new("offsets", Redistribution::Split);
        list.get_mut().extend([3_u64, 1, 2]);
        let share = list.share();
        list.get_mut().clear();
        for format in [Format::Binary, Format::Portable] {
            let lists = vec![share.to_state(format)];
            let state = OperatorState { format, lists, ..OperatorState::default() };
            list.restore(&state).unwrap();
            assert_eq!(list.get(), [3, 1, 2]);
            let mut texts = OperatorList::<String>::new("offsets", Redistribution::Split);
            assert!(matches!(texts.restore(&state), Err(RestoreError::List { .. })));
        }
        list.restore(&OperatorState::default()).unwrap();
        assert_eq!(list.get(), [0_u64; 0]);
    }
}
