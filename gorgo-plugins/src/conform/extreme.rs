//! Nothing known, and everything as large as possible: the plugin must answer with finite numbers or have no opinion.

use gorgo_routing::model::{FACTS, RequestView, RequiredFacts};

use super::facts::{candidates, request};
use super::subject::JudgeSubject;

pub(super) fn check(subject: &JudgeSubject) -> Result<String, String> {
    let mut unknown = candidates(0);
    unknown.reset(3, 0);
    for row in 0..3_u16 {
        unknown.replica[usize::from(row)] = gorgo_routing::model::ReplicaId(row);
    }
    subject.ask(&request(), &unknown).map_err(|cause| format!("nothing known: {cause}"))?;

    // Far beyond real values, yet small enough that products of two of them do not overflow a 64-bit float.
    let mut largest = candidates(3);
    for row in 0..3 {
        largest.cached_tokens[row] = u32::MAX;
        largest.queued_tokens[row] = u64::MAX;
        largest.queued_tokens_first[row] = u64::MAX;
        largest.queued_uncached_tokens[row] = u64::MAX;
        largest.queued_uncached_tokens_completion[row] = u64::MAX;
        largest.inflight[row] = u32::MAX;
        largest.decoding[row] = u32::MAX;
        largest.inflight_since_report[row] = i64::MIN;
        largest.capacity_tokens[row] = u64::MAX;
        largest.rtt_ms[row] = Some(1e12);
        largest.latency_ms[row] = Some(1e12);
        largest.kv_used_tokens[row] = Some(1e15);
        largest.engine_throughput[row] = Some(0.0);
        largest.report_age_ms[row] = Some(1e12);
        for fact in FACTS.iter().filter(|fact| [RequiredFacts::SERVICE, RequiredFacts::BACKLOG].contains(&fact.needs)) {
            largest.invent(fact.name, row, Some(1e12));
        }
    }
    let view =
        RequestView { prompt_tokens: u32::MAX, max_tokens: Some(u32::MAX), decision_number: u64::MAX, ..request() };
    subject.ask(&view, &largest).map_err(|cause| format!("all facts as large as possible: {cause}"))?;
    let view = RequestView { prompt_tokens: 0, max_tokens: None, body_bytes: 0, decision_number: 0, ..request() };
    subject.ask(&view, &candidates(3)).map_err(|cause| format!("an empty prompt: {cause}"))?;
    Ok("finite numbers".to_owned())
}
