//! When readers may hear of splits, and when more are searched for.

use super::{Coordinator, CoordinatorOutput, FailureCause};
use crate::id::{TaskId, VertexId};
use crate::message::{Found, TaskError};

impl Coordinator {
    /// Answers the readers that wait for a split, as far as they may hear of one, and has more
    /// searched for if that is not enough.
    pub(super) fn assign_splits(&mut self) {
        let mut enumerators = std::mem::take(&mut self.enumerators);
        for of in &mut enumerators {
            let next = self.checkpoint_next;
            while let Some((reader, message)) = of.answer(next, |reader| self.may_hear(reader)) {
                self.send(reader, message);
            }
            if let Some(known) = of.search() {
                self.emit(CoordinatorOutput::Search { source: of.source(), known });
            }
        }
        self.enumerators = enumerators;
    }

    pub(super) fn end_search(
        &mut self,
        source: VertexId,
        found: Result<Found<Vec<u8>>, TaskError>,
    ) {
        let mut enumerators = self.enumerators.iter_mut();
        let Some(of) = enumerators.find(|of| of.source() == source) else { return };
        match found {
            Ok(found) => of.end_search(Some(found)),
            Err(error) => {
                of.end_search(None);
                let task = of.first_reader();
                if self.phase.is_live() {
                    self.fail(FailureCause::Task { task, error });
                }
            }
        }
    }

    /// Whether a reader could be answered, but for a checkpoint that lacks its part.
    pub(super) fn has_reader_put_off(&self) -> bool {
        let is_put_off = |reader: TaskId| !self.may_hear(reader);
        self.enumerators.iter().any(|of| of.could_answer(is_put_off))
    }

    /// Whether what is sent to a reader now can not become part of both its own snapshot and the
    /// coordinator's, which was taken at the trigger (rule 80).
    fn may_hear(&self, reader: TaskId) -> bool {
        self.in_flight.collecting.values().all(|pending| pending.has_part(reader))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JobConfig;
    use crate::coordinator::{Plan, Readers, Recovered};
    use crate::graph::JobShape;
    use crate::id::{AttemptId, CheckpointId, SplitId};
    use crate::message::{AbortReason, Assignment, FromTask, TaskMessage, ToTask};
    use crate::storage::{
        CheckpointMetadata, SplitPool, StateHandle, StoreKey, StoreOutcome, StoreReply,
        StoreRequest, StoreValue,
    };
    use crate::time::Instant;
    use std::time::Duration;

    const SOURCE: VertexId = VertexId::new(0);
    const READERS: [TaskId; 2] = [TaskId::new(0), TaskId::new(1)];
    const INTERVAL: Duration = Duration::from_millis(100);

    /// A coordinator of two readers, with the time and what was stored last.
    struct Bench {
        coordinator: Coordinator,
        now: Instant,
        stored: Vec<CheckpointMetadata>,
    }

    impl Bench {
        fn new(recovered: Recovered) -> Self {
            Self::with(recovered, 1)
        }

        /// With an attempt whose tasks run, and of whose checkpoints several may be in flight.
        fn overlapping() -> Self {
            let mut bench = Self::with(Recovered::default(), 4);
            bench.deploy();
            bench
        }

        fn with(recovered: Recovered, checkpoints_concurrent: usize) -> Self {
            let assigned = vec![Readers { source: SOURCE, tasks: READERS.to_vec() }];
            let plan =
                Plan { tasks: 2, sources: READERS.to_vec(), assigned, shape: JobShape::default() };
            let config = JobConfig {
                checkpoint_interval: INTERVAL,
                checkpoint_pause_min: Duration::ZERO,
                checkpoint_failures_tolerable: 1,
                checkpoints_concurrent,
                ..JobConfig::default()
            };
            let now = Instant::ZERO;
            let coordinator = Coordinator::new("job".to_owned(), plan, config, recovered, now);
            Self { coordinator, now, stored: Vec::new() }
        }

        /// With an attempt whose tasks run.
        fn running() -> Self {
            let mut bench = Self::new(Recovered::default());
            bench.deploy();
            bench
        }

        fn deploy(&mut self) {
            self.pass();
            self.put(StoreKey::Attempt);
            READERS.iter().for_each(|reader| self.say(*reader, FromTask::Running));
            self.outputs();
        }

        fn pass(&mut self) {
            self.now = self.now + INTERVAL;
            self.coordinator.handle_time(self.now);
        }

        fn put(&mut self, key: StoreKey) {
            let outcome = StoreOutcome::Stored(StateHandle::of(key, b""));
            self.coordinator.handle_stored(self.now, StoreReply { key, outcome });
        }

        fn say_in(&mut self, attempt: u64, task: TaskId, body: FromTask) {
            let attempt = AttemptId::new(attempt);
            self.coordinator.handle_message(self.now, TaskMessage { task, attempt, body });
        }

        fn say(&mut self, task: TaskId, body: FromTask) {
            self.say_in(self.coordinator.attempt().get(), task, body);
        }

        fn ask(&mut self, reader: TaskId) -> Vec<String> {
            self.say(reader, FromTask::WantsSplit);
            self.outputs()
        }

        fn find(&mut self, found: Found<Vec<u8>>) -> Vec<String> {
            self.coordinator.handle_found(self.now, SOURCE, Ok(found));
            self.outputs()
        }

        fn acknowledge(&mut self, task: TaskId, checkpoint: u64) -> Vec<String> {
            let (checkpoint, attempt) = (CheckpointId::new(checkpoint), self.coordinator.attempt());
            let key = StoreKey::State { checkpoint, attempt, task };
            let state = StateHandle::of(key, b"");
            self.say(task, FromTask::Acknowledged { checkpoint, state, finished: false });
            self.outputs()
        }

        /// Takes a whole checkpoint.
        fn checkpoint(&mut self, checkpoint: u64) {
            self.pass();
            for reader in READERS {
                self.acknowledge(reader, checkpoint);
            }
            self.put(StoreKey::Metadata(CheckpointId::new(checkpoint)));
            self.outputs();
        }

        /// The attempt fails and another one begins.
        fn restart(&mut self) {
            let attempt = self.coordinator.attempt();
            self.say(READERS[0], FromTask::Failed(TaskError::Crashed(String::new())));
            self.coordinator.handle_cancelled(self.now, attempt);
            self.now = self.now + Duration::from_secs(1);
            self.deploy();
        }

        /// What is said of splits.
        fn outputs(&mut self) -> Vec<String> {
            let outputs = std::iter::from_fn(|| self.coordinator.poll_output()).collect::<Vec<_>>();
            let told = outputs.into_iter().filter_map(|output| match output {
                CoordinatorOutput::Send { task, message: ToTask::Assign(given), .. } => {
                    Some(format!("{task} {}", given.split))
                }
                CoordinatorOutput::Send { task, message: ToTask::NoMoreSplits, .. } => {
                    Some(format!("{task} no more"))
                }
                CoordinatorOutput::Search { known, .. } => Some(format!("search {known}")),
                CoordinatorOutput::Failed(error) => Some(error.to_string()),
                CoordinatorOutput::Store(StoreRequest::Put {
                    value: StoreValue::Metadata(metadata),
                    ..
                }) => {
                    self.stored.push(*metadata);
                    None
                }
                CoordinatorOutput::Send { .. }
                | CoordinatorOutput::Store(_)
                | CoordinatorOutput::Deploy { .. }
                | CoordinatorOutput::Cancel(_)
                | CoordinatorOutput::WaitUntil(_)
                | CoordinatorOutput::Note(_)
                | CoordinatorOutput::Finished => None,
            });
            told.collect()
        }
    }

    fn splits(count: usize) -> Found<Vec<u8>> {
        Found::Splits(vec![Vec::new(); count])
    }

    fn pool(found: u32, unassigned: &[u32]) -> SplitPool {
        let open = unassigned
            .iter()
            .map(|split| Assignment { split: SplitId::new(*split), cursor: Vec::new() });
        SplitPool { found, is_complete: false, unassigned: open.collect() }
    }

    #[test]
    fn a_reader_that_asks_is_given_the_oldest_split_and_more_are_searched_when_none_is_left() {
        let mut bench = Bench::running();
        assert_eq!(bench.ask(READERS[1]), ["search 0"]);
        assert_eq!(bench.ask(READERS[0]), [""; 0], "one search at a time");
        assert_eq!(bench.find(splits(1)), ["t1 split-0", "search 1"]);
        assert_eq!(bench.find(splits(2)), ["t0 split-1"]);
        assert_eq!(bench.ask(READERS[1]), ["t1 split-2"]);
        assert_eq!(bench.ask(READERS[1]), ["search 3"]);
        assert_eq!(bench.find(Found::Nothing), ["search 3"]);
        assert_eq!(bench.find(Found::End), ["t1 no more"]);
        assert_eq!(bench.ask(READERS[0]), ["t0 no more"]);
    }

    #[test]
    fn rule_080_a_reader_hears_of_no_split_between_a_trigger_and_its_own_part() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.find(splits(4));
        bench.pass();
        assert_eq!(bench.ask(READERS[0]), [""; 0]);
        assert_eq!(bench.ask(READERS[1]), [""; 0]);
        assert_eq!(bench.acknowledge(READERS[1], 1), ["t1 split-1"]);
        assert_eq!(bench.ask(READERS[1]), ["t1 split-2"]);
        assert_eq!(bench.acknowledge(READERS[0], 1), ["t0 split-3"]);
        assert_eq!(bench.stored[0].pools, [pool(4, &[1, 2, 3])], "the part is of the trigger");
    }

    #[test]
    fn rule_080_what_has_waited_is_told_when_the_checkpoint_is_over() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.find(splits(2));
        bench.pass();
        assert_eq!(bench.ask(READERS[0]), [""; 0]);
        let (checkpoint, reason) = (CheckpointId::new(1), AbortReason::StoreFailed);
        bench.say(READERS[1], FromTask::Declined { checkpoint, reason });
        assert_eq!(bench.outputs(), ["t0 split-1"]);
    }

    #[test]
    fn rule_080_what_a_failed_attempt_asks_is_dropped() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.restart();
        assert_eq!(bench.find(splits(2)), [""; 0]);
        bench.say_in(1, READERS[1], FromTask::WantsSplit);
        assert_eq!(bench.outputs(), [""; 0]);
    }

    #[test]
    fn rule_081_what_was_given_since_the_newest_checkpoint_comes_back_ahead_of_newer_splits() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.find(splits(4));
        bench.checkpoint(1);
        assert_eq!(bench.ask(READERS[1]), ["t1 split-1"]);
        assert_eq!(bench.ask(READERS[0]), ["t0 split-2"]);
        bench.restart();
        let asked = [0, 1, 0].map(|reader| bench.ask(READERS[reader]).concat());
        assert_eq!(asked, ["t0 split-1", "t1 split-2", "t0 split-3"]);
        bench.restart();
        assert_eq!(bench.ask(READERS[1]), ["t1 split-1"], "it was given twice and is held by none");
    }

    #[test]
    fn rule_081_what_a_complete_checkpoint_holds_never_comes_back() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.find(splits(3));
        bench.pass();
        bench.acknowledge(READERS[0], 1);
        assert_eq!(bench.ask(READERS[0]), ["t0 split-1"], "the reader's part is older");
        bench.acknowledge(READERS[1], 1);
        bench.put(StoreKey::Metadata(CheckpointId::new(1)));
        bench.restart();
        assert_eq!(bench.ask(READERS[0]), ["t0 split-1"]);
        bench.checkpoint(2);
        bench.restart();
        assert_eq!(bench.ask(READERS[0]), ["t0 split-2"]);
    }

    #[test]
    fn a_later_coordinator_goes_on_from_the_newest_checkpoint() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        bench.find(splits(3));
        bench.checkpoint(1);
        bench.ask(READERS[1]);
        let checkpoints = bench.stored.clone();
        let mut later = Bench::new(Recovered { checkpoints, attempt: Some(AttemptId::new(1)) });
        later.deploy();
        let asked = [0, 1, 0].map(|reader| later.ask(READERS[reader]).concat());
        assert_eq!(asked, ["t0 split-1", "t1 split-2", "search 3"]);
    }

    #[test]
    fn a_checkpoint_of_a_job_with_other_sources_is_refused() {
        let mut bench = Bench::running();
        bench.checkpoint(1);
        let mut checkpoints = bench.stored.clone();
        checkpoints[0].pools.clear();
        let mut later = Bench::new(Recovered { checkpoints, attempt: None });
        let refused = later.outputs().concat();
        assert!(refused.contains("chk-1 has 0 sources whose splits are assigned"), "{refused}");
    }

    #[test]
    fn a_search_that_fails_ends_the_attempt_and_is_made_again_in_the_next_one() {
        let mut bench = Bench::running();
        bench.ask(READERS[0]);
        let error = Err(TaskError::External("no answer".to_owned()));
        bench.coordinator.handle_found(bench.now, SOURCE, error);
        let attempt = bench.coordinator.attempt();
        bench.coordinator.handle_cancelled(bench.now, attempt);
        bench.now = bench.now + Duration::from_secs(1);
        bench.deploy();
        assert_eq!(bench.ask(READERS[0]), ["search 0"]);
        let error = Err(TaskError::Input("no such folder".to_owned()));
        bench.coordinator.handle_found(bench.now, SOURCE, error);
        let attempt = bench.coordinator.attempt();
        bench.coordinator.handle_cancelled(bench.now, attempt);
        assert_eq!(bench.outputs(), ["bad input in task t0: no such folder"]);
    }

    #[test]
    fn checkpoints_that_overlap_do_not_put_a_reader_off_for_ever() {
        let mut bench = Bench::overlapping();
        assert_eq!(bench.ask(READERS[0]), ["search 0"]);
        bench.pass();
        assert!(bench.coordinator.is_in_flight(), "a checkpoint lacks the reader's part");
        assert_eq!(bench.find(Found::Splits(vec![vec![0]])), [""; 0], "rule 80");
        // The next one is due before the first one has the part.
        bench.pass();
        assert_eq!(bench.coordinator.stats().checkpoints_triggered, 1, "it waits for the reader");
        assert_eq!(bench.acknowledge(READERS[0], 1), ["t0 split-0"]);
        assert_eq!(bench.coordinator.stats().checkpoints_triggered, 2, "behind the answer");
    }
}
