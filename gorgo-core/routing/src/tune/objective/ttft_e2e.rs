//! First token and whole answer together, with a price for harm: the shipped objective.
//!
//! ```text
//! (1 − alpha)·T/T0 + alpha·E/E0 + kappa·max(0, E/E0 − 1)² + eta·errors + chi·max(0, busiest − share_cap)
//! ```
//!
//! T and E are TTFT and E2E (adjusted for answer length) of an arm, T0 and E0 those of the incumbent's own blocks in
//! the same generation. `of` selects the statistic that T and E are. E2E is part of the score because p95 TTFT alone is
//! best where decode is overloaded (GORGO paper, reward hacking). The geometric mean resolves a change of 10 % with
//! some 1,000 requests per arm, the 95th percentile with some 10,000; the tail has its own guard,
//! `guard.max_e2e_p95_ratio`.

use super::{Objective, ObjectiveKind};
use crate::model::{ParamSpec, ParamType};
use crate::tune::cohort::{Statistic, StatisticValues};

const fn number(name: &'static str, default: f64, max: f64, help: &'static str) -> ParamSpec {
    ParamSpec { name, ty: ParamType::Number { default: Some(default), min: 0.0, max }, unit: "", help }
}

pub(super) const KIND: ObjectiveKind = ObjectiveKind {
    kind: "ttft-e2e",
    unit: "",
    summary: "time to first token and end-to-end time relative to the incumbent, with a price for harm",
    params: &[
        number("alpha", 0.3, 1.0, "weight of end-to-end time; the rest is time to first token"),
        number("kappa", 4.0, 1_000.0, "price of end-to-end time above the incumbent's, squared"),
        number("eta", 10.0, 1_000.0, "price of the share of failed requests"),
        number("chi", 5.0, 1_000.0, "price of the busiest replica's share above `share_cap`"),
        number("share_cap", 0.67, 1.0, "share of requests from which concentration costs"),
        ParamSpec {
            name: "of",
            ty: ParamType::Text { default: Some("geometric-mean"), choices: &["geometric-mean", "mean", "p95"] },
            unit: "",
            help: "statistic of the times that is compared",
        },
    ],
    build: |params| {
        // All parameters have defaults, so the fallback is never used.
        let get = |name| params.number(name).unwrap_or(0.0);
        let (ttft, e2e) = match params.text("of") {
            Some("mean") => (Statistic::TtftMean, Statistic::E2eMean),
            Some("p95") => (Statistic::TtftP95, Statistic::E2eP95),
            _ => (Statistic::TtftGeometric, Statistic::E2eGeometric),
        };
        Ok(Box::new(TtftE2e {
            statistics: [ttft, e2e, Statistic::ErrorShare, Statistic::ShareMax],
            alpha: get("alpha"),
            kappa: get("kappa"),
            eta: get("eta"),
            chi: get("chi"),
            share_cap: get("share_cap"),
        }))
    },
};

#[derive(Debug)]
struct TtftE2e {
    /// Statistics for TTFT, E2E, errors and concentration.
    statistics: [Statistic; 4],
    alpha: f64,
    kappa: f64,
    eta: f64,
    chi: f64,
    share_cap: f64,
}

impl Objective for TtftE2e {
    fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    fn score(&self, own: &StatisticValues, reference: &StatisticValues) -> f64 {
        let [ttft, e2e, errors, busiest] = self.statistics.map(|statistic| statistic as usize);
        // Without a reference time there is nothing to compare: neutral, neither better nor worse.
        let ratio = |of: usize| if reference[of] > 0.0 { own[of] / reference[of] } else { 1.0 };
        let (first, whole) = (ratio(ttft), ratio(e2e));
        (1.0 - self.alpha) * first
            + self.alpha * whole
            + self.kappa * (whole - 1.0).max(0.0).powi(2)
            + self.eta * own[errors]
            + self.chi * (own[busiest] - self.share_cap).max(0.0)
    }
}
