//! Property tests: one module a subject, all in one binary.

mod aligner;
mod blocks;
mod codec;
mod coordinator;
mod engine_agrees;
mod key_group;
mod kinds;
mod nexmark;
mod overtaker;
mod ring;
mod simulation;
mod state;
mod tidy;
