//! Two threads by hand that exchange records by key: each keeps those that are its own and sends
//! the others in batches, which come back empty to be filled again.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// The state of one thread.
pub(crate) trait Shard: Send {
    /// Records that change hands at once. Empty ones are made by [`Default`].
    type Batch: Default + Send;

    fn is_empty(batch: &Self::Batch) -> bool;
    fn is_full(batch: &Self::Batch) -> bool;
    fn clear(batch: &mut Self::Batch);
    /// Folds the records of a batch.
    fn take(&mut self, batch: &Self::Batch);
}

/// One of two threads.
pub(crate) struct Peer<S: Shard> {
    index: usize,
    pub(crate) state: S,
    batches: [S::Batch; 2],
    give: SyncSender<S::Batch>,
    take: Receiver<S::Batch>,
    give_back: SyncSender<S::Batch>,
    returned: Receiver<S::Batch>,
    /// The other thread has sent its last batch, an empty one.
    is_over: bool,
}

/// Two threads with these states.
pub(crate) fn peers<S: Shard>([first, second]: [S; 2]) -> [Peer<S>; 2] {
    let ((to_second, from_first), (to_first, from_second)) = (channel(), channel());
    let ((back_to_first, returned_first), (back_to_second, returned_second)) =
        (channel(), channel());
    let peer = |index, state, give, take, give_back, returned| {
        let batches = Default::default();
        Peer { index, state, batches, give, take, give_back, returned, is_over: false }
    };
    [
        peer(0, first, to_second, from_second, back_to_second, returned_first),
        peer(1, second, to_first, from_first, back_to_first, returned_second),
    ]
}

impl<S: Shard> Peer<S> {
    /// Adds a record for the thread at `target` by `put`.
    #[inline]
    pub(crate) fn push(&mut self, target: usize, put: impl FnOnce(&mut S::Batch)) {
        put(&mut self.batches[target]);
        if S::is_full(&self.batches[target]) {
            self.hand_over(target);
        }
    }

    fn hand_over(&mut self, target: usize) {
        if target == self.index {
            self.state.take(&self.batches[target]);
            S::clear(&mut self.batches[target]);
        } else {
            let empty = self.returned.try_recv().unwrap_or_default();
            let full = std::mem::replace(&mut self.batches[target], empty);
            self.send(full);
        }
        self.receive();
    }

    /// No more records: waits until the other thread has none either.
    pub(crate) fn finish(mut self) -> S {
        self.state.take(&self.batches[self.index]);
        let last = std::mem::take(&mut self.batches[1 - self.index]);
        if !S::is_empty(&last) {
            self.send(last);
        }
        self.send(S::Batch::default());
        while !self.is_over {
            if !self.receive() {
                std::thread::yield_now();
            }
        }
        self.state
    }

    fn send(&mut self, mut batch: S::Batch) {
        while let Err(TrySendError::Full(refused)) = self.give.try_send(batch) {
            batch = refused;
            if !self.receive() {
                std::thread::yield_now();
            }
        }
    }

    fn receive(&mut self) -> bool {
        let mut found = false;
        while let Ok(mut batch) = self.take.try_recv() {
            found = true;
            self.is_over |= S::is_empty(&batch);
            self.state.take(&batch);
            S::clear(&mut batch);
            let _ = self.give_back.try_send(batch);
        }
        found
    }
}

fn channel<T>() -> (SyncSender<T>, Receiver<T>) {
    sync_channel(64)
}
