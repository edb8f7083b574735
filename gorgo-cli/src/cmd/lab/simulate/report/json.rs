//! The comparison as JSON.

use gorgo_lab::trace::RunSummary;
use serde_json::{Map, Value, json};

use super::{BOUND, SLIP, SimulationReport};
use crate::cmd::lab::simulate::compare::{CLAIRVOYANT, PolicyRuns, SimulationOutcome};
use crate::report::json::{ComparisonJson, PolicyEntry, SCHEMA_VERSION, number};

impl SimulationReport {
    /// The comparison as JSON text.
    pub(in crate::cmd::lab::simulate) fn json(&self) -> String {
        let (clairvoyant, policies): (Vec<_>, Vec<_>) = self.rows.iter().partition(|row| row.is_clairvoyant());
        let first = self.header.points.first();
        let counts = first.map(|place| place.counts).unwrap_or_default();
        // Figures of the whole run exist only if there is one configuration and load; otherwise each entry has its own.
        let is_one = self.header.points.len() == 1;
        let mut run = Map::new();
        let facts = [
            ("schema_version", json!(SCHEMA_VERSION)),
            ("gorgo", json!(env!("CARGO_PKG_VERSION"))),
            ("trace_sha256", json!(self.header.trace_sha256)),
            ("scenario", json!(self.header.scenario)),
            ("time_scale", number(first.filter(|_| !self.has_loads()).map(|place| place.time_scale))),
            ("max_in_flight", json!(self.header.max_in_flight)),
            ("max_input_tokens", json!(self.header.max_input_tokens)),
            ("max_output_tokens", json!(self.header.max_output_tokens)),
            ("replicas", json!(self.header.replicas)),
            ("rows", json!(counts.rows)),
            ("dropped_over_input", json!(counts.dropped_over_input)),
            ("beyond_limit", json!(counts.beyond_limit)),
            ("outputs_capped", json!(counts.outputs_capped)),
            ("spread", json!(counts.spread)),
            ("rows_without_blocks", json!(self.header.rows_without_blocks)),
            ("best_baseline_ttft_p95_ms", number(self.best_ms.first().copied().flatten().filter(|_| is_one))),
        ];
        run.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        if !self.header.axes.is_empty() {
            run.insert("sweep".to_owned(), json!(self.header.axes));
        }
        if self.has_loads() {
            run.insert("saturation".to_owned(), self.saturation_json());
        }
        if !self.header.parts.is_empty() {
            run.insert("ablation".to_owned(), self.ablation_json());
        }
        // Not among `policies`: a program that looks for the best of them must not find one that cannot be run.
        let mut seers = clairvoyant.iter().filter_map(|row| serde_json::to_value(self.entry(row)).ok());
        let seer = if is_one { seers.next().unwrap_or(Value::Null) } else { seers.collect() };
        run.insert(CLAIRVOYANT.to_owned(), seer);
        let whole = ComparisonJson {
            default: self.header.default.clone(),
            trace: self.header.trace.clone(),
            seeds: self.header.seeds.clone(),
            policies: policies.into_iter().map(|row| self.entry(row)).collect(),
            run,
        };
        serde_json::to_string_pretty(&whole).map(|json| json + "\n").unwrap_or_default()
    }

    fn entry(&self, row: &PolicyRuns) -> PolicyEntry {
        let runs: Vec<&RunSummary> = row.runs.iter().map(|run| &run.summary).collect();
        let (best, bound) = self.ratios(row);
        let mut entry = PolicyEntry::of(&row.policy, &runs, &row.values(BOUND), best);
        entry.more.insert("ratio_bound_ttft_p95".to_owned(), number(bound));
        entry.more.insert("slip_p99_ms".to_owned(), number(row.mean(SLIP)));
        if let Some(place) = self.place(row).filter(|_| self.header.points.len() > 1) {
            let pairs = self.swept(row).into_iter();
            let sweep: Map<String, Value> = pairs.map(|(path, value)| (path.to_owned(), json!(value))).collect();
            entry.more.insert("sweep".to_owned(), Value::Object(sweep));
            entry.more.insert("time_scale".to_owned(), number(Some(place.time_scale)));
            entry.more.insert("requests_per_s".to_owned(), number(place.requests_per_s));
        }
        let tuned: Vec<Value> =
            self.header.seeds.iter().zip(&row.runs).filter_map(|(seed, run)| tuning(*seed, run)).collect();
        if !tuned.is_empty() {
            entry.more.insert("tuning".to_owned(), Value::Array(tuned));
        }
        entry
    }
}

/// Result of a run's tuner.
fn tuning(seed: u64, run: &SimulationOutcome) -> Option<Value> {
    let tuning = run.tuning.as_ref()?;
    let weights: Map<String, Value> =
        tuning.weights.iter().map(|(term, weight)| (term.clone(), number(Some(*weight)))).collect();
    Some(json!({
        "seed": seed, "generations": tuning.tried(), "accepted": tuning.accepted, "rejected": tuning.rejected,
        "cut": tuning.cut, "generation": tuning.incumbent, "weights": weights, "alarms": tuning.alarms,
        "said": tuning.status,
    }))
}
