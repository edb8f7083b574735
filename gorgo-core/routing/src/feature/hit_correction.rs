//! Reliability of the prefix index: per replica a running mean of actual ÷ predicted cached tokens, 0 to 1.
//! cached tokens, 0 to 1.
//! Prompts that continue a known one and prompts that share only part of one are counted separately, because engines
//! with hybrid attention keep state only where a prompt ended and reuse nothing for the latter. A match of at least
//! half the prompt counts as continuing: the index does not know where prompts ended.

use crate::model::{Candidates, ReplicaId, RequestView};

/// Weight of a new ratio in the mean.
const WEIGHT: f64 = 0.05;
/// Fewest predicted tokens that count: a chat template is cached everywhere, so short matches prove nothing.
const LEAST_TOKENS: u32 = 256;

/// Means of all replicas: `[shares part, continues]`.
#[derive(Debug, Clone)]
pub struct HitCorrection {
    replicas: Vec<[f64; 2]>,
}

impl HitCorrection {
    /// Creates the means of a fleet of `replicas`; the index is trusted until it is found wrong.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas: vec![[1.0; 2]; replicas] }
    }

    /// Records that the engine had `actual` tokens cached where `predicted` of `prompt` were expected.
    pub fn record(&mut self, replica: ReplicaId, prompt: u32, predicted: u32, actual: u32) {
        if predicted >= LEAST_TOKENS {
            let mean = &mut self.replicas[replica.index()][continues(prompt, predicted)];
            // An engine may have more than predicted; a ratio above 1 would promise tokens that the index does not know.
            let ratio = (f64::from(actual) / f64::from(predicted)).min(1.0);
            *mean += (ratio - *mean) * WEIGHT;
        }
    }

    /// Means of a replica: for prompts that share part of a known one, and for those that continue one.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> [f64; 2] {
        self.replicas.get(replica.index()).copied().unwrap_or([1.0; 2])
    }

    /// Resumes from the means of an earlier run.
    ///
    /// # Errors
    /// A mean is out of its range, or the fleet has no such replica; nothing changes then.
    pub fn restore(&mut self, replica: ReplicaId, means: [f64; 2]) -> Result<(), &'static str> {
        if !means.iter().all(|mean| (0.0..=1.0).contains(mean)) {
            return Err("a share is not between 0 and 1");
        }
        *self.replicas.get_mut(replica.index()).ok_or("it belongs to a replica that does not exist")? = means;
        Ok(())
    }

    /// Fills `likely_uncached_tokens`. Reads `cached_tokens`.
    pub fn fill(&self, request: &RequestView, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let cached = candidates.cached_tokens[row].min(request.prompt_tokens);
            let hits = self.replicas[candidates.replica[row].index()][continues(request.prompt_tokens, cached)];
            let uncached = f64::from(request.prompt_tokens) - hits * f64::from(cached);
            // Engines always compute the last token, whatever is cached.
            candidates.likely_uncached_tokens[row] = uncached.max(1.0);
        }
    }
}

/// Index of the mean that applies.
fn continues(prompt: u32, cached: u32) -> usize {
    usize::from(u64::from(cached) * 2 >= u64::from(prompt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likely(hits: &HitCorrection, prompt_tokens: u32, cached: u32) -> f64 {
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
            decision_number: 0,
        };
        hits.fill(&request, &mut candidates);
        candidates.likely_uncached_tokens[0]
    }

    #[test]
    fn believed_until_found_wrong_and_each_sort_for_itself() {
        let mut hits = HitCorrection::new(1);
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
        let mut hits = HitCorrection::new(1);
        for _ in 0..200 {
            hits.record(ReplicaId(0), 260, 255, 0);
        }
        assert_eq!(likely(&hits, 260, 255), 5.0);
    }
}
