//! State of a router that is worth keeping over a restart: the prefix index, and the rates learned of each replica.
//! Exported for the store, and restored into a new router before its first decision; or later, since nothing here waits
//! for a decision or delays one for long.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Router;
use crate::feature::prefix::{RestoreCounts, SnapshotPath};
use crate::model::{FleetEvent, ReplicaId, UnixMicros};

/// A part of the stored state that is not used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPart {
    /// Name of the part.
    pub part: &'static str,
    /// Reason.
    pub cause: String,
}

/// State learned about one replica. Each part is read separately, so that a faulty one costs only itself.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LearnedState {
    version: u32,
    /// See `feature::rates`.
    #[serde(default)]
    rates: Value,
    /// The same for requests that met no backlog.
    #[serde(default)]
    service: Value,
    /// See `feature::hit_correction`.
    #[serde(default)]
    hits: Value,
    /// See `feature::capacity_correction`.
    #[serde(default)]
    mirror: Value,
    /// See `feature::answer_stats`.
    #[serde(default)]
    answers: Value,
}

const VERSION: u32 = 1;

impl Router {
    /// Blocks that a replica is believed to hold, newest use first, at most `most_blocks` blocks.
    #[must_use]
    pub fn export_index(&self, replica: ReplicaId, most_blocks: usize) -> Vec<SnapshotPath> {
        self.index.export_paths(replica, most_blocks)
    }

    /// Declares that uses from `oldest` onwards will be restored; before the first decision.
    pub fn set_index_origin(&self, oldest: UnixMicros) {
        self.index.set_clock_origin(oldest);
    }

    /// Restores the blocks of a replica, newest use first. Only if its engine is certainly still the same process.
    pub fn restore_index(&self, replica: ReplicaId, uses: &[SnapshotPath]) -> RestoreCounts {
        self.index.restore(replica, uses)
    }

    /// State learned about a replica, as JSON for the next run.
    #[must_use]
    pub fn export_learned(&self, replica: ReplicaId) -> String {
        let state = self.state.lock();
        let (rates, service) = (state.rates.learned(replica), state.service.learned(replica));
        let (hits, mirror) = (state.hits.learned(replica), state.mirror.factor(replica));
        let answers = state.answers.learned(replica);
        // JSON is written after the lock is released.
        drop(state);
        // Numbers and lists of them can always be serialized.
        let value = |written: Result<Value, serde_json::Error>| written.unwrap_or_default();
        let learned = LearnedState {
            version: VERSION,
            rates: value(serde_json::to_value(rates)),
            service: value(serde_json::to_value(service)),
            hits: value(serde_json::to_value(hits)),
            mirror: value(serde_json::to_value(mirror)),
            answers: value(serde_json::to_value(answers)),
        };
        serde_json::to_string(&learned).unwrap_or_default()
    }

    /// Continues from the state that an earlier run learned about a replica. Returns the refused parts, each with its
    /// reason; the others are used.
    pub fn restore_learned(&self, replica: ReplicaId, text: &str) -> Vec<RefusedPart> {
        let learned: LearnedState = match serde_json::from_str(text) {
            Ok(learned) => learned,
            Err(cause) => return vec![RefusedPart { part: "all", cause: cause.to_string() }],
        };
        // Checked before any part is read: another version may use the same keys with other meanings.
        if learned.version != VERSION {
            let cause = format!("it has version {}; this gorgo reads version {VERSION}", learned.version);
            return vec![RefusedPart { part: "all", cause }];
        }
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        // All parts under one lock, so that no decision sees some of them restored and others not.
        part("rates", learned.rates, &mut refused, |it| state.rates.restore(replica, &it));
        part("service", learned.service, &mut refused, |it| state.service.restore(replica, &it));
        part("hits", learned.hits, &mut refused, |it| state.hits.restore(replica, it));
        part("mirror", learned.mirror, &mut refused, |it| state.mirror.restore(replica, it));
        part("answers", learned.answers, &mut refused, |it| state.answers.restore(replica, &it));
        refused
    }

    /// Takes in a round trip that an earlier run measured. This says nothing about whether the replica is up.
    pub fn restore_rtt(&self, replica: ReplicaId, at: UnixMicros, rtt_ms: f64) {
        self.state.lock().rtt.apply(&FleetEvent::Probe { replica, at, rtt_ms: Some(rtt_ms) });
    }
}

/// Reads and applies one part; an absent part was not learned.
fn part<T: serde::de::DeserializeOwned>(
    name: &'static str,
    value: Value,
    refused: &mut Vec<RefusedPart>,
    load: impl FnOnce(T) -> Result<(), &'static str>,
) {
    if value.is_null() {
        return;
    }
    let cause = match serde_json::from_value(value) {
        Ok(read) => load(read).err().map(str::to_owned),
        Err(cause) => Some(cause.to_string()),
    };
    refused.extend(cause.map(|cause| RefusedPart { part: name, cause }));
}
