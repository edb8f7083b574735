//! The tuners of the policies: whose weights a decision is made with, and what its outcome says of them.
//!
//! Whoever drives a router shows it every record it takes down ([`Router::tuning`]) and takes down what comes back.

use std::sync::Arc;

use super::active_policies::Ruling;
use super::{DecisionContext, Router};
use crate::model::{At, EventKind, PolicyIndex, Prompt, Record, Weights};
use crate::tune::{Assigned, Stamp};

impl Ruling {
    /// The weights of a decision, and its place in an experiment. A retry is decided with the weights of the first
    /// attempt and has no place of its own.
    pub(super) fn assigned(&self, prompt: &Prompt, context: &DecisionContext<'_>) -> Assigned {
        let DecisionContext { policy, id, seed, at, exclude } = *context;
        let in_force = || Assigned { weights: self.weights[policy.index()].load_full(), stamp: None };
        let Some(tuner) = self.tuners[policy.index()].as_ref() else { return in_force() };
        if !exclude.is_empty() {
            let weights = tuner.lock().weights_of_decision(id);
            return weights.map_or_else(in_force, |weights| Assigned { weights, stamp: None });
        }
        tuner.lock().assign(prompt.session_hash, seed, at)
    }

    /// Nobody could be chosen.
    pub(super) fn withdrawn(&self, policy: PolicyIndex, stamp: Option<Stamp>, at: At) {
        if let Some(tuner) = &self.tuners[policy.index()] {
            tuner.lock().withdrawn(stamp, at);
        }
    }
}

impl Router {
    /// Shows a record to the tuners: decisions, outcomes, and what happened to the fleet. What comes back is to be
    /// taken down *before* the record itself: a decision's weights before the decision.
    pub fn tuning(&self, record: &Record, at: At) -> Vec<Record> {
        let mut said = Vec::new();
        let disturbance = match record {
            Record::Event(event) => match event.kind {
                EventKind::ReplicaUp
                | EventKind::ReplicaDown
                | EventKind::ReplicaRestarted
                | EventKind::ReplicaDraining => Some(event.kind.name()),
                _ => None,
            },
            Record::Decision(_) | Record::Outcome(..) => None,
            _ => return said,
        };
        let ruling = self.ruling.load();
        for (tuner, weights) in ruling.tuners.iter().zip(&ruling.weights) {
            let Some(tuner) = tuner else { continue };
            let mut tuner = tuner.lock();
            match record {
                Record::Decision(decision) => tuner.decided(decision),
                Record::Outcome(_, outcome) => tuner.outcome(outcome, at),
                _ => disturbance.iter().for_each(|why| tuner.disturbed(why, at)),
            }
            said.append(&mut tuner.records());
            if weights.load().generation != tuner.incumbent().generation {
                weights.store(Arc::clone(tuner.incumbent()));
            }
        }
        said
    }

    /// The router stops: generations on trial are not counted. What comes back is to be taken down.
    pub fn stop_tuning(&self, at: At) -> Vec<Record> {
        let mut said = Vec::new();
        for tuner in self.ruling.load().tuners.iter().flatten() {
            let mut tuner = tuner.lock();
            tuner.stopped(at);
            said.append(&mut tuner.records());
        }
        said
    }

    /// Goes on where the tuner of an earlier run stopped: its saved state, and the highest generation it began.
    ///
    /// # Errors
    /// Why the state is refused; the policy starts with the weights as configured then.
    pub fn resume_tuning(&self, policy: PolicyIndex, state: Option<&str>, last: u64) -> Result<(), String> {
        let ruling = self.ruling.load();
        let Some(Some(tuner)) = ruling.tuners.get(policy.index()) else {
            return Err("the policy is not tuned".to_owned());
        };
        let mut tuner = tuner.lock();
        let resumed = match state {
            Some(state) => tuner.resume(state, last),
            None => {
                tuner.number_from(last);
                Ok(())
            }
        };
        ruling.weights[policy.index()].store(Arc::clone(tuner.incumbent()));
        resumed
    }

    /// What a policy's tuner does now, for people; `None` where nothing is tuned.
    #[must_use]
    pub fn tuner_said(&self, policy: PolicyIndex) -> Option<String> {
        let ruling = self.ruling.load();
        let tuner = ruling.tuners.get(policy.index())?.as_ref()?;
        Some(tuner.lock().said().to_owned())
    }

    /// The weights that won last; those in force where nothing is tuned. `None` for an unknown policy.
    #[must_use]
    pub fn incumbent(&self, policy: PolicyIndex) -> Option<Arc<Weights>> {
        match self.ruling.load().tuners.get(policy.index())? {
            Some(tuner) => Some(Arc::clone(tuner.lock().incumbent())),
            None => self.weights(policy),
        }
    }

    /// The weights on trial; `None` between trials.
    #[must_use]
    pub fn on_trial(&self, policy: PolicyIndex) -> Option<Arc<Weights>> {
        let ruling = self.ruling.load();
        let tuner = ruling.tuners.get(policy.index())?.as_ref()?;
        tuner.lock().trying().map(Arc::clone)
    }
}

#[cfg(test)]
mod tests;
