//! `gorgo kinds`: lists the parts of policies, from the same table that builds and checks them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use gorgo_routing::config::nearest;
use gorgo_routing::model::{KindDoc, ParamSpec, ParamType};
use gorgo_routing::policy::PRESETS;
use serde_json::{Value, json};

use crate::cmd::CliCommand;
use crate::exit::CommandExit;
use crate::plugins::registry;

/// Arguments of `gorgo kinds`.
#[derive(Debug, clap::Args)]
pub(crate) struct KindsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the text of one preset, as a start for your own policy
    #[arg(long, value_name = "NAME", conflicts_with = "json")]
    preset: Option<String>,
}

impl CliCommand for KindsArgs {
    const NAME: &'static str = "kinds";
    const ABOUT: &'static str = "List every term, cost, constraint, picker and engine with its parameters";

    fn run(self) -> CommandExit {
        let text = match &self.preset {
            None => listed(self.json),
            Some(name) => match PRESETS.iter().find(|preset| preset.name == name) {
                Some(preset) => preset.text.to_owned(),
                None => {
                    let near = nearest(name, PRESETS.iter().map(|preset| preset.name));
                    let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
                    anstream::eprintln!("gorgo kinds: no preset \"{name}\"{near}; `gorgo kinds` lists them");
                    return CommandExit::Usage;
                }
            },
        };
        // A closed pipe is ignored, as with `head`.
        let _ = std::io::stdout().write_all(text.as_bytes());
        CommandExit::Done
    }
}

/// The list, as text for people or as JSON.
fn listed(as_json: bool) -> String {
    let rows: Vec<KindDoc> = registry(Path::new("")).kind_docs().collect();
    if as_json { format!("{:#}\n", documents(&rows)) } else { text(&rows) }
}

/// Heading of a family: where its kinds are configured.
const fn heading(family: &str) -> &'static str {
    match family.as_bytes() {
        // Terms have more keys than their kind's parameters, so they are listed here.
        b"term" => {
            "terms: [[policy.NAME.term]] with kind, and also\n  \
             name = the kind (unique in the policy)\n  \
             weight = 1.0 | { init or ms_per_unit, min, max, tune, rate = \"prefill\", \"queue\" or \"decode\" }\n  \
             unknown = \"worst\" | a number in the term's unit\n  \
             unit = that of the signal, where it is shown as stated"
        }
        b"cost" => "costs: cost = \"KIND\" or { kind, … }",
        b"constraint" => "constraints: [policy.NAME.constraint.KIND]",
        b"admission" => "admission gate: [policy.NAME.admission]",
        b"picker" => "pickers: picker = \"KIND\" or { kind, … }",
        b"objective" => "objectives: [policy.NAME.tune] objective = \"KIND\" or { kind, … }",
        b"optimizer" => "optimizers: [policy.NAME.tune] optimizer = \"KIND\" or { kind, … }",
        b"engine" => "engines: engine in [[replica]]",
        _ => "others",
    }
}

fn text(rows: &[KindDoc]) -> String {
    let mut out = String::new();
    let width = rows.iter().map(|row| row.kind.len()).max().unwrap_or(0);
    // The registry's rows are ordered by family.
    for family in rows.chunk_by(|a, b| a.family == b.family) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{}\n", heading(family[0].family));
        for row in family {
            let unit = match row.unit {
                "" => String::new(),
                unit => format!(" ({unit})"),
            };
            let _ = writeln!(out, "  {:width$}  {}{unit}", row.kind, row.summary);
            for param in row.params {
                let _ = writeln!(out, "  {:width$}    {} = {}", "", param.name, allowed(param));
                let _ = writeln!(out, "  {:width$}      {}", "", param.help);
            }
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "presets, policies that need no table: default_policy = \"NAME\"; `gorgo kinds --preset NAME` shows one\n"
    );
    let width = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
    for preset in PRESETS {
        let _ = writeln!(out, "  {:width$}  {}", preset.name, preset.summary());
    }
    out
}

/// Type, range, unit and default of a parameter, in one line.
fn allowed(param: &ParamSpec) -> String {
    let (ty, default) = match param.ty {
        ParamType::Number { default, min, max } => (format!("{} to {}", shown(min), shown(max)), default.map(shown)),
        ParamType::Integer { default, min, max } => {
            (format!("whole number, {min} to {max}"), default.map(|default| default.to_string()))
        }
        ParamType::Text { default, choices: [] } => ("text".to_owned(), default.map(|text| format!("\"{text}\""))),
        ParamType::Text { default, choices } => {
            let choices: Vec<_> = choices.iter().map(|text| format!("\"{text}\"")).collect();
            (choices.join(" | "), default.map(|text| format!("\"{text}\"")))
        }
        ParamType::Bool { default } => ("true | false".to_owned(), Some(default.to_string())),
        ParamType::TextList => ("list of texts".to_owned(), None),
        ParamType::Table => ("table".to_owned(), None),
    };
    let unit = if param.unit.is_empty() { String::new() } else { format!(" [{}]", param.unit) };
    let default = default.map_or_else(String::new, |default| format!(", default {default}"));
    format!("{ty}{unit}{default}")
}

/// A number as in the configuration file: `1.0`, `1e9`.
fn shown(number: f64) -> String {
    // `1e9` and not a row of zeros, as a person would write a bound.
    if number.abs() >= 1e6 { format!("{number:e}") } else { format!("{number:?}") }
}

/// One object per kind; all keys are always present.
fn documents(rows: &[KindDoc]) -> Value {
    let parameter = |param: &ParamSpec| {
        let (ty, default, min, max, choices) = match param.ty {
            ParamType::Number { default, min, max } => ("number", json!(default), json!(min), json!(max), Value::Null),
            ParamType::Integer { default, min, max } => {
                ("integer", json!(default), json!(min), json!(max), Value::Null)
            }
            ParamType::Text { default, choices } => {
                let choices = if choices.is_empty() { Value::Null } else { json!(choices) };
                ("text", json!(default), Value::Null, Value::Null, choices)
            }
            ParamType::Bool { default } => ("bool", json!(default), Value::Null, Value::Null, Value::Null),
            ParamType::TextList => ("text-list", Value::Null, Value::Null, Value::Null, Value::Null),
            ParamType::Table => ("table", Value::Null, Value::Null, Value::Null, Value::Null),
        };
        json!({
            "name": param.name, "type": ty, "unit": param.unit, "default": default, "min": min, "max": max,
            "choices": choices, "help": param.help,
        })
    };
    let kind = |row: &KindDoc| {
        json!({
            "family": row.family, "kind": row.kind, "unit": row.unit, "summary": row.summary,
            "params": row.params.iter().map(parameter).collect::<Vec<_>>(),
        })
    };
    rows.iter().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_reads_well() {
        insta::with_settings!({ description => "if the new list is right, run `.ci/regenerate`" }, {
            insta::assert_snapshot!(listed(false));
        });
    }

    #[test]
    fn json_has_every_kind_with_every_key() {
        let all: Value = serde_json::from_str(&listed(true)).unwrap();
        let all = all.as_array().unwrap();
        assert_eq!(all.len(), registry(Path::new("")).kind_docs().count());
        let concentration = all.iter().find(|row| row["kind"] == "concentration").unwrap();
        assert_eq!(
            concentration["params"][0],
            json!({
                "name": "max_share", "type": "number", "unit": "share", "default": null, "min": 0.001, "max": 1.0,
                "choices": null, "help": "largest share per replica; this or `max_ratio`",
            })
        );
        let rtt = all.iter().find(|row| row["kind"] == "rtt").unwrap();
        assert_eq!((&rtt["family"], &rtt["unit"]), (&json!("term"), &json!("ms")));
        assert_eq!(rtt["params"][0]["choices"], json!(["mean", "p95"]));
    }
}
