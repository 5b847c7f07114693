//! The state of one key while user code looks at it and changes it, where it lies in its table.

/// What a key has as its state, like an `Option`: there may be none, and it can be set or taken.
pub struct Slot<'a, S>(Held<'a, S>);

enum Held<'a, S> {
    /// The key had no state; what is left here becomes it.
    Vacant(&'a mut Option<S>),
    /// The key's state, where it lies in the table.
    Occupied {
        state: &'a mut S,
        /// Lies in the table while the state is taken, since no place there can be empty. Some
        /// state if there is an entry; which one means nothing.
        stand_in: &'a mut Option<S>,
        /// What lies in the table is the stand-in: the entry is to vanish.
        is_taken: &'a mut bool,
    },
}

impl<'a, S> Slot<'a, S> {
    #[inline]
    pub(crate) fn vacant(state: &'a mut Option<S>) -> Self {
        Self(Held::Vacant(state))
    }

    #[inline]
    pub(crate) fn occupied(
        state: &'a mut S,
        stand_in: &'a mut Option<S>,
        is_taken: &'a mut bool,
    ) -> Self {
        Self(Held::Occupied { state, stand_in, is_taken })
    }

    /// The state.
    #[inline]
    pub fn get(&self) -> Option<&S> {
        match &self.0 {
            Held::Vacant(state) => state.as_ref(),
            Held::Occupied { is_taken: true, .. } => None,
            Held::Occupied { state, .. } => Some(state),
        }
    }

    /// The state, to be changed.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut S> {
        match &mut self.0 {
            Held::Vacant(state) => state.as_mut(),
            Held::Occupied { is_taken: true, .. } => None,
            Held::Occupied { state, .. } => Some(state),
        }
    }

    /// Whether there is no state.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.get().is_none()
    }

    /// The state; what `first` gives if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, first: impl FnOnce() -> S) -> &mut S {
        match &mut self.0 {
            Held::Vacant(state) => state.get_or_insert_with(first),
            Held::Occupied { state, stand_in, is_taken } => {
                if **is_taken {
                    **stand_in = Some(std::mem::replace(*state, first()));
                    **is_taken = false;
                }
                state
            }
        }
    }

    /// The state; `first` if there is none.
    #[inline]
    pub fn get_or_insert(&mut self, first: S) -> &mut S {
        self.get_or_insert_with(|| first)
    }

    /// The state; the default one if there is none.
    #[inline]
    pub fn get_or_insert_default(&mut self) -> &mut S
    where
        S: Default,
    {
        self.get_or_insert_with(S::default)
    }

    /// Makes this the state.
    #[inline]
    pub fn set(&mut self, state: S) {
        match &mut self.0 {
            Held::Vacant(slot) => **slot = Some(state),
            Held::Occupied { is_taken: false, state: slot, .. } => **slot = state,
            Held::Occupied { .. } => {
                self.get_or_insert(state);
            }
        }
    }

    /// Makes this the state, or leaves none.
    #[inline]
    pub fn put(&mut self, state: Option<S>) {
        match state {
            Some(state) => self.set(state),
            None => drop(self.take()),
        }
    }

    /// The state, of which none is left. To change it where it lies costs less than to take it and
    /// put it back.
    #[inline]
    pub fn take(&mut self) -> Option<S> {
        match &mut self.0 {
            Held::Vacant(state) => state.take(),
            Held::Occupied { is_taken: true, .. } => None,
            Held::Occupied { state, stand_in, is_taken } => {
                **is_taken = true;
                let stand_in = stand_in.take().expect("there is an entry");
                Some(std::mem::replace(*state, stand_in))
            }
        }
    }

    /// Makes this the state and gives the one before.
    #[inline]
    pub fn replace(&mut self, state: S) -> Option<S> {
        match self.get_mut() {
            Some(before) => Some(std::mem::replace(before, state)),
            None => {
                self.set(state);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Does the same to a slot of either kind and to an `Option`.
    fn check(
        does: impl Fn(&mut Slot<'_, u8>) -> Option<u8>,
        wants: impl Fn(&mut Option<u8>) -> Option<u8>,
    ) {
        for before in [None, Some(3)] {
            let mut wanted = before;
            let answer = wants(&mut wanted);
            let (mut lies, mut stand_in, mut is_taken) = (before.unwrap_or(0), Some(99), false);
            let mut vacant = None;
            let mut slot = match before {
                Some(_) => Slot::occupied(&mut lies, &mut stand_in, &mut is_taken),
                None => Slot::vacant(&mut vacant),
            };
            assert_eq!(does(&mut slot), answer, "{before:?}");
            assert_eq!(slot.get().copied(), wanted);
            assert_eq!(slot.get_mut().copied(), wanted);
            assert_eq!(slot.is_none(), wanted.is_none());
            if before.is_some() {
                assert_eq!(is_taken, wanted.is_none());
                assert_eq!(stand_in.is_none(), is_taken, "no place in the table is empty");
            }
        }
    }

    #[test]
    fn a_slot_is_like_an_option() {
        check(|slot| slot.take(), Option::take);
        check(|slot| slot.replace(5), |state| state.replace(5));
        check(|slot| Some(*slot.get_or_insert(7)), |state| Some(*state.get_or_insert(7)));
        check(
            |slot| Some(*slot.get_or_insert_default()),
            |state| Some(*state.get_or_insert_default()),
        );
        for put in [None, Some(8)] {
            check(
                |slot| {
                    slot.put(put);
                    None
                },
                |state| {
                    *state = put;
                    None
                },
            );
        }
    }

    #[test]
    fn what_was_taken_can_be_set_again() {
        let taken = |slot: &mut Slot<'_, u8>| {
            let taken = slot.take();
            assert_eq!(slot.take(), None);
            taken
        };
        check(
            |slot| {
                let taken = taken(slot);
                slot.set(9);
                taken
            },
            |state| state.replace(9),
        );
        check(
            |slot| {
                taken(slot);
                Some(*slot.get_or_insert(6))
            },
            |state| {
                *state = Some(6);
                Some(6)
            },
        );
        check(
            |slot| {
                taken(slot);
                slot.replace(4)
            },
            |state| {
                *state = Some(4);
                None
            },
        );
    }
}
