//! Lines of files. At the first start the files, one behind the other, are cut into contiguous
//! parts of about equal length on line bounds; a part can reach over several files. One pass over
//! the bytes counts lines, so that each part knows the numbers of its own.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::connector::file::parse::LineParser;
use crate::operator::source::{Fetch, Source, SourceError};

/// A source of the lines of files, made into records by a parser.
///
/// Lines end in `\n` or `\r\n`; a last line without an end counts. A byte order mark of UTF-8 at
/// the start of a file is skipped. What is appended to the files after the first start is not read;
/// all else has to stay as it was, which a [`Fingerprint`](super::Fingerprint) can tell.
pub struct LineSource<P> {
    files: Arc<[PathBuf]>,
    parser: P,
    reader: Option<OpenFile>,
    line: Vec<u8>,
}

/// A cursor: the next line, and where the part ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The file of the next line.
    pub file: u32,
    /// Its number, from 0.
    pub line: u64,
    /// Where it begins.
    pub byte: u64,
    /// The first byte that is not of the part, in that file and in each that follows in the part.
    pub ends: VecDeque<u64>,
}

/// A file that is open at some byte.
struct OpenFile {
    file: u32,
    byte: u64,
    reader: BufReader<File>,
}

impl<P: LineParser> LineSource<P> {
    /// The lines of `files`, in this order, as `parser` reads them.
    pub fn new(files: impl IntoIterator<Item = impl Into<PathBuf>>, parser: P) -> Self {
        let files = files.into_iter().map(Into::into).collect();
        Self { files, parser, reader: None, line: Vec::new() }
    }

    /// Reads the next line of the part; none at its end.
    fn next(&mut self, span: &mut Span) -> Result<Option<P::Record>, SourceError> {
        let number = span.line;
        self.read_line(span)?;
        let path = &self.files[span.file as usize];
        let wrong = |text: &str| {
            SourceError::Input(format!("{}, line {}: {text}", path.display(), number + 1))
        };
        let text = std::str::from_utf8(&self.line).map_err(|_| wrong("not UTF-8"))?;
        self.parser.parse(number, text).map_err(|text| wrong(&text))
    }

    /// Reads the line at the cursor, without its end, and moves the cursor behind it.
    fn read_line(&mut self, span: &mut Span) -> Result<(), SourceError> {
        let path = &self.files[span.file as usize];
        let reader = self.reader.as_mut().expect("the file of the cursor has been opened");
        self.line.clear();
        let read = reader.reader.read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| unreadable(path, &error))? as u64;
        // Only the last line of the part may have no end.
        let is_whole = read >= span.left() || self.line.last() == Some(&b'\n');
        // A last line without an end may have grown since: it is read as it was.
        let read = read.min(span.left());
        self.line.truncate(read as usize);
        if !is_whole {
            let text =
                format!("{}, line {}: the file has become shorter", path.display(), span.line + 1);
            return Err(SourceError::Input(text));
        }
        reader.byte += read;
        span.byte += read;
        span.line += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
        }
        Ok(())
    }

    /// Opens the file of the cursor unless it is open there, and moves on to the next file at the
    /// end of one. False at the end of the part.
    fn open(&mut self, span: &mut Span) -> Result<bool, SourceError> {
        loop {
            if span.left() == 0 {
                if span.ends.len() <= 1 {
                    return Ok(false);
                }
                span.ends.pop_front();
                *span = Span { file: span.file + 1, line: 0, byte: 0, ends: take(&mut span.ends) };
                continue;
            }
            let is_there = |open: &OpenFile| (open.file, open.byte) == (span.file, span.byte);
            if self.reader.as_ref().is_some_and(is_there) {
                return Ok(true);
            }
            let Some(path) = self.files.get(span.file as usize) else {
                let (place, files) = (span.file + 1, self.files.len());
                let text = format!("the source was to read file {place} of {files}");
                return Err(SourceError::Input(text));
            };
            let Opened { mut reader, start, .. } = open_file(path, &mut self.parser)?;
            span.byte = span.byte.max(start);
            let sought = reader.seek(SeekFrom::Start(span.byte));
            sought.map_err(|error| unreadable(path, &error))?;
            self.reader = Some(OpenFile { file: span.file, byte: span.byte, reader });
        }
    }
}

impl Span {
    /// How many bytes of the file are left in the part.
    fn left(&self) -> u64 {
        self.ends.front().map_or(0, |end| end.saturating_sub(self.byte))
    }
}

impl<P: Clone> Clone for LineSource<P> {
    /// The copy opens files of its own.
    fn clone(&self) -> Self {
        let (files, parser) = (self.files.clone(), self.parser.clone());
        Self { files, parser, reader: None, line: Vec::new() }
    }
}

impl<P: LineParser> Source for LineSource<P> {
    type Record = P::Record;
    type Split = Span;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Span>, SourceError> {
        let mut lengths = Vec::with_capacity(self.files.len());
        for path in self.files.iter() {
            lengths.push(open_file(path, &mut self.parser)?.length);
        }
        cut(&self.files, &lengths, parallelism)
    }

    fn read(
        &mut self,
        split: &mut Span,
        records_max: usize,
    ) -> Result<Fetch<P::Record>, SourceError> {
        let mut records = Vec::with_capacity(records_max.min(RECORDS_AHEAD_MAX));
        while records.len() < records_max && self.open(split)? {
            records.extend(self.next(split)?);
        }
        Ok(if records.is_empty() { Fetch::End } else { Fetch::Records(records) })
    }
}

/// A file at its first line.
struct Opened {
    reader: BufReader<File>,
    /// Where the first line begins: behind a byte order mark.
    start: u64,
    length: u64,
}

/// Opens a file, and shows the parser its first line if that is a header.
fn open_file<P: LineParser>(path: &Path, parser: &mut P) -> Result<Opened, SourceError> {
    let unreadable = |error: io::Error| unreadable(path, &error);
    let (file, metadata) = open_regular(path)?;
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let is_marked = reader.fill_buf().map_err(unreadable)?.starts_with(BYTE_ORDER_MARK);
    let start = if is_marked { BYTE_ORDER_MARK.len() } else { 0 };
    reader.consume(start);
    if P::HAS_HEADER {
        let mut header = Vec::new();
        reader.read_until(b'\n', &mut header).map_err(unreadable)?;
        let text = std::str::from_utf8(&header).map_err(|_| "not UTF-8".to_owned());
        text.and_then(|text| parser.begin(text.trim_end_matches(['\r', '\n'])))
            .map_err(|text| SourceError::Input(format!("{}, line 1: {text}", path.display())))?;
    }
    Ok(Opened { reader, start: start as u64, length: metadata.len() })
}

/// Opens a file that can be read again and again.
pub(super) fn open_regular(path: &Path) -> Result<(File, Metadata), SourceError> {
    // Looked at before it is opened: to open a pipe would wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if metadata.is_dir() {
        return Err(SourceError::Input(format!("{}: a folder, not a file", path.display())));
    }
    if !metadata.is_file() {
        let text = "not a regular file, so it could not be read again after a failure";
        return Err(SourceError::Input(format!("{}: {text}", path.display())));
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    Ok((file, metadata))
}

/// Cuts the files into at most `parts` parts on line bounds.
fn cut(files: &[PathBuf], lengths: &[u64], parts: usize) -> Result<Vec<Span>, SourceError> {
    let Some(last) = files.len().checked_sub(1) else { return Ok(Vec::new()) };
    let total: u64 = lengths.iter().sum();
    let target = |part: usize| (u128::from(total) * part as u128 / parts as u128) as u64;
    let mut bounds = vec![LineStart { file: 0, line: 0, byte: 0 }];
    let (mut base, mut part) = (0, 1);
    for (file, (path, length)) in files.iter().zip(lengths).enumerate() {
        let mut targets = Vec::new();
        while part < parts && target(part) < base + length {
            targets.push(target(part) - base);
            part += 1;
        }
        let found = line_starts(path, &targets).map_err(|error| unreadable(path, &error))?;
        let file = file as u32;
        bounds.extend(found.into_iter().map(|(line, byte)| LineStart { file, line, byte }));
        base += length;
    }
    bounds.push(LineStart { file: last as u32, line: 0, byte: lengths[last] });
    let spans = bounds.windows(2).map(|pair| {
        let (first, last) = (pair[0].file, pair[1].file);
        let mut ends: VecDeque<u64> = lengths[first as usize..last as usize].to_vec().into();
        ends.push_back(pair[1].byte);
        Span { file: first, line: pair[0].line, byte: pair[0].byte, ends }
    });
    Ok(spans.filter(|span| span.ends.len() > 1 || span.left() > 0).collect())
}

struct LineStart {
    file: u32,
    line: u64,
    byte: u64,
}

/// For each target, in order: number and place of the first line that begins there or later; the
/// end of the file if there is none.
fn line_starts(path: &Path, targets: &[u64]) -> io::Result<Vec<(u64, u64)>> {
    let mut starts = Vec::with_capacity(targets.len());
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    let (mut line, mut byte) = (0, 0);
    while starts.len() < targets.len() {
        // What begins at `byte` is a line only at the start of the file; later its newline says so.
        while byte == 0 && targets.get(starts.len()) == Some(&0) {
            starts.push((0, 0));
        }
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            starts.resize(targets.len(), (line, byte));
            break;
        }
        for newline in memchr::memchr_iter(b'\n', chunk) {
            line += 1;
            let start = byte + newline as u64 + 1;
            while targets.get(starts.len()).is_some_and(|target| *target <= start) {
                starts.push((line, start));
            }
        }
        let read = chunk.len();
        byte += read as u64;
        reader.consume(read);
    }
    Ok(starts)
}

/// A file that is not there, or may not be read, will not be there at the next try either.
pub(super) fn unreadable(path: &Path, error: &io::Error) -> SourceError {
    let text = format!("{}: {error}", path.display());
    let is_final = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory
    );
    if is_final { SourceError::Input(text) } else { SourceError::Io(text) }
}

pub(super) const BUFFER_BYTES: usize = 1 << 16;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A limited read does not make room for more records than this before it has any.
const RECORDS_AHEAD_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::file::{CsvRows, JsonLines};

    fn lines() -> impl LineParser<Record = (u64, String)> {
        |line: u64, text: &str| Ok(Some((line, text.to_owned())))
    }

    fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn read_all<P: LineParser>(
        source: &mut LineSource<P>,
        parts: usize,
        records_max: usize,
    ) -> Result<Vec<P::Record>, SourceError> {
        let mut all = Vec::new();
        for mut span in source.discover(parts)? {
            loop {
                match source.read(&mut span, records_max)? {
                    Fetch::Records(records) => all.extend(records),
                    Fetch::Nothing => panic!("a file always has something"),
                    Fetch::Gone { .. } => panic!("a file is not truncated"),
                    Fetch::End => break,
                }
            }
        }
        Ok(all)
    }

    #[test]
    fn every_line_is_read_once_with_its_number_however_the_files_are_cut() {
        let folder = tempfile::tempdir().unwrap();
        let one = write(folder.path(), "one", b"a\nbb\r\n\nccc\n");
        let empty = write(folder.path(), "empty", b"");
        let two = write(folder.path(), "two", b"dddd\nlast without end");
        let expected: Vec<(u64, String)> =
            [(0, "a"), (1, "bb"), (2, ""), (3, "ccc"), (0, "dddd"), (1, "last without end")]
                .map(|(line, text)| (line, text.to_owned()))
                .into();
        for parts in 1..40 {
            for records_max in [1, 2, 100] {
                let files = [&one, &empty, &two, &empty];
                let mut source = LineSource::new(files, lines());
                assert_eq!(read_all(&mut source, parts, records_max).unwrap(), expected, "{parts}");
            }
        }
    }

    #[test]
    fn a_cursor_taken_in_the_middle_is_read_on_from_by_another_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "x", b"0\n1\n2\n3\n");
        let mut source = LineSource::new([path], lines());
        let mut span = source.discover(1).unwrap().remove(0);
        source.read(&mut span, 2).unwrap();
        let Ok(Fetch::Records(rest)) = source.clone().read(&mut span, 9) else { panic!("rest") };
        assert_eq!(rest, [(2, "2".to_owned()), (3, "3".to_owned())]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let text = write(folder.path(), "text", "\u{feff}a\n\u{feff}b".as_bytes());
        let bare = write(folder.path(), "bare", "\u{feff}".as_bytes());
        let rows = write(folder.path(), "rows", "\u{feff}key\nx\n".as_bytes());
        let expected = [(0, "a".to_owned()), (1, "\u{feff}b".to_owned())];
        for parts in 1..6 {
            let mut source = LineSource::new([&bare, &text, &bare], lines());
            assert_eq!(read_all(&mut source, parts, 1).unwrap(), expected);
            let keys = CsvRows::new(["key"], |[key]: [&str; 1]| Ok(key.to_owned()));
            assert_eq!(read_all(&mut LineSource::new([&rows], keys), parts, 1).unwrap(), ["x"]);
        }
    }

    #[test]
    fn a_line_that_was_cut_after_the_first_start_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), "x", b"one\ntwo\nthree");
        let mut source = LineSource::new([&path], lines());
        let span = source.discover(1).unwrap().remove(0);
        for cut in [b"one\ntw".len(), b"one\ntwo\nth".len(), b"one\n".len()] {
            std::fs::write(&path, &b"one\ntwo\nthree"[..cut]).unwrap();
            let error = source.clone().read(&mut span.clone(), 9).unwrap_err().to_string();
            assert!(error.contains("/x, line ") && error.contains("become shorter"), "{error}");
        }
    }

    #[test]
    fn what_is_appended_after_the_first_start_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let one = write(folder.path(), "one", b"0\n1\n");
        let two = write(folder.path(), "two", b"2\n3");
        let mut source = LineSource::new([&one, &two], lines());
        let mut span = source.discover(1).unwrap().remove(0);
        source.read(&mut span, 1).unwrap();
        write(folder.path(), "one", b"0\n1\nmore\n");
        write(folder.path(), "two", b"2\n34\nmore\n");
        let Ok(Fetch::Records(rest)) = source.clone().read(&mut span, 9) else { panic!("rest") };
        let texts: Vec<_> = rest.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["1", "2", "3"]);
        assert_eq!(source.clone().read(&mut span, 9), Ok(Fetch::End));
    }

    fn refusal<P: LineParser>(name: &str, bytes: &[u8], parser: P) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = write(folder.path(), name, bytes);
        let error = read_all(&mut LineSource::new([path], parser), 2, 100).unwrap_err();
        let SourceError::Input(text) = error else { panic!("{error}") };
        text.rsplit_once('/').unwrap().1.to_owned()
    }

    #[test]
    fn wrong_input_is_refused_with_file_and_line() {
        assert_eq!(refusal("log", b"a\n\xff\n", lines()), "log, line 2: not UTF-8");
        let rows = CsvRows::new(["key", "value"], |[key, value]| {
            let value: i64 = value.parse().map_err(|_| format!("'{value}' is not a number"))?;
            Ok((key.to_owned(), value))
        });
        let refused = |bytes: &[u8]| refusal("r.csv", bytes, rows.clone());
        assert_eq!(refused(b"key,value\na,1\nb,x\n"), "r.csv, line 3: 'x' is not a number");
        assert_eq!(
            refused(b"key,value\na\n"),
            "r.csv, line 2: column 2: 1 fields where the header has 2"
        );
        assert_eq!(
            refused(b"key,value\na,1,x\n"),
            "r.csv, line 2: column 3: 3 fields where the header has 2"
        );
        assert_eq!(
            refused(b"key,value, key\na,1,b\n"),
            "r.csv, line 1: column 3: it has the name of column 1, ' key'"
        );
        assert_eq!(refused(b"key,other\na,1\n"), "r.csv, line 1: the header has no column 'value'");
        let json = JsonLines::<(u64, u64)>::new();
        let text = refusal("j", b"[1,2]\n[1]\n", json);
        assert!(text.starts_with("j, line 2: not the expected JSON"), "{text}");
        assert!(text.ends_with("at column 3"), "{text}");
        let missing = LineSource::new(["/nowhere/file"], lines()).discover(1).unwrap_err();
        assert!(missing.to_string().starts_with("/nowhere/file: "), "{missing}");
    }

    #[test]
    fn a_row_with_quotes_is_read_as_a_whole_or_refused() {
        let rows = CsvRows::new(["k", "v"], |[k, v]: [&str; 2]| Ok(format!("{k}={v}")));
        let refused = |bytes: &[u8]| refusal("r.csv", bytes, rows.clone());
        assert_eq!(
            refused(b"k,v\n\"x\",1\ry,2\n"),
            "r.csv, line 2: column 3: 3 fields where the header has 2"
        );
        assert_eq!(refused(b"k,v\na,\"1\n"), "r.csv, line 2: column 2: its quote is not closed");
        assert_eq!(
            refused(b"k,v\n\"a\"b,1\n"),
            "r.csv, line 2: column 1: something stands behind its closing quote"
        );
    }

    #[test]
    fn rows_are_read_by_column_name_quoted_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let text = b"extra,value,key\r\nx,1,a\r\n\r\n\"y, z\",2,\"b \"\"q\"\"\"\r\n";
        let path = write(folder.path(), "rows.csv", text);
        let rows =
            CsvRows::new(["key", "value"], |[key, value]: [&str; 2]| Ok(format!("{key}={value}")));
        for parts in 1..5 {
            let records = read_all(&mut LineSource::new([&path], rows.clone()), parts, 1).unwrap();
            assert_eq!(records, ["a=1", "b \"q\"=2"]);
        }
    }
}
