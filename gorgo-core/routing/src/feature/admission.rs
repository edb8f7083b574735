//! The admission gate: requests wait at the router while the chosen replica has as many requests in flight as its engine
//! decodes cheaply. A state machine without clock or tasks, driven by `edge` and by `sim` alike.
//!
//! ```text
//! admit:    room at the chosen replica? ──yes──▶ Pass, given back by `release`
//!              └no──▶ its queue is full? ──no──▶ Ticket, waits; called when there is room, then decided anew
//!                                       └yes─▶ shed
//! ```
//!
//! A replica's limit is G − 2 requests, G being the largest batch with a captured CUDA graph, reported by its engine or
//! configured. Beyond G each decode step costs so much more that saturation feeds itself. No request is forced through
//! after a time, and none is sent to another replica merely because there is room: the first brings the collapse back,
//! the second throws caches away. A request that is called is decided again, with those who wait ahead of it counted as
//! load. If it then prefers another full replica it waits there, but at most [`MOST_MOVES`] times; after that it takes
//! the slot it is called to.
//!
//! Cold prompts (much to prefill) also wait while the replica still has much to prefill, so that the order of the queue
//! can matter: largest gap between the best and the second-best cost first, older before younger by `ageing`.
//!
//! The count is checked against the engine's own: see `room`.

mod replica;

use std::time::Duration;

use self::replica::{QueueRank, ReplicaAdmission};
use super::backlog::BATCH_MS;
use crate::model::{AdmissionRule, Candidates, FleetEvent, Replica, ReplicaId, UnixMicros};

/// Most times that a request may change the replica it waits for. After that it takes the slot it is called to, so
/// that no request moves around forever.
pub const MOST_MOVES: u16 = 3;
/// Interval after which a waiting request is decided again in any case: its replica may have become unusable.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Upper limit of a cost gap, ms, so that `ageing` bounds how many requests may overtake.
const MOST_GAP_MS: f64 = 10_000.0;

/// Longest `Retry-After` sent to a client, s: queues change faster than that.
const MOST_PATIENCE_SECS: f64 = 60.0;

/// Facts about a request that asks for admission at a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdmissionRequest {
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Prompt tokens that are not believed cached there.
    pub uncached_tokens: u32,
    /// Prefill time of the uncached tokens, ms.
    pub work_ms: f64,
    /// Prefill that the replica has to do before it, requests waiting ahead included, ms.
    pub backlog_ms: f64,
    /// Cost of the second-best replica minus that of the best, ms.
    pub gap_ms: f64,
}

/// Entry in a replica's queue. Return it with [`AdmissionGate::withdraw`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an entry that is never withdrawn blocks those behind it"]
pub struct QueueTicket {
    replica: ReplicaId,
    number: u64,
    moves: u16,
    look: UnixMicros,
}

impl QueueTicket {
    /// Replica that it waits for.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Number by which it is called; kept when the request is decided again.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Number of times that it has changed the replica it waits for.
    #[must_use]
    pub const fn moves(&self) -> u16 {
        self.moves
    }

    /// Time at which it must be decided again, called or not.
    #[must_use]
    pub const fn look(&self) -> UnixMicros {
        self.look
    }
}

/// Right to be in flight at a replica. Return it with [`AdmissionGate::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is never released narrows the gate until the engine's own count corrects it"]
pub struct AdmissionPermit {
    replica: ReplicaId,
    number: u64,
}

/// Result of asking for admission.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum AdmissionResult {
    /// Admitted: the request may be sent.
    Pass(AdmissionPermit),
    /// Queued: the request waits.
    Wait(QueueTicket),
    /// Rejected: the queue is full.
    Full,
}

/// Request that was taken out of its queue to be decided again; it keeps its age and its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WithdrawnTicket {
    replica: ReplicaId,
    number: u64,
    entered: UnixMicros,
    moves: u16,
    order: QueueRank,
    /// True when a slot at its replica had been reserved for it.
    promised: bool,
}

impl WithdrawnTicket {
    /// Replica that it must take now, because it was called there and has moved often enough.
    #[must_use]
    pub fn settled(&self) -> Option<ReplicaId> {
        (self.promised && self.moves >= MOST_MOVES).then_some(self.replica)
    }

    /// Replica that it waited for.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// Work that waits at the gate of one replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkAhead {
    /// Number of requests.
    pub requests: u32,
    /// Prompt tokens of these requests.
    pub prompt_tokens: u64,
    /// Prompt tokens of them that are not believed cached there.
    pub uncached_tokens: u64,
    /// Prefill time of them, ms.
    pub work_ms: f64,
}

/// Correction of a replica's count by its engine's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountCorrection {
    /// Replica whose count was corrected.
    pub replica: ReplicaId,
    /// Number of requests that were written off.
    pub written_off: u32,
    /// Number of requests that the engine reports.
    pub engine_has: f64,
}

/// Gates of all replicas.
#[derive(Debug, Clone)]
pub struct AdmissionGate {
    rule: Option<AdmissionRule>,
    rooms: Vec<ReplicaAdmission>,
    next: u64,
    /// Requests called since `take_called` was last used.
    called: Vec<u64>,
}

impl AdmissionGate {
    /// Creates the gates of a fleet, all open.
    #[must_use]
    pub fn new(fleet: &[Replica]) -> Self {
        let rooms = fleet.iter().map(|replica| ReplicaAdmission::new(replica.decode_batch)).collect();
        Self { rule: None, rooms, next: 0, called: Vec::new() }
    }

    /// Most requests in flight at a replica now; `None`: no gate there.
    #[must_use]
    pub fn limit(&self, rule: &AdmissionRule, replica: ReplicaId) -> Option<u32> {
        self.rooms[replica.index()].limit(rule)
    }

    /// Returns true when a request that will not wait finds no slot there.
    #[must_use]
    pub fn is_closed(&self, rule: &AdmissionRule, replica: ReplicaId) -> bool {
        let room = &self.rooms[replica.index()];
        // Those that wait come first: a request that does not wait must not take their slot.
        room.limit(rule).is_some_and(|limit| room.taken() + room.waiting() >= limit)
    }

    /// Number of requests in flight there by the gate's count, and number of those that wait.
    #[must_use]
    pub fn counts(&self, replica: ReplicaId) -> (u32, u32) {
        let room = &self.rooms[replica.index()];
        (room.inside(), room.queued())
    }

    /// Returns true when a request waits for this replica.
    #[must_use]
    pub fn is_waited_for(&self, replica: ReplicaId) -> bool {
        self.rooms[replica.index()].queued() > 0
    }

    /// Work that waits for a replica ahead of a request; `None`: ahead of one that arrives now.
    #[must_use]
    pub fn ahead(&self, replica: ReplicaId, before: Option<&WithdrawnTicket>) -> WorkAhead {
        self.rooms[replica.index()].ahead(before.map(|before| before.order))
    }

    /// Adds the work that waits ahead of a request to the load that its decision sees.
    pub fn read(&self, before: Option<&WithdrawnTicket>, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let ahead = self.ahead(candidates.replica[row], before);
            if ahead.requests > 0 {
                // A waiting request has reserved nothing at the replica yet, but it goes first, so it counts as load
                // in every column that `Load` and `Backlog` fill.
                candidates.queued_tokens[row] += ahead.prompt_tokens;
                candidates.queued_tokens_first[row] += ahead.prompt_tokens;
                candidates.queued_uncached_tokens_completion[row] += ahead.uncached_tokens;
                candidates.queued_uncached_tokens[row] += ahead.uncached_tokens;
                candidates.inflight[row] += ahead.requests;
                candidates.inflight_since_report[row] += i64::from(ahead.requests);
                candidates.backlog_ms[row] += ahead.work_ms;
            }
        }
    }

    /// Takes a request out of its queue, because it is decided again or its client has left. [`AdmissionGate::call`]
    /// then passes on the slot that was reserved for it.
    pub fn withdraw(&mut self, ticket: QueueTicket) -> WithdrawnTicket {
        let QueueTicket { replica, number, moves, .. } = ticket;
        let (entered, order, promised) = self.rooms[replica.index()].remove(number);
        WithdrawnTicket { replica, number, entered, moves, order, promised }
    }

    /// Admits a request at the replica that was chosen for it. `again`: the request has waited before. If the queue is
    /// full, such a request returns to its old position if `stay` is true, otherwise it is rejected.
    pub fn admit(
        &mut self,
        rule: &AdmissionRule,
        at: UnixMicros,
        replica: ReplicaId,
        wish: &AdmissionRequest,
        again: Option<(WithdrawnTicket, bool)>,
    ) -> AdmissionResult {
        // `call` has no rule at hand: it runs when a request ends, outside any decision.
        self.rule = Some(*rule);
        // Number and time of entry survive a second decision: both determine the order, so age is never lost.
        let number = again.map_or(self.next, |(before, _)| before.number);
        self.next += u64::from(again.is_none());
        let entered = again.map_or(at, |(before, _)| before.entered);
        let order = order(rule, wish, entered, number);
        let room = &mut self.rooms[replica.index()];
        let Some(limit) = room.limit(rule) else { return room.enter(at, replica, number) };
        let waited = again.is_some();
        // How much prefill must drain before a cold prompt may go; 0 or less: it need not wait for that.
        let over_ms =
            if rule.hold_cold && wish.work_ms > rule.cold_ms { wish.backlog_ms - rule.backlog_ms } else { 0.0 };
        // Promised slots count as taken, and everybody ahead has a claim to one: a free slot is no way to overtake.
        let full = room.taken() + room.waiting_ahead(order) >= limit;
        if !full && over_ms <= 0.0 {
            room.went(at, waited);
            return room.enter(at, replica, number);
        }
        // A full replica calls when a slot is free; prefill drains without any event, so the timer must wake this one.
        let look = at.plus(if full { LOOK_AGAIN } else { millis(over_ms).min(LOOK_AGAIN) });
        let mut moves = again.map_or(0, |(before, _)| before.moves);
        // Before the entry is queued: `begin_to_wait` starts the drain clock only at an empty queue.
        if again.is_none() {
            room.begin_to_wait(at);
        }
        if room.queued() < rule.max_queued {
            moves += u16::from(again.is_some_and(|(before, _)| before.replica != replica));
            room.queue(order, entered, wish);
            return AdmissionResult::Wait(QueueTicket { replica, number, moves, look });
        }
        match again {
            // Its old slot in the queue is free, because `withdraw` has just taken it out.
            Some((before, true)) => {
                moves = moves.saturating_add(1);
                self.rooms[before.replica.index()].queue(before.order, entered, wish);
                AdmissionResult::Wait(QueueTicket { replica: before.replica, number, moves, look: at.plus(LOOK_AGAIN) })
            }
            _ => AdmissionResult::Full,
        }
    }

    /// Expected time until those who wait for a replica now are gone, judged by how fast the queue has moved since it
    /// formed (at most the last `room::WENT` departures): seconds, 1 to `MOST_PATIENCE_SECS`. A rejected client
    /// that returns sooner would only be rejected again.
    #[must_use]
    pub fn patience_secs(&self, replica: ReplicaId, at: UnixMicros) -> u64 {
        let secs = self.rooms[replica.index()].drain_secs(at).ceil().clamp(1.0, MOST_PATIENCE_SECS);
        Duration::try_from_secs_f64(secs).map_or(1, |span| span.as_secs())
    }

    /// Ends a request's time in flight. One that was written off meanwhile changes nothing.
    pub fn release(&mut self, pass: AdmissionPermit) {
        self.rooms[pass.replica.index()].leave(pass.number);
    }

    /// Reserves slots for the next in line and calls them. `backlog_ms`: prefill that the replica has to do now.
    pub fn call(&mut self, replica: ReplicaId, backlog_ms: f64) {
        if let Some(rule) = &self.rule {
            self.rooms[replica.index()].call(rule, backlog_ms, &mut self.called);
        }
    }

    /// Applies an engine's report, or a change of a replica's state.
    pub fn apply(&mut self, event: &FleetEvent) -> Option<CountCorrection> {
        match event {
            FleetEvent::Report { replica, at, report } => self.rooms[replica.index()]
                .report(*at, report)
                .map(|(written_off, engine_has)| CountCorrection { replica: *replica, written_off, engine_has }),
            // Nobody may wait for a replica that is gone: all are decided again, and choose another.
            FleetEvent::Down { replica } => {
                let room = &mut self.rooms[replica.index()];
                room.forget_pages();
                room.call_all(&mut self.called);
                None
            }
            // Old pages describe the process that is gone, not the requests sent to the new one.
            FleetEvent::Restarted { replica } => {
                self.rooms[replica.index()].forget_pages();
                None
            }
            _ => None,
        }
    }

    /// Takes the numbers of the requests called since the last call; each must be decided again.
    pub fn take_called(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.called)
    }
}

/// Order of the queue: the largest gap plus age first; of two equal ones the one that arrived first.
#[expect(clippy::cast_precision_loss, reason = "µs since the epoch stay below 2^53 for two centuries")]
fn order(rule: &AdmissionRule, wish: &AdmissionRequest, entered: UnixMicros, number: u64) -> QueueRank {
    let gap_ms = if rule.hold_cold && wish.gap_ms.is_finite() { wish.gap_ms.clamp(0.0, MOST_GAP_MS) } else { 0.0 };
    // Age enters as minus the time of entry: ranks need not be recomputed while requests wait.
    QueueRank { rank: gap_ms - rule.ageing * (entered.0 as f64 / 1e3), number }
}

fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(1.0) / 1e3).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
