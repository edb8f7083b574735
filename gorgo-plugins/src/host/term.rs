//! A plugin as a term of a policy.

use std::sync::Arc;

use gorgo_routing::model::{Candidates, RequestView, RequiredFacts};
use gorgo_routing::score::CostTerm;

use super::instance::JudgeInstance;

/// A loaded scorer.
#[derive(Debug)]
pub(super) struct PluginTerm {
    pub(super) judging: Arc<JudgeInstance>,
    /// True if no decision may be made once the plugin is quarantined (`on_fault = "refuse"`).
    pub(super) refuse_on_fault: bool,
}

impl CostTerm for PluginTerm {
    fn needs(&self) -> RequiredFacts {
        self.judging.needs()
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        self.try_signal(request, candidates, out);
    }

    fn try_signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) -> bool {
        self.judging.judge(request, candidates, |values, known| {
            for ((signal, value), known) in out.iter_mut().zip(values).zip(known) {
                *signal = (*known != 0).then_some(*value);
            }
        })
    }

    fn blocks_decision(&self) -> bool {
        self.refuse_on_fault && self.judging.watch.is_quarantined()
    }
}
