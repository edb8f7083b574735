//! A tuner's state as text, and going on from it after a restart. Nothing in it is trusted: another fleet's weights,
//! numbers out of bounds and states of another optimizer are refused with the reason, and the tuner starts afresh.
//! A generation that the stop cut is not in it and is not counted.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Noise, Tuner};
use crate::model::{Generation, Weights};
use crate::tune::exact_floats;
use crate::tune::reference_tuner;

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    version: u32,
    fleet: Vec<String>,
    optimizer: String,
    incumbent: u64,
    #[serde(with = "exact_floats::list")]
    weights: Vec<f64>,
    next_generation: u64,
    next_block: u32,
    noise: Noise,
    /// The optimizer's own.
    state: String,
    reference: Option<reference_tuner::State>,
}

impl Tuner {
    /// Everything that a restart needs, as JSON text.
    #[must_use]
    pub fn save(&self) -> String {
        let saved = Saved {
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

    /// Goes on from a saved state. `last`: the highest generation of the policy in the store, which may have been cut
    /// after the state was saved; numbers go on above it whether or not the state is taken.
    ///
    /// # Errors
    /// Why the state is refused; the tuner starts with the weights as configured then.
    pub fn resume(&mut self, text: &str, last: u64) -> Result<(), String> {
        self.number_from(last);
        let saved: Saved = serde_json::from_str(text).map_err(|cause| format!("it cannot be read: {cause}"))?;
        if saved.version != 1 {
            return Err(format!("it is of version {}, known is 1", saved.version));
        }
        if saved.optimizer != self.plan.optimizer.kind {
            return Err(format!("it is of optimizer {}, now it is {}", saved.optimizer, self.plan.optimizer.kind));
        }
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        if sorted(&saved.fleet) != sorted(&self.fleet) {
            return Err(format!("it is of another fleet: {}", saved.fleet.join(", ")));
        }
        if saved.weights.len() != self.base.len() {
            return Err(format!("it has {} weights, the policy has {} terms", saved.weights.len(), self.base.len()));
        }
        for (slot, (weight, configured)) in saved.weights.iter().zip(&self.base).enumerate() {
            let allowed = match self.plan.space.dimensions.iter().find(|dimension| dimension.slot == slot) {
                Some(dimension) => *weight >= dimension.min && *weight <= dimension.max,
                None => weight == configured,
            };
            if !allowed {
                return Err(format!("its weight {weight:?} of term {} is not allowed", slot + 1));
            }
        }
        let noise = if saved.noise.is_sound() { saved.noise } else { Noise::default() };
        match (&mut self.reference, saved.reference) {
            (Some(reference), Some(state)) => reference.load(state)?,
            (None, None) => {}
            _ => return Err("it is of another mode of the optimizer".to_owned()),
        }
        self.optimizer.load(&saved.state)?;
        self.incumbent = Arc::new(Weights { generation: Generation(saved.incumbent), values: saved.weights });
        self.in_force = self.incumbent.generation;
        self.next_generation = self.next_generation.max(saved.next_generation).max(saved.incumbent + 1);
        self.next_block = saved.next_block;
        self.noise = noise;
        self.said = format!("going on from generation {}", saved.incumbent);
        Ok(())
    }
}
