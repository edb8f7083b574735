//! What commands share on the command line: where the configuration is, and what is set over it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use gorgo_routing::config::{Look, Setting};

/// The configuration: its file, and values from the command line. The environment stands between the two.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "GORGO_CONFIG", default_value = "policies.toml")]
    pub(crate) config: PathBuf,
    /// Sets one key over file and environment, such as server.listen=0.0.0.0:80; may stand several times
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = Setting::parse)]
    pub(crate) set: Vec<Setting>,
}

/// `--policy NAME`: the policy that serves, over `default_policy`.
pub(crate) fn policy_setting(name: Option<&str>) -> Option<Setting> {
    name.map(|name| Setting { flag: "--policy".to_owned(), path: "default_policy".to_owned(), value: name.to_owned() })
}

/// The environment, read once.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// How reports on standard error look: carets on a terminal, in colour unless `NO_COLOR` and its kin forbid it.
pub(crate) fn look() -> Look {
    let stderr = std::io::stderr();
    match (stderr.is_terminal(), anstream::AutoStream::choice(&stderr)) {
        (false, _) => Look::Plain,
        (true, anstream::ColorChoice::Never) => Look::Carets,
        (true, _) => Look::Colour,
    }
}
