//! Generated inputs: small and nasty, the same for a seed in every process and in every version.

pub mod draw;
pub mod plan;
pub mod readings;
pub mod text;
