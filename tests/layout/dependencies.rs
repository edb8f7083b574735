//! Crates stay apart: each depends on those that `table.rs` allows, and the pure ones on no runtime, wire or database.

use std::process::Command;

use serde_json::Value;

use super::root;
use super::table::{CRATES, PLUGIN_FOLDERS, PLUGIN_KIT, PURE};

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let done =
        Command::new(cargo).args(arguments).args(["--offline", "--locked"]).current_dir(root()).output().unwrap();
    assert!(done.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A dependency on a crate of the workspace, as `cargo metadata` has it.
struct Dependency {
    package: String,
    on: String,
    renamed: bool,
    features: bool,
}

/// The members with their folders, and their dependencies on each other but for tests.
fn members() -> (Vec<(String, String)>, Vec<Dependency>) {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let here = format!("{}/", root().display());
    let (mut members, mut dependencies) = (Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().unwrap() {
        let name = text(&package["name"]);
        let folder = text(&package["manifest_path"]).replace(&here, "").replace("/Cargo.toml", "");
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["path"].is_string() && dependency["kind"] != "dev" {
                dependencies.push(Dependency {
                    package: name.clone(),
                    on: text(&dependency["name"]),
                    renamed: dependency["rename"].is_string(),
                    features: dependency["features"].as_array().is_some_and(|features| !features.is_empty()),
                });
            }
        }
        let targets = package["targets"].as_array().unwrap();
        for target in targets.iter().filter(|target| ["lib", "bin"].map(Value::from).contains(&target["kind"][0])) {
            let file = text(&target["src_path"]).replace(&here, "");
            let expected = ["lib", "main"].map(|root| format!("{folder}/src/{root}.rs"));
            assert!(expected.contains(&file), "{name}: {file} is read by no guard: a crate's root is {expected:?}");
        }
        let library = targets.iter().find(|target| target["kind"][0] == "lib");
        let own = library.is_none_or(|library| text(&library["name"]) == name.replace('-', "_"));
        assert!(own, "{name}: its library has another name, which hides what is imported: take `[lib] name` out");
        members.push((name, folder));
    }
    (members, dependencies)
}

fn is_plugin(folder: &str) -> bool {
    PLUGIN_FOLDERS.iter().any(|plugins| folder.starts_with(plugins))
}

#[test]
fn crates_depend_on_what_the_table_allows() {
    let (members, dependencies) = members();
    let mut faults = Vec::new();
    for (name, folder) in &members {
        let depends: Vec<&Dependency> = dependencies.iter().filter(|dependency| dependency.package == *name).collect();
        faults.extend(
            depends.iter().filter(|on| on.renamed).map(|on| format!("{name} renames {}, which hides it", on.on)),
        );
        if is_plugin(folder) {
            let more = depends.iter().filter(|on| on.on != PLUGIN_KIT || on.features);
            faults.extend(
                more.map(|on| {
                    format!("{name} is a plugin and takes more than {PLUGIN_KIT} without features: {}", on.on)
                }),
            );
            continue;
        }
        let Some(rules) = CRATES.iter().find(|rules| rules.package == name && rules.folder == folder) else {
            faults.push(format!("{name} in {folder} has no row"));
            continue;
        };
        let more = depends.iter().filter(|on| !rules.crates.contains(&&*on.on));
        faults.extend(more.map(|on| format!("{name} → {}", on.on)));
        let idle = rules.crates.iter().filter(|allowed| !depends.iter().any(|on| on.on == **allowed));
        faults.extend(
            idle.map(|allowed| format!("{name} → {allowed} is not in its Cargo.toml: take it out of the table")),
        );
    }
    for rules in CRATES.iter().filter(|rules| !members.iter().any(|(name, _)| name == rules.package)) {
        faults.push(format!("{} is no member of the workspace: take it out of the table", rules.package));
    }
    assert!(faults.is_empty(), "against CRATES in tests/layout/table.rs:\n{}", faults.join("\n"));
}

/// Names of `never` that the package depends on with these features beside its default ones, tests aside.
fn impure(package: &str, features: &str, never: &[&str]) -> Vec<String> {
    let mut arguments = vec!["tree", "--package", package, "--edges", "normal,build"];
    arguments.extend(["--prefix", "none", "--format", "{p}", "--features", features]);
    let tree = cargo(&arguments);
    assert!(tree.starts_with(package), "cargo tree printed something else: {tree}");
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let mut found: Vec<String> = names.filter(|name| never.contains(name)).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn pure_crates_know_no_runtime_wire_or_database() {
    for (package, features, never) in PURE {
        let found = impure(package, features, never);
        assert!(
            found.is_empty(),
            "{package} depends on {found:?}; `cargo tree -p {package} --features '{features}' -i NAME` says by which way"
        );
    }
    // The check must find them where they are: the program has all three.
    assert_eq!(impure("gorgo-cli", "", &["tokio", "hyper", "sqlx", "gorgo"]), ["hyper", "sqlx", "tokio"]);
}
