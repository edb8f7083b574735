//! `gorgo serve`: the router. Reads and checks the configuration as `gorgo check` does, then serves until a signal.

use std::io::Write;

use gorgo_core::run::{Reread, ServeError, ServeSetup, load, serve};
use gorgo_observe::log;
use gorgo_plugins::host::Conduct;
use gorgo_routing::config::{Setting, effective, render, summary};

use crate::args::{ConfigArgs, environment, look, policy_setting};
use crate::cmd::Command;
use crate::exit::Exit;
use crate::plugins::{with_host, with_host_again};
use crate::runtime::block_on;

/// Arguments of `gorgo serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
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

impl Command for Serve {
    const NAME: &'static str = "serve";
    const ABOUT: &'static str = "Route requests to the replicas and record every decision";

    fn run(self) -> Exit {
        let (registry, host) = with_host(&self.config.config, Conduct::Enforced);
        let loading = load(&self.config.config, &environment(), &self.settings(), &registry);
        let Some((config, policies)) = loading.ready else {
            let name = loading.origins.source().name();
            let report = render(&loading.faults, &loading.origins, look());
            let text = format!("{report}{name}: {}\n", summary(&loading.faults));
            // A closed pipe is ignored: the exit code still has the answer.
            let _ = anstream::stderr().write_all(text.as_bytes());
            return Exit::Configuration;
        };
        if let Err(cause) = log::init(&config.log) {
            anstream::eprintln!("gorgo: {cause}");
            return Exit::Configuration;
        }
        // The log is open now: warnings of the configuration belong there, one line each and without colour.
        for warning in render(&loading.faults, &loading.origins, gorgo_routing::config::Look::Plain).lines() {
            log::config_warning(warning);
        }
        let config_text = effective(&config, &loading.origins);
        // 53 bits, so that a program that reads numbers as doubles reads the seed unchanged.
        let seed = self.seed.unwrap_or_else(|| crate::runtime::clock().now().0 & ((1 << 53) - 1));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (path, settings) = (self.config.config.clone(), self.settings());
        // A reload applies the same environment and flags as the start; only the file and the plugins can differ.
        let reread = Reread::new(move || load(&path, &environment(), &settings, &with_host_again(&host)));
        let setup = ServeSetup {
            config,
            policies,
            config_text,
            version,
            seed,
            cold: self.cold,
            named: self.policy.is_some(),
            reread,
        };
        block_on(async move {
            match serve(setup).await {
                Ok(()) => Exit::Done,
                Err(error) => {
                    anstream::eprintln!("gorgo: {error}");
                    exit_of(&error)
                }
            }
        })
    }
}

impl Serve {
    /// Settings from this command's flags; they win over `--set` because they come later.
    fn settings(&self) -> Vec<Setting> {
        let listen = self.listen.clone().map(|value| Setting {
            flag: "--listen".to_owned(),
            path: "server.listen".to_owned(),
            value,
        });
        let own = [listen, policy_setting(self.policy.as_deref())];
        self.config.set.iter().cloned().chain(own.into_iter().flatten()).collect()
    }
}

const fn exit_of(error: &ServeError) -> Exit {
    match error {
        ServeError::Listen { .. } | ServeError::Signals(_) | ServeError::Thread(_) => Exit::Unavailable,
        ServeError::Store(_) => Exit::Store,
        ServeError::Replica { .. } | ServeError::Upstream(_) => Exit::Configuration,
    }
}
