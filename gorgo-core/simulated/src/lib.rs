//! The simulated engine as a real HTTP server: `sim::SimulatedEngine` on real time, behind a link with a round trip.
//!
//! Serves HTTP/1.1 and h2c (prior knowledge) with the paths, bodies, streams and metrics pages of SGLang or vLLM:
//! `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses`, `/v1/messages`, `/generate`,
//! `/v1/models`, `/health`, `/metrics`. Its answers are ASCII words that depend only on seed, prompt and position.
//!
//! Deliberate simplifications: one choice per answer (`n` is 1, a list of prompts is one prompt), every 4 bytes of text
//! are a token, an answer without a limit has 64 tokens, and a client that disconnects is noticed at once instead of
//! half a round trip later.

mod answer;
mod body;
mod driver;
mod metrics;
mod models;
mod pages;
mod question;
mod serve;
mod settings;
mod words;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use gorgo_lab::sim::{EngineError, LinkError, SimulatedEngine, SimulatedLink};
use gorgo_routing::model::Clock;

use serve::{SimulatedConnection, SimulatedServer};
pub use settings::{EngineDialect, EngineFault, FaultInjection, SettingsError, SimulatedSettings};

/// Pause after a failed `accept`: it fails if file descriptors run out, and trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// HTTP/2 flow-control windows, bytes: large enough for a long prompt to arrive without waiting for window updates.
const HTTP2_WINDOW: u32 = 4 << 20;

/// A running simulated engine.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedHandle {
    /// Address on which it listens.
    pub addr: SocketAddr,
}

/// Reason why a simulated engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum EngineStartError {
    /// The profile or the speed is invalid.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The round trip is out of range.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The listener has no address.
    #[error("simulated engine: the listener has no local address: {0}")]
    Listener(#[from] io::Error),
}

/// Starts a simulated engine on `listener`. Its tasks run on `tracker`. After `shutdown` it accepts nothing more and
/// ends when the current answers are complete.
///
/// # Errors
/// The settings are invalid, or the listener has no address.
pub fn start(
    settings: SimulatedSettings,
    listener: TcpListener,
    clock: Arc<dyn Clock>,
    tracker: &TaskTracker,
    shutdown: CancellationToken,
) -> Result<SimulatedHandle, EngineStartError> {
    let addr = listener.local_addr()?;
    let engine = SimulatedEngine::new(settings.profile.clone(), settings.speed)?;
    let link = SimulatedLink::new(settings.rtt_ms)?;
    let engine = driver::start(engine, Arc::clone(&clock), tracker);
    let server = Arc::new(SimulatedServer::new(settings, link, clock, engine, shutdown.clone()));
    tracker.spawn(accept(listener, server, tracker.clone(), shutdown));
    Ok(SimulatedHandle { addr })
}

async fn accept(
    listener: TcpListener,
    server: Arc<SimulatedServer>,
    tracker: TaskTracker,
    shutdown: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                // Created before the task starts: the handshake over the simulated link counts from now.
                let connection = SimulatedConnection::new(Arc::clone(&server));
                tracker.spawn(serve_connection(stream, connection, tracker.clone(), shutdown.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection until it ends. Errors are ignored: the client sees them itself, and a mock has no log.
async fn serve_connection(
    stream: TcpStream,
    connection: SimulatedConnection,
    tracker: TaskTracker,
    shutdown: CancellationToken,
) {
    // With Nagle's algorithm the last frame of a stream would wait for a delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let mut builder = auto::Builder::new(TrackedExecutor(tracker));
    // hyper has no clock: its time limit for reading request heads needs a timer.
    builder.http1().timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_WINDOW);
    let connection = Arc::new(connection);
    let service = service_fn(move |request| Arc::clone(&connection).answer(request));
    // Shutdown lets the current requests finish; a stalled fault also waits for it, so it always ends.
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = serving.as_mut() => return,
        () = shutdown.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Runs HTTP/2 streams on the tracker, so that shutdown waits for them too.
#[derive(Debug, Clone)]
struct TrackedExecutor(TaskTracker);

impl<F> hyper::rt::Executor<F> for TrackedExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

#[cfg(test)]
mod tests;
