//! Output of measuring commands: tables and pages for people, JSON and CSV for programs. Shared by `replay` and
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

/// Message for a file, named by a flag, that cannot be written, and what to do.
pub(crate) fn unwritable(flag: &str, path: &Path, cause: &io::Error) -> String {
    let path = path.display();
    match cause.kind() {
        ErrorKind::NotFound => {
            format!("{flag} {path}: cannot be written because its folder does not exist; create it or name another")
        }
        ErrorKind::IsADirectory => {
            format!("{flag} {path}: cannot be written because it is a folder; name a file in it")
        }
        _ => format!("{flag} {path}: cannot be written: {cause}"),
    }
}
