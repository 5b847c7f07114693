//! `replay`: one run again, whole or in part, from a seed or a scenario.

use std::fs;
use std::path::Path;

use crate::support::{Folder, cofferdam, with};

const RUN: [&str; 5] = ["replay", "--job", "wordcount", "--seed", "3"];
const REFUTED: [&str; 4] = ["--sink", "plain", "--claim", "exactly-once"];

/// The scenario of a refuted run.
fn scenario(folder: &Folder) -> String {
    let repros = folder.path("repros");
    let suite = ["suite", "--job", "wordcount", "--guarantee", "exactly-once", "--seeds", "10"];
    cofferdam(&with(&with(&suite, &REFUTED), &["--repros", &repros])).exits(1);
    let mut files = fs::read_dir(Path::new(&repros)).unwrap().flatten();
    fs::read_to_string(files.next().unwrap().path()).unwrap()
}

#[test]
fn rule_075_readers_of_a_table_see_older_rows_again_and_no_claim_is_violated() {
    let replay = ["replay", "--job", "wordcount", "--sink", "idempotent", "--format", "json"];
    let seen_again = (1..20).any(|seed: u32| {
        let summary = cofferdam(&with(&replay, &["--seed", &seed.to_string()])).exits(0).summary();
        assert_eq!(summary["output_verdict"], "held");
        summary["seen_again"].as_u64().unwrap() > 0
    });
    assert!(seen_again, "no replay brings an older row back");
    let plain = ["replay", "--job", "wordcount", "--sink", "plain", "--seed", "1"];
    let summary = cofferdam(&with(&plain, &["--format", "json"])).exits(0).summary();
    assert_eq!(summary["seen_again"], 0, "rows without keys replace none");
}

#[test]
fn the_events_of_later_layouts_are_told_by_their_own_names() {
    let replay = ["replay", "--job", "wordcount", "--faults", "rescale", "--seed", "41"];
    let done = cofferdam(&with(&replay, &["--trace", "--guarantee", "at-least-once"])).exits(0);
    assert!(done.out.contains("begins again in another layout"), "{done:?}");
}

#[test]
fn a_part_of_a_run_is_summed_up_and_not_judged() {
    let json = with(&RUN, &["--format", "json"]);
    let part = cofferdam(&with(&json, &["--until", "5"])).exits(3);
    assert_eq!(part.rows().len(), 1, "events are for --trace: {part:?}");
    let summary = part.summary();
    assert_eq!((&summary["schema"], &summary["events"]), (&"cofferdam.replay/1".into(), &5.into()));
    assert_eq!(
        (&summary["state_verdict"], &summary["output_verdict"]),
        (&"unknown".into(), &"unknown".into())
    );
    assert_eq!((&summary["stuck"], &summary["violation"]), (&false.into(), &().into()));
    let traced = cofferdam(&with(&json, &["--until", "5", "--trace"])).exits(3);
    assert!(traced.rows().len() > 1 && traced.rows()[0]["event"].is_string(), "{traced:?}");
    assert_eq!(traced.summary(), summary);
    assert!(!cofferdam(&with(&RUN, &["--until", "5"])).exits(3).out.contains("reads the store"));
    let whole = cofferdam(&json).exits(0).summary();
    assert_eq!(cofferdam(&with(&json, &["--until", "1M"])).exits(0).summary(), whole);
}

#[test]
fn a_violation_is_told_in_words_and_ends_with_a_command() {
    let done = cofferdam(&with(&RUN, &REFUTED)).exits(1);
    assert!(done.out.contains("duplicated in the output"), "{done:?}");
    assert!(!done.out.contains("Entry"), "a record is shown as it is read: {done:?}");
    let traced = done.command().to_owned();
    assert!(traced.ends_with("--seed 3 --sink plain --claim exactly-once --trace"), "{traced}");
    let words: Vec<&str> = traced.split(' ').skip(1).collect();
    cofferdam(&words).exits(1).command();
}

#[test]
fn a_scenario_about_other_tasks_says_what_does_not_apply() {
    let folder = Folder::new("renamed");
    let scenario = scenario(&folder);
    let renamed = scenario.replace("split", "splat").replace("fold", "fald");
    let whole = folder.file("whole.toml", &renamed);
    let (head, options) = renamed.split_once("[options]").unwrap();
    let faults = &options[options.find("[[faults]]").unwrap()..options.find("[[dec").unwrap()];
    let faults = folder.file("faults.toml", format!("{head}\n{faults}"));
    for file in [&whole, &faults] {
        let done = cofferdam(&["replay", file]).exits(3);
        let first = "fault 1 concerns the unknown task 'fald -> out/";
        assert!(done.err.contains("nothing of the scenario applies"), "{done:?}");
        assert!(done.err.contains(first) && done.out.contains(first), "{done:?}");
        done.command();
        let done = cofferdam(&["replay", file, "--format", "json"]).exits(3);
        assert!(done.summary()["diverged"][0].as_str().unwrap().starts_with(first), "{done:?}");
        cofferdam(&["replay", file, "--strict"]).exits(5).command();
    }
    let own = folder.file("own.toml", &scenario);
    let done = cofferdam(&["replay", &own, "--format", "json"]).exits(1);
    assert_eq!(done.summary()["diverged"], serde_json::json!([]));
}

#[test]
fn a_scenario_whose_parts_do_not_go_together_is_refused() {
    let folder = Folder::new("parts");
    let head = "version = 1\njob = \"wordcount\"\nseed = 7\nguarantee = \"exactly-once\"\n";
    let path = folder.file("mixed.toml", format!("{head}mechanism = \"tracked\"\n"));
    cofferdam(&["replay", &path]).refuses(&["mixed.toml", "tracked reaches at-least-once"]);
    let path = folder.file("fine.toml", format!("{head}mechanism = \"full-replay\"\n"));
    cofferdam(&["replay", &path]).exits(0);
}

#[test]
fn what_was_seen_does_not_depend_on_the_claim() {
    let levels = |more: &[&str]| {
        let replay = ["replay", "--job", "wordcount", "--state", "external", "--faults", "full"];
        let done = cofferdam(&with(&with(&replay, &["--seed", "1", "--format", "json"]), more));
        let summary = done.summary();
        (summary["state_level"].clone(), summary["output_level"].clone())
    };
    let seen = levels(&[]);
    assert_eq!(seen, ("at-least-once".into(), "at-most-once and at-least-once".into()));
    assert_eq!(levels(&["--claim", "exactly-once"]), seen);
}

/// A run whose late records are dropped or not as its schedule has it.
const LATE: [&str; 13] = [
    "replay",
    "--job",
    "enrich",
    "--guarantee",
    "at-least-once",
    "--mechanism",
    "acks",
    "--sink",
    "idempotent",
    "--faults",
    "full",
    "--seed",
    "0",
];

#[test]
fn what_was_not_judged_is_said_with_the_reason_and_nobody_knows_what_was_seen() {
    let reason = "the records that give rows of 'out' are not the same in all runs without faults";
    let late = with(&LATE, &["--claim", "at-least-once"]);
    let done = cofferdam(&late).exits(3);
    let line = "output  unknown: the claim is at-least-once, what was seen is not known";
    assert!(done.out.lines().any(|said| said == line), "{done:?}");
    assert!(done.out.contains(&format!("not judged: {reason}")), "{done:?}");
    assert!(done.err.contains(&format!("about the output: {reason}")), "{done:?}");
    let summary = cofferdam(&with(&late, &["--format", "json"])).exits(3).summary();
    let unjudged = serde_json::json!([{"subject": "output", "reason": reason}]);
    assert_eq!(summary["unjudged"], unjudged);
    assert_eq!(
        (&summary["state_level"], &summary["output_level"]),
        (&"at-least-once".into(), &().into())
    );
    let weak = with(&LATE, &["--claim", "none", "--format", "json"]);
    let summary = cofferdam(&weak).exits(0).summary();
    assert_eq!(summary["unjudged"], serde_json::json!([]), "the claim speaks of nothing in doubt");
    assert_eq!(summary["output_level"], serde_json::Value::Null, "the same under every claim");
}

#[test]
fn what_a_scenario_says_no_flag_says_as_well() {
    let folder = Folder::new("flags");
    let text = "version = 1\njob = \"wordcount\"\nseed = 7\nguarantee = \"exactly-once\"\n";
    let path = folder.file("seven.toml", text);
    for flag in [
        ["--claim", "none"],
        ["--sink", "plain"],
        ["--guarantee", "exactly-once"],
        ["--records", "5"],
        ["--parallelism", "2"],
        ["--faults", "none"],
        ["--input", "app.log"],
        ["--state", "external"],
    ] {
        cofferdam(&with(&["replay", &path], &flag)).refuses(&[flag[0], "cannot be used with"]);
    }
    cofferdam(&["replay", &path, "--trace"]).exits(0);
}

#[test]
fn an_edited_scenario_gives_another_run_and_nobody_is_blamed() {
    let folder = Folder::new("edited");
    let scenario = scenario(&folder);
    let value = |line: &str| line.strip_prefix("external_delay_us = ").map(str::to_owned);
    let delay = scenario.lines().find_map(value).unwrap();
    let line = format!("external_delay_us = {delay}");
    let edited = folder.file("edited.toml", scenario.replace(&line, "external_delay_us = 9_000"));
    let done = cofferdam(&["replay", &edited]);
    assert!([Some(0), Some(1)].contains(&done.code), "{done:?}");
    assert!(done.err.contains("the scenario was edited"), "{done:?}");
    let own = folder.file("own.toml", &scenario);
    assert!(!cofferdam(&["replay", &own]).exits(1).err.contains("was edited"));
}

#[test]
fn a_scenario_that_no_run_can_have_is_refused_in_one_line() {
    let folder = Folder::new("impossible");
    let scenario = scenario(&folder);
    for (option, value, wanted) in [
        ("records", "9223372036854775807", "records is 9223372036854775807: it must be from 0 to"),
        ("task_crashes", "9223372036854775807", "task_crashes is"),
        ("parallelism", "0", "parallelism is 0: it must be from 1 to 1000"),
        ("step_us", "\"much\"", "line "),
    ] {
        let is_option = |line: &str| line.starts_with(&format!("{option} = "));
        let lines = scenario.lines().map(|line| match is_option(line) {
            true => format!("{option} = {value}\n"),
            false => format!("{line}\n"),
        });
        let path = folder.file("impossible.toml", lines.collect::<String>());
        cofferdam(&["replay", &path]).refuses(&["impossible.toml", wanted]);
    }
    let old = folder.file("old.toml", scenario.replace("version = 1", "version = 0"));
    cofferdam(&["replay", &old]).refuses(&["it has version 0, and this build reads versions"]);
    let many = with(&RUN, &["--records", "18446744073709551615"]);
    cofferdam(&many).refuses(&["--records", "at most 10,000,000 records"]);
}

#[test]
fn a_timeout_that_no_checkpoint_can_keep_is_not_drawn() {
    let replay = ["replay", "--job", "random-graph"];
    let tracked =
        ["--guarantee", "at-least-once", "--mechanism", "tracked", "--sink", "plain", "--seed"];
    for (mode, seed) in [
        (&with(&tracked, &["5001379", "--faults", "full"])[..], 5_001_379),
        (&with(&tracked, &["77000688"])[..], 77_000_688),
        (&["--seed", "900030519"][..], 900_030_519),
    ] {
        let done = cofferdam(&with(&replay, mode));
        assert_eq!(done.code, Some(0), "seed {seed}: {done:?}");
    }
}

#[test]
fn a_scenario_of_a_run_in_several_layouts_is_the_same_run_again() {
    let folder = Folder::new("rescaled-repros");
    let repros = folder.path("repros");
    let suite = ["suite", "--job", "wordcount", "--guarantee", "exactly-once", "--sink", "plain"];
    let more = ["--claim", "exactly-once", "--faults", "rescale", "--first-seed", "1"];
    let last = ["--seeds", "8", "--repros", &repros];
    cofferdam(&with(&with(&suite, &more), &last)).exits(1);
    for file in fs::read_dir(Path::new(&repros)).unwrap().flatten() {
        let path = file.path();
        let done = cofferdam(&["replay", path.to_str().unwrap(), "--format", "json"]).exits(1);
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().find(|line| line.starts_with("trace_hash")).unwrap();
        let hash = done.summary()["trace_hash"].as_str().unwrap().to_owned();
        assert!(line.contains(&hash), "{line} and not {hash}");
    }
}

/// Each has shown a mistake of cofferdam, when its schedule was first drawn.
#[test]
fn runs_that_once_went_wrong_hold() {
    let under_tracked = ["--guarantee", "at-least-once", "--mechanism", "tracked"];
    let two_phase = ["--sink", "two-phase", "--faults", "rescale"];
    let windows = ["--window", "tumbling:5s", "--disorder", "5s", "--lateness", "4s"];
    for (job, seed, mode) in [
        // A channel that waited for the barrier of a checkpoint whose abort was not heard of.
        ("random-graph", "5755", vec!["--faults", "full"]),
        // A cancel marker behind the end of a partition.
        ("windows", "938", [&windows[..], &["--sink", "plain", "--faults", "full"]].concat()),
        // A checkpoint that was triggered behind the one to stop at.
        ("wordcount", "599", [under_tracked, two_phase].concat()),
        // An end that tracked barriers had let pass.
        ("rolling-sum", "662", [under_tracked, two_phase].concat()),
        // Last rows of records that touch several keys.
        ("wordcount", "0", vec!["--guarantee", "at-most-once", "--emit", "final"]),
    ] {
        cofferdam(&with(&["replay", "--job", job, "--seed", seed], &mode)).exits(0);
    }
}
