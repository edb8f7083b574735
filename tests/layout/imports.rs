//! Imports point inward: every module names only what its row in `table.rs` allows, and no two rows name each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::paths::{Arrow, Mentions, Source, Target, mentions};
use super::table::{CIRCLES, CRATES, CrateRules};
use super::{files, root};

/// The crate's name in paths.
fn name_of(package: &str) -> String {
    package.replace('-', "_")
}

/// The module of a file, from its path below `src`; empty for the root file.
fn module_of(path: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        path.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || (module.len() == 1 && matches!(&**last, "lib" | "main"))) {
        module.pop();
    }
    module
}

/// A file of a crate, from `src` on, and all that it mentions.
struct Read {
    file: String,
    module: Vec<String>,
    mentions: Mentions,
}

/// The shipped files of a crate: those that no `#[cfg(test)]` keeps out.
fn read(rules: &CrateRules, crates: &[&str]) -> Vec<Read> {
    let source = root().join(rules.folder).join("src");
    let mut paths = Vec::new();
    files(&source, "rs", &mut paths);
    assert!(
        !paths.is_empty(),
        "{} has no sources in {}: correct its folder in table.rs",
        rules.package,
        source.display()
    );
    let krate = name_of(rules.package);
    let mut all: Vec<Read> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a source file");
        let inside = path.strip_prefix(&source).expect("found below it");
        let module = module_of(inside);
        let mentions = mentions(&Source { krate: &krate, module: module.clone(), text: &text }, crates);
        all.push(Read { file: format!("{}/src/{}", rules.folder, inside.display()), module, mentions });
    }
    let tests: Vec<Vec<String>> = all
        .iter()
        .flat_map(|read| {
            read.mentions.test_modules.iter().cloned().chain(read.mentions.test_only.then(|| read.module.clone()))
        })
        .collect();
    all.retain(|read| !tests.iter().any(|test| read.module.starts_with(test)));
    all.sort_by(|a, b| a.file.cmp(&b.file));
    all
}

/// Reason why the table forbids an arrow; `None` if it allows it.
pub(super) fn verdict(rules: &CrateRules, arrow: &Arrow) -> Option<String> {
    let own = name_of(rules.package);
    let from = &*arrow.from;
    let (krate, module) = match &arrow.target {
        Target::Hidden(why) => return Some(format!("{from}: {why}")),
        Target::Module { krate, module } => (krate, module),
    };
    let row = rules.modules.iter().find(|(name, _)| *name == from || *name == "*");
    let Some((name, allowed)) = row else {
        let free = from == "lib" || rules.modules.is_empty();
        return (!free).then(|| format!("module {from} has no row: say in table.rs what it may name"));
    };
    if *krate == own {
        if *name == "*" || module == from || rules.root_names.contains(&&**module) || allowed.contains(&&**module) {
            return None;
        }
        if !rules.modules.iter().any(|(name, _)| name == module) {
            return Some(format!("{from} → {module}, which is no module with a row: name the module that defines it"));
        }
        return Some(format!("{from} → {module}"));
    }
    let whole = allowed.contains(&&**krate);
    let part = format!("{krate}::{module}");
    (!whole && !allowed.contains(&&*part)).then(|| format!("{from} → {part}"))
}

fn crates() -> Vec<String> {
    CRATES.iter().map(|rules| name_of(rules.package)).collect()
}

#[test]
fn imports_point_inward() {
    let crates = crates();
    let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
    let mut forbidden: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for rules in CRATES {
        for read in read(rules, &crates) {
            for arrow in &read.mentions.arrows {
                let Some(fault) = verdict(rules, arrow) else { continue };
                forbidden.entry((rules.package, fault)).or_default().push(format!("{}:{}", read.file, arrow.line));
            }
        }
    }
    let told: Vec<String> = forbidden
        .iter()
        .map(|((package, fault), places)| {
            format!("{package}: {fault}\n    {} times, first {}", places.len(), places[0])
        })
        .collect();
    assert!(
        told.is_empty(),
        "not allowed by tests/layout/table.rs; move the code inward, or hand in what it needs:\n{}",
        told.join("\n")
    );
}

#[test]
fn every_row_is_in_use() {
    let crates = crates();
    let crates: Vec<&str> = crates.iter().map(String::as_str).collect();
    let mut idle = Vec::new();
    for rules in CRATES {
        let own = name_of(rules.package);
        let read = read(rules, &crates);
        for (module, allowed) in rules.modules {
            if !["lib", "*"].contains(module)
                && !read.iter().any(|read| read.module.first().is_some_and(|first| first == module))
            {
                idle.push(format!("{}: there is no module {module}", rules.package));
            }
            let named: BTreeSet<String> = read
                .iter()
                .flat_map(|read| &read.mentions.arrows)
                .filter(|arrow| arrow.from == *module || *module == "*")
                .flat_map(|arrow| match &arrow.target {
                    Target::Module { krate, module } if *krate == own => vec![module.clone()],
                    Target::Module { krate, module } => vec![krate.clone(), format!("{krate}::{module}")],
                    Target::Hidden(_) => Vec::new(),
                })
                .collect();
            let unused = allowed.iter().filter(|allowed| !named.contains(**allowed));
            idle.extend(unused.map(|allowed| format!("{}: {module} → {allowed} is not in the code", rules.package)));
        }
    }
    assert!(idle.is_empty(), "take these out of tests/layout/table.rs:\n{}", idle.join("\n"));
}

/// Modules that the table lets name each other, if only by way of others.
fn circles(rules: &CrateRules) -> Vec<&'static str> {
    let mut left: Vec<&(&str, &[&str])> = rules.modules.iter().collect();
    loop {
        let before = left.len();
        let names: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
        left.retain(|(name, allowed)| allowed.iter().any(|allowed| allowed != name && names.contains(allowed)));
        if left.len() == before {
            return left.iter().map(|(name, _)| *name).collect();
        }
    }
}

#[test]
fn no_two_modules_may_name_each_other() {
    for rules in CRATES {
        let known = CIRCLES.iter().find(|(package, _)| *package == rules.package).map_or(&[][..], |(_, known)| known);
        assert_eq!(circles(rules), known, "{}: modules that name each other, and those of CIRCLES", rules.package);
    }
    let circle = CrateRules {
        package: "a",
        folder: "",
        crates: &[],
        modules: &[("x", &["y"]), ("y", &["z"]), ("z", &["x"]), ("free", &["x"])],
        root_names: &[],
    };
    assert_eq!(circles(&circle), ["x", "y", "z", "free"]);
}

#[test]
fn a_file_is_the_module_that_its_path_says() {
    for (path, module) in [
        ("lib.rs", &[][..]),
        ("main.rs", &[]),
        ("run.rs", &["run"]),
        ("run/mod.rs", &["run"]),
        ("run/lib.rs", &["run", "lib"]),
        ("edge/tests/bench.rs", &["edge", "tests", "bench"]),
    ] {
        assert_eq!(module_of(Path::new(path)), module, "{path}");
    }
}
