//! Targets for probes, whose answer a test switches: HTTP, TCP and gRPC health. They run in the test's own runtime, so
//! they work under a paused clock too.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_stream::{Empty, StreamExt, wrappers::TcpListenerStream};
use tonic::{Request, Response, Status};
use toolpulse::proto::health::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
    health_check_response::ServingStatus,
    health_server::{Health, HealthServer},
};

/// What an HTTP target does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// This status, without a body.
    Status(u16),
    /// This status and body.
    Body(u16, String),
    /// These bytes, then the end of the connection: broken framing, endless headers, redirects.
    Raw(Vec<u8>),
    /// Reads the request and never answers.
    Hang,
    /// Sends good headers and a part of the body, and hangs.
    HangInBody,
    /// Reads the request and closes the connection.
    Close,
}

/// An HTTP/1.1 server on loopback that answers everything as it was told last.
#[derive(Debug)]
pub(crate) struct HttpTarget {
    answer: Arc<Mutex<Answer>>,
    listener: Listener,
}

impl HttpTarget {
    /// Starts on a free port.
    pub(crate) async fn start(answer: Answer) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let current = Arc::clone(&answer);
        let listener = Listener::start(move |stream| {
            let answer = current.lock().expect("not poisoned").clone();
            tokio::spawn(serve_http(stream, answer));
        });
        Self { answer, listener: listener.await }
    }

    /// Switches the answer, from the next request on.
    pub(crate) fn set(&self, answer: Answer) {
        *self.answer.lock().expect("not poisoned") = answer;
    }

    /// `http://127.0.0.1:PORT/path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.listener.address)
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.listener.address.to_string()
    }

    /// How many connections came; a probe makes one for each request.
    pub(crate) fn hits(&self) -> usize {
        self.listener.hits()
    }

    /// Stops listening: connections are refused from now on.
    pub(crate) async fn stop(&mut self) {
        self.listener.stop().await;
    }

    /// Listens again, on the same port.
    pub(crate) async fn resume(&mut self) {
        self.listener.resume().await;
    }
}

/// A TCP server on loopback that accepts and holds connections.
#[derive(Debug)]
pub(crate) struct TcpTarget {
    listener: Listener,
}

impl TcpTarget {
    /// Starts on a free port.
    pub(crate) async fn start() -> Self {
        let listener = Listener::start(|mut stream| {
            tokio::spawn(async move {
                // Until the peer closes; what it says is nobody's business.
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        });
        Self { listener: listener.await }
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.listener.address.to_string()
    }

    /// How many connections came.
    pub(crate) fn hits(&self) -> usize {
        self.listener.hits()
    }

    /// Stops listening: connections are refused from now on.
    pub(crate) async fn stop(&mut self) {
        self.listener.stop().await;
    }

    /// Listens again, on the same port.
    pub(crate) async fn resume(&mut self) {
        self.listener.resume().await;
    }
}

/// What a gRPC health target answers to Check.
#[derive(Clone, Debug)]
pub(crate) enum HealthAnswer {
    /// A serving status.
    Is(ServingStatus),
    /// A gRPC error.
    Fails(tonic::Code),
    /// Nothing, ever.
    Hangs,
}

/// A grpc.health.v1 server on loopback.
#[derive(Debug)]
pub(crate) struct GrpcTarget {
    address: SocketAddr,
    health: FakeHealth,
    task: JoinHandle<()>,
}

impl GrpcTarget {
    /// Starts on a free port.
    pub(crate) async fn start(answer: HealthAnswer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let health = FakeHealth { answer: Arc::new(Mutex::new(answer)), hits: Arc::default() };
        let serve = tonic::transport::Server::builder()
            .add_service(HealthServer::new(health.clone()))
            .serve_with_incoming(TcpListenerStream::new(listener).map(|accepted| {
                // A paused clock jumps while the kernel holds bytes back.
                accepted.and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp))
            }));
        let task = tokio::spawn(async move { serve.await.expect("a health target serves") });
        Self { address, health, task }
    }

    /// Switches the answer, from the next call on.
    pub(crate) fn set(&self, answer: HealthAnswer) {
        *self.health.answer.lock().expect("not poisoned") = answer;
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many Check calls came.
    pub(crate) fn hits(&self) -> usize {
        self.health.hits.load(Ordering::SeqCst)
    }
}

impl Drop for GrpcTarget {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone, Debug)]
struct FakeHealth {
    answer: Arc<Mutex<HealthAnswer>>,
    hits: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Health for FakeHealth {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        self.hits.fetch_add(1, Ordering::SeqCst);
        let answer = self.answer.lock().expect("not poisoned").clone();
        match answer {
            HealthAnswer::Is(status) => Ok(Response::new(HealthCheckResponse { status: status.into() })),
            HealthAnswer::Fails(code) => Err(Status::new(code, "told to fail")),
            HealthAnswer::Hangs => std::future::pending().await,
        }
    }

    async fn list(&self, _: Request<HealthListRequest>) -> Result<Response<HealthListResponse>, Status> {
        Err(Status::unimplemented("only Check is asked by probes"))
    }

    type WatchStream = Empty<Result<HealthCheckResponse, Status>>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("only Check is asked by probes"))
    }
}

/// An accept loop that counts, and that can be stopped and resumed on its port.
struct Listener {
    address: SocketAddr,
    hits: Arc<AtomicUsize>,
    handle: Arc<dyn Fn(TcpStream) + Send + Sync>,
    task: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener")
            .field("address", &self.address)
            .field("hits", &self.hits)
            .finish_non_exhaustive()
    }
}

impl Listener {
    async fn start(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = socket.local_addr().expect("a bound address");
        let mut listener = Self { address, hits: Arc::default(), handle: Arc::new(handle), task: None };
        listener.accept(socket);
        listener
    }

    fn accept(&mut self, socket: TcpListener) {
        let (hits, handle) = (Arc::clone(&self.hits), Arc::clone(&self.handle));
        self.task = Some(tokio::spawn(async move {
            while let Ok((stream, _)) = socket.accept().await {
                hits.fetch_add(1, Ordering::SeqCst);
                handle(stream);
            }
        }));
    }

    fn hits(&self) -> usize {
        self.hits.load(Ordering::SeqCst)
    }

    async fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Aborted is what it is meant to be; the socket is closed once it ended.
            let _ = task.await;
        }
    }

    async fn resume(&mut self) {
        if self.task.is_none() {
            let socket = TcpListener::bind(self.address).await.expect("the port of before is still free");
            self.accept(socket);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Reads one request's head and answers. Errors are the peer's going away: of no interest.
async fn serve_http(mut stream: TcpStream, answer: Answer) {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
            _ => return,
        }
    }
    let body_allowed = !head.starts_with(b"HEAD ");
    let bytes = match answer {
        Answer::Status(status) => http_response(status, "", body_allowed),
        Answer::Body(status, body) => http_response(status, &body, body_allowed),
        Answer::Raw(bytes) => bytes,
        Answer::Close => return,
        Answer::Hang => Vec::new(),
        Answer::HangInBody => b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome".to_vec(),
    };
    let hang = bytes.is_empty() || bytes.ends_with(b"\r\n\r\nsome");
    if stream.write_all(&bytes).await.is_err() {
        return;
    }
    if hang {
        // Until the peer gives up.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    let _ = stream.shutdown().await;
}

fn http_response(status: u16, body: &str, body_allowed: bool) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} Told\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if body_allowed { body } else { "" };
    (head + body).into_bytes()
}
