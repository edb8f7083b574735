//! The comparison as an HTML page: plots first, the tables below.

use gorgo_lab::trace::mean;

use super::parts::ABLATION_NOTE;
use super::{BUSIEST, E2E_P95, HIT_RATE, SimulationReport, TTFT_P50, TTFT_P95, TTFT_P99};
use crate::cmd::lab::simulate::compare::PolicyRuns;
use crate::report::json::standard_deviation;
use crate::report::page::{HtmlPage, PagePlot, PageTable, file_name};
use crate::report::plot::{DotPlot, DotRow, LinePlot, LineSeries, MeanDeviation, ScatterPlot, ScatterPoint};

/// Most rows of a plot; if there are more, those with the lowest p95 of TTFT are shown.
const MOST_ROWS: usize = 60;

/// Rows of a policy over the varied load or key.
struct PolicyCurve<'a> {
    name: String,
    marked: bool,
    points: Vec<(f64, &'a PolicyRuns)>,
}

impl SimulationReport {
    /// The page; `command` is the command line in a form that can be shown to others.
    pub(in crate::cmd::lab::simulate) fn html(&self, command: &str) -> String {
        let trace = file_name(&self.header.trace);
        let (header, rows) = self.cells();
        let marked = self.rows.iter().position(|row| *row.policy == *self.header.default);
        let mut tables = vec![PageTable {
            title: "All figures".to_owned(),
            header,
            rows,
            marked: marked.filter(|_| self.header.points.len() == 1),
            note: "ms, mean ± deviation over seeds; hit: share of prompt tokens found cached; busiest: largest share of \
                   requests of a replica; HHI: concentration, 1 ÷ replicas when even; × best: p95 of TTFT over that of \
                   the best policy that is not the default (*); × bound: over no queue and endless caches; clairvoyant: \
                   greedy, with true queues, caches and round trips"
                .to_owned(),
        }];
        if let Some((header, rows)) = self.ablation_cells() {
            // Only after an ablation; otherwise there are no parts to show.
            let note = ABLATION_NOTE.to_owned();
            tables.push(PageTable { title: "Value of each part".to_owned(), header, rows, marked: None, note });
        }
        HtmlPage {
            title: format!("gorgo simulate: {trace}"),
            facts: self.facts(trace, command),
            plots: self.plots(),
            tables,
            notes: self.notes(),
        }
        .html()
    }

    fn facts(&self, trace: String, command: &str) -> Vec<(String, String)> {
        let frame = &self.header;
        let seeds: Vec<String> = frame.seeds.iter().map(u64::to_string).collect();
        let seeds = match (&seeds[..], frame.seeds.is_sorted_by(|one, next| next - one == 1)) {
            // A run of consecutive seeds is shown by its ends: there may be thousands.
            ([first, .., last], true) => format!("{first} to {last}"),
            _ => seeds.join(", "),
        };
        let counts = frame.points.first().map(|place| place.counts).unwrap_or_default();
        let requests = self.rows.first().and_then(|row| row.runs.first()).map_or(0, |run| run.summary.requests);
        let in_flight = frame.max_in_flight.map_or_else(|| "no limit".to_owned(), |most| format!("at most {most}"));
        let facts = [
            ("trace", trace),
            ("requests", format!("{requests} of {} rows", counts.rows)),
            ("time scale", self.scales()),
            ("seeds", seeds),
            ("in flight at the client", in_flight),
            ("replicas", frame.replicas.join(", ")),
            ("scenario", frame.scenario.as_deref().map_or_else(|| "none".to_owned(), file_name)),
            ("gorgo", env!("CARGO_PKG_VERSION").to_owned()),
            ("command", command.to_owned()),
        ];
        facts.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn plots(&self) -> Vec<PagePlot> {
        let mut shown: Vec<&PolicyRuns> = self.rows.iter().collect();
        let rank = |row: &PolicyRuns| row.mean(TTFT_P95).unwrap_or(f64::INFINITY);
        shown.sort_by(|one, other| rank(one).total_cmp(&rank(other)));
        // A sweep can have thousands of rows, and a plot of all of them is neither readable nor small.
        shown.truncate(MOST_ROWS);
        if self.has_loads() {
            // Load by load, the lightest first: policies are compared at the same load.
            let scale = |row: &PolicyRuns| self.place(row).map_or(0.0, |place| place.time_scale);
            shown.sort_by(|one, other| scale(other).total_cmp(&scale(one)));
        }
        let left_out = self.rows.len() - shown.len();
        let left_out =
            if left_out > 0 { format!(" {left_out} rows with a higher p95 are left out.") } else { String::new() };
        let band = if self.header.points.len() == 1 { ", the default policy on a band" } else { "" };
        let rows = |figures: &[usize]| -> Vec<DotRow> {
            let one = |row: &&PolicyRuns| DotRow {
                name: self.labelled(row),
                marked: *row.policy == *self.header.default && self.header.points.len() == 1,
                marks: figures.iter().map(|figure| estimate(row, *figure)).collect(),
            };
            shown.iter().map(one).collect()
        };
        let mut plots = self.curves();
        let latencies = DotPlot {
            legend: &["p50", "p95", "p99"],
            rows: &rows(&[TTFT_P50, TTFT_P95, TTFT_P99]),
            title: "TTFT, ms",
            shares: false,
        };
        plots.push(PagePlot {
            title: "Time to first token".to_owned(),
            note: format!(
                "Mean over seeds, whiskers one standard deviation; sorted by {}p95{band}.{left_out}",
                if self.has_loads() { "load, then " } else { "" }
            ),
            svg: latencies.svg(),
        });
        let dots: Vec<ScatterPoint> = shown
            .iter()
            .filter_map(|row| {
                let (x, y) = estimate(row, TTFT_P95).zip(estimate(row, E2E_P95))?;
                let marked = *row.policy == *self.header.default;
                Some(ScatterPoint { name: self.labelled(row), marked, x, y })
            })
            .collect();
        plots.push(PagePlot {
            title: "First token against whole answer".to_owned(),
            note: "A policy that pays for early first tokens with slow answers is at the top left.".to_owned(),
            svg: ScatterPlot { dots: &dots, x_title: "p95 of TTFT, ms", y_title: "p95 of E2E, ms" }.svg(),
        });
        let shares = DotPlot {
            legend: &["hit rate", "busiest share"],
            rows: &rows(&[HIT_RATE, BUSIEST]),
            title: "share",
            shares: true,
        };
        plots.push(PagePlot {
            title: "Cache hits and concentration".to_owned(),
            note: "Prompt tokens found cached, and requests at the busiest replica; in the order of the first plot."
                .to_owned(),
            svg: shares.svg(),
        });
        plots
    }

    /// Line plots over load, or over the one swept number.
    fn curves(&self) -> Vec<PagePlot> {
        let (x_title, what) = match &self.header.axes[..] {
            _ if self.has_loads() => ("requests per second offered".to_owned(), "load"),
            [path] => (path.clone(), path.as_str()),
            _ => return Vec::new(),
        };
        // Over the offered load, not the served one: a policy that falls behind must not move to the left.
        let x_of = |row: &PolicyRuns| {
            let swept = || self.swept(row).first().and_then(|(_, value)| value.as_ref()?.parse().ok());
            if self.has_loads() { self.place(row)?.requests_per_s } else { swept() }
        };
        let mut curves: Vec<PolicyCurve<'_>> = Vec::new();
        for row in &self.rows {
            let Some(x) = x_of(row) else { continue };
            let mut name = row.policy.to_string();
            if self.has_loads() {
                for (key, (_, value)) in self.point_header().iter().zip(self.swept(row)) {
                    if let Some(value) = value {
                        // One curve per configuration: points of different configurations must not be joined.
                        name = format!("{name} · {key}={}", rounded(value));
                    }
                }
            }
            let marked = *row.policy == *self.header.default;
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push((x, row)),
                None => curves.push(PolicyCurve { name, marked, points: vec![(x, row)] }),
            }
        }
        for curve in &mut curves {
            curve.points.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        }
        // A single point is no line.
        if curves.iter().all(|curve| curve.points.len() < 2) {
            return Vec::new();
        }
        let limit = format!("limit {} ms", crate::report::number::millis(Some(self.header.e2e_limit_ms)));
        let one = |(figure, name): (usize, &str)| {
            let line = |curve: &PolicyCurve<'_>| {
                let points = curve.points.iter().filter_map(|(x, row)| Some((*x, estimate(row, figure)?)));
                LineSeries { name: curve.name.clone(), marked: curve.marked, points: points.collect() }
            };
            let lines: Vec<LineSeries> = curves.iter().map(line).collect();
            let limit = (figure == E2E_P95 && self.has_loads()).then_some((self.header.e2e_limit_ms, limit.as_str()));
            let y_title = format!("p95 of {name}, ms");
            PagePlot {
                title: format!("{name} over {what}"),
                note: "Mean over seeds, whiskers one standard deviation.".to_owned(),
                svg: LinePlot { lines: &lines, x_title: &x_title, y_title: &y_title, limit }.svg(),
            }
        };
        [(E2E_P95, "E2E"), (TTFT_P95, "TTFT")].into_iter().map(one).collect()
    }

    /// Name of a row in a plot.
    fn labelled(&self, row: &PolicyRuns) -> String {
        let pairs = self.point_header().into_iter().zip(self.point(row));
        pairs.fold(row.policy.to_string(), |name, (key, value)| {
            // The time scale already identifies the load, and a dash has no value to show.
            if key == "req/s" || value == "–" { name } else { format!("{name} · {key}={}", rounded(&value)) }
        })
    }
}

/// A number with no more digits than a label needs; other texts unchanged.
fn rounded(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if value.chars().filter(char::is_ascii_digit).count() > 4 && number.is_finite() => {
            format!("{number:.2e}").parse::<f64>().map_or_else(|_| value.to_owned(), |short| short.to_string())
        }
        _ => value.to_owned(),
    }
}

fn estimate(row: &PolicyRuns, figure: usize) -> Option<MeanDeviation> {
    let values = row.values(figure);
    mean(&values).map(|mean| MeanDeviation { mean, deviation: standard_deviation(&values) })
}
