//! Records that are due at times which nothing can shift: a source that gives each record when it
//! is due and not before, and the same times for whoever measures how late its rows came.
//!
//! What a stall delays is due all the same, so that it counts against the engine (coordinated
//! omission): times follow from the position of a record, and not from when it was read.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cofferdam::job::Job;
use cofferdam::message::TaskError;
use cofferdam::operator::source::{ErasedSource, ReadOutcome, SourceError};
use cofferdam::state::codec;
use serde::{Deserialize, Serialize};

/// When records are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Of all sources together.
    pub(crate) per_second: u64,
    /// When the first record is due.
    pub(crate) begin: Nanos,
}

/// A time, in nanoseconds since 1970: the same in each process of a machine.
pub(crate) type Nanos = u64;

/// What the clock says.
pub(crate) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    nanos(since)
}

pub(super) fn nanos(duration: Duration) -> Nanos {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Pace {
    /// When the record at `position` of a part is due: the parts take turns.
    fn due(self, position: u64, part: u64, parts: u64) -> Nanos {
        let place = u128::from(position) * u128::from(parts) + u128::from(part);
        let after = place * NANOS_PER_SECOND / u128::from(self.per_second);
        self.begin.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// How many records of a part are due by `now`.
    fn due_by(self, now: Nanos, part: u64, parts: u64) -> u64 {
        let Some(passed) = now.checked_sub(self.begin) else { return 0 };
        let places = u128::from(passed) * u128::from(self.per_second) / NANOS_PER_SECOND + 1;
        let of_part = places.saturating_sub(u128::from(part)).div_ceil(u128::from(parts));
        u64::try_from(of_part).unwrap_or(u64::MAX)
    }

    /// The job, each of its sources at this pace. Beside `log`, if it is given, they note how many
    /// records they have read.
    pub(crate) fn over(self, job: Job, log: Option<&Path>) -> Job {
        job.over_sources(|source| {
            Box::new(Paced { source, pace: self, clock: now, log: log.map(Path::to_owned) })
        })
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.per_second, self.begin)
    }
}

impl FromStr for Pace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('@').and_then(|(per_second, begin)| {
            let per_second = per_second.parse().ok().filter(|rate| *rate > 0)?;
            Some(Self { per_second, begin: begin.parse().ok()? })
        });
        parts.ok_or_else(|| "it is RATE@NANOSECONDS".to_owned())
    }
}

/// The pace of an input whose parts begin at known records.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    pub(super) pace: Pace,
    /// The offset of the first record of each part, in order.
    pub(super) firsts: Vec<u64>,
}

impl Schedule {
    /// When the record at this offset is due.
    pub(super) fn due(&self, offset: u64) -> Nanos {
        let part = self.firsts.partition_point(|first| *first <= offset).saturating_sub(1);
        let position = offset - self.firsts.get(part).copied().unwrap_or(0).min(offset);
        self.pace.due(position, part as u64, self.firsts.len().max(1) as u64)
    }
}

/// A source that has nothing until its next record is due, and then all that are.
struct Paced {
    source: Box<dyn ErasedSource>,
    pace: Pace,
    clock: fn() -> Nanos,
    log: Option<PathBuf>,
}

/// How far a part has been read.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cursor {
    of_source: Vec<u8>,
    read: u64,
    part: u64,
    parts: u64,
}

impl Paced {
    fn read_at(&mut self, at: Cursor, records_max: usize) -> ReadOutcome {
        let due = self.pace.due_by((self.clock)(), at.part, at.parts);
        let open = usize::try_from(due.saturating_sub(at.read)).unwrap_or(usize::MAX);
        if open == 0 {
            return ReadOutcome::Nothing;
        }
        let behind = |of_source, read| codec::encode(&Cursor { of_source, read, ..at });
        match self.source.read(&at.of_source, records_max.min(open)) {
            ReadOutcome::Records { records, cursor } => {
                let read = at.read + records.len() as u64;
                match self.log.as_deref().map_or(Ok(()), |log| note(log, at.part, read)) {
                    Ok(()) => ReadOutcome::Records { records, cursor: behind(cursor, read) },
                    Err(error) => ReadOutcome::Failed(TaskError::External(error.to_string())),
                }
            }
            ReadOutcome::Gone { wanted, first, cursor } => {
                ReadOutcome::Gone { wanted, first, cursor: behind(cursor, at.read) }
            }
            outcome @ (ReadOutcome::Messages { .. }
            | ReadOutcome::Nothing
            | ReadOutcome::End
            | ReadOutcome::Failed(_)) => outcome,
        }
    }
}

impl ErasedSource for Paced {
    fn discover(&mut self, parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError> {
        let cursors = self.source.discover(parallelism)?;
        let parts = cursors.len() as u64;
        let paced = (0..)
            .zip(cursors)
            .map(|(part, of_source)| codec::encode(&Cursor { of_source, read: 0, part, parts }));
        Ok(paced.collect())
    }

    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome {
        match codec::decode(cursor) {
            Ok(at) => self.read_at(at, records_max),
            Err(error) => ReadOutcome::Failed(TaskError::Restore(error.to_string())),
        }
    }

    fn is_replayable(&self) -> bool {
        self.source.is_replayable()
    }

    fn is_truncated(&self) -> bool {
        self.source.is_truncated()
    }

    fn clone_box(&self) -> Box<dyn ErasedSource> {
        Box::new(Self { source: self.source.clone(), log: self.log.clone(), ..*self })
    }
}

/// Notes how far a part has been read: at the end of what was noted before, so that a process that
/// is killed leaves at least that.
fn note(log: &Path, part: u64, read: u64) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(log_of(log, part));
    file?.write_all(&read.to_le_bytes())
}

/// How many records of so many parts a process had read, by its log.
pub(super) fn noted(log: &Path, parts: u64) -> u64 {
    let of_part = |part| {
        // A part of which nothing was read has none.
        let bytes = fs::read(log_of(log, part)).unwrap_or_default();
        let last = bytes.chunks_exact(size_of::<u64>()).next_back();
        last.map_or(0, |last| u64::from_le_bytes(last.try_into().expect("it is as long")))
    };
    (0..parts).map(of_part).sum()
}

fn log_of(log: &Path, part: u64) -> PathBuf {
    log.with_extension(format!("read-{part}"))
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use cofferdam::connector::memory::Numbers;

    use super::*;

    thread_local! {
        static CLOCK: Cell<Nanos> = const { Cell::new(0) };
    }

    const MS: Nanos = 1_000_000;

    fn paced(records: u64, pace: Pace) -> Paced {
        let source = Box::new(Numbers::up_to(records));
        Paced { source, pace, clock: || CLOCK.get(), log: None }
    }

    /// Reads all that there is at the clock's time; the numbers, and whether the part has ended.
    fn read(source: &mut Paced, cursor: &mut Vec<u8>) -> (Vec<u64>, bool) {
        let mut numbers = Vec::new();
        loop {
            match source.read(cursor, 3) {
                ReadOutcome::Records { records, cursor: next } => {
                    numbers.extend(records.records::<u64>());
                    *cursor = next;
                }
                ReadOutcome::Nothing => return (numbers, false),
                ReadOutcome::End => return (numbers, true),
                other @ (ReadOutcome::Messages { .. }
                | ReadOutcome::Gone { .. }
                | ReadOutcome::Failed(_)) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn records_come_when_they_are_due_and_after_a_stall_all_at_once() {
        let pace = Pace { per_second: 1000, begin: 10 * MS };
        let mut source = paced(40, pace);
        let mut cursors = source.discover(2).unwrap();
        let mut at = |ms: u64, part: usize| {
            CLOCK.set(ms * MS);
            read(&mut source, &mut cursors[part])
        };
        assert_eq!(at(9, 0), (vec![], false));
        assert_eq!(at(10, 0), (vec![0], false));
        assert_eq!((at(10, 1), at(11, 1)), ((vec![], false), (vec![20], false)));
        assert_eq!(at(20, 0), (vec![1, 2, 3, 4, 5], false));
        assert_eq!(at(60, 0), ((6..20).collect(), true));
    }

    #[test]
    fn the_schedule_and_the_source_agree() {
        let pace = Pace { per_second: 700, begin: 5 * MS };
        let mut source = paced(31, pace);
        let mut cursors = source.discover(3).unwrap();
        let schedule = Schedule { pace, firsts: vec![0, 10, 20] };
        for (part, cursor) in cursors.iter_mut().enumerate() {
            let last = if part == 2 { 31 } else { schedule.firsts[part + 1] };
            for number in schedule.firsts[part]..last {
                CLOCK.set(schedule.due(number) - 2);
                assert!(read(&mut source, cursor).0.is_empty(), "{number} is not due");
                CLOCK.set(schedule.due(number) + 2);
                assert_eq!(read(&mut source, cursor).0, [number]);
            }
        }
    }

    #[test]
    fn what_was_read_is_noted() {
        let log = std::env::temp_dir().join(format!("cofferdam-pace-{}", std::process::id()));
        let mut source = paced(40, Pace { per_second: 1000, begin: 0 });
        source.log = Some(log.clone());
        let mut cursors = source.discover(2).unwrap();
        assert_eq!(noted(&log, 2), 0);
        CLOCK.set(10 * MS);
        assert_eq!(read(&mut source, &mut cursors[0]).0.len(), 6);
        CLOCK.set(60 * MS);
        assert_eq!(read(&mut source, &mut cursors[1]).0.len(), 20);
        assert_eq!(noted(&log, 2), 26);
        (0..2).for_each(|part| fs::remove_file(log_of(&log, part)).unwrap());
    }

    #[test]
    fn a_pace_is_read_back() {
        let pace = Pace { per_second: 5, begin: 1_700_000_000_123_456_789 };
        assert_eq!(pace.to_string().parse(), Ok(pace));
        for bad in ["", "5", "0@1", "-1@2", "5@x"] {
            assert!(bad.parse::<Pace>().is_err(), "{bad}");
        }
    }
}
