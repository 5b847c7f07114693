//! Properties of the engine's machines, each module one machine.

mod coordinator;
//! Property tests: one module a subject, all in one binary.

mod aligner;
