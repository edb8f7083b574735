//! What decides, as a whole: the policies, their weights, their tuners. It can be replaced while requests run: a
//! decision holds the one that it began with to its end, and the next one gets the new one.
//!
//! Policies are called by their place in the list. One that is as it was stays the very same, with its weights and its
//! tuner; one that changed, or whose plugin was built anew, gets a new number, so that the rows before and after are told
//! apart. What is known of replicas, caches and rates belongs to the router and stays.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::workspace::Workspace;
use super::{Choice, Router, evaluate};
use crate::model::{At, Generation, PolicyBuildId, Record, Replica, RequestView, ShadowRecord, Weights, to_milli};
use crate::policy::{Policies, Policy};
use crate::tune::Tuner;

/// The policies with what they decide by.
#[derive(Debug)]
pub(super) struct Ruling {
    pub(super) policies: Arc<Policies>,
    /// By place.
    pub(super) weights: Vec<Arc<ArcSwap<Weights>>>,
    /// By place; `None` where nothing is tuned.
    pub(super) tuners: Vec<Option<Arc<Mutex<Tuner>>>>,
    /// The number of the next policy that is new.
    next: u16,
}

/// Policies that are ready to take over.
#[derive(Debug)]
pub struct Succession {
    ruling: Ruling,
    /// Places whose policy is new.
    places: Vec<usize>,
}

impl Succession {
    /// The policies that are new, in the order of their numbers, with the weights that they begin with.
    pub fn added(&self) -> impl Iterator<Item = (&Arc<Policy>, Arc<Weights>)> {
        let of = |place: &usize| (&self.ruling.policies.list[*place], self.ruling.weights[*place].load_full());
        self.places.iter().map(of)
    }
}

impl Ruling {
    pub(super) fn new(policies: Policies, fleet: &[Replica]) -> Self {
        Self {
            weights: policies.list.iter().map(|policy| Arc::new(ArcSwap::from_pointee(policy.weights()))).collect(),
            tuners: policies.list.iter().map(|policy| tuner(policy, policy.weights(), fleet)).collect(),
            next: u16::try_from(policies.list.len()).unwrap_or(u16::MAX),
            policies: Arc::new(policies),
        }
    }

    /// What the policy's shadows would have chosen on the same snapshot, each by a chance of its own: with the serving policy's
    /// draw, whether both chose the same would depend on what was drawn, and no weighting by propensity could mend it.
    pub(super) fn shadows(
        &self,
        policy: &Policy,
        request: &RequestView,
        seed: u64,
        work: &mut Workspace,
    ) -> Vec<ShadowRecord> {
        let mut shadows = Vec::with_capacity(policy.shadows.len());
        for (place, id) in policy.shadows.iter().enumerate() {
            let Some(shadow) = self.policies.get(*id) else { continue };
            let weights = self.weights[id.index()].load();
            let request = RequestView { turn: work.shadow_turns[place], ..*request };
            // The multiplier is 2^64 divided by the golden ratio.
            let own = seed ^ (u64::from(shadow.id.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let choice = evaluate(shadow, &weights, &request, &work.candidates, own, &mut work.scratch);
            if let Some(Choice { row, .. }) = choice {
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

/// A tuner where there is a plan, which was checked by building a tuner of it. It begins with these weights.
fn tuner(policy: &Policy, weights: Weights, fleet: &[Replica]) -> Option<Arc<Mutex<Tuner>>> {
    let mut plan = policy.tune.clone()?;
    for dimension in &mut plan.space.dimensions {
        dimension.init = weights.values.get(dimension.slot).copied().unwrap_or(dimension.init);
    }
    let names = fleet.iter().map(|replica| replica.name.to_string()).collect();
    plan.tuner(policy.id, weights, names).ok().map(|tuner| Arc::new(Mutex::new(tuner)))
}

/// What differs in the names and places of policies, or in which one is the default, for people.
fn difference(old: &Policies, new: &Policies) -> Option<String> {
    let only_in = |one: &Policies, other: &Policies| {
        let names: Vec<&str> = one.list.iter().map(|policy| &*policy.name).collect();
        let gone = names.into_iter().filter(|name| other.named(name).is_none());
        gone.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    let (came, went) = (only_in(new, old), only_in(old, new));
    let mut said = Vec::new();
    if !came.is_empty() {
        said.push(format!("policies that were not there: {came}"));
    }
    if !went.is_empty() {
        said.push(format!("policies that are gone: {went}"));
    }
    let name = |policies: &Policies| policies.get(policies.default).map(|policy| Arc::clone(&policy.name));
    if let (Some(was), Some(is)) = (name(old), name(new))
        && was != is
    {
        said.push(format!("the default is `{is}` and was `{was}` (`gorgo ctl pin {is}` needs no restart)"));
    }
    if said.is_empty() {
        let moved = old.list.iter().zip(&new.list).find(|(old, new)| old.name != new.name)?;
        said.push(format!("policies changed places, first `{}` and `{}`", moved.0.name, moved.1.name));
    }
    Some(said.join("; "))
}

/// Whether nothing of a policy is new: neither its text nor a library.
fn is_same(old: &Policy, new: &Policy) -> bool {
    old.sha256 == new.sha256 && old.libraries().eq(new.libraries())
}

/// The weights that a policy goes on with: those that were found, where its terms and their bounds are as they were;
/// else those that are configured.
fn heritage(old: &Policy, found: &Weights, new: &Policy) -> Weights {
    let alike = old.terms.len() == new.terms.len()
        && old.terms.iter().zip(&new.terms).all(|(old, new)| old.name == new.name && old.weight == new.weight);
    if alike { Weights { generation: Generation(0), values: found.values.clone() } } else { new.weights() }
}

impl Router {
    /// Makes policies ready that were built again for the same fleet. Nothing has changed yet. `None`: all are as they
    /// were.
    ///
    /// # Errors
    /// What only a restart can change.
    pub fn succession(&self, mut policies: Policies) -> Result<Option<Succession>, String> {
        let old = self.ruling.load_full();
        if let Some(difference) = difference(&old.policies, &policies) {
            return Err(format!("{difference}: restart for that"));
        }
        if old.policies.windows != policies.windows {
            return Err("windows of concentration constraints changed: restart for that".to_owned());
        }
        let mut ruling = Ruling {
            policies: Arc::clone(&old.policies),
            weights: old.weights.clone(),
            tuners: old.tuners.clone(),
            next: old.next,
        };
        let mut places = Vec::new();
        for (place, policy) in policies.list.iter_mut().enumerate() {
            let before = &old.policies.list[place];
            if is_same(before, policy) {
                *policy = Arc::clone(before);
                continue;
            }
            let Some(new) = Arc::get_mut(policy) else {
                return Err("a policy that is in use already cannot take over".to_owned());
            };
            new.id = PolicyBuildId(ruling.next);
            ruling.next = ruling.next.checked_add(1).ok_or("too many policies in one run: restart")?;
            let weights = heritage(before, &old.weights[place].load(), new);
            ruling.tuners[place] = tuner(new, weights.clone(), &self.fleet);
            ruling.weights[place] = Arc::new(ArcSwap::from_pointee(weights));
            places.push(place);
        }
        ruling.policies = Arc::new(policies);
        Ok((!places.is_empty()).then_some(Succession { ruling, places }))
    }

    /// From the next decision on these policies decide. Gives what the tuners that go have to write down.
    pub fn take_over(&self, succession: Succession, at: At) -> Vec<Record> {
        let Succession { ruling, places } = succession;
        let old = self.ruling.swap(Arc::new(ruling));
        let mut records = Vec::new();
        for tuner in places.into_iter().filter_map(|place| old.tuners[place].as_ref()) {
            let mut tuner = tuner.lock();
            tuner.disturbed("the policy was loaded anew", at);
            records.append(&mut tuner.records());
        }
        records
    }
}
