//! Keeps the load of replicas together, by one of three measures.
//!
//! Reads `inflight` and the engine's running requests, whichever is more; or only the latter, as old as the report is;
//! or the load of `least-load`: running + waiting requests + KV tokens in use + this router's queued prompt tokens.
//! Sources: the `prefix-cache` baseline (`max_difference` 8, then `max_sigmas` 2) and `pack-load` (`max_mad` 2), both
//! of the GORGO reference code.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{Candidates, ParamSpec, ParamType, ParamValues, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "imbalance",
    summary: "excludes replicas that carry much more load than the others",
    hard: false,
    params: &[
        ParamSpec {
            name: "max_difference",
            ty: ParamType::Number { default: None, min: 0.0, max: 1e12 },
            unit: "what `of` counts",
            help: "when the most and the least loaded differ by more, only the least loaded remain",
        },
        ParamSpec {
            name: "max_sigmas",
            ty: ParamType::Number { default: None, min: 0.0, max: 100.0 },
            unit: "standard deviations",
            help: "exclude above mean + this many sample standard deviations",
        },
        ParamSpec {
            name: "max_mad",
            ty: ParamType::Number { default: None, min: 0.0, max: 100.0 },
            unit: "median absolute deviations",
            help: "exclude above median + this many median absolute deviations",
        },
        ParamSpec {
            name: "of",
            ty: ParamType::Text { default: Some("requests"), choices: &["requests", "reported", "load"] },
            unit: "",
            help: "running requests; these as last reported; requests + KV tokens + queued tokens as in `least-load`",
        },
    ],
    build: |params, _| Ok(Box::new(Imbalance::new(params)?)),
};

/// Floating-point slack of the limits, as in the GORGO reference code.
const SLACK: f64 = 1e-6;

#[derive(Debug)]
struct Imbalance {
    difference: Option<f64>,
    sigmas: Option<f64>,
    mad: Option<f64>,
    load: ImbalanceLoad,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImbalanceLoad {
    Requests,
    Reported,
    Load,
}

impl Imbalance {
    fn new(params: &ParamValues) -> Result<Self, String> {
        let imbalance = Self {
            difference: params.number("max_difference"),
            sigmas: params.number("max_sigmas"),
            mad: params.number("max_mad"),
            load: match params.text("of") {
                Some("load") => ImbalanceLoad::Load,
                Some("reported") => ImbalanceLoad::Reported,
                _ => ImbalanceLoad::Requests,
            },
        };
        if imbalance.difference.is_none() && imbalance.sigmas.is_none() && imbalance.mad.is_none() {
            return Err("one of `max_difference`, `max_sigmas`, `max_mad` is missing".to_owned());
        }
        Ok(imbalance)
    }

    /// The load of each of `rows`, in their order.
    #[expect(clippy::cast_precision_loss, reason = "queued tokens stay far below 2^53")]
    fn loads(&self, candidates: &Candidates, rows: &[usize]) -> Vec<f64> {
        let own = |row: &usize| f64::from(candidates.inflight[*row]);
        match self.load {
            ImbalanceLoad::Requests => {
                // This router's count is immediate but lacks the requests of others; the engine's has them but is
                // older.
                return rows.iter().map(|row| own(row).max(candidates.running_now(*row).unwrap_or(0.0))).collect();
            }
            ImbalanceLoad::Reported => {
                return rows.iter().map(|row| candidates.engine_running[*row].unwrap_or_else(|| own(row))).collect();
            }
            ImbalanceLoad::Load => {}
        }
        // A stale report does not mean an idle engine: an unknown value counts as the largest known one.
        let parts: [&dyn Fn(usize) -> Option<f64>; 3] =
            [&|row| candidates.running_now(row), &|row| candidates.engine_waiting[row], &|row| {
                candidates.kv_used_tokens[row]
            }];
        let mut loads: Vec<f64> = rows.iter().map(|row| candidates.queued_tokens[*row] as f64).collect();
        for part in parts {
            let worst = rows.iter().filter_map(|row| part(*row)).fold(0.0, f64::max);
            for (load, row) in loads.iter_mut().zip(rows) {
                *load += part(*row).unwrap_or(worst);
            }
        }
        loads
    }

    /// The largest load that is allowed.
    fn limit(&self, loads: &[f64]) -> f64 {
        let mut sorted = loads.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        // Several limits may be configured: the tightest one counts, and one that is absent changes nothing.
        let mut limit = f64::INFINITY;
        if let (Some(difference), Some(least), Some(most)) = (self.difference, sorted.first(), sorted.last())
            && most - least > difference
        {
            // Only the least loaded remain.
            limit = limit.min(*least);
        }
        if let Some(sigmas) = self.sigmas {
            let (mean, deviation) = mean_and_deviation(&sorted);
            limit = limit.min(mean + sigmas * deviation + SLACK);
        }
        if let Some(mads) = self.mad {
            let middle = median(&sorted);
            let mut distances: Vec<f64> = sorted.iter().map(|load| (load - middle).abs()).collect();
            distances.sort_unstable_by(f64::total_cmp);
            limit = limit.min(middle + mads * median(&distances) + SLACK);
        }
        limit
    }
}

/// Mean and sample standard deviation; summed in ascending order, so that the order of rows does not matter.
#[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
fn mean_and_deviation(sorted: &[f64]) -> (f64, f64) {
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = sorted.iter().map(|load| (load - mean).powi(2)).sum();
    (mean, if sorted.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// The middle of ascending numbers, or the mean of the middle two; 0 if there are none.
fn median(sorted: &[f64]) -> f64 {
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => sorted[middle],
        (_, middle) => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

impl Constraint for Imbalance {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::LOAD.union(RequiredFacts::REPORT)
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        let loads = self.loads(scope.candidates, scope.rows);
        let limit = self.limit(&loads);
        for (row, load) in scope.rows.iter().zip(loads) {
            // + 1 keeps the ratio finite for a limit of 0 requests and preserves the order of the loads.
            out[*row] = if load > limit { (load + 1.0) / (limit + 1.0) - 1.0 } else { 0.0 };
        }
    }
}
