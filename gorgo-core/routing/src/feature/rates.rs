//! What a replica's time to first token is made of, learned per replica from what was observed there:
//!
//! `ttft − rtt ≈ intercept + P·uncached + Q·queued uncached + D·decoding`   (ms)
//!
//! by recursive least squares with forgetting 0.998 per sample; residuals are clipped at 3 standard deviations (one
//! straggler must not teach), coefficients keep their physical sign. Source: design study, "Learning"; GORGO paper,
//! `prefill_rate` and `queue_rate`.
//!
//! A replica never tried yet reads the median of those that have learned, else the priors below: a newcomer is
//! neither free nor forbidden.

use serde::{Deserialize, Serialize};

use crate::model::{At, Candidates, RateKind, RateRecord, ReplicaId};

/// Samples until a replica's prediction is believed, and until it may lend its rates to newcomers.
pub const MIN_SAMPLES: u64 = 30;
/// What a sample's weight falls to with each later sample of its replica.
const FORGETTING: f64 = 0.998;
/// Residuals beyond this many standard deviations count as this many.
const CLIP_SIGMAS: f64 = 3.0;
/// Standard deviation of TTFT around the model before any sample, ms, and how many samples that belief is worth.
const PRIOR_SIGMA_MS: f64 = 100.0;
const PRIOR_SIGMA_SAMPLES: f64 = 10.0;
/// 95 % of a normal distribution.
const NORMAL_95: f64 = 1.96;
/// Beyond these a sample is an error, not a fact: ms, and thousands of tokens (or requests).
const MOST_MS: f64 = 3_600_000.0;
const MOST_SCALED: f64 = 100_000.0;

const DIMENSIONS: usize = 4;
/// The coefficients, in the order of the vectors here.
const KINDS: [RateKind; DIMENSIONS] = [RateKind::Intercept, RateKind::Prefill, RateKind::Queue, RateKind::Decode];
/// Tokens enter in thousands, so that the four columns are of like size.
const SCALE: [f64; DIMENSIONS] = [1.0, 1e-3, 1e-3, 1.0];
/// Value before any sample, in scaled units: 50 ms (20 to 80 ms per prefill batch and 34 ms outside the GPU,
/// calibrated), 0.08 ms per token (0.069 to 0.083 measured on H100, 0.062 fitted on L40S), 0.005 ms per queued token
/// (measured), 1 ms per decoding request (0.12 to 0.6 ms per step, and a prefill spans several).
const PRIOR: [f64; DIMENSIONS] = [50.0, 80.0, 5.0, 1.0];
/// How far the truth may lie from it, one standard deviation, same units.
const PRIOR_SD: [f64; DIMENSIONS] = [200.0, 150.0, 50.0, 10.0];
/// Smallest value, same units. Prefill is never free: a cost of nothing would make it so.
const LEAST: [f64; DIMENSIONS] = [0.0, 0.1, 0.0, 0.0];

type Vector = [f64; DIMENSIONS];

/// One request that got a first token: the facts at its decision, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The facts at its decision, with the uncached tokens as the engine counted them where it said so.
    pub facts: RateFacts,
    /// Dispatch to first generated content, ms.
    pub ttft_ms: f64,
}

/// What the model predicts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateFacts {
    /// Round trip, ms.
    pub rtt_ms: f64,
    /// Prompt tokens to prefill.
    pub uncached_tokens: u32,
    /// Uncached tokens of requests there without a first token yet, this one not counted.
    pub queued_uncached_tokens: u64,
    /// Requests there past their first token.
    pub decoding: u32,
}

impl RateFacts {
    #[expect(clippy::cast_precision_loss, reason = "queued tokens are far below 2^53")]
    fn vector(&self) -> Vector {
        let raw = [1.0, f64::from(self.uncached_tokens), self.queued_uncached_tokens as f64, f64::from(self.decoding)];
        std::array::from_fn(|k| raw[k] * SCALE[k])
    }
}

/// The learned rates of all replicas.
#[derive(Debug, Clone)]
pub struct Rates {
    replicas: Vec<Fit>,
    /// What a replica without samples reads, scaled.
    newcomer: Vector,
}

/// What was learned of one replica, for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LearnedRates {
    coefficients: Vector,
    inverse: [Vector; DIMENSIONS],
    variance: f64,
    samples: u64,
}

#[derive(Debug, Clone)]
struct Fit {
    theta: Vector,
    /// Inverse information matrix: covariance of `theta` ÷ `variance`.
    inverse: [Vector; DIMENSIONS],
    /// Variance of the residuals, ms².
    variance: f64,
    samples: u64,
}

impl Rates {
    /// For a fleet of `replicas`, nothing learned.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { replicas: vec![Fit::new(PRIOR); replicas], newcomer: PRIOR }
    }

    /// Learns from a request that ended well. Numbers that cannot be (not finite, an hour to the first token, a
    /// hundred million queued tokens) teach nothing.
    pub fn learn(&mut self, replica: ReplicaId, sample: &Sample) {
        let observed = sample.ttft_ms - sample.facts.rtt_ms;
        let x = sample.facts.vector();
        if !(observed.abs() <= MOST_MS && x.iter().all(|value| *value <= MOST_SCALED)) {
            return;
        }
        let newcomer = self.newcomer;
        let fit = &mut self.replicas[replica.index()];
        if fit.samples == 0 {
            *fit = Fit::new(newcomer);
        }
        fit.learn(x, observed);
        if fit.samples.is_multiple_of(MIN_SAMPLES) {
            self.newcomer = median(&self.replicas);
        }
    }

    /// Fills `prefill_ms_per_token`, `queue_ms_per_token`, `decode_ms_per_request`, `intercept_ms`. Never unknown:
    /// before the first sample it is what a newcomer reads.
    pub fn read(&self, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let fit = &self.replicas[candidates.replica[row].index()];
            let theta = if fit.samples == 0 { self.newcomer } else { fit.theta };
            candidates.intercept_ms[row] = Some(theta[0] * SCALE[0]);
            candidates.prefill_ms_per_token[row] = Some(theta[1] * SCALE[1]);
            candidates.queue_ms_per_token[row] = Some(theta[2] * SCALE[2]);
            candidates.decode_ms_per_request[row] = Some(theta[3] * SCALE[3]);
        }
    }

    /// Fills `service_fixed_ms`, `service_ms_per_token`, `service_ms_per_decoding`: of rates that were only taught by
    /// requests which waited for nobody, each with a queue of 0.
    pub fn read_service(&self, candidates: &mut Candidates) {
        for row in 0..candidates.len() {
            let fit = &self.replicas[candidates.replica[row].index()];
            let theta = if fit.samples == 0 { self.newcomer } else { fit.theta };
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

    /// What was learned of a replica; `None` before its first sample.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> Option<LearnedRates> {
        let fit = self.replicas.get(replica.index()).filter(|fit| fit.samples > 0)?;
        let Fit { theta, inverse, variance, samples } = *fit;
        Some(LearnedRates { coefficients: theta, inverse, variance, samples })
    }

    /// Goes on from what an earlier run learned of a replica.
    ///
    /// # Errors
    /// What cannot be in it; nothing changes then.
    pub fn go_on_from(&mut self, replica: ReplicaId, learned: &LearnedRates) -> Result<(), &'static str> {
        let LearnedRates { coefficients, inverse, variance, samples } = *learned;
        let within = |k: usize| coefficients[k] >= LEAST[k] && coefficients[k] <= MOST_MS;
        if !(0..DIMENSIONS).all(within) {
            return Err("a rate is out of its range");
        }
        // As after any sample: see `bound_inverse`.
        let sound = (0..DIMENSIONS).all(|i| {
            let most = prior_inverse(i) * 1.001;
            inverse[i][i] > 0.0 && inverse[i][i] <= most && inverse[i].iter().all(|entry| entry.abs() <= MOST_SCALED)
        });
        if !(sound && variance > 0.0 && variance <= MOST_MS * MOST_MS) {
            return Err("its uncertainty is none");
        }
        if samples == 0 {
            return Err("it has no samples");
        }
        let fit = self.replicas.get_mut(replica.index()).ok_or("it is of a replica that is not there")?;
        *fit = Fit { theta: coefficients, inverse, variance, samples };
        self.newcomer = median(&self.replicas);
        Ok(())
    }

    /// Rows for the store: each learned rate with its 95 % interval. Replicas without samples have none.
    #[must_use]
    pub fn snapshot(&self, at: At) -> Vec<RateRecord> {
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
                    low: (fit.theta[k] - reach).max(0.0) * SCALE[k],
                    high: (fit.theta[k] + reach) * SCALE[k],
                    samples: fit.samples,
                });
            }
        }
        rows
    }
}

impl Fit {
    fn new(theta: Vector) -> Self {
        let inverse = std::array::from_fn(|i| std::array::from_fn(|k| if i == k { prior_inverse(k) } else { 0.0 }));
        Self { theta, inverse, variance: PRIOR_SIGMA_MS * PRIOR_SIGMA_MS, samples: 0 }
    }

    fn learn(&mut self, x: Vector, observed: f64) {
        let residual = observed - dot(&self.theta, &x);
        let sigma = self.variance.sqrt();
        let gain_raw: Vector = std::array::from_fn(|i| dot(&self.inverse[i], &x));
        let leverage = dot(&gain_raw, &x).max(0.0);
        // While the coefficients are uncertain a large residual is no straggler, so the limit grows with the
        // uncertainty of this very prediction.
        let limit = CLIP_SIGMAS * sigma * (1.0 + leverage).sqrt();
        let clipped = residual.clamp(-limit, limit);
        // A clipped sample also counts less as information, else the fit would think it knows what it was not told.
        let trust = if residual == 0.0 { 1.0 } else { clipped / residual };
        let denominator = FORGETTING / trust + leverage;
        for i in 0..DIMENSIONS {
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
        self.variance += (clipped * clipped / (1.0 + leverage) - self.variance) / weight;
        self.variance = self.variance.max(1e-6);
    }

    /// What no sample speaks of is forgotten without end (an idle replica never sees a queue): its uncertainty
    /// would grow until one odd sample threw it anywhere. It stays at what it was before any sample.
    ///
    /// Rounding can cost the matrix its sign after extreme samples; then the coefficients stay and their uncertainty
    /// begins anew.
    fn bound_inverse(&mut self) {
        if !(0..DIMENSIONS).all(|i| self.inverse[i][i] > 0.0 && self.inverse[i][i].is_finite()) {
            self.inverse = Self::new(self.theta).inverse;
        }
        for i in 0..DIMENSIONS {
            let most = prior_inverse(i);
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

/// Coefficient by coefficient, of the replicas that have learned.
fn median(replicas: &[Fit]) -> Vector {
    let learned: Vec<&Fit> = replicas.iter().filter(|fit| fit.samples >= MIN_SAMPLES).collect();
    std::array::from_fn(|k| {
        let mut values: Vec<f64> = learned.iter().map(|fit| fit.theta[k]).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(PRIOR[k])
    })
}

#[cfg(test)]
mod tests;
