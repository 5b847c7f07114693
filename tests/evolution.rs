//! Programs that change between a savepoint and the run that goes on from it (rule 116): what may
//! change of a state, and what a refusal says.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "not all of it is needed here")]
mod support;

use std::fs;
use std::path::Path;

use cofferdam::connector::file::{LineSource, TransactionalFileSink};
use cofferdam::element::Record;
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::Emit;
use cofferdam::operator::keyed::{KeyedContext, KeyedProcess};
use cofferdam::runtime::{FileStore, Resume, RunError, RunOptions, StopAt, run};
use cofferdam::state::kinds::{Kinds, ValueCell, ValueDescriptor};
use serde::{Deserialize, Serialize};

use support::{count_words, lines_in, often, write_count, write_text};

const LINES: u64 = 300;

/// A version of what is kept of a word: how often it was seen, under the descriptor `seen`.
trait Version: Record + Default + PartialEq {
    type Count: Record + PartialEq;

    fn seen(&mut self) -> &mut ValueCell<Self::Count>;
    /// The count behind this one, and as a number.
    fn next(&self, count: Option<&Self::Count>) -> (Self::Count, u64);
}

macro_rules! versions {
    ($($(#[$doc:meta])* $name:ident($count:ty) { $($(#[$default:meta])* $field:ident: $type:ty),* }
    $next:expr;)+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
            struct $name {
                seen: ValueCell<$count>,
                $($(#[$default])* $field: $type,)*
            }

            impl Version for $name {
                type Count = $count;

                fn seen(&mut self) -> &mut ValueCell<$count> {
                    &mut self.seen
                }

                fn next(&self, count: Option<&$count>) -> ($count, u64) {
                    let next: fn(&Self, Option<&$count>) -> ($count, u64) = $next;
                    next(self, count)
                }
            }
        )+
    };
}

versions! {
    /// The program that takes the savepoint.
    First(u32) { last: String } |_, count| {
        let next = count.map_or(1, |count| count + 1);
        (next, u64::from(next))
    };
    /// A field more; the rows tell if it is not the default where there was none.
    Longer(u32) { last: String, #[serde(default)] skipped: u32 } |state, count| {
        let next = count.map_or(1, |count| count + 1 + state.skipped);
        (next, u64::from(next))
    };
    /// A field less.
    Shorter(u32) {} |_, count| {
        let next = count.map_or(1, |count| count + 1);
        (next, u64::from(next))
    };
    /// A wider count.
    Wider(u64) { last: String } |_, count| {
        let next = count.map_or(1, |count| count + 1);
        (next, next)
    };
    /// A count of another type.
    Spelled(String) { last: String } |_, _| (String::new(), 0);
    /// A field more that has no default.
    Demanding(u32) { last: String, rank: u8 } |_, _| (0, 0);
}

#[derive(Clone)]
struct Count<S: Version>(ValueDescriptor<S, S::Count>);

impl<S: Version> KeyedProcess for Count<S> {
    type Key = String;
    type In = String;
    type State = S;
    type Out = (String, u64);

    fn process(
        &mut self,
        _word: String,
        context: &mut KeyedContext<'_, String, S>,
        out: &mut impl Emit<(String, u64)>,
    ) {
        let count = context.value(&self.0).get().cloned();
        let state = context.state().get().cloned().unwrap_or_default();
        let (next, number) = state.next(count.as_ref());
        context.value(&self.0).set(next);
        out.emit((context.key().clone(), number));
    }

    fn kinds(&self) -> Kinds<S> {
        Kinds::new().with(&self.0)
    }
}

type ParseLine = fn(u64, &str) -> Result<Option<String>, String>;

fn program<S: Version>(folder: &Path, parallelism: usize) -> Job {
    let parse: ParseLine = |_, line| Ok(Some(line.to_owned()));
    let builder = JobBuilder::new("words", parallelism);
    builder
        .source("lines", LineSource::new([folder.join("text")], parse))
        .flat_map("split", |line: String, out| {
            line.split_whitespace().for_each(|word| out.emit(word.to_owned()));
        })
        .key_by(|word: &String| word.clone())
        .process("count", Count(ValueDescriptor::new("seen", S::seen)))
        .transactional_sink("out", TransactionalFileSink::new(folder.join("out"), write_count));
    builder.build(often()).unwrap()
}

/// A savepoint of the first program, taken when so many lines were read. Returns all rows that come
/// of the whole text.
fn savepoint(folder: &Path, records: u64, parallelism: usize) -> Vec<String> {
    let rows = write_text(folder, LINES);
    let store = FileStore::open(folder.join("store")).unwrap();
    let stop_at = StopAt { records, savepoint: folder.join("savepoint"), drains: false };
    let options = RunOptions { stop_at: Some(stop_at), workers: 2, ..RunOptions::new(store) };
    run(&program::<First>(folder, parallelism), options).unwrap();
    rows
}

fn go_on<S: Version>(folder: &Path, parallelism: usize) -> Result<(), RunError> {
    let store = FileStore::open(folder.join(format!("store of {parallelism}"))).unwrap();
    let resume = Resume::From(folder.join("savepoint"));
    let options = RunOptions { resume, workers: 2, ..RunOptions::new(store) };
    run(&program::<S>(folder, parallelism), options).map(drop)
}

/// Whether a changed program goes on from where the first one was, in other layouts too.
fn goes_on<S: Version>() -> bool {
    [(40, 1, 2), (150, 2, 2), (260, 3, 1)].into_iter().all(|(records, before, after)| {
        let folder = tempfile::tempdir().unwrap();
        let rows = savepoint(folder.path(), records, before);
        go_on::<S>(folder.path(), after).unwrap();
        count_words(&folder.path().join("out")) == rows
    })
}

#[test]
fn rule_116_a_field_that_comes_with_a_default_goes_or_widens_changes_no_row() {
    assert!(goes_on::<First>(), "nothing is changed");
    assert!(goes_on::<Longer>(), "a field more");
    assert!(goes_on::<Shorter>(), "a field less");
    assert!(goes_on::<Wider>(), "a wider type");
}

/// What is said of a program that can not go on. The savepoint is still good for the first one.
fn refusal<S: Version>(parallelism: usize) -> String {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let rows = savepoint(folder, 150, 2);
    let before = lines_in(&folder.join("out"));
    let Err(RunError::Restore(text)) = go_on::<S>(folder, parallelism) else {
        panic!("it is to be refused")
    };
    assert_eq!(lines_in(&folder.join("out")), before, "nothing was run");
    assert!(text.contains(&folder.join("savepoint").display().to_string()), "{text}");
    assert!(text.contains("the state of 'count'"), "{text}");
    fs::remove_dir_all(folder.join(format!("store of {parallelism}"))).unwrap();
    go_on::<First>(folder, parallelism).unwrap();
    assert_eq!(count_words(&folder.join("out")), rows);
    text
}

#[test]
fn rule_116_a_change_that_does_not_fit_is_refused_by_operator_state_and_file() {
    for parallelism in [2, 3] {
        let text = refusal::<Spelled>(parallelism);
        assert!(
            text.contains("'seen' of a key's state") && text.contains("expected string"),
            "{text}"
        );
        let text = refusal::<Demanding>(parallelism);
        assert!(
            text.contains("'rank' of a key's state") && text.contains("missing field"),
            "{text}"
        );
    }
}
