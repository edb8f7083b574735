//! A load relative to the others': `(x − least) / (most − least)`, 0 where all are equal.
//!
//! Reads the fact that `of` names. Normalised scores make unlike loads addable without units, and a difference of one
//! request counts as much as one of a hundred. Source: llm-d / Gateway API Inference Extension, `queue-scorer`.

use crate::model::{Candidates, Needs, Param, ParamType, RequestView, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "min-max",
    unit: Some(Unit::Share),
    summary: "a load relative to the least and the most loaded available replica, 0 to 1",
    spreads: true,
    params: &[Param {
        name: "of",
        ty: ParamType::Text { default: Some("waiting"), choices: &["waiting", "running", "inflight", "kv-tokens"] },
        unit: "",
        help: "the engine's waiting or running requests, this router's in flight, or KV tokens in use",
    }],
    build: |params, _| {
        Ok(Box::new(MinMax {
            of: match params.text("of") {
                Some("running") => Of::Running,
                Some("inflight") => Of::Inflight,
                Some("kv-tokens") => Of::KvTokens,
                _ => Of::Waiting,
            },
        }))
    },
};

#[derive(Debug, Clone, Copy)]
enum Of {
    Waiting,
    Running,
    Inflight,
    KvTokens,
}

#[derive(Debug)]
struct MinMax {
    of: Of,
}

impl MinMax {
    fn load(&self, candidates: &Candidates, row: usize) -> Option<f64> {
        match self.of {
            Of::Waiting => candidates.engine_waiting[row],
            Of::Running => candidates.engine_running[row],
            Of::Inflight => Some(f64::from(candidates.inflight[row])),
            Of::KvTokens => candidates.kv_used_tokens[row],
        }
    }
}

impl CostTerm for MinMax {
    fn needs(&self) -> Needs {
        if matches!(self.of, Of::Inflight) { Needs::LOAD } else { Needs::REPORT }
    }

    fn signal(&self, _request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for row in (0..candidates.len()).filter(|row| candidates.available[*row]) {
            if let Some(load) = self.load(candidates, row) {
                (least, most) = (least.min(load), most.max(load));
            }
        }
        for (row, signal) in out.iter_mut().enumerate() {
            // A replica that is not available may lie outside the range; it is never picked.
            *signal = self
                .load(candidates, row)
                .map(|load| if most > least { ((load - least) / (most - least)).clamp(0.0, 1.0) } else { 0.0 });
        }
    }
}
