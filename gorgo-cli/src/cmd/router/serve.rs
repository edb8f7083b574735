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
    /// Where to listen for clients, over `server.listen`
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The policy that serves, over `default_policy`
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Seed of the run's randomness, below 2^53 [default: from the clock; it is stored with the run]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..1 << 53))]
    seed: Option<u64>,
    /// Start afresh: no tuner, prefix index or learned rate goes on from what an earlier run stored
    #[arg(long)]
    cold: bool,
}

impl Command for Serve {
    const NAME: &'static str = "serve";
    const ABOUT: &'static str = "Serve: route requests to the replicas, write down every decision";

    fn run(self) -> Exit {
        let (registry, host) = with_host(&self.config.config, Conduct::Enforced);
        let loading = load(&self.config.config, &environment(), &self.settings(), &registry);
        let Some((config, policies)) = loading.ready else {
            let name = loading.origins.source().name();
            let report = render(&loading.faults, &loading.origins, look());
            let text = format!("{report}{name}: {}\n", summary(&loading.faults));
            // A closed pipe is not worth another error.
            let _ = anstream::stderr().write_all(text.as_bytes());
            return Exit::Configuration;
        };
        if let Err(cause) = log::init(&config.log) {
            anstream::eprintln!("gorgo: {cause}");
            return Exit::Configuration;
        }
        for warning in render(&loading.faults, &loading.origins, gorgo_routing::config::Look::Plain).lines() {
            log::config_warning(warning);
        }
        let config_text = effective(&config, &loading.origins);
        let seed = self.seed.unwrap_or_else(|| crate::runtime::clock().now().0 & ((1 << 53) - 1));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (path, settings) = (self.config.config.clone(), self.settings());
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
    /// Flags of this command as settings; they win over `--set`.
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
