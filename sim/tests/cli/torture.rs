//! `torture`: kills and what is left after them.

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
    torture("keyed-count", &[]).refuses(&["keyed-count"]);
    torture("max", &[]).refuses(&["in.txt", "line 1", "key"]);
    torture("wordcount", &["--kills", "0"]).exits(2);
}
