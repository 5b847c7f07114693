//! `run`: the real engine over real files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Folder, cofferdam, lines_below, named, often, progress, start_slowly, start_slowly_until,
    wait_until, with, words,
};

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
fn an_interval_that_nothing_goes_by_is_told() {
    let folder = Folder::new("interval");
    let input = folder.file("in.txt", "a");
    for (number, (guarantee, mechanism)) in
        [("at-most-once", "none"), ("at-least-once", "acks"), ("exactly-once", "transactional")]
            .into_iter()
            .enumerate()
    {
        let output = folder.path(&format!("out-{number}"));
        let run = ["run", "wordcount", "--input", &input, "--output", &output];
        let run = with(&run, &["--guarantee", guarantee, "--mechanism", mechanism]);
        let done = cofferdam(&with(&run, &["--checkpoint-interval", "1h"])).exits(0);
        let told = format!("--mechanism {mechanism} takes no checkpoints on the way");
        assert!(done.err.contains(&told), "{}", done.err);
    }
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
        row.retain(|name, _| !name.ends_with("_s") && !name.ends_with("_ms"));
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
    let json = folder.file("array.ndjson", "\n[\"c\",1,\"e\"]\n");
    run("ad-billing", &json, &[]).refuses(&["array.ndjson, line 2: column 1: a JSON object"]);
    let json = folder.file("json.ndjson", "\n\n{\"campaign\":}\n");
    run("ad-billing", &json, &[]).refuses(&["json.ndjson, line 3: expected value at column 13"]);
    let csv = folder.file("wide.csv", "key,value\na,1\na,1,2\n");
    run("max", &csv, &[]).refuses(&["wide.csv, line 3: column 3"]);
    let csv = folder.file("twice.csv", "key,value,key\na,1,b\n");
    run("max", &csv, &[]).refuses(&["twice.csv, line 1: column 3"]);
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
    refused("wordcount", &["--guarantee", "at-most-once"], &["--guarantee exactly-once"]);
    refused("wordcount", &["--sink", "plain"], &["--sink two-phase", "--sink plain"]);
    refused("wordcount", &["--emit", "final"], &["--emit changes", "--emit final"]);
    refused("wordcount", &["--resume", "never"], &["part-", "--output"]);
    refused("wordcount", &["--backend", "memory"], &["part-", "--output"]);
    cofferdam(&["run", "wordcount", "--input", &other, "--output", &output])
        .refuses(&["other.txt"]);
    assert_eq!(lines_below(&output), before);
}

#[test]
fn another_parallelism_is_refused_with_the_reason() {
    let folder = Folder::new("parallelism");
    let input = folder.file("in.txt", words(20));
    for (mode, words) in [
        (["--sink", "idempotent"], ["in two files", "sqlite:FILE"]),
        (["--mechanism", "transactional"], ["--mechanism transactional", "each task"]),
        (["--guarantee", "at-most-once"], ["--mechanism none", "each task"]),
        #[cfg(feature = "sqlite")]
        (["--state", "external"], ["--state external", "can not be dealt out"]),
    ] {
        let output = folder.path(mode[1]);
        let run = with(&["run", "wordcount", "--input", &input, "--output", &output], &mode);
        cofferdam(&run).exits(0);
        let before = lines_below(&output);
        let other = with(&run, &["--parallelism", "3"]);
        cofferdam(&other).refuses(&with(&words, &["--parallelism 2", "not with --parallelism 3"]));
        assert_eq!(lines_below(&output), before);
    }
}

#[test]
fn a_run_whose_checkpoints_are_gone_does_not_begin_anew_over_its_output() {
    let folder = Folder::new("gone");
    let input = folder.file("in.txt", words(20));
    let lose = |guarantee: &str, sink: &str| {
        let output = folder.path(&format!("{guarantee}-{sink}"));
        let run = ["run", "wordcount", "--input", &input, "--output", &output];
        let run = with(&run, &["--guarantee", guarantee, "--sink", sink]);
        cofferdam(&run).exits(0);
        let before = lines_below(&output);
        let checkpoints = Path::new(&output).join(".checkpoints");
        for checkpoint in named(&checkpoints, "chk-") {
            fs::remove_file(checkpoint.join("metadata")).unwrap();
        }
        for reserved in named(&checkpoints, "reserved-v0-0") {
            fs::remove_file(reserved).unwrap();
        }
        let done = cofferdam(&run);
        assert_eq!(lines_below(&output), before, "{done:?}");
        done
    };
    lose("exactly-once", "two-phase").refuses(&["gone", "part-", ".checkpoints", "--output"]);
    lose("exactly-once", "plain").refuses(&["gone", "part-"]);
    lose("at-most-once", "plain").refuses(&["gone", "part-"]);
    lose("exactly-once", "idempotent").exits(0);
    let output = folder.path("exactly-once-idempotent");
    fs::remove_file(Path::new(&output).join(".checkpoints/run.json")).unwrap();
    cofferdam(&[
        "run",
        "wordcount",
        "--input",
        &input,
        "--output",
        &output,
        "--sink",
        "idempotent",
    ])
    .refuses(&["run.json is gone"]);
}

#[test]
fn transactional_updates_go_on_from_all_that_was_written_or_not_at_all() {
    let folder = Folder::new("transactional");
    let input = folder.file("in.txt", words(20));
    for (lost, wanted) in [
        ("attempt", "attempt: it is missing"),
        ("progress-v0-1", "progress-v0-1: it is missing"),
        ("progress-v1-0", "progress-v1-0: it is missing"),
        ("reserved-v0-0", "is gone"),
    ] {
        let output = folder.path(lost);
        let run = ["run", "wordcount", "--input", &input, "--output", &output];
        let run = with(&run, &["--mechanism", "transactional"]);
        cofferdam(&run).exits(0);
        let before = lines_below(&output);
        cofferdam(&run).exits(0);
        fs::remove_file(Path::new(&output).join(".checkpoints").join(lost)).unwrap();
        cofferdam(&run).refuses(&[wanted, "--output"]);
        assert_eq!(lines_below(&output), before, "{lost}");
    }
}

#[test]
fn a_plain_run_that_was_killed_before_its_first_checkpoint_begins_anew() {
    let folder = Folder::new("early");
    let (input, output) = (folder.file("in.txt", words(100)), folder.path("out"));
    let run = ["run", "wordcount", "--input", &input, "--output", &output, "--sink", "plain"];
    let run = with(&run, &["--checkpoint-interval", "1h"]);
    let mut child = start_slowly_until(&run, || !lines_below(&output).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    cofferdam(&run).exits(0);
    assert_eq!(lines_below(&output).len(), 200);
}

#[test]
fn checkpoints_belong_to_one_output_folder() {
    let folder = Folder::new("outputs");
    let (input, checkpoints) = (folder.file("in.txt", words(20)), folder.path("checkpoints"));
    let run = |output: &str| {
        let run = ["run", "wordcount", "--input", &input, "--output", output];
        cofferdam(&with(&run, &["--checkpoints", &checkpoints]))
    };
    run(&folder.path("one")).exits(0);
    run(&folder.path("two")).refuses(&["--output", "/one", "/two"]);
    run(&folder.path("one/../one/")).exits(0);
}

#[test]
fn an_input_that_changed_since_the_first_start_is_refused() {
    let folder = Folder::new("changed");
    let text = words(300);
    let (input, output) = (folder.file("in.txt", &text), folder.path("out"));
    let run = often(&input, &output);
    let mut child = start_slowly(&run, &Path::new(&output).join(".checkpoints"));
    child.kill().unwrap();
    child.wait().unwrap();
    let before = lines_below(&output);
    let edited = text.replace("w150", "x150");
    for changed in [&edited, &format!("{edited}more\n"), &text[..text.len() - 4]] {
        folder.file("in.txt", changed);
        cofferdam(&run).refuses(&["in.txt: ", "since it was first read"]);
        let savepoint = named(Path::new(&output).join(".checkpoints"), "chk-").remove(0);
        let from = ["--resume", savepoint.to_str().unwrap()];
        cofferdam(&with(&run, &from)).refuses(&["in.txt: ", "since it was first read"]);
        assert_eq!(lines_below(&output), before);
    }
    folder.file("in.txt", format!("{text}more\n"));
    let done = cofferdam(&run).exits(0);
    assert!(done.err.contains("in.txt: 5 bytes were appended"), "{done:?}");
    let lines = lines_below(&output);
    assert_eq!((lines.len(), lines.values().sum::<u64>()), (600, 600));
}

#[test]
fn output_that_was_there_at_the_checkpoint_is_missed() {
    let folder = Folder::new("missed");
    let input = folder.file("in.txt", words(20));
    let run = |sink: &str| {
        let output = folder.path(sink);
        cofferdam(&["run", "wordcount", "--input", &input, "--output", &output, "--sink", sink])
    };
    run("plain").exits(0);
    let parts = named(folder.path("plain"), "part-");
    run("plain").exits(0);
    assert_eq!(named(folder.path("plain"), "part-").len(), parts.len(), "a rerun adds nothing");
    let whole = fs::read(&parts[0]).unwrap();
    fs::write(&parts[0], &whole[..whole.len() - 1]).unwrap();
    run("plain").refuses(&["part-", "bytes of the", "put the file back"]);
    run("two-phase").exits(0);
    let part = named(folder.path("two-phase"), "part-").remove(0);
    fs::remove_file(&part).unwrap();
    run("two-phase").refuses(&[part.to_str().unwrap(), "put the file back"]);
}

#[test]
fn an_empty_input_is_no_input_of_an_earlier_run() {
    let folder = Folder::new("empty");
    let (input, output) = (folder.file("in.txt", "\u{feff}"), folder.path("out"));
    let run = ["run", "wordcount", "--input", &input, "--output", &output];
    let text = cofferdam(&run).exits(0).out;
    assert!(text.contains("the input holds no record"), "{text}");
    let text = cofferdam(&run).exits(0).out;
    assert!(text.contains("an earlier run has come to the end of its data"), "{text}");
    cofferdam(&["run", "wordcount", "--input", &input, "--output", &input])
        .refuses(&["--output", "in.txt: it is a file, not a folder"]);
}

#[test]
#[cfg(feature = "sqlite")]
fn a_database_that_can_not_be_written_is_refused() {
    let folder = Folder::new("no-database");
    let input = folder.file("in.txt", words(20));
    let run = |file: &str| {
        let output = format!("sqlite:{file}");
        cofferdam(&["run", "wordcount", "--input", &input, "--output", &output])
    };
    run(&folder.file("text.db", "not a database. ".repeat(100)))
        .refuses(&["text.db", "not a SQLite database"]);
    run(&folder.path("none/out.db")).refuses(&["none/out.db", "folder has to be there"]);
    run("").refuses(&["--output", "sqlite:"]);
    let file = folder.path("out.db");
    run(&file).exits(0);
    run(&file).exits(0);
    std::fs::remove_dir_all(format!("{file}.checkpoints")).unwrap();
    run(&file).refuses(&["out.db", "table output of another run"]);
}

#[test]
fn a_killed_run_goes_on_as_its_guarantee_says() {
    const LINES: usize = 3_000;
    let folder = Folder::new("killed");
    let input = folder.file("in.txt", words(LINES));
    for (guarantee, sink) in [
        ("exactly-once", "two-phase"),
        ("at-least-once", "plain"),
        ("at-most-once", "plain"),
        ("at-most-once", "idempotent"),
    ] {
        let output = folder.path(&format!("{guarantee}-{sink}"));
        let run = with(&often(&input, &output), &["--guarantee", guarantee, "--sink", sink]);
        let checkpoints = Path::new(&output).join(".checkpoints");
        for _ in 0..3 {
            let mut child = start_slowly(&run, &checkpoints);
            let before = progress(&checkpoints);
            wait_until("more progress", || progress(&checkpoints) != before);
            // Somewhere on the way to the next.
            std::thread::sleep(Duration::from_millis(60));
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().code(), None, "it had not come to its end");
        }
        let last = cofferdam(&with(&run, &["--format", "json"])).exits(0).summary();
        let own = lines_below(&output).into_iter().filter(|(line, _)| !line.contains("\"all\""));
        let own: BTreeMap<String, u64> = own.collect();
        let doubled = own.values().any(|times| *times > 1);
        match (guarantee, sink) {
            ("exactly-once", _) => assert!(own.len() == LINES && !doubled),
            ("at-least-once", _) => {
                let keys = own.keys().map(|line| line.split('"').nth(3).unwrap());
                assert_eq!(keys.collect::<BTreeSet<_>>().len(), LINES);
            }
            _ => {
                assert!(!doubled);
                assert!(last["records_in"].as_u64().unwrap() < LINES as u64, "{last}");
                // A table is written at its flush, so each kill takes what was in it.
                assert!(sink != "idempotent" || own.len() < LINES, "{}", own.len());
            }
        }
    }
}

#[test]
fn two_runs_do_not_share_checkpoints() {
    let folder = Folder::new("shared");
    let (input, output) = (folder.file("in.txt", words(2000)), folder.path("out"));
    let run = often(&input, &output);
    let mut first = start_slowly(&run, &Path::new(&output).join(".checkpoints"));
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
    let run = often(&input, &output);
    let first = start_slowly(&run, &Path::new(&output).join(".checkpoints"));
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

#[test]
fn output_of_a_finished_run_that_is_gone_is_missed_whatever_the_sink() {
    let folder = Folder::new("gone");
    let input = folder.file("in.txt", words(20));
    for sink in ["plain", "idempotent", "two-phase", "write-ahead"] {
        let (output, checkpoints) =
            (folder.path(sink), folder.path(&format!("{sink}-checkpoints")));
        let run = ["run", "wordcount", "--input", &input, "--output", &output, "--sink", sink];
        let run = with(&run, &["--checkpoints", &checkpoints]);
        cofferdam(&run).exits(0);
        let part = named(&output, "part-").into_iter().min().unwrap();
        let rows = fs::read(&part).unwrap();
        fs::remove_dir_all(&output).unwrap();
        cofferdam(&run).refuses(&[part.to_str().unwrap(), "it is gone", "put the file back"]);
        assert!(named(&output, "part-").is_empty(), "{sink}: nothing is written again");
        fs::write(&part, rows).unwrap();
    }
}

#[test]
fn a_checkpoint_behind_the_committed_rows_is_no_place_to_go_on_from() {
    let folder = Folder::new("rewind");
    let input = folder.file("in.txt", words(600));
    let output = folder.path("out");
    let run = with(&often(&input, &output), &["--retain", "100"]);
    cofferdam(&with(&run, &["--rate", "2000"])).exits(0);
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_prefix("chk-").unwrap().parse::<u64>().unwrap()
    };
    let mut checkpoints = named(Path::new(&output).join(".checkpoints"), "chk-");
    checkpoints.sort_by_key(number);
    let [oldest, .., newest] = &checkpoints[..] else { panic!("one checkpoint") };
    let (oldest, newest) = (oldest.to_str().unwrap(), newest.to_str().unwrap());
    let copy = folder.path("chk-1");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(oldest).unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), Path::new(&copy).join(file.file_name())).unwrap();
    }
    let lines = lines_below(&output);
    for earlier in [oldest, &copy] {
        cofferdam(&with(&run, &["--resume", earlier])).refuses(&[earlier, "twice", "--output"]);
    }
    cofferdam(&with(&run, &["--resume", newest])).exits(0);
    assert_eq!(lines_below(&output), lines);
}

#[test]
fn progress_that_can_not_be_read_or_does_not_fit_is_named() {
    let folder = Folder::new("fit");
    let input = folder.file("in.txt", words(200));
    let output = folder.path("out");
    let run = with(&often(&input, &output), &["--mechanism", "transactional"]);
    cofferdam(&run).exits(0);
    let mut progress = named(Path::new(&output).join(".checkpoints"), "progress-v1-");
    progress.sort();
    let [first, second] = &progress[..] else { panic!("{progress:?}") };
    let bytes = [first, second].map(|path| fs::read(path).unwrap());
    fs::write(first, &bytes[1]).unwrap();
    cofferdam(&run)
        .refuses(&["/progress-v1-0: the state of 'fold': kg", "is not among the groups"]);
    fs::remove_file(first).unwrap();
    fs::create_dir(first).unwrap();
    cofferdam(&run).refuses(&[first.to_str().unwrap()]);
    fs::remove_dir(first).unwrap();
    fs::write(first, &bytes[0]).unwrap();
    cofferdam(&run).exits(0);
}
