//! Share of the KV cache in use, 0 to 1, by the engine's last report.
//!
//! Reads `kv_used_share`. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "kv-usage",
    unit: Some(Unit::Share),
    summary: "share of the KV cache in use by the engine's last report, 0 to 1",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(KvUsageTerm)),
};

#[derive(Debug)]
struct KvUsageTerm;

impl CostTerm for KvUsageTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.kv_used_share);
    }
}
