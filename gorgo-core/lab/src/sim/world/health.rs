//! Health of a replica as the simulated router sees it, by the rules that `serve` applies to its probes. A replica is
//! down after three probes in a row without an answer, and up again after two answers in a row. An engine that refused
//! connections in between counts as restarted.

use gorgo_routing::model::{FleetEvent, ReplicaId};

/// Failures in a row after which a replica counts as down.
const FAILURES_DOWN: u32 = 3;
/// Answers in a row after which it counts as up again.
const SIGNS_UP: u32 = 2;

/// Health of one replica in the eyes of the router.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimulatedHealth {
    down: bool,
    failures: u32,
    answers: u32,
}

impl SimulatedHealth {
    /// Updates the health with a probe and returns the events that the router receives in addition to the round trip.
    pub(super) fn probe(&mut self, replica: ReplicaId, answered: bool) -> Vec<FleetEvent> {
        if answered {
            (self.failures, self.answers) = (0, self.answers + 1);
            if self.down && self.answers >= SIGNS_UP {
                self.down = false;
                // Every return counts as a restart: the router cannot know whether the cache survived.
                return vec![FleetEvent::Restarted { replica }, FleetEvent::Up { replica }];
            }
        } else {
            (self.failures, self.answers) = (self.failures + 1, 0);
            if !self.down && self.failures >= FAILURES_DOWN {
                self.down = true;
                return vec![FleetEvent::Down { replica }];
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_take_down_and_two_answers_bring_back() {
        let mut health = SimulatedHealth::default();
        let who = ReplicaId(4);
        let signs = [true, false, false, true, false, false, false, false, true, false, true, true, true];
        let said: Vec<usize> = signs.iter().map(|answered| health.probe(who, *answered).len()).collect();
        assert_eq!(said, [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0]);
    }
}
