//! `gorgo report`: looks at earlier results again. `compare` puts two runs side by side.
//!
//! Exit code: 0 done, 1 the two runs cannot be compared, 2 a command line or file that cannot be used.

mod compare;
mod run;

use std::io::Write as _;

use crate::cmd::Command;
use crate::exit::Exit;

/// Arguments of `gorgo report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    #[command(subcommand)]
    what: What,
}

/// Report to make.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Put two runs written by `gorgo replay --json` or `gorgo simulate --json` side by side
    Compare(compare::Compare),
}

impl Command for Report {
    const NAME: &'static str = "report";
    const ABOUT: &'static str = "Put two runs of `replay` or `simulate` side by side";

    fn run(self) -> Exit {
        let What::Compare(compare) = self.what;
        match compare.compared() {
            Ok((text, exit)) => {
                // A closed pipe is ignored: the exit code still has the answer.
                let _ = anstream::stdout().write_all(text.as_bytes());
                exit
            }
            Err(error) => {
                anstream::eprintln!("gorgo report: {error}");
                Exit::Usage
            }
        }
    }
}
