//! The gorgo program.

mod cmd;
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use gorgo_core::model::{At, Clock};

/// The command line.
#[derive(Debug, Parser)]
#[command(version, about)]
enum Cli {
    /// Replay a recorded trace against a server and report what was measured
    Replay(cmd::replay::Args),
}

/// Monotonic time since the program's start.
struct SinceStart(tokio::time::Instant);

impl Clock for SinceStart {
    fn now(&self) -> At {
        At(u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}

fn main() -> ExitCode {
    let Cli::Replay(args) = Cli::parse();
    let clock = Arc::new(SinceStart(tokio::time::Instant::now()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match runtime {
        Ok(runtime) => runtime.block_on(cmd::replay::run(args, clock)),
        Err(_) => ExitCode::FAILURE,
    }
}
