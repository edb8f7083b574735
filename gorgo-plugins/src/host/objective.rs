//! A plugin as an objective: the requests of one arm → one number that an optimizer minimises.

use std::fmt;
use std::sync::Arc;

use gorgo_routing::model::PluginCounts;
use gorgo_routing::tune::cohort::{Statistic, StatisticValues};
use gorgo_routing::tune::{Objective, RequestColumns, RequestObjective};

use super::clock::monotonic_ns;
use super::columns::size;
use super::instance::PluginInstance;
use super::watch::PluginWatch;
use crate::abi;

/// A loaded objective, and the watch over it.
pub(super) struct ObjectiveInstance {
    instance: PluginInstance,
    measure: abi::MeasureFn,
    pub(super) watch: PluginWatch,
}

impl fmt::Debug for ObjectiveInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectiveInstance").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl ObjectiveInstance {
    pub(super) const fn new(instance: PluginInstance, measure: abi::MeasureFn, watch: PluginWatch) -> Self {
        Self { instance, measure, watch }
    }

    /// Returns the number of these requests, in the plugin's unit; `None`, and a strike, if it has none.
    fn measure_requests(&self, requests: &RequestColumns) -> Option<f64> {
        // Without a number there is no verdict: a quarantined objective stops tuning, not routing.
        if self.watch.is_quarantined() {
            return None;
        }
        let began = self.watch.begin();
        let came = self.instance.measure(self.measure, &cohort(requests));
        self.watch.end(&began, came.as_ref().err());
        came.ok()
    }

    /// Mean time of `calls` calls on these requests, µs, which are not counted.
    pub(super) fn micros_per_call(&self, requests: &RequestColumns, calls: u32) -> f64 {
        let began = monotonic_ns();
        for _ in 0..calls {
            // Only the time matters here.
            let _ = self.instance.measure(self.measure, &cohort(requests));
        }
        #[expect(clippy::cast_precision_loss, reason = "a few seconds at most")]
        let spent_us = monotonic_ns().saturating_sub(began) as f64 / 1e3;
        spent_us / f64::from(calls.max(1))
    }

    pub(super) fn count(&self) -> PluginCounts {
        self.watch.count()
    }
}

/// The requests as the contract passes them. All columns of [`RequestColumns::of`] have the same length; if others differ, the
/// shortest counts, so that no plugin reads past the end of a column.
fn cohort(requests: &RequestColumns) -> abi::AbiCohort {
    let columns =
        [&requests.ttft_ms, &requests.e2e_ms, &requests.itl_ms, &requests.prompt_tokens, &requests.completion_tokens];
    abi::AbiCohort {
        struct_size: size::<abi::AbiCohort>(),
        reserved: 0,
        count: columns.iter().map(|column| column.len()).min().unwrap_or(0),
        ttft_ms: requests.ttft_ms.as_ptr(),
        e2e_ms: requests.e2e_ms.as_ptr(),
        itl_ms: requests.itl_ms.as_ptr(),
        prompt_tokens: requests.prompt_tokens.as_ptr(),
        completion_tokens: requests.completion_tokens.as_ptr(),
        span_secs: requests.span_secs,
        failed: requests.failed,
    }
}

/// The objective of a tuner.
#[derive(Debug)]
pub(super) struct PluginObjective(pub(super) Arc<ObjectiveInstance>);

impl Objective for PluginObjective {
    fn statistics(&self) -> &[Statistic] {
        &[]
    }

    fn score(&self, _own: &StatisticValues, _reference: &StatisticValues) -> f64 {
        // The number comes from the requests themselves, see `of_requests`.
        f64::NAN
    }

    fn as_request_objective(&self) -> Option<&dyn RequestObjective> {
        Some(self)
    }
}

impl RequestObjective for PluginObjective {
    fn measure(&self, requests: &RequestColumns) -> Option<f64> {
        self.0.measure_requests(requests)
    }
}
