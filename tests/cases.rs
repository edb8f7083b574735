//! One decision per case file: facts in, the chosen replica out. `README.md` explains how to write a case.
//!
//! `expect` is a replica; or a list of those that share the choice, all others excluded; or a table of probabilities.
//! `excluded`, if given, is replica → name stored with it, and must list all that are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use gorgo_routing::model::{
    Candidates, ConfigValue, EngineKind, Generation, PolicyWeights, Replica, ReplicaId, RequestView, RttSource,
};
use gorgo_routing::policy::{DecisionScratch, KindRegistry, PRESETS, Policy, RELAXED, build, decide};

/// Decisions per case, each with its own seed: enough that every replica with a chance of 2 % shows.
const SEEDS: u64 = 500;

struct Case {
    file: String,
    table: toml::Table,
    names: Vec<String>,
}

fn cases() -> Vec<Case> {
    let folder = crate::layout::root().join("tests/cases");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let table: toml::Table = text.parse().unwrap_or_else(|cause| panic!("{file}: {cause}"));
        assert!(text.starts_with('#'), "{file} says what it shows");
        let known = ["policy", "weights", "request", "fleet", "window_decisions", "replica", "expect", "excluded"];
        for key in table.keys() {
            assert!(known.contains(&&**key), "{file}: unknown key {key}");
        }
        let names = table["replica"].as_table().unwrap().keys().cloned().collect();
        Case { file, table, names }
    };
    paths.into_iter().map(read).collect()
}

/// The same value without TOML's types.
fn value(toml: &toml::Value) -> ConfigValue {
    match toml {
        toml::Value::Boolean(truth) => ConfigValue::Bool(*truth),
        toml::Value::Integer(whole) => ConfigValue::Integer(*whole),
        toml::Value::Float(number) => ConfigValue::Float(*number),
        toml::Value::String(text) => ConfigValue::Text(text.clone()),
        toml::Value::Array(list) => ConfigValue::List(list.iter().map(value).collect()),
        toml::Value::Table(table) => {
            ConfigValue::Table(table.iter().map(|(key, member)| (key.clone(), value(member))).collect())
        }
        toml::Value::Datetime(_) => panic!("no key takes a date"),
    }
}

fn number(toml: &toml::Value) -> f64 {
    value(toml).number().unwrap()
}

fn whole<T: TryFrom<i64>>(toml: &toml::Value) -> T {
    T::try_from(toml.as_integer().unwrap()).unwrap_or_else(|_| panic!("{toml} is out of range"))
}

impl Case {
    fn replica(&self, name: &str) -> &toml::Table {
        self.table["replica"][name].as_table().unwrap()
    }

    fn fleet(&self) -> Vec<Replica> {
        let names = self.names.iter().zip(0..);
        let replica = |(name, id): (&String, u16)| Replica {
            id: ReplicaId(id),
            name: Arc::from(&**name),
            region: Arc::from(self.replica(name).get("region").map_or(&**name, |region| region.as_str().unwrap())),
            engine: EngineKind::OpenAi,
            kv_capacity_tokens: None,
            decode_batch: None,
        };
        names.map(replica).collect()
    }

    /// The policy that decides, and everything built with it.
    fn policy(&self) -> (gorgo_routing::policy::PolicySet, String) {
        let (tables, name) = match &self.table["policy"] {
            toml::Value::String(name) => (Vec::new(), name.clone()),
            own => {
                let ConfigValue::Table(tables) = value(own) else { panic!("{}: `policy`", self.file) };
                assert_eq!(tables.len(), 1, "{}: one policy per case", self.file);
                let name = tables[0].0.clone();
                (tables, name)
            }
        };
        let checked = build(&KindRegistry::built_in(), &tables, &name, &self.fleet());
        (checked.policies.unwrap_or_else(|| panic!("{}: {:?}", self.file, checked.faults)), name)
    }

    fn weights(&self, policy: &Policy) -> PolicyWeights {
        let mut values = policy.weights().values;
        for (term, weight) in self.table.get("weights").and_then(|weights| weights.as_table()).into_iter().flatten() {
            let slot = policy.terms.iter().position(|known| *known.name == **term);
            values[slot.unwrap_or_else(|| panic!("{}: no term {term}", self.file))] = number(weight);
        }
        PolicyWeights { generation: Generation(0), values }
    }

    fn request(&self) -> RequestView {
        let mut request = RequestView {
            prompt_tokens: 0,
            max_tokens: None,
            body_bytes: 0,
            session_hash: 0,
            head_hash: 0,
            slo_ttft_ms: None,
            decision_number: 0,
        };
        for (key, stated) in self.table.get("request").and_then(|request| request.as_table()).into_iter().flatten() {
            match &**key {
                "prompt_tokens" => request.prompt_tokens = whole(stated),
                "max_tokens" => request.max_tokens = Some(whole(stated)),
                "body_bytes" => request.body_bytes = whole(stated),
                "session" => request.session_hash = whole(stated),
                "head" => request.head_hash = whole(stated),
                "turn" => request.decision_number = whole(stated),
                _ => panic!("{}: request.{key}", self.file),
            }
        }
        request
    }

    /// The facts; those that a replica does not state are unknown, or 0 if they are always known.
    fn facts(&self) -> Candidates {
        let mut facts = Candidates::default();
        facts.reset(self.names.len(), 1);
        let decisions = self.table.get("window_decisions").map_or(0, whole);
        facts.window_decisions[0] = decisions;
        for (key, stated) in self.table.get("fleet").and_then(|fleet| fleet.as_table()).into_iter().flatten() {
            match &**key {
                "answer_tokens" => facts.answer_tokens = number(stated),
                "tail_start_ms" => facts.tail_start_ms = Some(number(stated)),
                _ => panic!("{}: fleet.{key}", self.file),
            }
        }
        for (row, name) in self.names.iter().enumerate() {
            facts.replica[row] = ReplicaId(u16::try_from(row).unwrap());
            // Any hash that differs between replicas will do; the first letter of the name is easy to check by hand.
            facts.name_hash[row] = u64::from(name.as_bytes()[0]);
            facts.rtt_source[row] = RttSource::Probe;
            for (key, stated) in self.replica(name) {
                match &**key {
                    "region" => {}
                    "available" => facts.available[row] = stated.as_bool().unwrap(),
                    "rtt_ms" => facts.rtt_ms[row] = Some(number(stated)),
                    "rtt_p95_ms" => facts.rtt_p95_ms[row] = Some(number(stated)),
                    "network_trips" => facts.network_trips[row] = Some(number(stated)),
                    "cached_tokens" => facts.cached_tokens[row] = whole(stated),
                    "queued_tokens" => facts.queued_tokens[row] = whole(stated),
                    "queued_tokens_first" => facts.queued_tokens_first[row] = whole(stated),
                    "queued_uncached_tokens" => facts.queued_uncached_tokens[row] = whole(stated),
                    "queued_uncached_tokens_completion" => {
                        facts.queued_uncached_tokens_completion[row] = whole(stated);
                    }
                    "inflight" => facts.inflight[row] = whole(stated),
                    "decoding" => facts.decoding[row] = whole(stated),
                    "report_age_ms" => facts.report_age_ms[row] = Some(number(stated)),
                    "inflight_since_report" => facts.inflight_since_report[row] = whole(stated),
                    "engine_running" => facts.engine_running[row] = Some(number(stated)),
                    "engine_waiting" => facts.engine_waiting[row] = Some(number(stated)),
                    "kv_used_tokens" => facts.kv_used_tokens[row] = Some(number(stated)),
                    "kv_used_share" => facts.kv_used_share[row] = Some(number(stated)),
                    "engine_throughput" => facts.engine_throughput[row] = Some(number(stated)),
                    "latency_ms" => facts.latency_ms[row] = Some(number(stated)),
                    "prefill_ms_per_token" => facts.prefill_ms_per_token[row] = Some(number(stated)),
                    "queue_ms_per_token" => facts.queue_ms_per_token[row] = Some(number(stated)),
                    "decode_ms_per_request" => facts.decode_ms_per_request[row] = Some(number(stated)),
                    "backlog_ms" => facts.backlog_ms[row] = number(stated),
                    "likely_uncached_tokens" => facts.likely_uncached_tokens[row] = number(stated),
                    "service_fixed_ms" => facts.service_fixed_ms[row] = number(stated),
                    "service_ms_per_token" => facts.service_ms_per_token[row] = number(stated),
                    "service_ms_per_decoding" => facts.service_ms_per_decoding[row] = number(stated),
                    "itl_alone_ms" => facts.itl_alone_ms[row] = number(stated),
                    "itl_ms_per_request" => facts.itl_ms_per_request[row] = number(stated),
                    "capacity_tokens" => facts.capacity_tokens[row] = whole(stated),
                    "window" => facts.windows[0][row] = number(stated),
                    _ => panic!("{}: replica.{name}.{key}", self.file),
                }
            }
        }
        facts
    }

    /// Decides with many seeds: the probability of each replica, and the exclusions with their reasons.
    fn decided(&self) -> (BTreeMap<&str, f64>, BTreeMap<&str, String>) {
        let (policies, name) = self.policy();
        let policy = policies.by_name(&name).unwrap();
        let (weights, request, facts) = (self.weights(policy), self.request(), self.facts());
        let mut scratch = DecisionScratch::default();
        let (mut chosen, mut excluded) = (BTreeMap::new(), BTreeMap::new());
        for seed in 0..SEEDS {
            let Some(decision) = decide(policy, &weights, &request, &facts, seed, &mut scratch) else { continue };
            chosen.insert(&*self.names[decision.row], decision.propensity);
            for exclusion in &decision.excluded {
                let relaxed = if exclusion.row == decision.row { RELAXED } else { "" };
                let name = format!("{relaxed}{}", policy.constraints[exclusion.constraint_index].name);
                excluded.entry(&*self.names[exclusion.row]).or_insert(name);
            }
        }
        (chosen, excluded)
    }
}

#[test]
fn every_case_is_decided_as_expected() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (chosen, excluded) = case.decided();
        let right = match &case.table["expect"] {
            toml::Value::String(one) => chosen.keys().eq([&&**one]),
            toml::Value::Array(list) => {
                let expected: BTreeSet<&str> = list.iter().map(|name| name.as_str().unwrap()).collect();
                chosen.keys().copied().eq(expected)
            }
            toml::Value::Table(shares) => {
                shares.len() == chosen.len()
                    && shares.iter().all(|(name, share)| {
                        chosen.get(&**name).is_some_and(|chosen| (chosen - number(share)).abs() < 1e-3)
                    })
            }
            other => panic!("{}: expect = {other}", case.file),
        };
        let expected = case.table.get("excluded").and_then(|excluded| excluded.as_table());
        let right_exclusions = expected.is_none_or(|expected| {
            expected.len() == excluded.len()
                && expected.iter().all(|(name, by)| excluded.get(&**name).map(String::as_str) == by.as_str())
        });
        if !right || !right_exclusions {
            wrong.push(format!("{}: chosen {chosen:?}, excluded {excluded:?}", case.file));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_kind_and_every_preset_has_a_case() {
    let registry = KindRegistry::built_in();
    let mut missing: BTreeSet<String> = PRESETS.iter().map(|preset| format!("preset {}", preset.name)).collect();
    missing.extend(registry.terms.iter().map(|kind| format!("term {}", kind.kind)));
    missing.extend(registry.constraints.iter().map(|kind| format!("constraint {}", kind.kind)));
    missing.extend(registry.pickers.iter().map(|kind| format!("picker {}", kind.kind)));
    for case in cases() {
        let (policies, name) = case.policy();
        let policy = policies.by_name(&name).unwrap();
        if case.table["policy"].is_str() {
            missing.remove(&format!("preset {name}"));
        }
        for term in &policy.terms {
            missing.remove(&format!("term {}", term.kind));
        }
        // A case shows a constraint only if the constraint excludes a replica.
        for excluded in case.decided().1.values() {
            missing.remove(&format!("constraint {}", excluded.trim_start_matches(RELAXED)));
        }
        // The gate excludes nothing: a case shows it if its policy has one.
        if policy.admission.is_some() {
            missing.remove("admission admission");
        }
        missing.remove(&format!("picker {}", policy.picker_kind()));
    }
    assert!(missing.is_empty(), "no case in tests/cases/: {missing:?}");
}
