//! Output of a search: the policy's table with the weights found, ready to paste, under a comment on their origin.

use std::fmt::Write as _;

use gorgo_routing::policy::Policy;

use super::search::{SearchOutcome, TuneFigures};
use crate::policy_table::table;
use crate::report::number::{count, fraction, millis};

/// A policy's table as TOML, and the origin of its weights.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TunedTable {
    comment: String,
    table: String,
}

impl TunedTable {
    /// A result for printing. `sources` are texts that may contain the policy: the configuration's file, a preset.
    pub(super) fn new(
        policy: &Policy,
        outcome: &SearchOutcome,
        trace: &str,
        seeds: &(Vec<u64>, Vec<u64>),
        sources: &[&str],
    ) -> Self {
        Self { comment: comment(policy, outcome, trace, seeds), table: table(policy, &outcome.found, sources) }
    }

    /// Origin of the weights, as TOML comments.
    pub(super) fn comment(&self) -> String {
        self.comment.clone()
    }

    /// Comment and table.
    pub(super) fn toml(&self) -> String {
        format!("{}{}", self.comment, self.table)
    }
}

fn comment(policy: &Policy, outcome: &SearchOutcome, trace: &str, seeds: &(Vec<u64>, Vec<u64>)) -> String {
    let mut text = String::new();
    let kinds = policy.tune.as_ref().map_or(("", ""), |plan| (plan.objective_kind, plan.optimizer.kind));
    let _ = writeln!(text, "# Weights of {} found offline by `gorgo tune` {}.", policy.name, env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "# Trace: {trace}");
    let _ = writeln!(
        text,
        "# Objective {}, optimizer {}: {} candidates tried, {} accepted, on seeds {}.",
        kinds.0,
        kinds.1,
        count(outcome.tried),
        count(outcome.accepted),
        listed(&seeds.0)
    );
    for (term, (start, found)) in policy.terms.iter().zip(outcome.start.iter().zip(&outcome.found)) {
        if term.weight.tune {
            let _ = writeln!(text, "# {}: {start} -> {found}", term.name);
        }
    }
    let each = [("on these seeds", &outcome.on_search_seeds), ("on seeds not seen", &outcome.on_check_seeds)];
    for (place, [start, found]) in each {
        let place =
            if place == "on seeds not seen" { format!("{place}, {}", listed(&seeds.1)) } else { place.to_owned() };
        let _ = writeln!(text, "# {place}: {} -> {}", shown(start), shown(found));
    }
    text
}

fn shown(figures: &TuneFigures) -> String {
    format!(
        "TTFT p95 {} ms, E2E p95 {} ms, busiest share {}",
        millis(Some(figures.ttft_p95_ms)),
        millis(Some(figures.e2e_p95_ms)),
        fraction(Some(figures.busiest_share))
    )
}

fn listed(seeds: &[u64]) -> String {
    match (seeds.first(), seeds.last()) {
        (Some(first), Some(last)) if first != last => format!("{first}..{last}"),
        (Some(only), _) => only.to_string(),
        _ => String::new(),
    }
}
