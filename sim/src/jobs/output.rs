//! Where the sinks of a job write.

use std::fmt;
use std::path::{self, Path, PathBuf};
use std::str::FromStr;

/// A place for the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Files in this folder: those of the sink `out` in the folder itself, those of any other sink
    /// in a folder of its name.
    Folder(PathBuf),
    /// Tables in the SQLite database in this file: `output` for the sink `out`, and for any other
    /// sink a table of its name.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
}

impl Output {
    /// Where the checkpoints of a run that writes here lie unless another folder is named.
    pub fn checkpoints(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(".checkpoints"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => beside(file, ".checkpoints"),
        }
    }

    /// Where the store of external state of such a run lies unless another file is named.
    pub fn state(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(".state.db"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => beside(file, ".state"),
        }
    }

    /// The file that a run holds locked while it writes here.
    pub fn lock(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(".output.lock"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => beside(file, ".output.lock"),
        }
    }

    /// The file that says which run writes here.
    pub fn mark(&self) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(".output.json"),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => beside(file, ".output.json"),
        }
    }

    /// The same place, by a name that means it from everywhere.
    #[must_use]
    pub fn absolute(&self) -> Self {
        let absolute = |path: &PathBuf| {
            path.canonicalize().or_else(|_| path::absolute(path)).unwrap_or_else(|_| path.clone())
        };
        match self {
            Self::Folder(folder) => Self::Folder(absolute(folder)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => Self::Sqlite(absolute(file)),
        }
    }
}

impl From<&Path> for Output {
    fn from(folder: &Path) -> Self {
        Self::Folder(folder.to_owned())
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(file) => write!(f, "{SQLITE}{}", file.display()),
        }
    }
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix(SQLITE) {
            None if text.is_empty() => Err("name a folder".to_owned()),
            None => Ok(Self::Folder(text.into())),
            #[cfg(feature = "sqlite")]
            Some("") => Err(format!("name the file of the database behind {SQLITE}")),
            #[cfg(feature = "sqlite")]
            Some(file) => Ok(Self::Sqlite(file.into())),
            #[cfg(not(feature = "sqlite"))]
            Some(_) => Err("this program was built without the feature 'sqlite'".to_owned()),
        }
    }
}

#[cfg(feature = "sqlite")]
fn beside(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// What stands before the file of a database.
pub(crate) const SQLITE: &str = "sqlite:";
