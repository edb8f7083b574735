//! Health of a replica: a pure state machine over the results of probes.
//!
//! A busy engine is not a dead one. A replica goes down after:
//! - three probes in a row without a connection: refused, or (if nothing arrived over its open connections either)
//!   without an answer;
//! - three answers in a row with a 5xx: the engine reports itself dead;
//! - silence for 30 s: no probe was answered, and no request in flight received a byte.
//!
//! One answer brings it back if it was never up, two in a row if it was down, so that an engine that barely works does
//! not flap. An engine that refused a connection in between is assumed to have restarted with an empty cache.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::monitor::ejection::EjectionTracker;
use gorgo_routing::model::{ReplicaId, UnixMicros};

/// Failures in a row that take a replica down.
const FAILURES_DOWN: u32 = 3;
/// Successful probes in a row that bring back a replica that was down.
const ANSWERS_UP: u32 = 2;
/// Silence that takes a replica down, ms.
const SILENCE_MS: f64 = 30_000.0;

/// Last sign of life of each replica, from any source: the data plane reports every byte that a stream brings, since an
/// engine that streams is alive, whatever its health page says.
#[derive(Debug)]
pub struct ReplicaLiveness {
    last_activity: Vec<AtomicU64>,
    ejections: EjectionTracker,
}

impl ReplicaLiveness {
    /// State for a fleet of `replicas`.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self {
            last_activity: (0..replicas).map(|_| AtomicU64::new(0)).collect(),
            ejections: EjectionTracker::new(replicas),
        }
    }

    /// Ejections of replicas for how requests ended there.
    #[must_use]
    pub const fn ejections(&self) -> &EjectionTracker {
        &self.ejections
    }

    /// Records that a byte came from this replica. Cheap: one relaxed store.
    pub fn record_activity(&self, replica: ReplicaId, at: UnixMicros) {
        if let Some(heard) = self.last_activity.get(replica.index()) {
            heard.store(at.0, Ordering::Relaxed);
        }
    }

    /// Time of the last sign of life; the epoch if there was none.
    #[must_use]
    pub fn last_activity(&self, replica: ReplicaId) -> UnixMicros {
        UnixMicros(self.last_activity.get(replica.index()).map_or(0, |heard| heard.load(Ordering::Relaxed)))
    }
}

/// Result of a probe, as far as health is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthSignal {
    /// An answer below 500.
    Answered,
    /// A 5xx.
    ServerError,
    /// Connected, but no answer in time.
    Late,
    /// No connection: nothing listens.
    Refused,
    /// No connection for another reason.
    Unreachable,
}

/// Change of a replica's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthChange {
    /// Usable.
    Up {
        /// True if it had refused connections since its last sign of life, so its cache is empty.
        restarted: bool,
    },
    /// Remained up as far as routing is concerned, but refused connections in between, so its cache is empty.
    Restarted,
    /// Not usable.
    Down {
        /// Reason, for people.
        cause: &'static str,
    },
}

/// Health of one replica.
#[derive(Debug, Clone)]
pub struct ReplicaHealth {
    state: HealthState,
    unconnected: u32,
    server_errors: u32,
    answered: u32,
    /// Start of the failures in a row.
    failing_since: Option<UnixMicros>,
    ever_answered: bool,
    refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthState {
    Untried,
    Up,
    Down,
}

impl Default for ReplicaHealth {
    fn default() -> Self {
        Self {
            state: HealthState::Untried,
            unconnected: 0,
            server_errors: 0,
            answered: 0,
            failing_since: None,
            ever_answered: false,
            refused: false,
        }
    }
}

impl ReplicaHealth {
    /// Takes the result of a probe. `heard`: last sign of life from elsewhere.
    pub fn observe(&mut self, at: UnixMicros, sign: HealthSignal, heard: UnixMicros) -> Option<HealthChange> {
        self.count(at, sign);
        if sign == HealthSignal::Answered {
            return self.on_answer();
        }
        let since = self.failing_since.unwrap_or(at);
        // Bytes since the failures began prove that the engine lives and is merely too busy to accept connections.
        let heard_since = heard > since;
        // Silence counts from the first failure or the last byte, whichever is later.
        let silent_ms = at.millis_since(since.max(heard));
        // A refusal is certain: nothing listens, even if old connections still bring bytes. Other failures to connect
        // are not.
        let cause = if sign == HealthSignal::Refused && self.unconnected >= FAILURES_DOWN {
            "it refuses connections"
        } else if self.unconnected >= FAILURES_DOWN && !heard_since {
            "no connection can be made"
        } else if self.server_errors >= FAILURES_DOWN {
            "it answers probes with a server error"
        } else if silent_ms >= SILENCE_MS {
            "it does not answer"
        } else {
            return None;
        };
        // Counted above all the same: the return from this state depends on the counts.
        if self.state == HealthState::Down {
            return None;
        }
        self.state = HealthState::Down;
        Some(HealthChange::Down { cause })
    }

    fn count(&mut self, at: UnixMicros, sign: HealthSignal) {
        // A run of one kind of failure ends with any other result.
        let one_more = |count: u32, counts: bool| if counts { count.saturating_add(1) } else { 0 };
        // Both count together: an engine that goes down may be refused or unreachable in turn.
        self.unconnected =
            one_more(self.unconnected, matches!(sign, HealthSignal::Refused | HealthSignal::Unreachable));
        self.server_errors = one_more(self.server_errors, sign == HealthSignal::ServerError);
        self.answered = one_more(self.answered, sign == HealthSignal::Answered);
        // Before the first answer a refusal is just an engine that has not started yet.
        self.refused |= sign == HealthSignal::Refused && self.ever_answered;
        if sign == HealthSignal::Answered {
            self.failing_since = None;
        } else {
            self.failing_since.get_or_insert(at);
        }
    }

    fn on_answer(&mut self) -> Option<HealthChange> {
        let restarted = std::mem::take(&mut self.refused);
        self.ever_answered = true;
        match self.state {
            // A quick restart shows as one or two refused probes between answers.
            HealthState::Up => return restarted.then_some(HealthChange::Restarted),
            HealthState::Down if self.answered < ANSWERS_UP => {
                // Kept for the second answer, which reports the return.
                self.refused = restarted;
                return None;
            }
            HealthState::Untried | HealthState::Down => self.state = HealthState::Up,
        }
        Some(HealthChange::Up { restarted })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: UnixMicros = UnixMicros(0);

    fn at(probe: u64) -> UnixMicros {
        UnixMicros(1_000_000_000 + probe * 2_000_000)
    }

    /// Feeds signs, one every 2 s, and returns the changes with their times.
    fn run(signs: &[HealthSignal], heard: impl Fn(u64) -> UnixMicros) -> Vec<(u64, HealthChange)> {
        let mut health = ReplicaHealth::default();
        (0..)
            .zip(signs)
            .filter_map(|(n, sign)| health.observe(at(n), *sign, heard(n)).map(|change| (n, change)))
            .collect()
    }

    const UP: HealthChange = HealthChange::Up { restarted: false };

    #[test]
    fn one_answer_brings_up_the_untried_and_three_refusals_take_it_down() {
        use HealthSignal::{Answered, Refused};
        let changes =
            run(&[Answered, Answered, Refused, Refused, Refused, Refused, Answered, Answered, Answered], |_| NEVER);
        assert_eq!(
            changes,
            [
                (0, UP),
                (4, HealthChange::Down { cause: "it refuses connections" }),
                (7, HealthChange::Up { restarted: true })
            ]
        );
    }

    #[test]
    fn a_replica_that_is_absent_from_the_start_goes_down_and_its_first_start_is_no_restart() {
        use HealthSignal::{Answered, Refused};
        let changes = run(&[Refused, Refused, Refused, Answered, Answered], |_| NEVER);
        assert_eq!(changes, [(2, HealthChange::Down { cause: "it refuses connections" }), (4, UP)]);
    }

    #[test]
    fn a_quick_restart_is_noticed_without_going_down() {
        use HealthSignal::{Answered, Refused};
        let changes = run(&[Answered, Refused, Answered, Answered], |_| NEVER);
        assert_eq!(changes, [(0, UP), (2, HealthChange::Restarted)]);
    }

    #[test]
    fn late_answers_alone_do_not_kill_while_streams_flow() {
        let mut signs = vec![HealthSignal::Answered];
        signs.extend([HealthSignal::Late; 150]);
        assert_eq!(run(&signs, at), [(0, UP)]);
        // Nothing arrives: silent since the second probe, down 30 s later.
        assert_eq!(run(&signs, |_| NEVER), [(0, UP), (16, HealthChange::Down { cause: "it does not answer" })]);
    }

    #[test]
    fn a_full_backlog_is_not_death_but_a_closed_listener_is() {
        use HealthSignal::{Answered, Refused, Unreachable};
        assert_eq!(run(&[Answered, Unreachable, Unreachable, Unreachable, Unreachable], at), [(0, UP)]);
        let down = HealthChange::Down { cause: "no connection can be made" };
        assert_eq!(run(&[Answered, Unreachable, Unreachable, Unreachable], |_| NEVER), [(0, UP), (3, down)]);
        // The replica drains: its streams continue, new requests are refused.
        let down = HealthChange::Down { cause: "it refuses connections" };
        assert_eq!(run(&[Answered, Refused, Refused, Refused], at), [(0, UP), (3, down)]);
    }

    #[test]
    fn three_server_errors_in_a_row() {
        use HealthSignal::{Answered, ServerError};
        let cause = "it answers probes with a server error";
        let changes = run(&[Answered, ServerError, ServerError, Answered, ServerError, ServerError, ServerError], at);
        assert_eq!(changes, [(0, UP), (6, HealthChange::Down { cause })]);
    }

    #[test]
    fn an_engine_on_its_knees_does_not_flap() {
        use HealthSignal::{Answered, Refused};
        let mut signs = vec![Answered, Refused, Refused, Refused];
        signs.extend([Answered, Refused].repeat(20));
        assert_eq!(run(&signs, |_| NEVER).len(), 2);
    }

    #[test]
    fn a_replica_that_freezes_again_and_again_comes_back_each_time() {
        let mut signs = vec![HealthSignal::Answered];
        for _ in 0..5 {
            signs.extend([HealthSignal::Late; 30]);
            signs.extend([HealthSignal::Answered; 4]);
        }
        let changes = run(&signs, |_| NEVER);
        let downs = changes.iter().filter(|(_, change)| matches!(change, HealthChange::Down { .. })).count();
        assert_eq!(downs, 5, "{changes:?}");
        // Each time within two answers.
        for (round, (probe, change)) in changes[1..].chunks(2).map(|pair| pair[1]).enumerate() {
            assert!(matches!(change, HealthChange::Up { .. }), "{changes:?}");
            let first = 1 + u64::try_from(round).unwrap() * 34 + 30;
            assert!((first..first + 2).contains(&probe), "{changes:?}");
        }
    }

    #[test]
    fn vitals_of_a_stranger_are_nothing() {
        let vitals = ReplicaLiveness::new(1);
        vitals.record_activity(ReplicaId(0), at(3));
        vitals.record_activity(ReplicaId(9), at(3));
        assert_eq!((vitals.last_activity(ReplicaId(0)), vitals.last_activity(ReplicaId(9))), (at(3), UnixMicros(0)));
    }
}
