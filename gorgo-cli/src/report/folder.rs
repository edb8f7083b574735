//! `--out-dir`: a separate folder for the files of each run, so that no run overwrites another's.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A folder that was made for one run.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Creates the folder and the folders above it; an existing one is refused.
    pub(crate) fn make(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        // `create_dir` for the last part, not `create_dir_all`, because that one accepts an existing folder.
        let above = path.parent().map_or(Ok(()), fs::create_dir_all);
        above.and_then(|()| fs::create_dir(path)).map_err(|cause| match cause.kind() {
            ErrorKind::AlreadyExists => {
                format!("--out-dir {shown}: already exists; name a new folder for each run")
            }
            _ => format!("--out-dir {shown}: cannot be created: {cause}"),
        })?;
        Ok(Self { path: path.to_owned() })
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_once() {
        let at = tempfile::tempdir().unwrap();
        let path = at.path().join("runs").join("apr5");
        let folder = RunFolder::make(&path).unwrap();
        assert!(path.is_dir() && folder.file("run.json").ends_with("apr5/run.json"));
        let again = RunFolder::make(&path).unwrap_err();
        assert!(again.ends_with("apr5: already exists; name a new folder for each run"), "{again}");
    }
}
