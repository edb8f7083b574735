//! Plugins through the program: a newcomer's way, and libraries that end the process that loads them.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::layout::root;
use crate::program::FLEET;

fn gorgo(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gorgo"));
    command.current_dir(folder).args(arguments).env_remove("GORGO_CONFIG");
    command.output().expect("the program starts")
}

/// Output of a process, and its exit code.
fn said(output: &Output) -> (String, Option<i32>) {
    let text = [&*output.stdout, &*output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.code())
}

/// The misbehaving plugin in C, compiled to misbehave in this way.
fn hostile(folder: &Path, definition: &str) -> String {
    let library = format!("lib{}.so", definition.trim_start_matches("-D").to_lowercase());
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-shared", "-fPIC", definition, "-I"])
        .arg(root().join("gorgo-plugins/include"))
        .arg("-o")
        .arg(folder.join(&library))
        .arg(root().join("gorgo-plugins/tests/c/hostile.c"))
        .status();
    assert!(compiled.expect("a C compiler").success());
    library
}

/// A configuration whose policy has this library as a term.
fn configured(folder: &Path, library: &str, options: &str) {
    let text = format!(
        "default_policy = \"mine\"\n[[replica]]\nname = \"a\"\nengine = \"simulated\"\n[policy.mine]\nunit = \"ms\"\n\
         [[policy.mine.term]]\nkind = \"plugin\"\nlibrary = \"{library}\"\nweight = 1.0\noptions = {options}\n\
         [[policy.mine.term]]\nkind = \"queue\"\nweight = {{ ms_per_unit = 0.02 }}\n"
    );
    fs::write(folder.join("policies.toml"), text).unwrap();
}

#[test]
fn a_newcomers_plugin_is_made_built_checked_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "new", "far-away"]));
    assert_eq!(exit, Some(0), "{text}");
    assert!(text.contains("cargo build --release --offline --manifest-path far-away/Cargo.toml"), "{text}");
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "new", "far-away"]));
    assert_eq!(exit, Some(2), "a folder that exists is left alone: {text}");

    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(folder.path())
        .args(["build", "--offline", "--quiet", "--manifest-path", "far-away/Cargo.toml"])
        .env("RUSTFLAGS", "-D warnings")
        .env("CARGO_TARGET_DIR", "far-away/target")
        .status();
    assert!(built.expect("cargo runs").success(), "what `plugin new` writes builds without a warning");

    let library = "far-away/target/debug/libgorgo_scorer_far_away.so";
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "check", library, "--options", "malus_ms = 5"]));
    assert_eq!(exit, Some(0), "{text}");
    assert!(text.starts_with("far-away 0.1.0 (gorgo_scorer_v1)") && text.ends_with("all checks passed\n"), "{text}");

    configured(folder.path(), library, "{ malus_ms = 7 }");
    let (text, exit) = said(&gorgo(folder.path(), &["check"]));
    let known = gorgo_routing::policy::PRESETS.len() + 1;
    let right = format!("policies.toml: valid; 1 replica, policy mine of {known}\n");
    // Notes follow.
    assert!(exit == Some(0) && text.starts_with(&right), "{text}");
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "list"]));
    assert_eq!(exit, Some(0), "{text}");
    assert!(text.contains("far-away") && text.contains("malus_ms*") && text.contains(library), "{text}");

    configured(folder.path(), library, "{ malus = 7 }");
    let (text, exit) = said(&gorgo(folder.path(), &["check"]));
    assert_eq!(exit, Some(78));
    assert!(text.contains("`options.malus` is unknown; known: regions, malus_ms, malus_ms_per_token"), "{text}");
}

#[test]
fn constraints_and_objectives_are_made_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    for (kind, symbol) in [("constraint", "gorgo_constraint_v1"), ("objective", "gorgo_objective_v1")] {
        let name = format!("my-{kind}");
        let (text, exit) = said(&gorgo(folder.path(), &["plugin", "new", &name, "--kind", kind]));
        assert_eq!(exit, Some(0), "{text}");
        let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(folder.path())
            .args(["build", "--offline", "--quiet", "--manifest-path", &format!("{name}/Cargo.toml")])
            .env("RUSTFLAGS", "-D warnings")
            .env("CARGO_TARGET_DIR", format!("{name}/target"))
            .status();
        assert!(built.expect("cargo runs").success(), "{kind}");
        let library = format!("{name}/target/debug/libgorgo_{kind}_my_{kind}.so");
        assert!(text.contains(&library.replace("debug", "release")), "{text}");
        let (text, exit) = said(&gorgo(folder.path(), &["plugin", "check", &library]));
        assert_eq!(exit, Some(0), "{text}");
        assert!(text.starts_with(&format!("{name} 0.1.0 ({symbol})")), "{text}");
        if kind == "constraint" {
            let policy = format!(
                "[policy.mine]\npicker = \"random\"\n[policy.mine.constraint.plugin]\nlibrary = \"{library}\"\n"
            );
            fs::write(folder.path().join("policies.toml"), format!("default_policy = \"mine\"\n{policy}{FLEET}"))
                .unwrap();
            let (text, exit) = said(&gorgo(folder.path(), &["plugin", "list"]));
            assert_eq!(exit, Some(0), "{text}");
            let row = text.lines().find(|line| line.contains("my-constraint")).unwrap();
            assert!(row.contains(" – "), "it has no unit: {text}");
        }
    }
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "new", "x", "--kind", "picker"]));
    assert_eq!(exit, Some(2));
    assert!(text.contains("known: scorer, constraint, objective"), "{text}");
}

#[test]
fn what_aborts_at_load_aborts_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let library = hostile(folder.path(), "-DABORT");
    configured(folder.path(), &library, "{}");
    for command in [&["check"][..], &["serve"], &["plugin", "list"]] {
        let (text, exit) = said(&gorgo(folder.path(), command));
        assert_eq!(exit, Some(78), "{command:?}: {text}");
        assert!(
            text.contains("libabort.so: a trial load in a separate process aborted; the plugin was not loaded"),
            "{text}"
        );
    }
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "check", &library]));
    assert_eq!((&*text, exit), ("libabort.so: the process aborted in check `load`\n", Some(1)));
}

#[test]
fn what_ends_the_process_in_a_call_is_named_by_its_check() {
    let folder = tempfile::tempdir().unwrap();
    let library = hostile(folder.path(), "-DCRASH");
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "check", &library]));
    assert_eq!((&*text, exit), ("libcrash.so: the process aborted in check `no replica`\n", Some(1)));
    let library = hostile(folder.path(), "-DMAJOR=7");
    let (text, exit) = said(&gorgo(folder.path(), &["plugin", "check", &library]));
    assert_eq!(exit, Some(1));
    assert!(text.contains("version 7 of the plugin contract, but this gorgo has version 1"), "{text}");
}
