//! Queue of simulation events, ordered by time. Of two events at the same time, the one scheduled first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gorgo_routing::model::{EngineReport, ReplicaId, UnixMicros};

/// Simulation event. Requests are identified by their index in the workload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SimEvent {
    /// A request is due at the client.
    Arrive(usize),
    /// A request that waits at the router's admission gate is rechecked; of all rechecks scheduled for it, only the
    /// last one counts.
    Recheck(usize, u32),
    /// A request reaches the engine that this attempt was sent to.
    EngineReceives(usize, u32),
    /// An engine ends a step or admits a request.
    EngineDue(ReplicaId),
    /// The router reads the first token of this attempt.
    FirstToken(usize, u32),
    /// The router reads the end of this attempt's answer.
    Done(usize, u32),
    /// The router learns that this attempt failed.
    Failed(usize, u32),
    /// A probe is sent.
    ProbeSent(ReplicaId),
    /// The answer to a probe arrives; `None`: the probe was refused or took too long.
    ProbeBack(ReplicaId, Option<f64>),
    /// A request for the metrics page is sent.
    ScrapeSent(ReplicaId),
    /// The engine answers the request for its metrics page; the answer arrives after this time, µs.
    ScrapeRead(ReplicaId, u64),
    /// The metrics page arrives at the router.
    ScrapeBack(ReplicaId, Box<EngineReport>),
    /// A fault of the scenario begins.
    FaultBegins(usize),
    /// A fault of the scenario ends.
    FaultEnds(usize),
}

#[derive(Debug)]
struct QueuedEvent {
    at: UnixMicros,
    number: u64,
    event: SimEvent,
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        // The event itself takes no part in the order; numbers are unique.
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Queue of simulation events; see the module.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<QueuedEvent>>,
    scheduled_count: u64,
}

impl EventQueue {
    /// Schedules an event.
    pub(super) fn schedule(&mut self, at: UnixMicros, what: SimEvent) {
        self.scheduled_count += 1;
        // The heap alone does not keep the order of events at the same time; the number makes runs reproducible.
        self.heap.push(Reverse(QueuedEvent { at, number: self.scheduled_count, event: what }));
    }

    /// Removes and returns the next event.
    pub(super) fn pop(&mut self) -> Option<(UnixMicros, SimEvent)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_then_of_entry() {
        let mut agenda = EventQueue::default();
        for (at, request) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            agenda.schedule(UnixMicros(at), SimEvent::Arrive(request));
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop()).collect();
        let expected =
            [(3, 1), (3, 3), (5, 0), (5, 2)].map(|(at, request)| (UnixMicros(at), SimEvent::Arrive(request)));
        assert_eq!(order, expected);
    }
}
