//! Many runs: the rows of a suite, spread over threads, added up in a way that does not depend on
//! who ran what when.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cofferdam::guarantee::{Claim, Mechanism, SinkContract};
use cofferdam::trace::{Disturbance, Window};

use crate::jobs::JobError;
use crate::oracle::{Subject, Verdict};
use crate::run::{CaseSource, Mode, Report, Run};

/// A row: one job in one mode over many seeds.
pub struct Row<'a> {
    /// The job.
    pub source: &'a dyn CaseSource,
    /// The mode.
    pub mode: Mode,
    /// Only the least seed that refutes it is asked for: no greater one is run than is needed to
    /// find it, and how many those are depends on the threads.
    pub until_refuted: bool,
}

/// Which seeds are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    /// The first.
    pub first: u64,
    /// How many a row.
    pub count: u64,
    /// Only those with this remainder, of so many parts.
    pub part: (u64, u64),
}

/// What a row came to. Everything is a sum, a union or a least over its runs.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Runs that were judged.
    pub runs: u64,
    /// Runs about whose state or output nothing could be said.
    pub unknown: u64,
    /// What could not be judged, and in how many runs.
    pub unjudged: BTreeMap<(Subject, String), u64>,
    /// Runs in which an attempt went on from a checkpoint in the midst of the input.
    pub restored: u64,
    /// Runs in which a claim was violated.
    pub refuted: u64,
    /// Where.
    pub refuted_in: BTreeSet<Subject>,
    /// Source records and fired rows that were lost, allowed or not.
    pub lost: u64,
    /// Likewise duplicated.
    pub duplicated: u64,
    /// Values that are not what the records give.
    pub wrong: u64,
    /// Rows that no record explains.
    pub unexpected: u64,
    /// Runs that did not come to an end.
    pub stuck: u64,
    /// Events.
    pub events: u64,
    /// Crashes, by window.
    pub windows: BTreeMap<Window, u64>,
    /// Other faults.
    pub disturbances: BTreeMap<Disturbance, u64>,
    /// The least seed that refuted the claim.
    pub first_refuting_seed: Option<u64>,
    /// The judges that found something that breaks a claim, and in how many runs.
    pub oracles: BTreeMap<&'static str, u64>,
    /// The seeds that gave another trace when they were run again.
    pub not_deterministic: BTreeSet<u64>,
    /// The seeds whose runs were given up; they count nowhere else.
    pub given_up: BTreeSet<u64>,
}

/// What a campaign came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By row.
    pub tallies: Vec<Tally>,
    /// It was stopped before all seeds were run.
    pub stopped: bool,
}

/// How a campaign is run.
pub struct Conduct<'a> {
    /// How many threads.
    pub threads: usize,
    /// Becomes true when no further run is to begin.
    pub stop: &'a AtomicBool,
    /// Asked between two events of a run: whether it is to be given up. What it has come to is
    /// dropped then.
    pub is_given_up: &'a (dyn Fn() -> bool + Sync),
    /// Told how many seeds are done or passed over, now and then, by any thread.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// Runs every seed of every row.
///
/// # Errors
/// If a job can not be put together; the first row's error if there are several.
pub fn run(rows: &[Row<'_>], seeds: Seeds, conduct: &Conduct<'_>) -> Result<Outcome, JobError> {
    let chunks = seeds.count.div_ceil(CHUNK);
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let campaign = Campaign { seeds, conduct, stopped: AtomicBool::new(false) };
    let tallies = Mutex::new(vec![Tally::default(); rows.len()]);
    let failure = Mutex::new(None);
    let work = || {
        loop {
            // Chunk by chunk over all rows, so that a campaign that is stopped has seen each of
            // them.
            let ticket = next.fetch_add(1, Ordering::Relaxed);
            if ticket >= chunks * rows.len() as u64 || !campaign.may_go_on() {
                return;
            }
            let row = (ticket % rows.len() as u64) as usize;
            let first = ticket / rows.len() as u64 * CHUNK;
            let last = seeds.count.min(first + CHUNK);
            let lock = || tallies.lock().expect("no thread panics with the lock held");
            let refuted_at = lock()[row].first_refuting_seed;
            match campaign.run_chunk(&rows[row], first..last, refuted_at) {
                Ok(tally) => {
                    lock()[row].add(tally);
                    let seeds = last - first;
                    (conduct.progress)(done.fetch_add(seeds, Ordering::Relaxed) + seeds);
                }
                Err(error) => {
                    let mut failure = failure.lock().expect("no thread panics with the lock held");
                    if failure.as_ref().is_none_or(|(other, _)| row < *other) {
                        *failure = Some((row, error));
                    }
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..conduct.threads {
            scope.spawn(work);
        }
        work();
    });
    if let Some((_, error)) = failure.into_inner().expect("all threads have ended well") {
        return Err(error);
    }
    let stopped = campaign.stopped.into_inner();
    let tallies = tallies.into_inner().expect("all threads have ended well");
    Ok(Outcome { tallies, stopped })
}

/// What all threads of a campaign look at.
struct Campaign<'a> {
    seeds: Seeds,
    conduct: &'a Conduct<'a>,
    /// Some seed was not run, or not to its end.
    stopped: AtomicBool,
}

impl Campaign<'_> {
    /// Whether there is time for what is left to do.
    fn may_go_on(&self) -> bool {
        let is_over = self.conduct.stop.load(Ordering::Relaxed);
        self.stopped.fetch_or(is_over, Ordering::Relaxed);
        !is_over
    }

    fn run_chunk(
        &self,
        row: &Row<'_>,
        range: Range<u64>,
        refuted_at: Option<u64>,
    ) -> Result<Tally, JobError> {
        let mut tally = Tally::default();
        for seed in range.map(|number| self.seeds.first.wrapping_add(number)) {
            let (part, parts) = self.seeds.part;
            let mut refuted = refuted_at.into_iter().chain(tally.first_refuting_seed);
            let is_moot = row.until_refuted && refuted.any(|refuting| refuting < seed);
            if seed % parts != part || is_moot {
                continue;
            }
            if !self.may_go_on() {
                break;
            }
            if !self.run_seed(row, seed, &mut tally)? {
                tally.given_up.insert(seed);
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
        Ok(tally)
    }

    /// Runs one seed, some of them twice; whether to the end.
    fn run_seed(&self, row: &Row<'_>, seed: u64, tally: &mut Tally) -> Result<bool, JobError> {
        let run = || Run::new(row.source, &row.mode, seed, None, false);
        let mut first = run()?;
        let report = first.finish_unless(self.conduct.is_given_up);
        let Some(report) = report else { return Ok(false) };
        if seed.is_multiple_of(RERUN_EVERY) {
            let mut again = run()?;
            if !again.world_mut().run_unless(self.conduct.is_given_up) {
                return Ok(false);
            }
            if again.world().trace_hash() != first.world().trace_hash() {
                tally.not_deterministic.insert(seed);
            }
        }
        tally.count(&report);
        Ok(true)
    }
}

impl Tally {
    /// Adds one run.
    fn count(&mut self, report: &Report) {
        let judgement = &report.judgement;
        self.runs += 1;
        self.events += report.events;
        self.lost += judgement.lost as u64;
        self.duplicated += judgement.duplicated as u64;
        self.wrong += judgement.wrong as u64;
        self.unexpected += judgement.unexpected as u64;
        self.stuck += u64::from(judgement.stuck);
        self.restored += u64::from(report.is_restored);
        for open in &judgement.unjudged {
            *self.unjudged.entry(open.clone()).or_default() += 1;
        }
        add_all(&mut self.windows, &report.windows);
        add_all(&mut self.disturbances, &report.disturbances);
        let verdicts =
            [(Subject::State, Some(judgement.state)), (Subject::Output, judgement.output)];
        let violated = |verdict: &Option<Verdict>| *verdict == Some(Verdict::Violated);
        let refuted_in = verdicts.iter().filter(|(_, verdict)| violated(verdict));
        let refuted_in: Vec<_> = refuted_in.map(|(subject, _)| *subject).collect();
        if !refuted_in.is_empty() {
            self.refuted += 1;
            self.refuted_in.extend(refuted_in);
            self.first_refuting_seed =
                Some(self.first_refuting_seed.map_or(report.seed, |seed| seed.min(report.seed)));
        } else if verdicts.iter().any(|(_, verdict)| *verdict == Some(Verdict::Unknown)) {
            self.unknown += 1;
        }
        let broken = judgement.findings.iter().filter(|finding| !finding.allowed);
        for oracle in broken.map(|finding| finding.oracle).collect::<BTreeSet<_>>() {
            *self.oracles.entry(oracle).or_default() += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.unknown += other.unknown;
        self.refuted += other.refuted;
        self.refuted_in.extend(other.refuted_in);
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.wrong += other.wrong;
        self.unexpected += other.unexpected;
        self.stuck += other.stuck;
        self.restored += other.restored;
        add_all(&mut self.unjudged, &other.unjudged);
        self.events += other.events;
        add_all(&mut self.windows, &other.windows);
        add_all(&mut self.disturbances, &other.disturbances);
        add_all(&mut self.oracles, &other.oracles);
        self.not_deterministic.extend(other.not_deterministic);
        self.given_up.extend(other.given_up);
        self.first_refuting_seed =
            self.first_refuting_seed.into_iter().chain(other.first_refuting_seed).min();
    }

    /// What the runs say together: violated if one refuted the claim, unknown if none of them
    /// could be judged.
    pub fn verdict(&self) -> Verdict {
        if self.refuted > 0 {
            Verdict::Violated
        } else if self.unknown == self.runs {
            Verdict::Unknown
        } else {
            Verdict::Held
        }
    }

    /// What was not judged, in how many runs, and why.
    pub fn unjudged_texts(&self) -> impl Iterator<Item = String> {
        self.unjudged.iter().map(|((subject, reason), runs)| {
            format!("{}, in {runs} of {} runs: {reason}", subject.word(), self.runs)
        })
    }

    /// Whether some run was judged and none refuted the claim.
    pub fn is_held(&self) -> bool {
        self.verdict() == Verdict::Held
    }

    /// All faults together.
    pub fn faults(&self) -> u64 {
        self.windows.values().sum::<u64>() + self.disturbances.values().sum::<u64>()
    }

    /// Those of `windows` that no fault hit.
    pub fn missed(&self, windows: &[Window]) -> Vec<Window> {
        windows.iter().copied().filter(|window| !self.windows.contains_key(window)).collect()
    }
}

/// The windows that a claim depends on: a suite that never hits one of them has shown little.
/// `merges` says whether the job has tasks in which records of several others meet.
pub fn windows_of(
    mechanism: Mechanism,
    sink: SinkContract,
    claim: Claim,
    merges: bool,
) -> Vec<Window> {
    let mut windows = vec![Window::Receive, Window::Update, Window::Emit];
    if mechanism.takes_checkpoints() {
        windows.extend([Window::Snapshotting, Window::Restoring, Window::Ending]);
        windows.extend([Window::Collecting, Window::Recovering]);
        windows.extend(merges.then_some(Window::Aligning));
    } else if mechanism == Mechanism::None {
        windows.push(Window::Reserving);
    }
    if mechanism == Mechanism::Transactional {
        windows.extend([Window::Snapshotting, Window::Restoring]);
    }
    if sink.awaits_completion() && claim.output.is_some() {
        windows.push(Window::Committing);
        // A task's own write is all that a transaction waits for.
        windows.extend(mechanism.takes_checkpoints().then_some(Window::PreCommitted));
    }
    windows
}

fn add_all<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(key.clone()).or_default() += count;
    }
}

/// Enough that threads seldom meet, few enough that all have work until the end.
const CHUNK: u64 = 16;
/// Every so manieth run is run twice and must give the same trace (ORACLES C15).
const RERUN_EVERY: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs;
    use cofferdam::guarantee::{Guarantee, Level};

    #[test]
    fn a_run_that_is_given_up_counts_nowhere_and_shows_nothing() {
        let job = jobs::find("wordcount").expect("a built-in job");
        let mode = Mode::of(Guarantee::ExactlyOnce, jobs::Parameters::of(job));
        let rows = [Row { source: &job, mode, until_refuted: false }];
        let conduct = Conduct {
            threads: 2,
            stop: &AtomicBool::new(false),
            is_given_up: &|| true,
            progress: &|_| (),
        };
        let seeds = Seeds { first: 7, count: 3, part: (0, 1) };
        let outcome = run(&rows, seeds, &conduct).expect("the job can be put together");
        let tally = &outcome.tallies[0];
        assert!(outcome.stopped);
        assert_eq!((tally.runs, tally.events, tally.verdict()), (0, 0, Verdict::Unknown));
        assert_eq!(tally.given_up, BTreeSet::from([7, 8, 9]));
        assert!(!tally.is_held());
    }

    #[test]
    fn a_row_until_it_is_refuted_finds_the_least_seed_on_any_number_of_threads() {
        let job = jobs::find("wordcount").expect("a built-in job");
        let exactly = Claim { state: Level::ExactlyOnce, output: Some(Level::ExactlyOnce) };
        let usual = Mode::of(Guarantee::AtLeastOnce, jobs::Parameters::of(job));
        let mode = Mode { claim: Some(exactly), ..usual };
        let seeds = Seeds { first: 0, count: 10 * CHUNK, part: (0, 1) };
        let tally = |until_refuted: bool, threads: usize| {
            let rows = [Row { source: &job, mode: mode.clone(), until_refuted }];
            let conduct = Conduct {
                threads,
                stop: &AtomicBool::new(false),
                is_given_up: &|| false,
                progress: &|_| (),
            };
            run(&rows, seeds, &conduct).expect("the job can be put together").tallies.remove(0)
        };
        let all = tally(false, 2);
        assert!(all.first_refuting_seed.is_some() && all.runs == seeds.count);
        for threads in [1, 2, 4] {
            let some = tally(true, threads);
            assert_eq!(some.first_refuting_seed, all.first_refuting_seed, "{threads} threads");
            assert!(some.runs < all.runs);
        }
    }
}
