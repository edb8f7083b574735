//! Samples of one run → the numbers of its report. Pure arithmetic, shared by replay and simulator.
//!
//! Latencies are those of requests that succeeded; failures are counted by class. A quantile is the nearest rank,
//! `ceil(p·n)`: a value that was measured, never one between two.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Sample;
use gorgo_routing::model::{ErrorClass, quantile};

/// Prompts below this many tokens are reported apart: real traces are a third or more probes of a few tokens, which
/// set the median and say nothing of prefill.
pub const SHORT_INPUT_TOKENS: u32 = 100;

/// A 99th percentile of slip above this, ms, means that the trace was not replayed as recorded.
pub const SLIP_LIMIT_MS: f64 = 50.0;

/// A wait for a slot below this, ms, is scheduling noise.
const SLOT_WAIT_NOISE_MS: f64 = 1.0;

/// The mean; `None` of none.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    let count = u32::try_from(values.len()).ok().filter(|count| *count > 0)?;
    Some(values.iter().sum::<f64>() / f64::from(count))
}

/// Statistics of one latency, ms. All `None` where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Quantiles {
    /// Values behind it.
    pub count: usize,
    /// Mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

impl Quantiles {
    /// Of these values, in any order.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
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

/// The latencies of a set of requests, of those that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latencies {
    /// Requests in the set, failed ones too.
    pub requests: usize,
    /// Time to first content.
    pub ttft: Quantiles,
    /// Time to the last byte.
    pub e2e: Quantiles,
    /// Each request's mean gap between tokens.
    pub itl: Quantiles,
}

impl Latencies {
    /// Of these samples.
    #[must_use]
    pub fn of<'a>(samples: impl Iterator<Item = &'a Sample> + Clone) -> Self {
        let good = samples.clone().filter(|sample| sample.error.is_none());
        Self {
            requests: samples.count(),
            ttft: Quantiles::of(good.clone().filter_map(|sample| sample.ttft_ms)),
            e2e: Quantiles::of(good.clone().map(|sample| sample.e2e_ms)),
            itl: Quantiles::of(good.filter_map(|sample| sample.itl_ms)),
        }
    }
}

/// How many requests failed one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureCount {
    /// What went wrong.
    pub class: ErrorClass,
    /// With which response status; `None` where none came.
    pub status: Option<u16>,
    /// How often.
    pub requests: usize,
    /// What was said the first time.
    pub example: Option<Arc<str>>,
}

/// What one replica served.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaTraffic {
    /// Its name.
    pub name: Arc<str>,
    /// Requests sent there, failed ones too.
    pub requests: usize,
    /// Their share of all requests that name a replica, 0 to 1.
    pub share: f64,
    /// Cached share of their prompt tokens, where reported.
    pub hit_rate: Option<f64>,
    /// Their time to first content.
    pub ttft: Quantiles,
}

/// How late requests were sent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slip {
    /// Sent − scheduled, ms.
    pub late: Quantiles,
    /// Requests that had to wait for a slot under the limit of requests in flight.
    pub waited_for_slot: usize,
}

impl Slip {
    /// Whether the load was the trace's: 99 of 100 requests left within [`SLIP_LIMIT_MS`] of their time.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.late.p99.is_none_or(|p99| p99 <= SLIP_LIMIT_MS)
    }
}

/// One run in numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Summary {
    /// Requests sent.
    pub requests: usize,
    /// Of them failed.
    pub errors: usize,
    /// By class and status, most frequent first.
    pub failures: Vec<FailureCount>,
    /// Of all requests.
    pub all: Latencies,
    /// Of those with [`SHORT_INPUT_TOKENS`] or more in the trace.
    pub long: Latencies,
    /// Requests that succeeded without any content; they have no TTFT.
    pub without_content: usize,
    /// Prompt tokens the engines counted.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Cached ÷ prompt tokens over requests whose engine reported both; `None` where none did.
    pub hit_rate: Option<f64>,
    /// By replica, in order of name.
    pub replicas: Vec<ReplicaTraffic>,
    /// Largest share of requests at one replica; `None` where no response named one.
    pub busiest_share: Option<f64>,
    /// Herfindahl index of the shares: 1 ÷ replicas when even, 1 when one serves all.
    pub hhi: Option<f64>,
    /// From the first send to the last byte of all, ms.
    pub duration_ms: f64,
    /// How late requests were sent.
    pub slip: Slip,
}

impl Summary {
    /// Of these samples, in any order.
    #[must_use]
    pub fn of(samples: &[Sample]) -> Self {
        let long = samples.iter().filter(|sample| sample.input_tokens >= SHORT_INPUT_TOKENS);
        let first = samples.iter().map(|sample| sample.sent_ms).fold(f64::INFINITY, f64::min);
        let last = samples.iter().map(|sample| sample.sent_ms + sample.e2e_ms).fold(f64::NEG_INFINITY, f64::max);
        let replicas = by_replica(samples);
        let sum = |field: fn(&Sample) -> Option<u32>| samples.iter().filter_map(field).map(u64::from).sum();
        Self {
            requests: samples.len(),
            errors: samples.iter().filter(|sample| sample.error.is_some()).count(),
            failures: failures(samples),
            all: Latencies::of(samples.iter()),
            long: Latencies::of(long),
            // What came whole has content and no first token of its own.
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
            slip: Slip {
                late: Quantiles::of(samples.iter().map(Sample::slip_ms)),
                waited_for_slot: samples.iter().filter(|sample| sample.slot_wait_ms > SLOT_WAIT_NOISE_MS).count(),
            },
        }
    }
}

fn hit_rate<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<f64> {
    let (mut cached, mut prompt) = (0.0, 0.0);
    for sample in samples {
        if let (Some(hit), Some(all)) = (sample.usage.cached_tokens, sample.usage.prompt_tokens) {
            cached += f64::from(hit);
            prompt += f64::from(all);
        }
    }
    (prompt > 0.0).then(|| cached / prompt)
}

fn by_replica(samples: &[Sample]) -> Vec<ReplicaTraffic> {
    let mut groups: BTreeMap<&Arc<str>, Vec<&Sample>> = BTreeMap::new();
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
        share: count(served.len()) / named,
        hit_rate: hit_rate(served.iter().copied()),
        ttft: Latencies::of(served.iter().copied()).ttft,
    });
    traffic.collect()
}

fn failures(samples: &[Sample]) -> Vec<FailureCount> {
    let mut counts: Vec<FailureCount> = Vec::new();
    for sample in samples {
        let Some(class) = sample.error else { continue };
        match counts.iter_mut().find(|count| count.class == class && count.status == sample.status) {
            Some(count) => {
                count.requests += 1;
                if count.example.is_none() {
                    count.example.clone_from(&sample.detail);
                }
            }
            None => {
                counts.push(FailureCount { class, status: sample.status, requests: 1, example: sample.detail.clone() })
            }
        }
    }
    counts.sort_by_key(|count| (usize::MAX - count.requests, count.class.name(), count.status));
    counts
}

#[cfg(test)]
mod tests;
