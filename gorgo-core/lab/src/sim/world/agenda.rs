//! What happens when: a heap of happenings. Of two at the same time the one entered first comes first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gorgo_routing::model::{At, EngineReport, ReplicaId};

/// Something that happens at a moment. Requests are named by their place in the workload.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happening {
    /// The client's time for a request has come.
    Arrive(usize),
    /// A request that waits at the router's gate looks again; of all its looks only the last one entered counts.
    Look(usize, u32),
    /// A request reaches the engine it was sent to, by this attempt.
    Reach(usize, u32),
    /// An engine ends a step or admits somebody.
    Engine(ReplicaId),
    /// The router reads the first token of this attempt.
    First(usize, u32),
    /// The router reads the end of this attempt.
    Done(usize, u32),
    /// The router sees that this attempt failed.
    Failed(usize, u32),
    /// A probe leaves.
    ProbeSent(ReplicaId),
    /// A probe's answer arrives; `None`: it was refused or took too long.
    ProbeBack(ReplicaId, Option<f64>),
    /// A request for the metrics page leaves.
    ScrapeSent(ReplicaId),
    /// It is answered at the engine; the answer takes this long, µs.
    ScrapeRead(ReplicaId, u64),
    /// The page arrives.
    ScrapeBack(ReplicaId, Box<EngineReport>),
    /// A fault of the scenario begins.
    FaultBegins(usize),
    /// It is over.
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

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    entered: u64,
}

impl Agenda {
    /// Enters a happening.
    pub(super) fn enter(&mut self, at: At, what: Happening) {
        self.entered += 1;
        self.heap.push(Reverse(Entry { at, number: self.entered, what }));
    }

    /// Takes the next one out.
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
