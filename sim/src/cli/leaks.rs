//! What lies in the folders of a run that has ended and nothing needs, and what is needed and does
//! not lie there: whatever a run was killed at, the next ones have cleaned up behind it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use cofferdam::runtime::Savepoint;

use crate::cli::exit::Failure;
use crate::jobs::Output;

/// The files that should not be there, or should, in words; `retained` checkpoints are kept at the
/// most.
pub(crate) fn leaks(
    checkpoints: &Path,
    output: &Output,
    retained: usize,
) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let mut complete = Vec::new();
    for name in names(checkpoints)? {
        let path = checkpoints.join(&name);
        if name.starts_with("chk-") {
            check_checkpoint(&path, &mut found)?;
            complete.push(path);
        } else if !is_of_checkpoints(&name) {
            found.push(format!("{}: nothing needs it", path.display()));
        }
    }
    if complete.len() > retained {
        let (folder, count) = (checkpoints.display(), complete.len());
        found.push(format!("{folder}: {count} checkpoints are kept, and not {retained}"));
    }
    match output {
        Output::Folder(folder) => check_output(folder, checkpoints, &mut found)?,
        #[cfg(feature = "sqlite")]
        Output::Sqlite(_) => {}
    }
    Ok(found)
}

/// A checkpoint has its metadata and the parts that it names, and nothing else.
fn check_checkpoint(folder: &Path, found: &mut Vec<String>) -> Result<(), Failure> {
    let Some(metadata) = Savepoint::metadata_at(folder).map_err(Failure::input)? else {
        found.push(format!("{}: it is no complete checkpoint", folder.display()));
        return Ok(());
    };
    let part = |key: String| key.rsplit('/').next().map(|name| format!("{name}.state"));
    let parts = metadata.tasks.iter().filter_map(|handle| part(handle.key.to_string()));
    let needed: BTreeSet<String> = parts.chain(["metadata".to_owned()]).collect();
    let there: BTreeSet<String> = names(folder)?.into_iter().collect();
    let at = |name: &String| folder.join(name).display().to_string();
    found.extend(there.difference(&needed).map(|name| format!("{}: nothing needs it", at(name))));
    found.extend(needed.difference(&there).map(|name| format!("{}: it is missing", at(name))));
    Ok(())
}

fn is_of_checkpoints(name: &str) -> bool {
    ["attempt", "run.json", "completed.json", ".lock"].contains(&name)
        || ["reserved-", "progress-"].iter().any(|start| name.starts_with(start))
}

/// All that is hidden in an output is known: rows that are not shown are not.
fn check_output(folder: &Path, checkpoints: &Path, found: &mut Vec<String>) -> Result<(), Failure> {
    for name in names(folder)? {
        let path = folder.join(&name);
        if path == checkpoints {
            continue;
        }
        let is_note = [".output.json", ".output.lock"].contains(&&*name)
            || name.starts_with(".state.db")
            || [".shown", ".marked", ".flushed"].iter().any(|end| name.ends_with(end));
        if path.is_dir() {
            check_output(&path, checkpoints, found)?;
        } else if name.starts_with('.') && !is_note {
            found.push(format!("{}: nothing needs it", path.display()));
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error| Failure::input(format!("{}: {error}", folder.display()));
    let entries = fs::read_dir(folder).map_err(failed)?;
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names = entries.map(|entry| entry.map(name)).collect::<Result<Vec<_>, _>>();
    if let Ok(names) = &mut names {
        names.sort();
    }
    names.map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn place(name: &str) -> PathBuf {
        let id = std::process::id();
        let place = std::env::temp_dir().join(format!("cofferdam-leaks-{name}-{id}"));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("out/.checkpoints")).unwrap();
        place
    }

    #[test]
    fn what_nothing_needs_is_told_and_what_a_run_keeps_is_not() {
        let place = place("told");
        let output = place.join("out");
        let checkpoints = output.join(".checkpoints");
        for kept in ["attempt", "run.json", "completed.json", ".lock", "reserved-v0-1"] {
            fs::write(checkpoints.join(kept), "").unwrap();
        }
        for kept in ["part-0.ndjson", ".part-0.shown", ".output.json", ".output.lock"] {
            fs::write(output.join(kept), "").unwrap();
        }
        let leaks = || leaks(&checkpoints, &Output::Folder(output.clone()), 1).unwrap();
        assert_eq!(leaks(), [""; 0]);
        fs::create_dir(checkpoints.join("chk-3")).unwrap();
        for left in [".tmp-attempt", "chk-3/t0-a1.state"] {
            fs::write(checkpoints.join(left), "").unwrap();
        }
        fs::write(output.join(".prepared-1-0-7"), "").unwrap();
        let found = leaks();
        for (text, end) in found.iter().zip([
            ".tmp-attempt: nothing needs it",
            "chk-3: it is no complete checkpoint",
            ".prepared-1-0-7: nothing needs it",
        ]) {
            assert!(text.ends_with(end), "{found:?}");
        }
        assert_eq!(found.len(), 3);
        fs::remove_dir_all(place).unwrap();
    }
}
