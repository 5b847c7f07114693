//! Rows that are kept under a name, and what has changed since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};

use super::row::Row;
use super::runs::Contender;
use super::workload::Contents;
use crate::cli::exit::Failure;
use crate::cli::folder::replace;
use crate::cli::output::Console;
use crate::cli::simulated::build;

/// What has to be the same for two comparisons to be comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Settings {
    pub(super) job: String,
    pub(super) input: Contents,
    /// Those that are not the defaults.
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) parallelism: usize,
    pub(super) checkpoint_interval_ms: f64,
    /// What each access to state that is external took besides.
    pub(super) state_latency_ms: Option<f64>,
}

/// A folder of kept comparisons.
pub(super) struct Baselines<'a> {
    folder: &'a Path,
}

/// One of them.
#[derive(Debug, Deserialize)]
pub(super) struct Baseline {
    #[serde(skip)]
    name: String,
    settings: Settings,
    build: String,
    machine: String,
    rows: Vec<KeptRow>,
}

/// What is looked at of a kept row.
#[derive(Debug, Deserialize)]
struct KeptRow {
    #[serde(flatten)]
    contender: Contender,
    relative: Option<f64>,
}

/// What is written of a comparison.
#[derive(Serialize)]
struct Kept<'a> {
    schema: &'static str,
    settings: &'a Settings,
    build: String,
    machine: String,
    rows: &'a [Row],
}

/// What has changed.
#[derive(Debug, Serialize)]
pub(super) struct Changes {
    pub(super) against: String,
    pub(super) regression: f64,
    pub(super) of_modes: Vec<Change>,
}

/// By how much the ratio to no guarantee of a mode has changed.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    #[serde(flatten)]
    pub(super) contender: Contender,
    pub(super) before: f64,
    pub(super) now: f64,
    /// As a part of what it was.
    pub(super) change: f64,
    pub(super) is_slower: bool,
}

impl Settings {
    /// Each with its name.
    fn in_words(&self) -> [(&'static str, String); 6] {
        let parameters = self.parameters.iter().map(|(flag, value)| format!("--{flag} {value}"));
        let parameters: Vec<String> = parameters.collect();
        let latency = self.state_latency_ms.map_or("none".to_owned(), |ms| format!("{ms} ms"));
        [
            ("the job", self.job.clone()),
            ("the input", self.input.to_string()),
            ("what the job was told", format!("'{}'", parameters.join(" "))),
            ("the parallelism", self.parallelism.to_string()),
            ("the checkpoint interval", format!("{} ms", self.checkpoint_interval_ms)),
            ("the latency of state", latency),
        ]
    }
}

impl<'a> Baselines<'a> {
    pub(super) fn new(folder: &'a Path) -> Self {
        Self { folder }
    }

    /// Reads the one with this name.
    pub(super) fn read(&self, name: &str) -> Result<Baseline, Failure> {
        let path = self.path(name);
        let failed = |text: String| Failure::input(format!("--against {name}: {text}"));
        if !path.exists() {
            let folder = self.folder.display();
            return Err(failed(match self.names().as_slice() {
                [] => format!("nothing was saved in {folder} yet: use --save NAME first"),
                names => format!("it is not in {folder}, but {} is", names.join(", ")),
            }));
        }
        let at = |error: String| failed(format!("{}: {error}", path.display()));
        let bytes = fs::read(&path).map_err(|error| at(error.to_string()))?;
        let read: Baseline = serde_json::from_slice(&bytes)
            .map_err(|error| at(format!("not what --save has left: {error}")))?;
        Ok(Baseline { name: name.to_owned(), ..read })
    }

    /// Keeps rows. Those of a comparison in which something failed are no measure for others.
    pub(super) fn save(
        &self,
        name: &str,
        settings: &Settings,
        rows: &[Row],
        console: &Console,
    ) -> Result<(), Failure> {
        if rows.iter().any(Row::has_failed) {
            console.note(format!("--save {name}: nothing was saved, since a mode has failed"));
            return Ok(());
        }
        let path = self.path(name);
        let kept = Kept { schema: SCHEMA, settings, build: build(), machine: machine(), rows };
        let text = serde_json::to_vec_pretty(&kept).expect("rows have texts for keys");
        let written = fs::create_dir_all(self.folder).and_then(|()| replace(&path, &text));
        let failed = |error| Failure::input(format!("--save {name}: {}: {error}", path.display()));
        written.map_err(failed)?;
        console.note(format!("saved in {}", path.display()));
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder).into_iter().flatten().flatten();
        let name = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(".json").filter(|name| !name.starts_with('.')).map(str::to_owned)
        };
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        names
    }
}

impl Baseline {
    /// Refuses what is not comparable.
    pub(super) fn check(
        &self,
        settings: &Settings,
        contenders: &[Contender],
    ) -> Result<(), Failure> {
        let refuse = |what: &str, was: &str, is: &str| {
            let text = format!(
                "--against {}: it is not comparable: {what} was {was}, and is {is} now",
                self.name
            );
            Err(Failure::input(text))
        };
        let was = &self.settings;
        let differing = [was, settings].map(Settings::in_words);
        let [was, is] = &differing;
        let first = was.iter().zip(is).find(|(was, is)| was != is);
        if let Some(((what, was), (_, is))) = first {
            return refuse(what, was, is);
        }
        let is_known = |contender: &Contender| self.before(*contender).is_some();
        // The first one is what the others are compared with: its ratio is always one.
        if !contenders.iter().skip(1).any(is_known) {
            let text = format!("--against {}: it has none of the modes of this one", self.name);
            return Err(Failure::input(text));
        }
        Ok(())
    }

    /// Says what may explain a change.
    pub(super) fn warn(&self, console: &Console) {
        let own = [("build", &self.build, build()), ("machine", &self.machine, machine())];
        for (what, was, is) in own.iter().filter(|(_, was, is)| *was != is) {
            console.note(format!(
                "--against {}: it comes from another {what}: {was}, and this one is {is}",
                self.name
            ));
        }
    }

    /// What has changed since. A mode is slower if its ratio has fallen by more than `regression`.
    pub(super) fn changes(&self, rows: &[Row], regression: f64) -> Changes {
        let change = |row: &Row| {
            let (before, now) = (self.before(row.contender)?, row.relative?);
            let change = now / before - 1.0;
            let is_slower = change < -regression;
            Some(Change { contender: row.contender, before, now, change, is_slower })
        };
        let of_modes = rows.iter().skip(1).filter_map(change).collect();
        Changes { against: self.name.clone(), regression, of_modes }
    }

    fn before(&self, contender: Contender) -> Option<f64> {
        self.rows.iter().find(|row| row.contender == contender)?.relative
    }
}

impl Changes {
    /// What is slower, in a sentence, if anything is.
    pub(super) fn slower(&self) -> Option<String> {
        let slower: Vec<&Change> = self.of_modes.iter().filter(|change| change.is_slower).collect();
        let worst = slower.iter().min_by(|a, b| a.change.total_cmp(&b.change))?;
        Some(format!(
            "slower than {}: {} by {:.1} % (of its ratio to no guarantee){}",
            self.against,
            worst.contender,
            -worst.change * 100.0,
            match slower.len() {
                1 => String::new(),
                others => format!(", and {} more", others - 1),
            }
        ))
    }
}

/// The machine, as far as it decides how fast something is.
pub(super) fn machine() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    format!("{} {model}, {cores} cores", std::env::consts::OS)
}

/// Reads a name that can be that of a file.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("a name has letters, digits, '-', '_' and '.', the last not first".to_owned()),
    }
}

/// Reads a percentage, as a part of one.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    let number = number.filter(|number| (0.0..100.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| "not a percentage such as 10%".to_owned())
}

const SCHEMA: &str = "cofferdam.compare.baseline/1";
