//! `gorgo report compare A.json B.json`: two runs side by side, policy by policy, with the ratio of each figure and a
//! verdict whether the difference is more than chance; and before that everything else in which the runs differ. Runs
//! on different fleets are only compared on request, because their difference is that of the fleets.

use std::fmt::Write as _;
use std::path::PathBuf;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::run::{FIGURES, FigureValue, RunFigure, RunFile, RunFileError};
use crate::exit::CommandExit;
use crate::report::csv::escaped;
use crate::report::json::number;
use crate::report::number::{count, fraction, millis};
use crate::report::table;

/// Arguments of `gorgo report compare`.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CompareArgs {
    /// Run to compare with
    a: PathBuf,
    /// Run to compare
    b: PathBuf,
    /// Policy of both, or one of each: NAME or NAME_IN_A:NAME_IN_B [default: all that both have, or the only one of
    /// each]
    #[arg(long, value_name = "NAME[:NAME]")]
    policy: Option<String>,
    /// Compare the runs although their fleets differ
    #[arg(long)]
    different_fleets: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Table)]
    format: OutputFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum OutputFormat {
    /// For a terminal
    Table,
    /// For a README or a report
    Markdown,
    /// For a spreadsheet
    Csv,
    /// For a program
    Json,
}

/// A figure of both runs.
struct ComparedFigure {
    policies: (String, String),
    figure: &'static RunFigure,
    a: Option<FigureValue>,
    b: Option<FigureValue>,
}

impl CompareArgs {
    /// Text to print, and the exit code.
    pub(super) fn compared(&self) -> Result<(String, CommandExit), RunFileError> {
        self.of(&RunFile::read(&self.a)?, &RunFile::read(&self.b)?)
    }

    fn of(&self, a: &RunFile, b: &RunFile) -> Result<(String, CommandExit), RunFileError> {
        let mut differences = Vec::new();
        // Both lists are made from the same table, so their entries correspond.
        for ((name, one), (_, other)) in a.conditions().into_iter().zip(b.conditions()) {
            if one != other {
                differences.push((name, one, other));
            }
        }
        let fleets = (a.fleet(), b.fleet());
        // A replay only knows the replicas that answered: a policy that avoids one still ran on the same fleet, so a
        // subset is no difference.
        let different_fleets = !fleets.0.is_subset(&fleets.1) && !fleets.1.is_subset(&fleets.0);
        if fleets.0 != fleets.1 {
            let what = if different_fleets { "fleet" } else { "replicas that answered" };
            differences.push((what, json!(fleets.0), json!(fleets.1)));
        }
        // Refused by default, because the ratio would look like a result about policies.
        if different_fleets && !self.different_fleets {
            let names =
                |names: &std::collections::BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
            let text = format!(
                "not compared: {} ran on {}, {} on {}; use --different-fleets to compare them anyway\n",
                a.name(),
                names(&fleets.0),
                b.name(),
                names(&fleets.1)
            );
            return Ok((text, CommandExit::Negative));
        }
        let mut rows = Vec::new();
        for (of_a, of_b) in self.pairs(a, b) {
            let (entry_a, entry_b) = (a.entry(&of_a)?, b.entry(&of_b)?);
            rows.extend(FIGURES.iter().map(|figure| ComparedFigure {
                policies: (of_a.clone(), of_b.clone()),
                figure,
                a: a.measured(entry_a, figure),
                b: b.measured(entry_b, figure),
            }));
        }
        // Figures that neither run measured would be empty lines.
        rows.retain(|row| row.a.is_some() || row.b.is_some());
        let text = match self.format {
            OutputFormat::Json => document(a, b, &differences, &rows),
            OutputFormat::Csv => csv(&rows),
            OutputFormat::Table | OutputFormat::Markdown => self.text(a, b, &differences, &rows),
        };
        Ok((text, if rows.is_empty() { CommandExit::Negative } else { CommandExit::Done }))
    }

    /// Pairs of policies to compare, of A and of B.
    fn pairs(&self, a: &RunFile, b: &RunFile) -> Vec<(String, String)> {
        let same = |name: &str| (name.to_owned(), name.to_owned());
        match (&self.policy, a.policies().as_slice(), b.policies().as_slice()) {
            (Some(name), _, _) => {
                vec![name.split_once(':').map_or_else(|| same(name), |(a, b)| (a.to_owned(), b.to_owned()))]
            }
            // A replay has one policy, named by its --label: two replays are compared whatever their labels.
            (None, [only_a], [only_b]) => vec![((*only_a).to_owned(), (*only_b).to_owned())],
            (None, of_a, of_b) => of_a.iter().filter(|name| of_b.contains(name)).map(|name| same(name)).collect(),
        }
    }

    fn text(&self, a: &RunFile, b: &RunFile, differences: &[(&str, Value, Value)], rows: &[ComparedFigure]) -> String {
        let mut out = format!("A: {}\nB: {}\n", a.name(), b.name());
        for (name, one, other) in differences {
            let _ = writeln!(out, "NOT THE SAME {name}: {one} and {other}");
        }
        let mut last = None;
        // A table per pair of policies, begun when the pair changes.
        let header = ["figure", "A", "B", "B / A", "more than chance"];
        let mut table = None::<Table>;
        for row in rows {
            if last != Some(&row.policies) {
                if let Some(table) = table.take() {
                    let _ = writeln!(out, "{table}");
                }
                let (of_a, of_b) = &row.policies;
                // In Markdown a table must follow an empty line.
                let name = if of_a == of_b { of_a.clone() } else { format!("{of_a} (A), {of_b} (B)") };
                let _ = writeln!(out, "\n{name}{}", if self.format == OutputFormat::Markdown { "\n" } else { "" });
                last = Some(&row.policies);
            }
            let table = table.get_or_insert_with(|| {
                let mut table = table::numbers(&header);
                if self.format == OutputFormat::Markdown {
                    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
                }
                table
            });
            table.add_row(row.cells());
        }
        if let Some(table) = table {
            let _ = writeln!(out, "{table}");
        } else {
            out.push_str("no policy is in both runs; choose one of each with --policy A:B\n");
        }
        out
    }
}

impl ComparedFigure {
    fn ratio(&self) -> Option<f64> {
        let (a, b) = (self.a?.value, self.b?.value);
        // No ratio to nothing: errors are often 0.
        (a != 0.0).then(|| b / a)
    }

    /// Verdict on the difference; `None` if there is too little information.
    fn verdict(&self) -> Option<&'static str> {
        let (a, b) = (self.a?, self.b?);
        Some(match (a.apart(b)?, (b.value > a.value) == self.figure.more_is_better) {
            (false, _) => "no",
            (true, true) => "yes, better",
            (true, false) => "yes, worse",
        })
    }

    fn cells(&self) -> [String; 5] {
        let shown = |one: Option<FigureValue>| match one.map(|one| one.value) {
            // Formats follow the kind of figure, which its key tells: times, counts, and shares for all others.
            Some(value) if self.figure.key.ends_with("_ms") => millis(Some(value)),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count; saturates")]
            Some(value) if matches!(self.figure.key, "requests" | "errors") => count(value.max(0.0).round() as u64),
            value => fraction(value),
        };
        [
            self.figure.key.to_owned(),
            shown(self.a),
            shown(self.b),
            self.ratio().map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}")),
            self.verdict().unwrap_or("–").to_owned(),
        ]
    }
}

fn csv(rows: &[ComparedFigure]) -> String {
    let mut out = "policy_a,policy_b,figure,a,b,ratio,more_than_chance\n".to_owned();
    for row in rows {
        let text = |value: Option<f64>| value.map_or_else(String::new, |value| number(Some(value)).to_string());
        let fields = [
            escaped(&row.policies.0).into_owned(),
            escaped(&row.policies.1).into_owned(),
            row.figure.key.to_owned(),
            text(row.a.map(|a| a.value)),
            text(row.b.map(|b| b.value)),
            text(row.ratio()),
            escaped(row.verdict().unwrap_or_default()).into_owned(),
        ];
        out += &fields.join(",");
        out.push('\n');
    }
    out
}

fn document(a: &RunFile, b: &RunFile, differences: &[(&str, Value, Value)], rows: &[ComparedFigure]) -> String {
    let differences = differences.iter().map(|(name, one, other)| json!({ "what": name, "a": one, "b": other }));
    let rows = rows.iter().map(|row| {
        json!({
            "policy_a": row.policies.0, "policy_b": row.policies.1, "figure": row.figure.key,
            "a": number(row.a.map(|a| a.value)), "b": number(row.b.map(|b| b.value)), "ratio": number(row.ratio()),
            "more_than_chance": row.verdict(),
        })
    });
    let whole = json!({
        "a": a.name(), "b": b.name(), "differences": differences.collect::<Vec<_>>(), "rows": rows.collect::<Vec<_>>(),
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::{Args, FromArgMatches};

    use super::*;

    fn compare(line: &[&str]) -> CompareArgs {
        let command = CompareArgs::augment_args(clap::Command::new("compare"));
        let words = ["compare", "a.json", "b.json"].iter().chain(line);
        CompareArgs::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn run(name: &str, document: &Value) -> RunFile {
        RunFile::parse(Path::new(name), document.to_string().as_bytes()).unwrap()
    }

    /// A replay: one policy, intervals.
    fn replay(policy: &str, p95: f64, replica: &str) -> Value {
        json!({
            "trace": "t.jsonl", "seeds": [1],
            "policies": [{
                "policy": policy, "requests": 2000, "errors": 0, "ttft_p95_ms": p95, "hit_rate": 0.5,
                "intervals": { "ttft_ms": { "p95": [0.9 * p95, 1.1 * p95] } },
                "replicas": [{ "replica": replica }],
            }],
            "run": { "schema_version": 1, "trace_sha256": "ab", "time_scale": 1, "max_in_flight": 64 },
        })
    }

    /// A simulation: several policies, three seeds.
    fn simulation(p95: f64, deviation: f64) -> Value {
        let entry = |policy: &str, p95: f64| json!({ "policy": policy, "ttft_p95_ms": p95, "ttft_p95_ms_sd": deviation, "hit_rate": 0.7 });
        json!({
            "trace": "t.jsonl", "seeds": [1, 2, 3],
            "policies": [entry("gorgo", p95), entry("random", 1000.0), entry(&format!("own-{p95}"), 1.0)],
            "run": { "replicas": ["near", "far"] },
        })
    }

    #[test]
    fn two_replays_read_like_this() {
        let a = run("folder/a.json", &replay("gorgo", 1000.0, "near"));
        let mut other = replay("random", 1500.0, "near");
        other["run"]["max_in_flight"] = json!(128);
        let (text, exit) = compare(&[]).of(&a, &run("b.json", &other)).unwrap();
        assert_eq!(exit, CommandExit::Done);
        insta::assert_snapshot!(text);
        let (text, _) = compare(&["--format", "markdown"]).of(&a, &run("b.json", &other)).unwrap();
        assert!(text.contains("| ttft_p95_ms ") && text.contains("|---"), "{text}");
        let (text, _) = compare(&["--format", "csv"]).of(&a, &run("b.json", &other)).unwrap();
        assert_eq!(text.lines().nth(1), Some("gorgo,random,ttft_p95_ms,1000,1500,1.5,\"yes, worse\""));
        let (text, _) = compare(&["--format", "json"]).of(&a, &run("b.json", &other)).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["differences"], json!([{ "what": "in flight at most", "a": 64, "b": 128 }]));
        assert_eq!(
            (&document["rows"][0]["ratio"], &document["rows"][1]["more_than_chance"]),
            (&json!(1.5), &Value::Null)
        );
    }

    #[test]
    fn different_fleets_are_not_compared_in_silence() {
        let (a, b) = (run("a.json", &replay("x", 1.0, "near")), run("b.json", &replay("x", 1.0, "far")));
        let (text, exit) = compare(&[]).of(&a, &b).unwrap();
        assert_eq!(exit, CommandExit::Negative);
        assert!(text.starts_with("not compared: a.json ran on near, b.json on far; use --different-fleets"), "{text}");
        let (text, exit) = compare(&["--different-fleets"]).of(&a, &b).unwrap();
        assert_eq!(exit, CommandExit::Done);
        assert!(text.contains("NOT THE SAME fleet: [\"near\"] and [\"far\"]"), "{text}");
    }

    #[test]
    fn simulations_are_told_apart_by_their_seeds_policy_by_policy() {
        let a = run("a.json", &simulation(1000.0, 30.0));
        let verdicts = |p95: f64, deviation: f64| {
            let (text, _) = compare(&["--format", "csv"]).of(&a, &run("b.json", &simulation(p95, deviation))).unwrap();
            let verdict = |line: &str| line.splitn(7, ',').nth(6).unwrap().to_owned();
            text.lines().filter(|line| line.contains("ttft_p95_ms")).map(verdict).collect::<Vec<_>>()
        };
        // √(30² + 30²) / √3 = 24.5 ms is the error of the difference; three seeds require 4.3 times that; only the two
        // policies that both have are compared.
        assert_eq!(verdicts(890.0, 30.0), ["\"yes, better\"", "no"]);
        assert_eq!(verdicts(900.0, 30.0), ["no", "no"]);
        let (text, _) = compare(&["--policy", "gorgo:random", "--format", "csv"]).of(&a, &a).unwrap();
        assert!(text.contains("gorgo,random,ttft_p95_ms,1000,1000,1,no"), "{text}");
    }

    #[test]
    fn what_is_no_run_is_refused() {
        let refused = |text: &str| RunFile::parse(Path::new("x.json"), text.as_bytes()).unwrap_err().to_string();
        assert!(refused("{").starts_with("x.json: not JSON: "));
        assert!(refused("{}").starts_with("x.json: no `policies`; expected the output of"));
        let newer = refused("{\"policies\":[{\"policy\":\"x\"}],\"run\":{\"schema_version\":99}}");
        assert_eq!(newer, "x.json: written by a newer gorgo (schema 99, this program supports 1)");
        let a = run("a.json", &simulation(1.0, 1.0));
        let unknown = compare(&["--policy", "gorgoo"]).of(&a, &a).unwrap_err().to_string();
        assert_eq!(unknown, "--policy gorgoo: not in a.json, which has gorgo, random, own-1");
    }
}
