//! The comparison as text for people: the table, and notes on it.

use std::fmt::Write as _;

use super::{COLUMNS, E2E_P95, ReportHeader, SLIP, SimulationReport, TTFT_P95, spread};
use crate::cmd::lab::simulate::compare::PolicyRuns;
use crate::cmd::lab::simulate::sweep::touches;
use crate::report::number::{count, counted, millis};
use crate::report::table::numbers;

impl SimulationReport {
    /// The comparison as text for people.
    pub(in crate::cmd::lab::simulate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.headline());
        let (header, rows) = self.cells();
        let mut table = numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
        for row in rows {
            table.add_row(row);
        }
        let _ = writeln!(text, "{table}");
        text.push_str(
            "* default policy; × best: p95 TTFT over that of the best other policy; × bound: over that of no queue and \
             endless caches;\nclairvoyant: greedy, with true queues, caches and round trips\n",
        );
        text.push_str(&self.ablation_text());
        for line in self.notes() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// One line on the inputs of the runs.
    pub(super) fn headline(&self) -> String {
        let frame = &self.header;
        let most =
            frame.max_in_flight.map_or_else(|| "any number".to_owned(), |most| format!("at most {}", count(most)));
        // All runs have the same requests, so the first run's number is that of all.
        let requests = self.rows.first().and_then(|row| row.runs.first()).map_or(0, |run| run.summary.requests);
        let scales = self.scales();
        format!(
            "{}: {} requests, time scale {scales}, {most} in flight, {}, {}{}; ms, mean ± deviation over \
             seeds",
            frame.trace,
            count(requests),
            counted(frame.seeds.len(), "seed"),
            counted(frame.replicas.len(), "replica"),
            frame.scenario.as_ref().map_or_else(String::new, |name| format!(", {name}")),
        )
    }

    /// The time scales, each once.
    pub(super) fn scales(&self) -> String {
        let mut scales: Vec<String> = Vec::new();
        for place in &self.header.points {
            let scale = place.time_scale.to_string();
            if !scales.contains(&scale) {
                scales.push(scale);
            }
        }
        scales.join(", ")
    }

    /// Header and rows of the table.
    pub(super) fn cells(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let names = COLUMNS.map(|(_, name, _)| name);
        let mut header = vec!["policy".to_owned()];
        header.extend(self.point_header());
        header.extend(names.into_iter().chain(["× best", "× bound"]).map(str::to_owned));
        let rows = self.rows.iter().map(|row| {
            let mark = if *row.policy == *self.header.default { " *" } else { "" };
            let (best, bound) = self.ratios(row);
            let ratios = [best, bound].map(|ratio| ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}")));
            let mut cells = vec![format!("{}{mark}", row.policy)];
            cells.extend(self.point(row));
            cells.extend(COLUMNS.map(|(figure, _, is_time)| spread(&row.values(figure), is_time)));
            cells.extend(ratios);
            cells
        });
        (header, rows.collect())
    }

    /// Notes below the table.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = self.best_points();
        notes.extend(self.untouched());
        notes.extend(self.saturation_lines());
        notes.extend(self.left_out());
        notes.extend(self.tuned());
        notes
    }

    /// Best of several configurations.
    fn best_points(&self) -> Vec<String> {
        if self.header.axes.is_empty() {
            return Vec::new();
        }
        let line = |(figure, what): (usize, &str)| {
            // The clairvoyant cannot be configured, so it is no answer to which configuration is best.
            let rows = self.rows.iter().filter(|row| !row.is_clairvoyant());
            let rated = rows.filter_map(|row| row.mean(figure).map(|value| (row, value)));
            let (row, value) = rated.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
            Some(format!("lowest {what}: {} ms, {}", millis(Some(value)), self.named(row)))
        };
        [(TTFT_P95, "p95 of TTFT"), (E2E_P95, "p95 of E2E")].into_iter().filter_map(line).collect()
    }

    /// Name of a row: its policy, the swept values and the load.
    pub(super) fn named(&self, row: &PolicyRuns) -> String {
        let Some(place) = self.place(row) else { return row.policy.to_string() };
        let mut name = self.set(row);
        if self.has_loads() {
            let _ = write!(name, ", time scale {}", place.time_scale);
        }
        name
    }

    /// Name of a row: its policy and the swept values that affect it.
    pub(super) fn set(&self, row: &PolicyRuns) -> String {
        let mut name = row.policy.to_string();
        for (path, value) in self.swept(row) {
            if let Some(value) = value {
                let _ = write!(name, ", {path} = {value}");
            }
        }
        name
    }

    /// Notes on policies that a swept key does not affect, which were run once for all its values.
    fn untouched(&self) -> Vec<String> {
        let of = |path: &String| {
            let mut names: Vec<&str> = Vec::new();
            for row in self.rows.iter().filter(|row| !touches(path, &row.policy)) {
                if !names.contains(&&*row.policy) {
                    names.push(&row.policy);
                }
            }
            let line = format!("{path} is not a key of {}: run once for all its values", names.join(", "));
            (!names.is_empty()).then_some(line)
        };
        self.header.axes.iter().filter_map(of).collect()
    }

    /// One line for each run whose policy was tuned.
    fn tuned(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.rows {
            for (seed, run) in self.header.seeds.iter().zip(&row.runs) {
                let Some(tuning) = &run.tuning else { continue };
                let weights: Vec<String> =
                    tuning.weights.iter().map(|(term, weight)| format!("{term} = {weight:.4}")).collect();
                let mut line = format!(
                    "{}, seed {seed}: tuned, {} generations tried, {} accepted; at the end {} (generation {})",
                    self.named(row),
                    count(tuning.tried()),
                    count(tuning.accepted),
                    weights.join(", "),
                    tuning.incumbent,
                );
                // An alarm means that the weights should be looked at before they are used.
                if !tuning.alarms.is_empty() {
                    let _ = write!(line, "; alarms: {}", tuning.alarms.join(", "));
                }
                lines.push(line);
            }
        }
        lines
    }

    /// One line for each way in which the runs are less than the trace.
    fn left_out(&self) -> Vec<String> {
        let ReportHeader { max_input_tokens, max_output_tokens, rows_without_blocks, .. } = &self.header;
        let limit = |limit: &Option<u32>| limit.map_or_else(String::new, count);
        // The same at every load: the time scale only changes when rows are sent.
        let counts = self.header.points.first().map(|place| place.counts).unwrap_or_default();
        let things = [
            (counts.dropped_over_input, format!("rows dropped: over {} input tokens", limit(max_input_tokens))),
            (counts.beyond_limit, "rows left out: --limit was reached".to_owned()),
            (counts.outputs_capped, format!("answers cut to {} tokens", limit(max_output_tokens))),
            (counts.spread, "rows spread: they shared a timestamp with an earlier row".to_owned()),
            (*rows_without_blocks, "rows without hash_ids: they share no prefix".to_owned()),
        ];
        let counted = things.into_iter().filter(|(many, _)| *many > 0);
        let mut lines: Vec<String> = counted.map(|(many, what)| format!("{} {what}", count(many))).collect();
        // Failures and lateness qualify the row's latencies, so they are printed even if no file asks for them.
        for row in self.rows.iter().filter(|row| row.errors() > 0) {
            lines.push(format!("{}: {} requests failed, over all seeds", self.named(row), count(row.errors())));
        }
        for row in self.rows.iter().filter(|row| row.runs.iter().any(|run| !run.summary.slip.is_within_limit())) {
            let late = row.values(SLIP).into_iter().fold(0.0, f64::max);
            lines.push(format!(
                "{}: requests waited for a free slot (p99 of slip {} ms): its load was lighter than the trace's",
                self.named(row),
                millis(Some(late))
            ));
        }
        lines
    }
}
