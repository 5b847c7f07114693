//! Property tests: one module a subject, all in one binary.

mod aligner;
mod coordinator;
