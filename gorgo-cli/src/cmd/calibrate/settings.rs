//! What an engine's own settings are worth, from the constants of its profile: the running limit, the prefill chunk, the
//! order of its queue. Routing cannot make up for them, so they come first.
//!
//! Times are computed from the profile; what they gain in latency was simulated, not measured. Source: design study on
//! late binding and the decode gate, sections 1, 2, 4 and 6.

use std::fmt::Write as _;

use gorgo_core::sim::Profile;
use serde_json::{Value, json};

/// A prefill chunk from here on pays its fixed cost seldom enough, tokens.
const LONG_CHUNK: u32 = 8192;
/// The chunk that the study ends with, tokens.
const LONGEST_CHUNK: u32 = 16_384;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// What is set.
    pub(super) setting: &'static str,
    /// As the profile has it.
    pub(super) now: String,
    /// What to set it to; `None`: leave it.
    pub(super) advised: Option<String>,
    /// Why, with figures.
    pub(super) worth: String,
    /// How engines call it.
    pub(super) flags: &'static str,
}

/// Advice for an engine of this profile.
pub(super) fn advice(profile: &Profile) -> Vec<Advice> {
    vec![running(profile), chunk(profile), order()]
}

fn running(profile: &Profile) -> Advice {
    let now = profile.max_running.to_string();
    let (setting, flags) = (
        "requests running at once",
        "SGLang --max-running-requests (graphs: --cuda-graph-max-bs); vLLM --max-num-seqs",
    );
    match profile.beyond_graph.filter(|beyond| beyond.batch < profile.max_running) {
        Some(beyond) => {
            let (most, more) = (beyond.batch, beyond.batch.saturating_add(1));
            let (within, beyond) = (profile.decode_ms(most, 0), profile.decode_ms(more, 0));
            Advice {
                setting,
                now,
                advised: Some(most.to_string()),
                worth: format!(
                    "a decode step of {most} requests takes {within:.1} ms, of {more}, beyond the largest CUDA graph, \
                     {beyond:.1} ms; above the knee the limit keeps p95 of E2E at about 5 s in place of 52 s (Apr 7, 5.3 \
                     requests/s), and costs nothing at ordinary load; measure the time between tokens against the batch \
                     first"
                ),
                flags,
            }
        }
        None => Advice {
            setting,
            now,
            advised: None,
            worth:
                "this profile knows no batch size beyond which a decode step costs much more, and without one a lower \
                    limit gains nothing"
                    .to_owned(),
            flags,
        },
    }
}

fn chunk(profile: &Profile) -> Advice {
    let share = |tokens: u32| 100.0 * profile.prefill_batch_ms / profile.prefill_ms(tokens).max(f64::MIN_POSITIVE);
    let (own, long) = (share(profile.chunk_tokens), share(LONGEST_CHUNK));
    let gains = profile.chunk_tokens < LONG_CHUNK && own > 5.0;
    let figures = format!(
        "{:.0} ms of every prefill batch are fixed: {own:.0} % of one of {} tokens, {long:.0} % of one of {LONGEST_CHUNK}",
        profile.prefill_batch_ms, profile.chunk_tokens
    );
    Advice {
        setting: "prefill chunk, tokens",
        now: profile.chunk_tokens.to_string(),
        advised: gains.then(|| format!("{LONG_CHUNK} to {LONGEST_CHUNK}")),
        worth: if gains {
            format!("{figures}; from 4096 to {LONGEST_CHUNK} gave p95 of TTFT −12 %, of E2E −7 % with 80 ms fixed")
        } else {
            format!("{figures}; larger ones gain little")
        },
        flags: "SGLang --chunked-prefill-size; vLLM --max-num-batched-tokens",
    }
}

fn order() -> Advice {
    Advice {
        setting: "order of its queue",
        now: "first come, first served".to_owned(),
        advised: Some("longest cached prefix first".to_owned()),
        worth: "near saturation p95 of TTFT × 0.92, of E2E × 0.97; at ordinary load × 0.99 and × 1.00".to_owned(),
        flags: "SGLang --schedule-policy lpm",
    }
}

/// For a person.
pub(super) fn text(profile: &Profile) -> String {
    let mut out = format!(
        "\nthe engine's own settings, by profile {} (gains simulated, not measured); they come before any routing\n",
        profile.name
    );
    for Advice { setting, now, advised, worth, flags } in advice(profile) {
        let change = advised.map_or_else(|| format!("{now}, leave it"), |advised| format!("{now} → {advised}"));
        let _ = writeln!(out, "- {setting}: {change}\n  {worth}\n  {flags}");
    }
    out
}

/// For a program.
pub(super) fn document(profile: &Profile) -> Value {
    let one = |advice: Advice| {
        json!({
            "setting": advice.setting, "now": advice.now, "advised": advice.advised, "worth": advice.worth,
            "flags": advice.flags,
        })
    };
    advice(profile).into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(profile: &str) -> Vec<Advice> {
        advice(Profile::find(profile).unwrap())
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
        let l40s = Profile::find("l40s-qwen3.5-35b").unwrap();
        assert_eq!(advice(&Profile { max_running: 20, ..l40s.clone() })[0].advised, None);
    }
}
