//! Layout checks: imports point inward, crates keep apart, files stay small, every part has a description.
//!
//! `table.rs` lists what is allowed; the other files check it.

mod dependencies;
mod imports;
mod parts;
pub(crate) mod paths;
mod table;
mod tricks;

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the program's folder is in the workspace").to_owned()
}

/// All files below `folder` with that ending.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files(&path, ending, found);
            }
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
}

/// Every Rust file of the repository, tests and benchmarks too, by its path from the root.
pub(crate) fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root()).expect("the root").flatten() {
        let name = entry.file_name();
        if entry.path().is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            files(&entry.path(), "rs", &mut found);
        }
    }
    assert!(found.len() > 20, "the sources were not found");
    found.sort();
    let named = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        (path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned(), text)
    };
    found.into_iter().map(named).collect()
}
