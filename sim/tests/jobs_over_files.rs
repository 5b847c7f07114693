//! The built-in jobs on the threaded runtime, from a file to the lines of their part files.
#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam::config::JobConfig;
use cofferdam::guarantee::SinkContract;
use cofferdam::runtime::{RunOptions, run};
use cofferdam_sim::jobs::{self, Files, JobError, Parameters, Setup, Shape};

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cofferdam-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Run<'a> {
    job: &'a str,
    given: &'a [(&'a str, &'a str)],
    input: &'a str,
    sink: SinkContract,
    origins: bool,
}

impl Run<'_> {
    /// The lines of the part files of `out` and of the other output that some jobs have, sorted.
    fn lines(&self, parallelism: usize) -> Result<[Vec<String>; 2], JobError> {
        let name = format!("{}-{}-{parallelism}-{}", self.job, self.sink, self.origins);
        let folder = Folder::new(&name);
        let input = folder.0.join("input");
        fs::write(&input, self.input).unwrap();
        let job = jobs::find(self.job).unwrap();
        let setup = Setup {
            shape: Shape { parallelism, key_groups: None, first: None },
            sink: self.sink,
            config: JobConfig::default(),
            parameters: Parameters::given(job, self.given.iter().copied())?,
        };
        let output = folder.0.join("out");
        let files =
            Files { inputs: vec![input], output: output.as_path().into(), origins: self.origins };
        run(&job.over_files(&files, &setup)?.job, RunOptions::default()).unwrap();
        let other = if self.job == "windows" { "late" } else { "expired" };
        Ok([sorted_lines(&output), sorted_lines(&output.join(other))])
    }

    fn check(&self, out: &[&str], expired: &[&str]) {
        for parallelism in 1..=3 {
            let lines = self.lines(parallelism).unwrap();
            assert_eq!(lines, [out, expired], "{} at {parallelism}", self.job);
        }
    }
}

fn sorted_lines(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let parts = paths.filter(|path| path.extension().is_some_and(|end| end == "ndjson"));
    let texts: Vec<String> = parts.map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut lines: Vec<_> = texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    lines.sort();
    lines
}

const WORDS: Run<'_> = Run {
    job: "wordcount",
    given: &[],
    input: "b a\n\n  b\u{3000}b\r\nc",
    sink: SinkContract::TwoPhase,
    origins: false,
};

#[test]
fn words_are_counted_with_every_sink() {
    let [a, b, c] =
        [r#"{"key":"a","value":1}"#, r#"{"key":"b","value":3}"#, r#"{"key":"c","value":1}"#];
    let changes = [a, r#"{"key":"b","value":1}"#, r#"{"key":"b","value":2}"#, b, c];
    WORDS.check(&changes, &[]);
    Run { sink: SinkContract::Plain, ..WORDS }.check(&changes, &[]);
    Run { sink: SinkContract::Idempotent, ..WORDS }.check(&[a, b, c], &[]);
    Run { sink: SinkContract::Discard, ..WORDS }.check(&[], &[]);
    Run { given: &[("emit", "final")], ..WORDS }.check(&[a, b, c], &[]);
    Run { given: &[("splits", "5")], ..WORDS }.check(&changes, &[]);
}

#[test]
fn rows_say_where_they_come_from_if_asked() {
    let lines = Run { origins: true, ..WORDS }.lines(1).unwrap();
    assert_eq!(
        lines[0],
        [
            r#"{"key":"a","value":1,"_offset":0,"_position":1}"#,
            r#"{"key":"b","value":1,"_offset":0,"_position":0}"#,
            r#"{"key":"b","value":2,"_offset":2,"_position":0}"#,
            r#"{"key":"b","value":3,"_offset":2,"_position":1}"#,
            r#"{"key":"c","value":1,"_offset":3,"_position":0}"#,
        ]
    );
}

#[test]
fn numbers_are_read_by_column_name() {
    let sums = Run {
        job: "rolling-sum",
        input: "value,key\n-7,a\n\n9223372036854775807,\"b,c\"\n",
        ..WORDS
    };
    let rows = [r#"{"key":"a","value":-7}"#, r#"{"key":"b,c","value":9223372036854775807}"#];
    sums.check(&rows, &[]);
    Run { job: "max", ..sums }.check(&rows, &[]);
}

#[test]
fn clicks_are_billed_and_lines_seen() {
    let click = r#"{"campaign":"c","price_micros":5,"event_id":"e"}"#;
    let input = format!("{click}\n{click}\n");
    let rows = [r#"{"key":"c","value":10}"#, r#"{"key":"c","value":5}"#];
    Run { job: "ad-billing", input: &input, ..WORDS }.check(&rows, &[]);
    let rows = [r#"{"key":"","value":true}"#, r#"{"key":"x y","value":true}"#];
    Run { job: "seen", input: "x y\n\n", ..WORDS }.check(&rows, &[]);
}

#[test]
fn smoke_raises_an_alarm_and_heat_alone_expires() {
    let input = "sensor,time_s,temperature,smoke\n\
                 s,600,20,1\n\
                 s,0,41,0\n\
                 s,700.5,40.5,0\n\
                 t,5,99,0\nt,605.001,20,1\n";
    let alarms = [r#"{"key":"s","hot_at":0,"smoke_at":600}"#];
    let expired = [r#"{"key":"s","hot_at":700.5}"#, r#"{"key":"t","hot_at":5}"#];
    let smoke = Run { job: "smoke-alarm", input, ..WORDS };
    smoke.check(&alarms, &expired);
    Run { given: &[("disorder", "700s")], ..smoke }.check(&alarms, &expired);
    let refused = Run { given: &[("disorder", "11m")], ..smoke }.lines(2).unwrap_err().to_string();
    assert!(refused.contains("line 5"), "{refused}");
}

#[test]
fn windows_sum_up_what_lies_in_them() {
    let input = "key,time_s,value\na,1,5\na,3,7\nb,2,1\na,12,2\na,2,100\nb,25,-4\n";
    let windows = Run { job: "windows", input, ..WORDS };
    windows.check(
        &[
            r#"{"key":"a","start":0,"end":10,"value":112}"#,
            r#"{"key":"a","start":10,"end":20,"value":2}"#,
            r#"{"key":"b","start":0,"end":10,"value":1}"#,
            r#"{"key":"b","start":20,"end":30,"value":-4}"#,
        ],
        &[],
    );
    Run { given: &[("window", "session:10s")], ..windows }.check(
        &[
            r#"{"key":"a","start":1,"end":22,"value":114}"#,
            r#"{"key":"b","start":2,"end":12,"value":1}"#,
            r#"{"key":"b","start":25,"end":35,"value":-4}"#,
        ],
        &[],
    );
}

#[test]
fn a_table_of_one_row_a_key_is_refused_where_keys_have_many() {
    let input = "key,time_s,value\na,1,5\na,12,7\n";
    let windows = Run { job: "windows", input, sink: SinkContract::Idempotent, ..WORDS };
    let refused = windows.lines(1).unwrap_err().to_string();
    assert!(refused.starts_with("--sink idempotent: a table keeps one row for each key"));
}

#[test]
fn a_number_is_in_its_window_or_late_and_never_both() {
    // Time goes on, and every third row is far behind: late or not, as its batch has it.
    let row = |number: u32| {
        let time = if number.is_multiple_of(3) { number / 2 } else { number };
        format!("k{},{time},{number}\n", number % 5)
    };
    let input: String = (0..9000).map(row).collect();
    let input = format!("key,time_s,value\n{input}");
    let windows = Run { job: "windows", given: &[("disorder", "0s")], input: &input, ..WORDS };
    let value = |line: &String| -> u64 {
        let (_, value) = line.trim_end_matches('}').rsplit_once(':').unwrap();
        value.parse().unwrap()
    };
    for parallelism in 1..=3 {
        let [sums, late] = windows.lines(parallelism).unwrap();
        assert!(!late.is_empty() && late.len() < 3000, "{} late", late.len());
        let total: u64 = sums.iter().chain(&late).map(value).sum();
        assert_eq!(total, (0..9000).sum::<u64>(), "at {parallelism}");
    }
}

#[test]
fn left_rows_meet_their_right_ones() {
    let input = "side,key,time_s,value\nright,a,1,5\nleft,a,3,7\nleft,b,2,1\nright,b,12,2\n\
                 right,a,2,100\nleft,a,25,4\n";
    let enrich = Run { job: "enrich", input, ..WORDS };
    enrich.check(
        &[
            r#"{"key":"a","value":4,"row":100}"#,
            r#"{"key":"a","value":7,"row":100}"#,
            r#"{"key":"b","value":1,"row":null}"#,
        ],
        &[],
    );
    Run { job: "interval-join", ..enrich }.check(
        &[
            r#"{"key":"a","left":7,"right":100}"#,
            r#"{"key":"a","left":7,"right":5}"#,
            r#"{"key":"b","left":1,"right":2}"#,
        ],
        &[],
    );
}

#[test]
fn visits_are_counted_until_their_page_is_forgotten() {
    let input = "visitor,time_s,page\n\
                 v,0,a\n\
                 v,599.999,b\n\
                 v,600,a\n\
                 w,5,a\n\
                 v,1199.999,a\n";
    let row = |key, at, page, visits, total| {
        format!(r#"{{"key":"{key}","at":{at},"page":"{page}","visits":{visits},"total":{total}}}"#)
    };
    let rows = [
        row("v", "0", "a", 1, 1),
        row("v", "1199.999", "a", 2, 4),
        row("v", "599.999", "b", 1, 2),
        row("v", "600", "a", 1, 3),
        row("w", "5", "a", 1, 1),
    ];
    let rows = rows.each_ref().map(String::as_str);
    let visits = Run { job: "visits", input, ..WORDS };
    visits.check(&rows, &[]);
    Run { given: &[("disorder", "10m")], ..visits }.check(&rows, &[]);
    let refused = Run { given: &[("disorder", "1s")], ..visits }.lines(2).unwrap_err().to_string();
    let sentence = "line 5: the visit of w at 5 s comes 595000 ms after a later one, --disorder \
                    allows 1000 ms";
    assert!(refused.contains(sentence), "{refused}");
}
