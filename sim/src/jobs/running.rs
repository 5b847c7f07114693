//! The jobs that keep one running value a key and emit it for every record: one graph, one process;
//! what differs is how a record is read, how it is taken in, and how test input is drawn.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;

#[cfg(feature = "cli")]
use cofferdam::connector::file::LineSource;
use cofferdam::connector::memory::VecSource;
use cofferdam::connector::queue::MemoryQueue;
use cofferdam::element::Record;
use cofferdam::guarantee::SinkContract;
use cofferdam::job::{JobBuilder, Stream};
use cofferdam::operator::chain::{Pass, Segment};
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::operator::source::Source;
use cofferdam::operator::split_source::Pieces;
use cofferdam::operator::{Emit, RowsRestOn};
use cofferdam::state::codec::DecodeError;
use cofferdam::text::Text;

use crate::dice::{Dice, Purpose};
use crate::jobs::ends::{Ends, Watched, WatchedInStages, builder};
#[cfg(feature = "cli")]
use crate::jobs::files::{FieldParser, FileJob, Files, IntoOutput};
use crate::jobs::lines::{Format, ReadsLines, cycle_lines};
use crate::jobs::row::{Entry, encoded_json};
use crate::jobs::{BuiltinJob, Case, CaseData, CaseInput, JobError, Parameter, Setup, Shape};
use crate::reference::Reference;

/// What a case of such a job can be told besides.
const CASE_PARAMETERS: &[Parameter] = &[
    Parameter {
        flag: "source",
        default: "log",
        help: "log: one that is read by position; queue: one that gives messages out again until \
               they are acknowledged",
    },
    Parameter {
        flag: "stages",
        default: "1",
        help: "2: two-phase sinks are in two stages, writers and one committer",
    },
];

/// A job with one running value a key.
pub(crate) trait Running: ReadsLines + Sync + 'static {
    /// What a record brings along with its key.
    type Given: Record;
    /// What is kept for a key, and emitted.
    type Kept: Record + Display + FromStr;

    const NAME: &'static str;
    const ABOUT: &'static str;
    const SOURCE: &'static str = "records";
    const PARAMETERS: &'static [Parameter] = &[];
    /// Whether taking the same record in again changes nothing.
    const IDEMPOTENT: bool = false;
    /// Whether all rows of a key are the same.
    const ALIKE: bool = false;

    /// Reads a record from the fields that the format names.
    fn parse(fields: &[&str]) -> Result<Entry<Self::Given>, String>;

    /// Draws test input.
    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<Self::Given>>;

    /// A record as people read it.
    fn text(record: &Entry<Self::Given>) -> String {
        record.key.to_string()
    }

    /// Takes a record in.
    fn fold(so_far: Option<Self::Kept>, given: Self::Given) -> Self::Kept;

    /// The reference for these records.
    fn reference(
        records: Arc<Vec<Entry<Self::Given>>>,
        setup: &Setup,
    ) -> Result<Box<dyn Reference>, JobError>;

    /// In how many splits the source tasks are assigned the input; none if each has its own from
    /// the start.
    fn splits(_setup: &Setup) -> Result<usize, JobError> {
        Ok(0)
    }

    /// Ends a stream of records in the job's sink.
    fn end<S: Segment<Out = Entry<Self::Given>>>(
        stream: Stream<S>,
        ends: &impl Ends,
        _setup: &Setup,
    ) -> Result<(), JobError> {
        ends.end(fold_by_key::<Self, _>(stream), "out");
        Ok(())
    }
}

/// Begins the stream of a job with a source.
fn begin<J: Running>(
    builder: &JobBuilder,
    source: impl Source<Record = Entry<J::Given>>,
    setup: &Setup,
) -> Result<Stream<Pass<Entry<J::Given>>>, JobError> {
    Ok(match J::splits(setup)? {
        0 => builder.source(J::SOURCE, source),
        splits => builder.split_source(J::SOURCE, Pieces::new(source, splits, splits)),
    })
}

/// Begins the stream of a job over an input in memory.
fn begin_case<J: Running>(
    builder: &JobBuilder,
    records: &Arc<Vec<Entry<J::Given>>>,
    setup: &Setup,
) -> Result<Stream<Pass<Entry<J::Given>>>, JobError> {
    let assigned = J::splits(setup)? > 0;
    let is_queue = setup.parameters.read("source", |word| match word {
        "log" => Ok(false),
        "queue" if assigned => Err("its messages are in no splits: leave --splits out".to_owned()),
        "queue" => Ok(true),
        _ => Err("it is one of log, queue".to_owned()),
    })?;
    if !is_queue {
        return begin::<J>(builder, VecSource::from(records.clone()), setup);
    }
    let Shape { parallelism, first, .. } = setup.shape;
    let queues = first.unwrap_or(parallelism);
    Ok(builder.queue(J::SOURCE, MemoryQueue::new(records, queues)))
}

/// Ends the stream of a job over an input in memory.
fn end_case<J: Running>(
    stream: Stream<Pass<Entry<J::Given>>>,
    setup: &Setup,
) -> Result<(), JobError> {
    let in_stages = setup.parameters.read("stages", |word| match word {
        "1" => Ok(false),
        "2" => Ok(true),
        _ => Err("it is one of 1, 2".to_owned()),
    })?;
    if in_stages && setup.sink == SinkContract::TwoPhase {
        J::end(stream, &WatchedInStages, setup)
    } else {
        J::end(stream, &Watched(setup.sink), setup)
    }
}

/// Keeps the running value of each key and emits it for every record, with the record's origin.
pub(crate) fn fold_by_key<J: Running + ?Sized, S: Segment<Out = Entry<J::Given>>>(
    stream: Stream<S>,
) -> Stream<impl Segment<Out = Entry<J::Kept>>> {
    stream.key_by_ref(|entry| &entry.key).process("fold", Fold::<J>(PhantomData))
}

impl<J: Running> BuiltinJob for J {
    fn name(&self) -> &'static str {
        J::NAME
    }

    fn about(&self) -> &'static str {
        J::ABOUT
    }

    fn parameters(&self) -> &'static [Parameter] {
        J::PARAMETERS
    }

    fn case_parameters(&self) -> &'static [Parameter] {
        CASE_PARAMETERS
    }

    fn reads(&self) -> Option<Format> {
        Some(J::FORMAT)
    }

    fn row_json(&self, _uid: &str, row: &[u8]) -> Result<Vec<u8>, DecodeError> {
        encoded_json::<Entry<J::Kept>>(row)
    }

    fn case(&self, data: &CaseData, setup: &Setup) -> Result<Case, JobError> {
        let records = Arc::new(match &data.lines {
            Some(lines) => cycle_lines(lines, J::FORMAT, data, |_, fields| J::parse(fields))?,
            None => J::generate(&mut Dice::new(data.seed, Purpose::Workload), data.records),
        });
        let builder = builder(J::NAME, setup.shape);
        end_case::<J>(begin_case::<J>(&builder, &records, setup)?, setup)?;
        let job = builder.build(setup.config.clone())?;
        let reference = J::reference(records.clone(), setup)?;
        let inputs = CaseInput::of(&job, vec![records], J::text);
        Ok(Case { job, reference, inputs })
    }

    #[cfg(feature = "cli")]
    fn over_files(&self, files: &Files, setup: &Setup) -> Result<FileJob, JobError> {
        let origin = files.origin();
        let parse = move |line, fields: &[&str]| {
            J::parse(fields).map(|entry| Entry { origin: origin(line), ..entry })
        };
        let source = LineSource::new(files.inputs()?, FieldParser::<J, _>::new(parse));
        let ends = IntoOutput::new(files, setup.sink);
        let builder = builder(J::NAME, setup.shape);
        J::end(begin::<J>(&builder, source, setup)?, &ends, setup)?;
        Ok(ends.finish(builder.build(setup.config.clone())?))
    }
}

/// The process of a [`Running`] job.
struct Fold<J: ?Sized>(PhantomData<fn(&J)>);

impl<J: ?Sized> Clone for Fold<J> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<J: Running + ?Sized> KeyedProcess for Fold<J> {
    type Key = Text;
    type In = Entry<J::Given>;
    type State = J::Kept;
    type Out = Entry<J::Kept>;

    fn process(
        &mut self,
        record: Self::In,
        context: &mut KeyedContext<'_, Text, J::Kept>,
        out: &mut impl Emit<Self::Out>,
    ) {
        let value = J::fold(context.state().take(), record.value);
        context.state().set(value.clone());
        out.emit(Entry { key: record.key, value, origin: record.origin });
    }

    fn is_idempotent(&self) -> bool {
        J::IDEMPOTENT
    }

    fn answers_each(&self) -> bool {
        true
    }

    fn rows_rest_on(&self) -> RowsRestOn {
        if J::ALIKE { RowsRestOn::Nothing } else { RowsRestOn::Counts }
    }
}
