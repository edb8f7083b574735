//! Step 1 of a request: its client connects.
//!
//! The accept loop and the drain.
//!
//! A failing accept (no file handles left) is waited out; it neither spins nor ends the loop. On shutdown the listener
//! closes, idle connections close, running requests finish; those that have not within `server.drain_secs` end as
//! errors of class `Shutdown`.

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

use super::Data;
use super::listen::connection::live;
use super::listen::spare_descriptor::Reserve;

/// Wait after an accept that failed for want of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Old engine connections are closed this often.
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);
/// Time that answers get to say that they were cut.
const CUT_GRACE: Duration = Duration::from_secs(2);

/// Lets hyper run HTTP/2's tasks on the tracker.
#[derive(Debug, Clone)]
pub(super) struct Spawner(pub(super) TaskTracker);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn(future));
    }
}

/// Serves `listener` until `shutdown`, then drains. Returns when the last connection is closed. Connections run as
/// tasks of `tracker`. Whether all requests could finish: `false` where some were cut off, because the time to drain was
/// over or [`Data::cut_now`] was called.
pub async fn serve(data: Arc<Data>, listener: TcpListener, shutdown: CancellationToken, tracker: &TaskTracker) -> bool {
    let connections = TaskTracker::new();
    let kill = CancellationToken::new();
    let mut prune = interval(PRUNE_INTERVAL);
    let mut reserve = Reserve::take();
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    reserve.renew();
                    let life = live(Arc::clone(&data), stream, kill.clone(), tracker.clone());
                    tracker.spawn(connections.track_future(life));
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) if reserve.refuse(&listener, &error).await => {}
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            _ = prune.tick() => {
                let now = data.clock.now();
                data.upstreams.iter().for_each(|upstream| upstream.pool.tend(now));
            }
        }
    }
    data.draining.cancel();
    drop(listener);
    connections.close();
    let patience = Duration::from_secs(data.server.drain_secs);
    let finished = tokio::select! {
        () = connections.wait() => true,
        () = sleep(patience) => false,
        () = data.cut.wait() => false,
    };
    data.cut.make();
    if timeout(CUT_GRACE, connections.wait()).await.is_err() {
        kill.cancel();
        connections.wait().await;
    }
    for upstream in &data.upstreams {
        upstream.pool.close().await;
    }
    finished
}

/// Errors of `accept` that concern a client which is already gone.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
