//! JSON of `replay --json` and `simulate --json`: one entry per policy, each number with its standard deviation over
//! the seeds, null if unknown.

use gorgo_lab::trace::{
    ConfidenceInterval, FailureCount, LatencyIntervals, LatencyQuantiles, LatencySummary, ReplicaTraffic, RunIntervals,
    RunSummary, SendSlip, mean,
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

/// Version of the printed keys; raised when a key changes its meaning or is removed.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The whole answer.
#[derive(Debug, Serialize)]
pub(crate) struct ComparisonJson {
    /// The policy that serves by default.
    pub(crate) default: String,
    /// Path of the trace file as given.
    pub(crate) trace: String,
    /// Seeds of the runs.
    pub(crate) seeds: Vec<u64>,
    /// One entry per policy.
    pub(crate) policies: Vec<PolicyEntry>,
    /// Settings of the run, and what was left out of it.
    pub(crate) run: Map<String, Value>,
}

/// One policy in numbers: means over its runs.
#[derive(Debug)]
pub(crate) struct PolicyEntry {
    policy: String,
    statistics: Vec<(&'static str, Vec<f64>)>,
    ratio_ttft_p95: Option<f64>,
    /// Keys that a command adds to the common ones.
    pub(crate) more: Map<String, Value>,
}

impl PolicyEntry {
    /// An entry of these runs, one per seed. `bounds` are lower bounds of p95 TTFT, one per run if known;
    /// `ratio_ttft_p95` is the ratio to the best baseline's.
    pub(crate) fn of(policy: &str, runs: &[&RunSummary], bounds: &[f64], ratio_ttft_p95: Option<f64>) -> Self {
        // Runs without a value are left out, so a mean is over the runs that have one.
        let each = |of: &dyn Fn(&RunSummary) -> Option<f64>| runs.iter().filter_map(|run| of(run)).collect::<Vec<_>>();
        let statistics = vec![
            ("requests", each(&|run| whole(run.requests))),
            ("errors", each(&|run| whole(run.errors))),
            ("ttft_p50_ms", each(&|run| run.all.ttft.p50)),
            ("ttft_p95_ms", each(&|run| run.all.ttft.p95)),
            ("ttft_p99_ms", each(&|run| run.all.ttft.p99)),
            ("e2e_p50_ms", each(&|run| run.all.e2e.p50)),
            ("e2e_p95_ms", each(&|run| run.all.e2e.p95)),
            ("e2e_p99_ms", each(&|run| run.all.e2e.p99)),
            ("itl_ms", each(&|run| run.all.itl.mean)),
            ("hit_rate", each(&|run| run.hit_rate)),
            ("busiest_share", each(&|run| run.busiest_share)),
            ("hhi", each(&|run| run.hhi)),
            ("bound_ttft_p95_ms", bounds.to_vec()),
        ];
        Self { policy: policy.to_owned(), statistics, ratio_ttft_p95, more: Map::new() }
    }
}

impl Serialize for PolicyEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fixed = [("policy".to_owned(), Value::from(self.policy.as_str()))];
        // Serialized by hand, because every statistic becomes two keys at the top level of the entry.
        let numbers = self.statistics.iter().flat_map(|(name, values)| {
            let spread = standard_deviation(values);
            [((*name).to_owned(), number(mean(values))), (format!("{name}_sd"), number(spread))]
        });
        let ratio = [("ratio_ttft_p95".to_owned(), number(self.ratio_ttft_p95))];
        let more = self.more.iter().map(|(name, value)| (name.clone(), value.clone()));
        serializer.collect_map(fixed.into_iter().chain(numbers).chain(ratio).chain(more))
    }
}

/// Statistics of a set of values.
pub(crate) fn quantiles(of: &LatencyQuantiles) -> Value {
    json!({
        "count": of.count, "mean": number(of.mean), "p50": number(of.p50), "p95": number(of.p95),
        "p99": number(of.p99), "max": number(of.max),
    })
}

/// 95 % intervals: two numbers each, null where there are too few values.
pub(crate) fn intervals(of: &RunIntervals) -> Value {
    let ends = |one: Option<ConfidenceInterval>| {
        one.map(|ConfidenceInterval { low, high }| [number(Some(low)), number(Some(high))])
    };
    let all = |of: &LatencyIntervals| json!({ "mean": ends(of.mean), "p50": ends(of.p50), "p95": ends(of.p95), "p99": ends(of.p99) });
    json!({ "ttft_ms": all(&of.ttft), "e2e_ms": all(&of.e2e), "itl_ms": all(&of.itl) })
}

/// Latencies of a set of requests.
pub(crate) fn latencies(set: &LatencySummary) -> Value {
    json!({
        "requests": set.requests, "ttft_ms": quantiles(&set.ttft), "e2e_ms": quantiles(&set.e2e),
        "itl_ms": quantiles(&set.itl),
    })
}

/// Failures by class and status.
pub(crate) fn failures(counts: &[FailureCount]) -> Value {
    let one = |count: &FailureCount| {
        json!({
            "class": count.class.name(), "status": count.status, "requests": count.requests,
            "example": count.example.as_deref(),
        })
    };
    counts.iter().map(one).collect()
}

/// Traffic of each replica.
pub(crate) fn replicas(traffic: &[ReplicaTraffic]) -> Value {
    let one = |replica: &ReplicaTraffic| {
        json!({
            "replica": &*replica.name, "requests": replica.requests, "share": number(Some(replica.share)),
            "hit_rate": number(replica.hit_rate), "ttft_p50_ms": number(replica.ttft.p50),
            "ttft_p95_ms": number(replica.ttft.p95),
        })
    };
    traffic.iter().map(one).collect()
}

/// Lateness of requests.
pub(crate) fn slip(slip: &SendSlip) -> Value {
    json!({
        "p50_ms": number(slip.late.p50), "p99_ms": number(slip.late.p99), "max_ms": number(slip.late.max),
        "good": slip.is_within_limit(), "waited_for_slot": slip.waited_for_slot,
    })
}

/// A number rounded to six decimals, which is more than was measured; a whole number is written without decimals.
pub(crate) fn number(value: Option<f64>) -> Value {
    // JSON has no NaN or infinity.
    let Some(value) = value.filter(|value| value.is_finite()) else { return Value::Null };
    let rounded = (value * 1e6).round() / 1e6;
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    if rounded.fract() == 0.0 && rounded.abs() < 9.0e15 { Value::from(rounded as i64) } else { Value::from(rounded) }
}

fn whole(count: usize) -> Option<f64> {
    u32::try_from(count).ok().map(f64::from)
}

/// Sample standard deviation; `None` below two values.
pub(crate) fn standard_deviation(values: &[f64]) -> Option<f64> {
    let middle = mean(values)?;
    // n − 1, because the mean is estimated from the same values.
    let degrees = u32::try_from(values.len()).ok()?.checked_sub(1).filter(|degrees| *degrees > 0)?;
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    Some((squares / f64::from(degrees)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(requests: usize, p95: f64) -> RunSummary {
        let mut run = RunSummary { requests, hit_rate: Some(0.5), ..RunSummary::default() };
        run.all.ttft.p95 = Some(p95);
        run
    }

    #[test]
    fn an_entry_has_every_key_its_deviation_and_null_for_the_unknown() {
        let entry = PolicyEntry::of("gorgo", &[&run(10, 100.0), &run(10, 140.25)], &[], Some(0.9));
        insta::assert_snapshot!(serde_json::to_string_pretty(&entry).unwrap());
    }

    #[test]
    fn one_run_has_no_deviation() {
        let text = serde_json::to_string(&PolicyEntry::of("p", &[&run(3, 1.5)], &[1.0], None)).unwrap();
        let entry: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(entry["ttft_p95_ms"], json!(1.5));
        assert_eq!((&entry["ttft_p95_ms_sd"], &entry["requests"]), (&Value::Null, &json!(3)));
        assert_eq!((&entry["bound_ttft_p95_ms"], &entry["ratio_ttft_p95"]), (&json!(1), &Value::Null));
    }
}
