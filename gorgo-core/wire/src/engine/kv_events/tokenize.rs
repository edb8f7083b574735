//! What tokens an engine makes of the prompts that it answered: asked of the engine itself, beside its requests.
//!
//! The client's own body goes to `POST /tokenize`, which reads what it needs of it (`messages`, `prompt`, `tools`, the
//! template's arguments) and passes over the rest. One question at a time to an engine; where many wait, later ones are left
//! out, and the index goes on without them. A body is let go once it was asked for, and nothing of it is kept or logged.

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
/// Lessons that may wait for one engine.
const MOST_WAITING: usize = 128;
/// Bodies that may wait, of all engines, bytes.
const MOST_BYTES: usize = 32 << 20;
/// Longest answer: 2 million tokens.
const MOST_ANSWER: usize = 16 << 20;
const LIMIT: Duration = Duration::from_secs(10);
/// Least time between two questions to an engine.
const PAUSE: Duration = Duration::from_millis(5);
/// After so many refusals in a row, of one path, only one in [`SELDOM`] lessons is asked for.
const REFUSALS: u32 = 3;
const SELDOM: u32 = 64;

struct Lesson {
    prompt: Arc<Prompt>,
    body: Bytes,
    decision: DecisionId,
    since: u64,
}

/// One replica to learn of.
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

/// Where answered requests are handed in. Takes no longer than a queue does.
pub struct Lessons {
    facts: Arc<dyn CacheFacts>,
    /// By replica; those without events have none.
    desks: Vec<Option<(mpsc::Sender<Lesson>, Arc<Tally>)>>,
    /// Bytes of bodies that wait.
    waiting: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Lessons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lessons").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Lessons {
    /// For a fleet of `replicas`, of which none is learned of yet.
    #[must_use]
    pub fn new(replicas: usize, facts: Arc<dyn CacheFacts>) -> Self {
        let desks = std::iter::repeat_with(|| None).take(replicas).collect();
        Self { facts, desks, waiting: Arc::default() }
    }

    /// Learns of a replica from now on, if [`Pupil::learn_loop`] runs.
    pub fn add(&mut self, replica: ReplicaId, name: Arc<str>, endpoint: Endpoint, tally: Arc<Tally>) -> Pupil {
        let (sender, lessons) = mpsc::channel(MOST_WAITING);
        if let Some(desk) = self.desks.get_mut(replica.index()) {
            *desk = Some((sender, Arc::clone(&tally)));
        }
        let (waiting, facts) = (Arc::clone(&self.waiting), Arc::clone(&self.facts));
        Pupil { replica, name, endpoint, tally, lessons, waiting, facts }
    }

    /// An engine answers a request: what it holds of it may be learned.
    pub fn served(&self, served: &Served<'_>) {
        let Some((desk, tally)) = self.desks.get(served.replica.index()).and_then(Option::as_ref) else { return };
        tally.unheard.fetch_add(1, Relaxed);
        let prompt = served.prompt;
        let told = matches!(prompt.path, ApiPath::ChatCompletions | ApiPath::Completions);
        // Token ids are no text to `/tokenize`; pictures are no text at all; adapters and salts make other blocks of the same
        // tokens.
        let other = prompt.apart || prompt.exact_tokens.is_some() || prompt.picture_bytes > 0;
        if !told || prompt.chain.is_empty() || other {
            return;
        }
        let bytes = served.body.len();
        if self.waiting.fetch_add(bytes, Relaxed).saturating_add(bytes) > MOST_BYTES {
            self.waiting.fetch_sub(bytes, Relaxed);
            tally.unmapped.fetch_add(1, Relaxed);
            return;
        }
        let lesson = Lesson {
            prompt: Arc::clone(prompt),
            body: served.body.clone(),
            decision: served.decision,
            since: self.facts.moment(),
        };
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
    /// Asks for the tokens of what was answered until `senses.stop`.
    pub async fn learn_loop(mut self, senses: Senses) {
        let mut client = Client::new(self.endpoint.clone(), senses.tasks.clone());
        // Of completions and of chats: SGLang knows only the former.
        let (mut refusals, mut passed) = ([0; 2], 0);
        loop {
            let lesson = tokio::select! {
                lesson = self.lessons.recv() => lesson,
                () = senses.stop.cancelled() => return,
            };
            let Some(Lesson { prompt, body, decision, since }) = lesson else { return };
            let bytes = body.len();
            if !self.facts.is_mapped(self.replica, &prompt) {
                passed += 1;
                let refused = &mut refusals[usize::from(prompt.path == ApiPath::ChatCompletions)];
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
                        if let (Some(cause), REFUSALS) = (cause, *refused) {
                            let text = format!(
                                "replica {} tells no tokens of {} ({cause} to POST {PATH}), so that its cache events say \
                                 nothing of them",
                                self.name,
                                prompt.path.name()
                            );
                            senses.outlet.note(EventKind::MissingSignal, self.replica, text);
                        }
                    }
                }
            }
            self.facts.settle(&prompt, decision, since);
            self.waiting.fetch_sub(bytes, Relaxed);
        }
    }

    /// The tokens of a body; else, for people, what was answered instead, which is never the engine's text: it may quote
    /// the prompt.
    async fn ask(&self, client: &mut Client, body: Bytes, senses: &Senses) -> Result<Vec<u32>, Option<String>> {
        let got = client.post(PATH, body, MOST_ANSWER, LIMIT, &*senses.clock).await;
        sleep(PAUSE).await;
        let answer = got.map_err(|cause| Some(cause.to_string()))?;
        if !answer.status.is_success() {
            return Err(Some(answer.status.as_u16().to_string()));
        }
        let read: Result<Tokens, _> = serde_json::from_slice(&answer.body);
        read.map(|read| read.tokens).map_err(|_| Some("no list of tokens".to_owned()))
    }
}
