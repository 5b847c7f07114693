//! Sources and sinks that come with the engine.

#[cfg(feature = "threads")]
pub mod file;
pub mod log;
pub mod memory;
pub mod queue;
#[cfg(feature = "sqlite")]
pub mod sqlite;
