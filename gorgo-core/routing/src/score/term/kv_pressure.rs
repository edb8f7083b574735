//! Pressure on the KV cache: `k / (1 − k)` of the share in use, which has no limit as the cache fills up.
//!
//! Reads `kv_used_share`; unknown where the engine does not report it. Source: SMG, `least_load`, 0.15 s × k/(1 − k).

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

/// Shares above this count as this: a full cache is expensive, not infinitely so.
const MOST: f64 = 0.999;

pub(super) const KIND: TermKind = TermKind {
    kind: "kv-pressure",
    unit: Some(Unit::One),
    summary: "KV cache in use ÷ KV cache free, by the engine's last report",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(KvPressureTerm)),
};

#[derive(Debug)]
struct KvPressureTerm;

impl CostTerm for KvPressureTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        for (signal, share) in out.iter_mut().zip(&candidates.kv_used_share) {
            *signal = share.map(|share| share.clamp(0.0, MOST)).map(|share| share / (1.0 - share));
        }
    }
}
