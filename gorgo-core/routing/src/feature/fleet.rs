//! Replicas that may be used now, and the models that each serves.
//!
//! A replica begins *untried*. Untried replicas are used only while no replica that serves the model is known to be
//! up. So a router takes requests from its first millisecond on, and a replica that is down from the start gets none
//! once another has answered. Any sign of life (a probe that came back, a metrics page) makes an untried replica up.
//! A replica that is down comes back only by [`FleetEvent::Up`], because health checks then require several good signs.
//!
//! A replica whose models are neither configured nor learned yet accepts any model.

use std::sync::Arc;

use crate::model::{Candidates, FleetEvent, Replica, ReplicaId};

/// Availability of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplicaState {
    /// Neither up nor down so far: nothing has been heard from it.
    Untried,
    /// Usable.
    Up,
    /// Not usable.
    Down,
}

impl ReplicaState {
    /// Returns true when the replica is known to be usable.
    #[must_use]
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Up)
    }
}

/// Availability of a model over the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelAvailability {
    /// At least one row is available.
    Available,
    /// Replicas serve the model, but none of them is up: 503.
    NoneAvailable,
    /// No replica serves the model: 404.
    UnknownModel,
}

/// States and models of all replicas.
#[derive(Debug, Clone)]
pub struct FleetState {
    replicas: Vec<ReplicaStatus>,
}

#[derive(Debug, Clone)]
struct ReplicaStatus {
    state: ReplicaState,
    /// Models, configured or learned; empty: unknown.
    models: Vec<Arc<str>>,
    configured: bool,
    /// True while an operator drains it: it gets no new requests.
    draining: bool,
}

impl ReplicaStatus {
    /// Returns true when the replica serves `model`. `None`: the request names no model, so any replica will do.
    fn serves(&self, model: Option<&str>) -> bool {
        model.is_none_or(|model| self.models.is_empty() || self.models.iter().any(|served| **served == *model))
    }

    /// State as far as new requests are concerned; `None`: the replica takes none.
    fn routable_state(&self) -> Option<ReplicaState> {
        (!self.draining).then_some(self.state)
    }

    fn mark_alive(&mut self) {
        if self.state == ReplicaState::Untried {
            self.state = ReplicaState::Up;
        }
    }
}

impl FleetState {
    /// Creates a fleet; `models[i]` are configured for replica *i* (empty: learned from [`FleetEvent::Models`]).
    #[must_use]
    pub fn new(fleet: &[Replica], models: &[Vec<Arc<str>>]) -> Self {
        let member = |(place, _): (usize, &Replica)| {
            let models = models.get(place).cloned().unwrap_or_default();
            ReplicaStatus { state: ReplicaState::Untried, configured: !models.is_empty(), models, draining: false }
        };
        Self { replicas: fleet.iter().enumerate().map(member).collect() }
    }

    /// Applies an event of a replica. Learned models never replace configured ones.
    pub fn apply(&mut self, event: &FleetEvent) {
        match event {
            FleetEvent::Up { replica } => self.replicas[replica.index()].state = ReplicaState::Up,
            FleetEvent::Down { replica } => self.replicas[replica.index()].state = ReplicaState::Down,
            FleetEvent::Models { replica, models } => {
                let member = &mut self.replicas[replica.index()];
                if !member.configured {
                    member.models.clone_from(models);
                }
            }
            FleetEvent::Probe { replica, rtt_ms: Some(_), .. } | FleetEvent::Report { replica, .. } => {
                self.replicas[replica.index()].mark_alive();
            }
            // A lost probe is for health checks to judge: one loss is not yet `Down`.
            FleetEvent::Probe { rtt_ms: None, .. } | FleetEvent::KernelRtt { .. } | FleetEvent::Restarted { .. } => {}
        }
    }

    /// Fills `available`: true for rows whose replica serves the model and is usable.
    pub fn mark_available(&self, model: Option<&str>, candidates: &mut Candidates) -> ModelAvailability {
        let (mut up, mut untried, mut known) = (false, false, false);
        // First pass: learn whether anybody is up, which decides whether untried replicas are candidates at all.
        for replica in &candidates.replica {
            let member = &self.replicas[replica.index()];
            if member.serves(model) {
                // A model whose last replica drains is unavailable (503), not unknown (404).
                known = true;
                up |= member.routable_state() == Some(ReplicaState::Up);
                untried |= member.routable_state() == Some(ReplicaState::Untried);
            }
        }
        // Second pass. Replicas never heard from serve only while none is known to be up.
        let wanted = if up { ReplicaState::Up } else { ReplicaState::Untried };
        for (row, replica) in candidates.replica.iter().enumerate() {
            let member = &self.replicas[replica.index()];
            candidates.available[row] = member.routable_state() == Some(wanted) && member.serves(model);
        }
        // A model that no replica serves is the client's mistake; one whose replicas are down is not.
        match (up || untried, known) {
            (true, _) => ModelAvailability::Available,
            (false, true) => ModelAvailability::NoneAvailable,
            (false, false) => ModelAvailability::UnknownModel,
        }
    }

    /// Starts or ends the draining of a replica. Returns true when that is a change.
    pub fn set_draining(&mut self, replica: ReplicaId, draining: bool) -> bool {
        std::mem::replace(&mut self.replicas[replica.index()].draining, draining) != draining
    }

    /// Returns true while an operator drains the replica.
    #[must_use]
    pub fn is_draining(&self, replica: ReplicaId) -> bool {
        self.replicas[replica.index()].draining
    }

    /// State of a replica.
    #[must_use]
    pub fn state(&self, replica: ReplicaId) -> ReplicaState {
        self.replicas[replica.index()].state
    }

    /// Models of a replica; empty: not known yet.
    #[must_use]
    pub fn models(&self, replica: ReplicaId) -> &[Arc<str>] {
        &self.replicas[replica.index()].models
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EngineKind, EngineReport, UnixMicros};

    const IDS: [ReplicaId; 3] = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];

    /// Replica 0 serves `a`, 1 serves `a` and `b`, 2 must be learned.
    fn fleet() -> FleetState {
        let replicas: Vec<Replica> = IDS
            .into_iter()
            .map(|id| Replica {
                id,
                name: id.to_string().into(),
                region: "r".into(),
                engine: EngineKind::OpenAi,
                kv_capacity_tokens: None,
                decode_batch: None,
            })
            .collect();
        FleetState::new(&replicas, &[vec!["a".into()], vec!["a".into(), "b".into()], vec![]])
    }

    fn mark(fleet: &FleetState, model: Option<&str>) -> (ModelAvailability, Vec<bool>) {
        let mut candidates = Candidates::default();
        candidates.reset(3, 0);
        candidates.replica = IDS.to_vec();
        let serves = fleet.mark_available(model, &mut candidates);
        (serves, candidates.available)
    }

    fn with(events: &[FleetEvent]) -> FleetState {
        let mut fleet = fleet();
        events.iter().for_each(|event| fleet.apply(event));
        fleet
    }

    fn probe(replica: ReplicaId, rtt_ms: Option<f64>) -> FleetEvent {
        FleetEvent::Probe { replica, at: UnixMicros(1), rtt_ms }
    }

    #[test]
    fn untried_replicas_are_used_until_one_is_up() {
        let (up, down) = (FleetEvent::Up { replica: IDS[1] }, FleetEvent::Down { replica: IDS[1] });
        assert_eq!(mark(&fleet(), Some("a")), (ModelAvailability::Available, vec![true, true, true]));
        assert_eq!(
            mark(&with(std::slice::from_ref(&up)), Some("a")),
            (ModelAvailability::Available, vec![false, true, false])
        );
        assert_eq!(mark(&with(&[up, down]), Some("a")), (ModelAvailability::Available, vec![true, false, true]));
    }

    #[test]
    fn a_sign_of_life_brings_up_the_untried_but_not_the_dead() {
        let report = FleetEvent::Report { replica: IDS[2], at: UnixMicros(1), report: EngineReport::default() };
        let fleet = with(&[probe(IDS[0], Some(1.0)), probe(IDS[1], None), report]);
        assert_eq!(IDS.map(|id| fleet.state(id)), [ReplicaState::Up, ReplicaState::Untried, ReplicaState::Up]);
        let fleet = with(&[FleetEvent::Down { replica: IDS[0] }, probe(IDS[0], Some(1.0))]);
        assert_eq!(fleet.state(IDS[0]), ReplicaState::Down);
    }

    #[test]
    fn a_drained_replica_gets_nothing_whatever_its_state() {
        let ups: Vec<FleetEvent> = IDS.into_iter().map(|replica| FleetEvent::Up { replica }).collect();
        let mut fleet = with(&ups);
        assert!(fleet.set_draining(IDS[0], true) && !fleet.set_draining(IDS[0], true), "news once");
        assert_eq!(mark(&fleet, Some("a")), (ModelAvailability::Available, vec![false, true, true]));
        assert!(fleet.is_draining(IDS[0]) && fleet.state(IDS[0]).is_up(), "it lives");
        fleet.apply(&FleetEvent::Up { replica: IDS[0] });
        assert_eq!(mark(&fleet, Some("a")).1, [false, true, true], "a sign of life does not let it back");
        fleet.set_draining(IDS[1], true);
        fleet.set_draining(IDS[2], true);
        assert_eq!(mark(&fleet, Some("a")), (ModelAvailability::NoneAvailable, vec![false; 3]));
        fleet.set_draining(IDS[0], false);
        assert_eq!(mark(&fleet, Some("a")), (ModelAvailability::Available, vec![true, false, false]));
    }

    #[test]
    fn models_are_configured_or_learned() {
        assert_eq!(mark(&fleet(), Some("b")), (ModelAvailability::Available, vec![false, true, true]));
        assert_eq!(mark(&fleet(), None), (ModelAvailability::Available, vec![true, true, true]));
        let learned = with(&[
            FleetEvent::Models { replica: IDS[2], models: vec!["c".into()] },
            FleetEvent::Models { replica: IDS[0], models: vec!["c".into()] },
        ]);
        assert_eq!(mark(&learned, Some("c")), (ModelAvailability::Available, vec![false, false, true]));
        assert_eq!(mark(&learned, Some("d")), (ModelAvailability::UnknownModel, vec![false, false, false]));
        assert_eq!(learned.models(IDS[2]), ["c".into()]);
        assert_eq!(learned.models(IDS[0]), ["a".into()]);
    }

    #[test]
    fn a_model_whose_replicas_are_down_is_not_unknown() {
        let down: Vec<FleetEvent> = IDS.into_iter().map(|replica| FleetEvent::Down { replica }).collect();
        assert_eq!(mark(&with(&down), Some("a")), (ModelAvailability::NoneAvailable, vec![false, false, false]));
    }
}
