//! `analyze`, and the flags that name a mode.

use crate::support::{cofferdam, with};

#[test]
fn claims_come_with_their_reasons() {
    let row = cofferdam(&["analyze", "wordcount", "--sink", "plain", "--format", "json"])
        .exits(0)
        .summary();
    assert_eq!(row["claim"]["state"], "exactly-once");
    assert_eq!(row["claim"]["output"], "at-least-once");
    assert!(row["because"][0].as_str().unwrap().contains("plain"), "the weakest link first: {row}");
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
    analyze(&["--parallelism", "0"]).refuses(&["--parallelism"]);
    analyze(&["--parallelism", "1000000"]).refuses(&["1000000"]);
    cofferdam(&["run", "wordcount", "--savepoint", "x", "--output", "y"]).refuses(&["--savepoint"]);
}
