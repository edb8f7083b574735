//! One term in three forms: `queue` built in, as an expression, and as a plugin (the example in C). Each benchmark is a
//! whole decision of a policy with only that term, so the cost of a form is its figure minus the built-in one. Then a
//! whole policy in three forms: `predicted-latency` built in, written with expressions, and from a plugin (the example in
//! Rust), which decide the same, bit for bit.
//!
//! `cargo bench -p gorgo-plugins --features conform --bench plugin`; it needs a C compiler.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use divan::{Bencher, black_box};
use gorgo_plugins::conform::{candidates, fleet, request};
use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::config::parse_toml;
use gorgo_routing::model::ConfigValue;
use gorgo_routing::policy::{DecisionScratch, KindRegistry, PolicySet, build, decide};

const REPLICAS: [u16; 2] = [3, 64];
/// For whole policies.
const FLEETS: [u16; 3] = [3, 64, 1000];

fn main() {
    divan::main();
}

/// The example in C, compiled as in its guide.
fn queue_c() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libgorgo_scorer_queue_c.so");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-shared", "-fPIC", "-I"])
        .args([here.join("include"), PathBuf::from("-o"), library.clone()])
        .arg(here.join("examples/scorer_c/queue.c"))
        .status();
    assert!(compiled.unwrap().success(), "the example does not compile");
    library
}

/// The folder with the example in Rust, built in release mode, as a user would build it.
fn predicted_latency() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let target = root.join("target/plugins-of-benches");
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root)
        .args(["build", "--quiet", "--offline", "--release", "-p", "gorgo-scorer-predicted-latency", "--target-dir"])
        .arg(&target)
        .status();
    assert!(built.unwrap().success(), "the example does not compile");
    target.join("release")
}

/// A decision of a policy of the example's files, or of the built-in one (no file).
fn whole(bencher: Bencher<'_, '_>, replicas: u16, file: Option<&str>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/predicted_latency");
    let base = if file == Some("plugin.toml") { predicted_latency() } else { PathBuf::new() };
    let host = Arc::new(PluginHost::new(&base, None, QuarantineMode::Reported));
    let registry = KindRegistry::built_in().with_loader(host);
    let tables = file.map_or_else(Vec::new, |file| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let Some(ConfigValue::Table(tables)) = parse_toml(&text).unwrap().get("policy").cloned() else {
            unreachable!()
        };
        tables
    });
    let name = tables.first().map_or("predicted-latency", |(name, _)| name);
    let policies = build(&registry, &tables, name, &fleet(replicas)).policies.unwrap();
    let one = policies.by_name(name).unwrap();
    let (weights, facts, request, mut scratch) =
        (one.weights(), candidates(replicas), request(), DecisionScratch::default());
    let mut seed = 0;
    bencher.bench_local(|| {
        seed += 1;
        decide(one, &weights, black_box(&request), black_box(&facts), seed, &mut scratch)
    });
}

fn policies(replicas: u16, term: &str) -> PolicySet {
    let host = Arc::new(PluginHost::new(Path::new(""), None, QuarantineMode::Reported));
    let registry = KindRegistry::built_in().with_loader(host);
    let file = parse_toml(&format!("[[policy.one.term]]\nweight = 1.0\n{term}")).unwrap();
    let Some(ConfigValue::Table(tables)) = file.get("policy").cloned() else { unreachable!() };
    build(&registry, &tables, "one", &fleet(replicas)).policies.unwrap()
}

fn decision(bencher: Bencher<'_, '_>, replicas: u16, term: &str) {
    let policies = policies(replicas, term);
    let one = policies.by_name("one").unwrap();
    let (weights, facts, request, mut scratch) =
        (one.weights(), candidates(replicas), request(), DecisionScratch::default());
    let mut seed = 0;
    bencher.bench_local(|| {
        seed += 1;
        decide(one, &weights, black_box(&request), black_box(&facts), seed, &mut scratch)
    });
}

#[divan::bench(args = REPLICAS)]
fn a_built_in(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, "kind = \"queue\"");
}

#[divan::bench(args = REPLICAS)]
fn b_expression(bencher: Bencher<'_, '_>, replicas: u16) {
    decision(bencher, replicas, "kind = \"expression\"\nunit = \"tokens\"\nsignal = \"queued_uncached_tokens\"");
}

#[divan::bench(args = REPLICAS)]
fn c_longer_expression(bencher: Bencher<'_, '_>, replicas: u16) {
    let signal = "max(0, uncached_tokens - 512) * prefill_ms_per_token + (queued_tokens > 4000 ? 50 : 0)";
    decision(bencher, replicas, &format!("kind = \"expression\"\nunit = \"ms\"\nsignal = \"{signal}\""));
}

#[divan::bench(args = REPLICAS)]
fn d_plugin(bencher: Bencher<'_, '_>, replicas: u16) {
    let library = queue_c();
    decision(bencher, replicas, &format!("kind = \"plugin\"\nlibrary = \"{}\"", library.display()));
}

#[divan::bench(args = FLEETS)]
fn e_predicted_latency_built_in(bencher: Bencher<'_, '_>, replicas: u16) {
    whole(bencher, replicas, None);
}

#[divan::bench(args = FLEETS)]
fn f_predicted_latency_of_expressions(bencher: Bencher<'_, '_>, replicas: u16) {
    whole(bencher, replicas, Some("expressions.toml"));
}

#[divan::bench(args = FLEETS)]
fn g_predicted_latency_of_a_plugin(bencher: Bencher<'_, '_>, replicas: u16) {
    whole(bencher, replicas, Some("plugin.toml"));
}
