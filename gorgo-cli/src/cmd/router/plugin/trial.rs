//! `gorgo plugin trial FILE`: loads a library and exits. The parent process reads the result from its exit status.

use std::path::PathBuf;

use gorgo_plugins::host::inspect;

use crate::exit::Exit;

/// Arguments of `gorgo plugin trial`.
#[derive(Debug, clap::Args)]
pub(super) struct Trial {
    /// Library to load
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
