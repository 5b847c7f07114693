//! The engine that users run: worker threads, real channels, real files, a real clock, around the
//! same machines that the simulator drives.
//!
//! ```text
//!   calling thread          workers (one a core)                 writer
//!   Coordinator <---------> Task Task Task ... <-- channels -->  encodes and
//!        |                    |  sources and sinks inline        stores
//!        +--- store requests -+--------------------------------->|
//!        |<-- replies --------+<---------------------------------+
//! ```
//! A worker gives each of its tasks a turn and parks when none has anything to do. What a task asks
//! for is carried out in order, at once, by its worker; only writes to the store go to the writer.
//!
//! Invariant: tasks of two attempts never run at the same time; every message carries its attempt.
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the driver that brings clock and threads to the core"
)]

mod channel;
mod conductor;
mod control;
mod crew;
mod deploy;
mod file_store;
mod guard;
mod mail;
mod options;
mod recover;
mod savepoint;
mod slot;
mod store;
mod throttle;
mod worker;
mod writer;

use std::sync::Arc;
use std::sync::mpsc;

use crate::coordinator::Coordinator;
use crate::job::Job;
use crate::state::store::StateStore;
use crate::time::Instant;

use self::conductor::{Conductor, Progress};
use self::crew::Crew;
use self::slot::{Counters, Office};
use self::throttle::Throttle;

pub use self::control::{
    AfterSavepoint, AwaitedSavepoint, JobHandle, Orders, SavepointOrder, control,
};
pub use self::file_store::FileStore;
pub use self::options::{
    CheckpointFigures, Claim, Kept, Resume, RunError, RunEvent, RunOptions, RunReport, Snapshots,
    StopAt,
};
pub use self::recover::{begins_anew, first_reservation};
pub use self::savepoint::{Savepoint, SavepointError, SavepointNote};
pub use self::store::{CheckpointStore, MemoryStore, PutError, StoreError};

/// Runs `job` to its end.
///
/// # Errors
/// If the input is wrong, the checkpoint to begin at can not be used, there were too many failures,
/// or the stop flag was set. What was committed stays, and the job can be run again.
///
/// # Panics
/// If a worker dies of a bug of the engine's own.
pub fn run(job: &Job, options: RunOptions) -> Result<RunReport, RunError> {
    let state_store = state_store(job, options.state_store)?;
    let started = std::time::Instant::now();
    if let Some(stop) = &options.stop_at {
        savepoint::check(job, &stop.savepoint)?;
    }
    let store = options.store.clone();
    let begins = recover::Begin {
        store: store.as_ref(),
        resume: &options.resume,
        left: options.left,
        claim: options.claim,
    };
    let (job, recovered) = &begins.prepare(job)?;
    let coordinator = Coordinator::new(
        job.name().to_owned(),
        job.plan(),
        job.config().clone(),
        recovered.clone(),
        Instant::ZERO,
    );
    let (to_coordinator, mail) = mpsc::channel();
    let (writer, orders) = mpsc::channel();
    let counters = Arc::new(Counters::default());
    let records_max = options.stop_at.as_ref().map(|stop| stop.records);
    let drains = options.stop_at.as_ref().is_some_and(|stop| stop.drains);
    let throttle = Arc::new(Throttle::new(options.records_per_second, records_max, drains));
    let elements_max = deploy::elements_max(job);
    let workers = options.workers.clamp(1, deploy::workers_max(job.graph()));
    let homes = Arc::new(deploy::homes(job.graph(), workers));
    let too_many = |error: std::io::Error| {
        RunError::Input(format!("{workers} workers can not be started: {error}: ask for fewer"))
    };
    let crew = Crew::start(workers, elements_max, |worker, roster| Office {
        worker,
        roster,
        homes: homes.clone(),
        coordinator: to_coordinator.clone(),
        writer: writer.clone(),
        throttle: throttle.clone(),
        counters: counters.clone(),
        writes: (options.snapshots == Snapshots::Sync)
            .then(|| (options.store.clone(), options.compression)),
        started,
    });
    let mut crew = crew.map_err(too_many)?;
    let writer_started =
        crew.start_writer(orders, options.store.clone(), options.compression, to_coordinator);
    writer_started.map_err(too_many)?;
    let conductor = Conductor {
        job,
        store: options.store,
        state_store,
        workers: crew.workers.clone(),
        writer,
        counters,
        observer: options.observer,
        stop: options.stop,
        stop_at: options.stop_at,
        orders: options.orders,
        throttle: throttle.clone(),
        started,
        progress: Progress::default(),
    };
    let end = conductor.run(coordinator, &mail);
    // Nothing is written any more when the crew is gone.
    drop(crew);
    let cleaned = recover::clean_up(store.as_ref(), options.kept.after(&end));
    end.and_then(|report| cleaned.map(|()| report).map_err(RunError::from))
}

/// The store of keyed state, if any lives outside of the tasks.
fn state_store(
    job: &Job,
    given: Option<Arc<dyn StateStore>>,
) -> Result<Option<Arc<dyn StateStore>>, RunError> {
    let home = job.config().state;
    let store = given.filter(|_| home.is_external());
    if home.is_external() && store.is_none() {
        return Err(RunError::Input(format!(
            "state that is {home} needs a store to live in: set RunOptions::state_store"
        )));
    }
    Ok(store)
}
