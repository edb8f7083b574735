//! The runtime of commands that talk to the network.

use std::future::Future;
use std::sync::Arc;

use gorgo_core::run::WallClock;
use gorgo_routing::model::Clock;
use tokio::runtime::Builder;

use crate::exit::CommandExit;

/// Runs a command's future on all cores that this process may use. A single core gets no thread pool, whose threads
/// would only hand work to each other.
pub(crate) fn block_on<F: Future<Output = CommandExit>>(command: F) -> CommandExit {
    let mut builder = match std::thread::available_parallelism() {
        Ok(cores) if cores.get() == 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    match builder.enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(cause) => {
            anstream::eprintln!("gorgo: cannot start worker threads: {cause}");
            CommandExit::Unavailable
        }
    }
}

/// Wall clock of this machine.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(WallClock::start())
}
