//! `gorgo trace`: makes traces, cuts them, and describes them.
//!
//! Exit code: 0 done, 2 a command line or file that cannot be used, 74 a history database that cannot be used.

mod from_db;
mod generate;
mod output;
mod profiles;
mod slice;
mod stats;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use gorgo_lab::trace::generate::{ParameterError, ServeGenError};
use gorgo_lab::trace::{self, TraceError};
use gorgo_store::StoreError;

pub(super) use self::from_db::read as stored_requests;
use crate::cmd::CliCommand;
use crate::exit::CommandExit;

/// Arguments of `gorgo trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    what: TraceCommand,
}

/// Action on traces.
#[derive(Debug, clap::Subcommand)]
enum TraceCommand {
    /// Make a synthetic trace from a named profile and a seed
    Generate(generate::GenerateArgs),
    /// Describe a trace: rate, burstiness, lengths, reuse, sessions
    Stats(stats::StatsArgs),
    /// Cut a part out of a trace
    Slice(slice::SliceArgs),
    /// Convert a router's history to a trace, without any hash or text
    FromDb(from_db::FromDbArgs),
    /// List the profiles to generate from, or all numbers of one
    Profiles(profiles::ProfilesArgs),
}

/// Error: the action failed.
#[derive(Debug, thiserror::Error)]
enum TraceCommandError {
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error("{}: {cause}", path.display())]
    Read { path: PathBuf, cause: TraceError },
    #[error("{}: {cause}", path.display())]
    Tables { path: PathBuf, cause: ServeGenError },
    #[error("unknown profile {name:?}; known: {known}, and servegen:MODEL with --tables FOLDER")]
    Profile { name: String, known: String },
    #[error("--set: {0}")]
    Set(#[from] ParameterError),
    #[error("{0}")]
    Arguments(&'static str),
    #[error(
        "--from-s {from_s}: ServeGen's tables of this model have no traffic there; they cover {first_s} to {last_s} s"
    )]
    NoTraffic { from_s: f64, first_s: f64, last_s: f64 },
    #[error("no request to write: all were dropped or left out")]
    Nothing,
    #[error("cannot write: {0}")]
    Output(io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl TraceCommandError {
    const fn exit(&self) -> CommandExit {
        match self {
            Self::Store(_) => CommandExit::Store,
            _ => CommandExit::Usage,
        }
    }
}

impl CliCommand for TraceArgs {
    const NAME: &'static str = "trace";
    const ABOUT: &'static str = "Make, cut and describe traces";

    fn run(self) -> CommandExit {
        let done = match self.what {
            TraceCommand::Generate(generate) => generate.run(),
            TraceCommand::Stats(stats) => stats.run(),
            TraceCommand::Slice(slice) => slice.run(),
            TraceCommand::FromDb(from_db) => from_db.run(),
            TraceCommand::Profiles(profiles) => profiles.run(),
        };
        match done {
            Ok(text) => {
                // A closed pipe is ignored, as with `head`.
                let _ = anstream::stdout().write_all(text.as_bytes());
                CommandExit::Done
            }
            Err(error) => {
                anstream::eprintln!("gorgo trace: {error}");
                error.exit()
            }
        }
    }
}

/// Reads a trace file.
fn read(path: &Path, block_tokens: Option<u32>) -> Result<trace::RecordedTrace, TraceCommandError> {
    let bytes = std::fs::read(path).map_err(|cause| TraceCommandError::File { path: path.to_owned(), cause })?;
    trace::read(&bytes, block_tokens).map_err(|cause| TraceCommandError::Read { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests;
