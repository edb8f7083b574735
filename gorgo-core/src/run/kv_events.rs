//! Cache events: the replicas whose events are subscribed to, and the way of these events into the router's facts.

use std::sync::Arc;

use super::fleet::Member;
use gorgo_routing::model::{DecisionId, KvChange, KvCount, Prompt, ReplicaId};
use gorgo_routing::policy::Router;
use gorgo_wire::engine::kv_events::{CacheFacts, Lessons, Pupil, Source, Tally, listen_loop};
use gorgo_wire::engine::{Senses, TellServed};

/// Replicas with a subscription, until the loops are started.
pub(super) struct Caches {
    facts: Arc<dyn CacheFacts>,
    sources: Vec<Source>,
    pupils: Vec<Pupil>,
    tallies: Tallies,
    lessons: Lessons,
}

type Tallies = Vec<(ReplicaId, Arc<str>, Arc<Tally>)>;

/// Counters of the subscriptions, for the gauges.
pub(super) struct Heard {
    facts: Arc<dyn CacheFacts>,
    tallies: Tallies,
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heard").field("replicas", &self.tallies.len()).finish_non_exhaustive()
    }
}

impl Heard {
    pub(super) fn counts(&self) -> Vec<KvCount> {
        let count = |(replica, name, tally): &(ReplicaId, Arc<str>, Arc<Tally>)| {
            tally.count(Arc::clone(name), self.facts.is_exact(*replica))
        };
        self.tallies.iter().map(count).collect()
    }
}

impl Caches {
    /// Prepares the subscriptions of all members that name a publisher.
    pub(super) fn new(router: &Arc<Router>, members: &[Member]) -> Self {
        let facts: Arc<dyn CacheFacts> = Arc::new(Facts(Arc::clone(router)));
        let lessons = Lessons::new(members.len(), Arc::clone(&facts));
        let mut caches = Self { facts, sources: Vec::new(), pupils: Vec::new(), tallies: Vec::new(), lessons };
        for member in members {
            let Some(events) = &member.kv_events else { continue };
            let (replica, name) = (member.replica.id, &member.replica.name);
            // One set of counters per replica, shared by the listening loop, the token mapping and the gauges.
            let tally = Arc::new(Tally::default());
            let endpoint = member.watched.endpoint.clone();
            caches.pupils.push(caches.lessons.add(replica, Arc::clone(name), endpoint, Arc::clone(&tally)));
            caches.sources.push(Source {
                replica,
                name: Arc::clone(name),
                events: events.clone(),
                replay: member.kv_replay.clone(),
            });
            caches.tallies.push((replica, Arc::clone(name), tally));
        }
        caches
    }

    pub(super) fn heard(&self) -> Heard {
        Heard { facts: Arc::clone(&self.facts), tallies: self.tallies.clone() }
    }

    /// Starts the loops. `None` if there is no subscription.
    pub(super) fn start(self, senses: &Senses) -> Option<TellServed> {
        let Self { facts, sources, pupils, tallies, lessons } = self;
        if sources.is_empty() {
            return None;
        }
        // `sources` and `tallies` were filled together in `new`, so that they correspond by position.
        for (source, (_, _, tally)) in sources.into_iter().zip(tallies) {
            senses.tasks.spawn(listen_loop(source, Arc::clone(&facts), senses.clone(), tally));
        }
        for pupil in pupils {
            senses.tasks.spawn(pupil.learn_loop(senses.clone()));
        }
        Some(Arc::new(move |served| lessons.served(served)))
    }
}

struct Facts(Arc<Router>);

impl CacheFacts for Facts {
    fn apply(&self, replica: ReplicaId, changes: &[KvChange]) {
        self.0.apply_cache(replica, changes);
    }

    fn is_exact(&self, replica: ReplicaId) -> bool {
        self.0.is_cache_known(replica)
    }

    fn moment(&self) -> u64 {
        self.0.index_moment()
    }

    fn is_mapped(&self, replica: ReplicaId, prompt: &Prompt) -> bool {
        self.0.is_mapped(replica, prompt)
    }

    fn learn(&self, prompt: &Prompt, decision: DecisionId, tokens: &[u32]) {
        self.0.learn_tokens(prompt, decision, tokens);
    }

    fn settle(&self, prompt: &Prompt, decision: DecisionId, since: u64) {
        self.0.settle_cached(prompt, decision, since);
    }
}
