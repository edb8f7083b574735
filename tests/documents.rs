//! Every key, metric, command, kind and endpoint is in its document.

use std::collections::BTreeSet;
use std::fs;

use gorgo_observe::meter::METRICS;
use gorgo_routing::policy::{KindRegistry, PRESETS};
use serde_json::Value;

use crate::layout::root;
use crate::program::gorgo;

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|cause| panic!("{path}: {cause}"))
}

/// Names of `wanted` that `document` does not mention as code.
fn missing<'a>(document: &str, wanted: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let text = text(document);
    let mentioned = |name: &str| text.contains(&format!("`{name}`")) || text.contains(&format!("`gorgo {name}`"));
    wanted.into_iter().filter(|name| !mentioned(name)).map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented() {
    assert_eq!(missing("gorgo-cli/README.md", METRICS.iter().copied()), [""; 0]);
}

#[test]
fn every_command_is_documented() {
    let help = gorgo().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .map_while(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.contains(&"serve") && commands.len() >= 5, "{commands:?}");
    assert_eq!(missing("gorgo-cli/README.md", commands), [""; 0], "add them to `gorgo-cli/README.md`");
}

#[test]
fn every_kind_and_preset_is_documented() {
    let registry = KindRegistry::built_in();
    let kinds: BTreeSet<&str> = registry.kind_docs().map(|kind| kind.kind).collect();
    let cure = "add them to `gorgo-core/README.md`, section Kinds";
    assert_eq!(missing("gorgo-core/README.md", kinds), [""; 0], "{cure}");
    assert_eq!(missing("gorgo-core/README.md", PRESETS.iter().map(|preset| preset.name)), [""; 0], "{cure}");
}

#[test]
fn every_endpoint_is_documented() {
    let inference = gorgo_routing::model::ApiPath::ALL.into_iter().map(gorgo_routing::model::ApiPath::name);
    let paths = inference.filter(|path| path.starts_with('/')).chain(["/v1/models", "/metrics", "/health", "/ready"]);
    assert_eq!(missing("gorgo-cli/README.md", paths), [""; 0], "add them to `gorgo-cli/README.md`");
}

/// Keys of the sections, from the schema; policies have kinds instead.
fn keys(schema: &Value, node: &Value, found: &mut Vec<String>) {
    let node = match node.get("$ref").and_then(Value::as_str) {
        Some(reference) => &schema["$defs"][reference.trim_start_matches("#/$defs/")],
        None => node,
    };
    for variant in ["anyOf", "allOf", "oneOf"] {
        for option in node.get(variant).and_then(Value::as_array).into_iter().flatten() {
            keys(schema, option, found);
        }
    }
    if let Some(items) = node.get("items") {
        keys(schema, items, found);
    }
    for (key, member) in node.get("properties").and_then(Value::as_object).into_iter().flatten() {
        if key != "policy" {
            found.push(key.clone());
            keys(schema, member, found);
        }
    }
}

#[test]
fn every_configuration_key_stands_in_the_shipped_file() {
    let schema: Value = serde_json::from_str(&text("gorgo-core/policies.schema.json")).unwrap();
    let mut found = Vec::new();
    keys(&schema, &schema, &mut found);
    assert!(found.len() > 40, "the schema was not read: {found:?}");
    let file = text("policies.toml");
    let absent: Vec<&String> = found
        .iter()
        .filter(|key| {
            let stands = |with: &str| file.contains(&format!("{key}{with}"));
            !(stands(" =") || stands("]") || stands("`"))
        })
        .collect();
    assert!(absent.is_empty(), "policies.toml does not explain: {absent:?}");
}

/// Blocks of TOML in the README, as `gorgo check` sees them; one without replicas gets some.
#[test]
fn the_readmes_configurations_are_right() {
    let readme = text("README.md");
    let blocks: Vec<&str> = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policies.toml");
    for block in blocks {
        let fleet = if block.contains("[[replica]]") { "" } else { crate::program::FLEET };
        fs::write(&file, format!("{block}\n{fleet}")).unwrap();
        let done = gorgo().args(["check", "--config"]).arg(&file).output().unwrap();
        assert!(done.status.success(), "{block}\n{}", String::from_utf8_lossy(&done.stderr));
    }
}

/// Files of the repository, as paths from its root.
fn tracked_files(folder: &std::path::Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                tracked_files(&path, found);
            }
        } else {
            found.push(path.strip_prefix(root()).unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
fn the_files_that_the_architecture_names_exist() {
    let mut files = Vec::new();
    tracked_files(&root(), &mut files);
    // `wire/edge/accept.rs` is short for `gorgo-core/wire/src/edge/accept.rs`; a name alone is in a folder named before.
    let exists = |name: &str| {
        let long = name.split_once('/').map(|(part, rest)| format!("gorgo-core/{part}/src/{rest}"));
        files.iter().any(|file| file == name || file.ends_with(&format!("/{name}")) || Some(file) == long.as_ref())
    };
    let text = text("ARCHITECTURE.md");
    let named = text.split('`').skip(1).step_by(2).filter(|name| {
        let file = name.ends_with(".rs") || name.ends_with(".toml") || name.ends_with(".md");
        file && !name.contains("NAME") && !name.contains('*') && !name.contains(' ')
    });
    let named: BTreeSet<&str> = named.collect();
    assert!(named.len() > 30, "the names of files were not found: {named:?}");
    let gone: Vec<&str> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(gone.is_empty(), "ARCHITECTURE.md names files that do not exist; correct it: {gone:?}");
    assert!(!exists("edge/no_such_file.rs"));
}
