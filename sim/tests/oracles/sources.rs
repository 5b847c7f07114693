//! Sources that are broken on purpose, each beside one that is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam::connector::memory::{Range, VecSource};
use cofferdam::guarantee::{Mechanism, SinkContract};
use cofferdam::job::{Job, JobBuilder};
use cofferdam::operator::source::{Fetch, Source, SourceError};
use cofferdam_sim::options::Options;

use crate::case::*;
use crate::jobs::count;

/// What is wrong with a source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// A read that fails is taken for the end.
    FailureIsEnd,
    /// A split that is read to its end is closed with its last records.
    ClosedTooEarly,
    /// A reader that is opened again says its first record again.
    BeginsAgain,
}

#[derive(Clone)]
struct Flawed {
    numbers: VecSource<u64>,
    /// Where the splits begin.
    begins: Vec<u64>,
    flaw: Flaw,
    has_begun: bool,
    /// The reads of all copies, of which some fail.
    reads: Arc<AtomicU64>,
}

impl Source for Flawed {
    type Record = u64;
    type Split = Range;

    fn discover(&mut self, parallelism: usize) -> Result<Vec<Range>, SourceError> {
        self.numbers.discover(parallelism)
    }

    fn read(&mut self, split: &mut Range, records_max: usize) -> Result<Fetch<u64>, SourceError> {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        if self.flaw == Flaw::BeginsAgain && !has_begun && !self.begins.contains(&split.next) {
            let begin = self.begins.iter().rfind(|begin| **begin < split.next);
            return Ok(Fetch::Records(begin.into_iter().copied().collect()));
        }
        // Few enough for every way to restart.
        if self.reads.fetch_add(1, Ordering::Relaxed) == 7 {
            return match self.flaw {
                Flaw::FailureIsEnd => Ok(Fetch::End),
                Flaw::None | Flaw::ClosedTooEarly | Flaw::BeginsAgain => {
                    Err(SourceError::Io("the connection is lost".to_owned()))
                }
            };
        }
        let fetch = self.numbers.read(split, records_max)?;
        let closes = self.flaw == Flaw::ClosedTooEarly && split.next == split.end;
        Ok(if closes { Fetch::End } else { fetch })
    }
}

fn counting(flaw: Flaw, options: &Options, mechanism: Mechanism, sink: SinkContract) -> Job {
    let mut numbers = VecSource::new((0..RECORDS).collect());
    let splits = numbers.discover(options.parallelism).unwrap();
    let begins = splits.iter().map(|split| split.next).collect();
    let source = Flawed { numbers, begins, flaw, has_begun: false, reads: Arc::default() };
    let begin = |builder: &JobBuilder| builder.source("numbers", source);
    count(begin, options, options.job_config(mechanism), sink, true)
}

const WHOLE: Case =
    Case { make: |options, of, sink| counting(Flaw::None, options, of, sink), ..COUNTING };

#[test]
fn a_source_whose_reads_fail_now_and_then_is_read_exactly_once() {
    assert_held(WHOLE);
}

#[test]
fn fn_07_a_failure_that_is_taken_for_the_end_is_caught() {
    let broken =
        Case { make: |options, of, sink| counting(Flaw::FailureIsEnd, options, of, sink), ..WHOLE };
    assert_speaks(broken, "state-delivery");
    assert_speaks(broken, "output-delivery");
}

#[test]
fn fn_08_a_reader_that_is_closed_with_its_last_records_is_caught() {
    let broken = Case {
        make: |options, of, sink| counting(Flaw::ClosedTooEarly, options, of, sink),
        ..WHOLE
    };
    assert_speaks(broken, "state-delivery");
    assert_speaks(broken, "output-delivery");
}

#[test]
fn tw_19_a_first_record_that_comes_again_after_a_restore_is_caught() {
    let broken =
        Case { make: |options, of, sink| counting(Flaw::BeginsAgain, options, of, sink), ..WHOLE };
    assert_speaks(broken, "state-delivery");
    assert_speaks(broken, "values");
}
