//! Accept loop and drain.
//!
//! After a failing `accept` (no file descriptors left) the loop pauses; it neither spins nor ends. On shutdown the
//! listener closes, idle connections close, and running requests finish; those still running after `server.drain_secs`
//! end as errors of class `Shutdown`.

mod client_socket;
pub(super) mod connection;
mod spare_descriptor;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::time::{interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::DataPlane;
use super::listen::connection::serve_connection;
use super::listen::spare_descriptor::SpareDescriptor;

/// Pause after an `accept` that failed because a resource was exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval at which idle engine connections that are too old are closed.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);
/// Time for aborted responses to deliver their error event before their connections are closed.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// Runs HTTP/2's tasks on the tracker, as hyper's executor.
#[derive(Debug, Clone)]
pub(super) struct TrackerExecutor(pub(super) TaskTracker);

impl<F> hyper::rt::Executor<F> for TrackerExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn(future));
    }
}

/// Serves `listener` until `shutdown`, then drains. Returns when the last connection is closed. Connections run as
/// tasks of `tracker`. The result is `true` if all requests could finish, `false` if some were aborted because the
/// drain time was over or [`DataPlane::abort_requests`] was called.
pub async fn serve(
    data: Arc<DataPlane>,
    listener: TcpListener,
    shutdown: CancellationToken,
    tracker: &TaskTracker,
) -> bool {
    let connections = TaskTracker::new();
    let kill = CancellationToken::new();
    let mut prune = interval(PRUNE_INTERVAL);
    let mut reserve = SpareDescriptor::take();
    loop {
        tokio::select! {
            // Biased: a flood of new connections must not delay the shutdown.
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    reserve.reopen();
                    let life = serve_connection(Arc::clone(&data), stream, kill.clone(), tracker.clone());
                    tracker.spawn(connections.track_future(life));
                }
                Err(error) if is_of_one_client(&error) => {}
                // Out of descriptors: the spare one serves to refuse a client, at once instead of after its own
                // time-out.
                Err(error) if reserve.refuse_client(&listener, &error).await => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            _ = prune.tick() => {
                let now = data.clock.now();
                data.replicas.iter().for_each(|upstream| upstream.pool.maintain(now));
            }
        }
    }
    // Draining first, so that `/ready` fails and idle connections close before new clients find the port shut.
    data.draining.cancel();
    drop(listener);
    connections.close();
    let patience = Duration::from_secs(data.server.drain_secs);
    let finished = tokio::select! {
        () = connections.wait() => true,
        () = sleep(patience) => false,
        () = data.abort.wait() => false,
    };
    // Also after a time-out: whatever still runs must end as an error of class `Shutdown`, not as a client that left.
    data.abort.trigger();
    if timeout(ABORT_GRACE, connections.wait()).await.is_err() {
        kill.cancel();
        connections.wait().await;
    }
    // Only now: running requests needed these connections.
    for upstream in &data.replicas {
        upstream.pool.close().await;
    }
    finished
}

/// Matches errors of `accept` that concern one client, which is already gone; the listener itself works.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
