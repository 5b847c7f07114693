//! Generated inputs: small and nasty, the same for a seed in every process and in every version.
