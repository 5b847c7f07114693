//! The built-in jobs over real files: their sources, and sinks that write NDJSON.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use cofferdam::connector::file::{
    LineParser, PlainFileSink, TableFileSink, TableFormat, TransactionalFileSink,
    WriteAheadFileSink,
};
use cofferdam::connector::memory::DiscardSink;
use cofferdam::element::Record;
use cofferdam::guarantee::SinkContract;
use cofferdam::job::{Job, Stream};
use cofferdam::operator::chain::Segment;

use crate::jobs::JobError;
use crate::jobs::ends::Ends;
use crate::jobs::lines::{Layout, ReadsLines};
use crate::jobs::output::Output;
use crate::jobs::row::{Origin, Row};
#[cfg(feature = "sqlite")]
use crate::jobs::sqlite;

/// What a job reads and where it writes.
#[derive(Clone, Debug)]
pub struct Files {
    /// The input files; none for a job that makes its own input.
    pub inputs: Vec<PathBuf>,
    /// Where the sinks write.
    pub output: Output,
    /// Whether each row says which source record it comes from.
    pub origins: bool,
}

/// A job over files.
pub struct FileJob {
    /// The job.
    pub job: Job,
    /// The checksum that each discarding sink has come to so far.
    pub checksums: Vec<Box<dyn Fn() -> u64>>,
}

impl Files {
    /// The input files of a job that needs some.
    pub(crate) fn inputs(&self) -> Result<&[PathBuf], JobError> {
        match &self.inputs[..] {
            [] => Err(JobError::Input("--input is missing: the job reads a file".to_owned())),
            inputs => Ok(inputs),
        }
    }

    /// The input file of a job that reads just one.
    pub(crate) fn input(&self) -> Result<&Path, JobError> {
        match self.inputs()? {
            [input] => Ok(input),
            inputs => Err(JobError::Input(format!(
                "--input names {} files: the job reads one, since lines order what is equal in \
                 time",
                inputs.len()
            ))),
        }
    }

    /// Refuses input files, for a job that reads none.
    pub(crate) fn refuse_inputs(&self) -> Result<(), JobError> {
        match self.inputs.first() {
            None => Ok(()),
            Some(input) => Err(JobError::Input(format!(
                "--input {}: the job makes its own input",
                input.display()
            ))),
        }
    }

    /// Refuses a sink that keeps one row a key, for a job whose keys have many.
    pub(crate) fn refuse_table(job: &str, sink: SinkContract) -> Result<(), JobError> {
        match sink {
            SinkContract::Idempotent => Err(JobError::Input(format!(
                "--sink idempotent: a table keeps one row for each key, and a key of job '{job}' \
                 has many: use another sink"
            ))),
            SinkContract::Plain
            | SinkContract::WriteAhead
            | SinkContract::TwoPhase
            | SinkContract::Discard => Ok(()),
        }
    }

    /// The origin of a record without regard to its outputs, if rows have to say it.
    pub(crate) fn origin(&self) -> impl Fn(u64) -> Option<Origin> + Clone + Send + 'static {
        let origins = self.origins;
        move |offset| origins.then_some(Origin { offset, position: 0 })
    }
}

/// Makes records of the fields of lines, for a job `J` that reads some.
pub(crate) struct FieldParser<J, P> {
    parse: P,
    /// Of the file that is open; none before.
    layout: Option<Layout>,
    job: PhantomData<fn(J)>,
}

impl<J, P> FieldParser<J, P> {
    /// Calls `parse` with the number of a line and its fields.
    pub(crate) fn new(parse: P) -> Self {
        Self { parse, layout: None, job: PhantomData }
    }
}

impl<J, P: Clone> Clone for FieldParser<J, P> {
    fn clone(&self) -> Self {
        Self { parse: self.parse.clone(), layout: self.layout.clone(), job: PhantomData }
    }
}

impl<J, T, P> LineParser for FieldParser<J, P>
where
    J: ReadsLines + 'static,
    T: Record,
    P: Fn(u64, &[&str]) -> Result<T, String> + Clone + Send + 'static,
{
    type Record = T;

    const HAS_HEADER: bool = J::FORMAT.has_header();

    fn begin(&mut self, header: &str) -> Result<(), String> {
        self.layout = Some(J::FORMAT.layout(header)?);
        Ok(())
    }

    fn parse(&mut self, line: u64, text: &str) -> Result<Option<T>, String> {
        if line == 0 && Self::HAS_HEADER {
            return Ok(None);
        }
        let layout = match &self.layout {
            Some(layout) => layout,
            None => self.layout.insert(J::FORMAT.layout("")?),
        };
        layout.parse(text, |fields| (self.parse)(line, fields))
    }
}

/// Sinks that write where they are told to.
pub(crate) struct IntoOutput<'a> {
    files: &'a Files,
    contract: SinkContract,
    checksums: RefCell<Vec<Box<dyn Fn() -> u64>>>,
}

impl<'a> IntoOutput<'a> {
    /// Sinks that promise `contract`.
    pub(crate) fn new(files: &'a Files, contract: SinkContract) -> Self {
        Self { files, contract, checksums: RefCell::default() }
    }

    /// The job whose streams have ended here.
    pub(crate) fn finish(self, job: Job) -> FileJob {
        FileJob { job, checksums: self.checksums.into_inner() }
    }
}

impl Ends for IntoOutput<'_> {
    fn end<S: Segment>(&self, stream: Stream<S>, uid: &str)
    where
        S::Out: Row,
    {
        let folder = match &self.files.output {
            Output::Folder(folder) => folder,
            #[cfg(feature = "sqlite")]
            Output::Sqlite(file) if self.contract != SinkContract::Discard => {
                return sqlite::end(stream, uid, self.contract, file, self.files.origins);
            }
            #[cfg(feature = "sqlite")]
            Output::Sqlite(file) => file,
        };
        let folder = if uid == "out" { folder.clone() } else { folder.join(uid) };
        match self.contract {
            SinkContract::Plain => stream.sink(uid, PlainFileSink::new(folder, write_line)),
            SinkContract::TwoPhase => {
                stream.transactional_sink(uid, TransactionalFileSink::new(folder, write_line));
            }
            SinkContract::WriteAhead => {
                stream.write_ahead_sink(uid, WriteAheadFileSink::new(folder, write_line));
            }
            SinkContract::Idempotent => {
                let (read_line, key_of) = (S::Out::read_json, S::Out::row_key);
                let format = TableFormat { write_line, read_line, key_of };
                stream.sink(uid, TableFileSink::new(folder, format));
            }
            SinkContract::Discard => {
                let sink = DiscardSink::new(S::Out::checksum);
                let watched = sink.clone();
                self.checksums.borrow_mut().push(Box::new(move || watched.checksum()));
                stream.sink(uid, sink);
            }
        }
    }
}

fn write_line<R: Row>(row: &R, line: &mut Vec<u8>) {
    row.write_json(line);
    line.push(b'\n');
}
