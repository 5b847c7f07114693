//! `run` into a database: what is not as the runs before have left it is refused.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::support::{
    Done, Folder, cofferdam, command, copy_folder, kill_at, lines_below, named, often, progress,
    start_slowly, with, words,
};

const LINES: usize = 300;

/// How many rows a database holds, as far as it is one.
fn rows(file: &str) -> usize {
    if !Path::new(file).exists() {
        return 0;
    }
    let database = Connection::open(file).unwrap();
    let count = "SELECT count(*) FROM output";
    database.query_row(count, [], |row| row.get(0)).unwrap_or_default()
}

#[test]
fn a_database_that_goes_in_the_middle_is_missed_without_checkpoints_too() {
    let folder = Folder::new("database-gone");
    let input = folder.file("in.txt", words(LINES));
    for (number, (guarantee, mechanism, sink)) in [
        ("exactly-once", "transactional", "idempotent"),
        ("exactly-once", "transactional", "write-ahead"),
        ("exactly-once", "transactional", "plain"),
        ("at-least-once", "acks", "plain"),
        ("at-most-once", "none", "plain"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = folder.path(&format!("out-{number}.db"));
        let output = format!("sqlite:{file}");
        let run = ["run", "wordcount", "--input", &input, "--output", &output];
        let run = with(&run, &["--guarantee", guarantee, "--mechanism", mechanism]);
        let run = with(&run, &["--sink", sink, "--parallelism", "1"]);
        let checkpoints = format!("{file}.checkpoints");
        let has_come_far = || !progress(Path::new(&checkpoints)).is_empty() && rows(&file) > 5;
        kill_at(&run, has_come_far);
        let database = ["", "-wal", "-shm"].map(|ending| format!("{file}{ending}"));
        let bytes = database.each_ref().map(|path| fs::read(path).ok());
        let remove = || database.iter().for_each(|path| drop(fs::remove_file(path)));
        remove();
        cofferdam(&run).refuses(&[&file, "put it back"]);
        // What the refused start has made is not taken for it.
        cofferdam(&run).refuses(&[&file, "put it back"]);
        remove();
        for (path, bytes) in database.iter().zip(bytes) {
            bytes.into_iter().for_each(|bytes| fs::write(path, bytes).unwrap());
        }
        cofferdam(&run).exits(0);
        assert!(rows(&file) >= LINES, "{mechanism} {sink}");
    }
}

/// Replaces all that an output of this name has left in a folder.
fn put(from: &str, into: &str) {
    let left = Path::new(into);
    if left.is_dir() {
        fs::remove_dir_all(left).unwrap();
    }
    copy_folder(Path::new(from), left);
}

#[test]
fn an_output_that_lacks_what_the_state_knows_to_be_shown_is_refused() {
    let folder = Folder::new("older-output");
    let input = folder.file("in.txt", words(LINES));
    let sinks = ["two-phase", "write-ahead"];
    let modes = ["transactional", "aligned"].map(|mechanism| sinks.map(|sink| (mechanism, sink)));
    for (number, (mechanism, sink)) in modes.into_iter().flatten().enumerate() {
        for kind in ["part-", "out.db"] {
            let name = |of: &str| folder.path(&format!("{of}-{number}-{kind}"));
            let (home, checkpoints) = (name("home"), name("checkpoints"));
            fs::create_dir(&home).unwrap();
            let file = format!("{home}/out.db");
            let output = if kind == "out.db" { format!("sqlite:{file}") } else { home.clone() };
            let shown = || rows(&file).max(lines_below(&home).len());
            let run = with(&often(&input, &output), &["--checkpoints", &checkpoints]);
            let run = with(&run, &["--mechanism", mechanism, "--sink", sink]);
            kill_at(&run, || shown() > 5);
            let (older, newer) = (name("older"), name("newer"));
            put(&home, &older);
            // Slow enough for many portions: what is in the last one would be sent again.
            cofferdam(&with(&run, &["--rate", "600"])).exits(0);
            put(&home, &newer);
            put(&older, &home);
            // Of a database that is put back alone the mark beside it says nothing.
            for mark in named(&newer, ".out").into_iter().chain(named(&newer, "out.db.")) {
                fs::copy(&mark, Path::new(&home).join(mark.file_name().unwrap())).unwrap();
            }
            for _ in 0..2 {
                cofferdam(&run).refuses(&[&home, kind, "put", "back"]);
            }
            put(&newer, &home);
            cofferdam(&run).exits(0);
            assert_eq!(rows(&file) + lines_below(&home).len(), 2 * LINES, "{mechanism} {sink}");
        }
    }
}

#[test]
fn the_name_of_a_database_is_a_path_whatever_it_looks_like() {
    let folder = Folder::new("uri");
    let input = folder.file("in.txt", words(20));
    for name in [":memory:", "file:x.db?mode=memory", "file:%78.db", "file::memory:"] {
        let output = format!("sqlite:{name}");
        let run = ["run", "wordcount", "--input", &input, "--output", &output];
        let run = || Done::of(command(&run).current_dir(folder.path("")).output().unwrap());
        run().exits(0);
        // As a path that begins at the root it is no URI.
        assert_eq!(rows(&folder.path(name)), 40, "{name}");
        run().exits(0);
        assert_eq!(rows(&folder.path(name)), 40, "{name}");
    }
    assert!(!Path::new(&folder.path("x.db")).exists());
}

#[test]
#[cfg(unix)]
fn runs_do_not_share_a_database_by_two_names() {
    let folder = Folder::new("two-names");
    let input = folder.file("in.txt", words(2000));
    let [file, link] = ["out.db", "link.db"].map(|name| folder.path(name));
    let [output, other] = [&file, &link].map(|file| format!("sqlite:{file}"));
    let checkpoints = folder.path("checkpoints");
    let run = with(&often(&input, &output), &["--checkpoints", &checkpoints]);
    let mut first = start_slowly(&run, Path::new(&checkpoints));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    cofferdam(&often(&input, &other)).refuses(&[&file, "another run writes"]);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_table_that_no_run_has_made_is_left_alone() {
    let folder = Folder::new("own-table");
    let input = folder.file("in.txt", words(20));
    for (number, made) in [
        "CREATE TABLE output (key, value)",
        "CREATE TABLE output (key PRIMARY KEY, value)",
        "CREATE VIEW output AS SELECT 1 AS key, 2 AS value",
    ]
    .into_iter()
    .enumerate()
    {
        for sink in ["idempotent", "plain", "two-phase", "write-ahead"] {
            let file = folder.path(&format!("{sink}-{number}.db"));
            Connection::open(&file).unwrap().execute_batch(made).unwrap();
            let output = format!("sqlite:{file}");
            let run = with(&often(&input, &output), &["--sink", sink]);
            cofferdam(&run).refuses(&[&file, "output", "no run has made", "another file"]);
            assert_eq!(rows(&file), usize::from(number == 2));
        }
    }
}
