//! The registry of kinds with plugins in it: who loads them, from where, and who tries them first.

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

/// All kinds for another look at the same configuration: what a plugin's file holds now is loaded beside what was.
pub(crate) fn with_host_again(host: &Host) -> Registry {
    Registry::built_in().with_loader(Arc::new(host.again()))
}

/// This program loads libraries for trial, too. `None` where it does not know its own file, or is not the program (its
/// unit tests).
fn trial() -> Option<Trial> {
    let program =
        std::env::current_exe().ok().filter(|program| program.file_stem().is_some_and(|stem| stem == "gorgo"))?;
    Some(Trial { program, arguments: ["plugin", "trial"].map(OsString::from).into() })
}
