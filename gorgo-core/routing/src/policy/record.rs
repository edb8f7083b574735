//! Decisions as rows for the store. Built after the lock is released, from the snapshot the decision was made on.

use super::Policy;
use crate::model::{CandidateRecord, Candidates, Decision, ReplicaId, VOID_MILLI, to_milli};

/// One row per candidate, except for those in `tried`, which have a row from an earlier attempt of the request.
pub(super) fn candidate_rows(
    policy: &Policy,
    facts: &Candidates,
    decision: &Decision,
    tried: &[ReplicaId],
) -> Vec<CandidateRecord> {
    let slots = policy.terms.len();
    let mut excluded = vec![None; facts.len()];
    let mut over = vec![0.0_f64; facts.len()];
    for exclusion in &decision.excluded {
        // The first constraint gives the exclusion its name; hard ones come first, and they are never relaxed.
        excluded[exclusion.row].get_or_insert(exclusion.constraint_index);
        over[exclusion.row] = over[exclusion.row].max(exclusion.violation);
    }
    // The chosen row may always be picked, so its excess is the one up to which constraints were relaxed; 0 if none
    // was.
    let relaxed = over[decision.row];
    let mut rows = Vec::with_capacity(facts.len().saturating_sub(tried.len()));
    for row in (0..facts.len()).filter(|row| !tried.contains(&facts.replica[*row])) {
        let slice = row * slots..(row + 1) * slots;
        let rule = excluded[row].map(|constraint| &policy.constraints[constraint]);
        rows.push(CandidateRecord {
            replica: facts.replica[row],
            excluded_by: rule.map(|rule| if over[row] == relaxed { &rule.relaxed_name } else { &rule.name }).cloned(),
            cost_milli: to_milli(decision.totals[row]),
            rtt_us: facts.rtt_ms[row].map(to_milli),
            rtt_source: facts.rtt_source[row],
            cached_tokens: facts.cached_tokens[row],
            queued_tokens: facts.queued_tokens[row],
            queued_uncached_tokens: facts.queued_uncached_tokens[row],
            inflight: facts.inflight[row],
            report_age_ms: facts.report_age_ms[row].map(whole),
            signals_milli: stored(&decision.signals[slice.clone()], &decision.void_terms),
            costs_milli: stored(&decision.costs[slice], &decision.void_terms),
        });
    }
    rows
}

/// A row's values by slot; those of terms without a signal are void.
fn stored(values: &[f64], void: &[usize]) -> Vec<i64> {
    let mut stored: Vec<i64> = values.iter().copied().map(to_milli).collect();
    for slot in void {
        stored[*slot] = VOID_MILLI;
    }
    stored
}

/// A whole number of ms; values that are not finite, which facts never are, become 0.
fn whole(ms: f64) -> i64 {
    to_milli(ms / 1e3)
}
