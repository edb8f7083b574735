//! Samples of one run → the numbers of its report. Pure arithmetic, shared by replay and the simulator.
//!
//! Latencies are those of successful requests; failures are counted by class. A quantile is the value at the nearest
//! rank, `ceil(p·n)`: always a measured value, never an interpolated one.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RequestSample;
use gorgo_routing::model::{ErrorClass, quantile};

/// Shortest prompt that counts as long, tokens; long ones are also reported separately. A third or more of the requests
/// of real traces are probes of a few tokens, which set the median and reveal nothing about prefill.
pub const SHORT_INPUT_TOKENS: u32 = 100;

/// Largest 99th percentile of slip, ms, at which the trace still counts as replayed as recorded.
pub const SLIP_LIMIT_MS: f64 = 50.0;

/// Longest wait for a slot that is treated as scheduling noise, ms.
const SLOT_WAIT_NOISE_MS: f64 = 1.0;

/// Returns the mean; `None` if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let count = u32::try_from(values.len()).ok().filter(|count| *count > 0)?;
    Some(values.iter().sum::<f64>() / f64::from(count))
}

/// Statistics of one latency, ms. All `None` if nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LatencyQuantiles {
    /// Number of values.
    pub count: usize,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest value.
    pub max: Option<f64>,
}

impl LatencyQuantiles {
    /// Computes the statistics of values in any order.
    #[must_use]
    pub fn from_values(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            count: sorted.len(),
            mean: mean(&sorted),
            p50: quantile(&sorted, 0.50),
            p95: quantile(&sorted, 0.95),
            p99: quantile(&sorted, 0.99),
            max: sorted.last().copied(),
        }
    }
}

/// Latencies of the successful requests of a set.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LatencySummary {
    /// Requests in the set, including failed ones.
    pub requests: usize,
    /// Time to the first content.
    pub ttft: LatencyQuantiles,
    /// Time to the last byte.
    pub e2e: LatencyQuantiles,
    /// Mean gap between tokens of each request.
    pub itl: LatencyQuantiles,
}

impl LatencySummary {
    /// Computes the latencies of these samples.
    #[must_use]
    pub fn from_samples<'a>(samples: impl Iterator<Item = &'a RequestSample> + Clone) -> Self {
        let good = samples.clone().filter(|sample| sample.error.is_none());
        Self {
            requests: samples.count(),
            ttft: LatencyQuantiles::from_values(good.clone().filter_map(|sample| sample.ttft_ms)),
            e2e: LatencyQuantiles::from_values(good.clone().map(|sample| sample.e2e_ms)),
            itl: LatencyQuantiles::from_values(good.filter_map(|sample| sample.itl_ms)),
        }
    }
}

/// Number of requests that failed in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureCount {
    /// Class of the failure.
    pub class: ErrorClass,
    /// Response status; `None` if no response came.
    pub status: Option<u16>,
    /// Number of requests.
    pub requests: usize,
    /// First error text that came with it.
    pub example: Option<Arc<str>>,
}

/// Requests that one replica served.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaTraffic {
    /// Name of the replica.
    pub name: Arc<str>,
    /// Requests sent there, including failed ones.
    pub requests: usize,
    /// Share of these among all requests that name a replica, 0 to 1.
    pub share: f64,
    /// Cached share of their prompt tokens, if reported.
    pub hit_rate: Option<f64>,
    /// Time to the first content of these requests.
    pub ttft: LatencyQuantiles,
}

/// Delay with which requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SendSlip {
    /// Sent − scheduled, ms.
    pub late: LatencyQuantiles,
    /// Requests that had to wait for a slot because of the limit on requests in flight.
    pub waited_for_slot: usize,
}

impl SendSlip {
    /// Reports whether the load was that of the trace: 99 of 100 requests left within [`SLIP_LIMIT_MS`] of their time.
    #[must_use]
    pub fn is_within_limit(&self) -> bool {
        self.late.p99.is_none_or(|p99| p99 <= SLIP_LIMIT_MS)
    }
}

/// Numbers of one run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunSummary {
    /// Requests sent.
    pub requests: usize,
    /// Of these, requests that failed.
    pub errors: usize,
    /// Failures by class and status, most frequent first.
    pub failures: Vec<FailureCount>,
    /// Latencies of all requests.
    pub all: LatencySummary,
    /// Latencies of the requests whose prompt has [`SHORT_INPUT_TOKENS`] or more in the trace.
    pub long: LatencySummary,
    /// Requests that succeeded without any content; these have no TTFT.
    pub without_content: usize,
    /// Prompt tokens as the engines counted them.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Cached ÷ prompt tokens over requests whose engine reported both; `None` if none did.
    pub hit_rate: Option<f64>,
    /// Requests by replica, in order of name.
    pub replicas: Vec<ReplicaTraffic>,
    /// Largest share of requests at one replica; `None` if no response named one.
    pub busiest_share: Option<f64>,
    /// Herfindahl index of the shares: 1 ÷ number of replicas if even, 1 if one replica serves everything.
    pub hhi: Option<f64>,
    /// Time from the first send to the last byte of any request, ms.
    pub duration_ms: f64,
    /// Delay with which requests were sent.
    pub slip: SendSlip,
}

impl RunSummary {
    /// Summarises samples in any order.
    #[must_use]
    pub fn from_samples(samples: &[RequestSample]) -> Self {
        let long = samples.iter().filter(|sample| sample.input_tokens >= SHORT_INPUT_TOKENS);
        let first = samples.iter().map(|sample| sample.sent_ms).fold(f64::INFINITY, f64::min);
        let last = samples.iter().map(|sample| sample.sent_ms + sample.e2e_ms).fold(f64::NEG_INFINITY, f64::max);
        let replicas = by_replica(samples);
        let sum = |field: fn(&RequestSample) -> Option<u32>| samples.iter().filter_map(field).map(u64::from).sum();
        Self {
            requests: samples.len(),
            errors: samples.iter().filter(|sample| sample.error.is_some()).count(),
            failures: failures(samples),
            all: LatencySummary::from_samples(samples.iter()),
            long: LatencySummary::from_samples(long),
            // An answer that came as a single body has content events but no TTFT; it is not without content.
            without_content: samples
                .iter()
                .filter(|one| one.error.is_none() && one.ttft_ms.is_none() && one.content_events == 0)
                .count(),
            prompt_tokens: sum(|sample| sample.usage.prompt_tokens),
            completion_tokens: sum(|sample| sample.usage.completion_tokens),
            hit_rate: hit_rate(samples.iter()),
            busiest_share: replicas.iter().map(|replica| replica.share).reduce(f64::max),
            hhi: (!replicas.is_empty()).then(|| replicas.iter().map(|replica| replica.share.powi(2)).sum()),
            replicas,
            duration_ms: (last - first).max(0.0),
            slip: SendSlip {
                late: LatencyQuantiles::from_values(samples.iter().map(RequestSample::slip_ms)),
                waited_for_slot: samples.iter().filter(|sample| sample.slot_wait_ms > SLOT_WAIT_NOISE_MS).count(),
            },
        }
    }
}

fn hit_rate<'a>(samples: impl Iterator<Item = &'a RequestSample>) -> Option<f64> {
    let (mut cached, mut prompt) = (0.0, 0.0);
    for sample in samples {
        // A request that reports only one of the two would shift the ratio.
        if let (Some(hit), Some(all)) = (sample.usage.cached_tokens, sample.usage.prompt_tokens) {
            cached += f64::from(hit);
            prompt += f64::from(all);
        }
    }
    (prompt > 0.0).then(|| cached / prompt)
}

fn by_replica(samples: &[RequestSample]) -> Vec<ReplicaTraffic> {
    let mut groups: BTreeMap<&Arc<str>, Vec<&RequestSample>> = BTreeMap::new();
    for sample in samples {
        if let Some(name) = &sample.replica {
            groups.entry(name).or_default().push(sample);
        }
    }
    let count = |requests: usize| u32::try_from(requests).map_or(f64::INFINITY, f64::from);
    let named = count(groups.values().map(Vec::len).sum());
    let traffic = groups.into_iter().map(|(name, served)| ReplicaTraffic {
        name: Arc::clone(name),
        requests: served.len(),
        // Requests that never reached a replica belong to no share.
        share: count(served.len()) / named,
        hit_rate: hit_rate(served.iter().copied()),
        ttft: LatencySummary::from_samples(served.iter().copied()).ttft,
    });
    traffic.collect()
}

fn failures(samples: &[RequestSample]) -> Vec<FailureCount> {
    let mut counts: Vec<FailureCount> = Vec::new();
    for sample in samples {
        let Some(class) = sample.error else { continue };
        match counts.iter_mut().find(|count| count.class == class && count.status == sample.status) {
            Some(count) => {
                count.requests += 1;
                // The first failure of a kind may lack an error text; take the first that exists.
                if count.example.is_none() {
                    count.example.clone_from(&sample.detail);
                }
            }
            None => {
                counts.push(FailureCount { class, status: sample.status, requests: 1, example: sample.detail.clone() })
            }
        }
    }
    // Most frequent first; name and status break ties, so that equal runs give equal reports.
    counts.sort_by_key(|count| (usize::MAX - count.requests, count.class.name(), count.status));
    counts
}

#[cfg(test)]
mod tests;
