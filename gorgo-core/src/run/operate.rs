//! Actions of an operator on a running router: drain a replica and resume it, pin another policy, and read the state.
//!
//! A drained replica gets no new requests; running requests and probes continue. Draining ends with the process. A
//! pinned policy serves instead of the default one, from the next decision onwards and in later runs on the same
//! history too, until it is unpinned. Both are recorded as events, so that the history explains which policy or replica
//! served.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use gorgo_observe::{FactOutlet, log};
use gorgo_routing::model::{EventKind, PolicyIndex, PolicyWeights, Replica};
use gorgo_routing::policy::{PolicySet, Router};
use gorgo_store::HistorySink;
use gorgo_wire::edge::{ReadinessFlag, ServingPolicy};

/// Time that the store has to write a pin; after it the operator gets an error, though the pin may still be written.
const WRITE_LIMIT: Duration = Duration::from_secs(5);

/// Parts that the operators' pages act on.
pub(super) struct OperatorActions {
    pub(super) router: Arc<Router>,
    pub(super) serving: ServingPolicy,
    /// Policy that serves while none is pinned.
    pub(super) default: PolicyIndex,
    pub(super) readiness: ReadinessFlag,
    pub(super) sink: HistorySink,
    pub(super) outlet: FactOutlet,
}

/// Reason why an action was not done, or not completely.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ActionError {
    /// No such replica or policy; the text lists or suggests known ones.
    Unknown(String),
    /// The action took effect, but could not be stored.
    NotPersisted(String),
}

impl OperatorActions {
    /// Describes each replica: state, draining or not, numbers of requests in flight and waiting for it.
    pub(super) fn replicas(&self) -> Value {
        let one = |replica: &Replica| {
            // A replica that no probe has reached yet is not known to be down, hence no `down`.
            let state = if self.router.replica_state(replica.id).is_up() { "up" } else { "not-up" };
            json!({
                "replica": &*replica.name,
                "region": &*replica.region,
                "state": state,
                "draining": self.router.is_draining(replica.id),
                "inflight": self.router.load_totals(replica.id).0,
                "waiting": self.router.waiting_requests(replica.id),
            })
        };
        Value::Array(self.router.fleet().iter().map(one).collect())
    }

    /// Drains a replica, or resumes it. Returns a message for the operator.
    pub(super) fn drain(&self, name: &str, draining: bool) -> Result<String, ActionError> {
        let fleet = self.router.fleet();
        let Some(replica) = fleet.iter().find(|replica| *replica.name == *name) else {
            let known: Vec<&str> = fleet.iter().map(|replica| &*replica.name).collect();
            return Err(ActionError::Unknown(format!("no replica `{name}`; known: {}", known.join(", "))));
        };
        let news = self.router.set_draining(replica.id, draining);
        // `/ready` must follow at once: with the last replica drained, a load balancer should look elsewhere.
        let welcome = accepts_requests(&self.router);
        self.readiness.set(welcome);
        let running = self.router.load_totals(replica.id).0;
        let (kind, text) = if draining {
            let rest = if welcome { "" } else { "; no other replica takes requests, so new ones get 503" };
            let text = format!(
                "replica {name} is drained: nothing new goes there; {running} requests are still running{rest}"
            );
            (EventKind::ReplicaDraining, text)
        } else {
            (EventKind::ReplicaUp, format!("replica {name} takes requests again whenever it is up"))
        };
        // Repeating a command is harmless, and no event.
        if news {
            self.outlet.note(kind, replica.id, text.clone());
        }
        Ok(text)
    }

    /// Names the policies that serve, are the default, and are pinned.
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

    /// Switches to another policy, or back to the default one. The switch takes effect at once, whatever the store
    /// does; then it is stored for later runs.
    pub(super) async fn pin(&self, name: Option<&str>) -> Result<String, ActionError> {
        let policies = self.router.policies();
        let place = match name {
            None => self.default,
            Some(name) => policies.index_of(name).ok_or_else(|| {
                let near = gorgo_routing::config::nearest(name, policies.list.iter().map(|policy| &*policy.name));
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                ActionError::Unknown(format!("no policy `{name}`{near}"))
            })?,
        };
        // Before the store is asked: pinning is the kill switch for a bad policy, and must work while the disk is full.
        self.serving.set(place);
        let text = match name {
            Some(name) => format!("policy {name} is pinned: it serves until it is unpinned, in later runs too"),
            None => {
                let default = policies.get(place).map_or("?", |policy| &*policy.name);
                format!("no policy is pinned; the default, {default}, serves")
            }
        };
        self.outlet.announce(EventKind::ConfigChange, text.clone());
        // While its disk is full or locked, the writer retries for as long as that lasts: do not wait with it.
        let written = match timeout(WRITE_LIMIT, self.sink.pin_policy(name.map(str::to_owned))).await {
            Ok(Ok(())) => return Ok(text),
            Ok(Err(cause)) => cause.to_string(),
            Err(_) => format!("the store did not answer within {} s", WRITE_LIMIT.as_secs()),
        };
        Err(ActionError::NotPersisted(format!(
            "{text}. This is in effect now, but may be lost at a restart: {written}"
        )))
    }

    /// Describes the tuners: incumbent weights, weights on trial, and the tuner's last message.
    pub(super) fn tuners(&self) -> Value {
        let policies = self.router.policies();
        let tuned = policies.list.iter().zip(0_u16..).filter_map(|(policy, place)| {
            let id = PolicyIndex(place);
            let said = self.router.tuner_status(id)?;
            let weights = |weights: Arc<PolicyWeights>| {
                let named = policy.terms.iter().zip(&weights.values);
                let named: serde_json::Map<String, Value> =
                    named.map(|(term, weight)| (term.name.to_string(), json!(weight))).collect();
                json!({ "generation": weights.generation.0, "weights": named })
            };
            Some(json!({
                "policy": &*policy.name,
                "serves": id == self.serving.get(),
                "message": said,
                "incumbent": self.router.incumbent(id).map(&weights),
                "on_trial": self.router.weights_on_trial(id).map(&weights),
            }))
        });
        Value::Array(tuned.collect())
    }
}

/// Returns true if any replica takes new requests, as `/ready` reports to a load balancer.
pub(super) fn accepts_requests(router: &Router) -> bool {
    router.fleet().iter().any(|replica| router.replica_state(replica.id).is_up() && !router.is_draining(replica.id))
}

/// Returns the policy that a run begins with: the one that an earlier run pinned, if the configuration still has it.
pub(super) fn initial_policy(policies: &PolicySet, pinned: Option<&str>) -> PolicyIndex {
    let Some(name) = pinned else { return policies.default };
    match policies.index_of(name) {
        Some(place) => {
            log::policy_pinned(name);
            place
        }
        None => {
            // Not an error that stops the start: a renamed policy should not keep the router down.
            log::pin_refused(name);
            policies.default
        }
    }
}
