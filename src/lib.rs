//! A stream engine with checkpoint barriers whose protocol core has no I/O.
//!
//! A job is a graph of sources, operators and sinks. The engine runs it in parallel tasks, takes
//! checkpoints by barriers that travel between the records, and begins again at the last one after
//! a failure, so that each record counts as often as the job's [guarantee] allows.
//!
//! Everything that the protocol prescribes is in two state machines that do no I/O. A driver feeds
//! them and carries out what they answer:
//!
//! ```text
//!              elements, messages, replies, time
//!   driver  ------------------------------------->  Task, Coordinator
//!   (threads or     handle_*                          |
//!    simulator)                                       |  poll_output
//!           <-----------------------------------------+
//!              TaskOutput, CoordinatorOutput: one ordered stream
//! ```
//!
//! The [runtime] is the driver with threads, files and a clock. The package `cofferdam-sim` is the
//! driver with virtual time and faults that are drawn from a seed.
//!
//! # From a source to a sink
//!
//! ```
//! use cofferdam::config::JobConfig;
//! use cofferdam::connector::memory::{CollectTransactions, VecSource};
//! use cofferdam::job::JobBuilder;
//! use cofferdam::runtime::{RunOptions, run};
//!
//! let counts = CollectTransactions::default();
//! let builder = JobBuilder::new("words", 2);
//! builder
//!     .source("lines", VecSource::new(vec!["a barrier".to_owned(), "a dam".to_owned()]))
//!     .flat_map("split", |line: String, out| {
//!         for word in line.split_whitespace() {
//!             out.emit(word.to_owned());
//!         }
//!     })
//!     .key_by(|word| word.clone())
//!     .aggregate("count", 0_u64, |count: &mut u64, _| *count += 1)
//!     .transactional_sink("out", counts.clone());
//! let job = builder.build(JobConfig::default())?;
//!
//! run(&job, RunOptions::default())?;
//! let mut rows = counts.committed();
//! rows.sort();
//! let expected = [("a", 1), ("a", 2), ("barrier", 1), ("dam", 1)];
//! assert_eq!(rows, expected.map(|(word, count)| (word.to_owned(), count)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to go on
//!
//! - To build a graph: [`job::JobBuilder`]. What it promises: [`job::Job::claim`].
//! - To write a part of one's own: [`operator::Operator`], [`operator::keyed::KeyedProcess`],
//!   [`operator::source::Source`], [`operator::sink::Sink`], [`operator::sink::TransactionalSink`].
//! - To run it: [`runtime::run`]; to keep checkpoints in files: [`runtime::FileStore`].
//! - The protocol: [`task`], [`coordinator`], [`barrier`]; what they exchange: [`message`],
//!   [`element`], [`storage`].
//!
//! Without the default feature `threads` the crate is the machines alone.

pub mod barrier;
pub mod config;
pub mod connector;
pub mod coordinator;
pub mod drive;
#[cfg(feature = "threads")]
mod durable;
pub mod element;
pub mod graph;
pub mod guarantee;
pub mod id;
pub mod job;
pub mod message;
pub mod operator;
mod processor;
#[cfg(feature = "threads")]
pub mod runtime;
pub mod state;
pub mod storage;
#[cfg(feature = "threads")]
pub mod sync;
pub mod task;
pub mod text;
pub mod time;
pub mod trace;

/// The pages with Rust code in them are compiled and run with the tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/GUARANTEES.md")]
    mod guarantees {}
    #[doc = include_str!("../docs/SNAPSHOT_FORMAT.md")]
    mod snapshot_format {}
}
