//! `gorgo plugin`: creates a plugin, checks it, lists the loaded ones.

mod check;
mod list;
mod new;
mod trial;

use crate::cmd::Command;
use crate::exit::Exit;

/// Arguments of `gorgo plugin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Plugin {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create a crate for a new plugin, with all that it needs to build offline
    New(new::New),
    /// Check that a library conforms to the plugin interface, in a separate process
    Check(check::Check),
    /// List the plugins of a configuration
    List(list::List),
    /// Load a library and exit: what `serve` and `check` do first, in a separate process
    #[command(hide = true)]
    Trial(trial::Trial),
    /// Run the checks in this process
    #[command(hide = true)]
    Conform(check::Conform),
}

impl Command for Plugin {
    const NAME: &'static str = "plugin";
    const ABOUT: &'static str = "Create, check and list plugins: terms, constraints, objectives";

    fn run(self) -> Exit {
        match self.what {
            What::New(new) => new.run(),
            What::Check(check) => check.run(),
            What::List(list) => list.run(),
            What::Trial(trial) => trial.run(),
            What::Conform(conform) => conform.run(),
        }
    }
}
