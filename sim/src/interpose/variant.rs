//! The broken variants, each with the word that names it.

use std::fmt;

use cofferdam::id::SubtaskIndex;
use cofferdam::state::snapshot::{InFlight, TaskSnapshot};
use cofferdam::time::EventTime;

/// Declares the variants: the enum, the list of all, their words.
macro_rules! variants {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)+) => {
        /// A broken variant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Variant {
            $($(#[$doc])* $variant,)+
        }

        impl Variant {
            /// Every variant.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
        }

        impl fmt::Display for Variant {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $word,)+
                })
            }
        }
    };
}

variants! {
    /// The barrier of a task's first input channel is held back until those of all others have
    /// come: what follows it on that channel gets into the snapshot.
    BarrierNotAligned = "barrier-not-aligned",
    /// A barrier that comes while those of an older checkpoint are awaited is taken for one of
    /// them.
    LaterBarrierCounts = "later-barrier-counts",
    /// A two-phase sink commits when it has prepared, not when the checkpoint is complete.
    CommitAtSnapshot = "commit-at-snapshot",
    /// A task hears that its state is durable before the store has written it.
    AcknowledgeBeforeStored = "acknowledge-before-stored",
    /// Snapshots do not hold the timers.
    TimersLeftOut = "timers-left-out",
    /// A restored operator believes that event time is over.
    WatermarkAtEnd = "watermark-at-end",
    /// A watermark counts a record that is still to come: it is a millisecond too high.
    WatermarkTooHigh = "watermark-too-high",
    /// The barrier of an input that has ended does not count.
    EndedInputsUnheard = "ended-inputs-unheard",
    /// The state of a task is looked for under another name than it was stored under.
    StateNotFound = "state-not-found",
    /// Of an operator's subtasks the last one's state alone is dealt out to another layout.
    LastHandleKept = "last-handle-kept",
    /// Subtasks that another layout has more begin without a copy of what is broadcast.
    NewCopiesEmpty = "new-copies-empty",
    /// The timers of keys that go to subtasks that another layout has more stay behind.
    TimersLeftBehind = "timers-left-behind",
    /// In another layout event time is as far as in the subtask where it was farthest.
    HighestWatermark = "highest-watermark",
    /// A split that goes to another subtask in another layout is read from its beginning.
    MovedSplitsAnew = "moved-splits-anew",
    /// A job that stops with a savepoint is killed when its checkpoint is complete, and does not
    /// commit what that covers.
    SavepointBeforeCommits = "savepoint-before-commits",
    /// In another layout the first record in flight on each channel is passed over.
    FirstInFlightSkipped = "first-in-flight-skipped",
    /// In another layout records in flight to operators without state are dropped.
    StatelessInFlightLost = "stateless-in-flight-lost",
    /// Snapshots do not hold how far event time was.
    WatermarksLeftOut = "watermarks-left-out",
    /// Snapshots do not hold how far event time was in a source and its splits.
    SourceWatermarksLeftOut = "source-watermarks-left-out",
    /// What a source reserves is what it has handed out, and not what it has read.
    EmittedReserved = "emitted-reserved",
    /// Snapshots hold no positions of sources.
    PositionsLeftOut = "positions-left-out",
    /// Snapshots hold the positions of the source's checkpoint before, be it of an older attempt:
    /// they lie behind what the state has taken in, or ahead of it.
    PositionsStale = "positions-stale",
    /// Snapshots hold the positions of those splits only that were read since the last one.
    PositionsOfMovedOnly = "positions-of-moved-only",
    /// A task that begins without a checkpoint again begins where its source is by now.
    StartPolicyAgain = "start-policy-again",
    /// A coordinator that restarts does not see the newest complete checkpoint.
    NewestCheckpointUnseen = "newest-checkpoint-unseen",
    /// Snapshots do not hold the rows that a write-ahead sink has not sent.
    LogLeftOut = "log-left-out",
    /// Snapshots do not hold the transactions that await their commit.
    TransactionsLeftOut = "transactions-left-out",
    /// Snapshots say of the transactions that await their commit that they are shown.
    PendingTakenForShown = "pending-taken-for-shown",
    /// A two-phase sink hears that its transaction is prepared before it is.
    PreparedUnseen = "prepared-unseen",
    /// Every other commit fails, and the sink takes it for done.
    CommitErrorSwallowed = "commit-error-swallowed",
    /// A transaction that is committed again shows its rows again, and so does a portion of logged
    /// rows that is sent again.
    RepeatedEffect = "repeated-effect",
    /// A task's death rolls back what it has prepared.
    RolledBackAtDeath = "rolled-back-at-death",
    /// Older attempts are not refused: not by external systems, and not on channels.
    OldAttemptNotFenced = "old-attempt-not-fenced",
    /// A sink acknowledges records when it has written them, not when they are flushed.
    AcknowledgeBeforeFlushed = "acknowledge-before-flushed",
    /// What comes of a record is not in its tree: the tree is done while a part is open.
    TreeCutShort = "tree-cut-short",
    /// The position that is made durable is that behind what was read, acknowledged or not.
    PositionBehindOpenReads = "position-behind-open-reads",
    /// A word that comes a second time stands for one that has not come: the tree is done while a
    /// part is open.
    DoubledWordEndsTree = "doubled-word-ends-tree",
    /// A sender forgets records that its receiver has taken in and not written.
    ForgottenEarly = "forgotten-early",
    /// A task's write does not say which records were taken in since the write before.
    NumbersStale = "numbers-stale",
    /// Snapshots hold no records in flight.
    InFlightLeftOut = "in-flight-left-out",
    /// Snapshots hold the records in flight of a task's first input only.
    FirstInputInFlight = "first-input-in-flight",
    /// Records in flight are stored twice, as if those of a recovery were recorded again.
    InFlightTwice = "in-flight-twice",
    /// Records in flight are stored in another order than they are in the channel.
    InFlightDisordered = "in-flight-disordered",
    /// What a barrier overtakes at the receiver includes what was sent behind it.
    InFlightBehindBarrier = "in-flight-behind-barrier",
    /// What a barrier overtakes at the sender is not part of its snapshot.
    OutputNotInFlight = "output-not-in-flight",
    /// A barrier that overtakes is handed in after the next record.
    RecordBeforeBarrier = "record-before-barrier",
    /// A sink takes a commit for done whose outcome is unknown.
    UnknownTakenForDone = "unknown-taken-for-done",
    /// A sink takes a commit for done that was refused and should be asked for again.
    RefusedTakenForDone = "refused-taken-for-done",
    /// A sink takes a transaction that was rolled back for one that was committed before.
    LossTakenForDone = "loss-taken-for-done",
    /// A commit that comes again fails.
    RepeatedCommitFails = "repeated-commit-fails",
    /// The external system forgets a transaction when it is committed, and refuses the commit that
    /// comes again.
    CommittedForgotten = "committed-forgotten",
    /// A commit that was refused leaves its transaction half done: no other commit gets at it.
    RefusedCommitHeld = "refused-commit-held",
    /// The external system knows two transactions of a sink subtask and takes them in turn.
    PooledHandles = "pooled-handles",
    /// A commit that comes again is known only if the same attempt makes it.
    CommitKeyHasAttempt = "commit-key-has-attempt",
    /// Snapshots hold the transactions of the checkpoint before.
    TransactionsStale = "transactions-stale",
    /// Snapshots hold transactions in another order than that of their checkpoints.
    TransactionsDisordered = "transactions-disordered",
    /// At the end of data a notice of any checkpoint stands for the highest there can be.
    EndIsHighest = "end-is-highest",
    /// What a writer has prepared since the last barrier before the end of data does not reach the
    /// committer.
    LastCommittablesDropped = "last-committables-dropped",
    /// What all writers have prepared comes to the committer under the name of one.
    CommittablesMerged = "committables-merged",
    /// A committer's snapshots do not hold which writer a transaction is of.
    CommittablesWithoutOrigin = "committables-without-origin",
    /// The first barrier of a checkpoint stands for those of all inputs: the snapshot is taken and
    /// the barrier goes on before the others have come.
    BarrierForAll = "barrier-for-all",
    /// A source stores the position behind what it hands out after the barrier.
    PositionAheadOfBarrier = "position-ahead-of-barrier",
    /// A source stores the position before what it has handed out last.
    PositionBeforeLastRead = "position-before-last-read",
    /// A source that has come to its end takes no part in checkpoints.
    EndedSourceSilent = "ended-source-silent",
    /// The first source of each attempt neither begins nor declines its first checkpoint.
    FirstTriggerUnanswered = "first-trigger-unanswered",
    /// A source heeds a trigger only after its next record.
    TriggerAwaitsRecord = "trigger-awaits-record",
    /// A source heeds no trigger as long as it has records to hand out.
    TriggerAwaitsEnd = "trigger-awaits-end",
    /// The last batch in flight on each channel is not stored: its recording has ended too early.
    InFlightCutShort = "in-flight-cut-short",
    /// Beside a value in a store of keyed state stands not the checkpoint that it follows, but a
    /// number that each attempt begins anew.
    StateNumberedAnew = "state-numbered-anew",
    /// A source whose log was truncated goes on behind the gap and says nothing.
    GapSkipped = "gap-skipped",
    /// A source acknowledges messages when it has emitted them.
    AcknowledgedWhenEmitted = "acknowledged-when-emitted",
    /// At a completion everything is acknowledged that was emitted by then, and not just what the
    /// checkpoint holds.
    AcknowledgedBeyondCheckpoint = "acknowledged-beyond-checkpoint",
    /// What was emitted is acknowledged from time to time as well.
    AcknowledgedByTime = "acknowledged-by-time",
    /// What waited for a checkpoint of an older attempt is acknowledged with a later one.
    WaiterOutlivesAttempt = "waiter-outlives-attempt",
    /// A restored source forgets the ids that its checkpoint holds.
    IdsResetAtOpen = "ids-reset-at-open",
    /// Snapshots hold no ids of emitted messages.
    IdsLeftOut = "ids-left-out",
    /// A source forgets an id when it has told the queue, not when the queue has confirmed.
    ConfirmedUnheard = "confirmed-unheard",
    /// A queue gives a message that comes again another id.
    RedeliveredUnderNewId = "redelivered-under-new-id",
    /// Every split that comes back after a failure is lost.
    ReturnedSplitsLost = "returned-splits-lost",
    /// A split is lost that was on its way to a task when its attempt failed.
    SplitForTheDeadLost = "split-for-the-dead-lost",
    /// A split that comes back a second time is lost: only the first assignment is remembered.
    ReassignedSplitsLost = "reassigned-splits-lost",
    /// A task is given a split before it runs, and never hears of it.
    SplitBeforeRegistered = "split-before-registered",
    /// A restarted coordinator searches from the start, whatever its checkpoint knows.
    SplitsFoundAgain = "splits-found-again",
    /// If a task has nothing to give back after a failure, splits are searched for from the start.
    EmptyReturnForgets = "empty-return-forgets",
    /// The coordinator's part of a checkpoint says how far splits were found and not which of them
    /// nobody has.
    UnassignedLeftOut = "unassigned-left-out",
    /// The coordinator's part of a checkpoint is older than the last assignment before it.
    PoolBeforeAssignment = "pool-before-assignment",
    /// Snapshots do not hold the splits of which nothing has been read.
    UnreadSplitsLeftOut = "unread-splits-left-out",
    /// What comes again and is in the restored state is dropped and not acknowledged.
    RestoredNotAcknowledged = "restored-not-acknowledged",
    /// A split that comes back after a failure is given only when a newer one has been, or when a
    /// checkpoint begins.
    ReturnedSplitsLast = "returned-splits-last",
    /// A completion lets the coordinator forget what it has given behind the trigger as well.
    GivenForgottenAtCompletion = "given-forgotten-at-completion",
    /// A checkpoint that was given up for a newer one becomes complete all the same when its last
    /// part comes, and counts as the newest.
    SubsumedCompletes = "subsumed-completes",
    /// A checkpoint is complete when its metadata is on its way: that of several can be.
    CompletedBeforeStored = "completed-before-stored",
    /// A completion commits the transactions of its own checkpoint: those of older ones are taken
    /// for done.
    OlderTransactionsDropped = "older-transactions-dropped",
    /// A task's snapshot is taken when that of the next checkpoint is: it holds the state of that.
    SnapshotAfterNext = "snapshot-after-next",
    /// Snapshots do not hold the timers of the clock.
    ClockTimersLeftOut = "clock-timers-left-out",
    /// A restored task does not hear of the timers of the clock that its snapshot holds.
    ClockTimersNotArmed = "clock-timers-not-armed",
    /// A restored task gets the timers of the first key group and no others.
    TimersCutShort = "timers-cut-short",
    /// What is written to keyed state while records in flight are recorded is in the snapshot.
    LaterStateInSnapshot = "later-state-in-snapshot",
    /// A snapshot says how far event time was when it was stored, not when it was taken.
    LaterWatermarkInSnapshot = "later-watermark-in-snapshot",
    /// A task whose state is as it was at its last snapshot has none in this one.
    UnchangedStateLeftOut = "unchanged-state-left-out",
    /// The changes behind a task's last whole write are applied in reverse.
    ChangesReversed = "changes-reversed",
    /// A key whose value was removed since a task's last whole write has an empty value again.
    RemovalsAsEmpty = "removals-as-empty",
    /// A store of keyed state keeps what was written behind the checkpoint that a task goes back
    /// to.
    ChangesNotRolledBack = "changes-not-rolled-back",
    /// Of each task's log only as many writes are put together as the shortest log has.
    LogsCutEven = "logs-cut-even",
    /// The first change behind a task's last whole write is gone.
    LogTrimmedTooFar = "log-trimmed-too-far",
    /// The log of a task that has written much less than others is removed.
    IdleLogRemoved = "idle-log-removed",
    /// A task that begins again where it was gets the lists of its neighbour.
    ListsReshuffled = "lists-reshuffled",
    /// A task begins when half of its keyed state is read.
    ReadBeforeRecovered = "read-before-recovered",
    /// Restored timers are for the time of their snapshot.
    TimersRetimed = "timers-retimed",
    /// In another layout groups of keys are dealt out as if they were elements of a list.
    GroupsDealtEvenly = "groups-dealt-evenly",
    /// A subtask that gets a group back from another one takes it for what it had of it before.
    OldGroupsBelieved = "old-groups-believed",
    /// Subtasks that another layout has more begin with what was stored before the newest
    /// checkpoint.
    NewSubtaskBehind = "new-subtask-behind",
    /// A source subtask that another layout leaves without a split reads the first one of all.
    EmptyListInvented = "empty-list-invented",
    /// A commit fails that an earlier attempt has prepared.
    RestoredCommitFails = "restored-commit-fails",
    /// Parts of one checkpoint of several attempts have one name, and the first stays.
    FirstPartStays = "first-part-stays",
    /// Parts of one checkpoint of several attempts have one name, and go when what the first of
    /// these attempts has left is cleaned up.
    PartOfOlderAttempt = "part-of-older-attempt",
    /// Nobody hears that a channel is idle.
    IdleUnheard = "idle-unheard",
    /// An input that has ended holds back event time until all have.
    EndedInputHoldsTime = "ended-input-holds-time",
    /// A channel that brings a lower watermark than it has brought in an earlier attempt brings no
    /// other one.
    LowerWatermarkStops = "lower-watermark-stops",
    /// When a checkpoint was given up, no other one is begun by time.
    AbortEndsTriggers = "abort-ends-triggers",
}

impl Variant {
    /// Takes out of a snapshot what the variant leaves out, if it does that, or spoils it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most variants change no snapshot")]
    pub(super) fn change(self, snapshot: &mut TaskSnapshot) {
        let InFlight { inputs, outputs } = &mut snapshot.in_flight;
        let in_flight = inputs.values_mut().chain(outputs.values_mut());
        match self {
            Self::TimersLeftOut => {
                snapshot.operators.iter_mut().for_each(|operator| operator.timers = None);
            }
            Self::ClockTimersLeftOut => {
                let operators = snapshot.operators.iter_mut();
                operators.for_each(|operator| operator.processing_timers = None);
            }
            Self::WatermarksLeftOut => {
                snapshot.operators.iter_mut().for_each(|operator| operator.watermark = None);
            }
            Self::SourceWatermarksLeftOut => {
                if let Some(source) = &mut snapshot.source {
                    source.watermark = None;
                    source.splits.iter_mut().for_each(|split| split.watermark = None);
                }
            }
            Self::WatermarkAtEnd => {
                let watermarks = snapshot.operators.iter_mut().map(|o| &mut o.watermark);
                watermarks.flatten().for_each(|watermark| *watermark = EventTime::MAX);
            }
            Self::LogLeftOut => snapshot.log.clear(),
            Self::TransactionsLeftOut => snapshot.transactions.clear(),
            Self::PendingTakenForShown => {
                let pending = snapshot.transactions.iter().map(|pending| pending.transaction);
                snapshot.shown.extend(pending);
            }
            Self::TransactionsDisordered => snapshot.transactions.reverse(),
            Self::CommittablesWithoutOrigin => {
                let first = SubtaskIndex::new(0);
                let pending = snapshot.transactions.iter_mut();
                pending.for_each(|pending| pending.transaction.subtask = first);
            }
            Self::InFlightLeftOut => snapshot.in_flight = InFlight::default(),
            Self::FirstInputInFlight => inputs.retain(|channel, _| channel.get() == 0),
            Self::InFlightTwice => in_flight.for_each(|batches| batches.extend_from_within(..)),
            Self::InFlightCutShort => in_flight.for_each(|batches| {
                batches.pop();
            }),
            Self::InFlightDisordered => in_flight.for_each(|batches| batches.reverse()),
            _ => {}
        }
    }
}
