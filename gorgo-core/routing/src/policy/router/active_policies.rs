//! Everything that decides: the policies, their weights, their tuners. It can be replaced while requests run: a
//! decision keeps the set that it began with to its end, and the next one gets the new set.
//!
//! Policies are identified by their position in the list. An unchanged one stays the same object, with its weights and
//! its tuner; one that changed, or whose plugin was rebuilt, gets a new number, so that the rows before and after can
//! be told apart. What is known of replicas, caches and rates belongs to the router and stays.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::workspace::DecisionWorkspace;
use super::{PickedRow, Router, evaluate};
use crate::model::{
    Generation, PolicyBuildId, PolicyWeights, Replica, RequestView, ShadowRecord, StoreRecord, UnixMicros, to_milli,
};
use crate::policy::{Policy, PolicySet};
use crate::tune::Tuner;

/// The policies with their weights and tuners.
#[derive(Debug)]
pub(super) struct ActivePolicies {
    pub(super) policies: Arc<PolicySet>,
    /// By position.
    pub(super) weights: Vec<Arc<ArcSwap<PolicyWeights>>>,
    /// By position; `None` if the policy is not tuned.
    pub(super) tuners: Vec<Option<Arc<Mutex<Tuner>>>>,
    /// The number of the next new policy build.
    next: u16,
}

/// Policies that are ready to take over.
#[derive(Debug)]
pub struct StagedReload {
    active: ActivePolicies,
    /// Positions whose policy is new.
    replaced_slots: Vec<usize>,
}

impl StagedReload {
    /// The policies that are new, in the order of their numbers, with the weights that they begin with.
    pub fn new_policies(&self) -> impl Iterator<Item = (&Arc<Policy>, Arc<PolicyWeights>)> {
        let of = |place: &usize| (&self.active.policies.list[*place], self.active.weights[*place].load_full());
        self.replaced_slots.iter().map(of)
    }
}

impl ActivePolicies {
    pub(super) fn new(policies: PolicySet, fleet: &[Replica]) -> Self {
        Self {
            weights: policies.list.iter().map(|policy| Arc::new(ArcSwap::from_pointee(policy.weights()))).collect(),
            tuners: policies.list.iter().map(|policy| tuner(policy, policy.weights(), fleet)).collect(),
            next: u16::try_from(policies.list.len()).unwrap_or(u16::MAX),
            policies: Arc::new(policies),
        }
    }

    /// Choices of the policy's shadows on the same snapshot, each with its own random number: with the serving policy's
    /// draw, whether both agree would depend on what was drawn, and no weighting by propensity could correct that.
    pub(super) fn shadows(
        &self,
        policy: &Policy,
        request: &RequestView,
        seed: u64,
        work: &mut DecisionWorkspace,
    ) -> Vec<ShadowRecord> {
        let mut shadows = Vec::with_capacity(policy.shadows.len());
        for (place, id) in policy.shadows.iter().enumerate() {
            let Some(shadow) = self.policies.get(*id) else { continue };
            let weights = self.weights[id.index()].load();
            // A shadow counts its own turns, as it would if it served: several policies may share it, and their turns
            // would repeat.
            let request = RequestView { decision_number: work.shadow_turns[place], ..*request };
            // The multiplier is 2^64 divided by the golden ratio: it spreads neighbouring ids over all bits of the
            // seed.
            let own = seed ^ (u64::from(shadow.id.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let choice = evaluate(shadow, &weights, &request, &work.candidates, own, &mut work.scratch);
            if let Some(PickedRow { row, .. }) = choice {
                shadows.push(ShadowRecord {
                    policy: shadow.id,
                    replica: work.candidates.replica[row],
                    cost_milli: to_milli(work.scratch.totals[row]),
                });
            }
        }
        shadows
    }
}

/// A tuner if there is a plan, which was checked by building a tuner from it. It begins with these weights.
fn tuner(policy: &Policy, weights: PolicyWeights, fleet: &[Replica]) -> Option<Arc<Mutex<Tuner>>> {
    let mut plan = policy.tune.clone()?;
    // The plan holds the configured starts. After a reload the incumbent may have tuned weights, and the search must
    // begin at the same point.
    for dimension in &mut plan.space.dimensions {
        dimension.init = weights.values.get(dimension.slot).copied().unwrap_or(dimension.init);
    }
    let names = fleet.iter().map(|replica| replica.name.to_string()).collect();
    plan.tuner(policy.id, weights, names).ok().map(|tuner| Arc::new(Mutex::new(tuner)))
}

/// Differences in the names and positions of policies, or in the default, for operators.
fn structure_difference(old: &PolicySet, new: &PolicySet) -> Option<String> {
    let only_in = |one: &PolicySet, other: &PolicySet| {
        let names: Vec<&str> = one.list.iter().map(|policy| &*policy.name).collect();
        // Rows and options refer to positions, so names cannot come and go while the router runs.
        let gone = names.into_iter().filter(|name| other.by_name(name).is_none());
        gone.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let (came, went) = (only_in(new, old), only_in(old, new));
    let mut said = Vec::new();
    if !came.is_empty() {
        said.push(format!("new policies: {came}"));
    }
    if !went.is_empty() {
        said.push(format!("removed policies: {went}"));
    }
    let name = |policies: &PolicySet| policies.get(policies.default).map(|policy| Arc::clone(&policy.name));
    if let (Some(was), Some(is)) = (name(old), name(new))
        && was != is
    {
        said.push(format!("the default changed from `{was}` to `{is}` (`gorgo ctl pin {is}` needs no restart)"));
    }
    // Positions identify policies, so the same names in another order are a difference too.
    if said.is_empty() {
        let moved = old.list.iter().zip(&new.list).find(|(old, new)| old.name != new.name)?;
        said.push(format!("policies changed their order, first `{}` and `{}`", moved.0.name, moved.1.name));
    }
    Some(said.join("; "))
}

/// Returns true if nothing of a policy is new: neither its text nor a library.
fn is_same(old: &Policy, new: &Policy) -> bool {
    old.sha256 == new.sha256 && old.libraries().eq(new.libraries())
}

/// Weights that a policy continues with: the tuned ones if its terms and their bounds are unchanged;
/// else the configured ones.
fn inherited_weights(old: &Policy, found: &PolicyWeights, new: &Policy) -> PolicyWeights {
    // Tuned weights only make sense for the same terms within the same bounds.
    let alike = old.terms.len() == new.terms.len()
        && old.terms.iter().zip(&new.terms).all(|(old, new)| old.name == new.name && old.weight == new.weight);
    // Generations are counted per build, so inherited weights are those that the new build starts with.
    if alike { PolicyWeights { generation: Generation(0), values: found.values.clone() } } else { new.weights() }
}

impl Router {
    /// Prepares policies that were built again for the same fleet. Nothing changes yet. `None`: all are
    /// unchanged.
    ///
    /// # Errors
    /// A change that needs a restart.
    pub fn stage_reload(&self, mut policies: PolicySet) -> Result<Option<StagedReload>, String> {
        let old = self.active.load_full();
        if let Some(difference) = structure_difference(&old.policies, &policies) {
            return Err(format!("{difference}: restart gorgo to apply that"));
        }
        // Counters of the old windows cannot be converted to the new ones.
        if old.policies.windows != policies.windows {
            return Err("windows of share constraints changed: restart gorgo to apply that".to_owned());
        }
        let mut ruling = ActivePolicies {
            policies: Arc::clone(&old.policies),
            // Shared cells, not copies: a weight that is changed before the takeover reaches the staged set too.
            weights: old.weights.clone(),
            tuners: old.tuners.clone(),
            next: old.next,
        };
        let mut places = Vec::new();
        for (place, policy) in policies.list.iter_mut().enumerate() {
            let before = &old.policies.list[place];
            // Kept as the same object, so that its number, weights and tuner stay valid.
            if is_same(before, policy) {
                *policy = Arc::clone(before);
                continue;
            }
            // The number is assigned here, so nobody else may hold the policy yet.
            let Some(new) = Arc::get_mut(policy) else {
                return Err("a policy that is already in use cannot take over".to_owned());
            };
            new.id = PolicyBuildId(ruling.next);
            // A number is never reused, or rows of two builds could not be told apart.
            ruling.next = ruling.next.checked_add(1).ok_or("too many policy builds in one run: restart gorgo")?;
            let weights = inherited_weights(before, &old.weights[place].load(), new);
            ruling.tuners[place] = tuner(new, weights.clone(), &self.fleet);
            ruling.weights[place] = Arc::new(ArcSwap::from_pointee(weights));
            places.push(place);
        }
        ruling.policies = Arc::new(policies);
        Ok((!places.is_empty()).then_some(StagedReload { active: ruling, replaced_slots: places }))
    }

    /// Makes these policies decide from the next decision onwards. Returns the last records of the tuners that they
    /// replace.
    pub fn apply_reload(&self, succession: StagedReload, at: UnixMicros) -> Vec<StoreRecord> {
        let StagedReload { active: ruling, replaced_slots: places } = succession;
        let old = self.active.swap(Arc::new(ruling));
        let mut records = Vec::new();
        // After the swap, so that no new decision is assigned to a tuner that has stopped.
        for tuner in places.into_iter().filter_map(|place| old.tuners[place].as_ref()) {
            let mut tuner = tuner.lock();
            tuner.fleet_changed("the policy was reloaded", at);
            records.append(&mut tuner.take_records());
        }
        records
    }
}
