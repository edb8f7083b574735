//! The layout holds: imports point inward, files stay small, every part has its case and its documentation.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the program's folder is in the workspace").to_owned()
}

/// All files below `folder` with that ending.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files(&path, ending, found);
            }
        } else if path.extension().is_some_and(|found| found == ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["gorgo-core", "gorgo-plugins", "gorgo-cli", "tests"] {
        files(&root().join(folder), "rs", &mut found);
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

/// Which modules a module may import, besides itself. Ring 4 may import all.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("expr", &[]),
    ("model", &[]),
    ("config", &["model"]),
    ("parse", &["model"]),
    ("feature", &["model"]),
    ("score", &["model", "expr"]),
    ("constrain", &["model", "expr"]),
    ("pick", &["model"]),
    ("records", &[]),
    ("trace", &["records"]),
    ("calibrate", &["records"]),
    ("tune", &["model", "expr"]),
    ("policy", &["model", "expr", "config", "parse", "feature", "score", "constrain", "pick", "tune"]),
    ("sim", &["trace"]),
    ("engine", &[]),
    ("edge", &["engine"]),
];

#[test]
fn imports_point_inward() {
    let crates = ["routing", "lab", "wire"].map(|name| root().join("gorgo-core").join(name).join("src"));
    let mut arrows = Vec::new();
    for path in sources() {
        let Some(inside) = crates.iter().find_map(|folder| path.strip_prefix(folder).ok()) else { continue };
        let module = inside.components().next().expect("a file").as_os_str().to_string_lossy().into_owned();
        let module = module.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let (_, allowed) = MAY_IMPORT
            .iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("module {module} has no row in MAY_IMPORT: which ring is it?"));
        let text = fs::read_to_string(&path).expect("a source file");
        // Tests may reach further: they put parts together.
        let shipped = if path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests") {
            ""
        } else {
            text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&text)
        };
        for (number, line) in shipped.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for target in line.split("crate::").skip(1) {
                let target: String = target.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if target != module
                    && MAY_IMPORT.iter().any(|(name, _)| *name == target)
                    && !allowed.contains(&&*target)
                {
                    arrows.push(format!("{}:{}: {module} → {target}", inside.display(), number + 1));
                }
            }
        }
    }
    assert!(arrows.is_empty(), "forbidden arrows:\n{}", arrows.join("\n"));
}

#[test]
fn files_are_small() {
    let large: Vec<String> = sources()
        .iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .filter_map(|path| {
            let text = fs::read_to_string(path).ok()?;
            let shipped = text.split("#[cfg(test)]\nmod tests {").next()?.lines().count();
            (shipped > 800).then(|| format!("{}: {shipped} lines", path.display()))
        })
        .collect();
    assert!(large.is_empty(), "split these by idea:\n{}", large.join("\n"));
}

#[test]
fn unsafe_stands_only_where_it_may() {
    let may = ["gorgo-plugins/src/abi.rs", "gorgo-plugins/src/shim.rs", "gorgo-core/wire/src/edge/tcp_info.rs"];
    let found: Vec<String> = sources()
        .iter()
        .filter(|path| !may.iter().any(|allowed| path.ends_with(allowed)))
        .filter(|path| !path.starts_with(root().join("gorgo-plugins/src/host")))
        .filter(|path| {
            fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.contains(concat!("unsafe", " {"))))
        })
        .map(|path| path.display().to_string())
        .collect();
    assert!(found.is_empty(), "unsafe outside its files: {found:?}");
}

#[test]
fn every_folder_explains_itself() {
    for folder in ["", "gorgo-core", "gorgo-plugins", "gorgo-cli", "migrations", "tests"] {
        let path = root().join(folder).join("README.md");
        let text = fs::read_to_string(&path).unwrap_or_default();
        assert!(text.lines().count() > 10, "{} is missing or says nothing", path.display());
    }
}

#[test]
fn every_file_says_what_it_is() {
    let silent: Vec<String> = sources()
        .iter()
        .filter(|path| !fs::read_to_string(path).is_ok_and(|text| text.starts_with("//!")))
        .map(|path| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "files without a head comment: {silent:?}");
}

#[test]
fn the_top_level_is_as_agreed() {
    let agreed: BTreeSet<&str> = [
        "Cargo.toml",
        "Cargo.lock",
        "gorgo-core",
        "gorgo-plugins",
        "gorgo-cli",
        "policies.toml",
        "migrations",
        "tests",
        "README.md",
        "CHANGELOG.md",
        "clippy.toml",
        "rustfmt.toml",
    ]
    .into();
    for entry in fs::read_dir(root()).expect("the root").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_ours = !name.starts_with('.') && name != "target" && !name.starts_with("history.db");
        assert!(!is_ours || agreed.contains(&*name), "{name} stands at the top level");
    }
}
