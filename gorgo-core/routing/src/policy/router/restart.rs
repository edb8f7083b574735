//! What a router knows that is worth more than a restart: the prefix index, and what it learned of each replica. Taken
//! out for the store, and put back into a new router before its first decision; or later, since nothing here waits for
//! a decision or holds one up for long.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Router;
use crate::feature::prefix::{Remembered, Restored};
use crate::model::{At, Event, ReplicaId};

/// A part of what was stored that is not used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which part.
    pub part: &'static str,
    /// Why.
    pub cause: String,
}

/// What was learned of one replica. Each part is read on its own, so that one that is wrong costs only itself.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Learned {
    version: u32,
    /// See `feature::rates`.
    #[serde(default)]
    rates: Value,
    /// The same of requests that waited for nobody.
    #[serde(default)]
    service: Value,
    /// See `feature::hit`.
    #[serde(default)]
    hits: Value,
    /// See `feature::mirror`.
    #[serde(default)]
    mirror: Value,
    /// See `feature::answer`.
    #[serde(default)]
    answers: Value,
}

const VERSION: u32 = 1;

impl Router {
    /// What a replica is believed to hold, newest use first, at most `most_blocks` blocks.
    #[must_use]
    pub fn remember_index(&self, replica: ReplicaId, most_blocks: usize) -> Vec<Remembered> {
        self.index.remember(replica, most_blocks)
    }

    /// Says that uses from `oldest` on will come back; before the first decision.
    pub fn index_begins_at(&self, oldest: At) {
        self.index.begin_at(oldest);
    }

    /// Puts back what a replica held, newest use first. Only where its engine is surely still the same.
    pub fn restore_index(&self, replica: ReplicaId, uses: &[Remembered]) -> Restored {
        self.index.restore(replica, uses)
    }

    /// What was learned of a replica, as JSON for the next run.
    #[must_use]
    pub fn learned(&self, replica: ReplicaId) -> String {
        let state = self.state.lock();
        let (rates, service) = (state.rates.learned(replica), state.service.learned(replica));
        let (hits, mirror) = (state.hits.learned(replica), state.mirror.factor(replica));
        let answers = state.answers.learned(replica);
        drop(state);
        // Numbers and lists of them can always be written.
        let value = |written: Result<Value, serde_json::Error>| written.unwrap_or_default();
        let learned = Learned {
            version: VERSION,
            rates: value(serde_json::to_value(rates)),
            service: value(serde_json::to_value(service)),
            hits: value(serde_json::to_value(hits)),
            mirror: value(serde_json::to_value(mirror)),
            answers: value(serde_json::to_value(answers)),
        };
        serde_json::to_string(&learned).unwrap_or_default()
    }

    /// Goes on from what an earlier run learned of a replica. Gives the parts that are refused, each with its reason;
    /// the others are used.
    pub fn go_on_from(&self, replica: ReplicaId, text: &str) -> Vec<Refused> {
        let learned: Learned = match serde_json::from_str(text) {
            Ok(learned) => learned,
            Err(cause) => return vec![Refused { part: "all", cause: cause.to_string() }],
        };
        if learned.version != VERSION {
            let cause = format!("it is of version {}, known is {VERSION}", learned.version);
            return vec![Refused { part: "all", cause }];
        }
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        part("rates", learned.rates, &mut refused, |it| state.rates.go_on_from(replica, &it));
        part("service", learned.service, &mut refused, |it| state.service.go_on_from(replica, &it));
        part("hits", learned.hits, &mut refused, |it| state.hits.go_on_from(replica, it));
        part("mirror", learned.mirror, &mut refused, |it| state.mirror.go_on_from(replica, it));
        part("answers", learned.answers, &mut refused, |it| state.answers.go_on_from(replica, &it));
        refused
    }

    /// A round trip that an earlier run measured. It says nothing of whether the replica is up.
    pub fn recall_rtt(&self, replica: ReplicaId, at: At, rtt_ms: f64) {
        self.state.lock().rtt.apply(&Event::Probe { replica, at, rtt_ms: Some(rtt_ms) });
    }
}

/// Reads one part and uses it; one that is absent was not learned.
fn part<T: serde::de::DeserializeOwned>(
    name: &'static str,
    value: Value,
    refused: &mut Vec<Refused>,
    load: impl FnOnce(T) -> Result<(), &'static str>,
) {
    if value.is_null() {
        return;
    }
    let cause = match serde_json::from_value(value) {
        Ok(read) => load(read).err().map(str::to_owned),
        Err(cause) => Some(cause.to_string()),
    };
    refused.extend(cause.map(|cause| Refused { part: name, cause }));
}
