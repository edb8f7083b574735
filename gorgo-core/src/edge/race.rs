//! Two replicas raced for one stream: when the first byte is late, a second replica is asked, too; the first usable
//! answer wins and the other attempt is aborted, which closes its connection, so its engine stops.
//!
//! A second attempt counts against the retry budget: a fleet that is slow as a whole must not be asked twice for
//! everything. Where the budget is spent the request waits on and asks again; it is let through once the late replica is
//! held back, since its own engine is then believed to do nothing for anybody.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use super::Data;
use super::accept::ClientConnection;
use super::asked::Came;
use super::attempt::Attempt;
use super::forward::{choose, failure};
use super::intake::{Exchange, Holder};
use crate::model::{ReplicaId, Usage};

/// How long a late request waits before it asks for the budget again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

impl Exchange {
    /// Runs an attempt, and a second one where the first is late. Gives back the one that answered, or that failed last,
    /// with what came of it; rows of the other are written. Both are added to `tried`, and to `spent` where they may
    /// have cost an engine work.
    pub(super) async fn race(
        &mut self,
        mut first: Attempt,
        tried: &mut Vec<ReplicaId>,
        spent: &mut u32,
        client: &ClientConnection,
    ) -> (Came, Attempt) {
        let Self { asked, ledger, holder, .. } = self;
        let (data, holder) = (&asked.data, *holder);
        tried.push(first.replica());
        let mut racing = holder == Holder::Anyone && data.failover.max_attempts > *spent + 1 && asked.may_be_raced();
        let mut wait = data.patience.of(first.replica(), first.predicted_ttft_ms);
        let late = first.replica();
        let mut second = None;
        let (one, two) = {
            let mut one = pin!(asked.attempt(&mut first, client));
            let rival = loop {
                tokio::select! {
                    biased;
                    came = &mut one => break Err(came),
                    () = sleep(wait), if racing => {
                        wait = ASK_AGAIN;
                        if may_race(data, late) {
                            match choose(asked, ledger, tried, data.clock.now()) {
                                Ok(rival) => break Ok(rival),
                                Err(_) => racing = false,
                            }
                        }
                    }
                }
            };
            match rival {
                Err(came) => (Some(came), None),
                Ok(rival) => {
                    tried.push(rival.replica());
                    let mut two = pin!(asked.attempt(second.insert(rival), client));
                    let (mut one_came, mut two_came) = (None, None);
                    while one_came.is_none() || two_came.is_none() {
                        let came = tokio::select! {
                            biased;
                            came = &mut one, if one_came.is_none() => one_came.insert(came),
                            came = &mut two, if two_came.is_none() => two_came.insert(came),
                        };
                        if failure(holder, came).is_none() {
                            break;
                        }
                    }
                    (one_came, two_came)
                }
            }
        };
        *spent += u32::from(costs(one.as_ref())) + u32::from(second.is_some() && costs(two.as_ref()));
        match (one, two, second) {
            (Some(one), two, Some(second)) if two.is_none() || failure(holder, &one).is_none() => {
                match two.and_then(|two| failure(holder, &two)) {
                    Some((class, _)) => second.end(Some(class), Usage::default()),
                    None => second.lost(false),
                }
                (one, first)
            }
            (one, Some(two), Some(second)) => {
                match one.and_then(|one| failure(holder, &one)) {
                    Some((class, _)) => first.end(Some(class), Usage::default()),
                    None => first.lost(true),
                }
                (two, second)
            }
            (Some(one), ..) => (one, first),
            // The loops end only when something came.
            (None, ..) => (Came::Nothing { class: crate::model::ErrorClass::UpstreamClosed, unsent: false }, first),
        }
    }
}

/// Whether a second attempt may be made beside one that is late; it is counted if so.
fn may_race(data: &Data, late: ReplicaId) -> bool {
    let now = data.clock.now();
    !data.cut.is_cancelled() && (data.vitals.ejections().is_held_back(late, now) || data.retries.retry(now))
}

/// Whether an attempt may have cost an engine work; one that was aborted has.
const fn costs(came: Option<&Came>) -> bool {
    !matches!(came, Some(Came::Nothing { unsent: true, .. }))
}
