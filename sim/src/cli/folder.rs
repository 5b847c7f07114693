//! What a run leaves beside its checkpoints, so that no later run takes them for its own: which job
//! it was, in which mode, with which parameters, over which files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{self, Path, PathBuf};

use cofferdam::runtime::Resume;
use serde::{Deserialize, Serialize};

use crate::cli::exit::Failure;
use crate::cli::mode::Mode;
use crate::jobs::{BuiltinJob, Parameters};

/// What has to be the same for a run to go on from another's checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Description {
    job: String,
    #[serde(flatten)]
    mode: Mode,
    parallelism: usize,
    parameters: Vec<(String, String)>,
    input: Vec<PathBuf>,
}

impl Description {
    pub(crate) fn new(
        job: &dyn BuiltinJob,
        mode: Mode,
        parallelism: usize,
        parameters: &Parameters,
        input: &[PathBuf],
    ) -> Self {
        let owned = |(flag, value): (&str, &str)| (flag.to_owned(), value.to_owned());
        let absolute = |path: &PathBuf| path::absolute(path).unwrap_or_else(|_| path.clone());
        Self {
            job: job.name().to_owned(),
            mode,
            parallelism,
            parameters: parameters.iter().map(owned).collect(),
            input: input.iter().map(absolute).collect(),
        }
    }

    /// The first thing in which `self` differs from what was there `before`.
    fn difference(&self, before: &Self) -> String {
        let mut pairs = before.texts().into_iter().zip(self.texts());
        let pair = pairs.find(|(before, now)| before != now);
        let (before, now) = pair.unwrap_or_else(|| ("other parameters".into(), "these".into()));
        format!("{before}, not with {now}")
    }

    /// Every part as on a command line.
    fn texts(&self) -> Vec<String> {
        let input: Vec<_> = self.input.iter().map(|path| path.to_string_lossy()).collect();
        let mut texts = vec![
            format!("job {}", self.job),
            format!("--guarantee {}", self.mode.guarantee),
            format!("--mechanism {}", self.mode.mechanism),
            format!("--sink {}", self.mode.sink),
            format!("--parallelism {}", self.parallelism),
            format!("--input {}", input.join(" ")),
        ];
        texts.extend(self.parameters.iter().map(|(flag, value)| format!("--{flag} {value}")));
        texts
    }
}

/// Checks that a run that is described like this may work in the folder of `checkpoints`, which is
/// locked for it, and leaves the description there.
pub(crate) fn settle(
    checkpoints: &Path,
    output: &Path,
    resume: &Resume,
    described: &Description,
) -> Result<(), Failure> {
    let path = checkpoints.join(NAME);
    match (resume, read(&path)?) {
        (Resume::Latest, Some(before)) if before == *described => return Ok(()),
        (Resume::Latest, Some(before)) if holds_work(checkpoints) => {
            return Err(Failure::input(format!(
                "{}: these checkpoints were made with {}: give the same, or other folders for \
                 --output and --checkpoints",
                checkpoints.display(),
                described.difference(&before)
            )));
        }
        (Resume::Latest | Resume::Never, _) => refuse_old_output(output)?,
        (Resume::From(_), _) => {}
    }
    write(&path, described)
}

/// Whether something lies there that a run could go on from.
fn holds_work(checkpoints: &Path) -> bool {
    let Ok(entries) = fs::read_dir(checkpoints) else { return false };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.into_iter().any(|name| name.starts_with("chk-") || name.starts_with("reserved-"))
}

/// A run from the start would add its output to what is there: everything would seem doubled.
pub(crate) fn refuse_old_output(output: &Path) -> Result<(), Failure> {
    let Ok(entries) = fs::read_dir(output) else { return Ok(()) };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| name.starts_with("part-") && name.ends_with(".ndjson")).min() {
        Some(name) => Err(Failure::input(format!(
            "--output {}: {name} of another run is there, and this one begins at the start of the \
             input: remove it or name another folder",
            output.display()
        ))),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Description>, Failure> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Failure::input(format!("{}: {error}", path.display())))?,
    };
    let described = serde_json::from_slice(&text);
    described
        .map(Some)
        .map_err(|error| Failure::input(format!("{}: it is damaged: {error}", path.display())))
}

/// Writes the description as a whole or not at all.
fn write(path: &Path, described: &Description) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(described).expect("a description is plain data");
    let temporary = path.with_file_name(format!(".{NAME}"));
    let replace = || {
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    replace().map_err(|error: io::Error| Failure::input(format!("{}: {error}", path.display())))
}

const NAME: &str = "run.json";
