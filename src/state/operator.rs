//! State that is not keyed: lists of elements, each under a name. When the parallelism of an
//! operator changes, its subtasks' lists are dealt out anew, as each list says.

use std::sync::Arc;

use crate::element::Record;
use crate::state::error::RestoreError;
use crate::state::snapshot::{ListShare, OperatorState};

pub use crate::state::snapshot::Redistribution;

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
        ListShare::new(self.name.clone(), self.redistribution, self.elements.clone())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::codec::Format;

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
