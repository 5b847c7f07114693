//! The deterministic simulator of cofferdam, its judges, and the built-in jobs they are tried on.

pub mod jobs;
pub mod reference;
pub mod workload;
