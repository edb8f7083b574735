//! `gorgo engine`: one simulated engine by itself, as a mock for tests and benchmarks, with faults on demand.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use gorgo_lab::sim::EngineProfile;
use gorgo_routing::model::Clock;
use gorgo_simulated::{
    EngineDialect, EngineFault, EngineStartError, FaultInjection, SettingsError, SimulatedSettings, start,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::runtime::{block_on, clock};

/// Time that running answers have after the signal to stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Arguments of `gorgo engine`.
#[derive(Debug, clap::Args)]
pub(crate) struct EngineArgs {
    /// Address and port to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9001")]
    listen: String,
    /// GPU and model whose times to imitate
    #[arg(long, default_value = "l40s-qwen3.5-35b", value_parser = PossibleValuesParser::new(EngineProfile::names()))]
    profile: String,
    /// Divide all times of the engine, but not the network's, by this
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Round trip to the engine, ms; a connection's first request takes one more
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    rtt_ms: f64,
    /// Engine whose headers, errors and metrics to imitate
    #[arg(long, default_value = "sglang", value_parser = PossibleValuesParser::new(EngineDialect::ALL.map(EngineDialect::name)))]
    dialect: String,
    /// Model to serve (repeatable)
    #[arg(long, value_name = "NAME", default_value = "sim")]
    model: Vec<String>,
    /// Seed of the words in the answers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    faults: FaultArgs,
}

/// Faults, at most one of them. `/health`, `/metrics` and `/v1/models` keep working.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Faults (at most one)")]
struct FaultArgs {
    /// Answer with this HTTP status and an error body
    #[arg(long, value_name = "STATUS", group = "fault", value_parser = clap::value_parser!(u16).range(400..=599))]
    fail_status: Option<u16>,
    /// Read requests and never answer them
    #[arg(long, group = "fault")]
    hang: bool,
    /// Break the connection after this many tokens of a stream, like a killed engine
    #[arg(long, value_name = "TOKENS", group = "fault")]
    die_after_tokens: Option<u32>,
    /// Stop sending after this many tokens of a stream, and never end it
    #[arg(long, value_name = "TOKENS", group = "fault")]
    stall_after_tokens: Option<u32>,
    /// Send an error event after this many tokens of a stream, then end it; 0 refuses with status 200
    #[arg(long, value_name = "TOKENS", group = "fault")]
    error_after_tokens: Option<u32>,
    /// Inject the fault into every Nth request
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    fault_every: u64,
}

impl FaultArgs {
    fn faulty(&self) -> Option<FaultInjection> {
        // clap allows at most one of these flags, so their order does not matter.
        let fault = self
            .fail_status
            .map(EngineFault::Status)
            .or(self.hang.then_some(EngineFault::Hang))
            .or(self.die_after_tokens.map(EngineFault::DieAfter))
            .or(self.stall_after_tokens.map(EngineFault::StallAfter))
            .or(self.error_after_tokens.map(EngineFault::ErrorAfter));
        fault.map(|fault| FaultInjection { fault, every_nth: self.fault_every })
    }
}

/// Error: the engine did not run.
#[derive(Debug, thiserror::Error)]
enum EngineCommandError {
    #[error("cannot listen on {listen}: {cause}")]
    Listen { listen: String, cause: io::Error },
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Start(#[from] EngineStartError),
}

impl EngineCommandError {
    const fn exit(&self) -> CommandExit {
        match self {
            Self::Listen { .. } | Self::Signals(_) | Self::Start(EngineStartError::Listener(_)) => {
                CommandExit::Unavailable
            }
            Self::Settings(_) | Self::Start(_) => CommandExit::Usage,
        }
    }
}

impl EngineArgs {
    fn settings(&self) -> Result<SimulatedSettings, SettingsError> {
        let dialect = EngineDialect::ALL.into_iter().find(|dialect| dialect.name() == self.dialect).unwrap_or_default();
        Ok(SimulatedSettings {
            speed: self.speed,
            rtt_ms: self.rtt_ms,
            dialect,
            models: self.model.clone(),
            seed: self.seed,
            fault_injection: self.faults.faulty(),
            // Everything without a flag is as in a simulated replica of a configuration.
            ..SimulatedSettings::new(&self.profile)?
        })
    }
}

impl CliCommand for EngineArgs {
    const NAME: &'static str = "engine";
    const ABOUT: &'static str = "Run one simulated engine alone, as a mock for tests and benchmarks";

    fn run(self) -> CommandExit {
        block_on(run(self, clock()))
    }
}

/// Runs the engine until SIGINT or SIGTERM; then accepts nothing more and lets running answers finish.
async fn run(args: EngineArgs, clock: Arc<dyn Clock>) -> CommandExit {
    match serve(&args, clock).await {
        Ok(()) => CommandExit::Done,
        Err(error) => {
            anstream::eprintln!("gorgo engine: {error}");
            error.exit()
        }
    }
}

async fn serve(args: &EngineArgs, clock: Arc<dyn Clock>) -> Result<(), EngineCommandError> {
    // First of all: a test that reads the address and signals at once must not kill the process before its handler is
    // in place.
    let stop = stop_signal().map_err(EngineCommandError::Signals)?;
    let settings = args.settings()?;
    let listener = TcpListener::bind(&args.listen)
        .await
        .map_err(|cause| EngineCommandError::Listen { listen: args.listen.clone(), cause })?;
    let (tracker, shutdown) = (TaskTracker::new(), CancellationToken::new());
    let handle = start(settings, listener, clock, &tracker, shutdown.clone())?;
    // A test that starts this mock with port 0 reads the port from this line. Without a reader the mock still serves.
    let mut out = io::stdout();
    let _ = writeln!(out, "{} at http://{}", args.profile, handle.addr).and_then(|()| out.flush());
    stop.await;
    // Stop accepting first, then wait for the running answers; otherwise new ones could keep the wait going.
    shutdown.cancel();
    tracker.close();
    // Answers that take longer end with the process.
    let _ = tokio::time::timeout(DRAIN, tracker.wait()).await;
    Ok(())
}

/// Completes at SIGINT or SIGTERM. Signals are caught from this call on, not from the first poll.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Completes at Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct EngineCli {
        #[command(flatten)]
        args: EngineArgs,
    }

    fn parse(line: &str) -> Result<EngineArgs, clap::Error> {
        EngineCli::try_parse_from(std::iter::once("engine").chain(line.split_whitespace())).map(|cli| cli.args)
    }

    #[test]
    fn flags_become_settings() {
        let line = "--dialect vllm --model a --model b --speed 10 --rtt-ms 37 --die-after-tokens 5 --fault-every 3";
        let settings = parse(line).unwrap().settings().unwrap();
        assert_eq!((settings.dialect, settings.models), (EngineDialect::Vllm, vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(settings.fault_injection, Some(FaultInjection { fault: EngineFault::DieAfter(5), every_nth: 3 }));
        assert!((settings.speed - 10.0).abs() < 1e-9 && (settings.rtt_ms - 37.0).abs() < 1e-9);
        let plain = parse("").unwrap().settings().unwrap();
        assert_eq!((plain.fault_injection, plain.models), (None, vec!["sim".to_owned()]));
    }

    #[test]
    fn wrong_flags_are_refused() {
        for line in
            ["--profile h200", "--dialect tgi", "--hang --fail-status 503", "--fail-status 200", "--fault-every 0"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[tokio::test]
    async fn what_cannot_start_has_its_exit_code() {
        struct StoppedClock;
        impl Clock for StoppedClock {
            fn now(&self) -> gorgo_routing::model::UnixMicros {
                gorgo_routing::model::UnixMicros(0)
            }
        }
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (line, code) in [
            (format!("--listen {}", taken.local_addr().unwrap()), 69),
            ("--listen 127.0.0.1:0 --speed 0".to_owned(), 2),
            ("--listen 127.0.0.1:0 --rtt-ms=-1".to_owned(), 2),
        ] {
            let error = serve(&parse(&line).unwrap(), Arc::new(StoppedClock)).await.unwrap_err();
            assert_eq!(error.exit().code(), code, "{error}");
        }
    }
}
