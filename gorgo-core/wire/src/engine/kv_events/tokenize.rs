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

use super::{CacheFacts, KvEventCounters};
use crate::engine::ServedRequest;
use crate::engine::client::{EngineClient, HttpEndpoint};
use crate::engine::monitor::ProbeContext;
use gorgo_routing::model::{ApiPath, DecisionId, EventKind, ParsedRequest, ReplicaId};

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
/// After this many refusals in a row of one path, only one in [`RETRY_EVERY`] jobs is tried.
const REFUSALS: u32 = 3;
const RETRY_EVERY: u32 = 64;

struct TokenizeJob {
    prompt: Arc<ParsedRequest>,
    body: Bytes,
    decision: DecisionId,
    since: u64,
}

/// Worker that learns from one replica.
pub struct TokenizeWorker {
    replica: ReplicaId,
    name: Arc<str>,
    endpoint: HttpEndpoint,
    tally: Arc<KvEventCounters>,
    jobs: mpsc::Receiver<TokenizeJob>,
    waiting_bytes: Arc<AtomicUsize>,
    facts: Arc<dyn CacheFacts>,
}

impl std::fmt::Debug for TokenizeWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenizeWorker").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Queue that takes answered requests. Submitting never waits.
pub struct TokenizeQueue {
    facts: Arc<dyn CacheFacts>,
    /// By replica; those without events have none.
    senders: Vec<Option<(mpsc::Sender<TokenizeJob>, Arc<KvEventCounters>)>>,
    /// Bytes of the bodies that wait.
    waiting_bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for TokenizeQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenizeQueue").field("waiting", &self.waiting_bytes).finish_non_exhaustive()
    }
}

impl TokenizeQueue {
    /// Queue for a fleet of `replicas`, none of which is added yet.
    #[must_use]
    pub fn new(replicas: usize, facts: Arc<dyn CacheFacts>) -> Self {
        let desks = std::iter::repeat_with(|| None).take(replicas).collect();
        Self { facts, senders: desks, waiting_bytes: Arc::default() }
    }

    /// Adds a replica, of which [`TokenizeWorker::run`] then learns.
    pub fn add_replica(
        &mut self,
        replica: ReplicaId,
        name: Arc<str>,
        endpoint: HttpEndpoint,
        tally: Arc<KvEventCounters>,
    ) -> TokenizeWorker {
        let (sender, lessons) = mpsc::channel(MOST_WAITING);
        if let Some(desk) = self.senders.get_mut(replica.index()) {
            *desk = Some((sender, Arc::clone(&tally)));
        }
        let (waiting, facts) = (Arc::clone(&self.waiting_bytes), Arc::clone(&self.facts));
        TokenizeWorker { replica, name, endpoint, tally, jobs: lessons, waiting_bytes: waiting, facts }
    }

    /// Submits a request that an engine answered, so that its tokens may be learned.
    pub fn submit(&self, served: &ServedRequest<'_>) {
        let Some((desk, tally)) = self.senders.get(served.replica.index()).and_then(Option::as_ref) else { return };
        tally.answers_since_batch.fetch_add(1, Relaxed);
        let prompt = served.prompt;
        let told = matches!(prompt.path, ApiPath::ChatCompletions | ApiPath::Completions);
        // `/tokenize` takes text, so neither token ids nor pictures; and adapters and salts make other blocks of the
        // same tokens.
        let other = prompt.has_extra_keys || prompt.exact_tokens.is_some() || prompt.media_bytes > 0;
        if !told || prompt.chain.is_empty() || other {
            return;
        }
        let bytes = served.body.len();
        // Reserved first and undone if over, because several requests submit at the same time.
        if self.waiting_bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > MOST_BYTES {
            self.waiting_bytes.fetch_sub(bytes, Relaxed);
            tally.unmapped.fetch_add(1, Relaxed);
            return;
        }
        // The moment is taken now: what the index learns of this prompt while the job waits must survive `settle`.
        let lesson = TokenizeJob {
            prompt: Arc::clone(prompt),
            body: served.body.clone(),
            decision: served.decision,
            since: self.facts.moment(),
        };
        // Full: dropped, because waiting here would delay the client's response.
        if desk.try_send(lesson).is_err() {
            self.waiting_bytes.fetch_sub(bytes, Relaxed);
            tally.unmapped.fetch_add(1, Relaxed);
        }
    }
}

#[derive(Deserialize)]
struct TokenizeResponse {
    tokens: Vec<u32>,
}

impl TokenizeWorker {
    /// Asks for the tokens of answered requests until `senses.stop`.
    pub async fn run(mut self, senses: ProbeContext) {
        let mut client = EngineClient::new(self.endpoint.clone(), senses.tasks.clone());
        // Per path, completions and chats: SGLang supports only the former.
        let (mut refusals, mut passed) = ([0; 2], 0);
        loop {
            let lesson = tokio::select! {
                lesson = self.jobs.recv() => lesson,
                () = senses.stop.cancelled() => return,
            };
            let Some(TokenizeJob { prompt, body, decision, since }) = lesson else { return };
            let bytes = body.len();
            // A known mapping, such as the head of a long conversation, need not be asked for again.
            if !self.facts.is_mapped(self.replica, &prompt) {
                passed += 1;
                let refused = &mut refusals[usize::from(prompt.path == ApiPath::ChatCompletions)];
                // Even a path that was refused is tried now and then, since the engine may be replaced by one that
                // supports it.
                let asks = *refused < REFUSALS || passed % RETRY_EVERY == 0;
                let answer = if asks {
                    tokio::select! {
                        answer = self.fetch_tokens(&mut client, body, &senses) => answer,
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
            self.waiting_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// Fetches the tokens of a body. The error says, for people, what was answered instead, but never quotes the
    /// engine's text, which may contain the prompt.
    async fn fetch_tokens(
        &self,
        client: &mut EngineClient,
        body: Bytes,
        senses: &ProbeContext,
    ) -> Result<Vec<u32>, Option<String>> {
        let got = client.post(PATH, body, MOST_ANSWER, LIMIT, &*senses.clock).await;
        // Also after a failure, so that a failing engine is not asked in a tight loop.
        sleep(PAUSE).await;
        let answer = got.map_err(|cause| Some(cause.to_string()))?;
        if !answer.status.is_success() {
            return Err(Some(answer.status.as_u16().to_string()));
        }
        let read: Result<TokenizeResponse, _> = serde_json::from_slice(&answer.body);
        read.map(|read| read.tokens).map_err(|_| Some("no list of tokens".to_owned()))
    }
}
