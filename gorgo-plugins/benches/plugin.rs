//! One term three ways, side by side: `queue` as it is built in, as an expression, and as a plugin (in C, the example).
//! Each is one whole decision of a policy with that term alone, so what a way
//! costs is its line less the built-in's.
//!
//! `cargo bench -p gorgo-plugins --features conform --bench plugin`; it needs a C compiler.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use divan::{Bencher, black_box};
use gorgo_plugins::conform::{fleet, invented, request};
use gorgo_plugins::host::{Conduct, Host};
use gorgo_routing::config::parse_toml;
use gorgo_routing::model::Value;
use gorgo_routing::policy::{Policies, Registry, Scratch, build, decide};

const REPLICAS: [u16; 2] = [3, 64];

fn main() {
    divan::main();
}

/// The example in C, compiled as its guide says.
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

fn policies(replicas: u16, term: &str) -> Policies {
    let host = Arc::new(Host::new(Path::new(""), None, Conduct::Reported));
    let registry = Registry::built_in().with_loader(host);
    let file = parse_toml(&format!("[[policy.one.term]]\nweight = 1.0\n{term}")).unwrap();
    let Some(Value::Table(tables)) = file.get("policy").cloned() else { unreachable!() };
    build(&registry, &tables, "one", &fleet(replicas)).policies.unwrap()
}

fn decision(bencher: Bencher<'_, '_>, replicas: u16, term: &str) {
    let policies = policies(replicas, term);
    let one = policies.named("one").unwrap();
    let (weights, facts, request, mut scratch) = (one.weights(), invented(replicas), request(), Scratch::default());
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
