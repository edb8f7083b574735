//! `[policy.NAME.admission]`: a request waits at the router while its chosen replica has as many in flight as its
//! engine decodes cheaply.
//!
//! The gate is not a constraint, since it excludes no candidate: the policy chooses as usual, and the request waits for
//! the replica that was chosen. `feature::admission` decides which requests wait, in which order, and when; here are
//! the settings. The defaults come from simulations: the limit is sharp above the engine's graph batch and soft below
//! it, so it is the batch less two; the largest cost gap goes first, with ageing 0.5; prompts with more than 0.1 s of
//! prefill wait while their replica has a backlog of more than 0.4 s.

use crate::model::{AdmissionRule, KindDoc, ParamSpec, ParamType, ParamValues, RequiredFacts};

/// The admission gate as `gorgo kinds` and the schema show it. There is one kind, so its table has no `kind`.
pub(super) const ADMISSION: KindDoc = KindDoc {
    family: "admission",
    kind: "admission",
    unit: "",
    summary: "wait at the router while the chosen replica has as many in flight as it decodes cheaply; 429 beyond a queue",
    params: &[
        ParamSpec {
            name: "max_in_flight",
            ty: ParamType::Integer { default: None, min: 1, max: 100_000 },
            unit: "requests",
            help: "most in flight per replica; absent: the decode batch - 2, and no gate if the batch is unknown or never exceeded",
        },
        ParamSpec {
            name: "max_queued",
            ty: ParamType::Integer { default: Some(256), min: 0, max: 1_000_000 },
            unit: "requests",
            help: "most requests that wait for one replica; further ones get 429 with Retry-After",
        },
        ParamSpec {
            name: "hold_cold",
            ty: ParamType::Bool { default: true },
            unit: "",
            help: "let prompts with a long prefill wait while their replica has a long backlog, largest cost gap first",
        },
        ParamSpec {
            name: "cold_ms",
            ty: ParamType::Number { default: Some(100.0), min: 0.0, max: 1e6 },
            unit: "ms",
            help: "a prefill above this is long",
        },
        ParamSpec {
            name: "backlog_ms",
            ty: ParamType::Number { default: Some(400.0), min: 1.0, max: 1e6 },
            unit: "ms",
            help: "a predicted backlog above this is long",
        },
        ParamSpec {
            name: "ageing",
            ty: ParamType::Number { default: Some(0.5), min: 0.01, max: 100.0 },
            unit: "",
            help: "ms of cost gap that a ms of waiting is worth in the order of the queue",
        },
    ],
};

/// Facts that the gate reads.
pub(super) fn needs() -> RequiredFacts {
    RequiredFacts::LOAD.union(RequiredFacts::REPORT).union(RequiredFacts::RTT).union(RequiredFacts::SERVICE)
}

/// The rule that checked parameters describe.
pub(super) fn rule(params: &ParamValues) -> Result<AdmissionRule, String> {
    let missing = |name: &str| format!("`{name}` is missing");
    let number = |name: &'static str| params.number(name).ok_or_else(|| missing(name));
    Ok(AdmissionRule {
        max_in_flight: params.integer("max_in_flight").map(whole),
        max_queued: params.integer("max_queued").map(whole).ok_or_else(|| missing("max_queued"))?,
        hold_cold: params.bool("hold_cold"),
        cold_ms: number("cold_ms")?,
        backlog_ms: number("backlog_ms")?,
        ageing: number("ageing")?,
    })
}

/// A whole parameter; its range was checked.
fn whole(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
