//! Output of a replay: the table, or the JSON.

mod page;
mod traffic;

use std::fmt::Write;

use gorgo_lab::trace::{ConfidenceInterval, RunIntervals, RunSummary, SHORT_INPUT_TOKENS, SLIP_LIMIT_MS, ShapeCounts};
use gorgo_store::FallbackCounts;
use serde_json::{Map, Value, json};

pub(super) use self::traffic::ReplayTraffic;
use super::record::{RouterHistory, RunProvenance};
use crate::report::json::{ComparisonJson, PolicyEntry};
use crate::report::number::{count, fraction, millis, percent};
use crate::report::{json, table};

/// Report on a replay that ended, or was stopped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplayReport {
    /// Name of the policy that was measured.
    pub(super) label: String,
    /// Path of the trace file as given.
    pub(super) trace: String,
    /// URL of the server as given.
    pub(super) to: String,
    /// Model asked for.
    pub(super) model: String,
    /// Seed of the prompts.
    pub(super) seed: u64,
    /// Factor on the trace's gaps.
    pub(super) time_scale: f64,
    /// Most requests in flight; `None` for no limit.
    pub(super) max_in_flight: Option<usize>,
    /// Tokens per block of the trace.
    pub(super) block_tokens: u32,
    /// Rows whose prompts share nothing, because the trace has no block ids for them.
    pub(super) rows_without_blocks: usize,
    /// Rows whose ids were cut or filled up.
    pub(super) rows_refitted: usize,
    /// Numbers of rows that were dropped, cut and moved.
    pub(super) counts: ShapeCounts,
    /// Longest prompt that was sent.
    pub(super) max_input_tokens: Option<u32>,
    /// Length to which answers were cut.
    pub(super) max_output_tokens: Option<u32>,
    /// Circumstances of the replay.
    pub(super) record: RunProvenance,
    /// Facts from the router's history, if it was given.
    pub(super) router: Option<RouterHistory>,
    /// Share of decisions that fell back above which the report warns.
    pub(super) max_fallback_share: f64,
    /// Facts about requests other than their latencies.
    pub(super) traffic: ReplayTraffic,
    /// 95 % intervals of the latencies.
    pub(super) intervals: RunIntervals,
    /// Requests not sent because the run was stopped.
    pub(super) unsent: usize,
    /// Requests in flight when it was aborted.
    pub(super) unfinished: usize,
    /// Measured latencies and failures.
    pub(super) summary: RunSummary,
}

impl ReplayReport {
    /// The report as text for people.
    pub(super) fn text(&self) -> String {
        let summary = &self.summary;
        // Short prompts are mostly probes of the traced service; they would hide the latencies of real ones.
        let long = format!("{SHORT_INPUT_TOKENS} tokens and more");
        let sets = [("all", &summary.all), (long.as_str(), &summary.long)];
        let mut lines = vec![
            format!("{}: {} to {}, model {}, seed {}", self.label, self.trace, self.to, self.model, self.seed),
            self.pace(),
            table::latencies(&sets).to_string(),
        ];
        if !summary.replicas.is_empty() {
            lines.push(table::replicas(&summary.replicas).to_string());
        }
        lines.push(format!(
            "hit rate {} of {} prompt tokens; busiest share {}; HHI {}",
            percent(summary.hit_rate),
            count(summary.prompt_tokens),
            percent(summary.busiest_share),
            fraction(summary.hhi),
        ));
        lines.extend(self.spread());
        lines.push(self.slip());
        lines.extend(self.fallbacks());
        lines.extend(self.left_out());
        lines.extend(self.errors());
        let mut text = lines.join("\n");
        text.push('\n');
        text
    }

    fn pace(&self) -> String {
        let summary = &self.summary;
        let seconds = summary.duration_ms / 1e3;
        let limit =
            self.max_in_flight.map_or_else(|| "any number".to_owned(), |most| format!("at most {}", count(most)));
        let mut line = format!("{} requests in {seconds:.1} s", count(summary.requests));
        // A single request has no duration to divide by.
        if seconds > 0.0 {
            let per_second = |of: f64| of / seconds;
            #[expect(clippy::cast_precision_loss, reason = "a figure for people, three digits of it shown")]
            let (requests, tokens) = (summary.requests as f64, summary.completion_tokens as f64);
            let _ = write!(line, " ({:.1} requests/s, {:.0} tokens/s out)", per_second(requests), per_second(tokens));
        }
        let _ = write!(line, ", time scale {}, {limit} in flight", self.time_scale);
        line
    }

    /// 95 % intervals of the figures that people compare.
    fn spread(&self) -> Option<String> {
        let ConfidenceInterval { low, high } = self.intervals.ttft.p50?;
        let shown = |name: &str, interval: Option<ConfidenceInterval>| {
            let ends =
                |ConfidenceInterval { low, high }| format!(", {name} {} to {}", millis(Some(low)), millis(Some(high)));
            interval.map_or_else(String::new, ends)
        };
        Some(format!(
            "95 % intervals, ms: TTFT p50 {} to {}{}{}{}",
            millis(Some(low)),
            millis(Some(high)),
            shown("p95", self.intervals.ttft.p95),
            shown("p99", self.intervals.ttft.p99),
            shown("E2E p95", self.intervals.e2e.p95),
        ))
    }

    /// Lines about decisions in which the router could not follow its policy.
    fn fallbacks(&self) -> Vec<String> {
        let Some(router) = &self.router else { return Vec::new() };
        let FallbackCounts { decisions, refused, relaxed, tried_again } = router.fallbacks;
        let run = router.run.as_ref().map_or_else(
            || "no run".to_owned(),
            |run| format!("run {}, policy {}", run.run, run.policy.as_deref().unwrap_or("unknown")),
        );
        let mut lines = vec![format!(
            "history: {run}; of {} decisions {} refused, {} relaxed, {} tried again",
            count(decisions),
            count(refused),
            count(relaxed),
            count(tried_again)
        )];
        // Other clients may add decisions to the range; fewer than the answers named means that it is another history.
        if decisions < router.named {
            let missing = router.named - decisions;
            lines.push(format!(
                "{} answers name decisions that are not in the history; check that --history belongs to this router",
                count(missing)
            ));
        }
        if let Some(share) = router.fallback_share().filter(|share| *share > self.max_fallback_share) {
            lines.push(format!(
                "NOT GOOD: {} of the decisions fell back, above {}: the result is not that of the policy alone",
                percent(Some(share)),
                percent(Some(self.max_fallback_share))
            ));
        }
        lines
    }

    fn slip(&self) -> String {
        let late = &self.summary.slip.late;
        let (p50, p99, max) = (millis(late.p50), millis(late.p99), millis(late.max));
        let mut line = format!("scheduling slip p50 {p50}, p99 {p99}, max {max} ms");
        if !self.summary.slip.is_within_limit() {
            // A client that falls behind lowers the load, and all latencies look better than they are.
            let cause = match self.summary.slip.waited_for_slot {
                0 => "this machine or its connections were too slow".to_owned(),
                waited => format!("{} requests waited for a free slot (--max-in-flight)", count(waited)),
            };
            let _ = write!(
                line,
                "\nNOT GOOD: load generator limited, p99 slip above {SLIP_LIMIT_MS} ms: {cause}; the load was lighter \
                 than the trace's"
            );
        }
        line
    }

    /// One line for each way in which the replay is less than the trace.
    fn left_out(&self) -> Vec<String> {
        let counts = &self.counts;
        let most = |limit: Option<u32>| limit.map_or_else(String::new, count);
        // A result that silently covers less than its trace could not be compared with another.
        let things = [
            (counts.dropped_over_input, format!("rows dropped: over {} input tokens", most(self.max_input_tokens))),
            (counts.beyond_limit, "rows left out: --limit was reached".to_owned()),
            (counts.outputs_capped, format!("answers cut to {} tokens", most(self.max_output_tokens))),
            (counts.spread, "rows spread: they shared a timestamp with an earlier row".to_owned()),
            (self.rows_without_blocks, "rows without hash_ids: they share no prefix".to_owned()),
            (self.rows_refitted, format!("rows refitted to {} tokens per hash id", self.block_tokens)),
            (self.traffic.retries, "requests sent again (--retries); their times count from the first send".to_owned()),
            (self.summary.without_content, "answers without content: no TTFT".to_owned()),
            (self.unsent, "requests not sent: stopped".to_owned()),
            (self.unfinished, "requests dropped in flight: stopped".to_owned()),
        ];
        things.into_iter().filter(|(rows, _)| *rows > 0).map(|(rows, what)| format!("{} {what}", count(rows))).collect()
    }

    fn errors(&self) -> Vec<String> {
        let summary = &self.summary;
        if summary.errors == 0 {
            return vec!["no errors".to_owned()];
        }
        let mut lines = vec![format!("{} of {} requests failed", count(summary.errors), count(summary.requests))];
        // By class and status, with one example each: thousands of requests tend to fail for one reason.
        for failure in &summary.failures {
            let status = failure.status.map_or_else(String::new, |status| format!(" {status}"));
            let example = failure.example.as_deref().filter(|text| !text.is_empty());
            let example = example.map_or_else(String::new, |text| format!(": {text}"));
            lines.push(format!("  {} × {}{status}{example}", count(failure.requests), failure.class.name()));
        }
        lines
    }

    /// The JSON as text.
    pub(super) fn json_text(&self) -> String {
        serde_json::to_string_pretty(&self.json()).map(|json| json + "\n").unwrap_or_default()
    }

    /// The report as JSON: the keys that `simulate` has too, and those that only a replay has.
    pub(super) fn json(&self) -> ComparisonJson {
        let summary = &self.summary;
        let mut entry = PolicyEntry::of(&self.label, &[summary], &[], None);
        let more = [
            ("long", json::latencies(&summary.long)),
            ("all", json::latencies(&summary.all)),
            ("slip", json::slip(&summary.slip)),
            ("failures", json::failures(&summary.failures)),
            ("replicas", json::replicas(&summary.replicas)),
            ("without_content", json!(summary.without_content)),
            ("prompt_tokens", json!(summary.prompt_tokens)),
            ("completion_tokens", json!(summary.completion_tokens)),
            ("duration_ms", json::number(Some(summary.duration_ms))),
            ("intervals", json::intervals(&self.intervals)),
            ("success_share", json::number(self.success_share())),
            ("requests_per_s", json::number(self.per_second(summary.requests))),
            ("input_tokens_per_s", json::number(self.per_second(summary.prompt_tokens))),
            ("output_tokens_per_s", json::number(self.per_second(summary.completion_tokens))),
        ];
        entry.more.extend(more.into_iter().chain(self.traffic.json()).map(|(name, value)| (name.to_owned(), value)));
        ComparisonJson {
            default: self.label.clone(),
            trace: self.trace.clone(),
            seeds: vec![self.seed],
            policies: vec![entry],
            run: self.run(),
        }
    }

    fn success_share(&self) -> Option<f64> {
        // Unsent and unfinished requests are in neither number: they are not the server's failures.
        let good = self.summary.requests.saturating_sub(self.summary.errors);
        let (good, all) = (u32::try_from(good).ok()?, u32::try_from(self.summary.requests).ok()?);
        (all > 0).then(|| f64::from(good) / f64::from(all))
    }

    fn per_second(&self, count: impl TryInto<u64>) -> Option<f64> {
        let seconds = self.summary.duration_ms / 1e3;
        #[expect(clippy::cast_precision_loss, reason = "a rate, six digits of it shown")]
        let count = count.try_into().ok()? as f64;
        (seconds > 0.0).then(|| count / seconds)
    }

    fn run(&self) -> Map<String, Value> {
        let counts = &self.counts;
        let members = [
            ("to", json!(self.to)),
            ("model", json!(self.model)),
            ("time_scale", json!(self.time_scale)),
            ("max_in_flight", json!(self.max_in_flight)),
            ("block_tokens", json!(self.block_tokens)),
            ("rows", json!(counts.rows)),
            ("dropped_over_input", json!(counts.dropped_over_input)),
            ("beyond_limit", json!(counts.beyond_limit)),
            ("outputs_capped", json!(counts.outputs_capped)),
            ("spread", json!(counts.spread)),
            ("rows_without_blocks", json!(self.rows_without_blocks)),
            ("rows_refitted", json!(self.rows_refitted)),
            ("unsent", json!(self.unsent)),
            ("unfinished", json!(self.unfinished)),
        ];
        let mut run = self.record.json();
        run.extend(members.map(|(name, value)| (name.to_owned(), value)));
        run.insert("router".to_owned(), self.router.as_ref().map_or(Value::Null, RouterHistory::json));
        run
    }
}

#[cfg(test)]
mod tests;
