//! Arguments that commands share: the configuration file, and keys that override it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use gorgo_routing::config::{Look, Setting};

/// The configuration: its file, and values from the command line. Environment variables rank between the two.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "GORGO_CONFIG", default_value = "policies.toml")]
    pub(crate) config: PathBuf,
    /// Override one configuration key (wins over file and environment; repeatable), such as server.listen=0.0.0.0:80
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = Setting::parse)]
    pub(crate) set: Vec<Setting>,
}

/// `--policy NAME` as a setting: the policy that serves, overriding `default_policy`.
pub(crate) fn policy_setting(name: Option<&str>) -> Option<Setting> {
    name.map(|name| Setting { flag: "--policy".to_owned(), path: "default_policy".to_owned(), value: name.to_owned() })
}

/// All environment variables, read once.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// Style of reports on standard error: carets on a terminal, in colour unless `NO_COLOR` or a similar variable forbids
/// it.
pub(crate) fn look() -> Look {
    let stderr = std::io::stderr();
    match (stderr.is_terminal(), anstream::AutoStream::choice(&stderr)) {
        (false, _) => Look::Plain,
        (true, anstream::ColorChoice::Never) => Look::Carets,
        (true, _) => Look::Colour,
    }
}
