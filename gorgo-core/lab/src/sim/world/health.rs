//! When the router takes a replica for down and when for up again: the rules of its probes, as far as they can be met
//! here. Three probes in a row without an answer; two answers in a row after that. An engine that refused connections
//! in between is taken for restarted.

use gorgo_routing::model::{Event, ReplicaId};

/// Failures in a row that take a replica down.
const FAILURES_DOWN: u32 = 3;
/// Answers in a row that bring it back.
const SIGNS_UP: u32 = 2;

/// What the router thinks of one replica.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Health {
    down: bool,
    failures: u32,
    answers: u32,
}

impl Health {
    /// Takes in a probe and says what the router learns of it beside the round trip.
    pub(super) fn probe(&mut self, replica: ReplicaId, answered: bool) -> Vec<Event> {
        if answered {
            (self.failures, self.answers) = (0, self.answers + 1);
            if self.down && self.answers >= SIGNS_UP {
                self.down = false;
                return vec![Event::Restarted { replica }, Event::Up { replica }];
            }
        } else {
            (self.failures, self.answers) = (self.failures + 1, 0);
            if !self.down && self.failures >= FAILURES_DOWN {
                self.down = true;
                return vec![Event::Down { replica }];
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
        let mut health = Health::default();
        let who = ReplicaId(4);
        let signs = [true, false, false, true, false, false, false, false, true, false, true, true, true];
        let said: Vec<usize> = signs.iter().map(|answered| health.probe(who, *answered).len()).collect();
        assert_eq!(said, [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2, 0]);
    }
}
