//! The registry of kinds including plugins: what loads them, from which folder, and which process tries them first.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use gorgo_plugins::host::{Conduct, Host, Trial};
use gorgo_routing::policy::Registry;

/// All kinds; plugins are loaded relative to the folder of the configuration file `config`.
pub(crate) fn registry(config: &Path) -> Registry {
    with_host(config, Conduct::Enforced).0
}

/// The same, with the host that loads the plugins.
pub(crate) fn with_host(config: &Path, conduct: Conduct) -> (Registry, Arc<Host>) {
    let host = Arc::new(Host::new(config.parent().unwrap_or(Path::new("")), trial(), conduct));
    (Registry::built_in().with_loader(Arc::<Host>::clone(&host)), host)
}

/// All kinds for another read of the same configuration: the present contents of a plugin's file are loaded beside the
/// earlier ones.
pub(crate) fn with_host_again(host: &Host) -> Registry {
    Registry::built_in().with_loader(Arc::new(host.again()))
}

/// Command that loads a library for trial: this program. `None` if the path of this program is unknown, or if this is
/// another program (its unit tests).
fn trial() -> Option<Trial> {
    // A library that aborts in its constructors must end a child process, not the router; only `gorgo` itself has the
    // hidden command `plugin trial`.
    let program =
        std::env::current_exe().ok().filter(|program| program.file_stem().is_some_and(|stem| stem == "gorgo"))?;
    Some(Trial { program, arguments: ["plugin", "trial"].map(OsString::from).into() })
}
