//! Queue of simulation events, ordered by time. Of two events at the same time, the one scheduled first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gorgo_routing::model::{At, EngineReport, ReplicaId};

/// Simulation event. Requests are identified by their index in the workload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happening {
    /// A request is due at the client.
    Arrive(usize),
    /// A request that waits at the router's admission gate is rechecked; of all rechecks scheduled for it, only the
    /// last one counts.
    Look(usize, u32),
    /// A request reaches the engine that this attempt was sent to.
    Reach(usize, u32),
    /// An engine ends a step or admits a request.
    Engine(ReplicaId),
    /// The router reads the first token of this attempt.
    First(usize, u32),
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
struct Entry {
    at: At,
    number: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        // The event itself takes no part in the order; numbers are unique.
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Queue of simulation events; see the module.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

impl Agenda {
    /// Schedules an event.
    pub(super) fn enter(&mut self, at: At, what: Happening) {
        self.entered += 1;
        // The heap alone does not keep the order of events at the same time; the number makes runs reproducible.
        self.heap.push(Reverse(Entry { at, number: self.entered, what }));
    }

    /// Removes and returns the next event.
    pub(super) fn next(&mut self) -> Option<(At, Happening)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_then_of_entry() {
        let mut agenda = Agenda::default();
        for (at, request) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            agenda.enter(At(at), Happening::Arrive(request));
        }
        let order: Vec<_> = std::iter::from_fn(|| agenda.next()).collect();
        let expected = [(3, 1), (3, 3), (5, 0), (5, 2)].map(|(at, request)| (At(at), Happening::Arrive(request)));
        assert_eq!(order, expected);
    }
}
