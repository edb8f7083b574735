//! Cache events: the replicas whose events are subscribed to, and the way of these events into the router's facts.

use std::sync::Arc;

use super::fleet::FleetReplica;
use gorgo_routing::model::{DecisionId, KvChange, KvEventStats, ParsedRequest, ReplicaId};
use gorgo_routing::policy::Router;
use gorgo_wire::engine::kv_events::{
    CacheFacts, KvEventCounters, KvEventSource, TokenizeQueue, TokenizeWorker, listen_loop,
};
use gorgo_wire::engine::{ProbeContext, ServedCallback};

/// Replicas with a subscription, until the loops are started.
pub(super) struct KvEventFeeds {
    facts: Arc<dyn CacheFacts>,
    sources: Vec<KvEventSource>,
    workers: Vec<TokenizeWorker>,
    tallies: ReplicaKvCounters,
    queue: TokenizeQueue,
}

type ReplicaKvCounters = Vec<(ReplicaId, Arc<str>, Arc<KvEventCounters>)>;

/// Counters of the subscriptions, for the gauges.
pub(super) struct KvEventGauges {
    facts: Arc<dyn CacheFacts>,
    tallies: ReplicaKvCounters,
}

impl std::fmt::Debug for KvEventGauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvEventGauges").field("replicas", &self.tallies.len()).finish_non_exhaustive()
    }
}

impl KvEventGauges {
    pub(super) fn counts(&self) -> Vec<KvEventStats> {
        let count = |(replica, name, tally): &(ReplicaId, Arc<str>, Arc<KvEventCounters>)| {
            tally.count(Arc::clone(name), self.facts.is_exact(*replica))
        };
        self.tallies.iter().map(count).collect()
    }
}

impl KvEventFeeds {
    /// Prepares the subscriptions of all members that name a publisher.
    pub(super) fn new(router: &Arc<Router>, members: &[FleetReplica]) -> Self {
        let facts: Arc<dyn CacheFacts> = Arc::new(RouterCacheFacts(Arc::clone(router)));
        let lessons = TokenizeQueue::new(members.len(), Arc::clone(&facts));
        let mut caches = Self { facts, sources: Vec::new(), workers: Vec::new(), tallies: Vec::new(), queue: lessons };
        for member in members {
            let Some(events) = &member.kv_events else { continue };
            let (replica, name) = (member.replica.id, &member.replica.name);
            // One set of counters per replica, shared by the listening loop, the token mapping and the gauges.
            let tally = Arc::new(KvEventCounters::default());
            let endpoint = member.monitored.endpoint.clone();
            caches.workers.push(caches.queue.add_replica(replica, Arc::clone(name), endpoint, Arc::clone(&tally)));
            caches.sources.push(KvEventSource {
                replica,
                name: Arc::clone(name),
                events: events.clone(),
                replay: member.kv_replay.clone(),
            });
            caches.tallies.push((replica, Arc::clone(name), tally));
        }
        caches
    }

    pub(super) fn gauges(&self) -> KvEventGauges {
        KvEventGauges { facts: Arc::clone(&self.facts), tallies: self.tallies.clone() }
    }

    /// Starts the loops. `None` if there is no subscription.
    pub(super) fn start(self, senses: &ProbeContext) -> Option<ServedCallback> {
        let Self { facts, sources, workers: pupils, tallies, queue: lessons } = self;
        if sources.is_empty() {
            return None;
        }
        // `sources` and `tallies` were filled together in `new`, so that they correspond by position.
        for (source, (_, _, tally)) in sources.into_iter().zip(tallies) {
            senses.tasks.spawn(listen_loop(source, Arc::clone(&facts), senses.clone(), tally));
        }
        for pupil in pupils {
            senses.tasks.spawn(pupil.run(senses.clone()));
        }
        Some(Arc::new(move |served| lessons.submit(served)))
    }
}

struct RouterCacheFacts(Arc<Router>);

impl CacheFacts for RouterCacheFacts {
    fn apply(&self, replica: ReplicaId, changes: &[KvChange]) {
        self.0.apply_cache_changes(replica, changes);
    }

    fn is_exact(&self, replica: ReplicaId) -> bool {
        self.0.is_cache_known(replica)
    }

    fn moment(&self) -> u64 {
        self.0.index_stamp()
    }

    fn is_mapped(&self, replica: ReplicaId, prompt: &ParsedRequest) -> bool {
        self.0.is_mapped(replica, prompt)
    }

    fn learn(&self, prompt: &ParsedRequest, decision: DecisionId, tokens: &[u32]) {
        self.0.learn_tokens(prompt, decision, tokens);
    }

    fn settle(&self, prompt: &ParsedRequest, decision: DecisionId, since: u64) {
        self.0.reconcile_cached(prompt, decision, since);
    }
}
