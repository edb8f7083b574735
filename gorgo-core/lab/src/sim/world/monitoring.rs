//! Observation of the replicas by the router, besides its own requests: probes and metrics pages, each delayed by its
//! network path; and the faults of the scenario.

use super::event_queue::SimEvent;
use super::network::micros;
use super::randomness::{bits, to_unit_interval};
use super::run::{PACE, SimulatedWorld};
use super::scenario::{FaultKind, Scenario, ScenarioFault};
use crate::sim::SimulatedEngine;
use gorgo_routing::model::{EngineReport, FleetEvent, ReplicaId, UnixMicros};

/// Share by which intervals vary, so that probes and scrapes do not synchronise.
const PACE_JITTER: f64 = 0.10;

impl SimulatedWorld<'_> {
    fn deliver_event(&mut self, at: UnixMicros, event: &FleetEvent) {
        if let Some((router, _)) = &self.router {
            let restarted = router.apply(event);
            self.record_event(at, event, restarted);
        }
    }

    /// Returns a time about `interval_ms` from now.
    fn next_due(&self, at: UnixMicros, interval_ms: u64, replica: ReplicaId) -> UnixMicros {
        // An id has 16 bits, so the replicas' streams do not overlap.
        let drawn = to_unit_interval(bits(self.seed, PACE << 16 | u64::from(replica.0), at.0));
        #[expect(clippy::cast_precision_loss, reason = "an interval of ms")]
        let interval_ms = interval_ms as f64;
        at.plus(micros(interval_ms * (1.0 + PACE_JITTER * (2.0 * drawn - 1.0))))
    }

    pub(super) fn probe_sent(&mut self, at: UnixMicros, replica: ReplicaId) {
        let probe = self.setup.probe;
        #[expect(clippy::cast_precision_loss, reason = "a time-out in ms")]
        let timeout_ms = probe.timeout_ms as f64;
        let stand = self.replica_mut(replica);
        let rtt_ms = stand.path.probe_ms(at);
        // The state of the replica is read when the probe is sent.
        let reading = (!stand.down && rtt_ms <= timeout_ms).then_some(rtt_ms);
        // A refusal takes a round trip, as an answer does; silence is noticed at the time-out.
        self.events.schedule(at.plus(micros(rtt_ms.min(timeout_ms))), SimEvent::ProbeBack(replica, reading));
        self.events.schedule(self.next_due(at, probe.interval_ms, replica), SimEvent::ProbeSent(replica));
    }

    pub(super) fn probe_back(&mut self, at: UnixMicros, replica: ReplicaId, rtt_ms: Option<f64>) {
        self.deliver_event(at, &FleetEvent::Probe { replica, at, rtt_ms });
        for event in self.replica_mut(replica).health.probe(replica, rtt_ms.is_some()) {
            self.deliver_event(at, &event);
        }
    }

    pub(super) fn scrape_sent(&mut self, at: UnixMicros, replica: ReplicaId) {
        let half = micros(self.replica_mut(replica).path.scrape_ms(at) / 2.0);
        let back_us = u64::try_from(half.as_micros()).unwrap_or(u64::MAX);
        self.events.schedule(at.plus(half), SimEvent::ScrapeRead(replica, back_us));
        self.events.schedule(self.next_due(at, self.setup.scrape.interval_ms, replica), SimEvent::ScrapeSent(replica));
    }

    pub(super) fn scrape_read(&mut self, at: UnixMicros, replica: ReplicaId, back_us: u64) {
        self.advance(at, replica);
        let stand = self.replica_mut(replica);
        // No page, no event: the last report ages until the router treats it as unknown.
        if stand.down {
            return;
        }
        // The numbers are those of this moment; the router reads them half a round trip later.
        let numbers = stand.engine.stats();
        let report = EngineReport {
            running: Some(f64::from(numbers.running)),
            waiting: Some(f64::from(numbers.waiting)),
            kv_used_tokens: Some(f64::from(numbers.used_tokens)),
            kv_used_share: Some(numbers.usage()),
            kv_capacity_tokens: Some(u64::from(numbers.capacity_tokens)),
            decode_batch: stand.engine.profile().decode_batch(),
            max_running: Some(stand.engine.profile().max_running),
            throughput: Some(numbers.throughput),
            started_secs: Some(stand.started.elapsed_since(UnixMicros(0)).as_secs_f64()),
            prompt_tokens_total: None,
        };
        self.events.schedule(UnixMicros(at.0 + back_us), SimEvent::ScrapeBack(replica, Box::new(report)));
    }

    pub(super) fn scrape_back(&mut self, at: UnixMicros, replica: ReplicaId, report: EngineReport) {
        self.deliver_event(at, &FleetEvent::Report { replica, at, report });
    }

    pub(super) fn fault_begins(&mut self, at: UnixMicros, number: usize) {
        let Some(replica) = self.fault_target(number) else { return };
        let ScenarioFault { kind, for_s, .. } = self.setup.scenario.faults[number];
        // Everything that the engine finished before the fault is delivered first.
        self.advance(at, replica);
        // Requests fail before the engine is replaced: their connections break with the old process.
        if matches!(kind, FaultKind::Down | FaultKind::Restart) {
            self.drop_all(at, replica);
        }
        if kind == FaultKind::Restart {
            let stand = self.replica_mut(replica);
            // The profile and speed have been checked before, so this cannot fail.
            if let Ok(engine) = SimulatedEngine::new(stand.engine.profile().clone(), stand.speed) {
                stand.engine = engine;
                stand.started = at;
                stand.scheduled_event = None;
            }
        }
        let secs = for_s.or((kind == FaultKind::Restart).then_some(0.0));
        // A fault that is over at once must not count as active, since no event would end it.
        self.active_faults[number] = secs != Some(0.0);
        if let Some(secs) = secs.filter(|secs| *secs > 0.0) {
            self.events.schedule(at.plus(micros(secs * 1e3)), SimEvent::FaultEnds(number));
        }
        self.apply_active_faults(replica);
    }

    pub(super) fn fault_ends(&mut self, at: UnixMicros, number: usize) {
        self.active_faults[number] = false;
        if let Some(replica) = self.fault_target(number) {
            // Steps that are due by now begin at the old speed, before it changes.
            self.advance(at, replica);
            self.apply_active_faults(replica);
        }
    }

    /// Returns the replica that a fault affects.
    fn fault_target(&self, number: usize) -> Option<ReplicaId> {
        let name = &self.setup.scenario.faults[number].replica;
        let found = self.setup.replicas.iter().find(|member| *member.replica.name == **name);
        found.map(|member| member.replica.id)
    }

    /// Applies all active faults of a replica.
    fn apply_active_faults(&mut self, replica: ReplicaId) {
        // Computed from scratch: faults may overlap, and undoing one must leave the others in force.
        let (mut slow, mut way, mut down) = (1.0, 1.0, false);
        for (fault, active) in self.setup.scenario.faults.iter().zip(&self.active_faults) {
            if !active || *fault.replica != *self.replicas[replica.index()].name {
                continue;
            }
            let factor = fault.factor.unwrap_or(1.0);
            match fault.kind {
                FaultKind::Slow => slow *= factor,
                FaultKind::LinkSpike | FaultKind::RttStep => way *= factor,
                FaultKind::Down | FaultKind::Restart => down = true,
            }
        }
        let stand = self.replica_mut(replica);
        stand.path.fault_factor = way;
        stand.down = down;
        // Several slow faults at once may leave the range of speeds; the speed then stays as it was.
        let _ = stand.engine.set_speed(stand.speed / slow);
    }
}

impl Scenario {
    /// Returns the largest factor on a replica's speed that its faults can ever cause, at least 1.
    pub(super) fn max_speed_factor(&self, replica: &str) -> f64 {
        let slow = self.faults.iter().filter(|fault| fault.kind == FaultKind::Slow && fault.replica == replica);
        slow.filter_map(|fault| fault.factor).map(|factor| (1.0 / factor).max(1.0)).product()
    }
}
