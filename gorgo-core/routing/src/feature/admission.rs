//! The admission gate: who waits at the router because the chosen replica has as many requests in flight as its engine
//! decodes cheaply. A state machine without clock and without tasks; `edge` and `sim` drive the same one.
//!
//! ```text
//! admit:    room at the chosen replica? ──yes──▶ Pass, given back by `release`
//!              └no──▶ its queue is full? ──no──▶ Ticket, waits; called when there is room, then decided anew
//!                                       └yes─▶ shed
//! ```
//!
//! A replica's room is G − 2 requests, G being the largest batch with a captured CUDA graph, by its engine or by
//! configuration; beyond G each decode step is so much dearer that saturation feeds itself. Nobody is forced through
//! after a time, and nobody is sent to another replica for its room alone: both bring the collapse back, or throw caches
//! away. A request that is called is decided anew, seeing as load those who wait ahead of it; where it then prefers
//! another full replica it waits there, but only [`MOST_MOVES`] times, after that it takes the place it is called to.
//!
//! Cold prompts (much to prefill) also wait while the replica still has much to prefill, so that the order of those who
//! wait can matter: largest gap between the best and the second-best cost first, older before younger by `ageing`.
//!
//! The count is held against the engine's own: see `room`. Source: design study, "Late binding, a decode
//! gate", sections 2, 3, 6.

mod replica;

use std::time::Duration;

use self::replica::{Order, Room};
use super::backlog::BATCH_MS;
use crate::model::{AdmissionRule, At, Candidates, Event, Replica, ReplicaId};

/// How often a request may change the replica it waits for; afterwards it takes the place it is called to, so that
/// nobody wanders for ever.
pub const MOST_MOVES: u16 = 3;
/// A request that waits is decided anew after this, whatever happened: its replica may have been held back meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A cost gap counts as at most this, ms, so that `ageing` bounds how many may overtake.
const MOST_GAP_MS: f64 = 10_000.0;

/// Longest that a client is told to stay away, s: queues change faster than that.
const MOST_PATIENCE_SECS: f64 = 60.0;

/// What is known of a request that is to be admitted at a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// Its prompt, tokens.
    pub prompt_tokens: u32,
    /// Of them not believed cached there.
    pub uncached_tokens: u32,
    /// Prefill time of these, ms.
    pub work_ms: f64,
    /// What the replica has to prefill before it, those who wait ahead included, ms.
    pub backlog_ms: f64,
    /// By how much the second-best replica is dearer, ms.
    pub gap_ms: f64,
}

/// A place in a replica's queue. Give it back with [`AdmissionGate::withdraw`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a place that is never given back blocks those behind it"]
pub struct Ticket {
    replica: ReplicaId,
    number: u64,
    moves: u16,
    look: At,
}

impl Ticket {
    /// For whom it waits.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// What it is called by; kept when it is decided anew.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// How often it changed the replica it waits for.
    #[must_use]
    pub const fn moves(&self) -> u16 {
        self.moves
    }

    /// When it is to be decided anew, called or not.
    #[must_use]
    pub const fn look(&self) -> At {
        self.look
    }
}

/// The right to be in flight at a replica. Give it back with [`AdmissionGate::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a pass that is never given back narrows the gate until the engine's own count says so"]
pub struct Pass {
    replica: ReplicaId,
    number: u64,
}

/// What became of a request at the gate.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// It may go.
    Pass(Pass),
    /// It waits.
    Wait(Ticket),
    /// As many wait as may.
    Full,
}

/// A request that was taken out of its queue to be decided anew; it keeps its age and its number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Withdrawn {
    replica: ReplicaId,
    number: u64,
    entered: At,
    moves: u16,
    order: Order,
    /// Whether a place at its replica had been set aside for it.
    promised: bool,
}

impl Withdrawn {
    /// The replica that it must take now: it was called there, and has wandered enough.
    #[must_use]
    pub fn settled(&self) -> Option<ReplicaId> {
        (self.promised && self.moves >= MOST_MOVES).then_some(self.replica)
    }

    /// For whom it waited.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// Work that waits at the gate for one replica.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ahead {
    /// Requests.
    pub requests: u32,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Of them not believed cached there.
    pub uncached_tokens: u64,
    /// Their prefill time, ms.
    pub work_ms: f64,
}

/// A replica's count was set right by its engine's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resync {
    /// Whose.
    pub replica: ReplicaId,
    /// Requests written off.
    pub written_off: u32,
    /// Requests that the engine says it has.
    pub engine_has: f64,
}

/// The gates of all replicas.
#[derive(Debug, Clone)]
pub struct AdmissionGate {
    rule: Option<AdmissionRule>,
    rooms: Vec<Room>,
    next: u64,
    /// Those called since somebody asked.
    called: Vec<u64>,
}

impl AdmissionGate {
    /// For this fleet, all open.
    #[must_use]
    pub fn new(fleet: &[Replica]) -> Self {
        let rooms = fleet.iter().map(|replica| Room::new(replica.decode_batch)).collect();
        Self { rule: None, rooms, next: 0, called: Vec::new() }
    }

    /// Most requests in flight at a replica now; `None`: no gate there.
    #[must_use]
    pub fn limit(&self, rule: &AdmissionRule, replica: ReplicaId) -> Option<u32> {
        self.rooms[replica.index()].limit(rule)
    }

    /// Whether a request that will not wait finds no room there.
    #[must_use]
    pub fn is_closed(&self, rule: &AdmissionRule, replica: ReplicaId) -> bool {
        let room = &self.rooms[replica.index()];
        room.limit(rule).is_some_and(|limit| room.taken() + room.waiting() >= limit)
    }

    /// Requests in flight there by the gate's count, and those that wait.
    #[must_use]
    pub fn counts(&self, replica: ReplicaId) -> (u32, u32) {
        let room = &self.rooms[replica.index()];
        (room.inside(), room.queued())
    }

    /// Whether anybody waits for this replica.
    #[must_use]
    pub fn is_waited_for(&self, replica: ReplicaId) -> bool {
        self.rooms[replica.index()].queued() > 0
    }

    /// What waits for a replica ahead of a request; `None`: ahead of one that comes now.
    #[must_use]
    pub fn ahead(&self, replica: ReplicaId, before: Option<&Withdrawn>) -> Ahead {
        self.rooms[replica.index()].ahead(before.map(|before| before.order))
    }

    /// Adds what waits ahead of a request to the load that its decision sees.
    pub fn read(&self, before: Option<&Withdrawn>, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let ahead = self.ahead(candidates.replica[row], before);
            if ahead.requests > 0 {
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

    /// Takes a request out of its queue: it is decided anew, or its client left. [`AdmissionGate::call`] says who gets the place
    /// that was set aside for it.
    pub fn withdraw(&mut self, ticket: Ticket) -> Withdrawn {
        let Ticket { replica, number, moves, .. } = ticket;
        let (entered, order, promised) = self.rooms[replica.index()].remove(number);
        Withdrawn { replica, number, entered, moves, order, promised }
    }

    /// Admits a request at the replica that was chosen for it. `again`: it waited already; where the queue there is full
    /// it then stays where it was, if `stay`, else it is shed.
    pub fn admit(
        &mut self,
        rule: &AdmissionRule,
        at: At,
        replica: ReplicaId,
        wish: &Wish,
        again: Option<(Withdrawn, bool)>,
    ) -> Admission {
        self.rule = Some(*rule);
        let number = again.map_or(self.next, |(before, _)| before.number);
        self.next += u64::from(again.is_none());
        let entered = again.map_or(at, |(before, _)| before.entered);
        let order = order(rule, wish, entered, number);
        let room = &mut self.rooms[replica.index()];
        let Some(limit) = room.limit(rule) else { return room.enter(at, replica, number) };
        let waited = again.is_some();
        let over_ms =
            if rule.hold_cold && wish.work_ms > rule.cold_ms { wish.backlog_ms - rule.backlog_ms } else { 0.0 };
        let full = room.taken() + room.waiting_ahead(order) >= limit;
        if !full && over_ms <= 0.0 {
            room.went(at, waited);
            return room.enter(at, replica, number);
        }
        let look = at.plus(if full { LOOK_AGAIN } else { millis(over_ms).min(LOOK_AGAIN) });
        let mut moves = again.map_or(0, |(before, _)| before.moves);
        if again.is_none() {
            room.begin_to_wait(at);
        }
        if room.queued() < rule.max_queued {
            moves += u16::from(again.is_some_and(|(before, _)| before.replica != replica));
            room.queue(order, entered, wish);
            return Admission::Wait(Ticket { replica, number, moves, look });
        }
        match again {
            // Its old place is free: it just left it.
            Some((before, true)) => {
                moves = moves.saturating_add(1);
                self.rooms[before.replica.index()].queue(before.order, entered, wish);
                Admission::Wait(Ticket { replica: before.replica, number, moves, look: at.plus(LOOK_AGAIN) })
            }
            _ => Admission::Full,
        }
    }

    /// When those who wait for a replica now will have gone, by how fast they went since the queue formed, at most the last
    /// `room::WENT` of them: seconds, 1 to `MOST_PATIENCE_SECS`. Those who are shed should not come back sooner, or they
    /// would only be shed again.
    #[must_use]
    pub fn patience_secs(&self, replica: ReplicaId, at: At) -> u64 {
        let secs = self.rooms[replica.index()].drain_secs(at).ceil().clamp(1.0, MOST_PATIENCE_SECS);
        Duration::try_from_secs_f64(secs).map_or(1, |span| span.as_secs())
    }

    /// A request is no longer in flight. One that was written off meanwhile changes nothing.
    pub fn release(&mut self, pass: Pass) {
        self.rooms[pass.replica.index()].leave(pass.number);
    }

    /// Sets places aside for those who are next, and calls them. `backlog_ms`: what the replica has to prefill now.
    pub fn call(&mut self, replica: ReplicaId, backlog_ms: f64) {
        if let Some(rule) = &self.rule {
            self.rooms[replica.index()].call(rule, backlog_ms, &mut self.called);
        }
    }

    /// Takes in what an engine says of itself, and what becomes of replicas.
    pub fn apply(&mut self, event: &Event) -> Option<Resync> {
        match event {
            Event::Report { replica, at, report } => self.rooms[replica.index()]
                .report(*at, report)
                .map(|(written_off, engine_has)| Resync { replica: *replica, written_off, engine_has }),
            Event::Down { replica } => {
                let room = &mut self.rooms[replica.index()];
                room.forget_pages();
                room.call_all(&mut self.called);
                None
            }
            Event::Restarted { replica } => {
                self.rooms[replica.index()].forget_pages();
                None
            }
            _ => None,
        }
    }

    /// Those who were called since this was asked last; to be decided anew.
    pub fn take_called(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.called)
    }
}

/// Who comes first: the largest gap plus age; of two the one that came first.
#[expect(clippy::cast_precision_loss, reason = "µs since the epoch stay below 2^53 for two centuries")]
fn order(rule: &AdmissionRule, wish: &Wish, entered: At, number: u64) -> Order {
    let gap_ms = if rule.hold_cold && wish.gap_ms.is_finite() { wish.gap_ms.clamp(0.0, MOST_GAP_MS) } else { 0.0 };
    Order { rank: gap_ms - rule.ageing * (entered.0 as f64 / 1e3), number }
}

fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(1.0) / 1e3).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests;
