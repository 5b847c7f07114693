//! A stream engine with checkpoint barriers whose protocol core has no I/O.

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
#[cfg(feature = "threads")]
pub mod runtime;
pub mod state;
pub mod storage;
pub mod task;
pub mod time;
pub mod trace;
