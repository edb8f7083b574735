//! The open loop: each request leaves at its time, whatever happened to those before it, with at most a fixed number in
//! flight.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use gorgo_lab::trace::{RequestSample, TraceRow};
use gorgo_routing::model::UnixMicros;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::load::{BodyWriter, ReplayClient, ReplayRequest};

/// Requests to send.
pub(super) struct ReplayPlan {
    /// Requests in order of time, times in ms from the start.
    pub(super) rows: Vec<TraceRow>,
    /// Writer of their bodies.
    pub(super) bodies: BodyWriter,
    /// Most requests in flight at once; `None` for no limit.
    pub(super) max_in_flight: Option<usize>,
    /// True to send the trace's sessions.
    pub(super) sessions: bool,
}

/// Result of driving a plan.
#[derive(Debug, Default)]
pub(super) struct ReplayResult {
    /// One per request that ended, in the order they ended.
    pub(super) samples: Vec<RequestSample>,
    /// Requests that were not sent because the run was stopped.
    pub(super) unsent: usize,
    /// Requests that were in flight when the run was aborted.
    pub(super) unfinished: usize,
    /// When sending began.
    pub(super) started_at: UnixMicros,
}

/// Ways to end a run early.
#[derive(Debug, Clone, Default)]
pub(super) struct StopControls {
    /// Stop sending; requests in flight may finish.
    pub(super) stop: CancellationToken,
    /// Drop requests in flight.
    pub(super) abort: CancellationToken,
    /// Drop them automatically this long after the last send.
    pub(super) drain: Option<Duration>,
}

/// Sends the plan. `on_end` is called with each sample as its request ends.
pub(super) async fn drive(
    client: &Arc<ReplayClient>,
    plan: ReplayPlan,
    tracker: &TaskTracker,
    brakes: &StopControls,
    mut on_end: impl FnMut(&RequestSample),
) -> ReplayResult {
    let planned = plan.rows.len();
    let (results, mut ended) = mpsc::unbounded_channel();
    // Ends when the last sender is dropped: `dispatch` owns one, and each running request a clone.
    let collect = async {
        let mut samples = Vec::with_capacity(planned);
        while let Some(sample) = ended.recv().await {
            on_end(&sample);
            samples.push(sample);
        }
        samples
    };
    let all_sent = CancellationToken::new();
    let send = async {
        let sent = dispatch(client, plan, tracker, brakes, results).await;
        all_sent.cancel();
        sent
    };
    // Never completes, because aborting makes the other branch complete with the samples so far.
    let drain = async {
        all_sent.cancelled().await;
        if let Some(limit) = brakes.drain {
            tokio::time::sleep(limit).await;
            brakes.abort.cancel();
        }
        std::future::pending::<Infallible>().await
    };
    let (sent, samples) = tokio::select! {
        ended = async { tokio::join!(send, collect) } => ended,
        never = drain => match never {},
    };
    ReplayResult { unsent: planned - sent, unfinished: sent - samples.len(), samples, ..ReplayResult::default() }
}

/// Sends each row at its time; returns the number of requests sent.
async fn dispatch(
    client: &Arc<ReplayClient>,
    plan: ReplayPlan,
    tracker: &TaskTracker,
    brakes: &StopControls,
    results: mpsc::UnboundedSender<RequestSample>,
) -> usize {
    let slots = plan.max_in_flight.map(|most| Arc::new(Semaphore::new(most)));
    let start = client.clock().now();
    let now_ms = || client.clock().now().millis_since(start);
    let mut sent = 0;
    for row in plan.rows {
        // Write the body before the request is due, so that writing it does not make the request late.
        let body = plan.bodies.write(&row);
        let wait = Duration::try_from_secs_f64((row.at_ms - now_ms()) / 1e3).unwrap_or_default();
        if !wait.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = brakes.stop.cancelled() => {}
            }
        }
        // The wait for a slot is measured separately: it is lateness by --max-in-flight, not by this machine.
        let due_ms = now_ms();
        let Some(slot) = acquire_slot(slots.as_ref(), brakes).await else { break };
        let job = ReplayRequest {
            session: row.session().filter(|_| plan.sessions).map(str::to_owned),
            sample: RequestSample {
                row: row.index,
                id: row.id,
                input_tokens: row.input_tokens,
                scheduled_ms: row.at_ms,
                slot_wait_ms: now_ms() - due_ms,
                ..RequestSample::default()
            },
            start,
            body,
        };
        sent += 1;
        let (client, results, abort) = (Arc::clone(client), results.clone(), brakes.abort.clone());
        tracker.spawn(async move {
            // A task per request, so that a slow answer never delays the next send.
            let ended = abort.run_until_cancelled(client.exchange(job)).await;
            drop(slot);
            if let Some(sample) = ended {
                results.send(sample).ok(); // the collector outlives every request
            }
        });
    }
    sent
}

/// A slot under the limit; `None` if the run was stopped meanwhile.
async fn acquire_slot(slots: Option<&Arc<Semaphore>>, brakes: &StopControls) -> Option<Option<OwnedSemaphorePermit>> {
    if brakes.stop.is_cancelled() {
        return None;
    }
    let Some(slots) = slots else { return Some(None) };
    let acquired = brakes.stop.run_until_cancelled(Arc::clone(slots).acquire_owned()).await?;
    acquired.ok().map(Some)
}
