//! The built-in policy `predicted-latency`, its copy written with expressions and its copy from a plugin, on decisions
//! recorded from a running router: they decide alike, bit for bit.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use gorgo_plugins::host::{PluginHost, QuarantineMode};
use gorgo_routing::config::{IndexConfig, ProbeConfig, ScrapeConfig, parse_toml};
use gorgo_routing::model::{
    Candidates, ConfigValue, DecisionId, EngineKind, EngineReport, FleetEvent, ParamValues, ParsedRequest, Replica,
    ReplicaId, RequestOutcome, RequestView, RequiredFacts, TokenUsage, Unit, UnixMicros,
};
use gorgo_routing::policy::{
    DecisionContext, DecisionScratch, KindRegistry, PluginLoader, PolicySet, Reservation, Router, RouterSetup, build,
    decide,
};
use gorgo_routing::score::term::TERMS;
use gorgo_routing::score::{CostTerm, TermKind};

use crate::bench::{built, root, table, text};

const SEED: u64 = 0x5eed_2026;
const DECISIONS: usize = 10_000;
const REPLICAS: u16 = 8;

/// Facts seen by the term `recorder`, the only term of a shadow: a shadow gets exactly the facts of the decision.
static SEEN: Mutex<Vec<(RequestView, Candidates)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Recorder;

impl CostTerm for Recorder {
    fn needs(&self) -> RequiredFacts {
        RequiredFacts::ALL
    }

    fn signal(&self, request: &RequestView, candidates: &Candidates, out: &mut [Option<f64>]) {
        SEEN.lock().unwrap().push((*request, candidates.clone()));
        out.fill(Some(0.0));
    }
}

static RECORDER: TermKind = TermKind {
    kind: "recorder",
    unit: Some(Unit::Millis),
    summary: "keeps the facts of each decision",
    spreads: true,
    params: &[],
    build: |_, _| Ok(Box::new(Recorder)),
};

fn fleet() -> Vec<Replica> {
    let replica = |id: u16| Replica {
        id: ReplicaId(id),
        name: Arc::from(format!("replica-{id}")),
        region: Arc::from(["eu", "us", "ap"][usize::from(id) % 3]),
        engine: EngineKind::Vllm,
        kv_capacity_tokens: Some(400_000),
        decode_batch: id.is_multiple_of(2).then_some(24),
    };
    (0..REPLICAS).map(replica).collect()
}

/// The one policy of an example's file.
fn example(file: &str) -> (String, ConfigValue) {
    let path = root().join("gorgo-plugins/examples/predicted_latency").join(file);
    let text = fs::read_to_string(&path).unwrap();
    let Some(ConfigValue::Table(policies)) = parse_toml(&text).unwrap().get("policy").cloned() else { unreachable!() };
    policies.into_iter().next().unwrap()
}

/// The built-in policy, its two copies, and one that is driven with the recorder as its shadow.
fn policies() -> PolicySet {
    let mut registry = KindRegistry::built_in();
    registry.terms.push(&RECORDER);
    let registry = registry.with_loader(Arc::new(PluginHost::new(built(), None, QuarantineMode::Enforced)));
    let (expressions, plugin) = (example("expressions.toml"), example("plugin.toml"));
    let ConfigValue::Table(mut driven) = expressions.1.clone() else { unreachable!() };
    driven.push(("shadow".to_owned(), ConfigValue::List(vec![text("recording")])));
    let recording = table(&[("term", ConfigValue::List(vec![table(&[("kind", text("recorder"))])]))]);
    let tables =
        [expressions, plugin, ("driven".to_owned(), ConfigValue::Table(driven)), ("recording".to_owned(), recording)];
    let checked = build(&registry, &tables, "driven", &fleet());
    assert!(!checked.faults.has_faults(), "{:?}", checked.faults);
    checked.policies.unwrap()
}

/// Splitmix64: the same numbers from the same seed, on any machine.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }
}

/// A request in flight.
struct Flight {
    reservation: Option<Reservation>,
    prompt: ParsedRequest,
    replica: usize,
    ending: RequestOutcome,
    first_token: u64,
    end: u64,
    began: bool,
}

/// Processes all events before `now`, µs.
fn settle(router: &Router, flights: &mut Vec<Flight>, now: u64) {
    for flight in flights.iter_mut().filter(|flight| !flight.began && flight.first_token <= now) {
        router.first_token(flight.reservation.as_mut().unwrap(), UnixMicros(flight.first_token));
        flight.began = true;
    }
    flights.retain_mut(|flight| {
        let ends = flight.end <= now;
        if ends && let Some(reservation) = flight.reservation.take() {
            router.finish(reservation, &flight.prompt, &flight.ending, UnixMicros(flight.end));
        }
        !ends
    });
}

fn observe(router: &Router, flights: &[Flight], now: u64, chance: &mut Chance) {
    for id in 0..REPLICAS {
        let jitter = f64::from(u32::try_from(chance.below(900)).unwrap()) / 100.0;
        let probe = chance.below(50) != 0;
        let rtt_ms = probe.then(|| 15.0 + 31.0 * f64::from(id) + jitter);
        router.apply(&FleetEvent::Probe { replica: ReplicaId(id), at: UnixMicros(now), rtt_ms });
        let running = flights.iter().filter(|flight| flight.replica == usize::from(id)).count();
        let running = f64::from(u32::try_from(running).unwrap());
        let report = EngineReport {
            running: Some(running),
            waiting: Some((running - 16.0).max(0.0)),
            kv_used_share: Some((running / 64.0).min(1.0)),
            kv_used_tokens: Some(running * 2_000.0),
            throughput: Some(running * 31.0),
            ..EngineReport::default()
        };
        router.apply(&FleetEvent::Report { replica: ReplicaId(id), at: UnixMicros(now), report });
    }
}

/// Drives a router with growing sessions, in waves of load, and returns the facts of each decision.
fn recorded(policies: PolicySet) -> Vec<(RequestView, Candidates)> {
    let driven = policies.default;
    let setup = RouterSetup {
        fleet: fleet(),
        models: vec![vec![Arc::from("m")]; usize::from(REPLICAS)],
        secret: 7,
        index: IndexConfig::default(),
        probe: ProbeConfig::default(),
        scrape: ScrapeConfig::default(),
    };
    let router = Router::new(setup, policies);
    let mut chance = Chance(SEED);
    let mut sessions: Vec<String> = vec![String::new(); 60];
    let (mut flights, mut free_at) = (Vec::new(), [0_u64; REPLICAS as usize]);
    let (mut now, mut looked) = (1_000_000_000_u64, 0);
    for number in 0..DECISIONS {
        let rush = number / 500 % 2 == 1;
        now += chance.below(if rush { 12_000 } else { 90_000 });
        settle(&router, &mut flights, now);
        // The first decisions are made without any measurement of the fleet.
        if number > 40 && now > looked + 500_000 {
            observe(&router, &flights, now, &mut chance);
            looked = now;
        }
        let session = usize::try_from(chance.below(60)).unwrap();
        if sessions[session].len() > 6_000 || chance.below(9) == 0 {
            sessions[session].clear();
        }
        let grown = format!(
            "session {session}, turn {number}: {} ",
            "so it goes on ".repeat(4 + usize::try_from(chance.below(60)).unwrap())
        );
        sessions[session].push_str(&grown);
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#, sessions[session]);
        let prompt = router.parse_request("/v1/chat/completions", body.as_bytes(), None, None).unwrap();
        let id = DecisionId(i64::try_from(number).unwrap());
        let context = DecisionContext { policy: driven, id, seed: number as u64, at: UnixMicros(now), exclude: &[] };
        let routed = router.decide(&prompt, &context).expect("somebody serves each decision");
        let replica = routed.decision.row;
        let tokens = routed.record.prompt_tokens;
        let cached = routed.predicted_cached_tokens.min(tokens) / 8 * u32::try_from(6 + chance.below(3)).unwrap();
        let prefill_us = 20_000 + u64::from(tokens - cached) * (60 + 25 * replica as u64);
        free_at[replica] = free_at[replica].max(now) + prefill_us;
        let first_token = free_at[replica] + (15 + 31 * replica as u64) * 1_000;
        let answer = 20 + chance.below(180);
        let end = first_token + answer * (9_000 + 400 * flights.len() as u64 / u64::from(REPLICAS));
        let ending = RequestOutcome {
            usage: TokenUsage {
                prompt_tokens: Some(tokens),
                cached_tokens: Some(cached),
                completion_tokens: u32::try_from(answer).ok(),
            },
            ttft_ms: Some(UnixMicros(first_token).millis_since(UnixMicros(now))),
            completed: chance.below(40) != 0,
        };
        let reservation = Some(routed.reservation);
        flights.push(Flight { reservation, prompt, replica, ending, first_token, end, began: false });
    }
    std::mem::take(&mut SEEN.lock().unwrap())
}

/// All terms except the last: built in, as an expression, and from a plugin. Called one by one, they show their signals
/// before rounding.
fn unrounded() -> Vec<[Box<dyn CostTerm>; 3]> {
    let host = PluginHost::new(built(), None, QuarantineMode::Enforced);
    let terms = |file| {
        let Some(ConfigValue::List(terms)) = example(file).1.get("term").cloned() else { unreachable!() };
        terms
    };
    let (expressions, plugins) = (terms("expressions.toml"), terms("plugin.toml"));
    let params = |values| ParamValues { values };
    let pick = |table: &ConfigValue, key: &'static str| (key, table.get(key).unwrap().clone());
    let kinds = ["rtt", "backlog", "compute", "stall", "answer"];
    let rows = kinds.iter().zip(expressions).zip(plugins).map(|((name, expression), plugin)| {
        let kind = |name: &str| TERMS.iter().find(|kind| kind.kind == name).unwrap().build;
        let stall = params(vec![("batch_ms", ConfigValue::Float(80.0)), ("crowd_requests", ConfigValue::Float(10.0))]);
        let of_plugin = params(vec![pick(&plugin, "library"), pick(&plugin, "options")]);
        [
            kind(name)(&stall, &fleet()).unwrap(),
            kind("expression")(&params(vec![pick(&expression, "signal")]), &fleet()).unwrap(),
            host.term(&of_plugin, &fleet()).unwrap().term,
        ]
    });
    rows.collect()
}

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

#[test]
fn expressions_and_a_plugin_decide_as_the_default_policy_does_in_every_bit() {
    println!("{DECISIONS} decisions from seed {SEED:#x}");
    let policies = policies();
    let seen = recorded(self::policies());
    assert_eq!(seen.len(), DECISIONS);
    let ways = ["predicted-latency", "expressions", "plugin"].map(|name| policies.by_name(name).unwrap());
    let weights = ways.map(|way| way.weights());
    let unrounded = unrounded();
    let mut scratch = DecisionScratch::default();
    let (mut chosen, mut excluded, mut tails, mut unknown, mut crowded) = (BTreeSet::new(), 0, 0, 0, 0);
    for (number, (request, facts)) in seen.iter().enumerate() {
        let decisions = [0, 1, 2].map(|way| {
            decide(ways[way], &weights[way], request, facts, number as u64, &mut scratch).expect("somebody is chosen")
        });
        for (way, other) in decisions.iter().enumerate().skip(1) {
            let (name, first) = (&ways[way].name, &decisions[0]);
            assert_eq!((other.row, other.ties), (first.row, first.ties), "{name}, decision {number}");
            assert_eq!(bits(&other.signals), bits(&first.signals), "{name}, decision {number}");
            assert_eq!(bits(&other.costs), bits(&first.costs), "{name}, decision {number}");
            assert_eq!(bits(&other.totals), bits(&first.totals), "{name}, decision {number}");
            assert_eq!(other.excluded, first.excluded, "{name}, decision {number}");
            assert_eq!(
                (&other.void_terms, other.propensity.to_bits()),
                (&first.void_terms, first.propensity.to_bits())
            );
        }
        // Signals are rounded before they are stored; before that they must be equal as well. `tail-start` is not
        // compared: the built-in term replaces an unknown value itself, the expression by the policy's `unknown`.
        for (slot, terms) in unrounded.iter().enumerate() {
            let raw = terms.each_ref().map(|way| {
                let mut out = vec![None; facts.len()];
                assert!(way.try_signal(request, facts, &mut out));
                out.iter().map(|signal| signal.map(f64::to_bits)).collect::<Vec<_>>()
            });
            assert!(raw[1] == raw[0] && raw[2] == raw[0], "term {slot}, decision {number}: {raw:?}");
        }
        chosen.insert(decisions[0].row);
        excluded += usize::from(!decisions[0].excluded.is_empty());
        tails += usize::from(facts.tail_start_ms.is_some());
        unknown += usize::from(facts.rtt_ms.iter().any(Option::is_none));
        crowded += usize::from(facts.mean_inflight() > 11.0);
    }
    println!(
        "{chosen:?} chosen; {excluded} with somebody excluded, {tails} with a tail, {unknown} with unknown round trips, {crowded} crowded"
    );
    assert_eq!(chosen.len(), usize::from(REPLICAS), "each replica is chosen at times");
    assert!(tails > 5_000 && tails < DECISIONS && unknown > 20 && excluded > 100 && crowded > 100);
}

/// Keeps the copies in step with the policy that they copy.
#[test]
fn the_copies_have_the_terms_and_weights_of_the_default_policy() {
    let policies = policies();
    let of = |name: &str| {
        let policy = policies.by_name(name).unwrap();
        let terms = policy.terms.iter().map(|term| (term.name.to_string(), term.weight.init, term.unit));
        terms.collect::<Vec<_>>()
    };
    assert_eq!(of("expressions"), of("predicted-latency"));
    assert_eq!(of("plugin"), of("predicted-latency"));
    assert!(Path::new(built()).join("libgorgo_scorer_predicted_latency.so").exists());
}
