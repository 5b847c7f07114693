//! What a judge remembers of each attempt. Attempts overlap: a task that was declared dead may go
//! on for a while beside its successor.

use cofferdam::id::AttemptId;

/// A value for each attempt, made when the attempt is first heard of.
pub(super) struct ByAttempt<T> {
    blank: T,
    attempts: Vec<(AttemptId, T)>,
}

impl<T: Clone> ByAttempt<T> {
    /// Every attempt begins with `blank`.
    pub(super) fn new(blank: T) -> Self {
        Self { blank, attempts: Vec::new() }
    }

    /// The value of an attempt.
    pub(super) fn at(&mut self, attempt: AttemptId) -> &mut T {
        // Nearly always the last one.
        let found = self.attempts.iter().rposition(|(of, _)| *of == attempt);
        let place = found.unwrap_or_else(|| {
            self.attempts.push((attempt, self.blank.clone()));
            self.attempts.len() - 1
        });
        &mut self.attempts[place].1
    }

    /// The values of all attempts.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.attempts.iter_mut().map(|(_, value)| value)
    }
}
