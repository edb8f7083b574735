//! How much of what the prefix index promises an engine really has: per replica a running mean of actual ÷ predicted
//! cached tokens, 0 to 1.
//!
//! Kept apart for prompts that continue a known one and prompts that share only part of one, since engines with hybrid
//! attention keep state only where a prompt ended and give nothing for the latter. A match of at least half the prompt
//! counts as continuing: the index does not know where prompts ended. Source: design study, section 3, "h_r".

use crate::model::{Candidates, ReplicaId, RequestView};

/// What a new ratio weighs in the mean.
const WEIGHT: f64 = 0.05;
/// Shorter promises say nothing: a chat template is cached everywhere.
const LEAST_TOKENS: u32 = 256;

/// The means of all replicas: `[shares part, continues]`.
#[derive(Debug, Clone)]
pub struct Hits {
    replicas: Vec<[f64; 2]>,
}

impl Hits {
    /// For a fleet of `replicas`; the index is believed until it is found wrong.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas: vec![[1.0; 2]; replicas] }
    }

    /// The engine had `actual` tokens where `predicted` of `prompt` were believed cached.
    pub fn record(&mut self, replica: ReplicaId, prompt: u32, predicted: u32, actual: u32) {
        if predicted >= LEAST_TOKENS {
            let mean = &mut self.replicas[replica.index()][continues(prompt, predicted)];
            let ratio = (f64::from(actual) / f64::from(predicted)).min(1.0);
            *mean += (ratio - *mean) * WEIGHT;
        }
    }

    /// The means of a replica: of prompts that share part of a known one, of those that continue one.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> [f64; 2] {
        self.replicas.get(replica.index()).copied().unwrap_or([1.0; 2])
    }

    /// Goes on from the means of an earlier run.
    ///
    /// # Errors
    /// What cannot be in them; nothing changes then.
    pub fn go_on_from(&mut self, replica: ReplicaId, means: [f64; 2]) -> Result<(), &'static str> {
        if !means.iter().all(|mean| (0.0..=1.0).contains(mean)) {
            return Err("a share is not between 0 and 1");
        }
        *self.replicas.get_mut(replica.index()).ok_or("it is of a replica that is not there")? = means;
        Ok(())
    }

    /// Fills `likely_uncached_tokens`; reads `cached_tokens`.
    pub fn read(&self, request: &RequestView, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let cached = candidates.cached_tokens[row].min(request.prompt_tokens);
            let hits = self.replicas[candidates.replica[row].index()][continues(request.prompt_tokens, cached)];
            let uncached = f64::from(request.prompt_tokens) - hits * f64::from(cached);
            candidates.likely_uncached_tokens[row] = uncached.max(1.0);
        }
    }
}

/// Which of the two means.
fn continues(prompt: u32, cached: u32) -> usize {
    usize::from(u64::from(cached) * 2 >= u64::from(prompt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likely(hits: &Hits, prompt_tokens: u32, cached: u32) -> f64 {
        let mut candidates = Candidates::default();
        candidates.reset(1, 0);
        candidates.cached_tokens[0] = cached;
        let request = RequestView {
            prompt_tokens,
            max_tokens: None,
            body_bytes: 0,
            session_hash: 0,
            head_hash: 0,
            slo_ttft_ms: None,
            turn: 0,
        };
        hits.read(&request, &mut candidates);
        candidates.likely_uncached_tokens[0]
    }

    #[test]
    fn believed_until_found_wrong_and_each_sort_for_itself() {
        let mut hits = Hits::new(1);
        assert_eq!(likely(&hits, 1_000, 900), 100.0);
        assert_eq!(likely(&hits, 1_000, 1_000), 1.0, "something is always computed");
        for _ in 0..200 {
            hits.record(ReplicaId(0), 1_000, 400, 0);
            hits.record(ReplicaId(0), 1_000, 900, 950);
        }
        assert!(likely(&hits, 1_000, 400) > 999.0, "{}", likely(&hits, 1_000, 400));
        assert_eq!(likely(&hits, 1_000, 900), 100.0);
    }

    #[test]
    fn short_promises_say_nothing() {
        let mut hits = Hits::new(1);
        for _ in 0..200 {
            hits.record(ReplicaId(0), 260, 255, 0);
        }
        assert_eq!(likely(&hits, 260, 255), 5.0);
    }
}
