//! A load relative to the others': `(x − least) / (most − least)`, 0 where all are equal.
//!
//! Reads the fact that `of` names. Normalised scores make unlike loads addable without units, and a difference of one
//! request counts as much as one of a hundred. Source: llm-d / Gateway API Inference Extension, `queue-scorer`.

use crate::model::{Candidates, ParamSpec, ParamType, RequestView, RequiredFacts, Unit};
use crate::score::{CostTerm, TermKind};

pub(super) const KIND: TermKind = TermKind {
    kind: "min-max",
    unit: Some(Unit::Share),
    summary: "a load relative to the least and the most loaded available replica, 0 to 1",
    spreads: true,
    params: &[ParamSpec {
        name: "of",
        ty: ParamType::Text { default: Some("waiting"), choices: &["waiting", "running", "inflight", "kv-tokens"] },
        unit: "",
        help: "the engine's waiting or running requests, this router's in flight, or KV tokens in use",
    }],
    build: |params, _| {
        Ok(Box::new(MinMaxTerm {
            load: match params.text("of") {
                Some("running") => MinMaxLoad::Running,
                Some("inflight") => MinMaxLoad::Inflight,
                Some("kv-tokens") => MinMaxLoad::KvTokens,
                _ => MinMaxLoad::Waiting,
            },
        }))
    },
};

#[derive(Debug, Clone, Copy)]
enum MinMaxLoad {
    Waiting,
    Running,
    Inflight,
    KvTokens,
}

#[derive(Debug)]
struct MinMaxTerm {
    load: MinMaxLoad,
}

impl MinMaxTerm {
    fn load(&self, candidates: &Candidates, row: usize) -> Option<f64> {
        match self.load {
            MinMaxLoad::Waiting => candidates.engine_waiting[row],
            MinMaxLoad::Running => candidates.engine_running[row],
            MinMaxLoad::Inflight => Some(f64::from(candidates.inflight[row])),
            MinMaxLoad::KvTokens => candidates.kv_used_tokens[row],
        }
    }
}

impl CostTerm for MinMaxTerm {
    fn needs(&self) -> RequiredFacts {
        if matches!(self.load, MinMaxLoad::Inflight) { RequiredFacts::LOAD } else { RequiredFacts::REPORT }
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
