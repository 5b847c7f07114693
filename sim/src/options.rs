//! The options of one run, all drawn from its seed: some runs have no faults of a kind, some have
//! many ("swarm"), since faults that are always there hide what happens without them.

use std::fmt;
use std::time::Duration;

use cofferdam::config::{CommitRetry, JobConfig, OnLoss, RestartStrategy};
use cofferdam::graph::{Partition, PhysicalGraph};
use cofferdam::guarantee::{Mechanism, StateHome};
use serde::{Deserialize, Serialize};

use crate::dice::{Dice, Purpose};

/// How many faults a run gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultProfile {
    /// None at all.
    None,
    /// Kinds and numbers drawn from the seed.
    #[default]
    Default,
    /// As default, but every kind is there and there are more of them.
    Full,
    /// As default, and the job is stopped on the way and begins again with another parallelism.
    Rescale,
}

/// Everything that is drawn before a run begins. Times are in microseconds of virtual time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// How many subtasks each operator has.
    pub parallelism: usize,
    /// How many key groups.
    pub key_groups: u32,
    /// How many source records in all.
    pub records: usize,
    /// How many workers share the tasks.
    pub workers: usize,
    /// How many batches a channel holds.
    pub channel_batches: usize,
    /// The most records that are read, and travel, together; most batches hold one.
    pub batch_records_max: u64,
    /// Batches reach operators whole and not record by record.
    pub whole_batches: bool,
    /// The time between two checkpoints.
    pub checkpoint_interval_us: u64,
    /// The least pause between them.
    pub checkpoint_pause_us: u64,
    /// The time after which a checkpoint is given up.
    pub checkpoint_timeout_us: u64,
    /// Under aligned-timeout: the time after which an alignment is switched to unaligned.
    pub alignment_timeout_us: u64,
    /// How many may fail in a row.
    pub checkpoint_failures: u32,
    /// How many are kept.
    pub checkpoints_retained: usize,
    /// The greatest delay of a channel.
    pub channel_delay_us: u64,
    /// The greatest time that a step of a task takes.
    pub step_us: u64,
    /// The greatest delay of a message between coordinator and task.
    pub message_delay_us: u64,
    /// The greatest delay of the store and of external systems.
    pub external_delay_us: u64,
    /// The greatest time until a crash is noticed.
    pub detection_us: u64,
    /// The greatest time that a task takes to start.
    pub start_us: u64,
    /// Crashes of tasks.
    pub task_crashes: u64,
    /// Crashes of workers.
    pub worker_crashes: u64,
    /// Crashes of the coordinator.
    pub coordinator_crashes: u64,
    /// Notices that are lost, of 1000.
    pub notices_lost_permille: u64,
    /// Notices that are late, of 1000.
    pub notices_late_permille: u64,
    /// Notices that come twice, of 1000.
    pub notices_doubled_permille: u64,
    /// Writes that take long, of 1000.
    pub store_slow_permille: u64,
    /// Writes that fail, of 1000.
    pub store_failed_permille: u64,
    /// Writes with an unknown outcome, of 1000.
    pub store_unknown_permille: u64,
    /// Tasks that go on after they were told to stop, of 1000.
    pub zombies_permille: u64,
    /// How often logs with a retention time drop their oldest records.
    #[serde(default)]
    pub truncations: u64,
    /// How many messages a queue gives out that are not acknowledged.
    #[serde(default = "default_open_max")]
    pub queue_open_max: usize,
    /// The time after which a queue gives out again what is not acknowledged; 0 if it waits for its
    /// receiver's death.
    #[serde(default)]
    pub queue_redelivery_us: u64,
    /// When faults stop.
    pub faults_until_us: u64,
    /// What follows a failure.
    #[serde(default)]
    pub restarts: Restarts,
    /// Commits that an external system refuses, of 1000.
    #[serde(default)]
    pub commits_refused_permille: u64,
    /// Commits with an unknown outcome, of 1000.
    #[serde(default)]
    pub commits_unknown_permille: u64,
    /// Commits, and aborts, that come late, of 1000.
    #[serde(default)]
    pub commits_late_permille: u64,
    /// After what time an external system rolls back a transaction that is prepared and not
    /// committed; 0 if it never does.
    #[serde(default)]
    pub transaction_timeout_us: u64,
    /// How often a commit that was refused is asked for in one attempt.
    #[serde(default = "commit_tries")]
    pub commit_tries: u32,
    /// How many checkpoints may be in flight, where they may overlap.
    #[serde(default = "one")]
    pub checkpoints_concurrent: usize,
    /// The time between two reads of a source. Records that come all at once are often gone before
    /// the first checkpoint is complete, and then no run is restored in the midst of them.
    #[serde(default)]
    pub read_pause_us: u64,
    /// When the job is killed or stopped and begins again with another parallelism; not under
    /// mechanisms whose state stays where it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rescales: Vec<Rescale>,
}

/// A change of the parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rescale {
    /// When.
    pub at_us: u64,
    /// How many subtasks each operator has from then on.
    pub parallelism: usize,
    /// The job is told to stop with a savepoint; else it is killed.
    #[serde(default)]
    pub stops: bool,
}

/// What scenarios have meant that do not say it.
fn commit_tries() -> u32 {
    CommitRetry::default().tries
}

/// What follows a failure: strategies that never give a job up, since one that was given up has
/// shown little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restarts {
    /// Another attempt after a fixed delay.
    #[default]
    Fixed,
    /// After a delay that doubles.
    Exponential,
    /// As fixed, as long as failures are no more frequent than that delay allows.
    Rate,
}

impl Options {
    /// Draws the options of a run of `records` records.
    pub fn draw(seed: u64, records: usize, profile: FaultProfile) -> Self {
        let dice = &mut Dice::new(seed, Purpose::Options);
        let checkpoint_interval_us = dice.between(300, 4_000);
        let mut options = Self {
            parallelism: dice.between(1, 3) as usize,
            key_groups: *dice.pick(&[3, 4, 8, 16, 128]),
            records,
            workers: dice.between(1, 3) as usize,
            channel_batches: dice.between(1, 6) as usize,
            batch_records_max: *dice.pick(&[1, 1, 2, 4]),
            whole_batches: dice.chance(250),
            checkpoint_interval_us,
            checkpoint_pause_us: *dice.pick(&[0, 0, 200, 2_000]),
            checkpoint_timeout_us: *dice.pick(&[3_000, 20_000, 100_000]),
            alignment_timeout_us: 0,
            checkpoint_failures: *dice.pick(&[0, 1, 3, 100]),
            checkpoints_retained: dice.between(1, 3) as usize,
            channel_delay_us: *dice.pick(&[5, 50, 400]),
            step_us: *dice.pick(&[2, 10, 60]),
            message_delay_us: *dice.pick(&[10, 100, 800]),
            external_delay_us: *dice.pick(&[20, 200, 1_500]),
            detection_us: *dice.pick(&[50, 500, 3_000]),
            start_us: *dice.pick(&[10, 100, 1_000]),
            task_crashes: 0,
            worker_crashes: 0,
            coordinator_crashes: 0,
            notices_lost_permille: 0,
            notices_late_permille: 0,
            notices_doubled_permille: 0,
            store_slow_permille: 0,
            store_failed_permille: 0,
            store_unknown_permille: 0,
            zombies_permille: 0,
            truncations: 0,
            queue_open_max: default_open_max(),
            queue_redelivery_us: 0,
            faults_until_us: dice.between(5_000, 60_000),
            restarts: Restarts::Fixed,
            commits_refused_permille: 0,
            commits_unknown_permille: 0,
            commits_late_permille: 0,
            transaction_timeout_us: 0,
            commit_tries: 1,
            checkpoints_concurrent: 1,
            rescales: Vec::new(),
            read_pause_us: 0,
        };
        let kinds_permille = match profile {
            FaultProfile::None => 0,
            FaultProfile::Default | FaultProfile::Rescale => 500,
            FaultProfile::Full => 1000,
        };
        match profile {
            FaultProfile::None => options.faults_until_us = 0,
            FaultProfile::Default | FaultProfile::Full | FaultProfile::Rescale => {
                options.draw_faults(dice, kinds_permille);
            }
        }
        options.draw_later(dice, profile, kinds_permille);
        options
    }

    /// What was added as time went on is drawn last, so that earlier seeds keep their meaning.
    fn draw_later(&mut self, dice: &mut Dice, profile: FaultProfile, kinds_permille: u64) {
        self.restarts = *dice.pick(&[Restarts::Fixed, Restarts::Exponential, Restarts::Rate]);
        self.alignment_timeout_us = *dice.pick(&[0, 50, 300, 2_000]);
        if profile != FaultProfile::None {
            self.draw_commit_faults(dice, kinds_permille);
        }
        self.transaction_timeout_us = *dice.pick(&[0, TRANSACTION_TIMEOUT_US]);
        self.commit_tries = dice.between(1, 4) as u32;
        if dice.chance(kinds_permille) {
            self.truncations = dice.between(1, 4);
        }
        self.queue_open_max = *dice.pick(&[4, 16, 64]);
        self.queue_redelivery_us = *dice.pick(&[0, 500, 5_000]);
        self.checkpoints_concurrent = *dice.pick(&[1, 1, 1, 2, 4]);
        if profile == FaultProfile::Rescale {
            self.draw_rescales(dice);
        }
    }

    /// At times that are spread over a run, most of which take some ten milliseconds.
    fn draw_rescales(&mut self, dice: &mut Dice) {
        // A log that drops its records is modelled for its one reader.
        self.truncations = 0;
        let mut at_us = 0;
        for _ in 0..dice.between(1, 3) {
            at_us += dice.between(500, 12_000);
            let parallelism = dice.between(1, 4) as usize;
            self.rescales.push(Rescale { at_us, parallelism, stops: false });
        }
        for rescale in &mut self.rescales {
            rescale.stops = dice.chance(400);
        }
    }

    /// The greatest parallelism that the job has on the way.
    pub fn parallelism_max(&self) -> usize {
        let later = self.rescales.iter().map(|rescale| rescale.parallelism);
        later.chain([self.parallelism]).max().unwrap_or(1)
    }

    /// Whether a run can be made of them.
    ///
    /// # Errors
    /// If not, with the option and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("parallelism", self.parallelism as u64, 1, 1_000),
            ("key_groups", u64::from(self.key_groups), 1, 32_768),
            ("records", self.records as u64, 0, RECORDS_MAX as u64),
            ("workers", self.workers as u64, 1, 1_000),
            ("channel_batches", self.channel_batches as u64, 1, RECORDS_MAX as u64),
            ("batch_records_max", self.batch_records_max, 1, RECORDS_MAX as u64),
            ("checkpoint_interval_us", self.checkpoint_interval_us, 1, MICROS_MAX),
            ("checkpoints_retained", self.checkpoints_retained as u64, 1, 1_000),
            ("checkpoints_concurrent", self.checkpoints_concurrent as u64, 1, 1_000),
            ("queue_open_max", self.queue_open_max as u64, 1, RECORDS_MAX as u64),
            ("task_crashes", self.task_crashes, 0, CRASHES_MAX),
            ("worker_crashes", self.worker_crashes, 0, CRASHES_MAX),
            ("coordinator_crashes", self.coordinator_crashes, 0, CRASHES_MAX),
            ("truncations", self.truncations, 0, CRASHES_MAX),
        ];
        let times = [
            ("checkpoint_pause_us", self.checkpoint_pause_us),
            ("checkpoint_timeout_us", self.checkpoint_timeout_us),
            ("alignment_timeout_us", self.alignment_timeout_us),
            ("channel_delay_us", self.channel_delay_us),
            ("step_us", self.step_us),
            ("message_delay_us", self.message_delay_us),
            ("external_delay_us", self.external_delay_us),
            ("detection_us", self.detection_us),
            ("start_us", self.start_us),
            ("queue_redelivery_us", self.queue_redelivery_us),
            ("faults_until_us", self.faults_until_us),
            ("transaction_timeout_us", self.transaction_timeout_us),
            ("read_pause_us", self.read_pause_us),
        ];
        let times = times.map(|(name, value)| (name, value, 0, MICROS_MAX));
        let mut all = counts.into_iter().chain(times);
        match all.find(|(_, value, least, most)| !(least..=most).contains(&value)) {
            Some((name, value, least, most)) => {
                Err(format!("{name} is {value}: it must be from {least} to {most}"))
            }
            None => Ok(()),
        }
    }

    /// Draws a pause between two reads, so that in every other run the input lasts as long as
    /// several checkpoints, however short it is.
    pub fn draw_pause(&mut self, seed: u64) {
        let dice = &mut Dice::new(seed, Purpose::Pace);
        let lasts_us = *dice.pick(&[0, 0, 10_000, 30_000]);
        self.read_pause_us = lasts_us / self.records.max(1) as u64;
    }

    /// As [`Options::draw_faults`], of commits.
    fn draw_commit_faults(&mut self, dice: &mut Dice, kinds_permille: u64) {
        let mut kind = |usual: &[u64]| {
            let amount = *dice.pick(usual);
            if dice.chance(kinds_permille) { amount } else { 0 }
        };
        self.commits_refused_permille = kind(&[50, 300]);
        self.commits_unknown_permille = kind(&[20, 100]);
        self.commits_late_permille = kind(&[50, 300]);
    }

    /// Each kind of fault is there in `kinds_permille` of 1000 runs.
    fn draw_faults(&mut self, dice: &mut Dice, kinds_permille: u64) {
        let mut kind = |usual: &[u64]| {
            let amount = *dice.pick(usual);
            if dice.chance(kinds_permille) { amount } else { 0 }
        };
        self.worker_crashes = kind(&[1, 1, 2]);
        self.coordinator_crashes = kind(&[1, 1, 2]);
        self.notices_lost_permille = kind(&[50, 300, 800]);
        self.notices_late_permille = kind(&[50, 300, 800]);
        self.notices_doubled_permille = kind(&[50, 300]);
        self.store_slow_permille = kind(&[50, 300]);
        self.store_failed_permille = kind(&[20, 100]);
        self.store_unknown_permille = kind(&[20, 100]);
        self.zombies_permille = kind(&[200, 700]);
        // Most runs crash a task: a run without any crash tells little.
        self.task_crashes = dice.between(0, 4);
    }

    /// The time in which most checkpoints of this graph complete without faults, if records wait in
    /// every channel. Behind a shorter timeout a job would begin again and again for ever, and no
    /// protocol is to blame for that.
    pub fn checkpoint_needs_us(&self, graph: &PhysicalGraph) -> u64 {
        let vertices = graph.vertices();
        let mut through = vec![0_u64; vertices.len()];
        // A vertex has a greater number than those before it.
        for from in graph.vertex_ids() {
            if vertices[from.index()].is_source {
                through[from.index()] = self.records as u64;
            }
            let records = through[from.index()];
            for edge in graph.edges_from(from) {
                let to = edge.to.index();
                let copies = match edge.partition {
                    Partition::Broadcast => vertices[to].parallelism as u64,
                    Partition::Forward | Partition::Hash | Partition::Rebalance => 1,
                };
                through[to] = through[to].saturating_add(records.saturating_mul(copies));
            }
        }
        // One subtask may get all of them.
        let most = through.into_iter().max().unwrap_or_default();
        let record = self.step_us + self.channel_delay_us / self.channel_batches as u64;
        let others = 6 * self.external_delay_us + 4 * self.message_delay_us;
        // Most delays are an eighth of the greatest, or less.
        most.saturating_mul(record).saturating_add(others) / 8
    }

    /// What the coordinator and the tasks are told.
    pub fn job_config(&self, mechanism: Mechanism) -> JobConfig {
        JobConfig {
            mechanism,
            state: StateHome::Heap,
            checkpoint_interval: Duration::from_micros(self.checkpoint_interval_us),
            checkpoint_pause_min: Duration::from_micros(self.checkpoint_pause_us),
            checkpoint_timeout: Duration::from_micros(self.checkpoint_timeout_us),
            alignment_timeout: Duration::from_micros(self.alignment_timeout_us),
            checkpoint_failures_tolerable: self.checkpoint_failures,
            checkpoints_concurrent: match mechanism.overlaps() {
                true => self.checkpoints_concurrent,
                false => 1,
            },
            checkpoints_retained: self.checkpoints_retained,
            restart: self.restarts.strategy(),
            batch_records: self.batch_records_max as usize,
            reservation_records: self.batch_records_max as usize,
            channel_batches: self.channel_batches,
            unacknowledged_max: 4 * self.batch_records_max as usize,
            acknowledge_timeout: Duration::from_micros(self.checkpoint_timeout_us),
            changes_min_bytes: CHANGES_MIN_BYTES,
            commit_retry: CommitRetry {
                tries: self.commit_tries,
                pause: Duration::from_micros(COMMIT_PAUSE_US),
            },
            on_loss: OnLoss::Fail,
        }
    }
}

/// As many records as can be simulated in the memory of a usual machine.
pub const RECORDS_MAX: usize = 10_000_000;

/// More crashes than any run survives in a time that one can wait for.
const CRASHES_MAX: u64 = 10_000;

/// A day.
const MICROS_MAX: u64 = 86_400_000_000;

/// Longer than any run of checkpoints and restarts takes: what is due is committed by then.
pub const TRANSACTION_TIMEOUT_US: u64 = 10_000_000;

/// So few that a run writes all state of a task anew several times.
const CHANGES_MIN_BYTES: u64 = 1_000;

/// The time before a commit that was refused is asked for again.
const COMMIT_PAUSE_US: u64 = 200;

/// For files that are older than overlapping checkpoints.
const fn one() -> usize {
    1
}

/// For files that are older than queues.
const fn default_open_max() -> usize {
    64
}

impl Restarts {
    fn strategy(self) -> RestartStrategy {
        let delay = Duration::from_micros(500);
        match self {
            Self::Fixed => RestartStrategy::FixedDelay { attempts: u32::MAX, delay },
            Self::Exponential => {
                RestartStrategy::Exponential { first: delay, max: 8 * delay, quiet: 20 * delay }
            }
            Self::Rate => RestartStrategy::FailureRate { failures: 8, interval: 8 * delay, delay },
        }
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = toml::to_string(self).expect("numbers and flags become TOML");
        f.write_str(text.trim_end())
    }
}
