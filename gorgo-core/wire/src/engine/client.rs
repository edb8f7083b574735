//! Small HTTP client, for GET and an occasional POST, over one connection that is kept open between calls.
//!
//! Separate from the pool that carries requests, so that a probe never waits behind a prompt. The call that uses the
//! connection drives it (HTTP/2 also spawns its inner task on the given tracker), and dropping the client closes it.
//! Times in an [`EngineResponse`] begin when the request is handed to an open connection: they never include connecting.

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
use gorgo_routing::model::{Clock, UnixMicros};

/// Address of an engine for requests, with the API key and the protocol.
#[derive(Debug, Clone)]
pub struct HttpEndpoint {
    url: EngineUrl,
    authority: HeaderValue,
    /// Marked as sensitive: its debug form does not show the key.
    bearer: Option<HeaderValue>,
    http: HttpVersion,
}

/// Reasons why requests to an engine cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The host has bytes that a header cannot carry.
    #[error("{0:?} is not allowed in a `host` header")]
    Host(String),
    /// The key has bytes that a header cannot carry.
    #[error("the API key contains characters not allowed in a header (a trailing newline?)")]
    Key,
}

impl HttpEndpoint {
    /// Endpoint at this address; `api_key` is sent as `authorization: Bearer …` with every request.
    ///
    /// # Errors
    /// [`EndpointError`]; none of its texts contains the key.
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

    /// Address.
    #[must_use]
    pub const fn url(&self) -> &EngineUrl {
        &self.url
    }

    /// Value of the `host` header.
    #[must_use]
    pub const fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Value of the `authorization` header; `None` without a key.
    #[must_use]
    pub const fn bearer(&self) -> Option<&HeaderValue> {
        self.bearer.as_ref()
    }

    /// Protocol.
    #[must_use]
    pub const fn http(&self) -> HttpVersion {
        self.http
    }
}

/// Response of an engine.
#[derive(Debug, Clone)]
pub struct EngineResponse {
    /// Status.
    pub status: StatusCode,
    /// Body.
    pub body: Bytes,
    /// True if this request opened the connection.
    pub fresh: bool,
    /// Time at which the request was handed to the open connection.
    pub sent_at: UnixMicros,
    /// Time at which the response's head arrived.
    pub head_at: UnixMicros,
    location: Option<String>,
}

/// Reasons why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum EngineClientError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// No connection in time.
    #[error("no connection within {} ms", .0.as_millis())]
    ConnectTimeout(Duration),
    /// Connected, but no complete response in time.
    #[error("no answer within {} ms", .0.as_millis())]
    AnswerTimeout(Duration),
    /// The connection broke before the response was complete.
    #[error("connection broke: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response is longer than allowed.
    #[error("answer is longer than {0} bytes")]
    TooLong(usize),
    /// The path is invalid.
    #[error("{0:?} is not a valid path")]
    Path(String),
}

impl EngineClientError {
    /// Returns `true` if no connection could be made.
    #[must_use]
    pub const fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::ConnectTimeout(_))
    }

    /// Returns `true` if the host refused the connection because nothing listens there.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connect(cause) if cause.kind() == io::ErrorKind::ConnectionRefused)
    }
}

type Body = Full<Bytes>;

struct OpenConnection {
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

/// Runs the inner task of an HTTP/2 connection for hyper.
#[derive(Clone)]
struct Http2Executor(TaskTracker);

impl<F> hyper::rt::Executor<F> for Http2Executor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// Endpoint with at most one open connection to it.
pub struct EngineClient {
    endpoint: HttpEndpoint,
    tasks: TaskTracker,
    connection: Option<OpenConnection>,
}

impl std::fmt::Debug for EngineClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineClient")
            .field("endpoint", &self.endpoint)
            .field("open", &self.connection.is_some())
            .finish()
    }
}

impl EngineClient {
    /// Client that has not opened a connection yet.
    #[must_use]
    pub const fn new(endpoint: HttpEndpoint, tasks: TaskTracker) -> Self {
        Self { endpoint, tasks, connection: None }
    }

    /// Returns `true` if the connection is open; one that the engine closed meanwhile is dropped.
    pub async fn is_open(&mut self) -> bool {
        let Some(kept) = &mut self.connection else { return false };
        // Twice: the first poll may only finish the previous exchange; the second then reads the end of the connection.
        for _ in 0..2 {
            let closed =
                std::future::poll_fn(|context| Poll::Ready(kept.driver.as_mut().poll(context).is_ready())).await;
            if closed || kept.sender.is_closed() {
                self.connection = None;
                return false;
            }
        }
        true
    }

    /// Sends a GET. Connects if necessary, for at most `limit`; the response then has another `limit`.
    ///
    /// # Errors
    /// [`EngineClientError`]; the connection is closed then. Dropping the future closes it too.
    pub async fn get(
        &mut self,
        path: &str,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<EngineResponse, EngineClientError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        self.send(request, most_bytes, limit, clock).await
    }

    /// Posts JSON to a path, otherwise like [`get`](Self::get).
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
    ) -> Result<EngineResponse, EngineClientError> {
        let mut request = self.request(Method::POST, path, body)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.send(request, most_bytes, limit, clock).await
    }

    async fn send(
        &mut self,
        request: Request<Body>,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<EngineResponse, EngineClientError> {
        let fresh = !self.is_open().await;
        // Taken out and put back only after success: an error or a dropped future thereby closes the connection.
        let mut kept = match self.connection.take() {
            Some(kept) => kept,
            None => timeout(limit, connect(&self.endpoint, &self.tasks))
                .await
                .map_err(|_| EngineClientError::ConnectTimeout(limit))??,
        };
        // One limit for head and body together: an engine that trickles must not block its loop.
        let exchange = timeout(limit, kept.exchange(request, most_bytes, clock));
        let (mut answer, ended) = exchange.await.map_err(|_| EngineClientError::AnswerTimeout(limit))??;
        answer.fresh = fresh;
        // A connection that ended with the response must not be offered to the next call.
        if !ended {
            self.connection = Some(kept);
        }
        Ok(answer)
    }

    /// Like [`get`](Self::get), following a redirect once. Only the path of its target is used, so the key goes to no
    /// other host. Also returns the path that was read in the end.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_following(
        &mut self,
        path: &str,
        most_bytes: usize,
        limit: Duration,
        clock: &dyn Clock,
    ) -> Result<(EngineResponse, Option<String>), EngineClientError> {
        let answer = self.get(path, most_bytes, limit, clock).await?;
        let Some(moved) = answer.location.as_deref().and_then(path_of) else { return Ok((answer, None)) };
        // Once only: a second redirect is returned as it is, so that a loop of redirects cannot trap the caller.
        Ok((self.get(&moved, most_bytes, limit, clock).await?, Some(moved)))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> Result<Request<Body>, EngineClientError> {
        let builder = match self.endpoint.http {
            HttpVersion::Http1 => Request::builder().uri(path).header(HOST, self.endpoint.authority.clone()),
            HttpVersion::Http2 => {
                let authority = self.endpoint.url.authority();
                Request::builder().uri(format!("http://{authority}{path}")).version(hyper::Version::HTTP_2)
            }
        };
        // `identity`: pages are small, and this client cannot decompress.
        let mut builder = builder.method(method).header(USER_AGENT, "gorgo").header(ACCEPT_ENCODING, "identity");
        if let Some(bearer) = &self.endpoint.bearer {
            builder = builder.header(AUTHORIZATION, bearer.clone());
        }
        builder.body(Body::new(body)).map_err(|_| EngineClientError::Path(path.to_owned()))
    }
}

impl OpenConnection {
    /// Sends one request and reads the response; also returns `true` if the connection ended with it.
    async fn exchange(
        &mut self,
        request: Request<Body>,
        most_bytes: usize,
        clock: &dyn Clock,
    ) -> Result<(EngineResponse, bool), EngineClientError> {
        let Self { sender, driver } = self;
        let talk = async {
            let broken = |cause: hyper::Error| EngineClientError::Broken(cause.into());
            // Times start after this: a connection that is still busy is not part of the round trip.
            sender.ready().await.map_err(broken)?;
            let sent = clock.now();
            let response = sender.send(request).await.map_err(broken)?;
            let head = clock.now();
            let (parts, body) = response.into_parts();
            let location = parts.status.is_redirection().then(|| parts.headers.get(LOCATION)).flatten();
            let location = location.and_then(|value| value.to_str().ok()).map(str::to_owned);
            // Limited, because whatever listens there might send without end.
            let body = Limited::new(body, most_bytes).collect().await.map_err(|cause| {
                if cause.is::<LengthLimitError>() {
                    EngineClientError::TooLong(most_bytes)
                } else {
                    EngineClientError::Broken(cause)
                }
            })?;
            Ok(EngineResponse {
                status: parts.status,
                body: body.to_bytes(),
                fresh: false,
                sent_at: sent,
                head_at: head,
                location,
            })
        };
        tokio::pin!(talk);
        tokio::select! {
            answer = &mut talk => Ok((answer?, false)),
            // The connection has ended; what it received before may still be waiting in hyper's channels.
            _ = driver.as_mut() => Ok((talk.await?, true)),
        }
    }
}

async fn connect(endpoint: &HttpEndpoint, tasks: &TaskTracker) -> Result<OpenConnection, EngineClientError> {
    let broken = |cause: hyper::Error| EngineClientError::Broken(cause.into());
    let stream =
        TcpStream::connect((endpoint.url.host(), endpoint.url.port())).await.map_err(EngineClientError::Connect)?;
    // Without it a small request could wait for a delayed acknowledgement, which would spoil the measured times.
    stream.set_nodelay(true).map_err(EngineClientError::Connect)?;
    let stream = TokioIo::new(stream);
    // An exchange reports how its connection ended; the end of an idle one concerns nobody.
    Ok(match endpoint.http {
        HttpVersion::Http1 => {
            let (sender, connection) = http1::handshake(stream).await.map_err(broken)?;
            OpenConnection { sender: Sender::Http1(sender), driver: Box::pin(async { drop(connection.await) }) }
        }
        HttpVersion::Http2 => {
            let (sender, connection) = http2::handshake(Http2Executor(tasks.clone()), stream).await.map_err(broken)?;
            OpenConnection { sender: Sender::Http2(sender), driver: Box::pin(async { drop(connection.await) }) }
        }
    })
}

fn path_of(location: &str) -> Option<String> {
    // Only an absolute path can be requested; a relative one is left alone.
    let uri: Uri = location.parse().ok()?;
    uri.path_and_query().map(|path| path.as_str().to_owned()).filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests;
