//! Results of an ablation for each part: how often it decided, and how much worse runs are without it.

use gorgo_lab::trace::mean;
use serde_json::{Value, json};

use super::{E2E_P95, SimulationReport, TTFT_P50, TTFT_P95};
use crate::cmd::lab::simulate::compare::AblationMode;
use crate::report::json::{number, standard_deviation};
use crate::report::number::percent;
use crate::report::table::numbers;

/// Figures that are compared.
const COMPARED: [(usize, &str, &str); 3] =
    [(TTFT_P50, "TTFT p50", "ttft_p50"), (TTFT_P95, "TTFT p95", "ttft_p95"), (E2E_P95, "E2E p95", "e2e_p95")];

/// Results for one part.
struct PartEffect<'a> {
    what: &'static str,
    name: &'a str,
    /// Share of decisions that would have gone elsewhere without the part, by seed.
    decisive: Vec<f64>,
    /// Ratio of the run without the part to the run with it, by seed, for each of [`COMPARED`].
    ratios: Vec<Vec<f64>>,
}

impl SimulationReport {
    fn found(&self) -> Vec<PartEffect<'_>> {
        let whole = self.rows.iter().find(|row| row.case.ablation == AblationMode::Whole);
        let Some(whole) = whole else { return Vec::new() };
        let less = self.rows.iter().filter(|row| matches!(row.case.ablation, AblationMode::Without(_)));
        let mut found = Vec::new();
        for (place, ((what, name), less)) in self.header.parts.iter().zip(less).enumerate() {
            let ratio = |figure: usize| {
                // By seed, because two runs with the same seed have the same traffic: the ratio varies less than
                // either.
                let pairs = whole.values(figure).into_iter().zip(less.values(figure));
                pairs.filter(|(with, _)| *with > 0.0).map(|(with, without)| without / with).collect()
            };
            found.push(PartEffect {
                what,
                name,
                decisive: whole.runs.iter().filter_map(|run| run.decisive.get(place).copied()).collect(),
                ratios: COMPARED.map(|(figure, ..)| ratio(figure)).into(),
            });
        }
        found
    }

    /// Header and rows; `None` if there was no ablation.
    pub(super) fn ablation_cells(&self) -> Option<(Vec<String>, Vec<Vec<String>>)> {
        let found = self.found();
        if found.is_empty() {
            return None;
        }
        let header = ["without", "", "decided"].into_iter().chain(COMPARED.map(|(_, name, _)| name));
        let rows = found.iter().map(|one| {
            let mut cells = vec![one.name.to_owned(), one.what.to_owned(), percent(mean(&one.decisive))];
            cells.extend(one.ratios.iter().map(|ratios| match (mean(ratios), standard_deviation(ratios)) {
                (Some(middle), Some(deviation)) => format!("× {middle:.3}±{deviation:.3}"),
                (Some(middle), None) => format!("× {middle:.3}"),
                _ => "–".to_owned(),
            }));
            cells
        });
        Some((header.map(str::to_owned).collect(), rows.collect()))
    }

    pub(super) fn ablation_text(&self) -> String {
        let Some((header, rows)) = self.ablation_cells() else { return String::new() };
        let mut table = numbers(&header.iter().map(String::as_str).collect::<Vec<_>>());
        for row in rows {
            table.add_row(row);
        }
        format!("{table}\n{ABLATION_NOTE}\n")
    }

    pub(super) fn ablation_json(&self) -> Value {
        let one = |one: &PartEffect<'_>| {
            let mut value = json!({
                "name": one.name, "what": one.what,
                "decisive_share": number(mean(&one.decisive)),
                "decisive_share_sd": number(standard_deviation(&one.decisive)),
            });
            for ((_, _, key), ratios) in COMPARED.iter().zip(&one.ratios) {
                value[format!("{key}_without_over_with")] = number(mean(ratios));
                value[format!("{key}_without_over_with_sd")] = number(standard_deviation(ratios));
            }
            value
        };
        self.found().iter().map(one).collect()
    }
}

/// Explanation of the table.
pub(super) const ABLATION_NOTE: &str = "decided: share of decisions that would have gone elsewhere without it, on the \
                                        same facts; ×: whole runs without it over with it, per seed: above 1 it helps";
