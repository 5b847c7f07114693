//! `suite`: what its rows say, how it ends, and what it refuses.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Done, Folder, cofferdam, command, with};

/// One row of few seeds.
const ROW: [&str; 5] = ["suite", "--job", "wordcount", "--guarantee", "exactly-once"];

fn rows(done: &Done) -> Vec<Value> {
    done.rows().into_iter().filter(|row| row.get("job").is_some()).collect()
}

#[test]
fn a_refuted_claim_ends_with_the_command_that_shows_it() {
    let suite = with(&ROW, &["--sink", "plain", "--claim", "exactly-once", "--seeds", "10"]);
    let suite = with(&suite, &["--parallelism", "2"]);
    let done = cofferdam(&suite).exits(1);
    assert!(done.err.contains("no fault hit"), "{done:?}");
    assert!(done.command().starts_with("cofferdam replay --job wordcount"), "{done:?}");
    assert_eq!(done.out.lines().last(), Some(done.command()));
    let done = cofferdam(&with(&suite, &["--format", "json"])).exits(1);
    let row = &rows(&done)[0];
    assert_eq!((&row["held"], &row["verdict"]), (&false.into(), &"violated".into()));
    assert_eq!(row["reproduce"], done.command());
    assert!(done.command().contains("--parallelism 2"), "{done:?}");
    let words: Vec<&str> = done.command().split(' ').skip(1).collect();
    cofferdam(&words).exits(1);
}

#[test]
fn a_combination_that_can_not_be_is_refused_with_the_reason() {
    let suite = ["suite", "--guarantee", "at-least-once", "--mechanism", "acks"];
    cofferdam(&with(&suite, &["--sink", "two-phase"])).refuses(&["--sink two-phase", "acks"]);
}

#[test]
fn a_claim_that_is_too_strong_for_a_table_or_for_fired_rows_is_refuted() {
    for (job, mechanism, sink, claim) in [
        ("wordcount", "mini-batch", "idempotent", "state=at-most-once,output=at-least-once"),
        ("wordcount", "acks", "idempotent", "state=none,output=at-least-once"),
        ("wordcount", "acks", "idempotent", "state=none,output=at-most-once"),
        ("smoke-alarm", "acks", "plain", "state=none,output=at-most-once"),
        ("smoke-alarm", "mini-batch", "plain", "state=none,output=at-least-once"),
        ("random-graph", "acks", "idempotent", "state=none,output=at-least-once"),
    ] {
        let suite = ["suite", "--job", job, "--mechanism", mechanism, "--sink", sink];
        let suite = with(&suite, &["--guarantee", "at-least-once", "--claim", claim]);
        let row = cofferdam(&with(&suite, &["--seeds", "60", "--format", "json"])).exits(1);
        assert_eq!(rows(&row)[0]["verdict"], "violated", "{job} {mechanism} {sink} {claim}");
    }
}

#[test]
fn parameters_of_a_job_are_taken_and_handed_on_to_the_command_that_shows_what_came_of_it() {
    let suite = ["suite", "--job", "windows", "--guarantee", "at-least-once", "--seeds", "20"];
    let sessions = ["--claim", "exactly-once", "--window", "session:3s"];
    let done = cofferdam(&with(&suite, &sessions)).exits(1);
    assert!(done.command().contains("--window session:3s"), "{done:?}");
    let words: Vec<&str> = done.command().split(' ').skip(1).collect();
    cofferdam(&words).exits(1);
    let other = ["--emit", "final", "--seeds", "1"];
    for command in [&["suite", "--job", "seen"][..], &["analyze", "seen"]] {
        cofferdam(&with(command, &other)).refuses(&["job 'seen' has no parameter --emit"]);
    }
    let output = |emit| {
        let analyze = ["analyze", "wordcount", "--guarantee", "at-least-once", "--emit", emit];
        let analyze = with(&analyze, &["--mechanism", "acks", "--format", "json"]);
        cofferdam(&analyze).exits(0).summary()["claim"]["output"].clone()
    };
    assert_eq!((output("changes"), output("final")), ("at-least-once".into(), "none".into()));
}

#[test]
fn queues_and_sinks_in_two_stages_are_put_to_the_test_by_parameters() {
    let reached = ["--source", "queue", "--stages", "2", "--format", "json"];
    for job in ["wordcount", "seen"] {
        let suite = ["suite", "--job", job, "--seeds", "60", "--faults", "full"];
        let done = cofferdam(&with(&suite, &reached)).exits(0);
        for row in rows(&done) {
            let is_exact = row["guarantee"] == "exactly-once";
            assert_eq!(row["claim"]["output"] == "exactly-once", is_exact, "{row}");
        }
    }
    let claim = cofferdam(&with(&["analyze", "seen"], &reached)).exits(0).summary();
    let because = claim["because"].to_string();
    assert!(because.contains("queue 'records' gives out messages again"), "{because}");
    let replay = ["replay", "--job", "seen", "--seed", "1", "--trace"];
    let replayed = cofferdam(&with(&replay, &reached)).exits(0);
    assert!(replayed.out.contains("committer"), "{replayed:?}");
    let split = ["suite", "--job", "wordcount", "--splits", "3", "--source", "queue"];
    cofferdam(&split).refuses(&["--source queue", "leave --splits out"]);
}

#[test]
fn a_row_says_once_why_some_of_its_runs_are_unknown() {
    let suite = ["suite", "--job", "enrich", "--guarantee", "at-least-once", "--mechanism", "acks"];
    let claim = ["--claim", "state=none,output=at-least-once", "--faults", "full"];
    let suite = with(&with(&suite, &claim), &["--sink", "idempotent", "--seeds", "40"]);
    let row = rows(&cofferdam(&with(&suite, &["--format", "json"])).exits(0)).remove(0);
    let unjudged = row["unjudged"].as_str().unwrap();
    let start = format!("output, in {} of 40 runs: the records that give rows", row["unknown"]);
    assert!(unjudged.starts_with(&start), "{row}");
    let done = cofferdam(&suite).exits(0);
    let line = format!("enrich, at-least-once, acks, idempotent: not judged: {unjudged}");
    assert_eq!(done.out.lines().filter(|said| *said == line).count(), 1, "{done:?}");
    let judged = cofferdam(&with(&ROW, &["--seeds", "40", "--format", "json"])).exits(0);
    assert_eq!(rows(&judged)[0]["unjudged"], Value::Null);
}

#[test]
fn rows_of_two_mechanisms_can_be_told_apart() {
    let both = ["--mechanism", "aligned", "--mechanism", "unaligned", "--seeds", "20"];
    let done = cofferdam(&with(&ROW, &both)).exits(0);
    let column = |n: usize| done.out.lines().nth(n).unwrap().split_whitespace().nth(2).unwrap();
    assert_eq!([column(0), column(1), column(2)], ["MECHANISM", "aligned", "unaligned"]);
}

#[test]
fn without_faults_nothing_is_put_to_the_test() {
    let done = cofferdam(&with(&ROW, &["--faults", "none", "--seeds", "5"])).exits(3);
    assert!(done.err.contains("--faults none") && done.err.contains("no fault hit"), "{done:?}");
    done.command();
}

#[cfg(unix)]
#[test]
fn a_suite_that_is_terminated_says_what_it_has_seen() {
    let mut suite = command(&with(&ROW, &["--seeds", "100M", "--format", "json"]));
    let child = suite.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Long enough for the program to begin, which nothing shows; the seeds would take days.
    std::thread::sleep(Duration::from_secs(2));
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let done = Done::of(child.wait_with_output().unwrap()).exits(130);
    assert_eq!((&done.summary()["refuted"], &done.summary()["stopped"]), (&0.into(), &true.into()));
    assert!(done.err.contains("interrupted"), "{done:?}");
    assert!(done.command().starts_with("cofferdam suite --job wordcount"), "{done:?}");
}

#[test]
fn a_job_that_is_named_twice_is_one_row() {
    let done = cofferdam(&with(&ROW, &["--job", "wordcount", "--seeds", "40", "--format", "json"]));
    assert_eq!(rows(&done.exits(0)).len(), 1);
}

#[test]
fn what_can_not_be_simulated_is_refused() {
    let folder = Folder::new("unsimulated");
    let suite =
        |job: &str, more: &[&str]| cofferdam(&with(&["suite", "--seeds", "1", "--job", job], more));
    let text = folder.file("in.txt", "a\n");
    suite("keyed-count", &["--input", &text]).refuses(&["in.txt", "keyed-count", "own input"]);
    let replay = ["replay", "--job", "random-graph", "--seed", "1", "--input", &text];
    cofferdam(&replay).refuses(&["in.txt", "random-graph", "own input"]);
    suite("wordcount", &["--claim", "state=none,state=exactly-once"])
        .refuses(&["--claim", "state=exactly-once"]);
    let rows = "key,value\n".to_owned() + &"a,1\n".repeat(500) + "b,x\n";
    let csv = folder.file("late.csv", rows);
    suite("max", &["--input", &csv, "--records", "3"]).refuses(&["late.csv", "line 502", "'x'"]);
    let csv = folder.file("columns.csv", "a,b\n1,2\n");
    suite("max", &["--input", &csv]).refuses(&["columns.csv", "line 1", "key"]);
    let latin = folder.file("latin.txt", b"ok\ncaf\xe9\n");
    suite("wordcount", &["--input", &latin]).refuses(&["latin.txt", "line 2", "UTF-8"]);
    suite("wordcount", &["--input", "/nowhere.txt"]).refuses(&["/nowhere.txt"]);
    for sink in ["two-phase", "write-ahead"] {
        suite("wordcount", &["--guarantee", "at-most-once", "--sink", sink])
            .refuses(&[sink, "when a checkpoint completes"]);
    }
    let done = cofferdam(&with(&ROW, &["--mechanism", "tracked"])).exits(4);
    assert_eq!(done.command(), "cofferdam analyze --matrix");
}

#[test]
fn flags_of_barriers_are_for_mechanisms_that_heed_them() {
    let row = with(&ROW, &["--seeds", "5", "--parallelism", "2"]);
    cofferdam(&with(&row, &["--alignment-timeout", "5ms"]))
        .refuses(&["--alignment-timeout", "--mechanism aligned-timeout"]);
    cofferdam(&with(&row, &["--mechanism", "unaligned", "--concurrent-checkpoints", "2"]))
        .refuses(&["--concurrent-checkpoints", "only one checkpoint"]);
    // One row of the two heeds it, and a command that replays the other does not name it.
    let both = ["--mechanism", "aligned", "--mechanism", "aligned-timeout"];
    let both = with(&row, &[&both[..], &["--alignment-timeout", "0ms"]].concat());
    let refuted = ["--sink", "plain", "--claim", "exactly-once", "--format", "json"];
    let done = cofferdam(&with(&both, &refuted)).exits(1);
    for row in rows(&done) {
        let command = row["reproduce"].as_str().unwrap_or_default();
        let is_heeded = row["mechanism"] == "aligned-timeout";
        assert_eq!(command.contains("--alignment-timeout 0ms"), is_heeded, "{row}");
    }
    let several = with(&row, &["--concurrent-checkpoints", "3"]);
    let summary = cofferdam(&with(&several, &["--format", "json"])).exits(0).summary();
    assert_eq!(summary["refuted"], 0);
}

#[test]
fn a_folder_for_scenarios_that_can_not_be_made_is_refused_before_the_first_run() {
    let folder = Folder::new("no-repros");
    let file = folder.file("file", "");
    let suite = ["suite", "--job", "wordcount", "--seeds", "100000000", "--repros"];
    cofferdam(&with(&suite, &[&format!("{file}/repros")])).refuses(&["--repros", "file/repros"]);
}

#[test]
fn what_can_not_be_rescaled_has_the_usual_faults_where_all_is() {
    let args = ["suite", "--job", "wordcount", "--seeds", "5", "--faults", "rescale"];
    cofferdam(&args).exits(0);
    let external = ["analyze", "wordcount", "--matrix", "--seeds", "3", "--state", "external"];
    cofferdam(&with(&external, &["--faults", "rescale"]))
        .refuses(&["what a task keeps under --state external"]);
}
