//! `gorgo plugin`: creates a plugin, checks it, lists the loaded ones.

mod check;
mod list;
mod new;
mod trial;

use crate::cmd::CliCommand;
use crate::exit::CommandExit;

/// Arguments of `gorgo plugin`.
#[derive(Debug, clap::Args)]
pub(crate) struct PluginArgs {
    #[command(subcommand)]
    what: PluginCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PluginCommand {
    /// Create a crate for a new plugin, with all that it needs to build offline
    New(new::PluginNewArgs),
    /// Check that a library conforms to the plugin interface, in a separate process
    Check(check::PluginCheckArgs),
    /// List the plugins of a configuration
    List(list::PluginListArgs),
    /// Load a library and exit: what `serve` and `check` do first, in a separate process
    #[command(hide = true)]
    Trial(trial::PluginTrialArgs),
    /// Run the checks in this process
    #[command(hide = true)]
    Conform(check::ConformArgs),
}

impl CliCommand for PluginArgs {
    const NAME: &'static str = "plugin";
    const ABOUT: &'static str = "Create, check and list plugins: terms, constraints, objectives";

    fn run(self) -> CommandExit {
        match self.what {
            PluginCommand::New(new) => new.run(),
            PluginCommand::Check(check) => check.run(),
            PluginCommand::List(list) => list.run(),
            PluginCommand::Trial(trial) => trial.run(),
            PluginCommand::Conform(conform) => conform.run(),
        }
    }
}
