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
    /// Run one simulated engine alone, as a mock for tests and benchmarks
    Engine(cmd::engine::Args),
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
    let cli = Cli::parse();
    let clock = Arc::new(SinceStart(tokio::time::Instant::now()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match (runtime, cli) {
        (Ok(runtime), Cli::Engine(args)) => runtime.block_on(cmd::engine::run(args, clock)),
        (Ok(runtime), Cli::Replay(args)) => runtime.block_on(cmd::replay::run(args, clock)),
        (Err(_), _) => ExitCode::FAILURE,
    }
}
