//! What is written to the terminal when nobody reads it, and what is said of a command line that
//! can not be read.

use std::io::pipe;
use std::process::{Command, Stdio};

use crate::support::{Folder, cofferdam, command};

/// A pipe that nobody reads.
fn broken() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

fn code(command: &mut Command) -> Option<i32> {
    command.status().unwrap().code()
}

#[test]
fn nobody_has_to_read_what_is_said() {
    let folder = Folder::new("unread");
    let input = folder.file("in.txt", "a\n");
    let output = folder.path("out");
    let run = ["run", "wordcount", "--input", &input, "--output", &output];
    let replay = ["replay", "--job", "seen", "--seed", "1", "--trace"];
    for (words, exit) in [
        (&["jobs"][..], 0),
        (&["jobs", "no-such-job"], 2),
        (&["suite", "--seeds", "x"], 2),
        (&["--help"], 0),
        (&run, 0),
        (&replay, 0),
    ] {
        assert_eq!(code(command(words).stdout(broken()).stderr(broken())), Some(exit), "{words:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_can_not_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let done = command(&["jobs"]).stdout(full).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: standard output: "), "{said}");
    assert_eq!(said.lines().last(), Some("cofferdam jobs"));
}

#[test]
fn a_wrong_command_line_ends_with_the_command_whose_help_tells_more() {
    for (words, command) in [
        (&["suite", "--nonsense"][..], "cofferdam suite --help"),
        (&["suite", "--seeds", "x"], "cofferdam suite --help"),
        (&["run"], "cofferdam run --help"),
        (&["nonsense"], "cofferdam --help"),
        (&[], "cofferdam --help"),
    ] {
        let done = cofferdam(words).exits(2);
        assert_eq!(done.command(), command, "{done:?}");
        assert!(done.err.starts_with("error: ") && done.out.is_empty(), "{done:?}");
        assert!(!done.err.contains("For more information"), "{done:?}");
    }
    for words in [&["replay"][..], &["replay", "--job", "max"], &["replay", "--seed", "1"]] {
        cofferdam(words).refuses(&["give a scenario file, or --job and --seed"]);
    }
    let run = cofferdam(&["run"]).err;
    assert!(run.contains("--output <DIR|sqlite:FILE>") && run.contains("<JOB>"), "{run}");
    assert!(cofferdam(&["suite", "--help"]).exits(0).out.contains("--time-limit"));
    assert!(cofferdam(&["--version"]).exits(0).out.starts_with("cofferdam "));
}

#[test]
fn the_help_of_a_command_says_what_it_asks_for_and_what_holds_without() {
    let help = |command: &str| cofferdam(&[command, "--help"]).exits(0).out;
    let [run, torture, suite, replay, analyze] =
        ["run", "torture", "suite", "replay", "analyze"].map(help);
    for (help, interval) in [(&run, "[default: 1s]"), (&torture, "[default: 20ms]")] {
        let (_, checkpoints) = help.split_once("--checkpoint-interval").unwrap();
        let (_, shown) = checkpoints.split_once("[default").unwrap();
        assert!(shown.starts_with(interval.strip_prefix("[default").unwrap()), "{help}");
        let (_, restarts) = help.split_once("Restarts:").unwrap();
        assert!(restarts.trim_start().starts_with("--restarts"), "{help}");
    }
    for (help, usage) in [
        (&torture, "torture [OPTIONS] --input <FILE> --kills <N> <JOB>"),
        (&replay, "replay [OPTIONS] --job <JOB> --seed <SEED>"),
        (&replay, "replay [OPTIONS] <SCENARIO>"),
        (&analyze, "analyze [OPTIONS] --matrix [JOB]"),
    ] {
        assert!(help.contains(usage), "{help}");
    }
    for help in [&run, &torture, &suite, &replay, &analyze] {
        assert!(help.contains("- tracked:") && help.contains("- write-ahead:"), "{help}");
        assert!(help.contains("analyze --matrix"), "{help}");
    }
    for help in [&suite, &replay, &analyze] {
        assert!(help.contains("Parameters of the jobs:"), "{help}");
    }
}
