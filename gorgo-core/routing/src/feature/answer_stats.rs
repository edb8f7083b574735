//! Length and speed of answers: their mean length (tokens, whole fleet) and, per replica, the time between two
//! tokens as `a + b·D`, ms, with D the requests in flight there when the request was dispatched.
//!
//! The mean is exponential, and each answer has a weight of 2 %. The line is fitted by least squares with forgetting
//! factor 0.998 per answer. Ten pseudo-samples pull it towards the prior, and neither coefficient becomes negative.

use serde::{Deserialize, Serialize};

use crate::model::{Candidates, ReplicaId};

/// Weight of a new answer in the mean length.
const LENGTH_WEIGHT: f64 = 0.02;
/// Mean length before any answer, tokens.
const PRIOR_TOKENS: f64 = 128.0;
/// Factor on a sample's weight with each later sample of the same replica.
const FORGETTING: f64 = 0.998;
/// Intercept and slope before any answer, ms: calibrated on two L40S.
const PRIOR_ALONE_MS: f64 = 7.7;
const PRIOR_PER_REQUEST_MS: f64 = 0.6;
/// Weight of the prior at each of the two points of `PRIOR_AT`, samples.
const PRIOR_SAMPLES: f64 = 5.0;
const PRIOR_AT: [f64; 2] = [0.0, 10.0];
/// Upper limit of a gap: this multiple of the predicted one, but at least 50 ms. One stalled stream must not distort
/// the fit.
const CLIP_RATIO: f64 = 5.0;
const CLIP_MS: f64 = 50.0;

/// Learned state of one replica's answers, saved for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LearnedAnswers {
    /// Mean length over the whole fleet, tokens.
    mean_tokens: f64,
    sums: GapSums,
}

/// Weighted sums of 1, D, D², gap and D·gap.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct GapSums {
    one: f64,
    d: f64,
    dd: f64,
    gap: f64,
    d_gap: f64,
}

impl GapSums {
    fn add(&mut self, weight: f64, d: f64, gap: f64) {
        self.one += weight;
        self.d += weight * d;
        self.dd += weight * d * d;
        self.gap += weight * gap;
        self.d_gap += weight * d * gap;
    }

    fn fade(&mut self, factor: f64) {
        for sum in [&mut self.one, &mut self.d, &mut self.dd, &mut self.gap, &mut self.d_gap] {
            *sum *= factor;
        }
    }

    /// Intercept `a` and slope `b` of the line, with the prior's samples included.
    fn line(mut self) -> (f64, f64) {
        // The prior is added at every reading, not once: stored sums fade, and the prior must not fade with them.
        for d in PRIOR_AT {
            self.add(PRIOR_SAMPLES, d, PRIOR_ALONE_MS + PRIOR_PER_REQUEST_MS * d);
        }
        // Positive, because the prior has samples at two different points.
        let spread = self.one * self.dd - self.d * self.d;
        // Both are clamped: a token gap that is negative, or that shrinks under load, is noise.
        let slope = ((self.one * self.d_gap - self.d * self.gap) / spread).max(0.0);
        (((self.gap - slope * self.d) / self.one).max(0.0), slope)
    }
}

/// Lengths and gaps of answers.
#[derive(Debug, Clone)]
pub struct AnswerStats {
    mean_tokens: f64,
    replicas: Vec<GapSums>,
}

impl AnswerStats {
    /// Creates the statistics of a fleet of `replicas`, without any answer.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self { mean_tokens: PRIOR_TOKENS, replicas: vec![GapSums::default(); replicas] }
    }

    /// Records an answer of `tokens` that a replica wrote in `decode_ms` after its first token, with `inflight`
    /// requests there at its dispatch. `decode_ms` is `None` when the time is unknown; then only the length counts.
    pub fn record(&mut self, replica: ReplicaId, inflight: u32, tokens: u32, decode_ms: Option<f64>) {
        self.mean_tokens += (f64::from(tokens) - self.mean_tokens) * LENGTH_WEIGHT;
        // One token has no gap, and would divide by zero below.
        let Some(decode_ms) = decode_ms.filter(|ms| tokens > 1 && ms.is_finite() && *ms >= 0.0) else { return };
        let gap = decode_ms / f64::from(tokens - 1);
        let sums = &mut self.replicas[replica.index()];
        let (alone, slope) = sums.line();
        let d = f64::from(inflight);
        // The limit comes from the line before this sample, so that an outlier cannot raise its own limit.
        let most = (CLIP_RATIO * (alone + slope * d)).max(CLIP_MS);
        sums.fade(FORGETTING);
        sums.add(1.0, d, gap.min(most));
    }

    /// Learned state of a replica, together with the fleet's mean length.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> Option<LearnedAnswers> {
        Some(LearnedAnswers { mean_tokens: self.mean_tokens, sums: *self.replicas.get(replica.index())? })
    }

    /// Resumes from the state that an earlier run learned.
    ///
    /// # Errors
    /// A figure is out of its range, or the fleet has no such replica; nothing changes then.
    pub fn restore(&mut self, replica: ReplicaId, learned: &LearnedAnswers) -> Result<(), &'static str> {
        let LearnedAnswers { mean_tokens, sums } = *learned;
        let all = [mean_tokens, sums.one, sums.d, sums.dd, sums.gap, sums.d_gap];
        // Weights fade, so no sum can become that large: a figure beyond this is from a damaged row.
        if !all.iter().all(|figure| (0.0..=1e12).contains(figure)) {
            return Err("a figure is out of its range");
        }
        *self.replicas.get_mut(replica.index()).ok_or("it belongs to a replica that does not exist")? = sums;
        self.mean_tokens = mean_tokens;
        Ok(())
    }

    /// Fills `answer_tokens`, `itl_alone_ms` and `itl_ms_per_request`.
    pub fn fill(&self, candidates: &mut Candidates) {
        candidates.answer_tokens = self.mean_tokens;
        for row in 0..candidates.len() {
            let (alone, slope) = self.replicas[candidates.replica[row].index()].line();
            (candidates.itl_alone_ms[row], candidates.itl_ms_per_request[row]) = (alone, slope);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn read(answers: &AnswerStats) -> (f64, f64, f64) {
        let mut candidates = Candidates::default();
        candidates.reset(1, 0);
        answers.fill(&mut candidates);
        (candidates.answer_tokens, candidates.itl_alone_ms[0], candidates.itl_ms_per_request[0])
    }

    #[test]
    fn the_prior_then_the_truth() {
        let mut answers = AnswerStats::new(1);
        let (tokens, alone, slope) = read(&answers);
        assert_eq!(tokens, 128.0);
        assert!((alone - 7.7).abs() < 1e-9 && (slope - 0.6).abs() < 1e-9);
        for number in 0..2_000_u32 {
            let inflight = number % 21;
            answers.record(R, inflight, 51, Some(50.0 * (12.0 + 1.5 * f64::from(inflight))));
        }
        let (tokens, alone, slope) = read(&answers);
        assert!((tokens - 51.0).abs() < 0.1);
        assert!((alone - 12.0).abs() < 0.5 && (slope - 1.5).abs() < 0.05, "{alone} + {slope}·D");
    }

    #[test]
    fn one_stalled_stream_teaches_little() {
        let mut answers = AnswerStats::new(1);
        answers.record(R, 5, 11, Some(600_000.0));
        let (_, alone, slope) = read(&answers);
        assert!(alone + slope * 5.0 < 20.0, "{alone} + {slope}·5");
    }

    #[test]
    fn never_negative_and_short_answers_have_no_gap() {
        let mut answers = AnswerStats::new(1);
        for _ in 0..500 {
            answers.record(R, 0, 11, Some(300.0));
            answers.record(R, 20, 11, Some(10.0));
            answers.record(R, 20, 1, Some(10.0));
            answers.record(R, 20, 0, None);
        }
        let (_, alone, slope) = read(&answers);
        assert!(alone >= 0.0 && slope == 0.0);
    }
}
