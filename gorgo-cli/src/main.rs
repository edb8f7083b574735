//! The gorgo program: one binary, its commands in `cmd/`, what they share on the command line in `args`.

mod args;
mod cmd;
mod exit;
mod plugins;
mod report;
mod runtime;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cmd::run(std::env::args_os()).into()
}
