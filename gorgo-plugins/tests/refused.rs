//! Files that are no plugins, or not for this gorgo: each is refused with its name and the reason before serving starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gorgo_plugins::host::QuarantineMode;
use gorgo_routing::model::ConfigValue;

use crate::bench::{hostile_c, policies, rust, table, term, text, with_terms};

/// Fault of building a policy with this library; the folder's name is masked.
fn said(library: &Path, folder: &Path, more: &[(&str, ConfigValue)]) -> String {
    let faults = policies(with_terms(vec![term(library, more)]), QuarantineMode::Enforced).map(|_| ()).unwrap_err();
    faults.replace(&format!("{}/", folder.display()), "").replace("policy.tested.term[0]: ", "")
}

#[test]
fn what_is_wrong_with_a_file_is_told_with_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut lines = Vec::new();
    let mut note = |what: &str, line: String| lines.push(format!("{what}: {line}"));

    note("absent", said(&at.join("nowhere.so"), at, &[]));
    fs::write(at.join("words.so"), "these are words\n").unwrap();
    note("not a library", said(&at.join("words.so"), at, &[]));
    note(
        "a folder",
        said(at, at.parent().unwrap(), &[]).replace(&*at.file_name().unwrap().to_string_lossy(), "FOLDER"),
    );
    let c = |definitions: &[&str]| said(&hostile_c(at, definitions), at, &[]);
    note("no symbol", c(&["-DSYMBOL=other"]));
    note("another symbol", c(&["-DSYMBOL=gorgo_constraint_v1"]));
    note("another version", c(&["-DMAJOR=2"]));
    note("short", c(&["-DSIZE=104"]));
    note("unaligned size", c(&["-DSIZE=117"]));
    note("a new need", c(&["-DNEEDS=64"]));
    note("a new unit", c(&["-DUNIT=9"]));
    note("a bad name", c(&["-DNAME=\"Caps Lock\""]));
    note("no function", c(&["-DNO_CALL"]));
    note("a symbol that nobody has", c(&["-DUNBOUND"]));
    let good = hostile_c(at, &[]);
    note("another file", said(&good, at, &[("sha256", text("00ff"))]));
    fs::set_permissions(&good, fs::Permissions::from_mode(0o646)).unwrap();
    note("anybody's file", said(&good, at, &[]));
    fs::set_permissions(&good, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).unwrap();
    note("anybody's folder", said(&good, at, &[]).replace(&*at.to_string_lossy(), "FOLDER"));
    fs::set_permissions(at, fs::Permissions::from_mode(0o700)).unwrap();
    let hostile = |how: &str| [("options", table(&[("how", text(how))]))];
    note("it refuses", said(&rust("scorer_hostile"), at, &hostile("refuse")));
    note("it panics at create", said(&rust("scorer_hostile"), at, &hostile("panic-at-create")));
    note("no such option", said(&rust("scorer_hostile"), at, &[("options", table(&[("hwo", text("nan"))]))]));

    let mut settings = insta::Settings::clone_current();
    settings.add_filter("[0-9a-f]{64}", "HASH");
    settings.bind(|| insta::assert_snapshot!(lines.join("\n")));
}

#[test]
fn the_right_hash_in_any_case_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let library = hostile_c(folder.path(), &[]);
    let (policies, _) = policies(with_terms(vec![term(&library, &[])]), QuarantineMode::Enforced).unwrap();
    let hash = policies.by_name("tested").unwrap().terms[0].plugin_sha256.clone().unwrap();
    let pinned = [("sha256", text(&hash.to_uppercase()))];
    crate::bench::policies(with_terms(vec![term(&library, &pinned)]), QuarantineMode::Enforced).unwrap();
}

#[test]
fn the_file_is_missing_from_the_table() {
    let faults = policies(with_terms(vec![table(&[("kind", text("plugin"))])]), QuarantineMode::Enforced)
        .map(|_| ())
        .unwrap_err();
    let expected =
        "policy.tested.term[0]: `library` is missing; set it to the plugin's file, relative to the configuration file";
    assert_eq!(faults, expected);
}
