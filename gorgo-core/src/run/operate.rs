//! What an operator can do to a running router: take a replica out and let it back, pin another policy, and look.
//!
//! A drained replica gets nothing new; what runs there goes on, and probes go on too. That lasts as long as the process.
//! A pinned policy serves instead of the default one, from the next decision on and in later runs on the same history too,
//! until it is unpinned. Both are events, so that the history says who served why.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use gorgo_observe::{FactOutlet, log};
use gorgo_routing::model::{EventKind, PolicyIndex, Replica, Weights};
use gorgo_routing::policy::{Policies, Router};
use gorgo_store::Sink;
use gorgo_wire::edge::{Readiness, Serving};

/// How long the store may take to write a pin down, before the operator is told that it has not.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// What the operators' pages act on.
pub(super) struct Operators {
    pub(super) router: Arc<Router>,
    pub(super) serving: Serving,
    /// The policy that serves where none is pinned.
    pub(super) default: PolicyIndex,
    pub(super) readiness: Readiness,
    pub(super) sink: Sink,
    pub(super) outlet: FactOutlet,
}

/// Why it was not done, or not whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotDone {
    /// There is no such replica or policy; with those that are.
    Unknown(String),
    /// It was done, but could not be written down.
    Unwritten(String),
}

impl Operators {
    /// The replicas: state, whether they are drained, and how many requests are there.
    pub(super) fn replicas(&self) -> Value {
        let one = |replica: &Replica| {
            let state = if self.router.replica_state(replica.id).is_up() { "up" } else { "not-up" };
            json!({
                "replica": &*replica.name,
                "region": &*replica.region,
                "state": state,
                "draining": self.router.is_draining(replica.id),
                "inflight": self.router.load(replica.id).0,
                "held": self.router.held(replica.id),
            })
        };
        Value::Array(self.router.fleet().iter().map(one).collect())
    }

    /// Takes a replica out, or lets it back. What is to be said of it.
    pub(super) fn drain(&self, name: &str, draining: bool) -> Result<String, NotDone> {
        let fleet = self.router.fleet();
        let Some(replica) = fleet.iter().find(|replica| *replica.name == *name) else {
            let known: Vec<&str> = fleet.iter().map(|replica| &*replica.name).collect();
            return Err(NotDone::Unknown(format!("no replica `{name}`; known: {}", known.join(", "))));
        };
        let news = self.router.set_draining(replica.id, draining);
        let welcome = welcomes(&self.router);
        self.readiness.set(welcome);
        let running = self.router.load(replica.id).0;
        let (kind, text) = if draining {
            let rest = if welcome { "" } else { "; no other replica takes requests, so new ones get 503" };
            let text = format!("replica {name} is drained: nothing new goes there; {running} requests still run{rest}");
            (EventKind::ReplicaDraining, text)
        } else {
            (EventKind::ReplicaUp, format!("replica {name} takes requests again, as far as it is up"))
        };
        if news {
            self.outlet.note(kind, replica.id, text.clone());
        }
        Ok(text)
    }

    /// Which policy serves, which is the default, which is pinned.
    pub(super) fn policy(&self) -> Value {
        let policies = self.router.policies();
        let name = |id| policies.get(id).map(|policy| policy.name.to_string());
        let serves = self.serving.get();
        json!({
            "serves": name(serves),
            "default": name(self.default),
            "pinned": (serves != self.default).then(|| name(serves)),
        })
    }

    /// Lets another policy serve, or the default one again. That holds at once, whatever the store does; then it is written
    /// down for later runs.
    pub(super) async fn pin(&self, name: Option<&str>) -> Result<String, NotDone> {
        let policies = self.router.policies();
        let place = match name {
            None => self.default,
            Some(name) => policies.index_of(name).ok_or_else(|| {
                let near = gorgo_routing::config::nearest(name, policies.list.iter().map(|policy| &*policy.name));
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                NotDone::Unknown(format!("no policy `{name}`{near}"))
            })?,
        };
        self.serving.set(place);
        let text = match name {
            Some(name) => format!("policy {name} is pinned: it serves until it is unpinned, in later runs too"),
            None => {
                let default = policies.get(place).map_or("?", |policy| &*policy.name);
                format!("no policy is pinned any more: {default}, the default, serves")
            }
        };
        self.outlet.announce(EventKind::ConfigChange, text.clone());
        let written = match timeout(WRITE_LIMIT, self.sink.pin_policy(name.map(str::to_owned))).await {
            Ok(Ok(())) => return Ok(text),
            Ok(Err(cause)) => cause.to_string(),
            Err(_) => format!("the store has not answered for {} s", WRITE_LIMIT.as_secs()),
        };
        Err(NotDone::Unwritten(format!("{text}. That holds now, but a later run may not know it: {written}")))
    }

    /// What the tuners do: the weights that won, those on trial, and why.
    pub(super) fn tuners(&self) -> Value {
        let policies = self.router.policies();
        let tuned = policies.list.iter().zip(0_u16..).filter_map(|(policy, place)| {
            let id = PolicyIndex(place);
            let said = self.router.tuner_said(id)?;
            let weights = |weights: Arc<Weights>| {
                let named = policy.terms.iter().zip(&weights.values);
                let named: serde_json::Map<String, Value> =
                    named.map(|(term, weight)| (term.name.to_string(), json!(weight))).collect();
                json!({ "generation": weights.generation.0, "weights": named })
            };
            Some(json!({
                "policy": &*policy.name,
                "serves": id == self.serving.get(),
                "said": said,
                "incumbent": self.router.incumbent(id).map(&weights),
                "on_trial": self.router.on_trial(id).map(&weights),
            }))
        });
        Value::Array(tuned.collect())
    }
}

/// Whether there is a replica for new requests: what `/ready` tells a load balancer.
pub(super) fn welcomes(router: &Router) -> bool {
    router.fleet().iter().any(|replica| router.replica_state(replica.id).is_up() && !router.is_draining(replica.id))
}

/// The policy that a run begins with: the one that an earlier run pinned, where there still is such a policy.
pub(super) fn begins_with(policies: &Policies, pinned: Option<&str>) -> PolicyIndex {
    let Some(name) = pinned else { return policies.default };
    match policies.index_of(name) {
        Some(place) => {
            log::policy_pinned(name);
            place
        }
        None => {
            log::pin_refused(name);
            policies.default
        }
    }
}
