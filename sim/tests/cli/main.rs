//! The program as people and scripts meet it: exit codes, JSON fields, sentences. A module for each
//! command.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::disallowed_methods, reason = "other processes take their time")]

mod analyze;
mod compare;
#[cfg(feature = "sqlite")]
mod database;
mod jobs;
mod left;
mod replay;
mod retention;
mod run;
mod savepoint;
#[cfg(feature = "sqlite")]
mod store;
mod suite;
mod support;
mod terminal;
mod torture;
