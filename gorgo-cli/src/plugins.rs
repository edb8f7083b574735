//! The registry of kinds including plugins: what loads them, from which folder, and which process tries them first.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use gorgo_plugins::host::{PluginHost, QuarantineMode, TrialLoader};
use gorgo_routing::policy::KindRegistry;

/// All kinds; plugins are loaded relative to the folder of the configuration file `config`.
pub(crate) fn registry(config: &Path) -> KindRegistry {
    with_host(config, QuarantineMode::Enforced).0
}

/// The same, with the host that loads the plugins.
pub(crate) fn with_host(config: &Path, conduct: QuarantineMode) -> (KindRegistry, Arc<PluginHost>) {
    let host = Arc::new(PluginHost::new(config.parent().unwrap_or(Path::new("")), trial(), conduct));
    (KindRegistry::built_in().with_loader(Arc::<PluginHost>::clone(&host)), host)
}

/// All kinds for another read of the same configuration: the present contents of a plugin's file are loaded beside the
/// earlier ones.
pub(crate) fn with_host_again(host: &PluginHost) -> KindRegistry {
    KindRegistry::built_in().with_loader(Arc::new(host.for_reload()))
}

/// Command that loads a library for trial: this program. `None` if the path of this program is unknown, or if this is
/// another program (its unit tests).
fn trial() -> Option<TrialLoader> {
    // A library that aborts in its constructors must end a child process, not the router; only `gorgo` itself has the
    // hidden command `plugin trial`.
    let program =
        std::env::current_exe().ok().filter(|program| program.file_stem().is_some_and(|stem| stem == "gorgo"))?;
    Some(TrialLoader { program, arguments: ["plugin", "trial"].map(OsString::from).into() })
}
