//! Tables of latencies and of replicas.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use gorgo_lab::trace::{LatencyQuantiles, LatencySummary, ReplicaTraffic};

use super::number::{count, millis, percent};

/// Selects one latency of a set.
type LatencyGetter = fn(&LatencySummary) -> &LatencyQuantiles;

/// A table with one row per latency and set of requests, each set with its name.
pub(crate) fn latencies(sets: &[(&str, &LatencySummary)]) -> Table {
    let mut table = numbers(&["ms", "measured", "p50", "p95", "p99", "mean", "max"]);
    let kinds: [(&str, LatencyGetter); 3] =
        [("TTFT", |set| &set.ttft), ("E2E", |set| &set.e2e), ("ITL", |set| &set.itl)];
    for (kind, of) in kinds {
        for (name, set) in sets {
            let LatencyQuantiles { count: measured, mean, p50, p95, p99, max } = *of(set);
            let mut row = vec![Cell::new(format!("{kind}, {name}")), Cell::new(count(measured))];
            row.extend([p50, p95, p99, mean, max].map(|value| Cell::new(millis(value))));
            table.add_row(row);
        }
    }
    table
}

/// A table with one row per replica.
pub(crate) fn replicas(traffic: &[ReplicaTraffic]) -> Table {
    let mut table = numbers(&["replica", "requests", "share", "hit rate", "TTFT p50 ms", "TTFT p95 ms"]);
    for replica in traffic {
        table.add_row([
            replica.name.to_string(),
            count(replica.requests),
            percent(Some(replica.share)),
            percent(replica.hit_rate),
            millis(replica.ttft.p50),
            millis(replica.ttft.p95),
        ]);
    }
    table
}

/// A table whose first column is text and the others numbers. Its width follows its contents and not the terminal, so
/// that printed and piped output are the same.
pub(crate) fn numbers(header: &[&str]) -> Table {
    let mut table = Table::new();
    // Arranging is off: comfy-table would otherwise break lines at the width of the terminal.
    table.load_style(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
