//! The tuners of the policies: they provide the weights of a decision, and learn from its outcome.
//!
//! The driver of a router passes every record that it stores to [`Router::observe_record`] and stores the records that come
//! back.

use std::sync::Arc;

use super::active_policies::ActivePolicies;
use super::{DecisionContext, Router};
use crate::model::{EventKind, ParsedRequest, PolicyIndex, PolicyWeights, StoreRecord, UnixMicros};
use crate::tune::{AssignedWeights, TrialStamp};

impl ActivePolicies {
    /// The weights of a decision, and its position in a trial. A retry uses the weights of the first
    /// attempt and has no position in it.
    pub(super) fn assign_weights(&self, prompt: &ParsedRequest, context: &DecisionContext<'_>) -> AssignedWeights {
        let DecisionContext { policy, id, seed, at, exclude } = *context;
        let in_force = || AssignedWeights { weights: self.weights[policy.index()].load_full(), stamp: None };
        let Some(tuner) = self.tuners[policy.index()].as_ref() else { return in_force() };
        // Only a retry excludes replicas. With newly assigned weights one request would belong to two arms of a
        // trial.
        if !exclude.is_empty() {
            let weights = tuner.lock().weights_of_decision(id);
            return weights.map_or_else(in_force, |weights| AssignedWeights { weights, stamp: None });
        }
        tuner.lock().assign(prompt.session_hash, seed, at)
    }

    /// Reports that no replica could be chosen.
    pub(super) fn withdraw(&self, policy: PolicyIndex, stamp: Option<TrialStamp>, at: UnixMicros) {
        if let Some(tuner) = &self.tuners[policy.index()] {
            tuner.lock().withdraw(stamp, at);
        }
    }
}

impl Router {
    /// Passes a record to the tuners: decisions, outcomes, and changes of the fleet. The records that come back must be
    /// stored *before* the record itself: a decision's weights before the decision.
    pub fn observe_record(&self, record: &StoreRecord, at: UnixMicros) -> Vec<StoreRecord> {
        let mut said = Vec::new();
        // A trial compares the arms over time, so a change of the fleet would be taken for an effect of the weights.
        let disturbance = match record {
            StoreRecord::Event(event) => match event.kind {
                EventKind::ReplicaUp
                | EventKind::ReplicaDown
                | EventKind::ReplicaRestarted
                | EventKind::ReplicaDraining => Some(event.kind.name()),
                _ => None,
            },
            StoreRecord::Decision(_) | StoreRecord::Outcome(..) => None,
            // Records that concern no tuner, such as those of probes, take none of the locks below.
            _ => return said,
        };
        let ruling = self.active.load();
        for (tuner, weights) in ruling.tuners.iter().zip(&ruling.weights) {
            let Some(tuner) = tuner else { continue };
            let mut tuner = tuner.lock();
            match record {
                StoreRecord::Decision(decision) => tuner.observe_decision(decision),
                StoreRecord::Outcome(_, outcome) => tuner.observe_outcome(outcome, at),
                _ => disturbance.iter().for_each(|why| tuner.fleet_changed(why, at)),
            }
            said.append(&mut tuner.take_records());
            // The tuner may have accepted a proposal: the next decision must use it.
            if weights.load().generation != tuner.incumbent().generation {
                weights.store(Arc::clone(tuner.incumbent()));
            }
        }
        said
    }

    /// Stops the tuners: generations on trial are not counted. The records that come back must be stored.
    pub fn stop_tuning(&self, at: UnixMicros) -> Vec<StoreRecord> {
        let mut said = Vec::new();
        for tuner in self.active.load().tuners.iter().flatten() {
            let mut tuner = tuner.lock();
            tuner.stop(at);
            said.append(&mut tuner.take_records());
        }
        said
    }

    /// Continues where the tuner of an earlier run stopped: its saved state, and the highest generation it began.
    ///
    /// # Errors
    /// The reason why the state is refused; the policy then starts with the configured weights.
    pub fn resume_tuning(&self, policy: PolicyIndex, state: Option<&str>, last: u64) -> Result<(), String> {
        let ruling = self.active.load();
        let Some(Some(tuner)) = ruling.tuners.get(policy.index()) else {
            return Err("the policy is not tuned".to_owned());
        };
        let mut tuner = tuner.lock();
        let resumed = match state {
            Some(state) => tuner.resume(state, last),
            None => {
                // Without a usable state the numbers still continue: a generation number names one row only.
                tuner.start_generations_after(last);
                Ok(())
            }
        };
        // Even if the state was refused: the weights in force must be those that the tuner starts from.
        ruling.weights[policy.index()].store(Arc::clone(tuner.incumbent()));
        resumed
    }

    /// Status of a policy's tuner, for operators; `None` if the policy is not tuned.
    #[must_use]
    pub fn tuner_status(&self, policy: PolicyIndex) -> Option<String> {
        let ruling = self.active.load();
        let tuner = ruling.tuners.get(policy.index())?.as_ref()?;
        Some(tuner.lock().status().to_owned())
    }

    /// The weights that won last; those in force if nothing is tuned. `None` for an unknown policy.
    #[must_use]
    pub fn incumbent(&self, policy: PolicyIndex) -> Option<Arc<PolicyWeights>> {
        match self.active.load().tuners.get(policy.index())? {
            Some(tuner) => Some(Arc::clone(tuner.lock().incumbent())),
            None => self.weights(policy),
        }
    }

    /// The weights on trial; `None` between trials.
    #[must_use]
    pub fn weights_on_trial(&self, policy: PolicyIndex) -> Option<Arc<PolicyWeights>> {
        let ruling = self.active.load();
        let tuner = ruling.tuners.get(policy.index())?.as_ref()?;
        tuner.lock().candidate().map(Arc::clone)
    }
}

#[cfg(test)]
mod tests;
