//! What measuring commands print: tables and pages for people, JSON and CSV for programs. Shared by `replay` and
//! `simulate`.

pub(crate) mod csv;
pub(crate) mod folder;
pub(crate) mod json;
pub(crate) mod number;
pub(crate) mod page;
pub(crate) mod plot;
pub(crate) mod table;

use std::io::{self, ErrorKind};
use std::path::Path;

/// Why the file that a flag names cannot be written, and what to do.
pub(crate) fn unwritable(flag: &str, path: &Path, cause: &io::Error) -> String {
    let path = path.display();
    match cause.kind() {
        ErrorKind::NotFound => {
            format!("{flag} {path}: cannot be written, its folder is absent; make it or name another")
        }
        ErrorKind::IsADirectory => format!("{flag} {path}: cannot be written, that is a folder; name a file in it"),
        _ => format!("{flag} {path}: cannot be written: {cause}"),
    }
}
