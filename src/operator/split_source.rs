//! Sources whose splits are not cut beforehand: they are found one after another, and each goes to
//! the task that asks for one (rules 80, 81). The trait that users write, and a source of the other
//! kind as one of this.

use crate::element::Record;
use crate::message::Found;
use crate::operator::source::{ErasedSource, Fetch, ReadOutcome, Source, SourceError, read_at};
use crate::state::codec;

/// A source whose splits are found as time goes on. Tasks that have read all that they have ask the
/// coordinator for another one, so a slow task gets fewer.
///
/// The driver calls it where it may block; a value of this type is copied for every subtask and for
/// every search.
pub trait SplitSource: Clone + Send + 'static {
    /// The records it gives.
    type Record: Record;
    /// A cursor: which part of the input, and how far in it the next record stands.
    type Split: Record;

    /// The splits behind the first `known` ones, in an order that is always the same: after a crash
    /// the search goes on behind those that the last complete checkpoint knows.
    ///
    /// # Errors
    /// If the input is not there or can not be read.
    fn search(&mut self, known: u32) -> Result<Found<Self::Split>, SourceError>;

    /// As [`Source::read`].
    ///
    /// # Errors
    /// As there.
    fn read(
        &mut self,
        split: &mut Self::Split,
        records_max: usize,
    ) -> Result<Fetch<Self::Record>, SourceError>;

    /// As [`Source::is_truncated`].
    fn is_truncated(&self) -> bool {
        false
    }

    /// Whether there is always another split to come, be it later.
    fn is_endless(&self) -> bool {
        false
    }
}

/// The splits of a source that cuts its input beforehand, assigned one by one.
#[derive(Clone, Debug)]
pub struct Pieces<S> {
    source: S,
    count: usize,
    found_together: usize,
    is_endless: bool,
}

impl<S: Source> Pieces<S> {
    /// The input of `source` in at most `count` splits, of which a search finds so many at a time.
    pub const fn new(source: S, count: usize, found_together: usize) -> Self {
        Self { source, count, found_together, is_endless: false }
    }

    /// As if more could come: a search behind the last split finds none for now.
    #[must_use]
    pub fn endless(self) -> Self {
        Self { is_endless: true, ..self }
    }
}

impl<S: Source> SplitSource for Pieces<S> {
    type Record = S::Record;
    type Split = S::Split;

    fn search(&mut self, known: u32) -> Result<Found<S::Split>, SourceError> {
        let at_end = if self.is_endless { Found::Nothing } else { Found::End };
        if known as usize >= self.count {
            return Ok(at_end);
        }
        let pieces = self.source.discover(self.count)?.into_iter().skip(known as usize);
        let found: Vec<S::Split> = pieces.take(self.found_together).collect();
        Ok(if found.is_empty() { at_end } else { Found::Splits(found) })
    }

    fn read(
        &mut self,
        split: &mut S::Split,
        records_max: usize,
    ) -> Result<Fetch<S::Record>, SourceError> {
        self.source.read(split, records_max)
    }

    fn is_truncated(&self) -> bool {
        self.source.is_truncated()
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }
}

/// A source whose splits are assigned, as drivers call it.
#[derive(Clone)]
pub(crate) struct Assigned<S>(pub(crate) S);

impl<S: SplitSource> ErasedSource for Assigned<S> {
    /// No task has a split at the first start.
    fn discover(&mut self, _parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError> {
        Ok(Vec::new())
    }

    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome {
        read_at(cursor, |split| self.0.read(split, records_max))
    }

    fn is_replayable(&self) -> bool {
        true
    }

    fn is_truncated(&self) -> bool {
        self.0.is_truncated()
    }

    fn is_endless(&self) -> bool {
        self.0.is_endless()
    }

    fn is_assigned(&self) -> bool {
        true
    }

    fn search(&mut self, known: u32) -> Result<Found<Vec<u8>>, SourceError> {
        Ok(match self.0.search(known)? {
            Found::Splits(splits) => Found::Splits(splits.iter().map(codec::encode).collect()),
            Found::Nothing => Found::Nothing,
            Found::End => Found::End,
        })
    }

    fn clone_box(&self) -> Box<dyn ErasedSource> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::config::OnLoss;
    use crate::connector::log::TruncatedLog;
    use crate::connector::memory::VecSource;
    use crate::id::SplitId;
    use crate::message::{Assignment, Loss};
    use crate::operator::source::{
        ReadReply, Release, SourceMachine, SourceStep, Supply, TimeOf, WatermarkStrategy,
    };
    use crate::state::snapshot::SourceState;
    use crate::time::{EventTime, Progress};

    /// Drives a machine over a source that is cut into three splits of two.
    struct Reader<S> {
        machine: SourceMachine,
        source: Assigned<Pieces<S>>,
    }

    impl Reader<VecSource<u64>> {
        fn new(state: SourceState) -> Self {
            Self::of(VecSource::new((0..6).collect()), state, OnLoss::Fail)
        }
    }

    impl<S: Source<Record = u64>> Reader<S> {
        fn of(numbers: S, state: SourceState, on_loss: OnLoss) -> Self {
            let machine = SourceMachine::new(
                state,
                Supply::Assigned,
                None,
                Release::AtOnce,
                None,
                9,
                on_loss,
            );
            Self { machine, source: Assigned(Pieces::new(numbers, 3, 2)) }
        }

        /// Reads until it asks for a split, or is at its end.
        fn read(&mut self) -> (Vec<u64>, Option<SourceStep>) {
            let mut numbers = Vec::new();
            loop {
                match self.machine.step() {
                    Some(SourceStep::Read(request)) => {
                        let outcome = self.source.read(&request.cursor, request.records_max);
                        let reply = ReadReply { split: request.split, outcome };
                        let step = self.machine.handle_read(reply).unwrap();
                        match step {
                            Some(SourceStep::Emit { records, .. }) => {
                                numbers.extend(records.records::<u64>());
                            }
                            Some(SourceStep::Lose(_)) | None => {}
                            Some(_) => panic!("a read is followed by no other step"),
                        }
                    }
                    other => return (numbers, other),
                }
            }
        }

        fn assign(&mut self, split: u32) {
            let Ok(Found::Splits(found)) = self.source.search(split) else { panic!("no split") };
            let cursor = found[0].clone();
            self.machine.handle_assigned(Some(Assignment { split: SplitId::new(split), cursor }));
        }
    }

    #[test]
    fn a_reader_asks_when_all_is_read_and_ends_when_there_is_no_more() {
        let mut reader = Reader::new(SourceState::default());
        assert!(matches!(reader.read(), (numbers, Some(SourceStep::Ask)) if numbers.is_empty()));
        assert!(matches!(reader.read(), (_, None)), "it has asked");
        reader.assign(2);
        let (numbers, asks) = reader.read();
        assert!(numbers == [4, 5] && matches!(asks, Some(SourceStep::Ask)));
        assert!(reader.machine.state().splits.is_empty(), "what is read is nobody's any more");
        reader.machine.handle_assigned(None);
        assert!(matches!(reader.read(), (_, Some(SourceStep::End))));
    }

    #[test]
    fn rule_081_a_restored_reader_reads_its_own_splits_before_it_asks() {
        let mut reader = Reader::new(SourceState::default());
        reader.read();
        reader.assign(0);
        let mut restored = Reader::new(reader.machine.state());
        let (numbers, asks) = restored.read();
        assert!(numbers == [0, 1] && matches!(asks, Some(SourceStep::Ask)));
    }

    #[test]
    fn what_was_lost_in_a_split_is_not_forgotten_when_the_split_is_read() {
        let log = TruncatedLog::from(Arc::new((0..6).collect()));
        log.truncate(3);
        let begin = |state| Reader::of(log.clone(), state, OnLoss::GoOn);
        let mut reader = begin(SourceState::default());
        reader.read();
        let lost = [Loss { split: SplitId::new(1), gap: None, in_all: 1 }];
        reader.assign(1);
        let (numbers, asks) = reader.read();
        assert!(numbers == [3] && matches!(asks, Some(SourceStep::Ask)));
        assert_eq!(reader.machine.losses(), lost);
        let mut restored = begin(reader.machine.state());
        assert!(matches!(restored.read(), (numbers, Some(SourceStep::Ask)) if numbers.is_empty()));
        assert_eq!(restored.machine.losses(), lost);
        restored.machine.handle_assigned(None);
        assert!(matches!(restored.read(), (_, Some(SourceStep::End))));
    }

    #[test]
    fn event_time_waits_with_a_reader_for_its_next_split_and_goes_on_from_there() {
        let times = Box::new(TimeOf::new(|number: &u64| EventTime::from_millis(*number as i64)));
        let mut reader = Reader::new(SourceState::default());
        reader.machine = SourceMachine::new(
            SourceState::default(),
            Supply::Assigned,
            Some(WatermarkStrategy { times, disorder_ms: 0, idle_after: None }),
            Release::AtOnce,
            None,
            1,
            OnLoss::Fail,
        );
        let reached = |millis| Some(Progress::Watermark(EventTime::from_millis(millis)));
        let mut read = |assigned: Option<u32>| {
            assigned.into_iter().for_each(|split| reader.assign(split));
            let mut told = Vec::new();
            while let Some(SourceStep::Read(request)) = reader.machine.step() {
                let outcome = reader.source.read(&request.cursor, request.records_max);
                reader.machine.handle_read(ReadReply { split: request.split, outcome }).unwrap();
                told.push(reader.machine.advance_watermark());
            }
            told
        };
        assert_eq!(read(None), []);
        assert_eq!(read(Some(0)), [reached(-1), reached(0), None]);
        assert_eq!(read(Some(2)), [reached(3), reached(4), None]);
        assert_eq!(read(Some(1)), [None; 3], "event time never falls");
    }

    #[test]
    fn pieces_are_the_same_whenever_they_are_searched() {
        let mut source = Pieces::new(VecSource::new((0..6_u64).collect()), 3, 2);
        let counts = [0, 1, 2, 3].map(|known| match source.search(known).unwrap() {
            Found::Splits(found) => found.len(),
            Found::Nothing | Found::End => 0,
        });
        assert_eq!(counts, [2, 2, 1, 0]);
        let (Ok(Found::Splits(first)), Ok(Found::Splits(later))) =
            (source.search(0), source.search(1))
        else {
            panic!("there are three")
        };
        assert_eq!(first[1], later[0]);
    }
}
