//! A plugin as a term of a policy.

use std::sync::Arc;

use gorgo_routing::model::{Candidates, Needs, RequestView};
use gorgo_routing::score::CostTerm;

use super::instance::Judging;

/// A loaded scorer.
#[derive(Debug)]
pub(super) struct PluginTerm {
    pub(super) judging: Arc<Judging>,
    /// True if no decision may be made once the plugin is quarantined (`on_fault = "refuse"`).
    pub(super) indispensable: bool,
}

impl CostTerm for PluginTerm {
    fn needs(&self) -> Needs {
        self.judging.needs()
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        self.gives(request, candidates, out);
    }

    fn gives(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) -> bool {
        self.judging.judge(request, candidates, |values, known| {
            for ((signal, value), known) in out.iter_mut().zip(values).zip(known) {
                *signal = (*known != 0).then_some(*value);
            }
        })
    }

    fn refuses(&self) -> bool {
        self.indispensable && self.judging.watch.is_out()
    }
}
