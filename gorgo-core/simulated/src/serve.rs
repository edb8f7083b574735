//! From a request to its answer, with the delays of the link around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::answer::{ResponseMetadata, TokenCounts, embeddings, error, response_format};
use super::body::{ConnectionBroken, SimulatedBody, StreamBody, StreamParts};
use super::driver::{EngineHandle, JobOutputs};
use super::pages::PromptPages;
use super::question::InferenceRequest;
use super::settings::{EngineDialect, EngineFault, SimulatedSettings};
use super::words::WordGenerator;
use super::{metrics, models};
use gorgo_lab::sim::{EngineOutput, SimulatedLink};
use gorgo_routing::model::{ApiPath, Clock, UnixMicros};

/// Largest request body read, bytes.
const MAX_BODY: usize = 256 << 20;

/// State that all connections of one engine share.
pub(super) struct SimulatedServer {
    settings: SimulatedSettings,
    link: SimulatedLink,
    clock: Arc<dyn Clock>,
    engine: EngineHandle,
    started: UnixMicros,
    /// Number of requests for generation or embeddings so far.
    requests: AtomicU64,
    shutdown: CancellationToken,
}

/// One connection.
pub(super) struct SimulatedConnection {
    server: Arc<SimulatedServer>,
    /// Time at which it was accepted.
    accepted: UnixMicros,
}

type SimulatedResponse = Response<SimulatedBody>;

/// Status and message with which a request is refused.
struct RefusedRequest(StatusCode, String);

impl SimulatedServer {
    pub(super) fn new(
        settings: SimulatedSettings,
        link: SimulatedLink,
        clock: Arc<dyn Clock>,
        engine: EngineHandle,
        shutdown: CancellationToken,
    ) -> Self {
        let started = clock.now();
        Self { settings, link, clock, engine, started, requests: AtomicU64::new(0), shutdown }
    }

    async fn wait_until(&self, due: UnixMicros) {
        let left = due.elapsed_since(self.clock.now());
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until a write made at `at` has reached the client.
    async fn delay_response(&self, at: UnixMicros) {
        self.wait_until(at.plus(self.link.answer_delay(at))).await;
    }

    /// Returns the fault to inject into the request with this number.
    fn fault(&self, count: u64) -> Option<EngineFault> {
        // No count is a multiple of 0, so 0 is treated as 1.
        self.settings
            .fault_injection
            .filter(|faulty| count.is_multiple_of(faulty.every_nth.max(1)))
            .map(|faulty| faulty.fault)
    }

    async fn route(
        &self,
        method: &Method,
        path: &str,
        body: Result<Bytes, RefusedRequest>,
    ) -> Result<SimulatedResponse, ConnectionBroken> {
        let api = ApiPath::from_path(path);
        let vllm = self.settings.dialect == EngineDialect::Vllm;
        // `/generate` and `/get_server_info` exist only in SGLang.
        let known = api != ApiPath::Other && !(vllm && api == ApiPath::Generate);
        // 404 for unknown paths, 405 for known ones with another method.
        let answer = match (method, path) {
            (&Method::GET, "/health") => Ok(plain("")),
            (&Method::GET, "/metrics") => self.metrics().await,
            (&Method::GET, "/get_server_info") if !vllm => {
                Ok(json(StatusCode::OK, &models::settings(&self.settings.profile)))
            }
            (&Method::GET, "/v1/models") => Ok(json(StatusCode::OK, &models::list(&self.settings, self.now_secs()))),
            // Inference delays its own answers: a stream must not be delayed as a whole.
            (&Method::POST, _) if known => match body {
                Ok(body) => return self.infer(api, &body).await,
                Err(refused) => Err(refused),
            },
            _ if known || ["/health", "/metrics", "/v1/models"].contains(&path) => {
                Err(RefusedRequest(StatusCode::METHOD_NOT_ALLOWED, "method not allowed".to_owned()))
            }
            _ => Err(RefusedRequest(StatusCode::NOT_FOUND, "not found".to_owned())),
        };
        self.delay_response(self.clock.now()).await;
        Ok(answer.unwrap_or_else(|refused| self.refusal(&refused)))
    }

    async fn metrics(&self) -> Result<SimulatedResponse, RefusedRequest> {
        let gone = || RefusedRequest(StatusCode::SERVICE_UNAVAILABLE, "the engine has stopped".to_owned());
        let numbers = self.engine.numbers().await.ok_or_else(gone)?;
        let started_secs = std::time::Duration::from_micros(self.started.0).as_secs_f64();
        let mut answer = plain(metrics::page(&self.settings, &numbers, started_secs));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
        Ok(answer)
    }

    async fn infer(&self, api: ApiPath, body: &[u8]) -> Result<SimulatedResponse, ConnectionBroken> {
        // Bad requests count too: a fault is injected before the body is read.
        let count = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.fault(count);
        match fault {
            Some(EngineFault::Hang) => {
                self.shutdown.cancelled().await;
                return Err(ConnectionBroken);
            }
            Some(EngineFault::Status(status)) => {
                self.delay_response(self.clock.now()).await;
                // The fault's status is user input and may be no valid status code.
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Ok(self.refusal(&RefusedRequest(status, "simulated fault".to_owned())));
            }
            _ => {}
        }
        match self.parse_request(api, body) {
            Err(refused) => {
                self.delay_response(self.clock.now()).await;
                Ok(self.refusal(&refused))
            }
            Ok(question) => {
                let subject = self.subject(&question, count);
                if question.stream && api != ApiPath::Embeddings {
                    self.stream(api, question, subject, fault).await
                } else {
                    self.whole(api, question, subject, fault).await
                }
            }
        }
    }

    fn parse_request(&self, api: ApiPath, body: &[u8]) -> Result<InferenceRequest, RefusedRequest> {
        let bad = |text| RefusedRequest(StatusCode::BAD_REQUEST, text);
        let question = InferenceRequest::read(api, body, self.default_model()).map_err(bad)?;
        if let (EngineDialect::Vllm, Some(model)) = (self.settings.dialect, &question.model)
            && !self.settings.models.contains(model)
        {
            return Err(RefusedRequest(StatusCode::NOT_FOUND, format!("The model `{model}` does not exist.")));
        }
        let longest = self.engine.longest_prompt();
        match question.prompts.iter().map(PromptPages::tokens).find(|tokens| *tokens > longest) {
            Some(tokens) => Err(bad(format!("the prompt has {tokens} tokens; at most {longest} are allowed"))),
            None => Ok(question),
        }
    }

    async fn stream(
        &self,
        api: ApiPath,
        mut question: InferenceRequest,
        subject: ResponseMetadata,
        fault: Option<EngineFault>,
    ) -> Result<SimulatedResponse, ConnectionBroken> {
        // Only embeddings have several prompts, and those are never streamed.
        let Some(prompt) = question.prompts.pop() else { return Err(ConnectionBroken) };
        let prompt_tokens = prompt.tokens();
        let words = WordGenerator::new(self.settings.seed, prompt.digest());
        let mut outputs = self.engine.submit(prompt.into_pages(), prompt_tokens, question.max_tokens);
        let (seen, head_at) = match (self.settings.dialect, fault) {
            // An error as the first event does not wait for the engine: a full queue is known at once.
            (_, Some(EngineFault::ErrorAfter(0))) | (EngineDialect::Vllm, _) => (None, self.clock.now()),
            // SGLang sends the head with the first output, which therefore has to be read here.
            (EngineDialect::Sglang, _) => {
                let first = outputs.next().await.ok_or(ConnectionBroken)?;
                (Some(first), first.at())
            }
        };
        self.delay_response(head_at).await;
        let stream = StreamBody::new(StreamParts {
            outputs,
            seen,
            wording: response_format(api, subject),
            words,
            prompt_tokens,
            link: self.link,
            clock: Arc::clone(&self.clock),
            fault,
            shutdown: self.shutdown.clone(),
        });
        let mut answer = Response::new(SimulatedBody::Stream(Box::new(stream)));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        Ok(answer)
    }

    async fn whole(
        &self,
        api: ApiPath,
        question: InferenceRequest,
        subject: ResponseMetadata,
        fault: Option<EngineFault>,
    ) -> Result<SimulatedResponse, ConnectionBroken> {
        // Taken first, since submitting consumes the prompts.
        let digests: Vec<u64> = question.prompts.iter().map(PromptPages::digest).collect();
        let mut counts = TokenCounts::default();
        let submit = |prompt: PromptPages| {
            let tokens = prompt.tokens();
            counts.prompt = counts.prompt.saturating_add(tokens);
            self.engine.submit(prompt.into_pages(), tokens, question.max_tokens)
        };
        let jobs: Vec<JobOutputs> = question.prompts.into_iter().map(submit).collect();
        // The jobs run at the same time in the engine; reading one after the other only collects them.
        let mut last = self.clock.now();
        for mut job in jobs {
            while let Some(output) = job.next().await {
                last = last.max(output.at());
                match output {
                    EngineOutput::Prefilled { cached_tokens, .. } => {
                        counts.cached = counts.cached.saturating_add(cached_tokens);
                    }
                    EngineOutput::Token { .. } => counts.completion = counts.completion.saturating_add(1),
                    EngineOutput::Finished { .. } => {}
                }
            }
        }
        match fault {
            // An answer that is a single body cannot fail halfway: the fault shows before its head.
            Some(EngineFault::DieAfter(_)) => return Err(ConnectionBroken),
            Some(EngineFault::StallAfter(_)) => {
                self.shutdown.cancelled().await;
                return Err(ConnectionBroken);
            }
            Some(EngineFault::ErrorAfter(_)) => {
                self.delay_response(last).await;
                return Ok(self.refusal(&RefusedRequest(StatusCode::SERVICE_UNAVAILABLE, "simulated fault".to_owned())));
            }
            _ => {}
        }
        let body = if api == ApiPath::Embeddings {
            embeddings(&subject.model, &digests, counts)
        } else {
            let words = WordGenerator::new(self.settings.seed, digests.first().copied().unwrap_or(0));
            response_format(api, subject).whole(&words.text(counts.completion), counts)
        };
        self.delay_response(last).await;
        Ok(json(StatusCode::OK, &body))
    }

    fn subject(&self, question: &InferenceRequest, count: u64) -> ResponseMetadata {
        ResponseMetadata {
            // The seed in the upper bits and the count in the lower ones: ids of two engines stay distinct.
            id: format!("{:016x}", self.settings.seed.rotate_left(40) ^ count),
            model: question.model.clone().unwrap_or_else(|| self.default_model().to_owned()),
            created_secs: self.now_secs(),
            include_usage: question.include_usage,
            reason: if question.limited { "length" } else { "stop" },
        }
    }

    fn default_model(&self) -> &str {
        self.settings.models.first().map_or("sim", String::as_str)
    }

    fn now_secs(&self) -> u64 {
        self.clock.now().0 / 1_000_000
    }

    fn refusal(&self, RefusedRequest(status, message): &RefusedRequest) -> SimulatedResponse {
        json(*status, &error(self.settings.dialect, status.as_u16(), message))
    }
}

impl SimulatedConnection {
    pub(super) fn new(server: Arc<SimulatedServer>) -> Self {
        let accepted = server.clock.now();
        Self { server, accepted }
    }

    /// Answers one request. An error breaks the connection.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<SimulatedResponse, ConnectionBroken> {
        let server = &self.server;
        let (head, body) = request.into_parts();
        // The body is read before the delay: the upload itself takes no simulated time.
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(cause) if cause.is::<LengthLimitError>() => {
                Err(RefusedRequest(StatusCode::PAYLOAD_TOO_LARGE, format!("body is larger than {MAX_BODY} bytes")))
            }
            Err(_) => return Err(ConnectionBroken), // the client disconnected in the middle of its request
        };
        // On loopback the handshake took no time, but over the link it takes a round trip. A connection that was opened
        // early enough has it behind it.
        let sent = server.clock.now().max(self.accepted.plus(server.link.handshake(self.accepted)));
        server.wait_until(sent.plus(server.link.request_delay(sent, false))).await;
        server.route(&head.method, head.uri.path(), body).await
    }
}

fn plain(text: impl Into<Bytes>) -> SimulatedResponse {
    Response::new(SimulatedBody::whole(text))
}

fn json(status: StatusCode, body: &Value) -> SimulatedResponse {
    let mut answer = plain(body.to_string());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
