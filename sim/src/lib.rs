//! The deterministic simulator of cofferdam, its judges, and the built-in jobs they are tried on.
//!
//! A run takes the engine's own machines and operators, puts models in the place of channels,
//! store and external systems, and strikes at them. Everything that could go one way or another is
//! drawn from a seed, so the same seed gives the same run, byte for byte, in any process.
//!
//! ```text
//!   seed --> options, workload, faults, decisions
//!                          |
//!                          v
//!            World: Task and Coordinator (real), links, store, external systems (models)
//!                          |
//!                trace, state, visible rows          reference: what ought to be there
//!                          |                                   |
//!                          +-----------> judges <--------------+
//!                                          |
//!                                verdicts on state and output
//! ```
//!
//! - [`check::Check`] tries a job of one's own: nothing but the job has to be written.
//! - [`run`] is one run, [`campaign`] many, [`scenario`] a run in a file, [`story`] a run in words.
//! - [`options`], [`fault`] and [`decide`] say what is drawn; [`dice`] draws it.
//! - [`world`] is what runs, with [`link`], [`store`] and [`external`] around the machines, and
//!   [`interpose`] where a broken variant changes what passes between them.
//! - [`jobs`] are the built-in jobs, [`workload`] their input, [`mod@reference`] what has to come
//!   of them.
//! - [`oracle`] are the judges.

pub mod campaign;
pub mod check;
#[cfg(feature = "cli")]
pub mod cli;
pub mod decide;
pub mod dice;
pub mod external;
pub mod fault;
pub mod interpose;
pub mod jobs;
pub mod link;
pub mod log;
pub mod options;
pub mod oracle;
pub mod queue;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod store;
pub mod story;
pub mod workload;
pub mod world;

/// The pages with Rust code in them are compiled and run with the tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../README.md")]
    mod readme {}
    #[doc = include_str!("../../docs/SIMULATOR.md")]
    mod simulator {}
}
