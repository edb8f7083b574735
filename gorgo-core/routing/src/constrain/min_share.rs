//! Gives every replica at least a share of the work of the recent past: while some are below it, only these may be
//! picked.
//!
//! Reads a share window (`feature::share`). This keeps facts about every replica fresh, and gives a new replica its
//! part although it has no prefixes cached.

use super::{Constraint, ConstraintKind, ConstraintScope, window};
use crate::model::{ParamSpec, ParamType, ParamValues, Replica, RequiredFacts, ShareWindow};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "min-share",
    summary: "every replica gets at least a share of recent work",
    hard: false,
    params: &[
        ParamSpec {
            name: "min_share",
            ty: ParamType::Number { default: None, min: 0.001, max: 1.0 },
            unit: "share",
            help: "least share per replica; required",
        },
        window::basis_param("requests"),
        window::SECONDS,
        window::DECISIONS,
        window::MIN_REQUESTS,
    ],
    build: |params, fleet| Ok(Box::new(MinShare::new(params, fleet)?)),
};

#[derive(Debug)]
struct MinShare {
    least: f64,
    window: ShareWindow,
    min_requests: u64,
}

impl MinShare {
    #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
    fn new(params: &ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let Some(least) = params.number("min_share") else {
            return Err("`min_share` is missing".to_owned());
        };
        let replicas = fleet.len();
        if least * replicas as f64 > 1.0 {
            return Err(format!("`min_share` {least} × {replicas} replicas is above 1, so it can never be met"));
        }
        Ok(Self {
            least,
            window: window::read(params)?,
            min_requests: params.integer("min_requests").and_then(|least| u64::try_from(least).ok()).unwrap_or(0),
        })
    }
}

impl Constraint for MinShare {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    fn window(&self) -> Option<ShareWindow> {
        Some(self.window)
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        for row in scope.rows {
            out[*row] = 0.0;
        }
        let Some((amounts, total)) = window::amounts(scope, self.min_requests) else {
            return;
        };
        let starved = |row: usize| amounts[row] / total < self.least;
        // No replica is starved, so none has to wait.
        if !scope.rows.iter().any(|row| starved(*row)) {
            return;
        }
        for row in scope.rows.iter().filter(|row| !starved(**row)) {
            // At exactly the least share a replica is not starved, so it has to wait too: just above 0.
            out[*row] = (amounts[*row] / total / self.least - 1.0).max(f64::MIN_POSITIVE);
        }
    }
}
