//! KV cache tokens in use, by the engine's last report.
//!
//! Reads `kv_used_tokens`. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "kv-tokens",
    unit: Some(Unit::Tokens),
    summary: "KV cache tokens in use by the engine's last report",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(KvTokensTerm)),
};

#[derive(Debug)]
struct KvTokensTerm;

impl CostTerm for KvTokensTerm {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.kv_used_tokens);
    }
}
