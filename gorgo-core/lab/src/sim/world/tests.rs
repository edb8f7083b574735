//! Invariants of the whole world: determinism, conservation, bounds, faults; and one request whose times are computed
//! by hand.

mod gate;
mod tuned;

use std::sync::Arc;

use super::*;
use crate::trace::{RunSummary, ShapeOptions, read, shape};
use gorgo_routing::config::{FailoverConfig, IndexConfig, ProbeConfig, ReplicaConfig, ScrapeConfig};
use gorgo_routing::model::{ErrorClass, Replica, TokenUsage};
use gorgo_routing::policy::{KindRegistry, PRESETS, PolicySet, build};

/// Three replicas as in the GORGO paper.
fn fleet() -> Vec<ReplicaSpec> {
    let section = |name: &str, rtt_ms: f64| {
        let text = format!(
            "name = \"{name}\"\nengine = \"simulated\"\nsimulated = {{ rtt_ms = {rtt_ms:.1}, profile = \"l40s-qwen3.5-35b\", speed = 1.0 }}"
        );
        toml::from_str::<ReplicaConfig>(&text).unwrap()
    };
    replica_specs(&[section("near", 37.0), section("middle", 279.0), section("far", 456.0)]).unwrap()
}

fn policies(members: &[ReplicaSpec]) -> PolicySet {
    let fleet: Vec<Replica> = members.iter().map(|member| member.replica.clone()).collect();
    build(&KindRegistry::built_in(), &[], "gorgo", &fleet).policies.unwrap()
}

/// Conversations that grow turn by turn, three requests a second, with pings between.
fn conversations(requests: usize) -> SimulatedWorkload {
    let mut text = String::new();
    for number in 0..requests {
        let (conversation, turn) = (number % 17, number / 17);
        let ping = number % 3 == 0;
        let blocks = if ping { 1 } else { 8 + turn % 40 };
        let ids: Vec<usize> = (0..blocks).map(|block| conversation * 100 + block + 1).collect();
        let input = if ping { 17 } else { blocks * 256 };
        text += &format!(
            "{{\"timestamp\":{},\"input_length\":{input},\"output_length\":{},\"hash_ids\":{ids:?},\"conversation\":{conversation}}}\n",
            number * 333,
            20 + number % 90,
        );
    }
    SimulatedWorkload::new(shape(read(text.as_bytes(), None).unwrap(), &ShapeOptions::default()))
}

/// A single prompt without any other traffic.
fn single(input: u32, output: u32) -> SimulatedWorkload {
    let text = format!("{{\"timestamp\":0,\"input_length\":{input},\"output_length\":{output}}}\n");
    SimulatedWorkload::new(shape(read(text.as_bytes(), None).unwrap(), &ShapeOptions::default()))
}

fn setup<'a>(
    workload: &'a SimulatedWorkload,
    members: &'a [ReplicaSpec],
    scenario: &'a Scenario,
) -> SimulationSetup<'a> {
    SimulationSetup {
        workload,
        replicas: members,
        scenario,
        max_in_flight: Some(64),
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
        failover: FailoverConfig::default(),
    }
}

fn run(setup: &SimulationSetup<'_>, policy: &str, seed: u64) -> SimulationResult {
    let policies = policies(setup.replicas);
    let id = policies.index_of(policy).unwrap();
    simulate(setup, DecisionMaker::Policy(policies, id), seed).unwrap()
}

fn scenario(text: &str) -> Scenario {
    Scenario::parse(text, &["near", "middle", "far"], &["gorgo"]).unwrap()
}

fn close(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() < 0.01)
}

#[test]
fn one_request_takes_its_way_its_prefill_and_its_tokens() {
    let (workload, members) = (single(10_000, 11), fleet());
    let scenario = Scenario { network: NetworkModel::steady(), ..Scenario::default() };
    let run = run(&setup(&workload, &members, &scenario), "gorgo", 1);
    // The nearest replica: 37 ms of round trip, 34 ms outside the GPU, three chunks of 80 ms, 0.062 ms per token; then
    // ten decode steps of 8.3 ms.
    let ttft = 37.0 + 34.0 + 240.0 + 620.0;
    let sample = &run.samples[0];
    assert_eq!(sample.replica.as_deref(), Some("near"));
    assert!(close(sample.ttft_ms, ttft) && close(Some(sample.e2e_ms), ttft + 83.0), "{sample:?}");
    assert!(close(sample.itl_ms, 8.3) && close(Some(run.bounds_ms[0]), ttft), "{sample:?} {:?}", run.bounds_ms);
    assert_eq!((sample.usage.cached_tokens, sample.usage.completion_tokens), (Some(0), Some(11)));
    assert_eq!((sample.status, sample.error, sample.content_events), (Some(200), None, 11));
}

#[test]
fn the_same_seed_is_the_same_run_and_another_is_another() {
    let (workload, members, scenario) = (conversations(300), fleet(), Scenario::default());
    let setup = setup(&workload, &members, &scenario);
    for policy in ["gorgo", "random", "power-of-two", "session-affinity", "least-load"] {
        let first = run(&setup, policy, 5);
        assert_eq!(first, run(&setup, policy, 5), "{policy}");
        assert_ne!(first.samples, run(&setup, policy, 6).samples, "{policy}");
    }
}

#[test]
fn every_request_has_one_sample_and_the_router_counts_nothing_at_the_end() {
    let (workload, members, calm) = (conversations(400), fleet(), Scenario::default());
    let storm = scenario(
        "[[fault]]\nat_s = 20\nreplica = \"near\"\nkind = \"down\"\nfor_s = 30\n\
         [[fault]]\nat_s = 60\nreplica = \"middle\"\nkind = \"restart\"\n\
         [[fault]]\nat_s = 80\nreplica = \"near\"\nkind = \"restart\"\nfor_s = 5\n\
         [[fault]]\nat_s = 90\nreplica = \"far\"\nkind = \"link-spike\"\nfactor = 9.0\nfor_s = 20\n",
    );
    for scenario in [&calm, &storm] {
        let setup = setup(&workload, &members, scenario);
        for preset in PRESETS {
            let run = run(&setup, preset.name, 3);
            let mut rows: Vec<usize> = run.samples.iter().map(|sample| sample.row).collect();
            rows.sort_unstable();
            assert!(rows.iter().copied().eq(0..400), "{}", preset.name);
            assert_eq!((run.leftover_load, run.bounds_ms.len()), ((0, 0, 0), 400), "{}", preset.name);
            let failed = run.samples.iter().filter(|sample| sample.error.is_some()).count();
            assert!(if *scenario == calm { failed == 0 } else { failed < 60 }, "{}: {failed}", preset.name);
        }
        let greedy = simulate(&setup, DecisionMaker::Clairvoyant, 3).unwrap();
        assert_eq!((greedy.samples.len(), greedy.leftover_load), (400, (0, 0, 0)));
    }
}

#[test]
fn no_request_is_faster_than_its_bound() {
    let (workload, members) = (conversations(500), fleet());
    for text in ["", "[network]\nupload_mbps = 50.0\nslow_start = true\n"] {
        let scenario = scenario(text);
        let setup = setup(&workload, &members, &scenario);
        for chooser in [DecisionMaker::Clairvoyant, {
            let policies = policies(&members);
            let id = policies.index_of("gorgo").unwrap();
            DecisionMaker::Policy(policies, id)
        }] {
            let run = simulate(&setup, chooser, 9).unwrap();
            for (sample, bound) in run.samples.iter().zip(&run.bounds_ms) {
                assert!(sample.ttft_ms.unwrap() >= bound - 0.01, "{sample:?} {bound}");
            }
        }
    }
}

#[test]
fn the_clairvoyant_is_ahead_of_random_and_caches_are_used() {
    let (workload, members, scenario) = (conversations(500), fleet(), Scenario::default());
    let setup = setup(&workload, &members, &scenario);
    let random = RunSummary::from_samples(&run(&setup, "random", 2).samples);
    let greedy = RunSummary::from_samples(&simulate(&setup, DecisionMaker::Clairvoyant, 2).unwrap().samples);
    assert!(greedy.all.ttft.p50 < random.all.ttft.p50 && greedy.all.ttft.p95 < random.all.ttft.p95);
    assert!(greedy.hit_rate > random.hit_rate && random.hit_rate > Some(0.3), "{:?}", random.hit_rate);
}

#[test]
fn the_client_holds_back_what_is_over_its_limit_and_says_so() {
    let text: String = (0..20).map(|_| "{\"timestamp\":0,\"input_length\":4000,\"output_length\":50}\n").collect();
    let workload = SimulatedWorkload::new(shape(read(text.as_bytes(), None).unwrap(), &ShapeOptions::default()));
    let (members, scenario) = (fleet(), Scenario::default());
    let capped = SimulationSetup { max_in_flight: Some(4), ..setup(&workload, &members, &scenario) };
    let held = run(&capped, "round-robin", 1);
    let micros = |ms: f64| (ms * 1e3).round();
    let mut changes: Vec<(f64, i32)> = held
        .samples
        .iter()
        .flat_map(|one| [(micros(one.sent_ms), 1), (micros(one.sent_ms + one.e2e_ms), -1)])
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let most = changes.iter().scan(0, |now, change| {
        *now += change.1;
        Some(*now)
    });
    assert_eq!(most.max(), Some(4));
    assert_eq!(held.samples.iter().filter(|sample| sample.slot_wait_ms > 0.0).count(), 16);
    let open = SimulationSetup { max_in_flight: None, ..capped };
    assert!(run(&open, "round-robin", 1).samples.iter().all(|sample| sample.slot_wait_ms == 0.0));
}

#[test]
fn a_replica_that_is_down_fails_what_it_has_and_gets_nothing_once_its_probes_say_so() {
    let (workload, members) = (conversations(400), fleet());
    let scenario = scenario("[[fault]]\nat_s = 30\nreplica = \"near\"\nkind = \"down\"\nfor_s = 60\n");
    let run = run(&setup(&workload, &members, &scenario), "round-robin", 4);
    let at_near = |from: f64, to: f64| {
        let sent = |sample: &&crate::trace::RequestSample| (from..to).contains(&sample.sent_ms);
        run.samples.iter().filter(sent).filter(|sample| sample.replica.as_deref() == Some("near")).count()
    };
    // After three probes of 2 s it counts as down, after two more as up.
    assert!(at_near(0.0, 29_000.0) > 20 && at_near(96_000.0, 130_000.0) > 20);
    assert_eq!(at_near(38_000.0, 90_000.0), 0);
    let retried = run.samples.iter().filter(|one| (30_000.0..38_000.0).contains(&one.sent_ms) && one.error.is_none());
    assert!(retried.count() > 15, "what is refused is tried elsewhere");
}

#[test]
fn a_stream_that_has_begun_breaks_when_its_replica_goes_down_and_is_not_tried_again() {
    let (workload, members) = (single(1_000, 600), fleet());
    let scenario = scenario("[[fault]]\nat_s = 2\nreplica = \"near\"\nkind = \"down\"\n");
    let run = run(&setup(&workload, &members, &scenario), "gorgo", 4);
    let sample = &run.samples[0];
    assert_eq!((sample.error, sample.status), (Some(ErrorClass::UpstreamAborted), Some(200)));
    assert!(
        sample.ttft_ms.is_some() && sample.usage == TokenUsage::default() && run.leftover_load == (0, 0, 0),
        "{sample:?}"
    );
    assert!((1_990.0..2_100.0).contains(&sample.e2e_ms), "{}", sample.e2e_ms);
}

#[test]
fn a_restarted_engine_has_an_empty_cache_and_a_slow_one_takes_longer() {
    let text: String = (0..40)
        .map(|number| {
            let at = number * 5_000;
            format!("{{\"timestamp\":{at},\"input_length\":8192,\"output_length\":2,\"hash_ids\":{:?}}}\n", [7; 16])
        })
        .collect();
    let workload = SimulatedWorkload::new(shape(read(text.as_bytes(), None).unwrap(), &ShapeOptions::default()));
    let members = fleet();
    let mut faulty = scenario(
        "[[fault]]\nat_s = 101\nreplica = \"near\"\nkind = \"restart\"\n\
         [[fault]]\nat_s = 151\nreplica = \"near\"\nkind = \"slow\"\nfactor = 3.0\nfor_s = 22\n\
         [[fault]]\nat_s = 181\nreplica = \"near\"\nkind = \"rtt-step\"\nfactor = 2.0\n",
    );
    faulty.network = NetworkModel::steady();
    let run = run(&setup(&workload, &members[..1], &faulty), "gorgo", 4);
    let cold: Vec<usize> =
        run.samples.iter().filter(|sample| sample.usage.cached_tokens == Some(0)).map(|sample| sample.row).collect();
    assert_eq!(cold, [0, 21]);
    let itl = |row: usize| run.samples[row].itl_ms;
    assert!(close(itl(5), 8.3) && close(itl(32), 24.9) && close(itl(36), 8.3), "{:?} {:?}", itl(5), itl(32));
    let slower = run.samples[38].ttft_ms.unwrap() - run.samples[35].ttft_ms.unwrap();
    assert!((slower - 37.0).abs() < 0.01, "{slower}");
}

#[test]
fn a_prompt_longer_than_any_cache_is_refused_by_the_engine_and_not_tried_again() {
    let (workload, members, scenario) = (single(800_000, 2), fleet(), Scenario::default());
    let run = run(&setup(&workload, &members, &scenario), "gorgo", 1);
    let sample = &run.samples[0];
    assert_eq!((sample.error, sample.status, run.leftover_load), (Some(ErrorClass::ClientError), Some(400), (0, 0, 0)));
}

#[test]
fn a_fleet_that_cannot_be_is_refused() {
    let section = |more: &str| toml::from_str(&format!("name = \"a\"\nengine = \"sglang\"\n{more}")).unwrap();
    let none = replica_specs(&[section("enabled = false")]).unwrap_err().to_string();
    assert_eq!(none, "no replica is enabled; enable at least one [[replica]]");
    let unknown = section("simulated = { profile = \"abacus\" }");
    assert!(
        replica_specs(&[unknown])
            .unwrap_err()
            .to_string()
            .starts_with("replica a: unknown profile \"abacus\"; known: ")
    );
    let real = replica_specs(&[section("url = \"http://10.0.0.1:1\"")]).unwrap();
    assert!(!real[0].has_simulation_settings && real[0].models.is_empty() && real[0].replica.name == Arc::from("a"));
}
