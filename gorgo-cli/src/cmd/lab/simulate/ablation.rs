//! `--ablate POLICY`: measures the value of each term, each constraint and the gate of a policy. How often a part
//! changes the choice is counted on the whole policy's own decisions: the same facts, the same seed, decided again
//! without it. Its gain is the difference of whole runs with and without it, in which everything that follows is
//! different, too.
//!
//! A term is removed by a weight of 0, so that costs which need it still work. Health is not among the parts: without
//! it requests would go to replicas that are known to be down.

use std::sync::Arc;

use gorgo_routing::model::{CandidateRecord, DecisionRecord, StoreRecord};
use gorgo_routing::policy::{DecisionScratch, Policy, RELAXED, repeat_decision};

use super::compare::{AblationMode, SimulationCase};
use super::experiment::ExperimentSetup;

/// Part removed from a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyPart {
    /// A term, by slot.
    Term(usize),
    /// A constraint, by position.
    Constraint(usize),
    /// The admission gate.
    Admission,
}

impl PolicyPart {
    /// All parts of a policy: terms in slot order, then constraints, then the gate.
    pub(super) fn all(policy: &Policy) -> Vec<Self> {
        let terms = (0..policy.terms.len()).map(Self::Term);
        // The first constraint is always health.
        let constraints = (1..policy.constraints.len()).map(Self::Constraint);
        terms.chain(constraints).chain(policy.admission.map(|_| Self::Admission)).collect()
    }

    /// Name of the part in the policy.
    pub(super) fn name(self, policy: &Policy) -> &str {
        match self {
            Self::Term(slot) => policy.terms.get(slot).map_or("", |term| &term.name),
            Self::Constraint(place) => policy.constraints.get(place).map_or("", |rule| &rule.name),
            Self::Admission => "admission",
        }
    }

    /// Kind of the part.
    pub(super) const fn family(self) -> &'static str {
        match self {
            Self::Term(_) => "term",
            Self::Constraint(_) => "constraint",
            Self::Admission => "gate",
        }
    }

    /// Removes the part from a policy.
    pub(super) fn taken_from(self, policy: &mut Policy) {
        match self {
            Self::Term(slot) => {
                if let Some(term) = policy.terms.get_mut(slot) {
                    term.weight.init = 0.0;
                }
            }
            Self::Constraint(place) => {
                if place < policy.constraints.len() {
                    policy.constraints.remove(place);
                }
            }
            Self::Admission => policy.admission = None,
        }
    }
}

/// Counts over the decisions of a run how many would have gone elsewhere without each part.
pub(super) struct DecisiveParts<'a> {
    policy: &'a Policy,
    parts: Vec<PolicyPart>,
    weights: Vec<f64>,
    scratch: DecisionScratch,
    decisions: u32,
    changed: Vec<u32>,
}

impl<'a> DecisiveParts<'a> {
    /// A census for a case that asks for one.
    pub(super) fn of(ground: &'a ExperimentSetup, case: &SimulationCase) -> Option<Self> {
        if case.ablation != AblationMode::Whole {
            return None;
        }
        let policy = ground.policies.by_name(case.policy.as_deref()?)?;
        let parts = PolicyPart::all(policy);
        let (changed, weights) = (vec![0; parts.len()], policy.weights().values);
        Some(Self { policy, parts, weights, scratch: DecisionScratch::default(), decisions: 0, changed })
    }

    /// Counts a record of the run.
    pub(super) fn take(&mut self, record: &StoreRecord) {
        let StoreRecord::Decision(decision) = record else { return };
        // A refused request went nowhere, so no part can have sent it elsewhere.
        let Some(chosen) = decision.replica else { return };
        self.decisions += 1;
        for (place, part) in self.parts.iter().enumerate() {
            let elsewhere = match *part {
                // The gate changes when a request is sent, never where a decision sends it.
                PolicyPart::Admission => continue,
                PolicyPart::Term(slot) => {
                    // Set the weight to 0 for this choice and restore it, instead of copying all weights for each part.
                    let own = std::mem::take(&mut self.weights[slot]);
                    let found = choice(self.policy, &self.weights, &decision.candidates, decision, &mut self.scratch);
                    self.weights[slot] = own;
                    found
                }
                PolicyPart::Constraint(constraint) => {
                    let rule = &self.policy.constraints[constraint];
                    // The decision's seed is used again, so that chance does not count as a change.
                    let Some(rows) = without(&decision.candidates, [&rule.name, &rule.relaxed_name]) else { continue };
                    choice(self.policy, &self.weights, &rows, decision, &mut self.scratch)
                }
            };
            self.changed[place] += u32::from(elsewhere.is_some_and(|replica| replica != chosen));
        }
    }

    /// Share of decisions that each part changed.
    pub(super) fn decisive_shares(self) -> Vec<f64> {
        let all = f64::from(self.decisions.max(1));
        self.changed.into_iter().map(|changed| f64::from(changed) / all).collect()
    }
}

fn choice(
    policy: &Policy,
    weights: &[f64],
    rows: &[CandidateRecord],
    decision: &DecisionRecord,
    scratch: &mut DecisionScratch,
) -> Option<gorgo_routing::model::ReplicaId> {
    repeat_decision(policy, weights, rows, decision.seed, scratch).map(|again| again.replica)
}

/// The rows as if no candidate had been excluded under these names; `None` if none was. A row that several constraints
/// excluded has the name of the first and counts for that one.
fn without(rows: &[CandidateRecord], names: [&Arc<str>; 2]) -> Option<Vec<CandidateRecord>> {
    let by_it = |row: &CandidateRecord| row.excluded_by.as_ref().is_some_and(|name| names.contains(&name));
    if !rows.iter().any(by_it) {
        return None;
    }
    let mut rows = rows.to_vec();
    for row in &mut rows {
        if by_it(row) {
            row.excluded_by = None;
        }
    }
    // Some candidate is within all limits now, so relaxed exclusions hold again.
    for row in &mut rows {
        row.excluded_by = row.excluded_by.take().map(|name| name.strip_prefix(RELAXED).map_or(name.clone(), Arc::from));
    }
    Some(rows)
}
