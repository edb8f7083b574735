//! Load that this router has put on each replica, in requests and prompt tokens: incremented in the step that selects,
//! decremented exactly once.
//!
//! A reservation returns a [`LoadTicket`]. It cannot be copied and [`FleetLoad::release`] consumes it, so that releasing twice
//! does not compile. Nothing else lowers a counter: no health check, no metrics page, no restart of an engine (its
//! requests fail, and each failure releases its own ticket).
//!
//! Queued tokens are kept in four variants, because policies differ in the tokens they count (all prompt tokens, or
//! only those not believed cached) and in the end they count to (first token, or completion). The prefill still to be
//! done is
//! the first token". Source: GORGO paper, `Q_i` and its two variants.

use crate::model::{Candidates, FleetEvent, ReplicaId};

/// Load of one request at one replica. Return it with [`FleetLoad::release`]; a ticket that is dropped counts forever.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "load that is never released counts forever"]
pub struct LoadTicket {
    replica: ReplicaId,
    prompt_tokens: u32,
    uncached_tokens: u32,
    prefilled: bool,
}

impl LoadTicket {
    /// Replica that has the load.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Returns true once the first token has arrived.
    #[must_use]
    pub const fn prefilled(&self) -> bool {
        self.prefilled
    }
}

/// Tokens of one kind, by the event that releases them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct QueuedTokens {
    until_completion: u64,
    until_first_token: u64,
}

/// Counters of one replica.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ReplicaCounters {
    prompt: QueuedTokens,
    uncached: QueuedTokens,
    inflight: u32,
    decoding: u32,
    inflight_at_report: Option<u32>,
}

/// Counters of all replicas.
#[derive(Debug, Clone)]
pub struct FleetLoad {
    replicas: Vec<ReplicaCounters>,
}

impl FleetLoad {
    /// Creates the counters of a fleet of `replicas`, all idle.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas: vec![ReplicaCounters::default(); replicas] }
    }

    /// Charges a request to a replica. `uncached_tokens`: prompt tokens that are not believed cached there.
    pub fn reserve(&mut self, replica: ReplicaId, prompt_tokens: u32, uncached_tokens: u32) -> LoadTicket {
        let counters = &mut self.replicas[replica.index()];
        // Charged at the decision, before anything is sent, so that the next decision already sees it.
        counters.inflight += 1;
        for (queued, tokens) in [(&mut counters.prompt, prompt_tokens), (&mut counters.uncached, uncached_tokens)] {
            queued.until_completion += u64::from(tokens);
            queued.until_first_token += u64::from(tokens);
        }
        LoadTicket { replica, prompt_tokens, uncached_tokens, prefilled: false }
    }

    /// Marks the request's prefill as done: from now on it decodes. A second call changes nothing.
    pub fn first_token(&mut self, ticket: &mut LoadTicket) {
        // Idempotent because `release` calls it too, for requests that end without a token.
        if ticket.prefilled {
            return;
        }
        ticket.prefilled = true;
        let counters = &mut self.replicas[ticket.replica.index()];
        counters.prompt.until_first_token -= u64::from(ticket.prompt_tokens);
        counters.uncached.until_first_token -= u64::from(ticket.uncached_tokens);
        counters.decoding += 1;
    }

    /// Ends a request's load, however it ended.
    pub fn release(&mut self, mut ticket: LoadTicket) {
        // Brings a request that never had a token to the same state, so that every counter below is decremented alike.
        self.first_token(&mut ticket);
        let counters = &mut self.replicas[ticket.replica.index()];
        counters.prompt.until_completion -= u64::from(ticket.prompt_tokens);
        counters.uncached.until_completion -= u64::from(ticket.uncached_tokens);
        counters.decoding -= 1;
        counters.inflight -= 1;
    }

    /// Remembers this router's load at each metrics page, so that between two pages the engine's figures can be
    /// adjusted by what was sent and finished since. Otherwise a whole burst would see the same old numbers.
    pub fn apply(&mut self, event: &FleetEvent) {
        match event {
            FleetEvent::Report { replica, .. } => {
                let counters = &mut self.replicas[replica.index()];
                // The figures on the page include what this router had in flight at that moment.
                counters.inflight_at_report = Some(counters.inflight);
            }
            // The engine's last figures are discarded at the same events (`Reports`), so their baseline is, too.
            FleetEvent::Down { replica } | FleetEvent::Restarted { replica } => {
                self.replicas[replica.index()].inflight_at_report = None;
            }
            FleetEvent::Probe { .. }
            | FleetEvent::KernelRtt { .. }
            | FleetEvent::Models { .. }
            | FleetEvent::Up { .. } => {}
        }
    }

    /// Fills `queued_*`, `inflight`, `decoding` and `inflight_since_report`.
    pub fn fill(&self, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let counters = &self.replicas[candidates.replica[row].index()];
            candidates.queued_tokens[row] = counters.prompt.until_completion;
            candidates.queued_tokens_first[row] = counters.prompt.until_first_token;
            candidates.queued_uncached_tokens_completion[row] = counters.uncached.until_completion;
            candidates.queued_uncached_tokens[row] = counters.uncached.until_first_token;
            candidates.inflight[row] = counters.inflight;
            candidates.decoding[row] = counters.decoding;
            // Signed, because more requests may have finished than were sent since the page.
            candidates.inflight_since_report[row] =
                counters.inflight_at_report.map_or(0, |then| i64::from(counters.inflight) - i64::from(then));
        }
    }

    /// Requests in flight, prompt tokens until completion, uncached tokens until the first token: the exported gauges.
    #[must_use]
    pub fn totals(&self, replica: ReplicaId) -> (u32, u64, u64) {
        let counters = &self.replicas[replica.index()];
        (counters.inflight, counters.prompt.until_completion, counters.uncached.until_first_token)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::model::{EngineReport, UnixMicros};

    fn read(load: &FleetLoad) -> Candidates {
        let mut candidates = Candidates::default();
        candidates.reset(2, 0);
        candidates.replica = vec![ReplicaId(0), ReplicaId(1)];
        load.fill(&mut candidates);
        candidates
    }

    fn report(replica: u16) -> FleetEvent {
        FleetEvent::Report { replica: ReplicaId(replica), at: UnixMicros(1), report: EngineReport::default() }
    }

    #[test]
    fn prefill_is_released_at_the_first_token_and_the_rest_at_the_end() {
        let mut load = FleetLoad::new(2);
        let mut ticket = load.reserve(ReplicaId(1), 20_000, 15_000);
        let rows = read(&load);
        assert_eq!((rows.queued_tokens[1], rows.queued_tokens_first[1]), (20_000, 20_000));
        assert_eq!((rows.queued_uncached_tokens_completion[1], rows.queued_uncached_tokens[1]), (15_000, 15_000));
        assert_eq!((rows.inflight[1], rows.decoding[1]), (1, 0));
        assert_eq!((rows.inflight[0], rows.queued_tokens[0]), (0, 0));

        load.first_token(&mut ticket);
        load.first_token(&mut ticket);
        let rows = read(&load);
        assert_eq!((rows.queued_tokens[1], rows.queued_tokens_first[1]), (20_000, 0));
        assert_eq!((rows.queued_uncached_tokens_completion[1], rows.queued_uncached_tokens[1]), (15_000, 0));
        assert_eq!((rows.inflight[1], rows.decoding[1]), (1, 1));
        assert_eq!(load.totals(ReplicaId(1)), (1, 20_000, 0));

        load.release(ticket);
        assert_eq!(load.totals(ReplicaId(1)), (0, 0, 0));
        assert_eq!(read(&load), read(&FleetLoad::new(2)));
    }

    #[test]
    fn a_request_that_never_got_a_token_leaves_nothing() {
        let mut load = FleetLoad::new(2);
        let ticket = load.reserve(ReplicaId(0), 20_000, 20_000);
        load.release(ticket);
        assert_eq!(read(&load), read(&FleetLoad::new(2)));
    }

    #[test]
    fn work_since_the_last_report_is_told_apart() {
        let mut load = FleetLoad::new(2);
        let early = load.reserve(ReplicaId(0), 10, 10);
        assert_eq!(read(&load).inflight_since_report[0], 0, "no report yet: nothing to carry on from");
        load.apply(&report(0));
        let late = [load.reserve(ReplicaId(0), 10, 10), load.reserve(ReplicaId(0), 10, 10)];
        assert_eq!(read(&load).inflight_since_report, vec![2, 0]);
        load.release(early);
        assert_eq!(read(&load).inflight_since_report[0], 1);
        for ticket in late {
            load.release(ticket);
        }
        assert_eq!(read(&load).inflight_since_report[0], -1);
        load.apply(&FleetEvent::Restarted { replica: ReplicaId(0) });
        assert_eq!(read(&load).inflight_since_report[0], 0);
    }

    #[test]
    fn no_event_lowers_a_counter() {
        let mut load = FleetLoad::new(1);
        let tickets: Vec<_> = (0..10).map(|_| load.reserve(ReplicaId(0), 100, 50)).collect();
        for event in [
            report(0),
            FleetEvent::Probe { replica: ReplicaId(0), at: UnixMicros(1), rtt_ms: None },
            FleetEvent::Down { replica: ReplicaId(0) },
            FleetEvent::Restarted { replica: ReplicaId(0) },
            FleetEvent::Up { replica: ReplicaId(0) },
        ] {
            load.apply(&event);
            assert_eq!(load.totals(ReplicaId(0)), (10, 1_000, 500));
        }
        for ticket in tickets {
            load.release(ticket);
        }
        assert_eq!(load.totals(ReplicaId(0)), (0, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(11), failure_persistence: None, ..ProptestConfig::default()
        })]

        /// Whatever the interleaving, the counters are the sums over the open tickets, and exactly zero at the end.
        #[test]
        fn any_interleaving_returns_to_zero(
            steps in prop::collection::vec((0_u8..3, 0_u16..3, any::<u32>(), any::<u32>(), any::<prop::sample::Index>()), 0..200),
        ) {
            let mut load = FleetLoad::new(3);
            let mut open: Vec<LoadTicket> = Vec::new();
            for (step, replica, prompt, uncached, which) in steps {
                match step {
                    0 => open.push(load.reserve(ReplicaId(replica), prompt, uncached)),
                    1 if !open.is_empty() => {
                        let place = which.index(open.len());
                        load.first_token(&mut open[place]);
                    }
                    2 if !open.is_empty() => load.release(open.swap_remove(which.index(open.len()))),
                    _ => {}
                }
                for replica in (0..3).map(ReplicaId) {
                    let here = || open.iter().filter(|ticket| ticket.replica() == replica);
                    let queued: u64 = here().map(|ticket| u64::from(ticket.prompt_tokens)).sum();
                    let waiting: u64 =
                        here().filter(|ticket| !ticket.prefilled()).map(|ticket| u64::from(ticket.uncached_tokens)).sum();
                    let inflight = u32::try_from(here().count()).unwrap();
                    prop_assert_eq!(load.totals(replica), (inflight, queued, waiting));
                }
            }
            for ticket in open {
                load.release(ticket);
            }
            prop_assert!(load.replicas.iter().all(|counters| *counters == ReplicaCounters::default()));
        }
    }
}
