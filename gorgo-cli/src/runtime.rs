//! The runtime of commands that talk to the network.

use std::future::Future;
use std::sync::Arc;

use gorgo_core::model::Clock;
use gorgo_core::run::WallClock;

use crate::exit::Exit;

/// Runs a command's future on all cores.
pub(crate) fn block_on<F: Future<Output = Exit>>(command: F) -> Exit {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(cause) => {
            anstream::eprintln!("gorgo: cannot start its threads: {cause}");
            Exit::Unavailable
        }
    }
}

/// The machine's clock.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(WallClock::start())
}
