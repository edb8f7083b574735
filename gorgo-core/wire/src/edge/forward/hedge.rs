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

use crate::edge::Data;
use crate::edge::choose::admission::choose_now;
use crate::edge::forward::attempt::{Attempt, Fate};
use crate::edge::forward::buffered_request::{Asked, Came};
use crate::edge::forward::failure;
use crate::edge::intake::{Exchange, Holder};
use crate::edge::listen::connection::ClientConnection;
use gorgo_routing::model::{ReplicaId, Usage};

/// Pause before a late request asks the budget again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Running attempt; dropping it aborts it.
struct Runner<'a> {
    running: Pin<Box<dyn Future<Output = (Attempt, Came)> + Send + 'a>>,
    replica: ReplicaId,
    fate: Fate,
}

impl<'a> Runner<'a> {
    fn new(asked: &'a Asked, mut attempt: Attempt, client: &'a ClientConnection) -> Self {
        let (replica, fate) = (attempt.replica(), attempt.fate());
        let running = Box::pin(async move {
            let came = asked.attempt(&mut attempt, client).await;
            (attempt, came)
        });
        Self { running, replica, fate }
    }

    /// Aborts it because another one was faster. `late`: this one had exceeded its hedge delay.
    fn lose(self, late: bool) {
        self.fate.lost(late);
    }
}

impl Exchange {
    /// Runs an attempt, and hedges it when it is late. Returns the attempt that answered, or that failed last, with its
    /// result; rows of the others are written. All are added to `tried`, and to `spent` if they may have cost an engine
    /// work.
    pub(in crate::edge) async fn race(
        &mut self,
        attempt: Attempt,
        tried: &mut Vec<ReplicaId>,
        spent: &mut u32,
        client: &ClientConnection,
    ) -> (Came, Attempt) {
        let Self { asked, ledger, holder, .. } = self;
        let (asked, data, holder) = (&*asked, &asked.data, *holder);
        let patience = |attempt: &Attempt| data.patience.of(attempt.replica(), attempt.predicted_ttft_ms);
        let mut racing = holder == Holder::Anyone && asked.may_be_raced();
        let mut wait = patience(&attempt);
        tried.push(attempt.replica());
        // In the order in which they began.
        let mut runners = vec![Runner::new(asked, attempt, client)];
        // Each attempt counts once it has begun, and is subtracted if it cost nothing.
        *spent += 1;
        loop {
            tokio::select! {
                // Biased: if a response and the timer are ready together, no hedge is needed.
                biased;
                (place, (attempt, came)) = finished(&mut runners) => {
                    runners.remove(place);
                    if matches!(came, Came::Nothing { unsent: true, .. }) {
                        *spent -= 1;
                    }
                    match failure(holder, &came) {
                        Some((class, _)) if !runners.is_empty() => {
                            drop(came);
                            attempt.end(Some(class), Usage::default());
                            // The others are already late, so the next hedge need not wait.
                            wait = Duration::ZERO;
                        }
                        _ => {
                            // Those that began before the winner were late, or there would be no hedge; those after it
                            // had no fair chance.
                            for (began, runner) in runners.into_iter().enumerate() {
                                runner.lose(began < place);
                            }
                            return (came, attempt);
                        }
                    }
                }
                () = sleep(wait), if racing => {
                    wait = ASK_AGAIN;
                    if *spent < data.failover.max_attempts && may_race(data, &runners) {
                        match choose_now(asked, ledger, tried) {
                            Ok(rival) => {
                                wait = patience(&rival);
                                tried.push(rival.replica());
                                *spent += 1;
                                runners.push(Runner::new(asked, rival, client));
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
async fn finished(runners: &mut [Runner<'_>]) -> (usize, (Attempt, Came)) {
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
fn may_race(data: &Data, late: &[Runner<'_>]) -> bool {
    let now = data.clock.now();
    let hopeless = late.iter().all(|runner| data.vitals.ejections().is_held_back(runner.replica, now));
    // The budget is asked last, because asking counts a retry.
    !data.cut.is_made() && (hopeless || data.retries.retry(now))
}
