//! The judge itself on trial: what it says about lines that are right, lost, doubled or changed.

use std::fs;
use std::path::PathBuf;

use cofferdam::guarantee::{Guarantee, Level, SinkContract};

use crate::cli::mode::Mode;
use crate::cli::simulated::{ClaimArg, claim};
use crate::cli::torture::judge::{Findings, Judge, Verdict};
use crate::jobs::{self, CaseData, Parameters};
use crate::oracle::Seen;

/// A job over lines, and what its plain or two-phase sink has written.
struct Trial {
    job: &'static str,
    guarantee: Guarantee,
    sink: SinkContract,
    input: &'static [&'static str],
}

impl Trial {
    fn judge(&self, output: &[&str]) -> Findings {
        self.judge_by(None, output)
    }

    fn judge_by(&self, claim: Option<ClaimArg>, output: &[&str]) -> Findings {
        let job = jobs::find(self.job).unwrap();
        let mechanism = self.guarantee.default_mechanism();
        let mode = Mode { guarantee: self.guarantee, mechanism, sink: self.sink };
        let lines: Vec<String> = self.input.iter().map(|line| (*line).to_owned()).collect();
        let format = job.reads().unwrap();
        let numbers = format.record_lines(&lines);
        let records = lines.len() - usize::from(format.has_header());
        let data = CaseData { seed: 0, records, lines: Some(lines.into()) };
        let case = job.case(&data, &mode.setup(2, Parameters::of(job))).unwrap();
        let folder = Folder::new();
        let name = match self.sink {
            SinkContract::TwoPhase | SinkContract::WriteAhead => "part-0-1-0.ndjson",
            SinkContract::Idempotent => "part-0.ndjson",
            SinkContract::Plain | SinkContract::Discard => "part-1-0.ndjson",
        };
        fs::write(folder.0.join(name), output.join("\n")).unwrap();
        let judge = Judge::new(job, self.sink, case, numbers).claiming(claim);
        judge.judge(&folder.0.as_path().into()).unwrap()
    }

    /// Lost, duplicated and wrong, then the verdicts on state and output.
    fn check(&self, output: &[&str], counts: [u64; 3], state: Verdict, shown: Verdict) {
        let found = self.judge(output);
        assert_eq!([found.lost, found.duplicated, found.wrong], counts, "{found:?}");
        assert_eq!((found.state, found.output), (state, shown), "{found:?}");
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let thread = format!("{:?}", std::thread::current().id());
        let digits: String = thread.chars().filter(char::is_ascii_digit).collect();
        let name = format!("cofferdam-judge-{}-{digits}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const WORDS: Trial = Trial {
    job: "wordcount",
    guarantee: Guarantee::ExactlyOnce,
    sink: SinkContract::TwoPhase,
    input: &["a b", "", "a"],
};
const A1: &str = r#"{"key":"a","value":1,"_offset":0,"_position":0}"#;
const B1: &str = r#"{"key":"b","value":1,"_offset":0,"_position":1}"#;
const A2: &str = r#"{"key":"a","value":2,"_offset":2,"_position":0}"#;

#[test]
fn exactly_once_refuses_every_deviation() {
    use Verdict::{Held, Violated};
    WORDS.check(&[A1, B1, A2], [0, 0, 0], Held, Held);
    let taken_in_another_order = [
        r#"{"key":"a","value":1,"_offset":2,"_position":0}"#,
        B1,
        r#"{"key":"a","value":2,"_offset":0,"_position":0}"#,
    ];
    WORDS.check(&taken_in_another_order, [0, 0, 0], Held, Held);
    WORDS.check(&[A1, A2], [1, 0, 1], Violated, Violated);
    WORDS.check(&[A1, B1, A2, B1], [0, 1, 1], Held, Violated);
    let counted_twice = r#"{"key":"a","value":3,"_offset":2,"_position":0}"#;
    WORDS.check(&[A1, B1, counted_twice], [0, 0, 2], Violated, Violated);
    let of_no_record = r#"{"key":"a","value":2,"_offset":1,"_position":0}"#;
    WORDS.check(&[A1, B1, of_no_record], [1, 0, 0], Held, Violated);
}

#[test]
fn weaker_levels_allow_what_they_say() {
    use Verdict::{Held, Violated};
    let least = Trial { guarantee: Guarantee::AtLeastOnce, sink: SinkContract::Plain, ..WORDS };
    let counted_again = r#"{"key":"a","value":3,"_offset":2,"_position":0}"#;
    least.check(&[A1, B1, A2, counted_again], [0, 1, 0], Held, Held);
    least.check(&[A1, B1], [1, 0, 0], Violated, Violated);
    let strange = r#"{"key":"z","value":1,"_offset":2,"_position":0}"#;
    least.check(&[A1, B1, A2, strange], [0, 0, 1], Held, Violated);
    let most = Trial { guarantee: Guarantee::AtMostOnce, ..least };
    let fresh = r#"{"key":"a","value":1,"_offset":2,"_position":0}"#;
    most.check(&[A1, fresh], [1, 0, 0], Held, Held);
    most.check(&[A1, A1], [2, 1, 0], Held, Violated);
    assert_eq!(most.judge(&[A1, A1]).output_level(), Some(Seen::Only(Level::None)));
    assert_eq!(least.judge(&[A1, B1, A2]).output_level(), Some(Seen::Only(Level::ExactlyOnce)));
    let begun_again = most.judge(&[A1, B1, fresh]);
    assert_eq!(begun_again.differing, 2, "one is there too often, one is not");
    assert_eq!(begun_again.output_level(), Some(Seen::BothInTheMiddle));
}

#[test]
fn what_a_table_lacks_or_holds_twice_is_counted_under_weaker_claims_too() {
    use Verdict::{Held, Violated};
    let sink = SinkContract::Idempotent;
    let least = Trial { guarantee: Guarantee::AtLeastOnce, sink, ..WORDS };
    let counted_again = r#"{"key":"a","value":3,"_offset":2,"_position":0}"#;
    least.check(&[counted_again, B1], [0, 1, 0], Held, Held);
    least.check(&[A1, B1], [1, 0, 0], Violated, Violated);
    let most = Trial { guarantee: Guarantee::AtMostOnce, ..least };
    most.check(&[A1, B1], [1, 0, 0], Held, Held);
    most.check(&[counted_again, B1], [0, 1, 0], Violated, Violated);
}

#[test]
fn a_claim_that_is_too_strong_is_refuted_by_the_same_lines() {
    use Verdict::{Held, Violated};
    let least = Trial { guarantee: Guarantee::AtLeastOnce, sink: SinkContract::Plain, ..WORDS };
    least.check(&[A1, B1, A2, A2], [0, 1, 0], Held, Held);
    let claim = claim("exactly-once").unwrap();
    let found = least.judge_by(Some(claim), &[A1, B1, A2, A2]);
    assert_eq!((found.state, found.output, found.wrong), (Held, Violated, 1));
    assert!(found.examples[0].contains("is there 2 times"), "{found:?}");
}

#[test]
fn sums_are_judged_in_the_order_in_which_they_were_made() {
    use Verdict::{Held, Violated};
    let sums = Trial { job: "rolling-sum", input: &["key,value", "a,5", "", "a,-7"], ..WORDS };
    let [five, minus_two] = [
        r#"{"key":"a","value":5,"_offset":1,"_position":0}"#,
        r#"{"key":"a","value":-2,"_offset":3,"_position":0}"#,
    ];
    sums.check(&[five, minus_two], [0, 0, 0], Held, Held);
    let [minus_seven, then_minus_two] = [
        r#"{"key":"a","value":-7,"_offset":3,"_position":0}"#,
        r#"{"key":"a","value":-2,"_offset":1,"_position":0}"#,
    ];
    sums.check(&[minus_seven, then_minus_two], [0, 0, 0], Held, Held);
    sums.check(&[five, minus_seven], [0, 0, 2], Violated, Violated);
}

#[test]
fn tables_and_rows_of_timers_are_judged_by_value() {
    use Verdict::{Held, Unknown, Violated};
    let table = Trial { sink: SinkContract::Idempotent, ..WORDS };
    table.check(&[A2, B1], [0, 0, 0], Held, Held);
    table.check(&[A1, B1], [0, 0, 1], Violated, Violated);
    table.check(&[A2], [1, 0, 0], Violated, Violated);
    let alarms = Trial {
        job: "smoke-alarm",
        input: &["sensor,time_s,temperature,smoke", "s,0,50,0", "s,1,20,1"],
        ..WORDS
    };
    let alarm = r#"{"key":"s","hot_at":0,"smoke_at":1}"#;
    alarms.check(&[alarm], [0, 0, 0], Held, Held);
    alarms.check(&[alarm, alarm], [0, 1, 0], Held, Violated);
    alarms.check(&[], [1, 0, 0], Held, Violated);
    alarms.check(&[r#"{"key":"s","hot_at":0,"smoke_at":2}"#], [1, 0, 1], Violated, Violated);
    let (guarantee, sink) = (Guarantee::AtMostOnce, SinkContract::Plain);
    Trial { guarantee, sink, ..alarms }.check(&[], [0, 0, 0], Unknown, Unknown);
    let nothing = Trial { guarantee, sink, ..alarms }.judge(&[]);
    assert_eq!((nothing.judged(nothing.lost), nothing.output_level()), (None, None));
}
