//! No replica gets more than a share of the work of the recent past.
//!
//! Reads a share window (`feature::share`). Source: GORGO paper, reward hacking: with a queue weight near 0 everything
//! went to the nearest replica, whose TTFT looked best while its decoding slowed to a crawl. The share is that before
//! this request, so one request's tokens can exceed the limit. A fleet of one replica is never limited.

use super::{Constraint, ConstraintKind, ConstraintScope, capacity_share::capacity_shares, window};
use crate::model::{ParamSpec, ParamType, ParamValues, Replica, RequiredFacts, ShareWindow};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "concentration",
    summary: "no replica gets more than a share of recent work",
    hard: false,
    params: &[
        ParamSpec {
            name: "max_share",
            ty: ParamType::Number { default: None, min: 0.001, max: 1.0 },
            unit: "share",
            help: "largest share per replica; this or `max_ratio`",
        },
        ParamSpec {
            name: "max_ratio",
            ty: ParamType::Number { default: None, min: 1.0, max: 1_000.0 },
            unit: "× share of capacity",
            help: "largest share per replica as a multiple of its share of the fleet's KV capacity",
        },
        window::basis_param("uncached-tokens"),
        window::SECONDS,
        window::DECISIONS,
        window::MIN_REQUESTS,
    ],
    build: |params, fleet| Ok(Box::new(Concentration::new(params, fleet)?)),
};

#[derive(Debug)]
struct Concentration {
    limit: ShareLimit,
    window: ShareWindow,
    min_requests: u64,
}

#[derive(Debug)]
enum ShareLimit {
    Share(f64),
    Ratio(f64),
}

impl Concentration {
    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn new(params: &ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let limit = match (params.number("max_share"), params.number("max_ratio")) {
            (Some(share), None) => ShareLimit::Share(share),
            (None, Some(ratio)) => ShareLimit::Ratio(ratio),
            (Some(_), Some(_)) => return Err("give `max_share` or `max_ratio`, not both".to_owned()),
            (None, None) => return Err("`max_share` or `max_ratio` is missing".to_owned()),
        };
        let replicas = fleet.len();
        if let ShareLimit::Share(share) = limit
            && replicas > 1
            && share * (replicas as f64) < 1.0
        {
            // The suggested share is rounded up, so that it passes this very check.
            return Err(format!(
                "`max_share` {share} × {replicas} replicas is below 1, so together they could not take all of the work; at \
                 least {:.3} is needed",
                (1_000.0 / replicas as f64).ceil() / 1_000.0
            ));
        }
        Ok(Self {
            limit,
            window: window::read(params)?,
            min_requests: params.integer("min_requests").and_then(|least| u64::try_from(least).ok()).unwrap_or(0),
        })
    }
}

impl Constraint for Concentration {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    fn window(&self) -> Option<ShareWindow> {
        Some(self.window)
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        // A single candidate has all of the work by definition.
        let known = window::amounts(scope, self.min_requests).filter(|_| scope.candidates.len() > 1);
        let capacity_share = capacity_shares(&scope.candidates.capacity_tokens);
        for row in scope.rows {
            let Some((amounts, total)) = known else {
                out[*row] = 0.0;
                continue;
            };
            let limit = match self.limit {
                ShareLimit::Share(share) => share,
                ShareLimit::Ratio(ratio) => (ratio * capacity_share(*row)).min(1.0),
            };
            out[*row] = (amounts[*row] / total / limit - 1.0).max(0.0);
        }
    }
}
