//! How the program ends.

use std::process::ExitCode;

/// What the exit code says; the numbers from 64 on are those of `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done.
    Done,
    /// The command line is wrong.
    Usage,
    /// The configuration is wrong.
    Configuration,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Usage => 2,
            Exit::Configuration => 78,
        })
    }
}
