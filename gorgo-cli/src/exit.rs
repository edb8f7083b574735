//! Exit codes of the program.

use std::process::ExitCode;

/// Meaning of the exit code; the numbers from 64 upwards are those of `sysexits.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// Done.
    Done,
    /// The command ran, and the answer is no.
    Negative,
    /// The command line is wrong, or names a file that cannot be used.
    Usage,
    /// A port or another resource of the machine is unavailable.
    Unavailable,
    /// The history database cannot be used.
    Store,
    /// The configuration is wrong.
    Configuration,
}

impl CommandExit {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Negative => 1,
            Self::Usage => 2,
            Self::Unavailable => 69,
            Self::Store => 74,
            Self::Configuration => 78,
        }
    }
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(exit.code())
    }
}
