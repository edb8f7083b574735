//! KV cache tokens in use, by the engine's last report.
//!
//! Reads `kv_used_tokens`. Unknown where the engine does not report it or the last report is too old.

use crate::model::{Candidates, Needs, RequestView, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "kv-tokens",
    unit: Some(Unit::Tokens),
    summary: "KV cache tokens in use by the engine's last report",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(KvTokens)),
};

#[derive(Debug)]
struct KvTokens;

impl CostTerm for KvTokens {
    fn needs(&self) -> Needs {
        Needs::REPORT
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        out.copy_from_slice(&candidates.kv_used_tokens);
    }
}
