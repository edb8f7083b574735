//! JSON schema of the file: for `shape`, which uses the part for the fixed sections, and for editors, which also get
//! the kinds of policies. Both are generated from the sections' types and doc comments and from the kinds'
//! declarations.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use super::sections::ConfigDocument;
use crate::model::{KindDoc, ParamSpec, ParamType, Unit};

/// Value of `unit` in a kind whose unit the policy states.
const STATED: &str = "stated";

/// Schema of the fixed sections; policies are free tables in it.
pub(super) fn document() -> Json {
    // Inlined, so that `shape` can walk the schema without resolving references.
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<ConfigDocument>().to_value()
}

/// Schema of `policies.toml` for editors, with these kinds.
#[must_use]
pub fn schema(kinds: &[KindDoc]) -> Json {
    let mut root = document();
    if let Some(object) = root.as_object_mut() {
        // The generated title would be the name of the Rust type.
        object.insert("title".to_owned(), json!("policies.toml"));
    }
    // The sections declare policies as free tables, because they do not know the kinds.
    if let Some(free) = root.pointer_mut("/properties/policy/additionalProperties") {
        *free = policy(kinds);
    }
    root
}

/// Schema of one policy.
fn policy(kinds: &[KindDoc]) -> Json {
    let of = |family: &'static str| kinds.iter().filter(move |row| row.family == family);
    let constraints: Map<_, _> = of("constraint").map(|row| (row.kind.to_owned(), table(row, &[]))).collect();
    let names: Vec<&str> = of("constraint").map(|row| row.kind).collect();
    // Keys that are not a kind's name are names that the user chose; they must state their kind.
    let named = if kinds.is_empty() {
        Json::Bool(true)
    } else {
        json!({
            "description": "A constraint under a separate name, so that there can be several of one kind.",
            "type": "object", "required": ["kind"], "properties": { "kind": { "enum": names } }
        })
    };
    let admission = of("admission").next().map_or(json!({ "type": "object" }), |row| table(row, &[]));
    json!({
        "type": "object",
        "properties": {
            "unit": {
                "description": "Unit of the cost: `raw` mixes the terms' units on purpose, `ms` demands terms in ms, or rates. \
                                Absent: a warning where they are mixed.",
                "enum": ["raw", "ms"]
            },
            "cost": choice(of("cost").collect(), "How the terms become one number."),
            "picker": choice(of("picker").collect(), "How one of the candidates is chosen by their costs."),
            "exploration": {
                "description": "Share of decisions that take any allowed replica, 0 to 1.",
                "type": "number", "minimum": 0.0, "maximum": 1.0
            },
            "shadow": {
                "description": "Policies that are scored on the same facts without acting.",
                "type": "array", "items": { "type": "string" }
            },
            "term": {
                "description": "The terms of the cost, each a signal times its weight.",
                "type": "array", "items": terms(of("term").collect())
            },
            "constraint": {
                "description": "Constraints on the replicas that may be chosen.",
                "type": "object", "properties": constraints, "additionalProperties": named
            },
            "admission": admission,
            "tune": {
                "description": "Tuning of the weights while the policy serves.",
                "type": "object",
                "properties": {
                    "enabled": { "description": "Tune the weights.", "type": "boolean", "default": true },
                    "assignment": {
                        "description": "Rule by which requests are assigned to incumbent and candidate.",
                        "enum": ["switchback", "session", "request"], "default": "switchback"
                    },
                    "blocks": { "description": "Sizes and limits of a trial: requests, washout_requests, min_pairs, max_pairs, accept_se, reject_se.", "type": "object" },
                    "guard": { "description": "Limits on candidates: max_e2e_p95_ratio, max_error_share.", "type": "object" },
                    "seed": { "description": "Seed of the search; default: from the content of the policy.", "type": "integer" },
                    "objective": choice(of("objective").collect(), "Objective to minimise."),
                    "optimizer": choice(of("optimizer").collect(), "Method that proposes candidates.")
                }
            }
        },
        "additionalProperties": false
    })
}

/// Schema of a kind given by its name, or as a table with its parameters; unrestricted if no kinds are known.
fn choice(kinds: Vec<&KindDoc>, description: &str) -> Json {
    if kinds.is_empty() {
        return json!({ "description": description });
    }
    let names: Vec<_> = kinds.iter().map(|row| row.kind).collect();
    // The short form: the name of the kind alone, with default parameters.
    let mut ways = vec![json!({ "enum": names })];
    ways.extend(kinds.into_iter().map(|row| table(row, &[("kind", json!({ "const": row.kind }))])));
    json!({ "description": description, "oneOf": ways })
}

/// Schema of the terms: common properties, and the parameters of each kind.
fn terms(kinds: Vec<&KindDoc>) -> Json {
    let number = |help: &str| json!({ "description": help, "type": "number" });
    let weight = json!({
        "description": "Cost per unit of the signal.",
        "oneOf": [
            { "type": "number" },
            {
                "type": "object",
                "properties": {
                    "init": number("The weight until it is tuned."),
                    "ms_per_unit": number("The weight, stated as ms per unit of the signal."),
                    "rate": { "description": "The learned rate that the signal is multiplied by first.",
                              "enum": ["prefill", "queue", "decode"] },
                    "min": number("Smallest weight."),
                    "max": number("Largest weight."),
                    "tune": { "description": "Allow the tuner to change it.", "type": "boolean" }
                },
                "additionalProperties": false
            }
        ]
    });
    let shared = [
        ("name", json!({ "description": "Name in the history; default: the kind.", "type": "string" })),
        ("weight", weight),
        (
            "unknown",
            json!({
                "description": "Signal of a replica without a measurement: `worst`, or a number in the term's unit.",
                "oneOf": [{ "enum": ["worst"] }, { "type": "number" }]
            }),
        ),
    ];
    if kinds.is_empty() {
        let mut properties: Map<_, _> = shared.map(|(name, schema)| (name.to_owned(), schema)).into_iter().collect();
        properties.insert("kind".to_owned(), json!({ "type": "string" }));
        return json!({ "type": "object", "properties": properties, "required": ["kind"] });
    }
    let ways: Vec<_> = kinds
        .into_iter()
        .map(|row| {
            let mut properties = shared.to_vec();
            properties.insert(0, ("kind", json!({ "const": row.kind })));
            // Other kinds have a fixed unit.
            if row.unit == STATED {
                let help = "Unit of its signal.";
                let units = Unit::ALL.map(Unit::name);
                properties.push(("unit", json!({ "description": help, "enum": units })));
            }
            let mut way = table(row, &properties);
            if let Some(object) = way.as_object_mut() {
                // Without it a table that has no `kind` would match several alternatives of `oneOf`.
                object.insert("required".to_owned(), json!(["kind"]));
            }
            way
        })
        .collect();
    json!({ "oneOf": ways })
}

/// Schema of the table of a kind: its parameters and further properties.
fn table(row: &KindDoc, more: &[(&str, Json)]) -> Json {
    let declared = row.params.iter().map(|param| (param.name, parameter(param)));
    let all: Map<_, _> = more.iter().cloned().chain(declared).map(|(name, it)| (name.to_owned(), it)).collect();
    json!({ "description": row.summary, "type": "object", "properties": all, "additionalProperties": false })
}

fn parameter(param: &ParamSpec) -> Json {
    let mut schema = match param.ty {
        ParamType::Number { default, min, max } => {
            json!({ "type": "number", "default": default, "minimum": min, "maximum": max })
        }
        ParamType::Integer { default, min, max } => {
            json!({ "type": "integer", "default": default, "minimum": min, "maximum": max })
        }
        ParamType::Text { default, choices: [] } => json!({ "type": "string", "default": default }),
        ParamType::Text { default, choices } => json!({ "enum": choices, "default": default }),
        ParamType::Bool { default } => json!({ "type": "boolean", "default": default }),
        ParamType::TextList => json!({ "type": "array", "items": { "type": "string" } }),
        ParamType::Table => json!({ "type": "object" }),
    };
    if let Some(object) = schema.as_object_mut() {
        // A parameter without a default has no `default`, since `null` would be a value.
        if object.get("default").is_some_and(Json::is_null) {
            object.remove("default");
        }
        let unit = if param.unit.is_empty() { String::new() } else { format!(", {}", param.unit) };
        object.insert("description".to_owned(), json!(format!("{}{unit}", param.help)));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: KindDoc = KindDoc {
        family: "term",
        kind: "rtt",
        unit: "ms",
        summary: "round trip",
        params: &[ParamSpec {
            name: "unknown_ms",
            ty: ParamType::Number { default: Some(200.0), min: 1.0, max: 1e4 },
            unit: "ms",
            help: "signal of a replica not measured yet",
        }],
    };

    #[test]
    fn kinds_become_choices_with_their_parameters() {
        let root = schema(&[KIND]);
        let way = root.pointer("/properties/policy/additionalProperties/properties/term/items/oneOf/0").unwrap();
        assert_eq!(way["properties"]["kind"]["const"], "rtt");
        assert_eq!(
            way["properties"]["unknown_ms"],
            json!({
                "type": "number", "default": 200.0, "minimum": 1.0, "maximum": 10_000.0,
                "description": "signal of a replica not measured yet, ms"
            })
        );
        assert_eq!(way["additionalProperties"], json!(false));
    }

    #[test]
    fn every_fixed_key_has_a_description_and_every_number_a_range() {
        fn walk(path: &str, schema: &Json, bare: &mut Vec<String>) {
            for (name, member) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
                let path = format!("{path}.{name}");
                let number = matches!(super::super::schema_check::type_of(member), Some("integer" | "number"));
                if member.get("description").is_none()
                    || (number && (member.get("minimum").is_none() || member.get("maximum").is_none()))
                {
                    bare.push(path.clone());
                }
                walk(&path, member.get("items").unwrap_or(member), bare);
            }
        }
        let mut bare = Vec::new();
        walk("", &document(), &mut bare);
        assert_eq!(bare, Vec::<String>::new());
    }
}
