//! State: key groups, the heap backend, what a snapshot holds, and the encoding of all of it.

pub mod codec;
mod error;
mod group_codec;
pub mod hash;
pub mod heap;
pub mod key_group;
pub mod kinds;
pub mod operator;
mod piece;
pub mod slot;
pub mod snapshot;
pub mod store;
mod stream;
pub mod table;
pub mod timers;

pub use error::RestoreError;
