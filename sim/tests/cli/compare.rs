//! `compare`: its rows, what it keeps, what it refuses. How fast anything is plays no part.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Done, Folder, cofferdam, command, named, wait_until, with, words};

/// A comparison that takes a second or so.
fn short<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let compare = ["compare", "--records", "300", "--length", "150ms", "--rate", "400"];
    let few = ["--repeats", "1", "--failures", "1", "--checkpoint-interval", "50ms"];
    with(&[&compare[..], &few[..], &["--format", "json"]].concat(), more)
}

fn modes(rows: &[Value]) -> Vec<String> {
    let mode = |row: &Value| {
        let word = |name: &str| row[name].as_str().unwrap().to_owned();
        format!("{} {} {}", word("mechanism"), word("sink"), word("state"))
    };
    rows.iter().filter(|row| row.get("mechanism").is_some()).map(mode).collect()
}

#[test]
fn every_mode_has_a_row_and_the_page_needs_no_network() {
    let folder = Folder::new("compare");
    let input = folder.file("in.txt", words(40));
    let out = folder.path("page");
    let done = cofferdam(&short(&["--input", &input, "--out", &out])).exits(0);
    let rows = done.rows();
    assert_eq!(
        modes(&rows),
        [
            "none plain heap",
            "tracked plain heap",
            "acks plain heap",
            "mini-batch plain heap",
            "full-replay two-phase heap",
            "aligned two-phase heap",
            "unaligned two-phase heap",
            "aligned-timeout two-phase heap",
            "transactional two-phase heap",
        ]
    );
    for row in &rows[..9] {
        for number in ["records_per_s", "relative", "replayed", "lost", "duplicated"] {
            assert!(row[number].is_number(), "{number} of {row}");
        }
        let latency = &row["latency_ms"];
        let all = ["p50", "p90", "p99", "p999", "max"].map(|name| latency[name].as_f64().unwrap());
        assert!(all.is_sorted(), "{row}");
        assert_eq!((&row["kills"], &row["wrong"]), (&1.into(), &0.into()), "{row}");
        assert_eq!((&row["records"], &row["backend"]), (&300.into(), &"fs".into()), "{row}");
        for verdict in ["state_verdict", "output_verdict"] {
            assert_eq!(row[verdict], "held", "{row}");
        }
        assert!(row["guarantee"] == "at-most-once" || row["lost"] == 0, "{row}");
        assert!(row["guarantee"] == "at-least-once" || row["duplicated"] == 0, "{row}");
        let takes_none = ["none", "acks", "transactional"].contains(&text(row, "mechanism"));
        assert_eq!(row["checkpoint"]["bytes"].is_null(), takes_none, "{row}");
    }
    assert_eq!(rows[0]["relative"], 1.0);
    let summary = done.summary();
    assert_eq!((&summary["schema"], &summary["rows"]), (&"cofferdam.compare/1".into(), &9.into()));
    assert_eq!((&summary["failed"], &summary["job"]), (&0.into(), &"wordcount".into()));
    let page = fs::read_to_string(format!("{out}/compare.html")).unwrap();
    for network in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(network), "{network}");
    }
    assert_eq!(page.matches("<svg").count(), 6);
    let kept: Value =
        serde_json::from_slice(&fs::read(format!("{out}/compare.json")).unwrap()).unwrap();
    assert_eq!(kept["rows"].as_array().unwrap(), &rows[..9]);
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap()
}

#[test]
fn jobs_that_make_their_input_and_sinks_that_show_nothing_can_be_compared() {
    let keyed = ["--job", "keyed-count", "--keys", "20", "--mechanism", "aligned"];
    let rows = cofferdam(&short(&keyed)).exits(0).rows();
    assert_eq!(modes(&rows), ["none plain heap", "aligned two-phase heap"]);
    assert!(rows[1]["latency_ms"]["rows"].as_u64().unwrap() > 0, "{}", rows[1]);
    assert_eq!((&rows[1]["lost"], &rows[1]["duplicated"]), (&0.into(), &0.into()));
    let rows = cofferdam(&short(&with(&keyed, &["--sink", "discard"]))).exits(0).rows();
    assert_eq!(modes(&rows), ["none discard heap", "aligned discard heap"]);
    for row in &rows[..2] {
        assert!(row["latency_ms"].is_null() && row["lost"].is_null(), "{row}");
        assert!(row["records_per_s"].is_number() && row["notes"][0].is_string(), "{row}");
    }
}

#[test]
#[cfg(feature = "sqlite")]
fn state_in_another_place_is_compared_with_the_heap() {
    let states = ["--mechanism", "aligned", "--state", "heap", "--state", "external-transactional"];
    let rows = cofferdam(&short(&with(&states, &["--state-latency", "1ms"]))).exits(0).rows();
    let external = "aligned two-phase external-transactional";
    assert_eq!(modes(&rows), ["none plain heap", "aligned two-phase heap", external]);
    assert_eq!((&rows[2]["lost"], &rows[2]["duplicated"]), (&0.into(), &0.into()), "{}", rows[2]);
    // Half of the latencies at least hold one access, however fast the machine is.
    assert!(rows[2]["latency_ms"]["p50"].as_f64().unwrap() >= 1.0, "{}", rows[2]);
}

#[test]
fn a_mode_that_has_grown_slower_is_told_and_what_is_not_comparable_is_refused() {
    let folder = Folder::new("against");
    let kept = folder.path("kept");
    let short = short(&["--baselines", &kept, "--mechanism", "aligned"]);
    cofferdam(&with(&short, &["--against", "first"])).refuses(&["--against first", "--save NAME"]);
    cofferdam(&with(&short, &["--save", "first"])).exits(0);
    let file = format!("{kept}/first.json");
    let doctor = |relative: f64, name: &str| {
        let mut saved: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        saved["rows"][1]["relative"] = relative.into();
        saved["build"] = "of yore".into();
        fs::write(format!("{kept}/{name}.json"), saved.to_string()).unwrap();
    };
    doctor(1e6, "quick");
    let done = cofferdam(&with(&short, &["--against", "quick"])).exits(1);
    assert!(done.err.contains("slower than quick: exactly-once, aligned, two-phase"), "{done:?}");
    assert!(done.err.contains("another build: of yore"), "{done:?}");
    let change = &done.summary()["changes"]["of_modes"][0];
    assert_eq!((&change["mechanism"], &change["is_slower"]), (&"aligned".into(), &true.into()));
    done.command();
    doctor(1e-6, "slow");
    let done = cofferdam(&with(&short, &["--against", "slow", "--regression", "5%"])).exits(0);
    let change = &done.summary()["changes"]["of_modes"][0];
    assert_eq!(change["is_slower"], false);

    let against = with(&short, &["--against", "first"]);
    for (more, words) in [
        (&["--parallelism", "1"][..], ["the parallelism was 2", "is 1 now"]),
        (&["--job", "keyed-count"], ["the job was wordcount", "is keyed-count now"]),
        (&["--emit", "final"], ["what the job was told was ''", "is '--emit final' now"]),
        (&["--input", &folder.file("in.txt", "a b\n")], ["the input was 20,000 lines", "1 lines"]),
    ] {
        cofferdam(&with(&against, more)).refuses(&words);
    }
    cofferdam(&with(&short, &["--against", "other"])).refuses(&["first, quick, slow"]);
    fs::write(&file, "{").unwrap();
    cofferdam(&against).refuses(&["first.json", "not what --save has left"]);
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_it_and_its_runs_and_leaves_nothing() {
    let folder = Folder::new("interrupted");
    let scratch = folder.path("");
    // Its runs at a pace would take twenty minutes.
    let compare = ["compare", "--records", "300", "--length", "10m", "--repeats", "1"];
    let mut compare = command(&with(&compare, &["--mechanism", "aligned", "--scratch", &scratch]));
    let child = compare.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let own = || named(&scratch, "cofferdam-compare-").pop();
    wait_until("a run", || own().is_some_and(|own| !named(own, "out-").is_empty()));
    let signal = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(signal.unwrap().success());
    let done = Done::of(child.wait_with_output().unwrap()).exits(130);
    assert!(done.err.contains("interrupted"), "{done:?}");
    assert!(named(&scratch, "cofferdam-compare-").is_empty());
}

#[test]
fn compare_refuses_what_it_can_not_do() {
    let folder = Folder::new("incomparable");
    let blank = folder.file("blank.csv", "key,value\n");
    let missing = folder.path("missing.txt");
    let wrong = folder.file("wrong.csv", "key,value\na,1\na,x\n");
    let no_folder = folder.file("no-folder", "");
    for (more, words) in [
        (&["--job", "nothing"][..], &["no job 'nothing'"][..]),
        (&["--job", "rolling-sum"], &["--input is missing", "CSV"]),
        (&["--job", "rolling-sum", "--input", &blank], &["blank.csv", "no record"]),
        (&["--job", "rolling-sum", "--input", &wrong], &["wrong.csv", "line 3"]),
        (&["--scratch", &no_folder], &["--scratch", "no-folder"]),
        (&["--input", &missing], &["missing.txt"]),
        (&["--job", "keyed-count", "--input", &missing], &["makes its own input"]),
        (&["--mechanism", "acks", "--sink", "two-phase"], &["--sink two-phase"]),
        (&["--guarantee", "exactly-once", "--mechanism", "none"], &["--mechanism none"]),
        (&["--mechanism", "acks", "--state", "external"], &["--state external"]),
        (&["--splits", "4"], &["--splits"]),
        (&["--regression", "x"], &["--regression", "10%"]),
        (&["--save", "../x"], &["--save", "name"]),
    ] {
        cofferdam(&short(more)).refuses(words);
    }
    assert!(!Path::new(".cofferdam").exists(), "nothing is kept that nobody asked for");
}

#[test]
fn people_get_tables_and_sentences() {
    let words = short(&["--mechanism", "aligned"]);
    let human: Vec<&str> =
        words.into_iter().filter(|word| !["--format", "json"].contains(word)).collect();
    let done = Done::of(command(&human).output().unwrap()).exits(0);
    for part in [
        "RECORDS/S",
        "RECOVERY MS",
        "at-most-once (none, plain) is what the others are compared with",
        "exactly-once (aligned, two-phase) costs",
        "rows wait for a checkpoint, one each 50 ms",
        "no row was lost and no row was seen twice",
    ] {
        assert!(done.out.contains(part), "'{part}' is missing: {done:?}");
    }
}
