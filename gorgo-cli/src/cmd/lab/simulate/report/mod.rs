//! Output of a comparison: the table, the JSON, the CSV, the page.

mod csv;
mod json;
mod page;
mod parts;
mod saturation;
mod text;

use gorgo_lab::trace::{ShapeCounts, mean};

use super::compare::{PolicyRuns, SimulationOutcome};
use super::sweep::touches;
use crate::report::json::standard_deviation;
use crate::report::number::{fraction, millis};

/// Inputs of the runs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReportHeader {
    pub(super) default: String,
    pub(super) trace: String,
    pub(super) trace_sha256: String,
    pub(super) scenario: Option<String>,
    pub(super) seeds: Vec<u64>,
    pub(super) max_in_flight: Option<usize>,
    pub(super) replicas: Vec<String>,
    pub(super) rows_without_blocks: usize,
    pub(super) max_input_tokens: Option<u32>,
    pub(super) max_output_tokens: Option<u32>,
    /// Keys that were swept.
    pub(super) axes: Vec<String>,
    /// Configurations and loads, by position of their ground.
    pub(super) points: Vec<SweepPoint>,
    /// Limit on p95 of E2E for the sustained load, if several loads are compared; ms.
    pub(super) e2e_limit_ms: f64,
    /// Parts of the policy under ablation: kind and name of each.
    pub(super) parts: Vec<(&'static str, String)>,
}

/// A configuration at a load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SweepPoint {
    /// Values of the swept keys, in the order of [`ReportHeader::axes`].
    pub(super) values: Vec<String>,
    pub(super) time_scale: f64,
    /// Requests per second that the trace offers; `None` if it has no duration.
    pub(super) requests_per_s: Option<f64>,
    pub(super) counts: ShapeCounts,
}

/// A comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SimulationReport {
    header: ReportHeader,
    rows: Vec<PolicyRuns>,
    /// Mean p95 TTFT of the best baseline, by ground, ms. Baselines are the policies compared there other than the
    /// default.
    best_ms: Vec<Option<f64>>,
}

/// A figure of a run, as the CSV names it.
pub(super) struct CsvFigure {
    pub(super) name: &'static str,
    pub(super) read: fn(&SimulationOutcome) -> Option<f64>,
    /// Field of the figure, for a run that is read back from a file.
    pub(super) place: fn(&mut SimulationOutcome) -> &mut Option<f64>,
}

/// A row of [`FIGURES`].
macro_rules! figure {
    ($name:literal, $($field:ident).+) => {
        CsvFigure { name: $name, read: |run| run.$($field).+, place: |run| &mut run.$($field).+ }
    };
}

/// Figures of a row; the first ten are also in the table.
pub(super) const FIGURES: [CsvFigure; 13] = [
    figure!("ttft_p50_ms", summary.all.ttft.p50),
    figure!("ttft_p95_ms", summary.all.ttft.p95),
    figure!("ttft_p99_ms", summary.all.ttft.p99),
    figure!("e2e_p50_ms", summary.all.e2e.p50),
    figure!("e2e_p95_ms", summary.all.e2e.p95),
    figure!("e2e_p99_ms", summary.all.e2e.p99),
    figure!("itl_ms", summary.all.itl.mean),
    figure!("hit_rate", summary.hit_rate),
    figure!("busiest_share", summary.busiest_share),
    figure!("hhi", summary.hhi),
    figure!("slip_p99_ms", summary.slip.late.p99),
    figure!("ttft_mean_ms", summary.all.ttft.mean),
    figure!("bound_ttft_p95_ms", bound_ttft_p95_ms),
];

/// Positions in [`FIGURES`].
const TTFT_P50: usize = 0;
const TTFT_P95: usize = 1;
const TTFT_P99: usize = 2;
const E2E_P95: usize = 4;
const HIT_RATE: usize = 7;
const BUSIEST: usize = 8;
const SLIP: usize = 10;
const BOUND: usize = 12;
/// Figures in the table, with their headers, and true for times.
const COLUMNS: [(usize, &str, bool); 10] = [
    (TTFT_P50, "TTFT p50", true),
    (TTFT_P95, "p95", true),
    (TTFT_P99, "p99", true),
    (3, "E2E p50", true),
    (E2E_P95, "p95", true),
    (5, "p99", true),
    (6, "ITL", true),
    (HIT_RATE, "hit", false),
    (BUSIEST, "busiest", false),
    (9, "HHI", false),
];

impl PolicyRuns {
    fn values(&self, figure: usize) -> Vec<f64> {
        self.runs.iter().filter_map(FIGURES[figure].read).collect()
    }

    fn mean(&self, figure: usize) -> Option<f64> {
        mean(&self.values(figure))
    }

    fn errors(&self) -> usize {
        self.runs.iter().map(|run| run.summary.errors).sum()
    }

    fn is_clairvoyant(&self) -> bool {
        self.case.policy.is_none()
    }
}

impl SimulationReport {
    pub(super) fn new(frame: ReportHeader, rows: Vec<PolicyRuns>) -> Self {
        // A policy that a swept key does not affect was run once, and counts at every value of that key.
        let stands = |row: &PolicyRuns, ground: usize| {
            let Some((own, here)) = frame.points.get(row.case.setup).zip(frame.points.get(ground)) else {
                return false;
            };
            let mut values = frame.axes.iter().zip(own.values.iter().zip(&here.values));
            let same = values.all(|(path, (one, other))| one == other || !touches(path, &row.policy));
            // Bits, because these are copies of the same parsed numbers and not results of arithmetic.
            same && own.time_scale.to_bits() == here.time_scale.to_bits()
        };
        let best = |ground: usize| {
            let here = rows.iter().filter(|row| stands(row, ground));
            // The clairvoyant is no baseline, and the default is what the baselines are compared with.
            let baselines = here.filter(|row| !row.is_clairvoyant() && *row.policy != *frame.default);
            baselines.filter_map(|row| row.mean(TTFT_P95)).reduce(f64::min)
        };
        // Once per ground, because every row of a ground is compared with the same baseline.
        let best_ms = (0..frame.points.len()).map(best).collect();
        Self { header: frame, rows, best_ms }
    }

    /// Mean p95 TTFT as a multiple of the best baseline's, and of the bound.
    fn ratios(&self, row: &PolicyRuns) -> (Option<f64>, Option<f64>) {
        let over = |least: Option<f64>| {
            row.mean(TTFT_P95).zip(least.filter(|least| *least > 0.0)).map(|(mine, least)| mine / least)
        };
        let best_ms = self.best_ms.get(row.case.setup).copied().flatten();
        (over(best_ms), over(row.mean(BOUND)))
    }

    fn place(&self, row: &PolicyRuns) -> Option<&SweepPoint> {
        self.header.points.get(row.case.setup)
    }

    /// True if several loads are compared.
    fn has_loads(&self) -> bool {
        let first = self.header.points.first().map(|place| place.time_scale);
        self.header.points.iter().any(|place| Some(place.time_scale) != first)
    }

    /// Swept keys with their values in this row; `None` if the key belongs to another policy and has no effect here.
    fn swept(&self, row: &PolicyRuns) -> Vec<(&str, Option<&str>)> {
        let values = self.place(row).map(|place| place.values.as_slice()).unwrap_or_default();
        let all = self.header.axes.iter().zip(values);
        all.map(|(path, value)| (path.as_str(), touches(path, &row.policy).then_some(value.as_str()))).collect()
    }

    /// Cells that distinguish the configuration and load of this row: one for each of [`Self::point_header`].
    fn point(&self, row: &PolicyRuns) -> Vec<String> {
        let Some(place) = self.place(row) else { return Vec::new() };
        let mut cells: Vec<String> =
            self.swept(row).into_iter().map(|(_, value)| value.unwrap_or("–").to_owned()).collect();
        if self.has_loads() {
            cells.push(place.time_scale.to_string());
            cells.push(place.requests_per_s.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.2}")));
        }
        cells
    }

    fn point_header(&self) -> Vec<String> {
        let axes = &self.header.axes;
        // The last two parts of a path are enough for a column, unless two paths end alike.
        let short = |path: &str| {
            let cut = path.rmatch_indices('.').nth(1).map_or(0, |(at, _)| at + 1);
            path[cut..].to_owned()
        };
        let mut header: Vec<String> = axes.iter().map(|path| short(path)).collect();
        for place in 0..header.len() {
            // Two short names that are equal get their full paths.
            if axes.iter().filter(|path| short(path) == short(&axes[place])).count() > 1 {
                header[place].clone_from(&axes[place]);
            }
        }
        if self.has_loads() {
            header.extend(["scale", "req/s"].map(str::to_owned));
        }
        header
    }
}

/// A mean and its deviation, in short form.
fn spread(values: &[f64], is_time: bool) -> String {
    let form = if is_time { millis } else { fraction };
    let middle = form(mean(values));
    match standard_deviation(values) {
        Some(deviation) if is_time => format!("{middle}±{}", millis(Some(deviation))),
        Some(deviation) => format!("{middle}±{deviation:.2}"),
        None => middle,
    }
}
