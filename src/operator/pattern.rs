//! Patterns: a sequence of records of one key, in the order of their event times, within a span of
//! time.
//!
//! Records wait until the watermark has passed them and are then looked at in the order (time,
//! position), so what is found does not depend on the order of arrival. A key is at one place of
//! the pattern at a time: a record begins a match only where none is under way, and one that
//! completes a match begins no other. One that breaks a match may begin the next.
//!
//! The state is idempotent: a record that comes again either replaces itself while it waits, or is
//! not later than what has been looked at, which no record is that had not come by then.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::operator::Emit;
use crate::operator::keyed::{KeyedContext, KeyedProcess};
use crate::state::key_group::Key;
use crate::time::{EventTime, whole_millis};

/// What is looked for: stages, the first of which begins a match.
///
/// ```
/// use std::time::Duration;
/// use cofferdam::operator::pattern::Pattern;
///
/// // A login that fails, then one that succeeds and no change of the password before it.
/// let pattern = Pattern::begin("failed", |event: &String| event == "failed")
///     .not_followed_by("changed", |event| event == "changed")
///     .followed_by("succeeded", |event| event == "succeeded")
///     .within(Duration::from_secs(600));
/// assert_eq!(pattern.stages().collect::<Vec<_>>(), ["failed", "changed", "succeeded"]);
/// ```
pub struct Pattern<T> {
    stages: Arc<Vec<Stage<T>>>,
    within_ms: i64,
}

struct Stage<T> {
    name: String,
    kind: Kind,
    matches: Box<dyn Fn(&T) -> bool + Send + Sync>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The match goes on with the first such record; others before it are passed over.
    Followed,
    /// The match goes on with such a record, which must be the next of its key.
    Next,
    /// The match takes such a record, or goes on without it.
    Optional,
    /// Such a record breaks the match.
    Not,
}

/// A pattern that has no time to be completed within yet.
pub struct Unbounded<T>(Vec<Stage<T>>);

impl<T> Pattern<T> {
    /// A pattern that begins with a record for which `matches` is true.
    pub fn begin(name: &str, matches: impl Fn(&T) -> bool + Send + Sync + 'static) -> Unbounded<T> {
        Unbounded(Vec::new()).stage(name, Kind::Followed, matches)
    }

    /// The names of its stages.
    pub fn stages(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().map(|stage| stage.name.as_str())
    }

    /// Why it can not be looked for, if so.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        let last = self.stages.last().map(|stage| stage.kind);
        match last {
            Some(Kind::Optional) => Some("it ends with an optional stage: leave that out"),
            _ if self.within_ms == 0 && last == Some(Kind::Not) => {
                Some("it ends with a record that must not come, within no time")
            }
            _ => None,
        }
    }

    /// Where a record leads a match that has come to stage `at`.
    fn step(&self, at: usize, record: &T) -> Step {
        for (offset, stage) in self.stages[at..].iter().enumerate() {
            if (stage.matches)(record) {
                let is_broken = stage.kind == Kind::Not;
                return if is_broken { Step::Broken } else { Step::Taken(at + offset) };
            }
            match stage.kind {
                Kind::Next => return Step::Broken,
                Kind::Followed => return Step::PassedOver,
                Kind::Optional | Kind::Not => {}
            }
        }
        Step::PassedOver
    }
}

enum Step {
    PassedOver,
    Taken(usize),
    Broken,
}

impl<T> Unbounded<T> {
    /// Then, sooner or later, a record for which `matches` is true.
    pub fn followed_by(
        self,
        name: &str,
        matches: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.stage(name, Kind::Followed, matches)
    }

    /// Then, as the very next of its key, a record for which `matches` is true.
    pub fn next(self, name: &str, matches: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.stage(name, Kind::Next, matches)
    }

    /// Then perhaps a record for which `matches` is true: the first one, if it comes before what
    /// follows in the pattern.
    pub fn optionally(
        self,
        name: &str,
        matches: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.stage(name, Kind::Optional, matches)
    }

    /// Then no record for which `matches` is true, before what follows in the pattern; at its end,
    /// none within its time: such a match is complete when that time is over.
    pub fn not_followed_by(
        self,
        name: &str,
        matches: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.stage(name, Kind::Not, matches)
    }

    /// The last record must come at most so much later than the first one, in whole milliseconds.
    pub fn within(self, time: Duration) -> Pattern<T> {
        Pattern { stages: Arc::new(self.0), within_ms: whole_millis(time) }
    }

    fn stage(
        mut self,
        name: &str,
        kind: Kind,
        matches: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.0.push(Stage { name: name.to_owned(), kind, matches: Box::new(matches) });
        self
    }
}

impl<T> Clone for Pattern<T> {
    fn clone(&self) -> Self {
        Self { stages: self.stages.clone(), within_ms: self.within_ms }
    }
}

impl<T> fmt::Debug for Pattern<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.stages()).finish()
    }
}

/// What has been found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found<K, T> {
    /// The key.
    pub key: K,
    /// Whether the pattern is complete; if not, its time ran out.
    pub is_complete: bool,
    /// The records that were taken, each with the number of its stage, from 0.
    pub records: Vec<(u32, T)>,
}

/// The state of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "T: Record")]
pub struct Track<T> {
    /// What waits for the watermark, by time and position.
    waiting: BTreeMap<(EventTime, u64), T>,
    /// Every record up to this time has been looked at.
    seen: Option<EventTime>,
    under_way: Option<UnderWay<T>>,
}

/// A match that is begun and not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct UnderWay<T> {
    /// When its time is over.
    deadline: EventTime,
    /// What it has taken, with the number of the stage: at least one record.
    records: Vec<(u32, T)>,
}

impl<T> UnderWay<T> {
    /// The first stage that it has not come to.
    fn reached(&self) -> usize {
        self.records.last().map_or(0, |(stage, _)| *stage as usize + 1)
    }
}

impl<T> Track<T> {
    /// That of a key whose records up to `seen` have been looked at, and none of them is part of a
    /// match under way.
    pub const fn settled(seen: Option<EventTime>) -> Self {
        Self { waiting: BTreeMap::new(), seen, under_way: None }
    }
}

/// Looks for a [`Pattern`] in the records of each key.
pub struct Detect<K, T, Place> {
    pattern: Pattern<T>,
    place_of: Place,
    keys: PhantomData<fn(K)>,
}

impl<K, T, Place> Detect<K, T, Place> {
    /// `place_of` reads a record's event time and its position among those of the same time and
    /// key: two records with the same place are taken for the same record.
    pub const fn new(pattern: Pattern<T>, place_of: Place) -> Self {
        Self { pattern, place_of, keys: PhantomData }
    }
}

impl<K, T, Place: Clone> Clone for Detect<K, T, Place> {
    fn clone(&self) -> Self {
        Self::new(self.pattern.clone(), self.place_of.clone())
    }
}

impl<K, T, Place> KeyedProcess for Detect<K, T, Place>
where
    K: Key,
    T: Record,
    Place: Fn(&T) -> (EventTime, u64) + Clone + Send + 'static,
{
    type Key = K;
    type In = T;
    type State = Track<T>;
    type Out = Found<K, T>;

    fn process(
        &mut self,
        record: T,
        context: &mut KeyedContext<'_, K, Track<T>>,
        _out: &mut impl Emit<Found<K, T>>,
    ) {
        let (time, position) = (self.place_of)(&record);
        let track = context.state().get_or_insert_with(|| Track::settled(None));
        if track.seen >= Some(time) {
            return;
        }
        track.waiting.insert((time, position), record);
        context.register_timer(time);
    }

    fn on_timer(
        &mut self,
        time: EventTime,
        context: &mut KeyedContext<'_, K, Track<T>>,
        out: &mut impl Emit<Found<K, T>>,
    ) {
        let key = context.key().clone();
        let Some(track) = context.state().get_mut() else { return };
        while let Some(first) = track.waiting.first_entry()
            && first.key().0 <= time
        {
            let ((at, _), record) = first.remove_entry();
            track.seen = Some(at);
            self.look_at(&key, at, record, track, out);
        }
        let Some(under_way) = &track.under_way else { return };
        let deadline = under_way.deadline;
        if deadline > time {
            context.register_timer(deadline);
        } else if let Some(over) = track.under_way.take() {
            // Complete if nothing is left but what must not come.
            let mut left = self.pattern.stages[over.reached()..].iter();
            let is_complete = left.all(|stage| stage.kind == Kind::Not);
            out.emit(Found { key, is_complete, records: over.records });
        }
    }

    fn is_idempotent(&self) -> bool {
        true
    }

    /// Only timers emit, and a record that comes again registers none that is not there already.
    fn absorbs_repeats(&self) -> bool {
        true
    }
}

impl<K: Key, T: Record, Place> Detect<K, T, Place> {
    fn look_at(
        &self,
        key: &K,
        at: EventTime,
        record: T,
        track: &mut Track<T>,
        out: &mut impl Emit<Found<K, T>>,
    ) {
        let deadline = at.saturating_add(self.pattern.within_ms);
        let begun = || UnderWay { deadline, records: Vec::new() };
        let mut under_way = track.under_way.take().unwrap_or_else(begun);
        let mut step = self.pattern.step(under_way.reached(), &record);
        if matches!(step, Step::Broken) {
            under_way = begun();
            step = self.pattern.step(0, &record);
        }
        if let Step::Taken(stage) = step {
            under_way.records.push((stage as u32, record));
        }
        if under_way.reached() == self.pattern.stages.len() {
            let records = under_way.records;
            out.emit(Found { key: key.clone(), is_complete: true, records });
        } else if !under_way.records.is_empty() {
            track.under_way = Some(under_way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Operator;
    use crate::operator::keyed::{ByValue, Keyed};

    /// What a record says, and when; its position is its place in the input.
    type Event = (char, i64, u64);

    fn is(sought: char) -> impl Fn(&Event) -> bool + Send + Sync + 'static {
        move |event| event.0 == sought
    }

    /// What is found in records, given as text with a character a millisecond: `ab..c`; a match as
    /// `a0 b1`, with a question mark behind it if its time ran out.
    fn found(pattern: Pattern<Event>, text: &str) -> Vec<String> {
        let events = text.chars().zip(0..).filter(|(said, _)| *said != '.');
        find(pattern, events.map(|(said, at)| (said, at, 0)).collect())
    }

    fn find(pattern: Pattern<Event>, mut events: Vec<Event>) -> Vec<String> {
        let place_of = |event: &Event| (EventTime::from_millis(event.1), event.2);
        let detect = Keyed::new(Detect::new(pattern, place_of), ByValue(|_: &Event| ()));
        let mut all = Vec::new();
        for _ in 0..events.len().max(1) {
            let (mut detect, mut out) = (detect.clone(), Vec::new());
            events.iter().chain(&events).for_each(|event| detect.process(*event, &mut out));
            detect.on_watermark(EventTime::MAX, &mut out);
            all.push(out);
            if !events.is_empty() {
                events.rotate_left(1);
            }
        }
        assert!(all.iter().all(|out| *out == all[0]), "the order of arrival says nothing");
        let text = |found: Found<(), Event>| {
            let records = found.records.iter().map(|(_, (said, at, _))| format!("{said}{at}"));
            let end = if found.is_complete { "" } else { "?" };
            records.collect::<Vec<_>>().join(" ") + end
        };
        all.swap_remove(0).into_iter().map(text).collect()
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_sequence_passes_others_over_and_its_last_millisecond_counts() {
        let pattern = || Pattern::begin("a", is('a')).followed_by("b", is('b')).within(ms(3));
        assert_eq!(found(pattern(), "a.xb"), ["a0 b3"]);
        assert_eq!(found(pattern(), "a.x.b"), ["a0?"]);
        assert_eq!(found(pattern(), "aab.b"), ["a0 b2"], "one match is under way at a time");
        assert_eq!(found(pattern(), "abab"), ["a0 b1", "a2 b3"]);
        assert_eq!(found(pattern(), "a...ab"), ["a0?", "a4 b5"]);
        assert_eq!(found(pattern(), "bx"), [""; 0]);
    }

    #[test]
    fn records_of_one_time_go_by_position() {
        let pattern = || Pattern::begin("a", is('a')).followed_by("b", is('b')).within(ms(0));
        assert_eq!(find(pattern(), vec![('a', 5, 0), ('b', 5, 1)]), ["a5 b5"]);
        assert_eq!(find(pattern(), vec![('b', 5, 0), ('a', 5, 1)]), ["a5?"]);
    }

    #[test]
    fn what_must_come_next_breaks_the_match_if_it_does_not() {
        let pattern = || Pattern::begin("a", is('a')).next("b", is('b')).within(ms(9));
        assert_eq!(found(pattern(), "a..b"), ["a0 b3"]);
        assert_eq!(found(pattern(), "axb"), [""; 0]);
        assert_eq!(found(pattern(), "aab"), ["a1 b2"], "what breaks a match may begin the next");
    }

    #[test]
    fn what_must_not_come_breaks_the_match_if_it_does() {
        let pattern = || {
            let pattern = Pattern::begin("a", is('a')).not_followed_by("n", is('n'));
            pattern.followed_by("b", is('b')).within(ms(9))
        };
        assert_eq!(found(pattern(), "axb"), ["a0 b2"]);
        assert_eq!(found(pattern(), "anb"), [""; 0]);
        assert_eq!(found(pattern(), "anab"), ["a2 b3"]);
        assert_eq!(found(pattern(), "a"), ["a0?"]);
    }

    #[test]
    fn what_must_not_come_at_the_end_is_decided_when_the_time_is_over() {
        let pattern = || Pattern::begin("a", is('a')).not_followed_by("n", is('n')).within(ms(3));
        assert_eq!(found(pattern(), "ax"), ["a0"]);
        assert_eq!(found(pattern(), "a..n"), [""; 0]);
        assert_eq!(found(pattern(), "a...n"), ["a0"]);
    }

    #[test]
    fn an_optional_stage_is_taken_if_it_comes_in_time() {
        let pattern = || {
            let pattern = Pattern::begin("a", is('a')).optionally("o", is('o'));
            pattern.followed_by("b", is('b')).within(ms(9))
        };
        assert_eq!(found(pattern(), "aob"), ["a0 o1 b2"]);
        assert_eq!(found(pattern(), "axb"), ["a0 b2"]);
        assert_eq!(found(pattern(), "aoob"), ["a0 o1 b3"]);
        assert_eq!(found(pattern(), "ao"), ["a0 o1?"]);
        assert!(
            Pattern::begin("a", is('a')).optionally("o", is('o')).within(ms(9)).fault().is_some()
        );
    }
}
