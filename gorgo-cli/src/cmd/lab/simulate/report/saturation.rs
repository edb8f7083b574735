//! Load that a policy sustains: over several `--time-scale`, the highest load up to which p95 of E2E stays within the
//! limit, at that load and at every lighter one. Loads are those that the trace offers, so the client must not delay
//! requests: use `--max-in-flight 0`.

use serde_json::{Map, Value, json};

use super::{E2E_P95, SimulationReport};
use crate::cmd::lab::simulate::compare::PolicyRuns;
use crate::report::json::number;
use crate::report::number::millis;

/// Sustained load of one policy, in one configuration.
pub(super) struct SustainedLoad<'a> {
    /// Row at that load; `None` if the lightest load is already too much.
    row: Option<&'a PolicyRuns>,
    /// Any row of this policy and configuration.
    any: &'a PolicyRuns,
    /// True if no load was too much.
    all: bool,
}

impl SimulationReport {
    /// One entry per policy and configuration; none if there is only one load.
    pub(super) fn sustained(&self) -> Vec<SustainedLoad<'_>> {
        if !self.has_loads() {
            return Vec::new();
        }
        let key = |row: &PolicyRuns| self.set(row);
        let rate = |row: &PolicyRuns| self.place(row).and_then(|place| place.requests_per_s).unwrap_or(f64::INFINITY);
        let mut found: Vec<SustainedLoad<'_>> = Vec::new();
        for row in &self.rows {
            // One entry for all loads of a policy, at the place of its first row.
            if found.iter().any(|known| key(known.any) == key(row)) {
                continue;
            }
            let mut loads: Vec<&PolicyRuns> = self.rows.iter().filter(|other| key(other) == key(row)).collect();
            loads.sort_by(|one, other| rate(one).total_cmp(&rate(other)));
            let within = |row: &&PolicyRuns| row.mean(E2E_P95).is_some_and(|p95| p95 <= self.header.e2e_limit_ms);
            // Up to the first load that fails: a heavier one within the limit, by chance, is not sustained.
            let many = loads.iter().take_while(|row| within(row)).count();
            let last = many.checked_sub(1).and_then(|last| loads.get(last).copied());
            found.push(SustainedLoad { row: last, any: row, all: many == loads.len() });
        }
        found
    }

    pub(super) fn saturation_lines(&self) -> Vec<String> {
        let sustained = self.sustained();
        if sustained.is_empty() {
            return Vec::new();
        }
        let limit = millis(Some(self.header.e2e_limit_ms));
        let mut lines = vec![format!("load sustained with p95 of E2E up to {limit} ms, requests/s (time scale):")];
        for one in &sustained {
            let name = self.set(one.any);
            let place = one.row.and_then(|row| self.place(row));
            let load = place.map_or_else(
                || "none of the loads tried".to_owned(),
                |place| {
                    let rate = place.requests_per_s.map_or_else(|| "–".to_owned(), |rate| format!("{rate:.2}"));
                    let more = if one.all { ", and no load tried was too much" } else { "" };
                    format!("{rate} ({}){more}", place.time_scale)
                },
            );
            lines.push(format!("  {name}: {load}"));
        }
        if self.header.max_in_flight.is_some() {
            let note = "  the client delayed requests, which hides overload; use --max-in-flight 0 to send all of them";
            lines.push(note.to_owned());
        }
        lines
    }

    pub(super) fn saturation_json(&self) -> Value {
        let one = |one: &SustainedLoad<'_>| {
            let place = one.row.and_then(|row| self.place(row));
            let swept = self.swept(one.any).into_iter();
            let sweep: Map<String, Value> = swept.map(|(path, value)| (path.to_owned(), json!(value))).collect();
            json!({
                "policy": &*one.any.policy, "sweep": sweep, "e2e_limit_ms": number(Some(self.header.e2e_limit_ms)),
                "requests_per_s": number(place.and_then(|place| place.requests_per_s)),
                "time_scale": number(place.map(|place| place.time_scale)), "no_load_was_too_much": one.all,
            })
        };
        self.sustained().iter().map(one).collect()
    }
}
