//! Property tests, one binary.

mod codec;
mod key_group;
mod state;
