//! A small HTTP client, GET and now and then a POST, over one connection of its own, kept open from call to call.
//!
//! It stands apart from the pool that carries requests, so that a probe never waits behind a prompt. The connection is
//! driven by the call that uses it (HTTP/2 also spawns its inner task on the tracker given), and dropping the client
//! closes it. Times in an [`Answer`] begin when the request is handed to an open connection: connecting is never in
//! them.

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use gorgo_routing::config::{EngineUrl, HttpVersion};
use gorgo_routing::model::{At, Clock};

/// Address of an engine as requests need it, with the key that the engine wants and the protocol it speaks.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: EngineUrl,
    authority: HeaderValue,
    /// Marked sensitive: its debug form does not show the key.
    bearer: Option<HeaderValue>,
    http: HttpVersion,
}

/// Why requests to an engine cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The host has bytes that a header cannot carry.
    #[error("{0:?} cannot stand in a `host` header")]
    Host(String),
    /// The key has bytes that a header cannot carry.
    #[error("the API key has bytes that a header cannot carry (a line end at its end?)")]
    Key,
}

impl Endpoint {
    /// An endpoint at this address; `api_key` is sent as `authorization: Bearer …` with every request.
    ///
    /// # Errors
    /// [`EndpointError`]; the key is in none of them.
    pub fn new(url: EngineUrl, api_key: Option<&str>, http: HttpVersion) -> Result<Self, EndpointError> {
        let bearer = api_key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            Ok(value)
        });
        let authority = HeaderValue::try_from(url.authority());
        let authority = authority.map_err(|_| EndpointError::Host(url.authority().to_owned()))?;
        Ok(Self { authority, bearer: bearer.transpose()?, http, url })
    }

    /// Its address.
    #[must_use]
    pub const fn url(&self) -> &EngineUrl {
        &self.url
    }

    /// The `host` header.
    #[must_use]
    pub const fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// The `authorization` header; `None` without a key.
    #[must_use]
    pub const fn bearer(&self) -> Option<&HeaderValue> {
        self.bearer.as_ref()
    }

    /// Protocol towards it.
    #[must_use]
    pub const fn http(&self) -> HttpVersion {
        self.http
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
    /// Whether this request opened the connection.
    pub fresh: bool,
    /// When the request was handed to the open connection.
    pub sent: At,
    /// When the response's head had come.
    pub head: At,
    location: Option<String>,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// No connection in time.
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    /// Connected, but no whole answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    AnswerTimeout(Duration),
    /// The connection broke before the answer was whole.
    #[error("connection broke: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is longer than allowed.
    #[error("answer is longer than {0} bytes")]
    TooLong(usize),
    /// The path is none.
    #[error("{0:?} is no path")]
    Path(String),
}

impl GetError {
    /// Whether not even a connection could be had.
    #[must_use]
    pub const fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout(_))
    }

    /// Whether the host answered that nobody listens there.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connect(cause) if cause.kind() == io::ErrorKind::ConnectionRefused)
    }
}

type Body = Full<Bytes>;

struct Kept {
    sender: Sender,
    /// Ends with the connection.
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }

    async fn ready(&mut self) -> Result<(), hyper::Error> {
        match self {
            Self::Http1(sender) => sender.ready().await,
            Self::Http2(sender) => sender.ready().await,
        }
    }

    async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, hyper::Error> {
        match self {
            Self::Http1(sender) => sender.send_request(request).await,
            Self::Http2(sender) => sender.send_request(request).await,
        }
    }
}

/// Lets hyper start the inner task of an HTTP/2 connection.
#[derive(Clone)]
struct Spawner(TaskTracker);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// An endpoint and at most one open connection to it.
pub struct Client {
    endpoint: Endpoint,
    tasks: TaskTracker,
    kept: Option<Kept>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).field("open", &self.kept.is_some()).finish()
    }
}

impl Client {
    /// Opens nothing yet.
    #[must_use]
    pub const fn new(endpoint: Endpoint, tasks: TaskTracker) -> Self {
        Self { endpoint, tasks, kept: None }
    }

    /// Whether the connection is open; one that the engine closed meanwhile is let go.
    pub async fn is_open(&mut self) -> bool {
        let Some(kept) = &mut self.kept else { return false };
        // Twice: the first poll may only finish the exchange before, the second then reads whether the end came.
        for _ in 0..2 {
            let closed =
                std::future::poll_fn(|context| Poll::Ready(kept.driver.as_mut().poll(context).is_ready())).await;
            if closed || kept.sender.is_closed() {
                self.kept = None;
                return false;
            }
        }
        true
    }

    /// Gets a path. Connects if it must, for at most `limit`; the answer then has `limit` for itself.
    ///
    /// # Errors
    /// [`GetError`]; the connection is closed then. Dropping the call closes it too.
    pub async fn get(
        &mut self,
        path: &str,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<Answer, GetError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        self.call(request, most_bytes, limit, clock).await
    }

    /// Posts JSON to a path, otherwise as [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn post(
        &mut self,
        path: &str,
        body: Bytes,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<Answer, GetError> {
        let mut request = self.request(Method::POST, path, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.call(request, most_bytes, limit, clock).await
    }

    async fn call(
        &mut self,
        request: Request<Body>,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<Answer, GetError> {
        let fresh = !self.is_open().await;
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => timeout(limit, connect(&self.endpoint, &self.tasks))
                .await
                .map_err(|_| GetError::ConnectTimeout(limit))??,
        };
        let exchange = timeout(limit, kept.exchange(request, most_bytes, clock));
        let (mut answer, ended) = exchange.await.map_err(|_| GetError::AnswerTimeout(limit))??;
        answer.fresh = fresh;
        if !ended {
            self.kept = Some(kept);
        }
        Ok(answer)
    }

    /// Like [`get`](Self::get), going where a redirect points, once. Only the path of its target is taken: the key
    /// goes to no other host. Answers with the path that was got in the end.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_following(
        &mut self,
        path: &str,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<(Answer, Option<String>), GetError> {
        let answer = self.get(path, most_bytes, limit, clock).await?;
        let Some(moved) = answer.location.as_deref().and_then(path_of) else { return Ok((answer, None)) };
        Ok((self.get(&moved, most_bytes, limit, clock).await?, Some(moved)))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Body>, GetError> {
        let builder = match self.endpoint.http {
            HttpVersion::Http1 => Request::builder().uri(path).header(HOST, self.endpoint.authority.clone()),
            HttpVersion::Http2 => {
                let authority = self.endpoint.url.authority();
                Request::builder().uri(format!("http://{authority}{path}")).version(hyper::Version::HTTP_2)
            }
        };
        let mut builder = builder.method(method).header(USER_AGENT, "gorgo").header(ACCEPT_ENCODING, "identity");
        if let Some(bearer) = &self.endpoint.bearer {
            builder = builder.header(AUTHORIZATION, bearer.clone());
        }
        builder.body(Body::new(body)).map_err(|_| GetError::Path(path.to_owned()))
    }
}

impl Kept {
    /// One request and its answer; also whether the connection ended with it.
    async fn exchange(
        &mut self,
        request: Request<Body>,
        most_bytes: usize,
        clock: &dyn Clock,
    ) -> Result<(Answer, bool), GetError> {
        let Self { sender, driver } = self;
        let talk = async {
            let broken = |cause: hyper::Error| GetError::Broken(cause.into());
            sender.ready().await.map_err(broken)?;
            let sent = clock.now();
            let response = sender.send(request).await.map_err(broken)?;
            let head = clock.now();
            let (parts, body) = response.into_parts();
            let location = parts.status.is_redirection().then(|| parts.headers.get(LOCATION)).flatten();
            let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
            let body = Limited::new(body, most_bytes).collect().await.map_err(|cause| {
                if cause.is::<LengthLimitError>() { GetError::TooLong(most_bytes) } else { GetError::Broken(cause) }
            })?;
            Ok(Answer { status: parts.status, body: body.to_bytes(), fresh: false, sent, head, location })
        };
        tokio::pin!(talk);
        tokio::select! {
            answer = &mut talk => Ok((answer?, false)),
            // The connection is over; what it brought before may still lie on the way to us.
            _ = driver.as_mut() => Ok((talk.await?, true)),
        }
    }
}

async fn connect(endpoint: &Endpoint, tasks: &TaskTracker) -> Result<Kept, GetError> {
    let broken = |cause: hyper::Error| GetError::Broken(cause.into());
    let stream = TcpStream::connect((endpoint.url.host(), endpoint.url.port())).await.map_err(GetError::Connect)?;
    stream.set_nodelay(true).map_err(GetError::Connect)?;
    let stream = TokioIo::new(stream);
    // How a connection ended is what the exchange on it reports; an idle one may end as it likes.
    Ok(match endpoint.http {
        HttpVersion::Http1 => {
            let (sender, connection) = http1::handshake(stream).await.map_err(broken)?;
            Kept { sender: Sender::Http1(sender), driver: Box::pin(async { drop(connection.await) }) }
        }
        HttpVersion::Http2 => {
            let (sender, connection) = http2::handshake(Spawner(tasks.clone()), stream).await.map_err(broken)?;
            Kept { sender: Sender::Http2(sender), driver: Box::pin(async { drop(connection.await) }) }
        }
    })
}

fn path_of(location: &str) -> Option<String> {
    let uri: Uri = location.parse().ok()?;
    uri.path_and_query().map(|path| path.as_str().to_owned()).filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests;
