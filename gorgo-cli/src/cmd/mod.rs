//! The commands, in two groups: [`router`] runs and operates a router; [`lab`] measures, simulates and tunes.
//!
//! To add a command, write a file in its group with a type that implements [`CliCommand`], and add a line to [`COMMANDS`].

mod lab;
mod router;

use std::ffi::OsString;

use clap::ArgMatches;

use crate::exit::CommandExit;

/// All commands, in the order of `gorgo --help`.
const COMMANDS: &[CommandRow] = &[
    row::<router::serve::ServeArgs>(),
    row::<router::check::CheckArgs>(),
    row::<lab::simulate::SimulateArgs>(),
    row::<lab::tune::TuneArgs>(),
    row::<lab::replay::ReplayArgs>(),
    row::<lab::report::ReportArgs>(),
    row::<lab::trace::TraceArgs>(),
    row::<lab::calibrate::CalibrateArgs>(),
    row::<router::plugin::PluginArgs>(),
    row::<router::kinds::KindsArgs>(),
    row::<lab::engine::EngineArgs>(),
    row::<router::ctl::CtlArgs>(),
    row::<router::whatif::WhatifArgs>(),
    row::<router::weights::WeightsArgs>(),
    row::<router::doctor::DoctorArgs>(),
];

/// A command: its arguments, and the function that runs it.
pub(crate) trait CliCommand: clap::Args {
    /// Name on the command line.
    const NAME: &'static str;
    /// Purpose, in one line.
    const ABOUT: &'static str;

    /// Runs the command.
    fn run(self) -> CommandExit;
}

/// A command with its type erased, so that all fit one table.
struct CommandRow {
    name: &'static str,
    arguments: fn() -> clap::Command,
    run: fn(&ArgMatches) -> Result<CommandExit, clap::Error>,
}

const fn row<C: CliCommand>() -> CommandRow {
    CommandRow {
        name: C::NAME,
        // `about` after `augment_args`, and no long text: clap would otherwise print the doc comment of the arguments'
        // type.
        arguments: || C::augment_args(clap::Command::new(C::NAME)).about(C::ABOUT).long_about(None),
        run: |matches| Ok(C::from_arg_matches(matches)?.run()),
    }
}

/// Command line of the program.
fn program() -> clap::Command {
    clap::Command::new("gorgo")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Routes LLM inference across regions")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(COMMANDS.iter().map(|row| (row.arguments)()))
}

/// Runs the command that the arguments name; the first argument is the program itself.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> CommandExit {
    let program = program();
    // Before clap, because `--spec` supplies required arguments as well.
    let arguments = match lab::spec::expanded(arguments.into_iter().collect(), &program) {
        Ok(arguments) => arguments,
        Err(error) => {
            anstream::eprintln!("gorgo: {error}");
            return CommandExit::Usage;
        }
    };
    let done = program.try_get_matches_from(arguments).and_then(|matches| match matches.subcommand() {
        Some((name, matches)) => {
            COMMANDS.iter().find(|row| row.name == name).map_or(Ok(CommandExit::Usage), |row| (row.run)(matches))
        }
        None => Ok(CommandExit::Usage),
    });
    done.unwrap_or_else(|error| {
        // clap reports help and version as errors, too. If the pipe is closed, nothing can be reported.
        let _ = error.print();
        if error.use_stderr() { CommandExit::Usage } else { CommandExit::Done }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(line: &str) -> CommandExit {
        run(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_line_is_sound() {
        program().debug_assert();
    }

    #[test]
    fn wrong_usage_is_told_from_help() {
        assert_eq!(exit("gorgo"), CommandExit::Usage);
        assert_eq!(exit("gorgo chekc"), CommandExit::Usage);
        assert_eq!(exit("gorgo check --wrong"), CommandExit::Usage);
        assert_eq!(exit("gorgo check --set nothing"), CommandExit::Usage);
        assert_eq!(exit("gorgo --help"), CommandExit::Done);
        assert_eq!(exit("gorgo check --help"), CommandExit::Done);
        assert_eq!(exit("gorgo --version"), CommandExit::Done);
    }
}
