//! State of a tuner as text, and resuming from it after a restart. Nothing in the text is trusted: another fleet's
//! weights, numbers out of bounds and states of another optimizer are refused with the reason, and the tuner starts
//! afresh.
//! A generation that the stop interrupted is not part of it and does not count.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{PairNoise, Tuner};
use crate::model::{Generation, PolicyWeights};
use crate::tune::exact_floats;
use crate::tune::reference_tuner;

#[derive(Debug, Serialize, Deserialize)]
struct SavedTuner {
    version: u32,
    fleet: Vec<String>,
    optimizer: String,
    incumbent: u64,
    #[serde(with = "exact_floats::list")]
    weights: Vec<f64>,
    next_generation: u64,
    next_block: u32,
    noise: PairNoise,
    /// State of the optimizer.
    state: String,
    reference: Option<reference_tuner::ReferenceState>,
}

impl Tuner {
    /// Complete state for a restart, as JSON text.
    #[must_use]
    pub fn save(&self) -> String {
        let saved = SavedTuner {
            version: 1,
            fleet: self.fleet.clone(),
            optimizer: self.plan.optimizer.kind.to_owned(),
            incumbent: self.incumbent.generation.0,
            weights: self.incumbent.values.clone(),
            next_generation: self.next_generation,
            next_block: self.next_block,
            noise: self.noise,
            state: self.optimizer.save(),
            reference: self.reference.as_ref().map(|reference| reference.state.clone()),
        };
        serde_json::to_string(&saved).unwrap_or_default()
    }

    /// Resumes from a saved state. `last`: highest generation of the policy in the store, which may have been
    /// interrupted after the state was saved; numbering continues above it whether or not the state is accepted.
    ///
    /// # Errors
    /// The reason why the state is refused; then the tuner starts with the weights as configured.
    pub fn resume(&mut self, text: &str, last: u64) -> Result<(), String> {
        self.start_generations_after(last);
        let saved: SavedTuner =
            serde_json::from_str(text).map_err(|cause| format!("saved state cannot be read: {cause}"))?;
        if saved.version != 1 {
            return Err(format!("saved state has version {}; this gorgo reads version 1", saved.version));
        }
        if saved.optimizer != self.plan.optimizer.kind {
            return Err(format!("saved for optimizer {}, configured is {}", saved.optimizer, self.plan.optimizer.kind));
        }
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        // The order of replicas in the file does not matter: no weight belongs to a replica.
        if sorted(&saved.fleet) != sorted(&self.fleet) {
            return Err(format!("saved for another fleet: {}", saved.fleet.join(", ")));
        }
        if saved.weights.len() != self.base.len() {
            return Err(format!("{} weights saved, but the policy has {} terms", saved.weights.len(), self.base.len()));
        }
        for (slot, (weight, configured)) in saved.weights.iter().zip(&self.base).enumerate() {
            let allowed = match self.plan.space.dimensions.iter().find(|dimension| dimension.slot == slot) {
                Some(dimension) => *weight >= dimension.min && *weight <= dimension.max,
                // Untuned weights come from the configuration: if one was edited, the state was found under other
                // conditions.
                None => weight == configured,
            };
            if !allowed {
                return Err(format!("saved weight {weight:?} of term {} is not allowed", slot + 1));
            }
        }
        let noise = if saved.noise.is_sound() { saved.noise } else { PairNoise::default() };
        // Everything else was checked above; each of these two checks its own part before it changes.
        match (&mut self.reference, saved.reference) {
            (Some(reference), Some(state)) => reference.load(state)?,
            (None, None) => {}
            _ => return Err("saved for another mode of the optimizer".to_owned()),
        }
        self.optimizer.load(&saved.state)?;
        self.incumbent = Arc::new(PolicyWeights { generation: Generation(saved.incumbent), values: saved.weights });
        self.in_force = self.incumbent.generation;
        self.next_generation = self.next_generation.max(saved.next_generation).max(saved.incumbent + 1);
        self.next_block = saved.next_block;
        self.noise = noise;
        self.status = format!("resumed from generation {}", saved.incumbent);
        Ok(())
    }
}
