//! The function that routes: score, constrain, pick, on a snapshot of facts.
//!
//! ```text
//! facts → signals (unknown filled, rounded to thousandths) ─┐
//! facts → violations → exclusions → allowed rows ───────────┤
//!                                        weights, seed → choose → choice
//! ```
//!
//! Everything left of `choose` is stored with the decision; [`again`] feeds `choose` from the stored rows, so that a
//! decision repeated from its rows is equal bit for bit. Nothing here reads a clock or any other randomness.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::weight::rate_column;
use super::{Policy, PolicyTerm, RELAXED, UnknownFallback};
use crate::constrain::ConstraintScope;
use crate::model::{
    CandidateRecord, Candidates, Decision, Exclusion, PolicyWeights, ReplicaId, RequestView, VOID_MILLI, from_milli,
    to_milli,
};

/// Working memory of decisions, reused from one to the next.
#[derive(Debug, Default)]
pub struct DecisionScratch {
    /// One term's signals.
    column: Vec<Option<f64>>,
    /// One constraint's violations.
    violations: Vec<f64>,
    /// Rows of the candidates that no hard constraint excluded.
    rows: Vec<usize>,
    /// Per row, distance beyond its limits in all; 0 where it may be picked.
    excess: Vec<f64>,
    /// Row-major, rows × terms.
    pub(super) signals: Vec<f64>,
    /// weight × signal, row-major.
    pub(super) weighted: Vec<f64>,
    /// Per row.
    pub(super) totals: Vec<f64>,
    /// Slots of terms without a signal; their signals are 0 in all rows.
    pub(super) void_terms: Vec<usize>,
    /// Candidates that could not be picked.
    pub(super) excluded: Vec<Exclusion>,
    /// The rows that may be picked, ascending.
    pub(super) allowed: Vec<usize>,
    /// Per row, the probability of being chosen.
    distribution: Vec<f64>,
}

/// The choice, and its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PickedRow {
    /// The row that was chosen.
    pub row: usize,
    /// Probability with which it was chosen.
    pub propensity: f64,
    /// Number of candidates that shared the lowest cost.
    pub ties: u32,
}

/// Decides which replica serves a request. `None`: every candidate is excluded by a hard constraint, or a plugin that
/// the policy must not do without is not available.
#[must_use]
pub fn decide(
    policy: &Policy,
    weights: &PolicyWeights,
    request: &RequestView,
    candidates: &Candidates,
    seed: u64,
    scratch: &mut DecisionScratch,
) -> Option<Decision> {
    let choice = evaluate(policy, weights, request, candidates, seed, scratch)?;
    Some(to_decision(policy, weights, candidates, seed, choice, scratch))
}

/// [`decide`] without building the [`Decision`], which can wait until a lock is released.
pub(super) fn evaluate(
    policy: &Policy,
    weights: &PolicyWeights,
    request: &RequestView,
    candidates: &Candidates,
    seed: u64,
    scratch: &mut DecisionScratch,
) -> Option<PickedRow> {
    score(policy, weights, request, candidates, scratch);
    // Asked after scoring, because a plugin may be quarantined by the very call that computed its signals.
    if policy.terms.iter().any(|term| term.cost_term.blocks_decision()) {
        return None;
    }
    constrain(policy, request, candidates, scratch);
    choose(policy, &weights.values, seed, scratch)
}

/// The decision that `evaluate` left in `scratch`.
pub(super) fn to_decision(
    policy: &Policy,
    weights: &PolicyWeights,
    candidates: &Candidates,
    seed: u64,
    choice: PickedRow,
    scratch: &DecisionScratch,
) -> Decision {
    Decision {
        replica: candidates.replica[choice.row],
        row: choice.row,
        policy: policy.id,
        generation: weights.generation,
        seed,
        propensity: choice.propensity,
        ties: choice.ties,
        signals: scratch.signals.clone(),
        costs: scratch.weighted.clone(),
        totals: scratch.totals.clone(),
        void_terms: scratch.void_terms.clone(),
        excluded: scratch.excluded.clone(),
    }
}

/// Every term's signal for every row, with unknown ones filled in, as it will be stored.
fn score(
    policy: &Policy,
    weights: &PolicyWeights,
    request: &RequestView,
    candidates: &Candidates,
    scratch: &mut DecisionScratch,
) {
    let (rows, slots) = (candidates.len(), policy.terms.len());
    scratch.void_terms.clear();
    scratch.signals.clear();
    scratch.signals.resize(rows * slots, 0.0);
    for (slot, term) in policy.terms.iter().enumerate() {
        scratch.column.clear();
        // Reset for each term, so that a row that a term leaves out is unknown and does not keep the previous term's
        // signal.
        scratch.column.resize(rows, None);
        if !term.cost_term.try_signal(request, candidates, &mut scratch.column) {
            // The signal stays 0 in all rows alike, so the missing term favours none of them.
            scratch.void_terms.push(slot);
            continue;
        }
        // Multiplied before rounding, so that the stored signal is in ms and its weight a plain factor. An unknown
        // rate makes the signal unknown too.
        if let Some(rate) = term.weight.rate {
            for (signal, rate) in scratch.column.iter_mut().zip(rate_column(rate, candidates)) {
                *signal = signal.zip(*rate).map(|(signal, rate)| signal * rate);
            }
        }
        // A value that is not finite carries no information, so it counts as unknown.
        for signal in &mut scratch.column {
            *signal = signal.filter(|signal| signal.is_finite());
        }
        let negative = weights.values.get(slot).is_some_and(|weight| *weight < 0.0);
        let stand_in = unknown_fallback(term, negative, candidates, &scratch.column);
        for (row, signal) in scratch.column.iter().enumerate() {
            // Rounded as the database rounds: the decision must be repeatable from its stored row.
            scratch.signals[row * slots + slot] = from_milli(to_milli(signal.unwrap_or(stand_in)));
        }
    }
}

/// Replacement for an unknown signal of this term.
fn unknown_fallback(term: &PolicyTerm, negative: bool, candidates: &Candidates, column: &[Option<f64>]) -> f64 {
    match term.unknown {
        UnknownFallback::Value(value) => value,
        UnknownFallback::Worst => {
            // A replica that cannot be picked must not set the price of the others.
            let available = column.iter().zip(&candidates.available).filter(|(_, available)| **available);
            let known = available.filter_map(|(signal, _)| *signal);
            // Under a negative weight the smallest signal is the most expensive one.
            // If nothing is known, all rows get the same 0, which changes no comparison.
            if negative { known.reduce(f64::min) } else { known.reduce(f64::max) }.unwrap_or(0.0)
        }
    }
}

/// The candidates that may be picked. Hard constraints come first; the others judge only the remaining candidates, each
/// independently, so that their order affects only which name is stored.
fn constrain(policy: &Policy, request: &RequestView, candidates: &Candidates, scratch: &mut DecisionScratch) {
    let rows = candidates.len();
    let DecisionScratch { violations, rows: left, excess: over, excluded, allowed, .. } = scratch;
    excluded.clear();
    over.clear();
    over.resize(rows, 0.0);
    // Not cleared: a constraint writes every row that it is asked about, and only those are read.
    violations.resize(rows, 0.0);
    left.clear();
    left.extend(0..rows);
    let hard_ones = policy.constraints.iter().filter(|rule| rule.hard).count();
    for (index, rule) in policy.constraints.iter().enumerate() {
        // Hard constraints are sorted first; from here on their exclusions are final.
        if index == hard_ones {
            left.retain(|row| over[*row].is_finite());
        }
        if left.is_empty() {
            break;
        }
        rule.constraint
            .violation(&ConstraintScope { request, candidates, rows: left, window: rule.window }, violations);
        for row in left.iter().copied() {
            // Written so that NaN, which no constraint should return, excludes.
            if violations[row] <= 0.0 {
                continue;
            }
            let violation = if rule.hard || violations[row].is_nan() { f64::INFINITY } else { violations[row] };
            excluded.push(Exclusion { row, constraint_index: index, violation });
            over[row] = over[row].max(violation);
        }
    }
    allowed_rows(over, allowed);
}

/// The rows within all limits; if there are none, those least over limits that can be relaxed.
fn allowed_rows(over: &[f64], allowed: &mut Vec<usize>) {
    let least = over.iter().copied().fold(f64::INFINITY, f64::min);
    allowed.clear();
    // If even the least is infinite, every row violates a hard constraint, and those are never relaxed. Comparing
    // exactly is safe below, because `least` is one of these very values.
    if least.is_finite() {
        allowed.extend((0..over.len()).filter(|row| over[*row] == least));
    }
}

/// From signals and allowed rows to the choice: everything needed to repeat a stored decision.
fn choose(policy: &Policy, weights: &[f64], seed: u64, scratch: &mut DecisionScratch) -> Option<PickedRow> {
    let DecisionScratch { signals, weighted, totals, allowed, distribution, excess: over, .. } = scratch;
    let (rows, slots) = (over.len(), policy.terms.len());
    weighted.clear();
    totals.clear();
    for row in 0..rows {
        let signals = &signals[row * slots..(row + 1) * slots];
        let start = weighted.len();
        // Kept beside the totals, because the history stores each term's part of the cost.
        weighted.extend(signals.iter().zip(weights).map(|(signal, weight)| weight * signal));
        totals.push(policy.cost.total(signals, weights, &weighted[start..]));
    }
    // Totals of all rows are computed first, because the excluded ones are stored too.
    if allowed.is_empty() {
        return None;
    }
    distribution.clear();
    distribution.resize(rows, 0.0);
    let ties = policy.picker.distribution(totals, allowed, distribution);
    if policy.exploration > 0.0 {
        // Mixed into the distribution, not decided by a separate draw: the propensity stays exact and one random number suffices.
        #[expect(clippy::cast_precision_loss, reason = "a fleet has at most 65,536 replicas")]
        let even = policy.exploration / allowed.len() as f64;
        for row in allowed.iter() {
            distribution[*row] = distribution[*row] * (1.0 - policy.exploration) + even;
        }
    }
    let row = draw(distribution, allowed, seed)?;
    Some(PickedRow { row, propensity: distribution[row], ties })
}

/// Draws one of the allowed rows.
fn draw(distribution: &[f64], allowed: &[usize], seed: u64) -> Option<usize> {
    // A generator of this decision's own: its seed repeats the draw, whatever else was decided before.
    let mut left = unit_interval(ChaCha8Rng::seed_from_u64(seed).next_u64());
    let mut last = None;
    for row in allowed.iter().copied().filter(|row| distribution[*row] > 0.0) {
        if left < distribution[row] {
            return Some(row);
        }
        left -= distribution[row];
        last = Some(row);
    }
    // Rounding made the probabilities sum to slightly less than 1: the remainder belongs to the last row.
    last
}

/// The upper 53 bits as a number in [0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
fn unit_interval(bits: u64) -> f64 {
    // A double has 53 significant bits; with more of them the quotient could round up to 1, which no row covers.
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// A stored decision, repeated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepeatedDecision {
    /// Chosen replica.
    pub replica: ReplicaId,
    /// Probability with which it is chosen.
    pub propensity: f64,
    /// Number of candidates that shared the lowest cost.
    pub ties: u32,
}

/// Repeats a decision from its stored rows: `rows` are its candidates in the order of the decision (by replica),
/// `weights` and `seed` those it was made with. `None`: the rows belong to another policy (other slots), or allow none.
#[must_use]
pub fn repeat_decision(
    policy: &Policy,
    weights: &[f64],
    rows: &[CandidateRecord],
    seed: u64,
    scratch: &mut DecisionScratch,
) -> Option<RepeatedDecision> {
    let slots = policy.terms.len();
    if weights.len() != slots || rows.iter().any(|row| row.signals_milli.len() != slots) {
        return None;
    }
    scratch.signals.clear();
    // A missing signal is stored as a mark, but the decision counted it as 0.
    let used = |milli: i64| if milli == VOID_MILLI { 0.0 } else { from_milli(milli) };
    scratch.signals.extend(rows.iter().flat_map(|row| &row.signals_milli).map(|milli| used(*milli)));
    // `choose` takes the number of rows from `over`; the allowed rows come from the stored exclusions.
    scratch.excess.clear();
    scratch.excess.resize(rows.len(), 0.0);
    scratch.allowed.clear();
    let may = |row: &CandidateRecord| row.excluded_by.as_ref().is_none_or(|name| name.starts_with(RELAXED));
    scratch.allowed.extend((0..rows.len()).filter(|row| may(&rows[*row])));
    let choice = choose(policy, weights, seed, scratch)?;
    Some(RepeatedDecision { replica: rows[choice.row].replica, propensity: choice.propensity, ties: choice.ties })
}

#[cfg(test)]
mod tests;
