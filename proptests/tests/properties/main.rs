//! Properties of the engine's machines, each module one machine.

mod aligner;
mod coordinator;
