//! Ring 3: the data plane. One plain function from request to response, on hyper.
//!
//! ```text
//! accept → route → body → choose → gate → forward → pool → engine
//!                                            └→ relay → client
//! ```
//!
//! Bodies cross byte for byte. Every request on an inference path ends in exactly one outcome row, every attempt in
//! one attempt row, and every reservation is given back once: `ledger` and `attempt` are guards that see to it when a
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

pub use choose::{Choice, Choose, Entry, Lease, Place, RouterChoice};
pub use decision_ids::DecisionIds;
pub use listen::serve;
pub use upstream::tcp_info;
pub use upstream::{UpstreamError, UpstreamSetup};

use crate::engine::ejection::Shift;
use crate::engine::{TellServed, Vitals};
use abort_signal::Cut;
use budget::{ByteBudget, RetryBudget};
use forward::hedge_delays::Patience;
use gorgo_observe::FactOutlet;
use gorgo_routing::config::{Failover, Server};
use gorgo_routing::model::{Clock, ErrorClass, EventKind, PolicyIndex, ReplicaId};
use intake::object_owners::Holders;
use upstream::Upstream;
use upstream::pool::Keeping;

/// Whether requests are welcome: what `/ready` answers, besides draining. Starts as no; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Says so.
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    /// What was said last.
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The place of the policy that serves; an operator may change it while requests run. Clones share it.
#[derive(Debug, Clone)]
pub struct Serving(Arc<AtomicU16>);

impl Serving {
    /// Begins with this one.
    #[must_use]
    pub fn new(policy: PolicyIndex) -> Self {
        Self(Arc::new(AtomicU16::new(policy.0)))
    }

    /// From the next decision on this one serves.
    pub fn set(&self, policy: PolicyIndex) {
        self.0.store(policy.0, Ordering::Relaxed);
    }

    /// The one that serves now.
    #[must_use]
    pub fn get(&self) -> PolicyIndex {
        PolicyIndex(self.0.load(Ordering::Relaxed))
    }
}

/// Headers that are hints to the router and could not be read, since the start; clones share the count.
#[derive(Debug, Clone, Default)]
pub struct UnreadHints(Arc<AtomicU64>);

impl UnreadHints {
    /// One more.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the data plane is made of.
pub struct DataSetup {
    /// Chooses replicas; in `serve` a [`RouterChoice`].
    pub choose: Arc<dyn Choose>,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where signs of life of the replicas go: a replica that streams lives, whatever its health page does.
    pub vitals: Arc<Vitals>,
    /// Where facts and rows leave.
    pub outlet: FactOutlet,
    /// Who learns from what engines answer.
    pub served: Option<TellServed>,
    /// Whether requests are welcome; set by whoever watches the fleet.
    pub readiness: Readiness,
    /// Counts `x-slo-ttft-ms` headers that are no number of ms.
    pub unread_hints: UnreadHints,
    /// `[server]`
    pub server: Server,
    /// `[failover]`
    pub failover: Failover,
    /// The fleet, by replica id: position `i` has id `i`.
    pub replicas: Vec<UpstreamSetup>,
    /// The policy that serves.
    pub serving: Serving,
    /// Decision ids above what the database holds.
    pub ids: DecisionIds,
    /// Seed of the run; each decision's seed is derived from it and the decision's id.
    pub seed: u64,
}

/// The data plane's shared state.
pub struct Data {
    choose: Arc<dyn Choose>,
    clock: Arc<dyn Clock>,
    outlet: FactOutlet,
    served: Option<TellServed>,
    vitals: Arc<Vitals>,
    server: Server,
    session_header: HeaderName,
    failover: Failover,
    upstreams: Vec<Upstream>,
    serving: Serving,
    ids: DecisionIds,
    seed: u64,
    bodies: Arc<ByteBudget>,
    retries: RetryBudget,
    patience: Patience,
    holders: Holders,
    readiness: Readiness,
    unread_hints: UnreadHints,
    draining: CancellationToken,
    cut: Cut,
}

impl Data {
    /// Checks that the congestion control can be had. Upstream connections run as tasks of `tracker`.
    ///
    /// # Errors
    /// The header name or the congestion control that cannot be used.
    pub fn new(setup: DataSetup, tracker: &TaskTracker) -> Result<Arc<Self>, UpstreamError> {
        let keeping = Keeping {
            connect_timeout: Duration::from_millis(setup.server.connect_timeout_ms),
            spare: usize::try_from(setup.server.spare_connections).unwrap_or(usize::MAX),
            idle_max: Duration::from_millis(setup.server.keep_idle_ms),
        };
        let congestion = congestion(&setup.server.congestion_control)?;
        let upstreams =
            setup.replicas.iter().map(|replica| Upstream::new(replica, congestion.clone(), keeping, tracker.clone()));
        let upstreams: Vec<Upstream> = upstreams.collect();
        let session_header = HeaderName::from_bytes(setup.server.session_header.as_bytes())
            .map_err(|_| UpstreamError::SessionHeader(setup.server.session_header.clone()))?;
        Ok(Arc::new(Self {
            choose: setup.choose,
            clock: setup.clock,
            outlet: setup.outlet,
            served: setup.served,
            vitals: setup.vitals,
            bodies: ByteBudget::new(setup.server.max_buffered_bytes),
            retries: RetryBudget::new(setup.failover.budget_share),
            patience: Patience::new(setup.failover.hedge, upstreams.len()),
            server: setup.server,
            session_header,
            failover: setup.failover,
            upstreams,
            serving: setup.serving,
            ids: setup.ids,
            seed: setup.seed,
            holders: Holders::default(),
            readiness: setup.readiness,
            unread_hints: setup.unread_hints,
            draining: CancellationToken::new(),
            cut: Cut::default(),
        }))
    }

    /// Whether `/ready` answers 200.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.readiness.get() && !self.draining.is_cancelled()
    }

    /// Ends all requests now, as errors of class `Shutdown`: what a second signal asks for.
    pub fn cut_now(&self) {
        self.cut.make();
    }

    fn upstream(&self, replica: ReplicaId) -> Option<&Upstream> {
        self.upstreams.get(replica.index())
    }

    fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        (0..self.upstreams.len()).filter_map(|index| u16::try_from(index).ok().map(ReplicaId))
    }

    /// Writes down that the wire holds a replica back, or lets it return. `cause`: the last failure.
    fn note_shift(&self, replica: ReplicaId, shift: Option<Shift>, cause: Option<ErrorClass>) {
        let Some(shift) = shift else { return };
        let name = self.upstream(replica).map_or("?", |upstream| &*upstream.name);
        let (kind, text) = match shift {
            Shift::Held(span) => {
                let cause = cause.map_or("its own wish", ErrorClass::name);
                let text =
                    format!("replica {name} is held back for {} s: requests failed there ({cause})", span.as_secs());
                (EventKind::ReplicaDown, text)
            }
            Shift::Back => (EventKind::ReplicaUp, format!("replica {name} answers requests again; it starts slowly")),
        };
        self.outlet.note(kind, replica, text);
    }

    /// How long running requests have to end after the signal, s.
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

/// The congestion control that was asked for, where this process may choose it.
fn congestion(name: &str) -> Result<Option<Arc<str>>, UpstreamError> {
    if name.is_empty() {
        return Ok(None);
    }
    upstream::dial::check_congestion(name)
        .map_err(|cause| UpstreamError::Congestion { name: name.to_owned(), cause: cause.to_string() })?;
    Ok(Some(name.into()))
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Data").field("upstreams", &self.upstreams.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
