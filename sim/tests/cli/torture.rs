//! `torture`: kills and what is left after them.

#[cfg(feature = "sqlite")]
use crate::support::lines_below;
use crate::support::{Folder, cofferdam, with, words};

#[test]
fn torture_judges_every_guarantee() {
    let folder = Folder::new("torture");
    let input = folder.file("in.txt", words(600));
    for (guarantee, mechanism) in [
        ("exactly-once", "aligned"),
        ("exactly-once", "full-replay"),
        ("at-least-once", "tracked"),
        ("at-least-once", "acks"),
        ("at-most-once", "none"),
    ] {
        let torture = ["torture", "wordcount", "--input", &input, "--kills", "4", "--seed", "0x7"];
        let mode = ["--guarantee", guarantee, "--mechanism", mechanism, "--format", "json"];
        let done = cofferdam(&with(&torture, &mode)).exits(0);
        let got = done.summary();
        assert_eq!(got["schema"], "cofferdam.torture/1");
        assert_eq!((&got["kills"], &got["seed"], &got["wrong"]), (&4.into(), &7.into(), &0.into()));
        assert_eq!(
            (&got["state_verdict"], &got["output_verdict"]),
            (&"held".into(), &"held".into())
        );
        assert!(guarantee == "at-most-once" || got["lost"] == 0, "{got}");
        assert!(guarantee == "at-least-once" || got["duplicated"] == 0, "{got}");
        assert_eq!(got["leaked"], 0, "{done:?}");
        assert!(done.err.contains("seed 7"), "{done:?}");
    }
}

#[test]
#[cfg(feature = "sqlite")]
fn torture_judges_from_the_database() {
    let folder = Folder::new("database");
    let input = folder.file("in.txt", words(600));
    for (guarantee, sink) in [
        ("exactly-once", "two-phase"),
        ("exactly-once", "write-ahead"),
        ("exactly-once", "idempotent"),
        ("at-least-once", "plain"),
    ] {
        let file = folder.path(&format!("{sink}.db"));
        let output = format!("sqlite:{file}");
        let torture = ["torture", "wordcount", "--input", &input, "--output", &output];
        let more = ["--kills", "3", "--guarantee", guarantee, "--sink", sink, "--format", "json"];
        let got = cofferdam(&with(&torture, &more)).exits(0).summary();
        assert_eq!((&got["wrong"], &got["lost"]), (&0.into(), &0.into()), "{got}");
        assert!(sink == "plain" || got["duplicated"] == 0, "{got}");
        assert!(std::path::Path::new(&format!("{file}.checkpoints")).is_dir());
        cofferdam(&with(&torture, &more)).refuses(&["--output sqlite:", "is there already"]);
    }
}

#[test]
#[cfg(feature = "sqlite")]
fn state_outside_is_right_after_kills_if_it_rolls_back() {
    let folder = Folder::new("outside");
    let input = folder.file("in.txt", words(600));
    let of_words = |output: &str| -> u64 {
        let mut counts = std::collections::BTreeMap::new();
        for line in lines_below(output).keys() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let count = counts.entry(row["key"].to_string()).or_insert(0);
            *count = row["value"].as_u64().unwrap().max(*count);
        }
        counts.values().sum()
    };
    let plain = folder.path("heap");
    cofferdam(&["run", "wordcount", "--input", &input, "--output", &plain]).exits(0);
    let expected = of_words(&plain);
    for state in ["external", "external-transactional"] {
        let output = folder.path(state);
        let torture = ["torture", "wordcount", "--input", &input, "--output", &output];
        let more = ["--kills", "5", "--state", state, "--format", "json"];
        let got = cofferdam(&with(&torture, &more)).exits(0).summary();
        assert_eq!((&got["lost"], &got["wrong"]), (&0.into(), &0.into()), "{got}");
        let counted = of_words(&output);
        assert_eq!(counted == expected, state != "external", "{counted} of {expected}");
        assert!(counted >= expected, "nothing is lost");
        let again = ["run", "wordcount", "--input", &input, "--output", &folder.path("more")];
        let store = format!("sqlite:{output}/.state.db");
        cofferdam(&with(&again, &["--state", state, "--state-store", &store]))
            .refuses(&["--state-store", "state of another run"]);
    }
    let run = ["run", "wordcount", "--input", &input, "--output", &folder.path("none")];
    cofferdam(&with(&run, &["--state-store", "sqlite:x.db"])).refuses(&["--state external"]);
    cofferdam(&with(&run, &["--state-latency", "1ms"])).refuses(&["--state-latency", "external"]);
    cofferdam(&with(&run, &["--state", "external", "--state-store", "x.db"]))
        .refuses(&["sqlite:x.db"]);
}

#[test]
fn torture_says_why_nothing_can_be_said() {
    let folder = Folder::new("unsaid");
    let rows: String = (0..600).map(|row| format!("k{},{row},1\n", row % 7)).collect();
    let input = folder.file("in.csv", format!("key,time_s,value\n{rows}"));
    let torture = ["torture", "windows", "--input", &input, "--kills", "2"];
    let batches = ["--guarantee", "at-least-once", "--mechanism", "mini-batch"];
    let done = cofferdam(&with(&with(&torture, &batches), &["--format", "json"])).exits(3);
    let got = done.summary();
    let reason = got["unjudged"].as_str().unwrap().to_owned();
    for count in ["lost", "duplicated", "wrong", "differing", "output_level"] {
        assert!(got[count].is_null(), "nobody has looked: {got}");
    }
    assert!(reason.contains("timers"), "{reason}");
    assert!(done.err.contains(&format!("about the state: {reason};")), "{done:?}");
}

#[test]
fn torture_refutes_a_claim_that_is_too_strong() {
    let folder = Folder::new("too-strong");
    let input = folder.file("in.txt", words(600));
    let torture = ["torture", "wordcount", "--input", &input, "--kills", "4", "--sink", "plain"];
    let torture = with(&torture, &["--guarantee", "at-most-once"]);
    // A count that begins again at one is no loss; that it is not as it should be is said.
    let held = cofferdam(&torture).exits(0);
    assert!(held.out.contains("rows are not as in a run without failures"), "{held:?}");
    let refuted = cofferdam(&with(&torture, &["--claim", "exactly-once"])).exits(1);
    assert!(refuted.out.contains("for example:\n  - "), "{refuted:?}");
    assert!(refuted.err.contains("the claim for the state is violated"), "{refuted:?}");
    cofferdam(&with(&torture, &["--claim", "sink=none"])).refuses(&["--claim", "state=LEVEL"]);
}

#[test]
fn torture_refuses_what_it_can_not_judge() {
    let folder = Folder::new("untortured");
    let input = folder.file("in.txt", words(20));
    let torture = |job, more: &[&str]| {
        cofferdam(&with(&["torture", job, "--input", &input, "--kills", "2"], more))
    };
    torture("wordcount", &["--backend", "memory"]).refuses(&["--backend memory"]);
    torture("wordcount", &["--sink", "discard"]).refuses(&["--sink discard"]);
    torture("wordcount", &["--seed", "x"]).refuses(&["--seed", "0x1f"]);
    torture("wordcount", &["--output", &folder.path("")]).refuses(&["--output", "not empty"]);
    cofferdam(&["torture", "keyed-count", "--kills", "2"])
        .refuses(&["'keyed-count' reads no file"]);
    cofferdam(&["torture", "wordcount", "--kills", "2"]).refuses(&["--input is missing"]);
    torture("max", &[]).refuses(&["in.txt", "line 1", "key"]);
    torture("wordcount", &["--kills", "0"]).exits(2);
}
