//! `run` over what earlier runs have left: what would lose rows or show them twice is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::support::{
    Folder, cofferdam, complete, copy_folder, kill_at, lines_below, named, often, progress,
    start_slowly, start_slowly_until, text, wait_until, with, words,
};

const LINES: usize = 300;

/// The newest checkpoint by what a run has left in its output.
fn noted(output: &str) -> String {
    let mark = fs::read(Path::new(output).join(".output.json")).unwrap();
    let mark: serde_json::Value = serde_json::from_slice(&mark).unwrap();
    format!("chk-{}", mark["checkpoint"])
}

#[test]
fn a_checkpoint_is_resumed_only_by_the_run_that_it_was_taken_of() {
    let folder = Folder::new("other-mode");
    let (input, output) = (folder.file("in.txt", words(LINES)), folder.path("out"));
    let run = with(&often(&input, &output), &["--retain", "3"]);
    let checkpoints = Path::new(&output).join(".checkpoints");
    kill_at(&run, || complete(&checkpoints).len() > 2 && !named(&output, "part-").is_empty());
    let newest = complete(&checkpoints).pop().unwrap();
    let other = folder.path("other");
    for into in [&output, &other] {
        let run = with(&often(&input, into), &["--resume", text(&newest)]);
        for (more, wanted) in [
            (&["--sink", "plain"][..], "--sink two-phase, not with --sink plain"),
            (&["--sink", "write-ahead"], "--sink two-phase"),
            (&["--guarantee", "at-least-once"], "--guarantee exactly-once"),
            (&["--emit", "final"], "--emit changes"),
            (&["--emit", "final", "--allow-non-restored"], "--emit changes"),
        ] {
            cofferdam(&with(&run, more)).refuses(&[text(&newest), wanted]);
        }
    }
    let copy = folder.file("copy.txt", words(LINES));
    let run = with(&often(&copy, &output), &["--resume", text(&newest), "--parallelism", "3"]);
    cofferdam(&run).exits(0);
    let lines = lines_below(&output);
    assert_eq!((lines.len(), lines.values().sum::<u64>()), (2 * LINES, 2 * LINES as u64));
}

#[test]
fn the_newest_checkpoint_is_missed_and_nothing_is_removed_before_that_is_said() {
    let folder = Folder::new("newest");
    let input = folder.file("in.txt", words(LINES));
    for retain in ["1", "3"] {
        let output = folder.path(retain);
        let run = with(&often(&input, &output), &["--retain", retain]);
        let checkpoints = Path::new(&output).join(".checkpoints");
        let wanted: usize = retain.parse().unwrap();
        let is_there =
            || complete(&checkpoints).len() >= wanted && !named(&output, "part-").is_empty();
        kill_at(&run, is_there);
        let newest = || complete(&checkpoints).pop().unwrap();
        // A kill may come before the newest one is noted; nothing rests on it then.
        while !newest().ends_with(noted(&output)) {
            kill_at(&run, || newest().ends_with(noted(&output)));
        }
        let newest = newest();
        let metadata = newest.join("metadata");
        let bytes = fs::read(&metadata).unwrap();
        fs::remove_file(&metadata).unwrap();
        let parts = fs::read_dir(&newest).unwrap().count();
        assert!(parts > 0);
        cofferdam(&run).refuses(&[text(&metadata), "put it back"]);
        assert_eq!(fs::read_dir(&newest).unwrap().count(), parts, "the evidence is left alone");
        fs::write(&metadata, bytes).unwrap();
        cofferdam(&run).exits(0);
        let lines = lines_below(&output);
        assert_eq!((lines.len(), lines.values().sum::<u64>()), (2 * LINES, 2 * LINES as u64));
    }
}

#[test]
fn what_others_keep_in_a_folder_of_checkpoints_is_left_alone() {
    let folder = Folder::new("foreign");
    let (input, output) = (folder.file("in.txt", words(20)), folder.path("out"));
    let foreign = folder.path("checkpoints/chk-5");
    fs::create_dir_all(&foreign).unwrap();
    let precious = Path::new(&foreign).join("precious");
    fs::write(&precious, "mine").unwrap();
    fs::write(Path::new(&foreign).join("t0-a1.state"), "left by a crash").unwrap();
    let checkpoints = folder.path("checkpoints");
    cofferdam(&with(&often(&input, &output), &["--checkpoints", &checkpoints])).exits(0);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "what a crash left is removed");
}

#[test]
fn a_backup_of_the_checkpoints_that_is_behind_the_output_is_refused() {
    let folder = Folder::new("backup");
    let input = folder.file("in.txt", words(LINES));
    for guarantee in ["exactly-once", "at-most-once"] {
        let output = folder.path(guarantee);
        let run = with(&often(&input, &output), &["--guarantee", guarantee]);
        let checkpoints = Path::new(&output).join(".checkpoints");
        let has_rows = || !lines_below(&output).is_empty() && !progress(&checkpoints).is_empty();
        kill_at(&run, has_rows);
        let backup = PathBuf::from(folder.path(&format!("{guarantee}-backup")));
        copy_folder(&checkpoints, &backup);
        // Rows alone say nothing: those of the old checkpoint may become visible only now.
        let come_to = || match guarantee {
            "exactly-once" => noted(&output),
            _ => format!("{:?}", lines_below(&output)),
        };
        let newest = complete(&backup).pop().map(|path| path.file_name().unwrap().to_owned());
        let before = come_to();
        // A start notes the newest one that it finds.
        let is_further = |now: &str| now != before && newest.as_ref().is_none_or(|old| old != now);
        kill_at(&run, || is_further(&come_to()));
        let lines = lines_below(&output);
        if let Some(old) = complete(&backup).pop() {
            cofferdam(&with(&run, &["--resume", text(&old)])).refuses(&[text(&old), "twice"]);
        }
        let newer = folder.path(&format!("{guarantee}-newer"));
        fs::rename(&checkpoints, &newer).unwrap();
        copy_folder(&backup, &checkpoints);
        cofferdam(&run).refuses(&[text(&checkpoints), "put", "back"]);
        assert_eq!(lines_below(&output), lines);
        fs::remove_dir_all(&checkpoints).unwrap();
        fs::rename(&newer, &checkpoints).unwrap();
        cofferdam(&run).exits(0);
        // What all share is counted anew where state is lost.
        let mut lines = lines_below(&output);
        lines.retain(|line, _| !line.contains("\"all\""));
        assert!(lines.values().all(|times| *times == 1), "{guarantee}");
    }
}

#[test]
fn output_that_goes_before_the_end_is_missed() {
    let folder = Folder::new("missed-early");
    let input = folder.file("in.txt", words(LINES));
    for mode in [
        &["--sink", "two-phase"][..],
        &["--sink", "write-ahead"],
        &["--mechanism", "transactional"],
        &["--guarantee", "at-most-once"],
    ] {
        let output = folder.path(mode[1]);
        let run = with(&often(&input, &output), mode);
        let parts = || match Path::new(&output).is_dir() {
            true => named(&output, "part-"),
            false => Vec::new(),
        };
        let wanted = if mode[1] == "at-most-once" { 2 } else { 6 };
        // A file without rows is not missed.
        let has_rows = |part: &PathBuf| fs::metadata(part).is_ok_and(|file| file.len() > 0);
        kill_at(&run, || parts().iter().filter(|part| has_rows(part)).count() >= wanted);
        // The oldest one: the newest of a write-ahead sink may not be marked yet, and comes again.
        let part = parts().into_iter().min().unwrap();
        let bytes = fs::read(&part).unwrap();
        fs::remove_file(&part).unwrap();
        cofferdam(&run).refuses(&[text(&part), "put the file back"]);
        fs::write(&part, bytes).unwrap();
        cofferdam(&with(&run, &["--rate", "5000"])).exits(0);
    }
}

#[test]
fn output_of_other_checkpoints_and_an_output_that_is_gone_are_refused() {
    let folder = Folder::new("mark");
    let input = folder.file("in.txt", words(LINES));
    let (output, checkpoints) = (folder.path("out"), folder.path("checkpoints"));
    let run = with(&often(&input, &output), &["--checkpoints", &checkpoints]);
    kill_at(&run, || !complete(Path::new(&checkpoints)).is_empty());
    let moved = folder.path("moved");
    fs::rename(&output, &moved).unwrap();
    cofferdam(&run).refuses(&[&output, "put it back"]);
    fs::remove_dir_all(&output).unwrap();
    fs::rename(&moved, &output).unwrap();
    cofferdam(&run).exits(0);
}

#[test]
fn an_output_that_is_behind_its_checkpoints_is_refused() {
    let folder = Folder::new("old-output");
    let input = folder.file("in.txt", words(LINES));
    let (output, checkpoints) = (folder.path("out"), folder.path("checkpoints"));
    let run = with(&often(&input, &output), &["--checkpoints", &checkpoints]);
    let run = with(&run, &["--sink", "write-ahead"]);
    kill_at(&run, || !lines_below(&output).is_empty());
    let backup = folder.path("backup");
    copy_folder(Path::new(&output), Path::new(&backup));
    let completed = || fs::read(Path::new(&checkpoints).join("completed.json")).unwrap();
    let before = completed();
    kill_at(&run, || completed() != before);
    let newer = folder.path("newer");
    fs::rename(&output, &newer).unwrap();
    fs::rename(&backup, &output).unwrap();
    cofferdam(&run).refuses(&[&output, "older than the checkpoints", "put it back"]);
    fs::remove_dir_all(&output).unwrap();
    fs::rename(&newer, &output).unwrap();
    cofferdam(&run).exits(0);
    let lines = lines_below(&output);
    assert_eq!((lines.len(), lines.values().sum::<u64>()), (2 * LINES, 2 * LINES as u64));
}

#[test]
fn an_output_that_was_moved_goes_on_where_it_lies_and_one_of_another_run_does_not() {
    let folder = Folder::new("moved");
    let input = folder.file("in.txt", words(LINES));
    for (number, mode) in [
        &["--sink", "two-phase"][..],
        &["--mechanism", "transactional"],
        &["--sink", "plain", "--guarantee", "at-most-once"],
        #[cfg(feature = "sqlite")]
        &["--state", "external-transactional"],
    ]
    .into_iter()
    .enumerate()
    {
        for apart in [false, true] {
            let name = |of: &str| folder.path(&format!("{of}-{number}-{apart}"));
            let [output, moved, other, checkpoints] = ["out", "moved", "other", "chk"].map(name);
            let place = ["--checkpoints", &checkpoints];
            let mode = if apart { with(&place, mode) } else { mode.to_vec() };
            let into = |output| with(&often(&input, output), &mode);
            kill_at(&into(&output), || lines_below(&output).len() > 5);
            fs::rename(&output, &moved).unwrap();
            cofferdam(&with(&often(&input, &other), &["--rate", "5000"])).exits(0);
            if apart {
                let words = [&*checkpoints, "--output", ".output.json", "moved with it"];
                cofferdam(&into(&other)).refuses(&words);
                cofferdam(&into(&output)).refuses(&[&output, "it is gone", "--output"]);
            }
            cofferdam(&into(&moved)).exits(0);
            // In its new place it is known as well, and a run that is done does nothing.
            let lines = lines_below(&moved);
            cofferdam(&into(&moved)).exits(0);
            assert_eq!(lines_below(&moved), lines);
            let is_exact = !mode.contains(&"at-most-once");
            assert!(!is_exact || lines.len() == 2 * LINES, "{mode:?}: {}", lines.len());
        }
    }
}

fn dies(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn two_runs_do_not_share_an_output() {
    let folder = Folder::new("shared-output");
    let input = folder.file("in.txt", words(2000));
    let outputs = [
        folder.path("out"),
        #[cfg(feature = "sqlite")]
        format!("sqlite:{}", folder.path("out.db")),
    ];
    for (number, output) in outputs.iter().enumerate() {
        let [one, two] = ["one", "two"].map(|name| folder.path(&format!("{name}-{number}")));
        let run = often(&input, output);
        let first = start_slowly(&with(&run, &["--checkpoints", &one]), Path::new(&one));
        let second = with(&run, &["--checkpoints", &two]);
        cofferdam(&second).refuses(&[output, "another run writes"]);
        cofferdam(&with(&run, &["--backend", "memory"])).refuses(&[output, "another run writes"]);
        dies(first);
        let third = with(&run, &["--checkpoints", &one, "--rate", "100000"]);
        cofferdam(&third).exits(0);
    }
}

#[test]
fn runs_in_memory_do_not_share_an_output_either() {
    let folder = Folder::new("shared-memory");
    let (input, output) = (folder.file("in.txt", words(2000)), folder.path("out"));
    let run = with(&often(&input, &output), &["--backend", "memory"]);
    let first = start_slowly_until(&run, || Path::new(&output).is_dir());
    wait_until("the first file", || fs::read_dir(&output).unwrap().count() > 1);
    cofferdam(&run).refuses(&[&output, "another run writes"]);
    dies(first);
}

#[test]
fn what_can_not_be_meant_is_refused_before_anything_runs() {
    let folder = Folder::new("meant");
    let (input, output) = (folder.file("in.txt", words(20)), folder.path("out"));
    let run = often(&input, &output);
    cofferdam(&["run", "wordcount", "--input", &input, "--output", ""]).refuses(&["--output"]);
    let splits = ["--splits", "18446744073709551615"];
    cofferdam(&with(&run, &splits)).refuses(&["--splits", "at most 100000"]);
    assert!(!Path::new(&output).exists());
    cofferdam(&with(&run, &["--workers", "1000000"])).exits(0);
    let around = Path::new(&input).parent().unwrap().join("out/../in.txt");
    let run = ["run", "wordcount", "--input", text(&around), "--output", &output];
    cofferdam(&run).exits(0);
}
