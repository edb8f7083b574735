//! One replica's gate: who is in flight there, who waits, and whether the engine's own count agrees.
//!
//! A count that leaks would close the gate for good. So it is held against the last three metrics pages: requests that
//! have been counted since ten seconds before the first of them, and still are, must each be running or waiting in all
//! three; what is more than the engine ever said is written off. The other way round, what the engine says beyond the
//! count in all three pages is other routers' work, and narrows the gate, but never below one request. An engine without
//! a metrics page is believed to have what was sent to it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Admission, Ahead, BATCH_MS, Pass, Wish};
use crate::model::{AdmissionRule, At, EngineReport, ReplicaId};

/// How many metrics pages must agree.
const PAGES: usize = 3;
/// Pages closer together than this count as one.
const PAGE_APART: Duration = Duration::from_secs(1);
/// A request younger than this may not be on the engine's page: it is on its way, or the page is late.
const SURELY_THERE: Duration = Duration::from_secs(10);
/// Sums of the same works in another order differ by less. Who is called must not be found cold again for that, or it
/// would be called without end.
const ROUNDING_MS: f64 = 1e-6;
/// How many who went are remembered, for how fast the queue drains.
pub(super) const WENT: usize = 32;
/// How far below the engine's graph batch the gate closes, requests: those on their way arrive together at times.
const BELOW_BATCH: u32 = 2;

/// Where a request stands among those who wait: larger ranks first, then smaller numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Order {
    pub(super) rank: f64,
    pub(super) number: u64,
}

impl Order {
    fn compare(&self, other: &Self) -> Ordering {
        other.rank.total_cmp(&self.rank).then(self.number.cmp(&other.number))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Waits,
    /// Called to be decided anew, without a place.
    Asked,
    /// Called, with a place set aside.
    Promised,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    order: Order,
    entered: At,
    call: Call,
    prompt_tokens: u32,
    uncached_tokens: u32,
    work_ms: f64,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    at: At,
    has: f64,
    beyond: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Room {
    configured_batch: Option<u32>,
    learned_batch: Option<u32>,
    max_running: Option<u32>,
    /// Requests in flight, by number, and since when: numbers rise with time but for those who waited.
    inside: BTreeMap<u64, At>,
    promised: u32,
    /// In their order.
    held: Vec<Held>,
    pages: VecDeque<Page>,
    foreign: u32,
    /// When the queue formed or the oldest remembered one went, then when each one went since.
    went: VecDeque<At>,
}

impl Room {
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
                if self.max_running.is_some_and(|most| most <= batch) {
                    return None;
                }
                batch.saturating_sub(BELOW_BATCH)
            }
        };
        Some(own.saturating_sub(self.foreign).max(1))
    }

    pub(super) fn inside(&self) -> u32 {
        u32::try_from(self.inside.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn queued(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    /// Places that are taken or set aside.
    pub(super) fn taken(&self) -> u32 {
        self.inside() + self.promised
    }

    /// Those who wait without a place.
    pub(super) fn waiting(&self) -> u32 {
        self.queued() - self.promised
    }

    /// Those of them who are ahead of this one.
    pub(super) fn waiting_ahead(&self, order: Order) -> u32 {
        let ahead = self.held.iter().take_while(|held| held.order.compare(&order).is_lt());
        u32::try_from(ahead.filter(|held| held.call != Call::Promised).count()).unwrap_or(u32::MAX)
    }

    pub(super) fn ahead(&self, before: Option<Order>) -> Ahead {
        let mut sum = Ahead::default();
        for held in &self.held {
            if before.is_some_and(|before| held.order.compare(&before).is_ge()) {
                break;
            }
            sum.requests += 1;
            sum.prompt_tokens += u64::from(held.prompt_tokens);
            sum.uncached_tokens += u64::from(held.uncached_tokens);
            sum.work_ms += BATCH_MS + held.work_ms;
        }
        sum
    }

    pub(super) fn enter(&mut self, at: At, replica: ReplicaId, number: u64) -> Admission {
        self.inside.insert(number, at);
        Admission::Pass(Pass { replica, number })
    }

    /// Somebody comes who must wait: where nobody else does, a queue forms now.
    pub(super) fn begin_to_wait(&mut self, at: At) {
        if self.held.is_empty() {
            self.went.clear();
            self.went.push_back(at);
        }
    }

    /// Somebody is sent on. `waited`: out of the queue; one that never waited says nothing of it.
    pub(super) fn went(&mut self, at: At, waited: bool) {
        if waited && !self.went.is_empty() {
            self.went.push_back(at);
            if self.went.len() > WENT {
                self.went.pop_front();
            }
        }
    }

    /// When those who wait now will have gone if they go as they went: s. Where none went yet, as if one did now.
    #[expect(clippy::cast_precision_loss, reason = "at most some dozens")]
    pub(super) fn drain_secs(&self, at: At) -> f64 {
        let Some(first) = self.went.front() else { return 0.0 };
        let went = self.went.len().saturating_sub(1).max(1) as f64;
        f64::from(self.queued()) * at.since(*first).as_secs_f64() / went
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.inside.remove(&number);
    }

    pub(super) fn queue(&mut self, order: Order, entered: At, wish: &Wish) {
        let place = self.held.partition_point(|held| held.order.compare(&order).is_lt());
        let Wish { prompt_tokens, uncached_tokens, work_ms, .. } = *wish;
        self.held.insert(place, Held { order, entered, call: Call::Waits, prompt_tokens, uncached_tokens, work_ms });
    }

    /// When it came, where it stood, and whether a place was set aside for it.
    pub(super) fn remove(&mut self, number: u64) -> (At, Order, bool) {
        let Some(place) = self.held.iter().position(|held| held.order.number == number) else {
            // Tickets cannot be copied, so this is never seen; a gate that stays open is the harmless answer.
            return (At(0), Order { rank: f64::INFINITY, number }, false);
        };
        let held = self.held.remove(place);
        let promised = held.call == Call::Promised;
        self.promised -= u32::from(promised);
        (held.entered, held.order, promised)
    }

    /// Calls those for whom there is a place. A cold one is passed over while the replica has much to prefill, but keeps
    /// its claim: who is behind it finds one place less.
    pub(super) fn call(&mut self, rule: &AdmissionRule, mut backlog_ms: f64, called: &mut Vec<u64>) {
        let limit = self.limit(rule).unwrap_or(u32::MAX);
        let mut claims = self.inside().saturating_add(self.promised);
        for held in &mut self.held {
            if held.call != Call::Promised {
                if claims >= limit {
                    break;
                }
                claims += 1;
                let much = backlog_ms > rule.backlog_ms - ROUNDING_MS;
                let cold = rule.hold_cold && held.work_ms > rule.cold_ms && much;
                if !cold {
                    if held.call == Call::Waits {
                        called.push(held.order.number);
                    }
                    held.call = Call::Promised;
                    self.promised += 1;
                }
            }
            backlog_ms += BATCH_MS + held.work_ms;
        }
    }

    /// Calls everybody who waits, to be decided anew: the replica is gone.
    pub(super) fn call_all(&mut self, called: &mut Vec<u64>) {
        for held in self.held.iter_mut().filter(|held| held.call == Call::Waits) {
            held.call = Call::Asked;
            called.push(held.order.number);
        }
    }

    pub(super) fn forget_pages(&mut self) {
        self.pages.clear();
        self.foreign = 0;
    }

    /// Takes in a metrics page. How many requests are written off, and how many the engine says it has.
    pub(super) fn report(&mut self, at: At, report: &EngineReport) -> Option<(u32, f64)> {
        // A page that says how many run says all there is to say; one that says neither leaves what was said.
        if report.max_running.is_some() || report.decode_batch.is_some() {
            (self.learned_batch, self.max_running) = (report.decode_batch, report.max_running);
        }
        let (Some(running), Some(waiting)) = (report.running, report.waiting) else { return None };
        if self.pages.back().is_some_and(|last| at.since(last.at) < PAGE_APART) {
            return None;
        }
        let has = running + waiting;
        if !has.is_finite() {
            return None;
        }
        self.pages.push_back(Page { at, has, beyond: has - f64::from(self.inside()) });
        if self.pages.len() > PAGES {
            self.pages.pop_front();
        }
        let first = self.pages.front().filter(|_| self.pages.len() == PAGES)?.at;
        self.foreign = whole(self.pages.iter().map(|page| page.beyond).fold(f64::INFINITY, f64::min));
        let most = whole(self.pages.iter().map(|page| page.has).fold(0.0, f64::max).ceil());
        let sure: Vec<u64> = self
            .inside
            .iter()
            .filter(|(_, since)| first.since(**since) >= SURELY_THERE)
            .map(|(number, _)| *number)
            .collect();
        let written_off =
            u32::try_from(sure.len()).unwrap_or(u32::MAX).checked_sub(most).filter(|leaked| *leaked > 0)?;
        for number in sure.iter().take(usize::try_from(written_off).unwrap_or(usize::MAX)) {
            self.inside.remove(number);
        }
        Some((written_off, has))
    }
}

/// A count of requests; what is below zero or no number is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped on the same line")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1e9) as u32
}
