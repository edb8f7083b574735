//! `gorgo plugin trial FILE`: loads a library and ends. Whoever started it sees how.

use std::path::PathBuf;

use gorgo_plugins::host::inspect;

use crate::exit::Exit;

/// Arguments of `gorgo plugin trial`.
#[derive(Debug, clap::Args)]
pub(super) struct Trial {
    /// The library
    file: PathBuf,
}

impl Trial {
    pub(super) fn run(&self) -> Exit {
        match inspect(&self.file) {
            Ok(_) => Exit::Done,
            Err(cause) => {
                anstream::eprintln!("{cause}");
                Exit::No
            }
        }
    }
}
