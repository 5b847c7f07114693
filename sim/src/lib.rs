//! The deterministic simulator of cofferdam, its judges, and the built-in jobs they are tried on.

pub mod campaign;
pub mod check;
pub mod decide;
pub mod dice;
pub mod external;
pub mod fault;
pub mod interpose;
pub mod jobs;
pub mod link;
pub mod log;
pub mod options;
pub mod oracle;
pub mod queue;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod store;
pub mod story;
pub mod workload;
pub mod world;
