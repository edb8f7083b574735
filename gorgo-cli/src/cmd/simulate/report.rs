//! What a comparison prints: the table, the JSON, the CSV.

use std::fmt::Write as _;
use std::io::{self, Write};

use gorgo_core::trace::{ShapeCounts, Summary, mean};
use serde_json::{Map, Value, json};

use super::compare::{CLAIRVOYANT, Outcome, PolicyRuns};
use crate::report::json::{Comparison, PolicyEntry, number, standard_deviation};
use crate::report::number::{count, fraction, millis};
use crate::report::table::numbers;

/// How the runs were made.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) default: String,
    pub(super) trace: String,
    pub(super) scenario: Option<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) time_scale: f64,
    pub(super) max_in_flight: Option<usize>,
    pub(super) replicas: Vec<String>,
    pub(super) rows_without_blocks: usize,
    pub(super) counts: ShapeCounts,
    pub(super) max_input_tokens: Option<u32>,
    pub(super) max_output_tokens: Option<u32>,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Report {
    frame: Frame,
    rows: Vec<PolicyRuns>,
    /// Mean p95 TTFT of the best baseline, ms: of the policies compared that are not the default.
    best_ms: Option<f64>,
}

/// Takes one figure out of a run.
type Figure = fn(&Outcome) -> Option<f64>;

/// The figures of a row, as the CSV names them; the first nine stand in the table, too.
const FIGURES: [(&str, Figure); 13] = [
    ("ttft_p50_ms", |run| run.summary.all.ttft.p50),
    ("ttft_p95_ms", |run| run.summary.all.ttft.p95),
    ("ttft_p99_ms", |run| run.summary.all.ttft.p99),
    ("e2e_p50_ms", |run| run.summary.all.e2e.p50),
    ("e2e_p95_ms", |run| run.summary.all.e2e.p95),
    ("e2e_p99_ms", |run| run.summary.all.e2e.p99),
    ("itl_ms", |run| run.summary.all.itl.mean),
    ("hit_rate", |run| run.summary.hit_rate),
    ("busiest_share", |run| run.summary.busiest_share),
    ("hhi", |run| run.summary.hhi),
    ("slip_p99_ms", |run| run.summary.slip.late.p99),
    ("ttft_mean_ms", |run| run.summary.all.ttft.mean),
    ("bound_ttft_p95_ms", |run| run.bound_ttft_p95_ms),
];

/// Place of the p95 of TTFT in [`FIGURES`].
const TTFT_P95: usize = 1;
/// Place of its bound.
const BOUND: usize = 12;
/// Figures that stand in the table, and whether they are times.
const COLUMNS: [(usize, &str, bool); 10] = [
    (0, "TTFT p50", true),
    (1, "p95", true),
    (2, "p99", true),
    (3, "E2E p50", true),
    (4, "p95", true),
    (5, "p99", true),
    (6, "ITL", true),
    (7, "hit", false),
    (8, "busiest", false),
    (9, "HHI", false),
];

impl PolicyRuns {
    fn values(&self, figure: usize) -> Vec<f64> {
        self.runs.iter().filter_map(FIGURES[figure].1).collect()
    }

    fn mean(&self, figure: usize) -> Option<f64> {
        mean(&self.values(figure))
    }

    fn errors(&self) -> usize {
        self.runs.iter().map(|run| run.summary.errors).sum()
    }

    fn is_clairvoyant(&self) -> bool {
        &*self.policy == CLAIRVOYANT
    }
}

impl Report {
    pub(super) fn new(frame: Frame, rows: Vec<PolicyRuns>) -> Self {
        let baselines = rows.iter().filter(|row| !row.is_clairvoyant() && *row.policy != *frame.default);
        let best_ms = baselines.filter_map(|row| row.mean(TTFT_P95)).reduce(f64::min);
        Self { frame, rows, best_ms }
    }

    /// Mean p95 TTFT as a multiple of the best baseline's, and of the bound.
    fn ratios(&self, row: &PolicyRuns) -> (Option<f64>, Option<f64>) {
        let over = |least: Option<f64>| {
            row.mean(TTFT_P95).zip(least.filter(|least| *least > 0.0)).map(|(mine, least)| mine / least)
        };
        (over(self.best_ms), over(row.mean(BOUND)))
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let frame = &self.frame;
        let most =
            frame.max_in_flight.map_or_else(|| "any number".to_owned(), |most| format!("at most {}", count(most)));
        let requests = self.rows.first().and_then(|row| row.runs.first()).map_or(0, |run| run.summary.requests);
        let mut text = format!(
            "{}: {} requests, time scale {}, {most} in flight, {} seeds, {} replicas{}; ms, mean ± deviation over seeds\n",
            frame.trace,
            count(requests),
            frame.time_scale,
            frame.seeds.len(),
            frame.replicas.len(),
            frame.scenario.as_ref().map_or_else(String::new, |name| format!(", {name}")),
        );
        let header = ["policy"].into_iter().chain(COLUMNS.map(|(_, name, _)| name)).chain(["× best", "× bound"]);
        let mut table = numbers(&header.collect::<Vec<_>>());
        for row in &self.rows {
            let mark = if *row.policy == *frame.default { " *" } else { "" };
            let (best, bound) = self.ratios(row);
            let cells = COLUMNS.map(|(figure, _, is_time)| spread(&row.values(figure), is_time));
            let ratios = [best, bound].map(|ratio| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")));
            table.add_row([format!("{}{mark}", row.policy)].into_iter().chain(cells).chain(ratios));
        }
        let _ = writeln!(text, "{table}");
        text.push_str(
            "* default policy; × best: p95 TTFT over that of the best other policy; × bound: over that of no queue and \
             endless caches;\nclairvoyant: greedy, with true queues, caches and round trips\n",
        );
        for line in self.left_out().into_iter().chain(self.tuned()) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// One line for each run whose policy was tuned.
    fn tuned(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            for (seed, run) in self.frame.seeds.iter().zip(&row.runs) {
                let Some(tuning) = &run.tuning else { continue };
                let weights: Vec<String> =
                    tuning.weights.iter().map(|(term, weight)| format!("{term} = {weight:.4}")).collect();
                let mut line = format!(
                    "{}, seed {seed}: tuned, {} generations tried, {} accepted; at the end {} (generation {})",
                    row.policy,
                    count(tuning.tried()),
                    count(tuning.accepted),
                    weights.join(", "),
                    tuning.incumbent,
                );
                if !tuning.alarms.is_empty() {
                    let _ = write!(line, "; alarms: {}", tuning.alarms.join(", "));
                }
                lines.push(line);
            }
        }
        lines
    }

    /// One line for each thing that makes the runs less than the trace.
    fn left_out(&self) -> Vec<String> {
        let Frame { counts, max_input_tokens, max_output_tokens, rows_without_blocks, .. } = &self.frame;
        let limit = |limit: &Option<u32>| limit.map_or_else(String::new, count);
        let things = [
            (counts.dropped_over_input, format!("rows dropped: over {} input tokens", limit(max_input_tokens))),
            (counts.beyond_limit, "rows left out: --limit was reached".to_owned()),
            (counts.outputs_capped, format!("answers cut to {} tokens", limit(max_output_tokens))),
            (counts.spread, "rows spread: they shared a timestamp with an earlier row".to_owned()),
            (*rows_without_blocks, "rows without hash_ids: they share no prefix".to_owned()),
        ];
        let counted = things.into_iter().filter(|(many, _)| *many > 0);
        let mut lines: Vec<String> = counted.map(|(many, what)| format!("{} {what}", count(many))).collect();
        for row in self.rows.iter().filter(|row| row.errors() > 0) {
            lines.push(format!("{}: {} requests failed, over all seeds", row.policy, count(row.errors())));
        }
        for row in self.rows.iter().filter(|row| row.runs.iter().any(|run| !run.summary.slip.is_good())) {
            let late = row.runs.iter().filter_map(|run| run.summary.slip.late.p99).fold(0.0, f64::max);
            lines.push(format!(
                "{}: requests waited for a free slot (p99 of slip {} ms): its load was lighter than the trace's",
                row.policy,
                millis(Some(late))
            ));
        }
        lines
    }

    /// For a program.
    pub(super) fn json(&self) -> String {
        let (clairvoyant, policies): (Vec<_>, Vec<_>) = self.rows.iter().partition(|row| row.is_clairvoyant());
        let Frame { counts, .. } = &self.frame;
        let mut run = Map::new();
        let facts = [
            ("scenario", json!(self.frame.scenario)),
            ("time_scale", number(Some(self.frame.time_scale))),
            ("max_in_flight", json!(self.frame.max_in_flight)),
            ("max_input_tokens", json!(self.frame.max_input_tokens)),
            ("max_output_tokens", json!(self.frame.max_output_tokens)),
            ("replicas", json!(self.frame.replicas)),
            ("rows", json!(counts.rows)),
            ("dropped_over_input", json!(counts.dropped_over_input)),
            ("beyond_limit", json!(counts.beyond_limit)),
            ("outputs_capped", json!(counts.outputs_capped)),
            ("spread", json!(counts.spread)),
            ("rows_without_blocks", json!(self.frame.rows_without_blocks)),
            ("best_baseline_ttft_p95_ms", number(self.best_ms)),
        ];
        run.extend(facts.map(|(name, value)| (name.to_owned(), value)));
        // Not a policy: whoever looks for the best of `policies` must not find what nobody can run.
        let seer = clairvoyant.first().and_then(|row| serde_json::to_value(self.entry(row)).ok());
        run.insert(CLAIRVOYANT.to_owned(), seer.unwrap_or(Value::Null));
        let whole = Comparison {
            default: self.frame.default.clone(),
            trace: self.frame.trace.clone(),
            seeds: self.frame.seeds.clone(),
            policies: policies.into_iter().map(|row| self.entry(row)).collect(),
            run,
        };
        serde_json::to_string_pretty(&whole).map(|json| json + "\n").unwrap_or_default()
    }

    fn entry(&self, row: &PolicyRuns) -> PolicyEntry {
        let runs: Vec<&Summary> = row.runs.iter().map(|run| &run.summary).collect();
        let (best, bound) = self.ratios(row);
        let mut entry = PolicyEntry::of(&row.policy, &runs, &row.values(BOUND), best);
        entry.more.insert("ratio_bound_ttft_p95".to_owned(), number(bound));
        entry.more.insert("slip_p99_ms".to_owned(), number(row.mean(10)));
        let tuned: Vec<Value> =
            self.frame.seeds.iter().zip(&row.runs).filter_map(|(seed, run)| tuning(*seed, run)).collect();
        if !tuned.is_empty() {
            entry.more.insert("tuning".to_owned(), Value::Array(tuned));
        }
        entry
    }

    /// One line per policy and seed.
    pub(super) fn csv(&self, out: impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        write!(out, "policy,seed,requests,errors")?;
        for (name, _) in FIGURES {
            write!(out, ",{name}")?;
        }
        writeln!(out)?;
        for row in &self.rows {
            for (seed, run) in self.frame.seeds.iter().zip(&row.runs) {
                write!(out, "{},{seed},{},{}", row.policy, run.summary.requests, run.summary.errors)?;
                for (_, figure) in FIGURES {
                    match figure(run) {
                        Some(value) => write!(out, ",{value:.6}")?,
                        None => write!(out, ",")?,
                    }
                }
                writeln!(out)?;
            }
        }
        out.flush()
    }
}

/// What the tuner of a run did.
fn tuning(seed: u64, run: &Outcome) -> Option<Value> {
    let tuning = run.tuning.as_ref()?;
    let weights: Map<String, Value> =
        tuning.weights.iter().map(|(term, weight)| (term.clone(), number(Some(*weight)))).collect();
    Some(json!({
        "seed": seed, "generations": tuning.tried(), "accepted": tuning.accepted, "rejected": tuning.rejected,
        "cut": tuning.cut, "generation": tuning.incumbent, "weights": weights, "alarms": tuning.alarms,
        "said": tuning.said,
    }))
}

/// A mean and its deviation, short.
fn spread(values: &[f64], is_time: bool) -> String {
    let form = if is_time { millis } else { fraction };
    let middle = form(mean(values));
    match standard_deviation(values) {
        Some(deviation) if is_time => format!("{middle}±{}", millis(Some(deviation))),
        Some(deviation) => format!("{middle}±{deviation:.2}"),
        None => middle,
    }
}
