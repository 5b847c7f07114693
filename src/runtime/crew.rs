//! The threads of a run: started together, ended together.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::runtime::channel::Exchange;
use crate::runtime::mail::{ToCoordinator, ToWorker, WorkerAddress};
use crate::runtime::slot::Office;
use crate::runtime::store::CheckpointStore;
use crate::runtime::worker::{Roster, Worker};
use crate::runtime::writer::{self, WriteOrder};
use crate::state::codec::Compression;
use crate::sync::park;

/// The workers and the writer. Dropping it ends them: first the workers, so that nothing is asked
/// of the writer any more, then the writer when it has written all that was asked.
pub(super) struct Crew {
    pub(super) workers: Vec<WorkerAddress>,
    threads: Vec<park::JoinHandle<()>>,
    writer: Option<thread::JoinHandle<()>>,
}

impl Crew {
    /// Starts `count` workers, each in an office of its own, whose channels hold `elements_max`.
    ///
    /// # Errors
    /// If the system has no room for so many threads.
    pub(super) fn start(
        count: usize,
        elements_max: usize,
        office: impl Fn(usize, Roster) -> Office,
    ) -> io::Result<Self> {
        let roster: Roster = Arc::new(OnceLock::new());
        let mut crew = Self { workers: Vec::new(), threads: Vec::new(), writer: None };
        for index in 0..count {
            let (mail, received) = mpsc::channel();
            let exchange = Exchange::new(count, elements_max);
            let worker = Worker::new(office(index, roster.clone()), received, exchange);
            let run = move |parker| worker.run(parker);
            let (unparker, thread) = park::spawn(format!("worker-{index}"), run)?;
            crew.workers.push(WorkerAddress { mail, unparker });
            crew.threads.push(thread);
        }
        let is_first = roster.set(crew.workers.clone()).is_ok();
        assert!(is_first, "it is set here only");
        Ok(crew)
    }

    /// Starts the writer, which ends when all senders of `orders` are gone.
    ///
    /// # Errors
    /// As [`Crew::start`].
    pub(super) fn start_writer(
        &mut self,
        orders: Receiver<WriteOrder>,
        store: Arc<dyn CheckpointStore>,
        compression: Compression,
        coordinator: Sender<ToCoordinator>,
    ) -> io::Result<()> {
        let workers = self.workers.clone();
        let write = move || writer::run(&orders, &store, compression, &coordinator, &workers);
        self.writer = Some(thread::Builder::new().name("writer".to_owned()).spawn(write)?);
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.send(ToWorker::Quit);
        }
        // A thread that panicked has been reported by the panic hook and, a worker, to the
        // coordinator.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        if let Some(thread) = self.writer.take() {
            let _ = thread.join();
        }
    }
}
