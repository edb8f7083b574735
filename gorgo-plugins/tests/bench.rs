//! Shared parts of the tests: libraries, built once; policies with plugins in them; decisions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use gorgo_plugins::conform::{fleet, request};
use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::model::{Candidates, ConfigValue, Decision};
use gorgo_routing::policy::{DecisionScratch, KindRegistry, Policy, PolicySet, build, decide};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// The folder with all plugins of the workspace. They are built without features, as an author builds them, into a
/// separate target folder, so that this build does not wait for the lock of the one that runs the tests.
pub(crate) fn built() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let target = root().join("target/plugins-of-tests");
        let packages = [
            "gorgo-scorer-prefer",
            "gorgo-scorer-carbon",
            "gorgo-scorer-price",
            "gorgo-scorer-lmetric",
            "gorgo-scorer-slo-headroom",
            "gorgo-constraint-residency",
            "gorgo-objective-slo-misses",
            "gorgo-scorer-hostile",
            "gorgo-scorer-predicted-latency",
        ];
        let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(root())
            .args(["build", "--quiet", "--offline", "--target-dir"])
            .arg(&target)
            .args(packages.iter().flat_map(|package| ["-p", package]))
            .status();
        assert!(built.expect("cargo runs").success(), "the plugins do not build");
        target.join("debug")
    })
}

/// A plugin in Rust, by the name of its library without `libgorgo_` and `.so`.
pub(crate) fn rust(name: &str) -> PathBuf {
    built().join(format!("libgorgo_{name}.so"))
}

/// A plugin in C or C++, compiled with all warnings on, with these definitions.
pub(crate) fn c(source: &Path, folder: &Path, definitions: &[&str]) -> PathBuf {
    let stem = source.file_stem().unwrap().to_string_lossy();
    let library = folder.join(format!("lib{stem}{}.so", definitions.concat().replace(['-', '=', '"'], "_")));
    let (compiler, standard) = if source.extension().is_some_and(|ending| ending == "cpp") {
        ("c++", "-std=c++17")
    } else {
        ("cc", "-std=c11")
    };
    let compiled = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"])
        .args(definitions)
        .arg("-I")
        .arg(root().join("gorgo-plugins/include"))
        .arg("-o")
        .args([&library, source])
        .status();
    assert!(compiled.expect("a C compiler").success(), "{} does not compile", source.display());
    library
}

/// The C plugin whose misbehaviour is chosen at compile time.
pub(crate) fn hostile_c(folder: &Path, definitions: &[&str]) -> PathBuf {
    c(&root().join("gorgo-plugins/tests/c/hostile.c"), folder, definitions)
}

pub(crate) fn text(text: &str) -> ConfigValue {
    ConfigValue::Text(text.to_owned())
}

pub(crate) fn table(members: &[(&str, ConfigValue)]) -> ConfigValue {
    ConfigValue::Table(members.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect())
}

/// The table of a term that is a plugin.
pub(crate) fn term(library: &Path, more: &[(&str, ConfigValue)]) -> ConfigValue {
    let mut members = vec![("kind", text("plugin")), ("library", text(&library.display().to_string()))];
    members.extend_from_slice(more);
    table(&members)
}

/// Policies of one table, and the host that loaded its plugins; or the faults.
pub(crate) fn policies(policy: ConfigValue, conduct: QuarantineMode) -> Result<(PolicySet, Arc<PluginHost>), String> {
    let host = Arc::new(PluginHost::new(Path::new(""), None, conduct));
    let registry = KindRegistry::built_in().with_loader(Arc::<PluginHost>::clone(&host));
    let checked = build(&registry, &[("tested".to_owned(), policy)], "tested", &fleet(64));
    let faults: Vec<String> =
        checked.faults.list.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
    checked.policies.map(|policies| (policies, host)).ok_or_else(|| faults.join("\n"))
}

/// A policy with these terms.
pub(crate) fn with_terms(terms: Vec<ConfigValue>) -> ConfigValue {
    table(&[("unit", text("raw")), ("term", ConfigValue::List(terms))])
}

pub(crate) fn tested(policies: &PolicySet) -> &Policy {
    policies.by_name("tested").unwrap()
}

pub(crate) fn decided(policies: &PolicySet, facts: &Candidates) -> Option<Decision> {
    let policy = tested(policies);
    decide(policy, &policy.weights(), &request(), facts, 1, &mut DecisionScratch::default())
}

/// The signals of the first term.
pub(crate) fn signals(policies: &PolicySet, facts: &Candidates) -> Vec<f64> {
    let slots = tested(policies).terms.len();
    decided(policies, facts).unwrap().signals.iter().step_by(slots).copied().collect()
}
