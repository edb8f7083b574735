//! Hedging of one stream: when the first byte is late, another replica is tried at the same time. The first usable
//! response wins; the other attempts are aborted, which closes their connections, so their engines stop. If one of them
//! fails, the others continue; if all that run are late, one more is tried, within `failover.max_attempts`.
//!
//! Each further attempt counts against the retry budget: a fleet that is slow as a whole must not get every request
//! twice. If the budget is used up, the request keeps waiting and asks the budget again. Once the late replica is
//! ejected, the hedge is allowed without the budget: that engine is assumed to do no work at all.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::sleep;

use crate::edge::DataPlane;
use crate::edge::choose::admission::select_for_hedge;
use crate::edge::forward::attempt::{HedgeOutcome, RequestAttempt};
use crate::edge::forward::buffered_request::{AttemptResult, BufferedRequest};
use crate::edge::forward::retryable_failure;
use crate::edge::intake::{ActiveRequest, EligibleReplicas};
use crate::edge::listen::connection::ClientConnection;
use gorgo_routing::model::{ReplicaId, TokenUsage};

/// Pause before a late request asks the budget again.
const BUDGET_RETRY: Duration = Duration::from_millis(250);

/// Running attempt; dropping it aborts it.
struct RunningAttempt<'a> {
    running: Pin<Box<dyn Future<Output = (RequestAttempt, AttemptResult)> + Send + 'a>>,
    replica: ReplicaId,
    fate: HedgeOutcome,
}

impl<'a> RunningAttempt<'a> {
    fn new(asked: &'a BufferedRequest, mut attempt: RequestAttempt, client: &'a ClientConnection) -> Self {
        let (replica, fate) = (attempt.replica(), attempt.hedge_outcome());
        let running = Box::pin(async move {
            let came = asked.run_attempt(&mut attempt, client).await;
            (attempt, came)
        });
        Self { running, replica, fate }
    }

    /// Aborts it because another one was faster. `late`: this one had exceeded its hedge delay.
    fn lose_hedge(self, late: bool) {
        self.fate.mark_lost(late);
    }
}

impl ActiveRequest {
    /// Runs an attempt, and hedges it when it is late. Returns the attempt that answered, or that failed last, with its
    /// result; rows of the others are written. All are added to `tried`, and to `spent` if they may have cost an engine
    /// work.
    pub(in crate::edge) async fn run_hedged(
        &mut self,
        attempt: RequestAttempt,
        tried: &mut Vec<ReplicaId>,
        spent: &mut u32,
        client: &ClientConnection,
    ) -> (AttemptResult, RequestAttempt) {
        let Self { request: asked, ledger, eligible: holder, .. } = self;
        let (asked, data, holder) = (&*asked, &asked.data, *holder);
        let patience = |attempt: &RequestAttempt| data.hedge_delays.delay(attempt.replica(), attempt.predicted_ttft_ms);
        let mut racing = holder == EligibleReplicas::Any && asked.is_hedgeable();
        let mut wait = patience(&attempt);
        tried.push(attempt.replica());
        // In the order in which they began.
        let mut runners = vec![RunningAttempt::new(asked, attempt, client)];
        // Each attempt counts once it has begun, and is subtracted if it cost nothing.
        *spent += 1;
        loop {
            tokio::select! {
                // Biased: if a response and the timer are ready together, no hedge is needed.
                biased;
                (place, (attempt, came)) = first_finished(&mut runners) => {
                    runners.remove(place);
                    if matches!(came, AttemptResult::NoResponse { unsent: true, .. }) {
                        *spent -= 1;
                    }
                    match retryable_failure(holder, &came) {
                        Some((class, _)) if !runners.is_empty() => {
                            drop(came);
                            attempt.end(Some(class), TokenUsage::default());
                            // The others are already late, so the next hedge need not wait.
                            wait = Duration::ZERO;
                        }
                        _ => {
                            // Those that began before the winner were late, or there would be no hedge; those after it
                            // had no fair chance.
                            for (began, runner) in runners.into_iter().enumerate() {
                                runner.lose_hedge(began < place);
                            }
                            return (came, attempt);
                        }
                    }
                }
                () = sleep(wait), if racing => {
                    wait = BUDGET_RETRY;
                    if *spent < data.failover.max_attempts && may_hedge(data, &runners) {
                        match select_for_hedge(asked, ledger, tried) {
                            Ok(rival) => {
                                wait = patience(&rival);
                                tried.push(rival.replica());
                                *spent += 1;
                                runners.push(RunningAttempt::new(asked, rival, client));
                            }
                            // No other replica can take it now, and a hedge that waits at a gate would be pointless:
                            // stop hedging.
                            Err(_) => racing = false,
                        }
                    }
                }
            }
        }
    }
}

/// Waits for the first of these to end; returns its position and result.
async fn first_finished(runners: &mut [RunningAttempt<'_>]) -> (usize, (RequestAttempt, AttemptResult)) {
    poll_fn(|cx| {
        for (place, runner) in runners.iter_mut().enumerate() {
            if let Poll::Ready(ended) = runner.running.as_mut().poll(cx) {
                return Poll::Ready((place, ended));
            }
        }
        Poll::Pending
    })
    .await
}

/// Returns `true`, and counts the attempt, if another one may run beside those that are late.
fn may_hedge(data: &DataPlane, late: &[RunningAttempt<'_>]) -> bool {
    let now = data.clock.now();
    let hopeless = late.iter().all(|runner| data.liveness.ejections().is_ejected(runner.replica, now));
    // The budget is asked last, because asking counts a retry.
    !data.abort.is_triggered() && (hopeless || data.retry_budget.try_retry(now))
}
