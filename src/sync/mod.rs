//! What one thread hands to another: a [ring] for two threads, and a way to [sleep](park) until
//! something is there. It does not know what is handed over.
//!
//! A ring says nothing to the thread at its other end. Who has put something in, or has made room,
//! wakes the other one when it suits; a worker does so once a turn.
//!
//! `tests/loom.rs` runs both through all interleavings: `--cfg loom` puts loom's types in the place
//! of the standard library's.
//!
//! Invariant: this is the only module with unsafe code.

pub mod park;
mod primitive;
#[expect(unsafe_code, reason = "two threads share slots, each of which is only one's at a time")]
pub mod ring;
