//! `run` with savepoints, `savepoint` and `state`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::*;

const LINES: usize = 300;

fn text(folder: &Folder) -> (String, BTreeMap<String, u64>) {
    let lines: Vec<String> =
        (0..LINES).map(|number| format!("all w{} w{}", number % 7, number % 40)).collect();
    let mut counts = BTreeMap::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    (folder.file("in.txt", lines.join("\n")), counts)
}

/// Counts words into `out`, with checkpoints in `out-chk`.
fn count(folder: &Folder, input: &str, out: &str, more: &[&str]) -> Done {
    let (output, checkpoints) = (folder.path(out), folder.path(&format!("{out}-chk")));
    let args = ["run", "wordcount", "--input", input, "--output", &output];
    cofferdam(&[&args[..], &["--checkpoints", &checkpoints], more].concat())
}

fn changes(folder: &Folder, outputs: &[&str]) -> Vec<(String, u64)> {
    let mut rows = Vec::new();
    for output in outputs {
        for entry in fs::read_dir(folder.path(output)).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_str().unwrap().starts_with("part-") {
                for line in fs::read_to_string(path).unwrap().lines() {
                    let row: Value = serde_json::from_str(line).unwrap();
                    let key = row["key"].as_str().unwrap().to_owned();
                    rows.push((key, row["value"].as_u64().unwrap()));
                }
            }
        }
    }
    rows.sort();
    rows
}

fn every_change(counts: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let of_word = |(word, count): (&String, &u64)| {
        let word = word.clone();
        (1..=*count).map(move |so_far| (word.clone(), so_far))
    };
    counts.iter().flat_map(of_word).collect()
}

#[test]
fn a_run_stops_with_a_savepoint_and_another_one_goes_on_with_other_parallelism_and_backend() {
    let folder = Folder::new("savepoint-go-on");
    let (input, counts) = text(&folder);
    let savepoint = folder.path("sp");
    let stop = ["--stop-after", "100", "--savepoint", &savepoint, "--parallelism", "3"];
    let done = count(&folder, &input, "a", &[&stop[..], &["--backend", "memory"]].concat());
    let done = done.exits(0);
    assert!(done.err.contains("--checkpoints: nothing is put there"), "{}", done.err);
    assert!(done.err.contains("the savepoint is in"), "{}", done.err);
    assert_eq!(changes(&folder, &["a"]).len(), 300);
    count(&folder, &input, "b", &["--parallelism", "2", "--resume", &savepoint]).exits(0);
    assert_eq!(changes(&folder, &["a", "b"]), every_change(&counts));
}

#[test]
fn a_run_goes_on_into_the_same_output_from_its_savepoint_and_not_twice() {
    let folder = Folder::new("savepoint-same-output");
    let (input, counts) = text(&folder);
    let savepoint = folder.path("sp");
    let output = folder.path("a");
    let stop = ["--stop-after", "100", "--savepoint", &savepoint];
    count(&folder, &input, "a", &stop).exits(0);
    let go_on = |checkpoints: &str| {
        let checkpoints = folder.path(checkpoints);
        cofferdam(&[
            "run",
            "wordcount",
            "--input",
            &input,
            "--output",
            &output,
            "--checkpoints",
            &checkpoints,
            "--resume",
            &savepoint,
            "--parallelism",
            "3",
        ])
    };
    go_on("other").exits(0);
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
    let again = go_on("third").exits(2);
    assert!(again.err.contains("committed after this savepoint"), "{}", again.err);
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
}

#[test]
fn the_parallelism_of_a_run_that_was_stopped_may_change() {
    let folder = Folder::new("savepoint-elastic");
    let (input, counts) = text(&folder);
    let stop = ["--stop-after", "100", "--savepoint", &folder.path("sp")];
    count(&folder, &input, "a", &[&stop[..], &["--parallelism", "4"]].concat()).exits(0);
    count(&folder, &input, "a", &["--parallelism", "3"]).exits(0);
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
    count(&folder, &input, "a", &["--parallelism", "1"]).exits(0);
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
    let refused = count(&folder, &input, "a", &["--sink", "plain"]).exits(2);
    assert!(refused.err.contains("--sink two-phase, not with --sink plain"), "{}", refused.err);
}

#[test]
fn every_damaged_file_of_a_savepoint_is_named_and_left_as_it_is() {
    let folder = Folder::new("savepoint-damaged");
    let (input, _) = text(&folder);
    let savepoint = folder.path("sp");
    count(&folder, &input, "a", &["--stop-after", "100", "--savepoint", &savepoint]).exits(0);
    let files: Vec<PathBuf> =
        fs::read_dir(&savepoint).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4 + 2);
    for file in files {
        let good = fs::read(&file).unwrap();
        let flipped = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x40;
            bytes
        };
        let cut = good[..good.len() - 1].to_vec();
        for bad in [flipped(0), flipped(good.len() / 2), flipped(good.len() - 1), cut, vec![]] {
            fs::write(&file, &bad).unwrap();
            let done = count(&folder, &input, "b", &["--resume", &savepoint]).exits(2);
            let name = file.file_name().unwrap().to_str().unwrap();
            assert!(done.err.contains(&format!("sp/{name}: ")), "{}", done.err);
            assert_eq!(fs::read(&file).unwrap(), bad);
        }
        fs::write(&file, good).unwrap();
    }
}

#[test]
fn state_show_prints_every_key_with_its_value_and_all_else_by_its_kind() {
    let folder = Folder::new("state-show");
    let (input, _) = text(&folder);
    let savepoint = folder.path("sp");
    count(&folder, &input, "a", &["--stop-after", "70", "--savepoint", &savepoint]).exits(0);
    let done = cofferdam(&["state", "show", &savepoint, "--format", "json"]).exits(0);
    let rows = done.rows();
    let keyed: BTreeMap<&str, u64> = rows
        .iter()
        .filter_map(|row| Some((row.get("key")?.as_str()?, row.get("value")?.as_u64()?)))
        .collect();
    assert_eq!(keyed.values().sum::<u64>(), 3 * 70);
    assert_eq!(keyed["all"], 70);
    let splits = rows.iter().filter(|row| row.get("kind").is_some_and(|kind| kind == "split"));
    assert_eq!(splits.map(|row| row["records"].as_u64().unwrap()).sum::<u64>(), 70);
    let others = rows.iter().filter(|row| row.get("kind").is_some());
    assert!(others.clone().all(|row| row.get("key").is_none() && row.get("value").is_none()));

    // A checkpoint of the run shows the same keys.
    let list = cofferdam(&["savepoint", "list", &folder.path("a-chk"), "--format", "json"]);
    let rows = list.exits(0).rows();
    let checkpoint = rows[0]["path"].as_str().unwrap();
    let done = cofferdam(&["state", "show", checkpoint, "--format", "json"]).exits(0);
    let shown = done.rows();
    let of_checkpoint = shown.iter().filter(|row| row.get("key").is_some());
    assert_eq!(of_checkpoint.count(), keyed.len());
}

#[test]
fn an_edited_savepoint_is_a_new_one_and_a_run_goes_on_with_its_values() {
    let folder = Folder::new("savepoint-edit");
    let (input, counts) = text(&folder);
    let [savepoint, edited] = ["sp", "edited"].map(|name| folder.path(name));
    count(&folder, &input, "a", &["--stop-after", "100", "--savepoint", &savepoint]).exits(0);
    let edit = |key: &str, more: &[&str]| {
        let args = ["savepoint", "edit", &savepoint, &edited, "--operator", "fold", "--key", key];
        cofferdam(&[&args[..], more].concat())
    };
    let done = edit("\"nobody\"", &["--remove"]).exits(2);
    assert!(done.err.contains("the operator 'fold': it has no key \"nobody\""), "{}", done.err);
    let done = edit("7", &["--set", "1"]).exits(2);
    assert!(done.err.contains("the operator 'fold': it has no key 7"), "{}", done.err);
    edit("\"all\"", &["--set", "1000"]).exits(0);
    count(&folder, &input, "b", &["--resume", &edited]).exits(0);
    let rows = changes(&folder, &["b"]);
    let last = rows.iter().filter(|(word, _)| word == "all").map(|(_, count)| *count).max();
    assert_eq!(last, Some(1000 + counts["all"] - 100));
    // The savepoint is still one of the run that stopped there, and of its output.
    count(&folder, &input, "a", &["--resume", &edited]).exits(0);
    edit("\"all\"", &["--remove"]).exits(2);
    fs::remove_dir_all(&edited).unwrap();
    for wrong in ["\"many\"", "-1", "1.5", "null", "18446744073709551616"] {
        let done = edit("\"all\"", &["--set", wrong]).exits(2);
        assert!(done.err.contains("'fold'"), "{}", done.err);
    }
    edit("\"all\"", &["--remove"]).exits(0);
    let shown = cofferdam(&["state", "show", &edited, "--format", "json"]).exits(0);
    assert!(!shown.out.contains("\"key\":\"all\""));

    // Words that are not there yet are found by the job, in whatever subtask.
    for word in ["w39", "w38", "w37", "w36", "w35"] {
        let emptied = folder.path(&format!("no-{word}"));
        let key = format!("\"{word}\"");
        let edit = |from: &str, to: &str, more: &[&str]| {
            let args = ["savepoint", "edit", from, to, "--operator", "fold", "--key", &key];
            cofferdam(&with(&args, more)).exits(0);
        };
        edit(&savepoint, &emptied, &["--remove"]);
        let added = folder.path(&format!("added-{word}"));
        edit(&emptied, &added, &["--set", "1000"]);
        let output = format!("out-{word}");
        count(&folder, &input, &output, &["--resume", &added]).exits(0);
        let rows = changes(&folder, &[&output]);
        assert!(rows.iter().any(|(of, count)| of == word && *count == 1001), "{rows:?}");
        assert!(!rows.contains(&(word.to_owned(), 1)));
    }
}

#[test]
fn a_value_is_set_in_the_form_in_which_it_is_shown() {
    let folder = Folder::new("savepoint-edit-form");
    let rows: String = (0..60).map(|at| format!("k{},{at},{}\n", at % 3, i64::MAX)).collect();
    let input = folder.file("in.csv", format!("key,time_s,value\n{rows}"));
    let run = |out: &str, more: &[&str]| {
        let output = folder.path(out);
        let args = ["run", "windows", "--input", &input, "--output", &output];
        cofferdam(&[&args[..], &["--window", "tumbling:20s"], more].concat()).exits(0)
    };
    let [savepoint, edited] = ["sp", "edited"].map(|name| folder.path(name));
    run("a", &["--stop-after", "30", "--savepoint", &savepoint]);
    let shown = cofferdam(&["state", "show", &savepoint, "--format", "json"]).exits(0).rows();
    let is_large =
        |row: &&Value| row.get("key").is_some() && row["value"].to_string().contains('"');
    let large = shown.iter().find(is_large).expect("a sum has more than 64 bits");
    let [key, value] = ["key", "value"].map(|of| large[of].to_string());
    let set = ["--operator", "sums", "--key", &key, "--set", &value];
    cofferdam(&[&["savepoint", "edit", &savepoint, &edited][..], &set].concat()).exits(0);
    run("b", &["--resume", &savepoint]);
    run("c", &["--resume", &edited]);
    assert_eq!(lines_below(folder.path("b")), lines_below(folder.path("c")));
}

#[test]
fn a_run_that_was_killed_where_it_was_to_begin_is_told_how_it_began() {
    let folder = Folder::new("savepoint-begins");
    let (input, _) = text(&folder);
    let savepoint = folder.path("sp");
    count(&folder, &input, "a", &["--stop-after", "100", "--savepoint", &savepoint]).exits(0);
    count(&folder, &input, "a", &["--resume", &savepoint]).exits(0);
    let checkpoints = PathBuf::from(folder.path("a-chk"));
    let complete = fs::read_dir(&checkpoints).unwrap().map(|entry| entry.unwrap().path());
    complete.filter(|path| path.is_dir()).for_each(|path| fs::remove_dir_all(path).unwrap());
    let done = count(&folder, &input, "a", &[]).exits(2);
    assert!(done.err.contains(&format!("give --resume {savepoint} again")), "{}", done.err);
}

#[test]
fn what_a_savepoint_can_not_be_taken_of_or_restored_into_is_said() {
    let folder = Folder::new("savepoint-refused");
    let (input, _) = text(&folder);
    let savepoint = folder.path("sp");
    let stop = ["--stop-after", "100", "--savepoint", &savepoint];
    for (mode, text) in [
        (["--guarantee", "at-most-once"], "the mechanism none has no state to put into"),
        (["--mechanism", "transactional"], "the mechanism transactional has no state to put into"),
    ] {
        let done = count(&folder, &input, mode[1], &[&stop[..], &mode].concat()).exits(2);
        assert!(done.err.contains(text), "{}", done.err);
    }
    count(&folder, &input, "a", &stop).exits(0);
    let taken = count(&folder, &input, "b", &stop).exits(2);
    assert!(taken.err.contains("something is there already"), "{}", taken.err);
    let ads = "{\"campaign\":\"c\",\"price_micros\":5,\"event_id\":1}\n";
    let ads = folder.file("ads.ndjson", ads);
    let output = folder.path("ads");
    let other = ["run", "ad-billing", "--input", &ads, "--output", &output, "--resume", &savepoint];
    let done = cofferdam(&other).exits(2);
    assert!(done.err.contains("the job 'wordcount', not to 'ad-billing'"), "{}", done.err);
    cofferdam(&[&other[..], &["--allow-non-restored"]].concat()).exits(0);
    let among = folder.path("c-chk/deep/sp");
    let stop = ["--stop-after", "100", "--savepoint", &among];
    let done = count(&folder, &input, "c", &stop).exits(2);
    assert!(done.err.contains("c-chk is for the run's own checkpoints"), "{}", done.err);
    let wide = ["--resume", &savepoint, "--parallelism", "200"];
    let done = count(&folder, &input, "wide", &wide).exits(2);
    assert!(done.err.contains("128 at the most, and 'lines -> split' has 200"), "{}", done.err);
}

#[test]
fn a_checkpoint_above_the_limit_of_memory_is_refused_by_operator_size_and_limit() {
    let folder = Folder::new("backend-limit");
    let (input, counts) = text(&folder);
    let small = ["--backend", "memory", "--memory-limit", "300", "--restarts", "none"];
    let done = count(&folder, &input, "a", &small);
    assert_eq!(done.code, Some(1), "{done:?}");
    let words = ["'fold -> out' (t", " bytes", "the limit of 300", "keep checkpoints in files"];
    words.iter().for_each(|word| assert!(done.err.contains(word), "{}", done.err));
    let large = ["--backend", "memory", "--snapshots", "sync", "--format", "json"];
    let done = count(&folder, &input, "b", &large).exits(0);
    assert_eq!(changes(&folder, &["b"]), every_change(&counts));
    let summary = done.summary();
    for field in ["checkpoint_mean_ms", "checkpoint_max_ms", "checkpoint_sync_max_ms"] {
        assert!(summary[field].as_f64().unwrap() > 0.0, "{field}: {summary}");
    }
}

/// Waits for the end of a run that was started slowly.
fn end_of(child: Child) -> Done {
    Done::of(child.wait_with_output().unwrap())
}

#[test]
fn rows_and_a_table_are_not_mixed_behind_a_savepoint() {
    let folder = Folder::new("mixed");
    let input = folder.file("in.txt", words(100));
    let kinds = ["", "sqlite:"].iter().filter(|kind| cfg!(feature = "sqlite") || kind.is_empty());
    for (number, kind) in kinds.enumerate() {
        for (before, now) in [
            ("two-phase", "idempotent"),
            ("plain", "idempotent"),
            ("idempotent", "two-phase"),
            ("idempotent", "write-ahead"),
        ] {
            let name = |of: &str| folder.path(&format!("{number}-{before}-{now}-{of}"));
            let [first, second, savepoint] = ["first", "second", "sp"].map(name);
            let [output, other] = ["out", "other"].map(|of| format!("{kind}{}", name(of)));
            let stop = ["--sink", before, "--checkpoints", &first, "--stop-after", "50"];
            let run = with(&often(&input, &output), &stop);
            cofferdam(&with(&run, &["--savepoint", &savepoint])).exits(0);
            let go_on = ["--sink", now, "--checkpoints", &second, "--resume", &savepoint];
            cofferdam(&with(&often(&input, &output), &go_on)).refuses(&[
                &savepoint,
                &format!("--sink {before}"),
                &format!("--sink {now}"),
                "another --output",
            ]);
            cofferdam(&with(&often(&input, &other), &go_on)).exits(0);
        }
    }
}

/// The words of a run over `input` with its folders in `folder`.
fn slow_run<'a>(input: &'a str, output: &'a str, checkpoints: &'a str) -> Vec<&'a str> {
    with(&often(input, output), &["--checkpoints", checkpoints])
}

#[test]
fn a_savepoint_is_taken_by_command_of_a_job_that_runs_and_then_it_is_stopped() {
    let folder = Folder::new("savepoint-take");
    let (input, counts) = text(&folder);
    let [output, checkpoints, first, second] =
        ["a", "a-chk", "first", "second"].map(|name| folder.path(name));
    let run = slow_run(&input, &output, &checkpoints);
    let child = start_slowly(&run, checkpoints.as_ref());
    let take = |savepoint: &str, more: &[&str]| {
        let args = ["savepoint", "take", "--job-folder", &checkpoints, savepoint];
        cofferdam(&with(&args, more))
    };
    let done = take(&first, &["--format", "json"]).exits(0);
    assert_eq!(done.summary()["stopped"], false);
    take(&first, &[]).refuses(&["no savepoint was taken", "something is there already"]);
    let done = take(&second, &["--stop"]).exits(0);
    assert!(done.out.contains("the job has stopped"), "{}", done.out);
    end_of(child).exits(0);
    assert_eq!(named(&checkpoints, ".savepoint-"), Vec::<PathBuf>::new());
    let stopped = changes(&folder, &["a"]);
    assert!(stopped.len() < 900 && stopped.len().is_multiple_of(3), "{}", stopped.len());
    take(&folder.path("third"), &[]).refuses(&["no run uses these checkpoints", "convert"]);

    // The first one is a fork: nothing may go on from it into the output of the run.
    let go_on = |savepoint: &str, output: &str, name: &str| {
        let checkpoints = folder.path(name);
        let run = slow_run(&input, output, &checkpoints);
        cofferdam(&with(&run, &["--resume", savepoint, "--parallelism", "3"]))
    };
    let refused = go_on(&first, &output, "b-chk").exits(2);
    assert!(refused.err.contains("went on, and commits rows"), "{}", refused.err);
    go_on(&first, &folder.path("b"), "b-chk").exits(0);
    let fork = changes(&folder, &["b"]);
    let last = |rows: &[(String, u64)]| rows.iter().filter(|(word, _)| word == "all").count();
    assert!(last(&fork) < 300 && fork.contains(&("all".to_owned(), 300)), "{fork:?}");
    go_on(&second, &output, "c-chk").exits(0);
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
}

#[test]
fn a_savepoint_that_a_killed_run_owes_is_whole_or_not_there() {
    let folder = Folder::new("savepoint-killed");
    let (input, counts) = text(&folder);
    let [output, checkpoints] = ["a", "a-chk"].map(|name| folder.path(name));
    let run = slow_run(&input, &output, &checkpoints);
    for number in 0..6_u64 {
        let mut child = start_slowly(&run, checkpoints.as_ref());
        let savepoint = folder.path(&format!("sp{number}"));
        let take = ["savepoint", "take", "--job-folder", &checkpoints, &savepoint];
        let take = command(&take).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(number * 12));
        child.kill().unwrap();
        child.wait().unwrap();
        let done = end_of(take);
        let shown = cofferdam(&["state", "show", &savepoint, "--format", "json"]);
        match done.code {
            // It was answered, so it is whole.
            Some(0) => drop(shown.exits(0)),
            // Nobody knows whether it was written, but never by halves.
            _ => {
                assert!(done.err.contains("no run uses these checkpoints"), "{done:?}");
                let index = std::path::Path::new(&savepoint).join("savepoint");
                assert_eq!(shown.code == Some(0), index.is_file(), "{shown:?}");
            }
        }
    }
    // Left by somebody who was killed as well.
    let orphan = folder.file("a-chk/.savepoint-0-0", "{\"wanted\":{}}");
    cofferdam(&run).exits(0);
    assert!(!std::path::Path::new(&orphan).exists());
    assert_eq!(named(&checkpoints, ".savepoint-"), Vec::<PathBuf>::new());
    assert_eq!(changes(&folder, &["a"]), every_change(&counts));
}
