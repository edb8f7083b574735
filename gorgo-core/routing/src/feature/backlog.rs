//! Prefill work that waits at each replica, ms, tracked by a virtual clock.
//!
//! ```text
//! dispatch at t:       V = max(V, t + RTT/2) + 40 ms + work
//! first token at t:    v = t − RTT/2; for each still without one, oldest first: v = max(v, tₖ + RTT/2) + 40 ms + workₖ; V = v
//! read at t:           max(0, V − t − RTT/2); a request overdue by o makes it at least min(o, 3 s)
//! ```
//!
//! V is the time at which the engine will have nothing left to prefill. Each first token corrects it, because engines
//! prefill in order of arrival; a request that is late is assumed to delay all requests behind it. Work is the prefill
//! time predicted at dispatch, ms. Only requests of this router are included.

use std::collections::VecDeque;

use crate::model::{Candidates, ReplicaId, UnixMicros};

/// Fixed time of a prefill batch, which a waiting request pays for every request ahead of it, ms.
pub(crate) const BATCH_MS: f64 = 40.0;
/// Upper limit of the delay that an overdue request adds to the backlog, ms.
const MOST_OVERDUE_MS: f64 = 3_000.0;

/// Entry of one request in a replica's backlog. Return it with [`FleetBacklog::first_token`] or [`FleetBacklog::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that is never released stays in the backlog forever"]
pub struct BacklogTicket {
    replica: ReplicaId,
    number: u64,
}

/// A request without a first token.
#[derive(Debug, Clone, Copy)]
struct PendingPrefill {
    number: u64,
    /// Time at which it reaches the engine, ms since the epoch.
    arrives_ms: f64,
    /// Prefill time of its uncached tokens, ms.
    work_ms: f64,
    /// Time at which its first token is due at the router, ms since the epoch.
    due_ms: f64,
    /// True when its first token will be seen; false when the answer comes in one piece.
    streams: bool,
}

#[derive(Debug, Clone, Default)]
struct PrefillQueue {
    /// Time at which the engine began with the waiting requests, judged by first tokens, ms since the epoch.
    begun_ms: f64,
    /// Time at which the engine will have prefilled all of them, ms since the epoch.
    idle_ms: f64,
    /// Requests without a first token, in order of dispatch.
    waiting: VecDeque<PendingPrefill>,
}

/// Backlogs of all replicas.
#[derive(Debug, Clone)]
pub struct FleetBacklog {
    queues: Vec<PrefillQueue>,
    next: u64,
}

impl FleetBacklog {
    /// Creates empty backlogs for a fleet of `replicas`.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { queues: vec![PrefillQueue::default(); replicas], next: 0 }
    }

    /// Adds a request with `work_ms` of prefill at a replica `rtt_ms` away. `streams`: its first token will be seen.
    /// Otherwise it is assumed to be on time, and leaves the backlog when a later request gets its first token.
    pub fn dispatch(
        &mut self,
        at: UnixMicros,
        replica: ReplicaId,
        rtt_ms: f64,
        work_ms: f64,
        streams: bool,
    ) -> BacklogTicket {
        let number = self.next;
        self.next += 1;
        // The way to the engine is taken to be half of the round trip.
        let half = rtt_ms / 2.0;
        // `due_ms` depends on the queue, so `append` sets it.
        let waiting = PendingPrefill { number, arrives_ms: millis(at) + half, work_ms, due_ms: 0.0, streams };
        self.queues[replica.index()].append(waiting, half);
        BacklogTicket { replica, number }
    }

    /// Corrects the clock by a request's first token, which has just arrived at the router.
    pub fn first_token(&mut self, at: UnixMicros, ticket: &BacklogTicket, rtt_ms: f64) {
        let line = &mut self.queues[ticket.replica.index()];
        if line.remove(ticket.number) {
            // Engines prefill in order: this token proves that everything dispatched earlier without streaming is done.
            line.waiting.retain(|waiting| waiting.streams || waiting.number > ticket.number);
            // The engine wrote the token half a round trip ago and has been on the next request since.
            line.replay(millis(at) - rtt_ms / 2.0, rtt_ms / 2.0);
        }
    }

    /// Removes a request that has ended. Without a first token, all that is known is that its work is gone.
    pub fn release(&mut self, ticket: BacklogTicket, rtt_ms: f64) {
        let BacklogTicket { replica, number } = ticket;
        let line = &mut self.queues[replica.index()];
        if line.remove(number) {
            // The end shows nothing about the engine's progress, so the clock restarts from the last known begin.
            line.replay(line.begun_ms, rtt_ms / 2.0);
        }
    }

    /// Fills `backlog_ms`. Reads `rtt_ms`.
    pub fn fill(&self, at: UnixMicros, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let rtt_ms = candidates.rtt_ms[row].unwrap_or(0.0);
            candidates.backlog_ms[row] = self.wait_ms(at, candidates.replica[row], rtt_ms);
        }
    }

    /// Time that a request sent to a replica now would wait there, ms.
    #[must_use]
    pub fn wait_ms(&self, at: UnixMicros, replica: ReplicaId, rtt_ms: f64) -> f64 {
        let (line, now) = (&self.queues[replica.index()], millis(at));
        // Only a streaming request can be seen to be overdue.
        let first = line.waiting.iter().find(|waiting| waiting.streams);
        // Capped: a stuck or lost request must not ban its replica for minutes.
        let overdue = first.map_or(0.0, |first| (now - first.due_ms).min(MOST_OVERDUE_MS));
        (line.idle_ms - now - rtt_ms / 2.0).max(overdue).max(0.0)
    }
}

impl PrefillQueue {
    fn append(&mut self, mut waiting: PendingPrefill, half_rtt_ms: f64) {
        self.idle_ms = self.idle_ms.max(waiting.arrives_ms) + BATCH_MS + waiting.work_ms;
        waiting.due_ms = self.idle_ms + half_rtt_ms;
        self.waiting.push_back(waiting);
    }

    fn remove(&mut self, number: u64) -> bool {
        let place = self.waiting.iter().position(|waiting| waiting.number == number);
        place.and_then(|place| self.waiting.remove(place)).is_some()
    }

    /// Recomputes the line, assuming that the engine begins with the oldest request at `start_ms`.
    fn replay(&mut self, start_ms: f64, half_rtt_ms: f64) {
        (self.begun_ms, self.idle_ms) = (start_ms, start_ms);
        // Same recurrence as in `append`: an engine cannot begin with a request before it arrives.
        for waiting in &mut self.waiting {
            self.idle_ms = self.idle_ms.max(waiting.arrives_ms) + BATCH_MS + waiting.work_ms;
            waiting.due_ms = self.idle_ms + half_rtt_ms;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "µs since the epoch stay below 2^53 for two centuries")]
fn millis(at: UnixMicros) -> f64 {
    at.0 as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + ms * 1_000)
    }

    fn read(backlog: &FleetBacklog, ms: u64, rtt_ms: f64) -> f64 {
        let mut candidates = Candidates::default();
        candidates.reset(1, 0);
        candidates.rtt_ms[0] = Some(rtt_ms);
        backlog.fill(at(ms), &mut candidates);
        candidates.backlog_ms[0]
    }

    #[test]
    fn work_adds_up_and_drains_with_time() {
        let mut backlog = FleetBacklog::new(1);
        assert_eq!(read(&backlog, 0, 100.0), 0.0);
        let first = backlog.dispatch(at(0), R, 100.0, 460.0, true);
        assert_eq!(read(&backlog, 0, 100.0), 500.0, "a request sent now arrives just behind it");
        let second = backlog.dispatch(at(100), R, 100.0, 160.0, true);
        assert_eq!(read(&backlog, 100, 100.0), 600.0);
        assert_eq!(read(&backlog, 400, 100.0), 300.0);
        for ticket in [first, second] {
            backlog.release(ticket, 100.0);
        }
        assert_eq!(read(&backlog, 400, 100.0), 0.0);
    }

    #[test]
    fn a_first_token_sets_the_clock_right() {
        let mut backlog = FleetBacklog::new(1);
        let first = backlog.dispatch(at(0), R, 20.0, 960.0, true);
        let _second = backlog.dispatch(at(0), R, 20.0, 160.0, true);
        assert_eq!(read(&backlog, 0, 20.0), 1_200.0);
        // Due at 1,020 ms, here at 320: the second began at 310 and has 200 ms of work.
        backlog.first_token(at(320), &first, 20.0);
        assert_eq!(read(&backlog, 320, 20.0), 180.0);
        backlog.first_token(at(400), &first, 20.0);
        assert_eq!(read(&backlog, 320, 20.0), 180.0, "once");
        backlog.release(first, 20.0);
        assert_eq!(read(&backlog, 320, 20.0), 180.0);
    }

    #[test]
    fn a_straggler_is_assumed_to_stay_one() {
        let mut backlog = FleetBacklog::new(1);
        let ticket = backlog.dispatch(at(0), R, 100.0, 60.0, true);
        assert_eq!(read(&backlog, 200, 100.0), 0.0, "due at 200");
        assert_eq!(read(&backlog, 900, 100.0), 700.0);
        assert_eq!(read(&backlog, 60_000, 100.0), 3_000.0);
        backlog.first_token(at(60_000), &ticket, 100.0);
        assert_eq!(read(&backlog, 60_000, 100.0), 0.0);
        backlog.release(ticket, 100.0);
    }

    #[test]
    fn an_answer_in_one_piece_is_no_straggler() {
        let mut backlog = FleetBacklog::new(1);
        let whole = backlog.dispatch(at(0), R, 0.0, 60.0, false);
        assert_eq!((read(&backlog, 0, 0.0), read(&backlog, 5_000, 0.0)), (100.0, 0.0));
        let later = backlog.dispatch(at(10), R, 0.0, 60.0, true);
        let last = backlog.dispatch(at(10), R, 0.0, 60.0, true);
        assert_eq!(read(&backlog, 10, 0.0), 290.0);
        backlog.first_token(at(150), &later, 0.0);
        assert_eq!(read(&backlog, 150, 0.0), 100.0, "the engine serves in order: the first is done too");
        for ticket in [whole, later, last] {
            backlog.release(ticket, 0.0);
        }
    }

    #[test]
    fn a_request_that_goes_without_a_token_takes_its_work_along() {
        let mut backlog = FleetBacklog::new(1);
        let first = backlog.dispatch(at(0), R, 0.0, 960.0, true);
        let second = backlog.dispatch(at(0), R, 0.0, 460.0, true);
        let third = backlog.dispatch(at(0), R, 0.0, 60.0, true);
        assert_eq!(read(&backlog, 0, 0.0), 1_600.0);
        backlog.release(second, 0.0);
        assert_eq!(read(&backlog, 10, 0.0), 1_090.0);
        backlog.release(first, 0.0);
        backlog.release(third, 0.0);
        assert_eq!(read(&backlog, 10, 0.0), 0.0);
        assert!(backlog.queues[0].waiting.is_empty());
    }
}
