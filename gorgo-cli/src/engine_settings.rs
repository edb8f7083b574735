//! Advice on an engine's own settings, from the constants of its profile: the running limit, the prefill chunk, the
//! order of its queue. Routing cannot make up for bad settings, so they come first.
//!
//! Times are computed from the profile. The latency gains that the texts quote were simulated with the profile
//! `l40s-qwen3.5-35b`, not measured.

use std::fmt::Write as _;

use gorgo_lab::sim::EngineProfile;
use gorgo_routing::config::{ReplicaConfig, SimulatedEngineConfig};
use gorgo_routing::model::EngineKind;
use gorgo_routing::model::engine::{ENGINES, EngineAdapter, EngineSetting};
use serde_json::{Value, json};

/// Prefill chunks of this size and more pay their fixed cost rarely enough, tokens.
const LONG_CHUNK: u32 = 8192;
/// Largest chunk that was simulated, tokens.
const LONGEST_CHUNK: u32 = 16_384;

/// Profile whose figures are quoted for real engines, of which only the kind is known: the one that was simulated.
const STUDIED: &str = "l40s-qwen3.5-35b";

/// Advice on one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SettingAdvice {
    /// Name of the setting, for people.
    setting: &'static str,
    /// The profile's present value.
    now: String,
    /// Advised value; `None`: leave it.
    advised: Option<String>,
    /// Advised value for an engine of which only the kind is known.
    rule: &'static str,
    /// Why, with figures.
    worth: String,
    /// The setting as engines know it, each by its own flag, or none.
    of: EngineSetting,
}

/// Advice for an engine of this profile.
fn advice(profile: &EngineProfile) -> Vec<SettingAdvice> {
    vec![running(profile), chunk(profile), order()]
}

fn running(profile: &EngineProfile) -> SettingAdvice {
    let now = profile.max_running.to_string();
    let setting = "requests running at once";
    let rule = "no more than its largest CUDA graph holds";
    let of = EngineSetting::RunningRequests;
    // Engines replay recorded CUDA graphs for small batches; beyond the largest recorded one every step pays the launch
    // cost of each kernel, which shows as a jump in the profile.
    match profile.beyond_graph.filter(|beyond| beyond.batch < profile.max_running) {
        Some(beyond) => {
            let (most, more) = (beyond.batch, beyond.batch.saturating_add(1));
            let (within, beyond) = (profile.decode_ms(most, 0), profile.decode_ms(more, 0));
            SettingAdvice {
                setting,
                now,
                advised: Some(most.to_string()),
                rule,
                worth: format!(
                    "a decode step of {most} requests takes {within:.1} ms, of {more}, beyond the largest CUDA graph, \
                     {beyond:.1} ms; above the knee the limit keeps p95 of E2E at about 5 s instead of 52 s (Apr 7, \
                     5.3 requests/s), and costs nothing at ordinary load; measure the time between tokens against the batch \
                     first"
                ),
                of,
            }
        }
        None => SettingAdvice {
            setting,
            now,
            advised: None,
            rule,
            worth:
                "this profile has no batch size beyond which a decode step costs much more, and without one a lower \
                    limit gains nothing"
                    .to_owned(),
            of,
        },
    }
}

fn chunk(profile: &EngineProfile) -> SettingAdvice {
    // Every prefill batch costs a fixed time whatever its length, so the fixed share falls as chunks grow.
    let share = |tokens: u32| 100.0 * profile.prefill_batch_ms / profile.prefill_ms(tokens).max(f64::MIN_POSITIVE);
    let (own, long) = (share(profile.chunk_tokens), share(LONGEST_CHUNK));
    // If no more than 5 % of a batch's time is fixed cost, larger chunks gain little.
    let gains = profile.chunk_tokens < LONG_CHUNK && own > 5.0;
    let figures = format!(
        "{:.0} ms of every prefill batch are fixed: {own:.0} % of one of {} tokens, {long:.0} % of one of {LONGEST_CHUNK}",
        profile.prefill_batch_ms, profile.chunk_tokens
    );
    SettingAdvice {
        setting: "prefill chunk, tokens",
        now: profile.chunk_tokens.to_string(),
        advised: gains.then(|| format!("{LONG_CHUNK} to {LONGEST_CHUNK}")),
        rule: "8192 to 16384",
        worth: if gains {
            format!("{figures}; from 4096 to {LONGEST_CHUNK} gave p95 of TTFT −12 %, of E2E −7 % with 80 ms fixed")
        } else {
            format!("{figures}; larger ones gain little")
        },
        of: EngineSetting::PrefillChunk,
    }
}

fn order() -> SettingAdvice {
    SettingAdvice {
        setting: "order of its queue",
        now: "first come, first served".to_owned(),
        advised: Some("longest cached prefix first".to_owned()),
        rule: "longest cached prefix first",
        worth: "near saturation p95 of TTFT × 0.92, of E2E × 0.97; at ordinary load × 0.99 and × 1.00".to_owned(),
        of: EngineSetting::QueueOrder,
    }
}

fn named(setting: EngineSetting) -> String {
    let flag = |engine: &&EngineAdapter| engine.flag(setting).map(|flag| format!("{} {flag}", engine.name));
    ENGINES.iter().filter_map(flag).collect::<Vec<_>>().join("; ")
}

/// Advice for one profile, as text for people.
pub(crate) fn text(profile: &EngineProfile) -> String {
    let mut out = format!(
        "\nthe engine's own settings, by profile {} (gains simulated, not measured); adjust them before any routing\n",
        profile.name
    );
    for SettingAdvice { setting, now, advised, worth, of, .. } in advice(profile) {
        let change = advised.map_or_else(|| format!("{now}, leave it"), |advised| format!("{now} → {advised}"));
        let _ = writeln!(out, "- {setting}: {change}\n  {worth}\n  {}", named(of));
    }
    out
}

/// Advice for one profile, as JSON.
pub(crate) fn document(profile: &EngineProfile) -> Value {
    let one = |advice: SettingAdvice| {
        json!({
            "setting": advice.setting, "now": advice.now, "advised": advice.advised, "worth": advice.worth,
            "flags": named(advice.of),
        })
    };
    advice(profile).into_iter().map(one).collect()
}

/// Notes for the owner of a fleet: one for each kind of engine in it, and one for each profile of simulated engines. Of
/// a real engine only the kind is known, so its note names the value to aim at, with the figures of the engine that was
/// simulated. Kinds without known flags (`llama-cpp`, `openai`) get no note.
pub(crate) fn notes(replicas: &[ReplicaConfig]) -> String {
    let enabled = || replicas.iter().filter(|replica| replica.enabled);
    let mut out = String::new();
    // Real engines, by kind.
    for engine in ENGINES.iter().filter(|engine| !engine.setting_flags.is_empty()) {
        let names: Vec<&str> =
            enabled().filter(|replica| replica.engine == engine.name).map(|replica| replica.name.as_str()).collect();
        let Some(profile) = EngineProfile::find(STUDIED).filter(|_| !names.is_empty()) else { continue };
        let _ = writeln!(
            out,
            "note: gains from {}'s own settings, before any routing ({}); simulated with profile {}, not measured \
             on yours",
            engine.name,
            names.join(", "),
            profile.name
        );
        for SettingAdvice { setting, rule, worth, of, .. } in advice(profile) {
            if let Some(flag) = engine.flag(of) {
                let _ = writeln!(out, "- {setting}: {rule}: {flag}\n  {worth}");
            }
        }
    }
    // Simulated engines, by profile: here the present value is known as well.
    let simulated = SimulatedEngineConfig::default();
    for profile in EngineProfile::names().filter_map(EngineProfile::find) {
        let of_it = enabled().filter(|replica| {
            let settings = replica.simulated.as_ref().unwrap_or(&simulated);
            replica.engine == EngineKind::Simulated.name() && settings.profile == profile.name
        });
        let names: Vec<&str> = of_it.map(|replica| replica.name.as_str()).collect();
        if names.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "note: gains from the own settings of engines with profile {}, before any routing ({}); simulated, not \
             measured",
            profile.name,
            names.join(", ")
        );
        for SettingAdvice { setting, now, advised, worth, .. } in advice(profile) {
            if let Some(advised) = advised {
                let _ = writeln!(out, "- {setting}: {now} → {advised}\n  {worth}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(profile: &str) -> Vec<SettingAdvice> {
        advice(EngineProfile::find(profile).unwrap())
    }

    #[test]
    fn the_papers_engine_is_told_its_graph_batch_and_a_longer_chunk() {
        let all = of("l40s-qwen3.5-35b");
        assert_eq!(all[0].advised.as_deref(), Some("20"));
        assert!(all[0].worth.contains("19.7 ms") && all[0].worth.contains("75.5 ms"), "{}", all[0].worth);
        assert_eq!(all[1].advised.as_deref(), Some("8192 to 16384"));
        assert!(
            all[1].worth.contains("24 % of one of 4096") && all[1].worth.contains("7 % of one of 16384"),
            "{}",
            all[1].worth
        );
    }

    #[test]
    fn where_nothing_is_gained_nothing_is_advised() {
        let h100 = of("h100-qwen3.5-35b");
        assert_eq!((h100[0].advised.as_deref(), h100[1].advised.as_deref()), (Some("20"), None));
        let mixed = of("mixed-2048");
        assert_eq!((mixed[0].advised.as_deref(), mixed[1].advised.as_deref()), (None, None));
        // A limit within the graphs has no cliff to keep away from.
        let l40s = EngineProfile::find("l40s-qwen3.5-35b").unwrap();
        assert_eq!(advice(&EngineProfile { max_running: 20, ..l40s.clone() })[0].advised, None);
    }

    #[test]
    fn each_kind_of_engine_in_use_has_its_note() {
        let replica = |name: &str, engine: &str, enabled: bool, profile: Option<&str>| ReplicaConfig {
            name: name.to_owned(),
            enabled,
            region: None,
            engine: engine.to_owned(),
            kv_events: None,
            kv_replay: None,
            url: None,
            http: gorgo_routing::config::HttpVersion::Http1,
            models: Vec::new(),
            api_key_env: None,
            kv_capacity_tokens: None,
            decode_batch: None,
            simulated: profile.map(|profile| SimulatedEngineConfig {
                profile: profile.to_owned(),
                ..SimulatedEngineConfig::default()
            }),
        };
        let fleet = [
            replica("a", "sglang", true, None),
            replica("b", "vllm", true, None),
            replica("c", "sglang", true, None),
            replica("off", "vllm", false, None),
            replica("d", "llama-cpp", true, None),
            replica("e", "simulated", true, Some("mixed-2048")),
        ];
        insta::assert_snapshot!(notes(&fleet));
        assert_eq!(notes(&fleet[3..5]), "");
    }
}
