//! What `run` leaves of checkpoints and savepoints, and whose they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;

/// Every file below a folder with its bytes.
fn files(folder: impl AsRef<Path>) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let of = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => [(path.clone(), fs::read(&path).unwrap())].into(),
    };
    entries.flat_map(of).collect()
}

#[test]
fn rule_111_checkpoints_stay_or_go_as_a_run_ends() {
    for (when, wanted) in [
        ("always", [true, true]),
        ("on-cancel", [false, true]),
        ("on-failure", [false, false]),
        ("never", [false, false]),
    ] {
        let folder = Folder::new(&format!("retention-{when}"));
        let input = folder.file("in.txt", words(100));
        let [finished, cancelled] = ["finished", "cancelled"].map(|name| folder.path(name));
        let run = |output| with(&often(&input, output), &["--keep-checkpoints", when]);
        cofferdam(&run(&finished)).exits(0);
        let checkpoints = Path::new(&cancelled).join(".checkpoints");
        let child = start_slowly(&run(&cancelled), &checkpoints);
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let done = Done::of(child.wait_with_output().unwrap()).exits(130);
        let says_gone = done.err.contains("the checkpoints are gone");
        assert_eq!(says_gone, !wanted[1], "{}", done.err);
        let is_kept = [&finished, &cancelled].map(|output| {
            let checkpoints = Path::new(output).join(".checkpoints");
            assert_eq!(checkpoints.exists(), !files(&checkpoints).is_empty(), "not even a folder");
            checkpoints.exists()
        });
        assert_eq!(is_kept, wanted, "{when}");
        match wanted[1] {
            true => drop(cofferdam(&run(&cancelled)).exits(0)),
            // Its rows would be written again.
            false if named(&cancelled, "part-").is_empty() => {}
            false => cofferdam(&run(&cancelled)).refuses(&["part-", "of another run is there"]),
        }
    }
}

#[test]
fn rule_112_what_is_claimed_is_moved_and_what_is_not_stays_as_it_is() {
    let folder = Folder::new("claim");
    let input = folder.file("in.txt", words(100));
    let savepoint = folder.path("sp");
    let first = folder.path("first");
    let stop = ["--stop-after", "50", "--savepoint", &savepoint];
    // The rows of another sink would have to be where the checkpoint says that they are.
    let discards = ["--sink", "discard"];
    cofferdam(&with(&with(&often(&input, &first), &discards), &stop)).exits(0);
    let checkpoint = named(Path::new(&first).join(".checkpoints"), "chk-").remove(0);
    let checkpoint = checkpoint.to_str().unwrap();
    for (place, name) in [(&*savepoint, "s"), (checkpoint, "c")] {
        let before = files(place);
        let go_on = |mode: &str| {
            let output = folder.path(&format!("{name}-{mode}"));
            let resume = ["--resume", place, "--claim-mode", mode];
            cofferdam(&with(&with(&often(&input, &output), &discards), &resume)).exits(0);
        };
        go_on("no-claim");
        assert_eq!(files(place), before);
        go_on("claim");
        assert!(!Path::new(place).exists());
    }
    let run = often(&input, &first);
    cofferdam(&with(&run, &["--claim-mode", "claim"])).refuses(&["--claim-mode", "--resume"]);
}

#[test]
fn a_checkpoint_in_the_folder_of_the_run_is_the_runs() {
    let folder = Folder::new("claim-own");
    let input = folder.file("in.txt", words(100));
    let output = folder.path("out");
    let run = often(&input, &output);
    cofferdam(&run).exits(0);
    let checkpoints = Path::new(&output).join(".checkpoints");
    let checkpoint = named(&checkpoints, "chk-").remove(0);
    let before = files(&checkpoint);
    let resume = ["--resume", checkpoint.to_str().unwrap(), "--claim-mode", "no-claim"];
    let refused = cofferdam(&with(&run, &resume));
    refused.refuses(&["in the run's own store is the run's", "another place"]);
    assert_eq!(files(&checkpoint), before);
}
