//! `analyze`, and the flags that name a mode.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{cofferdam, with};

#[test]
fn claims_come_with_their_reasons() {
    let row = cofferdam(&["analyze", "wordcount", "--sink", "plain", "--format", "json"])
        .exits(0)
        .summary();
    assert_eq!(row["claim"]["state"], "exactly-once");
    assert_eq!(row["claim"]["output"], "at-least-once");
    assert!(row["because"][0].as_str().unwrap().contains("plain"), "the weakest link first: {row}");
    assert_eq!(row["varies"], serde_json::json!({"state": [], "output": []}));
    let text = cofferdam(&["analyze", "seen", "--guarantee", "at-least-once"]).exits(0).out;
    assert!(text.contains("idempotent"), "{text}");
    let matrix = cofferdam(&["analyze", "--matrix", "--format", "json"]).exits(0);
    let rows: Vec<_> = matrix.rows().into_iter().filter(|row| row.get("claim").is_some()).collect();
    assert_eq!(matrix.summary()["rows"], rows.len());
    assert!(rows.iter().all(|row| !row["because"].as_array().unwrap().is_empty()));
    cofferdam(&["analyze"]).exits(2);
}

#[test]
fn modes_that_can_not_be_are_refused_with_the_reason() {
    let analyze = |more: &[&str]| cofferdam(&with(&["analyze", "wordcount"], more));
    analyze(&["--guarantee", "exactly-twice"]).refuses(&[
        "--guarantee",
        "exactly-twice",
        "at-most-once",
    ]);
    analyze(&["--mechanism", "tracked"]).refuses(&["--mechanism tracked", "at-least-once"]);
    analyze(&["--guarantee", "at-most-once", "--sink", "two-phase"])
        .refuses(&["two-phase", "checkpoint"]);
    let mode = ["--guarantee", "at-least-once", "--mechanism", "acks", "--state", "external"];
    for command in [
        &["analyze", "wordcount"][..],
        &["run", "wordcount", "--output", "nowhere", "--input", "wcs.txt"],
        &["torture", "wordcount", "--kills", "1", "--input", "wcs.txt"],
        &["suite", "--job", "wordcount"],
        &["replay", "--job", "wordcount", "--seed", "1"],
    ] {
        let both = "error: --state external with --mechanism acks: ";
        cofferdam(&with(command, &mode)).refuses(&[both, "leave out --state", "tracked"]);
    }
    for (mode, reason) in [
        (
            &["--state", "external-transactional"][..],
            "what a task keeps under --state external-transactional can not be dealt out to others",
        ),
        (
            &["--mechanism", "transactional"],
            "under --mechanism transactional each task goes on from what it has left itself",
        ),
    ] {
        for command in [
            &["analyze", "wordcount", "--seeds", "1"][..],
            &["suite", "--job", "wordcount", "--guarantee", "exactly-once"],
            &["replay", "--job", "wordcount", "--seed", "1"],
        ] {
            let rescaled = with(command, &["--faults", "rescale"]);
            let error = format!("error: --faults rescale: {reason}");
            cofferdam(&with(&rescaled, mode)).refuses(&[&error]);
        }
    }
    analyze(&["--parallelism", "0"]).refuses(&["--parallelism"]);
    analyze(&["--parallelism", "1000000"]).refuses(&["1000000"]);
    cofferdam(&["run", "wordcount", "--savepoint", "x", "--output", "y"])
        .refuses(&["--stop-after"]);
}

/// A row for each combination, tried over so many seeds.
fn tried(job: &str, seeds: &str) -> Vec<Value> {
    let done = cofferdam(&["analyze", job, "--matrix", "--seeds", seeds, "--format", "json"]);
    let rows = done.exits(0).rows();
    rows.into_iter().filter(|row| row.get("claim").is_some()).collect()
}

#[test]
fn claims_of_rows_with_keys_of_their_own_are_no_weaker_than_they_have_to_be() {
    for job in ["enrich", "interval-join", "seen"] {
        let flags = ["--matrix", "--seeds", "120", "--faults", "full", "--format", "json"];
        let rows = cofferdam(&with(&["analyze", job], &flags)).exits(0).rows();
        for row in rows.iter().filter(|row| row["trial"].is_object()) {
            assert_eq!(row["trial"]["held"], true, "{row}");
            for more in row["trial"]["stronger"].as_array().unwrap() {
                assert!(more["refuting_seed"].is_u64(), "nothing refutes {more}: {row}");
            }
        }
    }
}

/// What came of the stronger levels for one side.
fn stronger<'a>(row: &'a Value, subject: &str) -> Vec<&'a Value> {
    let all = row["trial"]["stronger"].as_array().unwrap().iter();
    all.filter(|more| more["subject"] == subject).collect()
}

/// The cells of a row, which begin with what its field `first` says.
fn cells(row: &Value, first: &str) -> Vec<String> {
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let reason = word(&row["because"][0]).split(':').next().unwrap().to_owned();
    let mut cells = vec![word(&row[first]), word(&row["sink"])];
    if row["claim"].is_null() {
        cells.extend(["refused", "", "", "", &reason].map(str::to_owned));
        return cells;
    }
    cells.extend([word(&row["claim"]["state"]), word(&row["claim"]["output"])]);
    for subject in ["state", "output"] {
        let more = stronger(row, subject);
        cells.push(match more.iter().all(|more| more["refuting_seed"].is_u64()) {
            true if more.is_empty() => "-".to_owned(),
            true => "refuted".to_owned(),
            false => format!("none found in {} seeds", row["trial"]["seeds"]),
        });
    }
    cells.push(reason);
    cells
}

/// A table of GUARANTEES.md.
fn matrix(rows: &[Value], first: &str) -> String {
    let columns = [
        first,
        "sink",
        "state",
        "output",
        "more for the state",
        "more for the output",
        "weakest link",
    ];
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&columns.map(str::to_owned)) + &line(&columns.map(|_| "---".to_owned()));
    let of_guarantee = rows.iter().filter(|row| {
        let reason = row["because"][0].as_str().unwrap();
        !reason.contains(" reaches ")
    });
    of_guarantee.for_each(|row| table += &line(&cells(row, first)));
    table
}

#[test]
fn the_matrix_of_guarantees_is_the_one_that_the_program_gives() {
    let rows = tried("wordcount", "200");
    let held = rows.iter().filter(|row| !row["claim"].is_null());
    held.for_each(|row| assert_eq!(row["trial"]["held"], true, "{row}"));
    let outside = ["external", "external-transactional"].iter().flat_map(|state| {
        ["plain", "idempotent", "two-phase", "write-ahead"].map(|sink| {
            let mode = ["--state", state, "--sink", sink, "--seeds", "200"];
            let analyze = ["analyze", "wordcount", "--format", "json"];
            cofferdam(&with(&analyze, &mode)).exits(0).summary()
        })
    });
    let outside: Vec<Value> = outside.collect();
    outside.iter().for_each(|row| assert_eq!(row["trial"]["held"], true, "{row}"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/GUARANTEES.md");
    let mut page = fs::read_to_string(&path).unwrap();
    for (mark, current) in [
        ("<!-- matrix -->\n", matrix(&rows, "mechanism")),
        ("<!-- state -->\n", matrix(&outside, "state_home")),
    ] {
        let (head, rest) = page.split_once(mark).unwrap();
        let (shown, tail) = rest.split_once("<!-- end -->").unwrap();
        if std::env::var_os("COFFERDAM_BLESS").is_some() {
            page = format!("{head}{mark}{current}<!-- end -->{tail}");
            fs::write(&path, &page).unwrap();
        } else {
            assert_eq!(shown, current, "GUARANTEES.md: the comment above the table renews it");
        }
    }
}

/// The jobs whose state or graph makes a claim stronger than the mechanism alone. Every job is
/// tried with every kind of fault by `.ci/run`, and by the nightly command of HACKING.md.
#[test]
fn claims_of_other_jobs_hold_over_fifty_seeds_a_cell() {
    for job in ["max", "seen", "smoke-alarm", "visits", "random-graph"] {
        tried(job, "50");
    }
}
