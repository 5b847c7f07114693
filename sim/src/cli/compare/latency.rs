//! From when a record was due until its rows could be seen: what a reader of the output's folder
//! sees, and when, against the schedule of the records.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use cofferdam::guarantee::SinkContract;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::pace::{Nanos, Schedule, now};

/// A reader that looks at the committed files of a sink again and again.
pub(super) struct Reader {
    folder: PathBuf,
    /// Files are not appended to but replaced as a whole.
    are_tables: bool,
    files: BTreeMap<PathBuf, Known>,
    /// What it found, and when.
    found: Vec<(Nanos, Vec<u8>)>,
}

/// A file as it was at the last look.
#[derive(Default)]
struct Known {
    modified: Option<SystemTime>,
    /// Up to the end of its last whole line.
    read: u64,
}

/// A row that was not there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    /// When it was seen first.
    pub(super) at: Nanos,
    /// The source record that it comes from.
    pub(super) offset: u64,
}

impl Reader {
    pub(super) fn new(folder: PathBuf, sink: SinkContract) -> Self {
        let are_tables = sink == SinkContract::Idempotent;
        Self { folder, are_tables, files: BTreeMap::new(), found: Vec::new() }
    }

    /// Takes in what is new. Nothing is made of it now, so that the next look is not late.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Ok(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("part-") && name.ends_with(".ndjson") {
                self.look_into(entry.path())?;
            }
        }
        Ok(())
    }

    fn look_into(&mut self, path: PathBuf) -> io::Result<()> {
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let metadata = file.metadata()?;
        let (known, modified) = (self.files.entry(path).or_default(), metadata.modified().ok());
        if self.are_tables && known.modified != modified {
            *known = Known { modified, read: 0 };
        }
        if known.read >= metadata.len() {
            return Ok(());
        }
        file.seek(SeekFrom::Start(known.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
        known.read += bytes.len() as u64;
        if !bytes.is_empty() {
            self.found.push((now(), bytes));
        }
        Ok(())
    }

    /// Each row that says where it comes from, as it was seen first.
    pub(super) fn sights(&self) -> Vec<Sight> {
        let mut first = BTreeMap::new();
        for (at, bytes) in &self.found {
            let lines = bytes.split(|byte| *byte == b'\n');
            for origin in lines.filter_map(origin) {
                first.entry(origin).or_insert(*at);
            }
        }
        first.into_iter().map(|((offset, _), at)| Sight { at, offset }).collect()
    }
}

/// The source record that a line comes from, and which of its rows it is.
fn origin(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line).ok()?;
    let (_, origin) = text.strip_suffix('}')?.rsplit_once(",\"_offset\":")?;
    let (offset, position) = origin.split_once(",\"_position\":")?;
    Some((offset.parse().ok()?, position.parse().ok()?))
}

/// Latencies in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
    pub(super) max: f64,
    /// How many rows there were.
    pub(super) rows: u64,
}

impl Percentiles {
    /// Those of the rows whose records were due at `from` or later; none if there is no such row.
    pub(super) fn of(sights: &[Sight], schedule: &Schedule, from: Nanos) -> Option<Self> {
        let mut histogram = histogram();
        for sight in sights {
            let due = schedule.due(sight.offset);
            if due >= from {
                let micros = Duration::from_nanos(sight.at.saturating_sub(due)).as_micros();
                histogram.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
            }
        }
        (!histogram.is_empty()).then(|| Self::read(&histogram))
    }

    fn read(histogram: &Histogram<u64>) -> Self {
        let millis = |micros: u64| micros as f64 / 1000.0;
        let at = |quantile| millis(histogram.value_at_quantile(quantile));
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: millis(histogram.max()),
            rows: histogram.len(),
        }
    }
}

/// Of microseconds up to an hour, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are far enough apart")
}

#[cfg(test)]
mod tests {
    use super::super::pace::Pace;
    use super::*;

    const MS: Nanos = 1_000_000;

    fn schedule() -> Schedule {
        Schedule { pace: Pace { per_second: 1000, begin: 0 }, firsts: vec![0] }
    }

    /// One record a millisecond, each seen a millisecond after it was read; while `stalls` nothing
    /// is read, and behind that all that is due.
    fn seen(records: u64, stalls: std::ops::Range<u64>) -> Vec<(Sight, Nanos)> {
        let read = |due: u64| if stalls.contains(&due) { stalls.end } else { due };
        let sight = |offset| (Sight { at: (read(offset) + 1) * MS, offset }, read(offset) * MS);
        (0..records).map(sight).collect()
    }

    #[test]
    fn a_stall_counts_for_every_record_that_was_due_in_it() {
        let seen = seen(1000, 300..700);
        let sights: Vec<Sight> = seen.iter().map(|(sight, _)| *sight).collect();
        let found = Percentiles::of(&sights, &schedule(), 0).unwrap();
        assert!((1.0..1.1).contains(&found.p50), "{found:?}");
        assert!((300.0..302.0).contains(&found.p90), "{found:?}");
        assert!((400.0..402.0).contains(&found.max), "{found:?}");
        // From when they were read nothing would show.
        let mut by_reading = histogram();
        for (sight, read) in &seen {
            by_reading.record((sight.at - read) / 1000).unwrap();
        }
        assert!(Percentiles::read(&by_reading).max < 1.1);
    }

    #[test]
    fn what_was_due_while_it_warmed_up_is_not_counted() {
        let sights: Vec<Sight> = seen(100, 0..50).into_iter().map(|(sight, _)| sight).collect();
        let found = Percentiles::of(&sights, &schedule(), 50 * MS).unwrap();
        assert_eq!((found.rows, found.max < 1.1), (50, true), "{found:?}");
        assert_eq!(Percentiles::of(&sights, &schedule(), 500 * MS), None);
    }

    #[test]
    fn a_reader_sees_whole_rows_once_whatever_becomes_of_the_file() {
        let folder = std::env::temp_dir().join(format!("cofferdam-reader-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let row = |offset: u64| format!("{{\"key\":\"a\",\"_offset\":{offset},\"_position\":0}}\n");
        let file = folder.join("part-0.ndjson");
        let mut reader = Reader::new(folder.clone(), SinkContract::Idempotent);
        fs::write(&file, row(0) + &row(7)[..9]).unwrap();
        reader.look().unwrap();
        fs::write(folder.join(".part-1.ndjson"), row(3)).unwrap();
        fs::write(folder.join("new"), row(7) + &row(8)).unwrap();
        fs::rename(folder.join("new"), &file).unwrap();
        reader.look().unwrap();
        let offsets =
            |reader: &Reader| reader.sights().iter().map(|sight| sight.offset).collect::<Vec<_>>();
        assert_eq!(offsets(&reader), [0, 7, 8]);
        let mut reader = Reader::new(folder.clone(), SinkContract::Plain);
        fs::write(&file, row(0) + &row(7)[..9]).unwrap();
        reader.look().unwrap();
        assert_eq!(offsets(&reader), [0]);
        fs::write(&file, row(0) + &row(7)).unwrap();
        reader.look().unwrap();
        assert_eq!(offsets(&reader), [0, 7]);
        let found = &reader.found;
        assert_eq!(found.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), row(0).len() * 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_origin_of_a_line_stands_at_its_end() {
        let line = br#"{"key":",\"_offset\":5","value":1,"_offset":12,"_position":3}"#;
        assert_eq!(origin(line), Some((12, 3)));
        assert_eq!((origin(b"{\"key\":1}"), origin(b"")), (None, None));
    }
}
