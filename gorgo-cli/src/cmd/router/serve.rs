//! `gorgo serve`: the router. Reads and checks the configuration as `gorgo check` does, then serves until a signal.

use std::io::Write;

use gorgo_core::run::{ConfigReader, ServeError, ServeSetup, load, serve};
use gorgo_observe::log;
use gorgo_plugins::host::QuarantineMode;
use gorgo_routing::config::{ConfigOverride, effective, render, summary};

use crate::args::{ConfigArgs, environment, look, policy_setting};
use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::plugins::{with_host, with_host_again};
use crate::runtime::block_on;

/// Arguments of `gorgo serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Address to listen on for clients (overrides `server.listen`)
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Policy that serves (overrides `default_policy`)
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Seed of the run's randomness, below 2^53 [default: from the clock; it is stored with the run]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..1 << 53))]
    seed: Option<u64>,
    /// Start without the state of earlier runs: tuners, prefix index and learned rates begin empty
    #[arg(long)]
    cold: bool,
}

impl CliCommand for ServeArgs {
    const NAME: &'static str = "serve";
    const ABOUT: &'static str = "Route requests to the replicas and record every decision";

    fn run(self) -> CommandExit {
        let (registry, host) = with_host(&self.config.config, QuarantineMode::Enforced);
        let loading = load(&self.config.config, &environment(), &self.settings(), &registry);
        let Some((config, policies)) = loading.ready else {
            let name = loading.origins.source().name();
            let report = render(&loading.faults, &loading.origins, look());
            let text = format!("{report}{name}: {}\n", summary(&loading.faults));
            // A closed pipe is ignored: the exit code still has the answer.
            let _ = anstream::stderr().write_all(text.as_bytes());
            return CommandExit::Configuration;
        };
        if let Err(cause) = log::init(&config.log) {
            anstream::eprintln!("gorgo: {cause}");
            return CommandExit::Configuration;
        }
        // The log is open now: warnings of the configuration belong there, one line each and without colour.
        for warning in render(&loading.faults, &loading.origins, gorgo_routing::config::ReportStyle::Plain).lines() {
            log::config_warning(warning);
        }
        let config_text = effective(&config, &loading.origins);
        // 53 bits, so that a program that reads numbers as doubles reads the seed unchanged.
        let seed = self.seed.unwrap_or_else(|| crate::runtime::clock().now().0 & ((1 << 53) - 1));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (path, settings) = (self.config.config.clone(), self.settings());
        // A reload applies the same environment and flags as the start; only the file and the plugins can differ.
        let reread = ConfigReader::new(move || load(&path, &environment(), &settings, &with_host_again(&host)));
        let setup = ServeSetup {
            config,
            policies,
            config_text,
            version,
            seed,
            cold: self.cold,
            policy_named: self.policy.is_some(),
            config_reader: reread,
        };
        block_on(async move {
            match serve(setup).await {
                Ok(()) => CommandExit::Done,
                Err(error) => {
                    anstream::eprintln!("gorgo: {error}");
                    exit_of(&error)
                }
            }
        })
    }
}

impl ServeArgs {
    /// Settings from this command's flags; they win over `--set` because they come later.
    fn settings(&self) -> Vec<ConfigOverride> {
        let listen = self.listen.clone().map(|value| ConfigOverride {
            flag: "--listen".to_owned(),
            path: "server.listen".to_owned(),
            value,
        });
        let own = [listen, policy_setting(self.policy.as_deref())];
        self.config.set.iter().cloned().chain(own.into_iter().flatten()).collect()
    }
}

const fn exit_of(error: &ServeError) -> CommandExit {
    match error {
        ServeError::Listen { .. } | ServeError::Signals(_) | ServeError::Thread(_) => CommandExit::Unavailable,
        ServeError::Store(_) => CommandExit::Store,
        ServeError::Replica { .. } | ServeError::DataPlane(_) => CommandExit::Configuration,
    }
}
