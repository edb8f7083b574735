//! Gate of one replica: requests in flight, requests waiting, and the comparison with the engine's own count.
//!
//! A count that leaks would close the gate for good, so it is compared with the last three metrics pages. Requests that
//! have been counted since ten seconds before the first of them, and still are, must each be running or waiting in all
//! three; any number above the engine's highest is written off. Conversely, requests that the engine reports beyond the
//! count in all three pages belong to other routers and narrow the gate, but never below one request. An engine without
//! a metrics page is assumed to have exactly what was sent to it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{AdmissionPermit, AdmissionRequest, AdmissionResult, BATCH_MS, WorkAhead};
use crate::model::{AdmissionRule, EngineReport, ReplicaId, UnixMicros};

/// Number of metrics pages that must agree.
const PAGES: usize = 3;
/// Pages closer together than this count as one.
const PAGE_APART: Duration = Duration::from_secs(1);
/// Minimum age, at the first page, of a request that must be on the engine's pages: a younger one may still be on its
/// way, or the page may be late.
const SURELY_THERE: Duration = Duration::from_secs(10);
/// Tolerance for sums of the same works in another order. Without it a request that was just called could be found
/// cold again by rounding, and would be called without end.
const ROUNDING_MS: f64 = 1e-6;
/// Number of departures remembered, to estimate how fast the queue drains.
pub(super) const WENT: usize = 32;
/// Distance of the gate's limit from the engine's graph batch, requests: requests on their way may arrive together.
const BELOW_BATCH: u32 = 2;

/// Position of a request in the queue: larger ranks first, then smaller numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct QueueRank {
    pub(super) rank: f64,
    pub(super) number: u64,
}

impl QueueRank {
    fn compare(&self, other: &Self) -> Ordering {
        other.rank.total_cmp(&self.rank).then(self.number.cmp(&other.number))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueEntryState {
    Waits,
    /// Called to be decided again, without a slot.
    Asked,
    /// Called, with a slot reserved.
    Promised,
}

#[derive(Debug, Clone, Copy)]
struct QueuedRequest {
    order: QueueRank,
    entered: UnixMicros,
    call: QueueEntryState,
    prompt_tokens: u32,
    uncached_tokens: u32,
    work_ms: f64,
}

#[derive(Debug, Clone, Copy)]
struct ReportedLoad {
    at: UnixMicros,
    has: f64,
    beyond: f64,
}

#[derive(Debug, Clone)]
pub(super) struct ReplicaAdmission {
    configured_batch: Option<u32>,
    learned_batch: Option<u32>,
    max_running: Option<u32>,
    /// Requests in flight by number, with the time of their dispatch. Numbers rise with time except for those that
    /// waited.
    inside: BTreeMap<u64, UnixMicros>,
    promised: u32,
    /// Waiting requests in queue order.
    held: Vec<QueuedRequest>,
    pages: VecDeque<ReportedLoad>,
    foreign: u32,
    /// Start of the queue, or the oldest remembered departure, followed by the time of each departure since.
    went: VecDeque<UnixMicros>,
}

impl ReplicaAdmission {
    pub(super) const fn new(configured_batch: Option<u32>) -> Self {
        Self {
            configured_batch,
            learned_batch: None,
            max_running: None,
            inside: BTreeMap::new(),
            promised: 0,
            held: Vec::new(),
            pages: VecDeque::new(),
            foreign: 0,
            went: VecDeque::new(),
        }
    }

    pub(super) fn limit(&self, rule: &AdmissionRule) -> Option<u32> {
        let own = match rule.max_in_flight {
            Some(most) => most,
            None => {
                let batch = self.configured_batch.or(self.learned_batch)?;
                // An engine that never runs more than its graph batch cannot leave it: it queues the rest itself.
                if self.max_running.is_some_and(|most| most <= batch) {
                    return None;
                }
                batch.saturating_sub(BELOW_BATCH)
            }
        };
        // Never below one: other routers' work narrows this gate, but must not shut this router out.
        Some(own.saturating_sub(self.foreign).max(1))
    }

    pub(super) fn inside(&self) -> u32 {
        u32::try_from(self.inside.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn queued(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Slots that are taken or reserved.
    pub(super) fn taken(&self) -> u32 {
        self.inside() + self.promised
    }

    /// Requests that wait without a slot.
    pub(super) fn waiting(&self) -> u32 {
        self.queued() - self.promised
    }

    /// Waiting requests without a slot that are ahead of `order`.
    pub(super) fn waiting_ahead(&self, order: QueueRank) -> u32 {
        let ahead = self.held.iter().take_while(|held| held.order.compare(&order).is_lt());
        u32::try_from(ahead.filter(|held| held.call != QueueEntryState::Promised).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn ahead(&self, before: Option<QueueRank>) -> WorkAhead {
        let mut sum = WorkAhead::default();
        for held in &self.held {
            if before.is_some_and(|before| held.order.compare(&before).is_ge()) {
                break;
            }
            sum.requests += 1;
            sum.prompt_tokens += u64::from(held.prompt_tokens);
            sum.uncached_tokens += u64::from(held.uncached_tokens);
            // Each prefill batch has a fixed time as well, as in `Backlog`.
            sum.work_ms += BATCH_MS + held.work_ms;
        }
        sum
    }

    pub(super) fn enter(&mut self, at: UnixMicros, replica: ReplicaId, number: u64) -> AdmissionResult {
        self.inside.insert(number, at);
        AdmissionResult::Pass(AdmissionPermit { replica, number })
    }

    /// Starts the drain clock if the queue is empty when a request begins to wait.
    pub(super) fn begin_to_wait(&mut self, at: UnixMicros) {
        if self.held.is_empty() {
            self.went.clear();
            self.went.push_back(at);
        }
    }

    /// Notes that a request was sent on. `waited`: it came out of the queue; others show nothing about its speed.
    pub(super) fn went(&mut self, at: UnixMicros, waited: bool) {
        if waited && !self.went.is_empty() {
            self.went.push_back(at);
            if self.went.len() > WENT {
                self.went.pop_front();
            }
        }
    }

    /// Time until those who wait now are gone at the speed of past departures, s. Before any, as if one departed now.
    #[expect(clippy::cast_precision_loss, reason = "at most some dozens")]
    pub(super) fn drain_secs(&self, at: UnixMicros) -> f64 {
        let Some(first) = self.went.front() else { return 0.0 };
        let went = self.went.len().saturating_sub(1).max(1) as f64;
        f64::from(self.queued()) * at.elapsed_since(*first).as_secs_f64() / went
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.inside.remove(&number);
    }

    pub(super) fn queue(&mut self, order: QueueRank, entered: UnixMicros, wish: &AdmissionRequest) {
        let place = self.held.partition_point(|held| held.order.compare(&order).is_lt());
        let AdmissionRequest { prompt_tokens, uncached_tokens, work_ms, .. } = *wish;
        self.held.insert(
            place,
            QueuedRequest { order, entered, call: QueueEntryState::Waits, prompt_tokens, uncached_tokens, work_ms },
        );
    }

    /// Time of entry, position, and true when a slot was reserved for it.
    pub(super) fn remove(&mut self, number: u64) -> (UnixMicros, QueueRank, bool) {
        let Some(place) = self.held.iter().position(|held| held.order.number == number) else {
            // Tickets cannot be copied, so this never happens; a gate that stays open is the harmless outcome.
            return (UnixMicros(0), QueueRank { rank: f64::INFINITY, number }, false);
        };
        let held = self.held.remove(place);
        let promised = held.call == QueueEntryState::Promised;
        // The reserved slot is free again; the next `call` gives it to somebody else.
        self.promised -= u32::from(promised);
        (held.entered, held.order, promised)
    }

    /// Calls those for whom there is a slot. A cold request is skipped while the replica has much to prefill, but keeps
    /// its claim: those behind it find one slot less.
    pub(super) fn call(&mut self, rule: &AdmissionRule, mut backlog_ms: f64, called: &mut Vec<u64>) {
        let limit = self.limit(rule).unwrap_or(u32::MAX);
        let mut claims = self.inside().saturating_add(self.promised);
        for held in &mut self.held {
            if held.call != QueueEntryState::Promised {
                if claims >= limit {
                    break;
                }
                claims += 1;
                let much = backlog_ms > rule.backlog_ms - ROUNDING_MS;
                let cold = rule.hold_cold && held.work_ms > rule.cold_ms && much;
                if !cold {
                    // One that was asked already is on its way to be decided; a second call would decide it twice.
                    if held.call == QueueEntryState::Waits {
                        called.push(held.order.number);
                    }
                    held.call = QueueEntryState::Promised;
                    self.promised += 1;
                }
            }
            // Those further back see the prefill of everybody ahead, called or not.
            backlog_ms += BATCH_MS + held.work_ms;
        }
    }

    /// Calls all waiting requests to be decided again, because the replica is gone.
    pub(super) fn call_all(&mut self, called: &mut Vec<u64>) {
        for held in self.held.iter_mut().filter(|held| held.call == QueueEntryState::Waits) {
            held.call = QueueEntryState::Asked;
            called.push(held.order.number);
        }
    }

    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
        self.foreign = 0;
    }

    /// Applies a metrics page. Returns the number of requests written off, and the number that the engine reports.
    pub(super) fn report(&mut self, at: UnixMicros, report: &EngineReport) -> Option<(u32, f64)> {
        // A page with either value replaces both; a page with neither keeps what is known.
        if report.max_running.is_some() || report.decode_batch.is_some() {
            (self.learned_batch, self.max_running) = (report.decode_batch, report.max_running);
        }
        let (Some(running), Some(waiting)) = (report.running, report.waiting) else { return None };
        // Pages in quick succession are no independent evidence: one snapshot that is late would count three times.
        if self.pages.back().is_some_and(|last| at.elapsed_since(last.at) < PAGE_APART) {
            return None;
        }
        let has = running + waiting;
        if !has.is_finite() {
            return None;
        }
        self.pages.push_back(ReportedLoad { at, has, beyond: has - f64::from(self.inside()) });
        if self.pages.len() > PAGES {
            self.pages.pop_front();
        }
        let first = self.pages.front().filter(|_| self.pages.len() == PAGES)?.at;
        // The minimum over all pages: a request of ours that is counted late must not pass for foreign work.
        self.foreign = whole(self.pages.iter().map(|page| page.beyond).fold(f64::INFINITY, f64::min));
        // The maximum, on the contrary, is the engine's best case, so that only certain leaks are written off.
        let most = whole(self.pages.iter().map(|page| page.has).fold(0.0, f64::max).ceil());
        let sure: Vec<u64> = self
            .inside
            .iter()
            .filter(|(_, since)| first.elapsed_since(**since) >= SURELY_THERE)
            .map(|(number, _)| *number)
            .collect();
        let written_off =
            u32::try_from(sure.len()).unwrap_or(u32::MAX).checked_sub(most).filter(|leaked| *leaked > 0)?;
        // The oldest first: the longer a request has been in flight, the likelier its end was missed.
        for number in sure.iter().take(usize::try_from(written_off).unwrap_or(usize::MAX)) {
            self.inside.remove(number);
        }
        Some((written_off, has))
    }
}

/// Converts a count of requests; negative values and NaN become 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped on the same line")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1e9) as u32
}
