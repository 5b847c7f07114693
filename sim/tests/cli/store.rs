//! `run` over a store of keyed state outside of the tasks: one that is not what the checkpoints
//! rest on is refused.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{
    Folder, cofferdam, complete, copy_folder, kill_at, lines_below, often, text, with, words,
};

const LINES: usize = 300;

/// A run that keeps its state in a folder of its own.
struct Kept {
    folder: Folder,
    input: String,
    output: String,
    state: &'static str,
    sink: &'static str,
    store: String,
}

impl Kept {
    fn new(name: &str, state: &'static str, sink: &'static str) -> Self {
        let folder = Folder::new(&format!("{name}-{state}"));
        let (input, output) = (folder.file("in.txt", words(LINES)), folder.path("out"));
        ["state", "nothing"].iter().for_each(|name| fs::create_dir(folder.path(name)).unwrap());
        let store = format!("sqlite:{}", folder.path("state/store.db"));
        Self { folder, input, output, state, sink, store }
    }

    fn run(&self) -> Vec<&str> {
        let run = often(&self.input, &self.output);
        with(&run, &["--state", self.state, "--state-store", &self.store, "--sink", self.sink])
    }

    /// Kills the run when it has completed two checkpoints more.
    fn go_on(&self) {
        let checkpoints = Path::new(&self.output).join(".checkpoints");
        let newest = || complete(&checkpoints).pop();
        let (first, run) = (newest(), self.run());
        kill_at(&run, || newest() != first);
        let second = newest();
        kill_at(&run, || newest() != second);
    }

    fn folder_of_store(&self) -> PathBuf {
        self.folder.path("state").into()
    }

    /// Puts what is in another folder in the place of the store.
    fn put(&self, other: &str) {
        fs::remove_dir_all(self.folder_of_store()).unwrap();
        copy_folder(Path::new(&self.folder.path(other)), &self.folder_of_store());
    }

    fn keep(&self, name: &str) {
        copy_folder(&self.folder_of_store(), Path::new(&self.folder.path(name)));
    }

    fn refuses(&self, words: &[&str]) {
        let before = lines_below(&self.output);
        let file = self.folder.path("state/store.db");
        cofferdam(&self.run()).refuses(&with(&[&file, "put", "back"], words));
        assert_eq!(lines_below(&self.output), before);
    }
}

#[test]
fn a_store_of_state_that_is_not_the_one_the_checkpoints_rest_on_is_refused() {
    for state in ["external", "external-transactional"] {
        let kept = Kept::new("not-the-one", state, "two-phase");
        kept.go_on();
        kept.keep("older");
        kept.go_on();
        kept.keep("right");
        let other = Kept { output: kept.folder.path("other"), ..kept };
        other.put("nothing");
        other.go_on();
        other.keep("foreign");
        let kept = Kept { output: other.folder.path("out"), ..other };

        fs::remove_dir_all(kept.folder_of_store()).unwrap();
        fs::create_dir(kept.folder_of_store()).unwrap();
        kept.refuses(&["is gone"]);
        assert_eq!(fs::read_dir(kept.folder_of_store()).unwrap().count(), 0, "nothing is made");
        kept.put("older");
        kept.refuses(&["older"]);
        kept.put("foreign");
        kept.refuses(&["another run"]);
        kept.put("right");
        for log in ["store.db-wal", "store.db-shm"] {
            fs::remove_file(kept.folder_of_store().join(log)).unwrap();
        }
        kept.refuses(&["-wal"]);

        kept.put("right");
        let run = kept.run();
        cofferdam(&run).exits(0);
        let lines = lines_below(&kept.output);
        if state == "external-transactional" {
            assert_eq!((lines.len(), lines.values().sum::<u64>()), (2 * LINES, 2 * LINES as u64));
        }
        cofferdam(&run).exits(0);
        fs::remove_file(kept.folder_of_store().join("store.db")).unwrap();
        kept.refuses(&["is gone"]);
    }
}

#[test]
fn a_store_of_state_is_no_other_runs_beginning() {
    let kept = Kept::new("beginning", "external", "plain");
    kept.go_on();
    kept.keep("right");
    // Nothing but the store is there.
    fs::remove_dir_all(&kept.output).unwrap();
    cofferdam(&kept.run()).refuses(&["store.db", "state of another run"]);
    // Of a run that was killed before its first checkpoint its store may go; that of another run
    // is not taken for it.
    kept.put("nothing");
    let rarely = |word| if word == "20ms" { "1h" } else { word };
    let run: Vec<&str> = kept.run().into_iter().map(rarely).collect();
    kill_at(&run, || !lines_below(&kept.output).is_empty());
    kept.put("right");
    kept.refuses(&["another run"]);
    kept.put("nothing");
    cofferdam(&kept.run()).exits(0);
}

#[test]
fn a_store_of_state_that_can_not_be_used_is_refused_before_anything_runs() {
    let folder = Folder::new("no-store");
    let (input, output) = (folder.file("in.txt", words(20)), folder.path("out"));
    let run = |file: &str| {
        let store = format!("sqlite:{file}");
        let run = often(&input, &output);
        cofferdam(&with(&run, &["--state", "external", "--state-store", &store]))
    };
    let none = folder.path("none/state.db");
    run(&none).refuses(&["--state-store", &none, "folder has to be there", "or name another"]);
    let no_database = folder.file("text.db", "not a database. ".repeat(100));
    run(&no_database).refuses(&["--state-store", &no_database, "not a SQLite database", "name"]);
    let is_folder = folder.path("");
    run(&is_folder).refuses(&["--state-store", text(Path::new(&is_folder)), "name another"]);
    assert_eq!(fs::read(&no_database).unwrap(), "not a database. ".repeat(100).as_bytes());
    run(&folder.path("state.db")).exits(0);
}
