//! Simulated requests per second: conversations with prompts of about 7,000 tokens, and a third of the requests tiny
//! probes, as in the traces of the GORGO paper; by the number of requests, and by the number of replicas at the same
//! load per replica.
//!
//! Run with `cargo bench -p gorgo-lab --bench simulate`. The goal is a million requests per minute on one core with
//! three replicas: 60 µs each.
#![expect(clippy::unwrap_used, reason = "a benchmark may stop")]

use std::fmt::Write;

use divan::Bencher;
use divan::counter::ItemsCount;
use gorgo_lab::sim::world::{
    DecisionMaker, ReplicaSpec, Scenario, SimulatedWorkload, SimulationSetup, replica_specs, simulate,
};
use gorgo_lab::trace::{ShapeOptions, read, shape};
use gorgo_routing::config::{FailoverConfig, IndexConfig, ProbeConfig, ReplicaConfig, ScrapeConfig};
use gorgo_routing::model::Replica;
use gorgo_routing::policy::{KindRegistry, build};

fn main() {
    divan::main();
}

/// Two requests per second for every three replicas, in conversations that grow by 300 tokens per turn, up to 30 turns.
fn conversations(requests: usize, replicas: usize) -> SimulatedWorkload {
    let mut text = String::new();
    let parallel = 20 * replicas;
    for number in 0..requests {
        let (place, round) = (number % parallel, number / parallel);
        let (conversation, turn) = (place + parallel * (round / 30), round % 30);
        let ping = number.is_multiple_of(3);
        let input = if ping { 17 } else { 5_000 + turn * 300 };
        let first = if ping { 1 } else { 1_000 * (conversation + 1) };
        let ids: Vec<usize> = (first..first + input.div_ceil(256)).collect();
        let at = number * 1_500 / replicas;
        let output = 30 + number % 99;
        writeln!(
            text,
            "{{\"timestamp\":{at},\"input_length\":{input},\"output_length\":{output},\"hash_ids\":{ids:?},\"conversation\":{conversation}}}"
        )
        .unwrap();
    }
    SimulatedWorkload::new(shape(read(text.as_bytes(), Some(256)).unwrap(), &ShapeOptions::default()))
}

fn fleet(replicas: usize) -> Vec<ReplicaSpec> {
    let section = |place: usize| {
        let rtt_ms = [37.0, 279.0, 456.0][place % 3];
        let text = format!("name = \"r{place}\"\nengine = \"simulated\"\nsimulated = {{ rtt_ms = {rtt_ms:.1} }}");
        toml::from_str::<ReplicaConfig>(&text).unwrap()
    };
    replica_specs(&(0..replicas).map(section).collect::<Vec<_>>()).unwrap()
}

fn bench(bencher: Bencher<'_, '_>, policy: &str, requests: usize, replicas: usize) {
    let (workload, members, scenario) = (conversations(requests, replicas), fleet(replicas), Scenario::default());
    let setup = SimulationSetup {
        workload: &workload,
        replicas: &members,
        scenario: &scenario,
        max_in_flight: None,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
        failover: FailoverConfig::default(),
    };
    let fleet: Vec<Replica> = members.iter().map(|member| member.replica.clone()).collect();
    bencher.counter(ItemsCount::new(requests)).bench(|| {
        let policies = build(&KindRegistry::built_in(), &[], "gorgo", &fleet).policies.unwrap();
        let id = policies.index_of(policy).unwrap();
        simulate(&setup, DecisionMaker::Policy(policies, id), 1).unwrap()
    });
}

#[divan::bench(args = [5_000, 20_000], sample_count = 3)]
fn requests(bencher: Bencher<'_, '_>, requests: usize) {
    bench(bencher, "gorgo", requests, 3);
}

#[divan::bench(args = [3, 32, 256], sample_count = 3)]
fn replicas(bencher: Bencher<'_, '_>, replicas: usize) {
    bench(bencher, "gorgo", 5_000, replicas);
}

#[divan::bench(args = ["random", "session-affinity"], sample_count = 3)]
fn policies(bencher: Bencher<'_, '_>, policy: &str) {
    bench(bencher, policy, 5_000, 3);
}
