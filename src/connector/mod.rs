//! Sources and sinks that come with the engine.

pub mod memory;
