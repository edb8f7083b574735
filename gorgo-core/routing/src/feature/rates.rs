//! Parts of a replica's time to first token, learned per replica from observations:
//!
//! `ttft − rtt ≈ intercept + P·uncached + Q·queued uncached + D·decoding`   (ms)
//!
//! by recursive least squares with forgetting 0.998 per sample. Residuals are clipped at 3 standard deviations, so that
//! one straggler does not distort the fit, and coefficients keep their physical sign. `P` and `Q` are `prefill_rate`
//! and `queue_rate` of the GORGO paper.
//!
//! A replica without samples reads the median of those that have learned, or the priors below while there is none: a
//! newcomer is neither free nor forbidden.

use serde::{Deserialize, Serialize};

use crate::model::{Candidates, RateKind, RateRecord, ReplicaId, UnixMicros};

/// Samples until a replica's prediction is trusted, and until its rates count for newcomers.
pub const MIN_SAMPLES: u64 = 30;
/// Factor on a sample's weight with each later sample of its replica.
const FORGETTING: f64 = 0.998;
/// Limit of residuals, standard deviations.
const CLIP_SIGMAS: f64 = 3.0;
/// Standard deviation of TTFT around the model before any sample, ms, and the weight of that prior, samples.
const PRIOR_SIGMA_MS: f64 = 100.0;
const PRIOR_SIGMA_SAMPLES: f64 = 10.0;
/// Quantile of the normal distribution for a 95 % interval.
const NORMAL_95: f64 = 1.96;
/// Limits beyond which a sample is taken for an error: ms, and thousands of tokens (or requests).
const MOST_MS: f64 = 3_600_000.0;
const MOST_SCALED: f64 = 100_000.0;

const DIMENSIONS: usize = 4;
/// Coefficients, in the order of the vectors in this file.
const KINDS: [RateKind; DIMENSIONS] = [RateKind::Intercept, RateKind::Prefill, RateKind::Queue, RateKind::Decode];
/// Unit of each column: tokens enter in thousands, so that the four columns have similar magnitudes.
const SCALE: [f64; DIMENSIONS] = [1.0, 1e-3, 1e-3, 1.0];
/// Values before any sample, in scaled units: 50 ms (20 to 80 ms per prefill batch and 34 ms outside the GPU,
/// calibrated), 0.08 ms per token (0.069 to 0.083 measured on H100, 0.062 fitted on L40S), 0.005 ms per queued token
/// (measured), 1 ms per decoding request (0.12 to 0.6 ms per step, and a prefill spans several).
const PRIOR: [f64; DIMENSIONS] = [50.0, 80.0, 5.0, 1.0];
/// Standard deviation of the truth around the prior, same units.
const PRIOR_SD: [f64; DIMENSIONS] = [200.0, 150.0, 50.0, 10.0];
/// Smallest values, same units. Prefill is never free: a cost of 0 would make it so.
const LEAST: [f64; DIMENSIONS] = [0.0, 0.1, 0.0, 0.0];

type Vector = [f64; DIMENSIONS];

/// Request that got a first token: the facts at its decision, and its TTFT.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateSample {
    /// Facts at its decision, with the uncached tokens as counted by the engine where it reports them.
    pub facts: RateFacts,
    /// Time from dispatch to the first generated content, ms.
    pub ttft_ms: f64,
}

/// Inputs of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateFacts {
    /// Round trip, ms.
    pub rtt_ms: f64,
    /// Prompt tokens that need prefill.
    pub uncached_tokens: u32,
    /// Uncached tokens of requests there that have no first token yet, this request excluded.
    pub queued_uncached_tokens: u64,
    /// Requests there that have had their first token.
    pub decoding: u32,
}

impl RateFacts {
    #[expect(clippy::cast_precision_loss, reason = "queued tokens are far below 2^53")]
    fn vector(&self) -> Vector {
        let raw = [1.0, f64::from(self.uncached_tokens), self.queued_uncached_tokens as f64, f64::from(self.decoding)];
        std::array::from_fn(|k| raw[k] * SCALE[k])
    }
}

/// Learned rates of all replicas.
#[derive(Debug, Clone)]
pub struct FleetRates {
    replicas: Vec<RateFit>,
    /// Coefficients that a replica without samples reads, scaled.
    default_rates: Vector,
}

/// Learned state of one replica, saved for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LearnedRates {
    coefficients: Vector,
    inverse: [Vector; DIMENSIONS],
    variance: f64,
    samples: u64,
}

#[derive(Debug, Clone)]
struct RateFit {
    theta: Vector,
    /// Inverse information matrix: covariance of `theta` ÷ `variance`.
    inverse: [Vector; DIMENSIONS],
    /// Variance of the residuals, ms².
    variance: f64,
    samples: u64,
}

impl FleetRates {
    /// Creates the rates of a fleet of `replicas`, with nothing learned.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas: vec![RateFit::new(PRIOR); replicas], default_rates: PRIOR }
    }

    /// Learns from a request that ended well. Implausible samples (not finite, an hour to the first token, a hundred
    /// million queued tokens) are ignored.
    pub fn learn(&mut self, replica: ReplicaId, sample: &RateSample) {
        let observed = sample.ttft_ms - sample.facts.rtt_ms;
        let x = sample.facts.vector();
        // Written so that NaN fails the comparison and is ignored as well.
        if !(observed.abs() <= MOST_MS && x.iter().all(|value| *value <= MOST_SCALED)) {
            return;
        }
        let newcomer = self.default_rates;
        let fit = &mut self.replicas[replica.index()];
        // The first sample starts from the fleet's median, not from the prior that the slot was created with.
        if fit.samples == 0 {
            *fit = RateFit::new(newcomer);
        }
        fit.learn(x, observed);
        // The median costs a sort over the fleet, so it is not renewed at every sample.
        if fit.samples.is_multiple_of(MIN_SAMPLES) {
            self.default_rates = median(&self.replicas);
        }
    }

    /// Fills `prefill_ms_per_token`, `queue_ms_per_token`, `decode_ms_per_request` and `intercept_ms`. Never unknown:
    /// before the first sample a replica reads a newcomer's rates.
    pub fn fill(&self, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let fit = &self.replicas[candidates.replica[row].index()];
            let theta = if fit.samples == 0 { self.default_rates } else { fit.theta };
            candidates.intercept_ms[row] = Some(theta[0] * SCALE[0]);
            candidates.prefill_ms_per_token[row] = Some(theta[1] * SCALE[1]);
            candidates.queue_ms_per_token[row] = Some(theta[2] * SCALE[2]);
            candidates.decode_ms_per_request[row] = Some(theta[3] * SCALE[3]);
        }
    }

    /// Fills `service_fixed_ms`, `service_ms_per_token` and `service_ms_per_decoding`, from rates that learn only from
    /// requests which waited behind none, each with a queue of 0.
    pub fn fill_service(&self, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let fit = &self.replicas[candidates.replica[row].index()];
            let theta = if fit.samples == 0 { self.default_rates } else { fit.theta };
            candidates.service_fixed_ms[row] = theta[0] * SCALE[0];
            candidates.service_ms_per_token[row] = theta[1] * SCALE[1];
            candidates.service_ms_per_decoding[row] = theta[3] * SCALE[3];
        }
    }

    /// Predicted TTFT, ms; `None` until the replica has [`MIN_SAMPLES`].
    #[must_use]
    pub fn predict_ms(&self, replica: ReplicaId, facts: &RateFacts) -> Option<f64> {
        let fit = &self.replicas[replica.index()];
        (fit.samples >= MIN_SAMPLES).then(|| facts.rtt_ms + dot(&fit.theta, &facts.vector()))
    }

    /// Learned state of a replica; `None` before its first sample.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> Option<LearnedRates> {
        let fit = self.replicas.get(replica.index()).filter(|fit| fit.samples > 0)?;
        let RateFit { theta, inverse, variance, samples } = *fit;
        Some(LearnedRates { coefficients: theta, inverse, variance, samples })
    }

    /// Resumes from the state that an earlier run learned.
    ///
    /// # Errors
    /// A figure is out of its range, or the fleet has no such replica; nothing changes then.
    pub fn restore(&mut self, replica: ReplicaId, learned: &LearnedRates) -> Result<(), &'static str> {
        let LearnedRates { coefficients, inverse, variance, samples } = *learned;
        let within = |k: usize| coefficients[k] >= LEAST[k] && coefficients[k] <= MOST_MS;
        if !(0..DIMENSIONS).all(within) {
            return Err("a rate is out of its range");
        }
        // The same bounds as after any sample, see `bound_inverse`; 0.1 % more, because text loses the last digits.
        let sound = (0..DIMENSIONS).all(|i| {
            let most = prior_inverse(i) * 1.001;
            inverse[i][i] > 0.0 && inverse[i][i] <= most && inverse[i].iter().all(|entry| entry.abs() <= MOST_SCALED)
        });
        if !(sound && variance > 0.0 && variance <= MOST_MS * MOST_MS) {
            return Err("the uncertainty of its rates is out of range");
        }
        if samples == 0 {
            return Err("it has no samples");
        }
        let fit = self.replicas.get_mut(replica.index()).ok_or("it belongs to a replica that does not exist")?;
        *fit = RateFit { theta: coefficients, inverse, variance, samples };
        self.default_rates = median(&self.replicas);
        Ok(())
    }

    /// Rows for the store: each learned rate with its 95 % interval. Replicas without samples have no rows.
    #[must_use]
    pub fn snapshot(&self, at: UnixMicros) -> Vec<RateRecord> {
        let mut rows = Vec::new();
        for (place, fit) in self.replicas.iter().enumerate().filter(|(_, fit)| fit.samples > 0) {
            let Ok(replica) = u16::try_from(place) else { break };
            for (k, kind) in KINDS.into_iter().enumerate() {
                let reach = NORMAL_95 * (fit.variance * fit.inverse[k][k]).sqrt();
                rows.push(RateRecord {
                    replica: ReplicaId(replica),
                    kind,
                    at,
                    value: fit.theta[k] * SCALE[k],
                    // A rate cannot be negative, so neither can the lower end of its interval.
                    low: (fit.theta[k] - reach).max(0.0) * SCALE[k],
                    high: (fit.theta[k] + reach) * SCALE[k],
                    samples: fit.samples,
                });
            }
        }
        rows
    }
}

impl RateFit {
    fn new(theta: Vector) -> Self {
        let inverse = std::array::from_fn(|i| std::array::from_fn(|k| if i == k { prior_inverse(k) } else { 0.0 }));
        Self { theta, inverse, variance: PRIOR_SIGMA_MS * PRIOR_SIGMA_MS, samples: 0 }
    }

    fn learn(&mut self, x: Vector, observed: f64) {
        let residual = observed - dot(&self.theta, &x);
        let sigma = self.variance.sqrt();
        // One step of recursive least squares; `gain_raw / denominator` is the gain vector.
        let gain_raw: Vector = std::array::from_fn(|i| dot(&self.inverse[i], &x));
        let leverage = dot(&gain_raw, &x).max(0.0);
        // While the coefficients are uncertain a large residual is no straggler, so the limit grows with the
        // uncertainty of this very prediction.
        let limit = CLIP_SIGMAS * sigma * (1.0 + leverage).sqrt();
        let clipped = residual.clamp(-limit, limit);
        // A clipped sample also counts less as information, else the fit would be more certain than its data allow.
        let trust = if residual == 0.0 { 1.0 } else { clipped / residual };
        let denominator = FORGETTING / trust + leverage;
        for i in 0..DIMENSIONS {
            // Projected onto the allowed range at every step, so that no prediction is ever based on a negative rate.
            self.theta[i] = (self.theta[i] + gain_raw[i] / denominator * residual).max(LEAST[i]);
        }
        for i in 0..DIMENSIONS {
            for k in 0..DIMENSIONS {
                self.inverse[i][k] = (self.inverse[i][k] - gain_raw[i] * gain_raw[k] / denominator) / FORGETTING;
            }
        }
        self.bound_inverse();
        self.samples += 1;
        #[expect(clippy::cast_precision_loss, reason = "the weight is at most 1 / (1 − forgetting)")]
        let weight = (self.samples as f64 + PRIOR_SIGMA_SAMPLES).min(1.0 / (1.0 - FORGETTING));
        // The leverage is the part of the residual's variance that comes from the coefficients' own uncertainty.
        self.variance += (clipped * clipped / (1.0 + leverage) - self.variance) / weight;
        // Never 0: `sigma` would be 0, and every later residual would be clipped to nothing.
        self.variance = self.variance.max(1e-6);
    }

    /// Bounds the uncertainty. Forgetting would let the variance of a coefficient without data (an idle replica never
    /// sees a queue) grow without limit, until one odd sample moved it anywhere; here it never exceeds that of the
    /// prior.
    ///
    /// Rounding can make the matrix lose its sign after extreme samples; then the coefficients stay and their
    /// uncertainty is reset.
    fn bound_inverse(&mut self) {
        if !(0..DIMENSIONS).all(|i| self.inverse[i][i] > 0.0 && self.inverse[i][i].is_finite()) {
            self.inverse = Self::new(self.theta).inverse;
        }
        for i in 0..DIMENSIONS {
            let most = prior_inverse(i);
            // Scaling row and column alike keeps the matrix symmetric and its correlations unchanged.
            if self.inverse[i][i] > most {
                let shrink = (most / self.inverse[i][i]).sqrt();
                for k in 0..DIMENSIONS {
                    self.inverse[i][k] *= shrink;
                    self.inverse[k][i] *= shrink;
                }
            }
        }
    }
}

fn prior_inverse(k: usize) -> f64 {
    (PRIOR_SD[k] / PRIOR_SIGMA_MS).powi(2)
}

fn dot(a: &Vector, b: &Vector) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Median of each coefficient over the replicas that have learned.
fn median(replicas: &[RateFit]) -> Vector {
    let learned: Vec<&RateFit> = replicas.iter().filter(|fit| fit.samples >= MIN_SAMPLES).collect();
    std::array::from_fn(|k| {
        let mut values: Vec<f64> = learned.iter().map(|fit| fit.theta[k]).collect();
        values.sort_by(f64::total_cmp);
        // The lower median, which is the value of a replica and not a mean of two.
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(PRIOR[k])
    })
}

#[cfg(test)]
mod tests;
