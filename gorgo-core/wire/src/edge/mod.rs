//! Ring 3: the data plane. One plain function from request to response, on hyper.
//!
//! ```text
//! accept → route → body → choose → gate → forward → pool → engine
//!                                            └→ relay → client
//! ```
//!
//! Bodies pass byte for byte. Every request on an inference path ends in exactly one outcome row, every attempt in one
//! attempt row, and every reservation is released once: `ledger` and `attempt` are guards that ensure it even when a
//! future is dropped, which is what happens when a client leaves.

mod abort_signal;
mod budget;
mod choose;
mod decision_ids;
mod forward;
mod headers;
mod intake;
mod ledger;
mod listen;
mod local_reply;
mod relay;
mod upstream;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use hyper::header::HeaderName;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use choose::{AdmissionTicket, ReplicaLease, ReplicaSelector, RouterSelector, SelectedReplica, SelectionOutcome};
pub use decision_ids::DecisionIds;
pub use listen::serve;
pub use upstream::tcp_info;
pub use upstream::{DataPlaneSetupError, ReplicaSetup};

use crate::engine::ejection::EjectionChange;
use crate::engine::{ReplicaLiveness, ServedCallback};
use abort_signal::AbortSignal;
use budget::{ByteBudget, RetryBudget};
use forward::hedge_delays::HedgeDelays;
use gorgo_observe::FactOutlet;
use gorgo_routing::config::{FailoverConfig, ServerConfig};
use gorgo_routing::model::{Clock, ErrorClass, EventKind, PolicyIndex, ReplicaId};
use intake::object_owners::ObjectOwners;
use upstream::UpstreamReplica;
use upstream::pool::PoolConfig;

/// Flag for whether requests are accepted: `/ready` reports it, together with draining. Initially `false`; clones share
/// it.
#[derive(Debug, Clone, Default)]
pub struct ReadinessFlag(Arc<AtomicBool>);

impl ReadinessFlag {
    /// Sets the flag.
    pub fn set(&self, ready: bool) {
        // Relaxed: the flag guards no other data.
        self.0.store(ready, Ordering::Relaxed);
    }

    /// Current value.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Index of the policy that serves; an operator may change it while requests run. Clones share it.
#[derive(Debug, Clone)]
pub struct ServingPolicy(Arc<AtomicU16>);

impl ServingPolicy {
    /// Starts with this policy.
    #[must_use]
    // Relaxed: a decision that runs at this moment may use either policy.
    pub fn new(policy: PolicyIndex) -> Self {
        Self(Arc::new(AtomicU16::new(policy.0)))
    }

    /// Makes this policy serve from the next decision on.
    pub fn set(&self, policy: PolicyIndex) {
        self.0.store(policy.0, Ordering::Relaxed);
    }

    /// Policy that serves now.
    #[must_use]
    pub fn get(&self) -> PolicyIndex {
        PolicyIndex(self.0.load(Ordering::Relaxed))
    }
}

/// Count of headers that are hints to the router and could not be read, since the start; clones share the count.
#[derive(Debug, Clone, Default)]
pub struct UnreadHints(Arc<AtomicU64>);

impl UnreadHints {
    /// Counts one more.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Current count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Everything that the data plane is built from.
pub struct DataPlaneSetup {
    /// Chooses replicas; in `serve` a [`RouterSelector`].
    pub selector: Arc<dyn ReplicaSelector>,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Liveness of the replicas, to report signs of life to: a replica that streams is alive, whatever its health page
    /// says.
    pub liveness: Arc<ReplicaLiveness>,
    /// Outlet for facts and rows.
    pub outlet: FactOutlet,
    /// Callback for requests that engines answered, to learn from them.
    pub on_served: Option<ServedCallback>,
    /// Readiness flag; set by the task that watches the fleet.
    pub readiness: ReadinessFlag,
    /// Counter of `x-slo-ttft-ms` headers whose value is no number of ms.
    pub unread_hints: UnreadHints,
    /// `[server]`
    pub server: ServerConfig,
    /// `[failover]`
    pub failover: FailoverConfig,
    /// The fleet, by replica id: position `i` has id `i`.
    pub replicas: Vec<ReplicaSetup>,
    /// Policy that serves.
    pub serving: ServingPolicy,
    /// Decision ids above those in the database.
    pub ids: DecisionIds,
    /// Seed of the run; each decision's seed is derived from it and the decision's id.
    pub seed: u64,
}

/// Shared state of the data plane.
pub struct DataPlane {
    selector: Arc<dyn ReplicaSelector>,
    clock: Arc<dyn Clock>,
    outlet: FactOutlet,
    on_served: Option<ServedCallback>,
    liveness: Arc<ReplicaLiveness>,
    server: ServerConfig,
    session_header: HeaderName,
    failover: FailoverConfig,
    replicas: Vec<UpstreamReplica>,
    serving: ServingPolicy,
    ids: DecisionIds,
    seed: u64,
    body_budget: Arc<ByteBudget>,
    retry_budget: RetryBudget,
    hedge_delays: HedgeDelays,
    object_owners: ObjectOwners,
    readiness: ReadinessFlag,
    unread_hints: UnreadHints,
    draining: CancellationToken,
    abort: AbortSignal,
}

impl DataPlane {
    /// Checks that the congestion control is available. Connections to engines run as tasks of `tracker`.
    ///
    /// # Errors
    /// The session header's name or the congestion control cannot be used.
    pub fn new(setup: DataPlaneSetup, tracker: &TaskTracker) -> Result<Arc<Self>, DataPlaneSetupError> {
        let keeping = PoolConfig {
            connect_timeout: Duration::from_millis(setup.server.connect_timeout_ms),
            spare: usize::try_from(setup.server.spare_connections).unwrap_or(usize::MAX),
            idle_max: Duration::from_millis(setup.server.keep_idle_ms),
        };
        let congestion = congestion(&setup.server.congestion_control)?;
        // Checked once here: an unusable name would otherwise make every dial fail.
        let upstreams = setup
            .replicas
            .iter()
            .map(|replica| UpstreamReplica::new(replica, congestion.clone(), keeping, tracker.clone()));
        let upstreams: Vec<UpstreamReplica> = upstreams.collect();
        let session_header = HeaderName::from_bytes(setup.server.session_header.as_bytes())
            .map_err(|_| DataPlaneSetupError::SessionHeader(setup.server.session_header.clone()))?;
        Ok(Arc::new(Self {
            selector: setup.selector,
            // Before `upstreams` moves below: one window of samples per replica.
            clock: setup.clock,
            outlet: setup.outlet,
            on_served: setup.on_served,
            liveness: setup.liveness,
            body_budget: ByteBudget::new(setup.server.max_buffered_bytes),
            retry_budget: RetryBudget::new(setup.failover.budget_share),
            hedge_delays: HedgeDelays::new(setup.failover.hedge, upstreams.len()),
            server: setup.server,
            session_header,
            failover: setup.failover,
            replicas: upstreams,
            serving: setup.serving,
            ids: setup.ids,
            seed: setup.seed,
            object_owners: ObjectOwners::default(),
            readiness: setup.readiness,
            unread_hints: setup.unread_hints,
            draining: CancellationToken::new(),
            abort: AbortSignal::default(),
        }))
    }

    /// Returns `true` if `/ready` answers 200.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Draining counts as not ready, so that load balancers stop sending here before the port closes.
        self.readiness.get() && !self.draining.is_cancelled()
    }

    /// Aborts all requests now, as errors of class `Shutdown`: the effect of a second signal.
    pub fn abort_requests(&self) {
        self.abort.trigger();
    }

    fn replica(&self, replica: ReplicaId) -> Option<&UpstreamReplica> {
        // Not indexed: an id outside the fleet must not panic in the middle of a request.
        self.replicas.get(replica.index())
    }

    fn replica_ids(&self) -> impl Iterator<Item = ReplicaId> {
        (0..self.replicas.len()).filter_map(|index| u16::try_from(index).ok().map(ReplicaId))
    }

    /// Records that a replica was ejected, or returned from ejection. `cause`: the last failure.
    fn record_ejection_change(&self, replica: ReplicaId, shift: Option<EjectionChange>, cause: Option<ErrorClass>) {
        let Some(shift) = shift else { return };
        let name = self.replica(replica).map_or("?", |upstream| &*upstream.name);
        let (kind, text) = match shift {
            // Operators see an ejection as the same kinds of event as failed health checks: either way the replica gets
            // no requests.
            EjectionChange::Ejected(span) => {
                let cause = cause.map_or("it asked for a pause", ErrorClass::name);
                let text =
                    format!("replica {name} is ejected for {} s: requests to it failed ({cause})", span.as_secs());
                (EventKind::ReplicaDown, text)
            }
            EjectionChange::Returned => {
                (EventKind::ReplicaUp, format!("replica {name} recovered; its share grows slowly"))
            }
        };
        self.outlet.note(kind, replica, text);
    }

    /// Time that running requests have to end after the signal, s.
    #[must_use]
    pub const fn drain_secs(&self) -> u64 {
        self.server.drain_secs
    }

    fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.server.idle_timeout_ms)
    }

    fn first_byte_timeout(&self) -> Duration {
        Duration::from_millis(self.server.first_byte_timeout_ms)
    }
}

/// Congestion control by name, after a check that this process may choose it.
fn congestion(name: &str) -> Result<Option<Arc<str>>, DataPlaneSetupError> {
    // Empty: the system's default, which needs no permission.
    if name.is_empty() {
        return Ok(None);
    }
    upstream::dial::check_congestion(name)
        .map_err(|cause| DataPlaneSetupError::Congestion { name: name.to_owned(), cause: cause.to_string() })?;
    Ok(Some(name.into()))
}

impl fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataPlane").field("upstreams", &self.replicas.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
