//! Ejection: whether the data plane may send requests to a replica, by a state machine over how attempts there end.
//!
//! Probes check every two seconds whether an engine is alive; requests find out at once whether it works. Three
//! failures in a row eject a replica for a time that doubles from ejection to ejection; then one request tries it. Its
//! success admits more and more at the same time; its failure ejects the replica again.
//!
//! ```text
//! Usable ──3 failures──▶ Held ──time, or probes answered──▶ Returning(1) ──first byte──▶ Returning(2) … ▶ Usable
//!                          ◀─────────────────1 failure──────────────┘
//! ```
//!
//! Client errors, clients that leave and slow responses never count. A refusal because the engine is full (503) counts,
//! since sending more there helps nobody, and the ejection is short. Callers must treat an ejection as advice: if no
//! other replica is left, an ejected one is better than none.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use gorgo_routing::model::{ReplicaId, UnixMicros};

/// Failures of one kind in a row that eject a replica. Status 500 needs more of them, because engines also send it for
/// requests that they cannot process.
const FAILURES: u32 = 3;
const SERVER_ERRORS: u32 = 10;
/// First and longest ejection. The latter also limits how long a replica's own `Retry-After` is obeyed.
const FIRST_EJECTION: Duration = Duration::from_secs(2);
const LONGEST_EJECTION: Duration = Duration::from_secs(30);
/// First bytes after which a returning replica is fully usable.
const RETURNED: u32 = 16;

/// Failure of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No connection, no response over it, or a refusal: nothing came that a client could use. Also: late, and silent
    /// on all its streams while another replica answered the same request.
    Unanswered,
    /// The response began and broke off.
    BrokeOff,
    /// Status 500.
    ServerError,
}

/// Change of a replica's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EjectionChange {
    /// Ejected: gets no requests for this long.
    Ejected(Duration),
    /// Answers again.
    Returned,
}

/// Ejection state of all replicas.
#[derive(Debug)]
pub struct EjectionTracker {
    replicas: Vec<Mutex<ReplicaEjection>>,
    /// Number that are not fully usable; 0 avoids looking at each.
    not_usable: AtomicU32,
}

#[derive(Debug)]
struct ReplicaEjection {
    phase: EjectionPhase,
    unanswered: u32,
    broken: u32,
    server_errors: u32,
    /// Start of the unanswered ones: a response to an attempt from before says nothing about now.
    failing_since: UnixMicros,
    /// Requests that run there, of those that began since the last ejection.
    running: u32,
    counted_since: UnixMicros,
    next_ejection: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EjectionPhase {
    Usable,
    Ejected { until: UnixMicros },
    Returning { allowed: u32 },
}

impl EjectionTracker {
    /// Fleet of `replicas`, all usable.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        let member = || ReplicaEjection {
            phase: EjectionPhase::Usable,
            unanswered: 0,
            broken: 0,
            server_errors: 0,
            failing_since: UnixMicros(0),
            running: 0,
            counted_since: UnixMicros(0),
            next_ejection: FIRST_EJECTION,
        };
        Self { replicas: (0..replicas).map(|_| Mutex::new(member())).collect(), not_usable: AtomicU32::new(0) }
    }

    /// Replicas that should get no request now.
    #[must_use]
    pub fn ejected(&self, at: UnixMicros) -> Vec<ReplicaId> {
        // The usual case on the hot path: no lock is taken.
        if self.not_usable.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let members = self.replicas.iter().zip(0_u16..);
        members.filter(|(member, _)| !member.lock().admits(at)).map(|(_, id)| ReplicaId(id)).collect()
    }

    /// Returns `true` if this replica should get no request now.
    #[must_use]
    pub fn is_ejected(&self, replica: ReplicaId, at: UnixMicros) -> bool {
        self.replicas.get(replica.index()).is_some_and(|member| !member.lock().admits(at))
    }

    /// Records that a request was sent there. Several decided in the same instant may exceed the limit together.
    pub fn attempt_began(&self, replica: ReplicaId, at: UnixMicros) {
        self.change(replica, |member| {
            // The first request after the ejection is the trial.
            if let EjectionPhase::Ejected { until } = member.phase
                && until <= at
            {
                member.phase = EjectionPhase::Returning { allowed: 1 };
            }
            member.running += 1;
            None
        });
    }

    /// Records the first byte of a response that is no failure; client errors are such responses. `began`: start of its
    /// attempt.
    pub fn attempt_answered(&self, replica: ReplicaId, began: UnixMicros) -> Option<EjectionChange> {
        self.change(replica, |member| {
            // Sent before the replica began to fail: its success is old news.
            if began < member.failing_since {
                return None;
            }
            (member.unanswered, member.server_errors) = (0, 0);
            match member.phase {
                // A request that was sent there because no other replica was left.
                EjectionPhase::Ejected { .. } => member.phase = EjectionPhase::Returning { allowed: 2 },
                // Only a full return resets the time: a replica that keeps failing stays away longer each time.
                EjectionPhase::Returning { allowed } if allowed >= RETURNED => {
                    member.phase = EjectionPhase::Usable;
                    member.next_ejection = FIRST_EJECTION;
                    return None;
                }
                EjectionPhase::Returning { allowed } => {
                    member.phase = EjectionPhase::Returning { allowed: allowed + 1 };
                    // The return was reported with the first success.
                    if allowed > 1 {
                        return None;
                    }
                }
                EjectionPhase::Usable => return None,
            }
            Some(EjectionChange::Returned)
        })
    }

    /// Records that a request ended there that had begun at `began`; `failure`: if the replica failed it.
    pub fn attempt_ended(
        &self,
        replica: ReplicaId,
        began: UnixMicros,
        at: UnixMicros,
        failure: Option<AttemptFailure>,
    ) -> Option<EjectionChange> {
        self.change(replica, |member| {
            // `running` was set to 0 at the ejection, so older requests must not be subtracted.
            if began >= member.counted_since {
                member.running = member.running.saturating_sub(1);
            }
            failure.and_then(|failure| member.fail(at, failure))
        })
    }

    /// Records a complete response.
    pub fn response_completed(&self, replica: ReplicaId) {
        self.change(replica, |member| {
            member.broken = 0;
            None
        });
    }

    /// Obeys the replica's wish to get no requests for a while (`Retry-After`).
    pub fn eject_for(&self, replica: ReplicaId, at: UnixMicros, wish: Duration) -> Option<EjectionChange> {
        self.change(replica, |member| {
            let span = wish.min(LONGEST_EJECTION);
            member.eject(at, span)
        })
    }

    /// Ends the rest of an ejection, because probes brought the replica back.
    pub fn probes_recovered(&self, replica: ReplicaId) {
        self.change(replica, |member| {
            if matches!(member.phase, EjectionPhase::Ejected { .. }) {
                member.phase = EjectionPhase::Returning { allowed: 1 };
            }
            None
        });
    }

    fn change(
        &self,
        replica: ReplicaId,
        change: impl FnOnce(&mut ReplicaEjection) -> Option<EjectionChange>,
    ) -> Option<EjectionChange> {
        let mut member = self.replicas.get(replica.index())?.lock();
        let before = member.phase == EjectionPhase::Usable;
        let shift = change(&mut member);
        // Counted here, for every change of phase alike, so that `troubled` cannot drift.
        match (before, member.phase == EjectionPhase::Usable) {
            (true, false) => drop(self.not_usable.fetch_add(1, Ordering::Relaxed)),
            (false, true) => drop(self.not_usable.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
        shift
    }
}

impl ReplicaEjection {
    fn admits(&self, at: UnixMicros) -> bool {
        match self.phase {
            EjectionPhase::Usable => true,
            // One trial request at a time.
            EjectionPhase::Ejected { until } => until <= at && self.running == 0,
            EjectionPhase::Returning { allowed } => self.running < allowed,
        }
    }

    fn fail(&mut self, at: UnixMicros, failure: AttemptFailure) -> Option<EjectionChange> {
        // A new run of failures begins.
        if self.unanswered == 0 {
            self.failing_since = at;
        }
        match failure {
            AttemptFailure::Unanswered => self.unanswered += 1,
            AttemptFailure::BrokeOff => self.broken += 1,
            AttemptFailure::ServerError => self.server_errors += 1,
        }
        let enough = self.unanswered >= FAILURES || self.broken >= FAILURES || self.server_errors >= SERVER_ERRORS;
        let hold = match self.phase {
            EjectionPhase::Usable => enough,
            // A trial that fails is enough; a single 500 may be the request's fault.
            EjectionPhase::Returning { .. } => enough || failure != AttemptFailure::ServerError,
            // Requests that were already running when it was ejected add no information.
            EjectionPhase::Ejected { .. } => false,
        };
        if !hold {
            return None;
        }
        let span = self.next_ejection;
        self.next_ejection = (span * 2).min(LONGEST_EJECTION);
        self.eject(at, span)
    }

    fn eject(&mut self, at: UnixMicros, span: Duration) -> Option<EjectionChange> {
        let until = at.plus(span);
        // A short `Retry-After` must not cut a longer ejection short.
        if let EjectionPhase::Ejected { until: already } = self.phase
            && already >= until
        {
            return None;
        }
        self.phase = EjectionPhase::Ejected { until };
        // Counting starts again, so that the trial is judged by itself.
        (self.unanswered, self.broken, self.server_errors) = (0, 0, 0);
        (self.failing_since, self.counted_since, self.running) = (at, at, 0);
        Some(EjectionChange::Ejected(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(1);

    fn at(ms: u64) -> UnixMicros {
        UnixMicros(1_000_000_000_000 + ms * 1_000)
    }

    /// Makes one attempt that fails at once.
    fn fail(ejections: &EjectionTracker, ms: u64, failure: AttemptFailure) -> Option<EjectionChange> {
        ejections.attempt_began(R, at(ms));
        ejections.attempt_ended(R, at(ms), at(ms), Some(failure))
    }

    /// Makes one attempt that is answered and completed at once.
    fn serve(ejections: &EjectionTracker, ms: u64) -> Option<EjectionChange> {
        ejections.attempt_began(R, at(ms));
        let shift = ejections.attempt_answered(R, at(ms));
        ejections.response_completed(R);
        assert_eq!(ejections.attempt_ended(R, at(ms), at(ms), None), None);
        shift
    }

    fn held(ejections: &EjectionTracker) -> EjectionTracker {
        let fresh = EjectionTracker::new(ejections.replicas.len());
        for ms in 0..3 {
            fail(&fresh, ms, AttemptFailure::Unanswered);
        }
        fresh
    }

    #[test]
    fn three_failures_in_a_row_hold_back_and_one_request_tries_again() {
        let ejections = EjectionTracker::new(3);
        assert_eq!(fail(&ejections, 0, AttemptFailure::Unanswered), None);
        assert_eq!(fail(&ejections, 1, AttemptFailure::Unanswered), None);
        assert_eq!(ejections.ejected(at(1)), []);
        assert_eq!(fail(&ejections, 2, AttemptFailure::Unanswered), Some(EjectionChange::Ejected(FIRST_EJECTION)));
        assert_eq!(ejections.ejected(at(2_001)), [R]);
        assert_eq!(ejections.ejected(at(2_002)), [], "the hold is over");
        ejections.attempt_began(R, at(2_003));
        assert_eq!(ejections.ejected(at(2_003)), [R], "one at a time");
        assert_eq!(ejections.attempt_answered(R, at(2_003)), Some(EjectionChange::Returned));
        assert_eq!(ejections.ejected(at(2_004)), [], "two may run now");
        ejections.attempt_began(R, at(2_005));
        assert_eq!(ejections.ejected(at(2_005)), [R]);
    }

    #[test]
    fn holds_double_and_are_forgotten_once_it_has_returned() {
        let ejections = held(&EjectionTracker::new(2));
        let mut now = 2;
        for secs in [4, 8, 16, 30, 30] {
            now += 30_000;
            assert_eq!(
                fail(&ejections, now, AttemptFailure::Unanswered),
                Some(EjectionChange::Ejected(Duration::from_secs(secs)))
            );
        }
        now += 30_000;
        assert_eq!(serve(&ejections, now), Some(EjectionChange::Returned));
        for more in 1..=RETURNED {
            assert_eq!(serve(&ejections, now + u64::from(more)), None);
        }
        assert_eq!(ejections.not_usable.load(Ordering::Relaxed), 0);
        now += 1_000;
        assert_eq!(
            (fail(&ejections, now, AttemptFailure::BrokeOff), fail(&ejections, now, AttemptFailure::BrokeOff)),
            (None, None)
        );
        assert_eq!(fail(&ejections, now, AttemptFailure::BrokeOff), Some(EjectionChange::Ejected(FIRST_EJECTION)));
    }

    #[test]
    fn successes_in_between_keep_it() {
        let ejections = EjectionTracker::new(2);
        for ms in 0..50 {
            assert_eq!(fail(&ejections, ms * 10, AttemptFailure::Unanswered), None);
            assert_eq!(fail(&ejections, ms * 10 + 1, AttemptFailure::Unanswered), None);
            assert_eq!(serve(&ejections, ms * 10 + 2), None);
        }
        for ms in 1_000..1_009 {
            assert_eq!(fail(&ejections, ms, AttemptFailure::ServerError), None);
        }
        assert_eq!(fail(&ejections, 1_009, AttemptFailure::ServerError), Some(EjectionChange::Ejected(FIRST_EJECTION)));
    }

    #[test]
    fn answers_to_old_requests_say_nothing_about_new_ones() {
        // The replica drains: running requests continue, new connections are refused.
        let ejections = EjectionTracker::new(2);
        (0..5).for_each(|_| ejections.attempt_began(R, at(0)));
        for ms in 1..3 {
            assert_eq!(fail(&ejections, ms, AttemptFailure::Unanswered), None);
            assert_eq!(ejections.attempt_answered(R, at(0)), None);
        }
        assert_eq!(fail(&ejections, 3, AttemptFailure::Unanswered), Some(EjectionChange::Ejected(FIRST_EJECTION)));
        assert_eq!(ejections.ejected(at(2_003)), [], "those that still run do not keep the trial away");
        ejections.attempt_began(R, at(2_003));
        assert_eq!(ejections.attempt_ended(R, at(0), at(2_004), None), None);
        assert_eq!(ejections.ejected(at(2_004)), [R], "the trial runs");
    }

    #[test]
    fn a_wish_to_be_left_alone_is_obeyed_within_bounds() {
        let ejections = EjectionTracker::new(2);
        assert_eq!(
            ejections.eject_for(R, at(0), Duration::from_secs(5)),
            Some(EjectionChange::Ejected(Duration::from_secs(5)))
        );
        assert!(ejections.is_ejected(R, at(4_999)) && !ejections.is_ejected(R, at(5_000)));
        assert_eq!(ejections.eject_for(R, at(0), Duration::from_secs(4)), None, "it is held for longer already");
        assert_eq!(
            ejections.eject_for(R, at(0), Duration::from_secs(900)),
            Some(EjectionChange::Ejected(LONGEST_EJECTION))
        );
    }

    #[test]
    fn probes_end_a_hold() {
        let ejections = held(&EjectionTracker::new(2));
        assert!(ejections.is_ejected(R, at(10)));
        ejections.probes_recovered(R);
        assert!(!ejections.is_ejected(R, at(10)));
        assert_eq!(serve(&ejections, 11), Some(EjectionChange::Returned));
    }

    #[test]
    fn a_stranger_is_nobody() {
        let ejections = EjectionTracker::new(1);
        assert_eq!(ejections.attempt_ended(ReplicaId(9), at(0), at(0), Some(AttemptFailure::BrokeOff)), None);
        assert!(!ejections.is_ejected(ReplicaId(9), at(0)));
    }
}
