//! `run`: the real engine over real files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Folder, cofferdam, command, lines_below, wait_until, with, words};

#[test]
fn a_run_says_what_it_did_and_a_second_one_does_nothing() {
    let folder = Folder::new("run");
    let (input, output) = (folder.file("in.txt", "a b\r\na"), folder.path("out"));
    let run = ["run", "wordcount", "--input", &input, "--output", &output, "--format", "json"];
    let done = cofferdam(&run).exits(0);
    assert_eq!((done.rows().len(), done.err.as_str()), (1, ""));
    let summary = done.summary();
    assert_eq!(summary["schema"], "cofferdam.run/1");
    assert_eq!((&summary["records_in"], &summary["records_out"]), (&2.into(), &3.into()));
    for field in [
        "job",
        "guarantee",
        "mechanism",
        "sink",
        "checkpoints",
        "restarts",
        "wall_s",
        "records_per_s",
    ] {
        assert!(summary.get(field).is_some(), "{field}");
    }
    let lines = lines_below(&output);
    assert_eq!(lines[r#"{"key":"a","value":2}"#], 1);
    assert_eq!(lines.values().sum::<u64>(), 3);
    assert_eq!(cofferdam(&run).exits(0).summary()["records_in"], 0);
    assert_eq!(lines_below(&output), lines);
    let text = cofferdam(&run[..run.len() - 2]).exits(0).out;
    assert!(text.contains("nothing was left to do"), "{text}");
}

#[test]
fn runs_differ_in_nothing_but_times() {
    let folder = Folder::new("stable");
    let input = folder.file("in.txt", words(50));
    let row = |name: &str| {
        let output = folder.path(name);
        let run = ["run", "wordcount", "--input", &input, "--output", &output, "--format", "json"];
        let done = cofferdam(&with(&run, &["--checkpoint-interval", "1h"])).exits(0);
        let Value::Object(mut row) = done.summary() else { panic!("{done:?}") };
        row.retain(|name, _| !name.ends_with("_s"));
        row
    };
    assert_eq!(row("a"), row("b"));
}

#[test]
fn a_checksum_stands_for_discarded_records() {
    let folder = Folder::new("discard");
    let run = [
        "run",
        "keyed-count",
        "--records",
        "1_000",
        "--keys",
        "10",
        "--sink",
        "discard",
        "--format",
        "json",
    ];
    let checksum = |name: &str, parallelism: &str| {
        let output = folder.path(name);
        let done = cofferdam(&with(&run, &["--output", &output, "--parallelism", parallelism]));
        done.exits(0).summary()["checksum"].as_u64().unwrap()
    };
    assert_eq!(checksum("a", "1"), checksum("b", "1"));
    let output = folder.path("c");
    cofferdam(&with(&run, &["--output", &output, "--input", "x"])).refuses(&["--input x"]);
}

#[test]
fn wrong_input_refuses_in_one_sentence() {
    let folder = Folder::new("input");
    let output = folder.path("out");
    let text = folder.file("in.txt", "a\n");
    let run = |job, input: &str, more: &[&str]| {
        cofferdam(&with(&["run", job, "--input", input, "--output", &output], more))
    };
    run("wordcount", "/nowhere/in.txt", &[]).refuses(&["/nowhere/in.txt"]);
    let latin = folder.file("latin.txt", b"ok\ncaf\xe9\n");
    run("wordcount", &latin, &["--resume", "never"]).refuses(&["latin.txt, line 2", "UTF-8"]);
    let header = "sensor,time_s,temperature,smoke\n";
    let csv = folder.file("nan.csv", format!("{header}d,0,NaN,0\n"));
    run("smoke-alarm", &csv, &["--resume", "never"]).refuses(&["nan.csv, line 2", "NaN"]);
    let csv = folder.file("columns.csv", "a,b\n1,2\n");
    run("max", &csv, &["--resume", "never"]).refuses(&["columns.csv", "key"]);
    let json = folder.file("price.ndjson", r#"{"campaign":"c","price_micros":-1,"event_id":1}"#);
    run("ad-billing", &json, &["--resume", "never"]).refuses(&["price.ndjson, line 1", "-1"]);
    run("no-such-job", &text, &[]).refuses(&["no-such-job"]);
    run("random-graph", &text, &[]).refuses(&["random-graph", "simulated"]);
    run("wordcount", &text, &["--hot", "4"]).refuses(&["wordcount", "--hot"]);
    run("wordcount", &text, &["--emit", "often"]).refuses(&["--emit often"]);
    run("wordcount", &text, &["--rate", "0"]).refuses(&["--rate"]);
    run("wordcount", &text, &["--rate", "-5"]).refuses(&["-5"]);
    run("wordcount", &text, &["--checkpoint-interval", "1"])
        .refuses(&["--checkpoint-interval", "250ms"]);
    run("wordcount", &text, &["--resume", "/nowhere/chk-3"]).refuses(&["/nowhere/chk-3"]);
    cofferdam(&["run", "wordcount", "--output", &output]).refuses(&["--input"]);
    cofferdam(&["run", "wordcount", "--input", &text]).refuses(&["--output"]);
    assert!(lines_below(&output).is_empty());
}

#[test]
fn what_was_committed_before_a_bad_line_stays() {
    let folder = Folder::new("late");
    let good = words(400);
    let input = folder.file("in.txt", [good.as_bytes(), b"\xff\n"].concat());
    let output = folder.path("out");
    let run = ["run", "wordcount", "--input", &input, "--output", &output, "--parallelism", "1"];
    let run = with(&run, &["--rate", "400", "--checkpoint-interval", "20ms"]);
    cofferdam(&run).refuses(&["in.txt, line 401"]);
    let committed = lines_below(&output);
    assert!(!committed.is_empty());
    cofferdam(&run).refuses(&["in.txt, line 401"]);
    let later = lines_below(&output);
    assert!(committed.keys().all(|line| later.contains_key(line)));
    assert!(later.values().all(|times| *times == 1), "nothing is committed twice");
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_output_stays() {
    let folder = Folder::new("damaged");
    let (input, output) = (folder.file("in.txt", words(20)), folder.path("out"));
    let run = ["run", "wordcount", "--input", &input, "--output", &output];
    cofferdam(&run).exits(0);
    let before = lines_below(&output);
    let checkpoints = Path::new(&output).join(".checkpoints");
    let entries = fs::read_dir(&checkpoints).unwrap().flatten();
    let metadata =
        entries.map(|entry| entry.path().join("metadata")).find(|path| path.is_file()).unwrap();
    let whole = fs::read(&metadata).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0xff;
    for damaged in [&flipped[..], &whole[..whole.len() - 1], b""] {
        fs::write(&metadata, damaged).unwrap();
        cofferdam(&run).refuses(&["metadata"]);
        assert_eq!(lines_below(&output), before);
    }
    fs::write(&metadata, whole).unwrap();
    cofferdam(&run).exits(0);
    fs::write(checkpoints.join("run.json"), "{").unwrap();
    cofferdam(&run).refuses(&["run.json", "damaged"]);
}

#[test]
fn checkpoints_of_another_run_are_refused() {
    let folder = Folder::new("other");
    let (input, output) = (folder.file("in.txt", words(20)), folder.path("out"));
    let other = folder.file("other.txt", "x\n");
    let run = ["--input", &input, "--output", &output];
    cofferdam(&with(&["run", "wordcount"], &run)).exits(0);
    let before = lines_below(&output);
    let refused = |job, more: &[&str], words: &[&str]| {
        cofferdam(&with(&with(&["run", job], &run), more)).refuses(words);
        assert_eq!(lines_below(&output), before);
    };
    refused("seen", &[], &["job wordcount", "job seen"]);
    refused("wordcount", &["--parallelism", "3"], &["--parallelism 2", "--parallelism 3"]);
    refused("wordcount", &["--guarantee", "at-most-once"], &["--guarantee exactly-once"]);
    refused("wordcount", &["--sink", "plain"], &["--sink two-phase", "--sink plain"]);
    refused("wordcount", &["--emit", "final"], &["--emit changes", "--emit final"]);
    refused("wordcount", &["--resume", "never"], &["part-", "--output"]);
    refused("wordcount", &["--backend", "memory"], &["part-", "--output"]);
    cofferdam(&["run", "wordcount", "--input", &other, "--output", &output])
        .refuses(&["other.txt"]);
    assert_eq!(lines_below(&output), before);
}

/// Starts a run that takes its time, and waits until it has come to a sign of progress.
fn start_slowly(run: &[&str], checkpoints: &Path, sign: &str) -> Child {
    let slow = with(run, &["--rate", "200"]);
    let mut command = command(&slow);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until(sign, || {
        let entries = fs::read_dir(checkpoints).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| {
            let is_sign = entry.file_name().to_str().unwrap().starts_with(sign);
            is_sign && (sign != "chk-" || entry.path().join("metadata").is_file())
        })
    });
    child
}

#[test]
fn a_killed_run_goes_on_as_its_guarantee_says() {
    let folder = Folder::new("killed");
    let input = folder.file("in.txt", words(300));
    for (guarantee, sign) in
        [("exactly-once", "chk-"), ("at-least-once", "chk-"), ("at-most-once", "reserved-")]
    {
        let output = folder.path(guarantee);
        let run =
            ["run", "wordcount", "--input", &input, "--output", &output, "--guarantee", guarantee];
        let run = with(&run, &["--checkpoint-interval", "20ms"]);
        let checkpoints = Path::new(&output).join(".checkpoints");
        for _ in 0..3 {
            let mut child = start_slowly(&run, &checkpoints, sign);
            std::thread::sleep(Duration::from_millis(60));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        cofferdam(&run).exits(0);
        let mut own: BTreeMap<String, u64> = BTreeMap::new();
        for (line, times) in lines_below(&output) {
            if !line.contains("\"all\"") {
                *own.entry(line).or_default() += times;
            }
        }
        let doubled = own.values().any(|times| *times > 1);
        match guarantee {
            "exactly-once" => assert!(own.len() == 300 && !doubled),
            "at-most-once" => assert!(own.len() < 300 && !doubled, "{}", own.len()),
            _ => {
                let keys = |line: &String| line.split('"').nth(3).unwrap().to_owned();
                let mut keys: Vec<_> = own.keys().map(keys).collect();
                keys.dedup();
                assert_eq!(keys.len(), 300);
            }
        }
    }
}

#[test]
fn two_runs_do_not_share_checkpoints() {
    let folder = Folder::new("shared");
    let (input, output) = (folder.file("in.txt", words(2000)), folder.path("out"));
    let run = [
        "run",
        "wordcount",
        "--input",
        &input,
        "--output",
        &output,
        "--checkpoint-interval",
        "20ms",
    ];
    let mut first = start_slowly(&run, &Path::new(&output).join(".checkpoints"), "chk-");
    cofferdam(&run).refuses(&["another run", ".checkpoints"]);
    first.kill().unwrap();
    first.wait().unwrap();
    cofferdam(&run).exits(0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let folder = Folder::new("interrupted");
    let (input, output) = (folder.file("in.txt", words(2000)), folder.path("out"));
    let run = [
        "run",
        "wordcount",
        "--input",
        &input,
        "--output",
        &output,
        "--checkpoint-interval",
        "20ms",
    ];
    let first = start_slowly(&run, &Path::new(&output).join(".checkpoints"), "chk-");
    let signalled = Command::new("kill").args(["-INT", &first.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let ended = first.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.lines().last().unwrap().starts_with("cofferdam run wordcount"), "{said}");
    cofferdam(&run).exits(0);
    let lines = lines_below(&output);
    assert_eq!((lines.len(), lines.values().sum::<u64>()), (4000, 4000));
}
