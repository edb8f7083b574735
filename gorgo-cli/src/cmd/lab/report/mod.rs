//! `gorgo report`: looks at earlier results again. `compare` puts two runs side by side.
//!
//! Exit code: 0 done, 1 the two runs cannot be compared, 2 a command line or file that cannot be used.

mod compare;
mod run;

use std::io::Write as _;

use crate::cmd::CliCommand;
use crate::exit::CommandExit;

/// Arguments of `gorgo report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    #[command(subcommand)]
    what: ReportCommand,
}

/// Report to make.
#[derive(Debug, clap::Subcommand)]
enum ReportCommand {
    /// Put two runs written by `gorgo replay --json` or `gorgo simulate --json` side by side
    Compare(compare::CompareArgs),
}

impl CliCommand for ReportArgs {
    const NAME: &'static str = "report";
    const ABOUT: &'static str = "Put two runs of `replay` or `simulate` side by side";

    fn run(self) -> CommandExit {
        let ReportCommand::Compare(compare) = self.what;
        match compare.compared() {
            Ok((text, exit)) => {
                // A closed pipe is ignored: the exit code still has the answer.
                let _ = anstream::stdout().write_all(text.as_bytes());
                exit
            }
            Err(error) => {
                anstream::eprintln!("gorgo report: {error}");
                CommandExit::Usage
            }
        }
    }
}
