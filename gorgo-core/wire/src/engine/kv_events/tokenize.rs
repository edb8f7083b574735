//! Learns which tokens an engine makes of the prompts that it answered, by asking the engine itself, beside its
//! requests.
//!
//! The client's own body goes to `POST /tokenize`, which reads the members that it needs (`messages`, `prompt`,
//! `tools`, the template's arguments) and ignores the rest. An engine gets one such request at a time; if many wait,
//! later ones are dropped, and the index works without them. A body is released once it was asked for, and nothing of
//! it is kept or logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{CacheFacts, Tally};
use crate::engine::Served;
use crate::engine::client::{Client, Endpoint};
use crate::engine::monitor::Senses;
use gorgo_routing::model::{ApiPath, DecisionId, EventKind, Prompt, ReplicaId};

const PATH: &str = "/tokenize";
/// Jobs that may wait for one engine.
const MOST_WAITING: usize = 128;
/// Bodies that may wait, of all engines, bytes.
const MOST_BYTES: usize = 32 << 20;
/// Longest answer: 2 million tokens.
const MOST_ANSWER: usize = 16 << 20;
const LIMIT: Duration = Duration::from_secs(10);
/// Shortest pause between two requests to an engine.
const PAUSE: Duration = Duration::from_millis(5);
/// After this many refusals in a row of one path, only one in [`SELDOM`] jobs is tried.
const REFUSALS: u32 = 3;
const SELDOM: u32 = 64;

struct Lesson {
    prompt: Arc<Prompt>,
    body: Bytes,
    decision: DecisionId,
    since: u64,
}

/// Worker that learns from one replica.
pub struct Pupil {
    replica: ReplicaId,
    name: Arc<str>,
    endpoint: Endpoint,
    tally: Arc<Tally>,
    lessons: mpsc::Receiver<Lesson>,
    waiting: Arc<AtomicUsize>,
    facts: Arc<dyn CacheFacts>,
}

impl std::fmt::Debug for Pupil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pupil").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Queue that takes answered requests. Submitting never waits.
pub struct Lessons {
    facts: Arc<dyn CacheFacts>,
    /// By replica; those without events have none.
    desks: Vec<Option<(mpsc::Sender<Lesson>, Arc<Tally>)>>,
    /// Bytes of the bodies that wait.
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Lessons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lessons").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Lessons {
    /// Queue for a fleet of `replicas`, none of which is added yet.
    #[must_use]
    pub fn new(replicas: usize, facts: Arc<dyn CacheFacts>) -> Self {
        let desks = std::iter::repeat_with(|| None).take(replicas).collect();
        Self { facts, desks, waiting: Arc::default() }
    }

    /// Adds a replica, of which [`Pupil::learn_loop`] then learns.
    pub fn add(&mut self, replica: ReplicaId, name: Arc<str>, endpoint: Endpoint, tally: Arc<Tally>) -> Pupil {
        let (sender, lessons) = mpsc::channel(MOST_WAITING);
        if let Some(desk) = self.desks.get_mut(replica.index()) {
            *desk = Some((sender, Arc::clone(&tally)));
        }
        let (waiting, facts) = (Arc::clone(&self.waiting), Arc::clone(&self.facts));
        Pupil { replica, name, endpoint, tally, lessons, waiting, facts }
    }

    /// Submits a request that an engine answered, so that its tokens may be learned.
    pub fn served(&self, served: &Served<'_>) {
        let Some((desk, tally)) = self.desks.get(served.replica.index()).and_then(Option::as_ref) else { return };
        tally.unheard.fetch_add(1, Relaxed);
        let prompt = served.prompt;
        let told = matches!(prompt.path, ApiPath::ChatCompletions | ApiPath::Completions);
        // `/tokenize` takes text, so neither token ids nor pictures; and adapters and salts make other blocks of the
        // same tokens.
        let other = prompt.apart || prompt.exact_tokens.is_some() || prompt.picture_bytes > 0;
        if !told || prompt.chain.is_empty() || other {
            return;
        }
        let bytes = served.body.len();
        // Reserved first and undone if over, because several requests submit at the same time.
        if self.waiting.fetch_add(bytes, Relaxed).saturating_add(bytes) > MOST_BYTES {
            self.waiting.fetch_sub(bytes, Relaxed);
            tally.unmapped.fetch_add(1, Relaxed);
            return;
        }
        // The moment is taken now: what the index learns of this prompt while the job waits must survive `settle`.
        let lesson = Lesson {
            prompt: Arc::clone(prompt),
            body: served.body.clone(),
            decision: served.decision,
            since: self.facts.moment(),
        };
        // Full: dropped, because waiting here would delay the client's response.
        if desk.try_send(lesson).is_err() {
            self.waiting.fetch_sub(bytes, Relaxed);
            tally.unmapped.fetch_add(1, Relaxed);
        }
    }
}

#[derive(Deserialize)]
struct Tokens {
    tokens: Vec<u32>,
}

impl Pupil {
    /// Asks for the tokens of answered requests until `senses.stop`.
    pub async fn learn_loop(mut self, senses: Senses) {
        let mut client = Client::new(self.endpoint.clone(), senses.tasks.clone());
        // Per path, completions and chats: SGLang supports only the former.
        let (mut refusals, mut passed) = ([0; 2], 0);
        loop {
            let lesson = tokio::select! {
                lesson = self.lessons.recv() => lesson,
                () = senses.stop.cancelled() => return,
            };
            let Some(Lesson { prompt, body, decision, since }) = lesson else { return };
            let bytes = body.len();
            // A known mapping, such as the head of a long conversation, need not be asked for again.
            if !self.facts.is_mapped(self.replica, &prompt) {
                passed += 1;
                let refused = &mut refusals[usize::from(prompt.path == ApiPath::ChatCompletions)];
                // Even a path that was refused is tried now and then, since the engine may be replaced by one that
                // supports it.
                let asks = *refused < REFUSALS || passed % SELDOM == 0;
                let answer = if asks {
                    tokio::select! {
                        answer = self.ask(&mut client, body, &senses) => answer,
                        () = senses.stop.cancelled() => return,
                    }
                } else {
                    Err(None)
                };
                match answer {
                    Ok(tokens) => {
                        *refused = 0;
                        self.tally.mapped.fetch_add(1, Relaxed);
                        self.facts.learn(&prompt, decision, &tokens);
                    }
                    Err(cause) => {
                        self.tally.unmapped.fetch_add(1, Relaxed);
                        if asks {
                            *refused += 1;
                        }
                        // Exactly at the limit, so that it is reported once per run of refusals.
                        if let (Some(cause), REFUSALS) = (cause, *refused) {
                            let text = format!(
                                "replica {} does not tokenize {} ({cause} to POST {PATH}), so its cache events \
                                 cannot be matched with those prompts",
                                self.name,
                                prompt.path.name()
                            );
                            senses.outlet.note(EventKind::MissingSignal, self.replica, text);
                        }
                    }
                }
            }
            // In every case: the index is compared with the events as far as this prompt's blocks are mapped by now.
            self.facts.settle(&prompt, decision, since);
            self.waiting.fetch_sub(bytes, Relaxed);
        }
    }

    /// Fetches the tokens of a body. The error says, for people, what was answered instead, but never quotes the
    /// engine's text, which may contain the prompt.
    async fn ask(&self, client: &mut Client, body: Bytes, senses: &Senses) -> Result<Vec<u32>, Option<String>> {
        let got = client.post(PATH, body, MOST_ANSWER, LIMIT, &*senses.clock).await;
        // Also after a failure, so that a failing engine is not asked in a tight loop.
        sleep(PAUSE).await;
        let answer = got.map_err(|cause| Some(cause.to_string()))?;
        if !answer.status.is_success() {
            return Err(Some(answer.status.as_u16().to_string()));
        }
        let read: Result<Tokens, _> = serde_json::from_slice(&answer.body);
        read.map(|read| read.tokens).map_err(|_| Some("no list of tokens".to_owned()))
    }
}
