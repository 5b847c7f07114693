//! What the tests of all commands share: how the program is called and what it came to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// A folder of one test, removed at its end.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("cofferdam-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        fs::write(self.0.join(name), bytes).unwrap();
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Every row of JSON.
    pub(crate) fn rows(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The last row of JSON.
    pub(crate) fn summary(&self) -> Value {
        self.rows().pop().unwrap()
    }

    /// The last line of standard error, which has to be a command to paste if something failed.
    pub(crate) fn command(&self) -> &str {
        let last = self.err.lines().last().unwrap();
        assert!(last.starts_with("cofferdam "), "{self:?}");
        last
    }

    /// Exit code 2, one sentence that has all these words, and a command as the last line. Notes on
    /// what was asked for may stand before it.
    pub(crate) fn refuses(self, words: &[&str]) {
        let done = self.exits(2);
        let sentences = done.err.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(sentences.count(), 1, "{done:?}");
        for word in words {
            assert!(done.err.contains(word), "'{word}' is missing: {done:?}");
        }
        assert!(!done.err.contains("panicked"), "{done:?}");
        done.command();
    }
}

pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.args(words).stdin(Stdio::null());
    command
}

pub(crate) fn cofferdam(words: &[&str]) -> Done {
    Done::of(command(words).output().unwrap())
}

pub(crate) fn with<'a>(words: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [words, more].concat()
}

/// How often each line stands in the part files below a folder.
pub(crate) fn lines_below(folder: impl AsRef<Path>) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if name.starts_with("part-") && name.ends_with(".ndjson") {
            for line in fs::read_to_string(path).unwrap().lines() {
                *lines.entry(line.to_owned()).or_default() += 1;
            }
        }
    }
    lines
}

/// Waits for something that another process does.
pub(crate) fn wait_until(what: &str, is_there: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_there() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: waited in vain");
}

/// Each of `n` lines holds a word of its own and one that all share.
pub(crate) fn words(n: usize) -> String {
    (0..n).map(|line| format!("w{line} all\n")).collect()
}

/// The words of a run that takes a checkpoint as often as it can.
pub(crate) fn often<'a>(input: &'a str, output: &'a str) -> Vec<&'a str> {
    let run = ["run", "wordcount", "--input", input, "--output", output];
    with(&run, &["--checkpoint-interval", "20ms"])
}

/// Starts a run that takes its time, far more than a busy machine can keep the tests waiting, until
/// it, or one before it, has come so far that the next one goes on from there.
pub(crate) fn start_slowly(run: &[&str], checkpoints: &Path) -> Child {
    start_slowly_until(run, || !progress(checkpoints).is_empty())
}

pub(crate) fn start_slowly_until(run: &[&str], is_there: impl Fn() -> bool) -> Child {
    let slow = with(run, &["--rate", "20"]);
    let mut command = command(&slow);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("a sign of progress", is_there);
    child
}

/// What says how far runs have come: complete checkpoints and reserved positions.
pub(crate) fn progress(checkpoints: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(checkpoints).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| match entry.file_name().to_str().unwrap() {
        name if name.starts_with("chk-") => Some(entry.path().join("metadata")),
        name if name.starts_with("reserved-") => Some(entry.path()),
        _ => None,
    });
    files.filter_map(|file| Some((file.clone(), fs::read(file).ok()?))).collect()
}

/// The paths in a folder whose names begin like this.
pub(crate) fn named(folder: impl AsRef<Path>, start: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let named = entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(start));
    named.map(|entry| entry.path()).collect()
}

/// The complete checkpoints, the newest last.
pub(crate) fn complete(checkpoints: &Path) -> Vec<PathBuf> {
    let number = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.strip_prefix("chk-").unwrap().parse::<u64>().unwrap()
    };
    let mut complete = match checkpoints.is_dir() {
        true => named(checkpoints, "chk-"),
        false => Vec::new(),
    };
    complete.retain(|path| path.join("metadata").is_file());
    complete.sort_by_key(number);
    complete
}

/// Starts the run, kills it when it has `wanted`, and waits for its end.
pub(crate) fn kill_at(run: &[&str], wanted: impl Fn() -> bool) {
    let mut child = start_slowly_until(run, wanted);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "it had not come to its end");
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        match entry.path() {
            path if path.is_dir() => copy_folder(&path, &to),
            path => drop(fs::copy(path, to).unwrap()),
        }
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
