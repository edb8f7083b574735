//! `gorgo plugin trial FILE`: loads a library and exits. The parent process reads the result from its exit status.

use std::path::PathBuf;

use gorgo_plugins::host::inspect;

use crate::exit::CommandExit;

/// Arguments of `gorgo plugin trial`.
#[derive(Debug, clap::Args)]
pub(super) struct PluginTrialArgs {
    /// Library to load
    file: PathBuf,
}

impl PluginTrialArgs {
    pub(super) fn run(&self) -> CommandExit {
        match inspect(&self.file) {
            Ok(_) => CommandExit::Done,
            Err(cause) => {
                anstream::eprintln!("{cause}");
                CommandExit::Negative
            }
        }
    }
}
