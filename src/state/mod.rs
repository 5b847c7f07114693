//! State: key groups, the heap backend, what a snapshot holds, and the encoding of all of it.

pub mod codec;
pub mod key_group;
pub mod snapshot;
