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

use super::answer::{Counts, Subject, embeddings, error, wording};
use super::body::{AnswerBody, Broken, StreamBody, StreamParts};
use super::driver::{EngineHandle, Outputs};
use super::pages::PromptPages;
use super::question::Question;
use super::settings::{Dialect, Fault, Settings};
use super::words::Words;
use super::{metrics, models};
use gorgo_lab::sim::{Link, Output};
use gorgo_routing::model::{ApiPath, At, Clock};

/// Largest request body read, bytes.
const MAX_BODY: usize = 256 << 20;

/// State that all connections of one engine share.
pub(super) struct Server {
    settings: Settings,
    link: Link,
    clock: Arc<dyn Clock>,
    engine: EngineHandle,
    started: At,
    /// Number of requests for generation or embeddings so far.
    requests: AtomicU64,
    shutdown: CancellationToken,
}

/// One connection.
pub(super) struct Connection {
    server: Arc<Server>,
    /// Time at which it was accepted.
    accepted: At,
}

type Answer = Response<AnswerBody>;

/// Status and message with which a request is refused.
struct Refused(StatusCode, String);

impl Server {
    pub(super) fn new(
        settings: Settings,
        link: Link,
        clock: Arc<dyn Clock>,
        engine: EngineHandle,
        shutdown: CancellationToken,
    ) -> Self {
        let started = clock.now();
        Self { settings, link, clock, engine, started, requests: AtomicU64::new(0), shutdown }
    }

    async fn wait_until(&self, due: At) {
        let left = due.since(self.clock.now());
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// Waits until a write made at `at` has reached the client.
    async fn travel(&self, at: At) {
        self.wait_until(at.plus(self.link.answer_delay(at))).await;
    }

    /// Returns the fault to inject into the request with this number.
    fn fault(&self, count: u64) -> Option<Fault> {
        // No count is a multiple of 0, so 0 is treated as 1.
        self.settings.faulty.filter(|faulty| count.is_multiple_of(faulty.every.max(1))).map(|faulty| faulty.fault)
    }

    async fn route(&self, method: &Method, path: &str, body: Result<Bytes, Refused>) -> Result<Answer, Broken> {
        let api = ApiPath::of(path);
        let vllm = self.settings.dialect == Dialect::Vllm;
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
                Err(Refused(StatusCode::METHOD_NOT_ALLOWED, "method not allowed".to_owned()))
            }
            _ => Err(Refused(StatusCode::NOT_FOUND, "not found".to_owned())),
        };
        self.travel(self.clock.now()).await;
        Ok(answer.unwrap_or_else(|refused| self.refusal(&refused)))
    }

    async fn metrics(&self) -> Result<Answer, Refused> {
        let gone = || Refused(StatusCode::SERVICE_UNAVAILABLE, "the engine has stopped".to_owned());
        let numbers = self.engine.numbers().await.ok_or_else(gone)?;
        let started_secs = std::time::Duration::from_micros(self.started.0).as_secs_f64();
        let mut answer = plain(metrics::page(&self.settings, &numbers, started_secs));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
        Ok(answer)
    }

    async fn infer(&self, api: ApiPath, body: &[u8]) -> Result<Answer, Broken> {
        // Bad requests count too: a fault is injected before the body is read.
        let count = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let fault = self.fault(count);
        match fault {
            Some(Fault::Hang) => {
                self.shutdown.cancelled().await;
                return Err(Broken);
            }
            Some(Fault::Status(status)) => {
                self.travel(self.clock.now()).await;
                // The fault's status is user input and may be no valid status code.
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return Ok(self.refusal(&Refused(status, "simulated fault".to_owned())));
            }
            _ => {}
        }
        match self.understand(api, body) {
            Err(refused) => {
                self.travel(self.clock.now()).await;
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

    fn understand(&self, api: ApiPath, body: &[u8]) -> Result<Question, Refused> {
        let bad = |text| Refused(StatusCode::BAD_REQUEST, text);
        let question = Question::read(api, body, self.default_model()).map_err(bad)?;
        if let (Dialect::Vllm, Some(model)) = (self.settings.dialect, &question.model)
            && !self.settings.models.contains(model)
        {
            return Err(Refused(StatusCode::NOT_FOUND, format!("The model `{model}` does not exist.")));
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
        mut question: Question,
        subject: Subject,
        fault: Option<Fault>,
    ) -> Result<Answer, Broken> {
        // Only embeddings have several prompts, and those are never streamed.
        let Some(prompt) = question.prompts.pop() else { return Err(Broken) };
        let prompt_tokens = prompt.tokens();
        let words = Words::new(self.settings.seed, prompt.digest());
        let mut outputs = self.engine.submit(prompt.into_pages(), prompt_tokens, question.max_tokens);
        let (seen, head_at) = match (self.settings.dialect, fault) {
            // An error as the first event does not wait for the engine: a full queue is known at once.
            (_, Some(Fault::ErrorAfter(0))) | (Dialect::Vllm, _) => (None, self.clock.now()),
            // SGLang sends the head with the first output, which therefore has to be read here.
            (Dialect::Sglang, _) => {
                let first = outputs.next().await.ok_or(Broken)?;
                (Some(first), first.at())
            }
        };
        self.travel(head_at).await;
        let stream = StreamBody::new(StreamParts {
            outputs,
            seen,
            wording: wording(api, subject),
            words,
            prompt_tokens,
            link: self.link,
            clock: Arc::clone(&self.clock),
            fault,
            shutdown: self.shutdown.clone(),
        });
        let mut answer = Response::new(AnswerBody::Stream(Box::new(stream)));
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        Ok(answer)
    }

    async fn whole(
        &self,
        api: ApiPath,
        question: Question,
        subject: Subject,
        fault: Option<Fault>,
    ) -> Result<Answer, Broken> {
        // Taken first, since submitting consumes the prompts.
        let digests: Vec<u64> = question.prompts.iter().map(PromptPages::digest).collect();
        let mut counts = Counts::default();
        let submit = |prompt: PromptPages| {
            let tokens = prompt.tokens();
            counts.prompt = counts.prompt.saturating_add(tokens);
            self.engine.submit(prompt.into_pages(), tokens, question.max_tokens)
        };
        let jobs: Vec<Outputs> = question.prompts.into_iter().map(submit).collect();
        // The jobs run at the same time in the engine; reading one after the other only collects them.
        let mut last = self.clock.now();
        for mut job in jobs {
            while let Some(output) = job.next().await {
                last = last.max(output.at());
                match output {
                    Output::Prefilled { cached_tokens, .. } => {
                        counts.cached = counts.cached.saturating_add(cached_tokens);
                    }
                    Output::Token { .. } => counts.completion = counts.completion.saturating_add(1),
                    Output::Finished { .. } => {}
                }
            }
        }
        match fault {
            // An answer that is a single body cannot fail halfway: the fault shows before its head.
            Some(Fault::DieAfter(_)) => return Err(Broken),
            Some(Fault::StallAfter(_)) => {
                self.shutdown.cancelled().await;
                return Err(Broken);
            }
            Some(Fault::ErrorAfter(_)) => {
                self.travel(last).await;
                return Ok(self.refusal(&Refused(StatusCode::SERVICE_UNAVAILABLE, "simulated fault".to_owned())));
            }
            _ => {}
        }
        let body = if api == ApiPath::Embeddings {
            embeddings(&subject.model, &digests, counts)
        } else {
            let words = Words::new(self.settings.seed, digests.first().copied().unwrap_or(0));
            wording(api, subject).whole(&words.text(counts.completion), counts)
        };
        self.travel(last).await;
        Ok(json(StatusCode::OK, &body))
    }

    fn subject(&self, question: &Question, count: u64) -> Subject {
        Subject {
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

    fn refusal(&self, Refused(status, message): &Refused) -> Answer {
        json(*status, &error(self.settings.dialect, status.as_u16(), message))
    }
}

impl Connection {
    pub(super) fn new(server: Arc<Server>) -> Self {
        let accepted = server.clock.now();
        Self { server, accepted }
    }

    /// Answers one request. An error breaks the connection.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Broken> {
        let server = &self.server;
        let (head, body) = request.into_parts();
        // The body is read before the delay: the upload itself takes no simulated time.
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(whole) => Ok(whole.to_bytes()),
            Err(cause) if cause.is::<LengthLimitError>() => {
                Err(Refused(StatusCode::PAYLOAD_TOO_LARGE, format!("body is larger than {MAX_BODY} bytes")))
            }
            Err(_) => return Err(Broken), // the client disconnected in the middle of its request
        };
        // On loopback the handshake took no time, but over the link it takes a round trip. A connection that was opened
        // early enough has it behind it.
        let sent = server.clock.now().max(self.accepted.plus(server.link.handshake(self.accepted)));
        server.wait_until(sent.plus(server.link.request_delay(sent, false))).await;
        server.route(&head.method, head.uri.path(), body).await
    }
}

fn plain(text: impl Into<Bytes>) -> Answer {
    Response::new(AnswerBody::whole(text))
}

fn json(status: StatusCode, body: &Value) -> Answer {
    let mut answer = plain(body.to_string());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
