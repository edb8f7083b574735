//! Arguments that commands share: the configuration file, and keys that override it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;

use gorgo_routing::config::{ConfigOverride, ReportStyle};

/// The configuration: its file, and values from the command line. Environment variables rank between the two.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "GORGO_CONFIG", default_value = "policies.toml")]
    pub(crate) config: PathBuf,
    /// Override one configuration key (wins over file and environment; repeatable), such as server.listen=0.0.0.0:80
    #[arg(long = "set", value_name = "PATH=VALUE", value_parser = ConfigOverride::parse)]
    pub(crate) set: Vec<ConfigOverride>,
}

/// `--policy NAME` as a setting: the policy that serves, overriding `default_policy`.
pub(crate) fn policy_setting(name: Option<&str>) -> Option<ConfigOverride> {
    name.map(|name| ConfigOverride {
        flag: "--policy".to_owned(),
        path: "default_policy".to_owned(),
        value: name.to_owned(),
    })
}

/// All environment variables, read once.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// Style of reports on standard error: carets on a terminal, in colour unless `NO_COLOR` or a similar variable forbids
/// it.
pub(crate) fn look() -> ReportStyle {
    let stderr = std::io::stderr();
    match (stderr.is_terminal(), anstream::AutoStream::choice(&stderr)) {
        (false, _) => ReportStyle::Plain,
        (true, anstream::ColorChoice::Never) => ReportStyle::Carets,
        (true, _) => ReportStyle::Colour,
    }
}
