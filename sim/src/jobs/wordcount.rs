//! Counts words: the running count for every word, or one final count a word.

use std::sync::Arc;

use cofferdam::job::Stream;
use cofferdam::operator::Emit;
use cofferdam::operator::chain::Segment;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::text::{self, Text};
use cofferdam::time::EventTime;

use crate::dice::Dice;
use crate::jobs::ends::Ends;
use crate::jobs::lines::{Format, ReadsLines};
use crate::jobs::row::{Entry, Origin};
use crate::jobs::running::{Running, fold_by_key};
use crate::jobs::{JobError, Parameter, Setup, parse_count};
use crate::reference::Reference;
use crate::reference::running::{Emits, RunningReference};
use crate::workload;

/// The job.
pub(crate) struct WordCount;

impl ReadsLines for WordCount {
    const FORMAT: Format = Format::Text;
}

impl Running for WordCount {
    type Given = ();
    type Kept = u64;

    const NAME: &'static str = "wordcount";
    const ABOUT: &'static str = "counts the words of text lines";
    const SOURCE: &'static str = "lines";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            flag: "emit",
            default: "changes",
            help: "changes: the count so far for every word; final: one line a word at the end",
        },
        Parameter {
            flag: "splits",
            default: "0",
            help: "how many splits to assign to the source tasks that ask for one; 0: each has its \
                   own from the start",
        },
    ];

    fn parse(fields: &[&str]) -> Result<Entry<()>, String> {
        Ok(Entry::new(fields[0], ()))
    }

    fn generate(dice: &mut Dice, records: usize) -> Vec<Entry<()>> {
        workload::text::lines(dice, records)
    }

    fn fold(so_far: Option<u64>, (): ()) -> u64 {
        so_far.unwrap_or(0) + 1
    }

    fn reference(
        records: Arc<Vec<Entry<()>>>,
        setup: &Setup,
    ) -> Result<Box<dyn Reference>, JobError> {
        let emits = match emits_final(setup)? {
            true => Emits::AtTheEnd,
            false => Emits::EveryChange,
        };
        Ok(Box::new(RunningReference::of_words(&records, emits)))
    }

    fn splits(setup: &Setup) -> Result<usize, JobError> {
        setup.parameters.read("splits", parse_splits)
    }

    fn end<S: Segment<Out = Entry<()>>>(
        stream: Stream<S>,
        ends: &impl Ends,
        setup: &Setup,
    ) -> Result<(), JobError> {
        let words = stream.flat_map("split", split);
        match emits_final(setup)? {
            true => ends.end(words.key_by_ref(|word| &word.key).process("fold", FinalCount), "out"),
            false => ends.end(fold_by_key::<Self, _>(words), "out"),
        }
        Ok(())
    }
}

/// Each split is kept in memory, and in checkpoints until it is assigned.
fn parse_splits(text: &str) -> Result<usize, String> {
    match parse_count(text)? {
        splits if splits <= SPLITS_MAX => Ok(splits as usize),
        _ => Err(format!("at most {SPLITS_MAX}")),
    }
}

const SPLITS_MAX: u64 = 100_000;

fn emits_final(setup: &Setup) -> Result<bool, JobError> {
    setup.parameters.read("emit", |word| match word {
        "changes" => Ok(false),
        "final" => Ok(true),
        _ => Err("it is one of changes, final".to_owned()),
    })
}

fn split(line: Entry<()>, out: &mut dyn Emit<Entry<()>>) {
    for (position, word) in (0..).zip(text::words(&line.key)) {
        let origin = line.origin.map(|line| Origin { position, ..line });
        out.emit(Entry { key: word.into(), value: (), origin });
    }
}

/// Counts in silence, and emits the count when no word can follow.
#[derive(Clone)]
struct FinalCount;

impl KeyedProcess for FinalCount {
    type Key = Text;
    type In = Entry<()>;
    type State = u64;
    type Out = Entry<u64>;

    fn process(
        &mut self,
        _word: Entry<()>,
        context: &mut KeyedContext<'_, Text, u64>,
        _out: &mut impl Emit<Entry<u64>>,
    ) {
        if context.state().is_none() {
            context.register_timer(EventTime::MAX);
        }
        *context.state().get_or_insert(0) += 1;
    }

    fn on_timer(
        &mut self,
        _time: EventTime,
        context: &mut KeyedContext<'_, Text, u64>,
        out: &mut impl Emit<Entry<u64>>,
    ) {
        if let Some(count) = context.state().get().copied() {
            out.emit(Entry::new(context.key().clone(), count));
        }
    }
}
