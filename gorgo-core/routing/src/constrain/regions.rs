//! Allows only replicas of some regions: data residency. Never relaxed.

use super::{Constraint, ConstraintKind, ConstraintScope};
use crate::model::{ParamSpec, ParamType, ParamValues, Replica, RequiredFacts};

pub(super) const KIND: ConstraintKind = ConstraintKind {
    kind: "regions",
    summary: "only replicas of these regions; never relaxed",
    hard: true,
    params: &[ParamSpec {
        name: "allow",
        ty: ParamType::TextList,
        unit: "",
        help: "regions that may be used; required",
    }],
    build: |params, fleet| Ok(Box::new(Regions::new(params, fleet)?)),
};

#[derive(Debug)]
struct Regions {
    /// By replica id.
    allowed: Vec<bool>,
}

impl Regions {
    fn new(params: &ParamValues, fleet: &[Replica]) -> Result<Self, String> {
        let allow = params.texts("allow");
        if allow.is_empty() {
            return Err("`allow` must list at least one region".to_owned());
        }
        if let Some(stranger) = allow.iter().find(|name| !fleet.iter().any(|replica| *replica.region == ***name)) {
            let mut known: Vec<_> = fleet.iter().map(|replica| &*replica.region).collect();
            known.sort_unstable();
            known.dedup();
            return Err(format!(
                "`allow`: no enabled replica is in region \"{stranger}\"; known: {}",
                known.join(", ")
            ));
        }
        // Compared once, when the policy is built, so that a decision compares no texts.
        let mut allowed = vec![false; fleet.iter().map(|replica| replica.id.index() + 1).max().unwrap_or(0)];
        for replica in fleet {
            allowed[replica.id.index()] = allow.contains(&&*replica.region);
        }
        Ok(Self { allowed })
    }
}

impl Constraint for Regions {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::NONE
    }

    fn violation(&self, scope: &ConstraintScope<'_>, out: &mut [f64]) {
        for row in scope.rows {
            let replica = scope.candidates.replica[*row];
            // A replica that was not in the fleet when the policy was built is in no allowed region.
            let allowed = self.allowed.get(replica.index()).copied().unwrap_or(false);
            out[*row] = if allowed { 0.0 } else { f64::INFINITY };
        }
    }
}
