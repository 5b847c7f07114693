//! The input that all contenders read: the lines of a file or of a generated text, again and again
//! as long as records are wanted; or the numbers of a job that makes its own.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use cofferdam::connector::file::{LineSource, Span};
use cofferdam::connector::memory::Numbers;
use cofferdam::operator::source::{Source, SourceError};
use serde::{Deserialize, Serialize};

use super::runs::{Input, Runs};
use crate::cli::exit::Failure;
use crate::cli::output::grouped;
use crate::dice::{Dice, Purpose};
use crate::jobs::Format;
use crate::workload::splitmix64;

/// What there is to read.
pub(super) enum Workload {
    Lines {
        format: Format,
        header: Option<String>,
        body: Vec<String>,
    },
    /// The job makes its own, spread over up to so many keys.
    Numbers {
        keys: u64,
    },
}

/// What tells whether two comparisons had the same input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    pub(super) lines: u64,
    pub(super) checksum: u64,
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines {
            0 => write!(f, "numbers over {} keys", grouped(self.checksum)),
            lines => write!(f, "{} lines (checksum {:016x})", grouped(lines), self.checksum),
        }
    }
}

impl Workload {
    /// The records among the lines of a file; none if there are none.
    pub(super) fn of_lines(format: Format, mut lines: Vec<String>) -> Option<Self> {
        let numbers = format.record_lines(&lines);
        let header = (format.has_header() && !lines.is_empty()).then(|| lines[0].clone());
        let records = numbers.iter().map(|number| std::mem::take(&mut lines[*number as usize]));
        let body: Vec<String> = records.collect();
        (!body.is_empty()).then_some(Self::Lines { format, header, body })
    }

    /// So many lines of ten words each: a few that are frequent, many that are rare.
    pub(super) fn text(lines: usize) -> Self {
        let mut dice = Dice::new(1, Purpose::Workload);
        let mut line = || {
            let mut line = String::new();
            for _ in 0..WORDS_PER_LINE {
                // The power makes small numbers frequent.
                let drawn = dice.below(1 << 20) as f64 / f64::from(1 << 20);
                let _ = write!(line, "word{} ", (drawn.powi(3) * WORDS) as u64);
            }
            line.pop();
            line
        };
        let body = (0..lines).map(|_| line()).collect();
        Self::Lines { format: Format::Text, header: None, body }
    }

    pub(super) fn contents(&self) -> Contents {
        match self {
            Self::Lines { header, body, .. } => {
                let mix = |sum, byte: u8| splitmix64(sum ^ u64::from(byte));
                let of_line = |sum, line: &String| mix(line.bytes().fold(sum, mix), b'\n');
                let checksum = header.iter().chain(body).fold(0, of_line);
                Contents { lines: body.len() as u64, checksum }
            }
            Self::Numbers { keys } => Contents { lines: 0, checksum: *keys },
        }
    }

    /// So many records, or fewer if they would fill more than a file may hold.
    pub(super) fn at_most(&self, records: u64) -> u64 {
        match self {
            Self::Lines { body, .. } => {
                let bytes: usize = body.iter().map(|line| line.len() + 1).sum();
                records.min(INPUT_BYTES_MAX * body.len() as u64 / bytes as u64 + 1)
            }
            Self::Numbers { .. } => records.min(NUMBERS_MAX),
        }
    }

    /// An input of so many records, written unless it is there.
    pub(super) fn input(&self, runs: &Runs, records: u64) -> Result<Input, Failure> {
        let (header, body) = match self {
            Self::Lines { header, body, .. } => (header, body),
            // As many keys as the job has where it is judged.
            Self::Numbers { keys } => {
                let keys = (*keys).min((records / 8).max(1));
                return Ok(Input::Numbers { records, keys });
            }
        };
        let path = runs.input(&format!("in-{records}"));
        let written = if path.exists() { Ok(()) } else { write(&path, header, body, records) };
        match written {
            Ok(()) => Ok(Input::File(path)),
            Err(error) => Err(Failure::input(format!("{}: {error}", path.display()))),
        }
    }

    /// The offset of the first record of each part of an input.
    pub(super) fn firsts(
        &self,
        input: &Input,
        parallelism: usize,
    ) -> Result<Vec<u64>, SourceError> {
        match input {
            Input::File(path) => {
                let parser = |_: u64, _: &str| Ok(Some(()));
                let spans = LineSource::new([path], parser).discover(parallelism)?;
                let has_header = matches!(self, Self::Lines { header: Some(_), .. });
                let first = |span: &Span| span.line.max(u64::from(has_header));
                Ok(spans.iter().map(first).collect())
            }
            Input::Numbers { records, .. } => {
                let ranges = Numbers::up_to(*records).discover(parallelism)?;
                Ok(ranges.iter().map(|range| range.next).collect())
            }
        }
    }

    /// The lines of a file with so many records, its header among them.
    pub(super) fn lines(&self, records: u64) -> Vec<String> {
        let Self::Lines { header, body, .. } = self else { return Vec::new() };
        let records = body.iter().cycle().take(records as usize);
        header.iter().chain(records).cloned().collect()
    }
}

fn write(path: &Path, header: &Option<String>, body: &[String], records: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let records = body.iter().cycle().take(records as usize);
    for line in header.iter().chain(records) {
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

const WORDS_PER_LINE: usize = 10;
const WORDS: f64 = 20_000.0;
const INPUT_BYTES_MAX: u64 = 512 << 20;
const NUMBERS_MAX: u64 = 1 << 31;
