//! Replicas raced for one stream: when the first byte is late, another replica is asked, too; the first usable answer
//! wins and the other attempts are aborted, which closes their connections, so their engines stop. Where one of them
//! fails, the others go on; where all that run are late, one more is asked, within `failover.max_attempts`.
//!
//! Each further attempt counts against the retry budget: a fleet that is slow as a whole must not be asked twice for
//! everything. Where the budget is spent the request waits on and asks again; it is let through once the late replica is
//! held back, since its own engine is then believed to do nothing for anybody.

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

/// How long a late request waits before it asks for the budget again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// An attempt that runs. Dropped, it is aborted.
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

    /// Another one was faster. `late`: this one had its time.
    fn lose(self, late: bool) {
        self.fate.lost(late);
    }
}

impl Exchange {
    /// Runs an attempt, and others beside it where it is late. Gives back the one that answered, or that failed last,
    /// with what came of it; rows of the others are written. All are added to `tried`, and to `spent` where they may have
    /// cost an engine work.
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
        // Each counts once it began, and is taken back where it cost nothing.
        *spent += 1;
        loop {
            tokio::select! {
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
                            // The others are as late as before.
                            wait = Duration::ZERO;
                        }
                        _ => {
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
                            Err(_) => racing = false,
                        }
                    }
                }
            }
        }
    }
}

/// Waits for the first of these to end: its place, and what came.
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

/// Whether another attempt may be made beside those that are late; it is counted if so.
fn may_race(data: &Data, late: &[Runner<'_>]) -> bool {
    let now = data.clock.now();
    let hopeless = late.iter().all(|runner| data.vitals.ejections().is_held_back(runner.replica, now));
    !data.cut.is_made() && (hopeless || data.retries.retry(now))
}
