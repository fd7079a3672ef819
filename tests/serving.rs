//! The server around the services, over real sockets: health, reflection, errors, the admin port, and the drain.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use std::{net::SocketAddr, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tonic::{
    Code, Status,
    body::Body,
    service::Routes,
    transport::{Channel, Endpoint},
};
use tonic_reflection::pb;
use tonic_types::{ErrorDetails, StatusExt};
use toolpulse::{
    admin::{self, Readiness},
    catalog::{self, Catalog},
    clock::Clock,
    core::allowlist::{Environment, ServerAllowlist},
    metrics::Metrics,
    proto::health::{
        HealthCheckRequest, HealthListRequest, health_check_response::ServingStatus,
        health_client::HealthClient,
    },
    serve::{self, Bound, Drain, GRACE, Protocols, tls},
    service::{health::HealthState, reflection},
};

const REGISTRY: &str = "toolpulse.v1.ToolRegistryService";

/// A running main port with what is served on it besides our own services.
struct Server {
    address: SocketAddr,
    health: HealthState,
    metrics: Metrics,
    drain: Drain,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Self::start_with_cap(1_000).await
    }

    async fn start_with_cap(max_connections: usize) -> Self {
        let health = HealthState::default();
        let mut routes = Routes::builder();
        routes.add_service(health.service());
        reflection::add_to(&mut routes).unwrap();
        let bound = bind(max_connections).await;
        Self::run(bound, Protocols::Grpc, routes.routes(), health, Metrics::new())
    }

    fn run(
        bound: Bound,
        protocols: Protocols,
        routes: Routes,
        health: HealthState,
        metrics: Metrics,
    ) -> Self {
        let (address, drain) = (bound.address(), Drain::new(GRACE, serve::SPREAD));
        let task = tokio::spawn({
            let (metrics, drain) = (metrics.clone(), drain.clone());
            async move { serve::serve(bound, protocols, routes, &metrics, &drain).await.unwrap() }
        });
        Self { address, health, metrics, drain, task }
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    async fn health(&self) -> HealthClient<Channel> {
        HealthClient::new(self.channel().await)
    }

    /// Drains as the application does, and says how long it took.
    async fn drained(self) -> Duration {
        let start = Instant::now();
        self.health.drain();
        self.drain.begin();
        self.task.await.unwrap();
        start.elapsed()
    }
}

async fn bind(max_connections: usize) -> Bound {
    Bound::bind("test", "127.0.0.1:0".parse().unwrap(), max_connections).await.unwrap()
}

fn asks(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

fn reason(details: &ErrorDetails) -> (&str, &str) {
    let info = details.error_info().expect("an ErrorInfo");
    (info.reason.as_str(), info.domain.as_str())
}

/// Whether `holds` becomes true while the other tasks run.
async fn eventually(holds: impl AsyncFn() -> bool) -> bool {
    for _ in 0..1_000 {
        if holds().await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// True once the peer closed the connection, whatever it sent before; false after five minutes.
async fn is_closed(tcp: &mut TcpStream) -> bool {
    let mut sink = Vec::new();
    timeout(Duration::from_secs(300), tcp.read_to_end(&mut sink)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn health_keeps_its_contract() {
    let server = Server::start().await;
    let mut client = server.health().await;

    for service in ["", REGISTRY, "toolpulse.v1.GatewayStatusService"] {
        let reply = client.check(asks(service)).await.unwrap().into_inner();
        assert_eq!(reply.status(), ServingStatus::NotServing, "{service:?} before ready");
    }
    let error = client.check(asks("nope")).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(reason(&error.get_error_details()), ("SERVICE_NOT_FOUND", "toolpulse.dev"));

    let mut known = client.watch(asks(REGISTRY)).await.unwrap().into_inner();
    let mut unknown = client.watch(asks("nope")).await.unwrap().into_inner();
    assert_eq!(known.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(unknown.message().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);

    // Only changes are sent, and never to a watch of what is unknown.
    server.health.set_ready(false);
    server.health.set_ready(true);
    server.health.set_ready(true);
    assert_eq!(known.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    for quiet in [&mut known, &mut unknown] {
        assert!(timeout(Duration::from_secs(5), quiet.message()).await.is_err());
    }
    let list = client.list(HealthListRequest {}).await.unwrap().into_inner().statuses;
    let mut names: Vec<_> = list.keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["", "liveness", "toolpulse.v1.GatewayStatusService", REGISTRY]);
    assert!(list.values().all(|s| s.status() == ServingStatus::Serving));

    // The drain is latched, is told, and ends the watches.
    server.health.drain();
    server.health.set_ready(true);
    assert_eq!(known.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    for ended in [known, unknown] {
        let mut ended = ended;
        let error = ended.message().await.unwrap_err();
        assert_eq!(error.code(), Code::Unavailable);
        let details = error.get_error_details();
        assert_eq!(reason(&details).0, "DRAINING");
        assert!(details.retry_info().is_some());
    }
    let reply = client.check(asks("")).await.unwrap().into_inner();
    assert_eq!(reply.status(), ServingStatus::NotServing);
    // Whoever restarts what does not live must not restart what drains.
    let reply = client.check(asks("liveness")).await.unwrap().into_inner();
    assert_eq!(reply.status(), ServingStatus::Serving);
}

macro_rules! reflected_services {
    ($server:expr, $version:ident) => {{
        use pb::$version::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let request = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut client = ServerReflectionClient::new($server.channel().await);
        let mut replies =
            client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
        match replies.message().await.unwrap().unwrap().message_response.unwrap() {
            MessageResponse::ListServicesResponse(list) => {
                list.service.into_iter().map(|s| s.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test(start_paused = true)]
async fn reflection_lists_our_services_in_both_versions() {
    let server = Server::start().await;
    for services in [reflected_services!(server, v1), reflected_services!(server, v1alpha)] {
        for service in [REGISTRY, "toolpulse.v1.GatewayStatusService", "grpc.health.v1.Health"] {
            assert!(services.iter().any(|s| s == service), "{service} is not in {services:?}");
        }
    }
}

/// A call whose bytes and headers are whatever the test likes.
async fn raw_call(server: &Server, path: &str, headers: &[(&str, &str)], body: Bytes) -> Response<Body> {
    let mut request = Request::post(format!("http://{}{path}", server.address)).header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Body::new(http_body_util::Full::new(body));
    // Plain HTTP/2: tonic's own client would see to deadlines by itself.
    let tcp = TcpStream::connect(server.address).await.unwrap();
    // A paused clock jumps while the kernel holds bytes back.
    tcp.set_nodelay(true).unwrap();
    let io = TokioIo::new(tcp);
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    client.send_request(request.body(body).unwrap()).await.unwrap().map(Body::new)
}

/// The status, from the headers or from the trailers.
async fn status_of(response: Response<Body>) -> Status {
    let headers = response.headers().clone();
    let trailers = response.into_body().collect().await.unwrap().trailers().cloned();
    let in_trailers = trailers.unwrap_or_default();
    let all = |h: &HeaderMap| Status::from_header_map(h);
    all(&headers).or_else(|| all(&in_trailers)).expect("a grpc-status")
}

fn framed(flag: u8, message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}

#[tokio::test(start_paused = true)]
async fn every_error_has_details_whoever_makes_it() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    const GRPC: (&str, &str) = ("content-type", "application/grpc");
    let server = Server::start().await;
    let empty = || framed(0, b"");
    let cases = [
        ("unknown service", "/no.Such/Thing", vec![GRPC], empty(), Code::Unimplemented, "UNKNOWN_METHOD"),
        (
            "unknown method",
            "/grpc.health.v1.Health/Nope",
            vec![GRPC],
            empty(),
            Code::Unimplemented,
            "UNKNOWN_METHOD",
        ),
        ("5 MiB", CHECK, vec![GRPC], framed(0, &[0; 5 << 20]), Code::ResourceExhausted, "REQUEST_TOO_LARGE"),
        (
            "not protobuf",
            CHECK,
            vec![GRPC],
            framed(0, &[0xff; 9]),
            Code::InvalidArgument,
            "MALFORMED_REQUEST",
        ),
        ("a wrong flag", CHECK, vec![GRPC], framed(7, b""), Code::InvalidArgument, "MALFORMED_REQUEST"),
        (
            "an undeclared compression",
            CHECK,
            vec![GRPC],
            framed(1, b"x"),
            Code::InvalidArgument,
            "MALFORMED_REQUEST",
        ),
        (
            "half a frame",
            CHECK,
            vec![GRPC],
            Bytes::from_static(b"\0\0\0\0\x09x"),
            Code::InvalidArgument,
            "MALFORMED_REQUEST",
        ),
        ("no message", CHECK, vec![GRPC], Bytes::new(), Code::InvalidArgument, "MALFORMED_REQUEST"),
        (
            "a compression that is not taken",
            CHECK,
            vec![GRPC, ("grpc-encoding", "br")],
            empty(),
            Code::Unimplemented,
            "UNSUPPORTED_COMPRESSION",
        ),
    ];
    for (name, path, headers, body, code, expected) in cases {
        let status = status_of(raw_call(&server, path, &headers, body).await).await;
        assert_eq!(status.code(), code, "{name}: {status}");
        assert!(!status.message().is_empty(), "{name}");
        assert_eq!(reason(&status.get_error_details()), (expected, "toolpulse.dev"), "{name}");
    }
    let over_long = raw_call(&server, CHECK, &[GRPC], framed(0, &[0; 5 << 20])).await;
    let details = status_of(over_long).await.get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["limit"], "4194304");

    let response = raw_call(&server, CHECK, &[("content-type", "application/json")], empty()).await;
    assert_eq!(response.status(), 415);

    let text = server.metrics.encode().unwrap();
    let unknown = "toolpulse_rpcs_total{method=\"_OTHER\",code=\"UNIMPLEMENTED\"} 2";
    let malformed =
        "toolpulse_rpcs_total{method=\"grpc.health.v1.Health/Check\",code=\"INVALID_ARGUMENT\"} 5";
    assert!(text.contains(unknown) && text.contains(malformed), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_error_in_a_stream_has_details_too() {
    use pb::v1::{ServerReflectionRequest, server_reflection_client::ServerReflectionClient};
    let server = Server::start().await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let nothing_asked = ServerReflectionRequest { host: String::new(), message_request: None };
    let mut replies =
        client.server_reflection_info(tokio_stream::once(nothing_asked)).await.unwrap().into_inner();
    let error = replies.message().await.unwrap_err();
    assert_eq!(reason(&error.get_error_details()), (&*code_name(error.code()), "toolpulse.dev"));
}

fn code_name(code: Code) -> String {
    match code {
        Code::InvalidArgument => "INVALID_ARGUMENT".to_owned(),
        other => panic!("unexpected {other:?}"),
    }
}

/// Calls with a deadline of 2 s.
async fn ends_at_its_deadline(server: &Server, path: &str) {
    let headers = [("content-type", "application/grpc"), ("grpc-timeout", "2S")];
    let start = Instant::now();
    let call = async { status_of(raw_call(server, path, &headers, framed(0, b"")).await).await };
    let status = timeout(Duration::from_secs(60), call).await.expect("the call ends");
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(reason(&status.get_error_details()).0, "DEADLINE_EXCEEDED");
    assert!((2_000..2_100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_stream() {
    ends_at_its_deadline(&Server::start().await, "/grpc.health.v1.Health/Watch").await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_call_that_is_not_answered() {
    let hangs = axum::routing::post(async || std::future::pending::<()>().await);
    let routes = axum::Router::new().route("/grpc.health.v1.Health/Check", hangs).into();
    let server = Server::run(bind(9).await, Protocols::Grpc, routes, HealthState::default(), Metrics::new());
    ends_at_its_deadline(&server, "/grpc.health.v1.Health/Check").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_client_gave_up_is_counted() {
    let server = Server::start().await;
    let mut client = server.health().await;
    drop(client.watch(asks("")).await.unwrap());
    let line = "toolpulse_rpcs_total{method=\"grpc.health.v1.Health/Watch\",code=\"CANCELLED\"} 1";
    assert!(eventually(async || server.metrics.encode().unwrap().contains(line)).await, "it is counted");
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_closed_after_ten_seconds() {
    let file =
        |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/prober/tls").join(name);
    let files = tls::Files { certificate: file("served.pem"), key: file("served.key"), clients: None };
    let tls = tls::Tls::load(files, Metrics::new()).unwrap();
    for tls in [None, Some(tls)] {
        let health = HealthState::default();
        let bound = bind(10).await.with_tls(tls);
        let server = Server::run(bound, Protocols::Grpc, Routes::default(), health, Metrics::new());
        let mut silent = TcpStream::connect(server.address).await.unwrap();
        let start = Instant::now();
        assert!(is_closed(&mut silent).await, "never");
        assert!((10_000..10_100).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_cut_off() {
    use pb::v1::{
        ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
        server_reflection_request::MessageRequest,
    };
    let server = Server::start().await;
    let mut client = ServerReflectionClient::new(server.channel().await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(REGISTRY.to_owned())),
    };
    // Far more than the windows hold, and the replies are never polled. The client's connection task answers pings.
    let requests = tokio_stream::iter(vec![ask; 2_000]);
    let start = Instant::now();
    let mut replies = client.server_reflection_info(requests).await.unwrap().into_inner();
    tokio::time::sleep(Duration::from_secs(80)).await;
    let mut read = 0;
    let end = loop {
        match replies.message().await {
            Ok(Some(_)) => read += 1,
            other => break other,
        }
    };
    assert!(end.is_err(), "the connection was cut");
    assert!(read < 2_000 && start.elapsed() < Duration::from_secs(81), "{read} {:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn with_nothing_open_the_drain_is_immediate() {
    let server = Server::start().await;
    let mut idle = server.health().await;
    idle.check(asks("")).await.unwrap();
    assert!(server.drained().await < Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn open_watches_and_silent_connections_do_not_hold_the_drain() {
    let server = Server::start().await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut client = server.health().await;
    let mut watch = client.watch(asks("")).await.unwrap().into_inner();
    watch.message().await.unwrap();
    let address = server.address;
    assert!(server.drained().await < Duration::from_millis(50));
    assert!(is_closed(&mut silent).await);
    assert_eq!(watch.message().await.unwrap_err().code(), Code::Unavailable);
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

/// A peer that spoke HTTP/2 once and is frozen since: it neither reads nor answers.
async fn frozen_peer(address: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    // The server's first frame: it has accepted the connection.
    tcp.read_u8().await.unwrap();
    tcp
}

#[tokio::test(start_paused = true)]
async fn a_frozen_peer_is_cut_when_the_grace_is_over() {
    let server = Server::start().await;
    let _frozen = frozen_peer(server.address).await;
    let took = server.drained().await;
    assert!((GRACE..GRACE + Duration::from_secs(1)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kill_does_not_wait_for_the_grace() {
    let server = Server::start().await;
    let _frozen = frozen_peer(server.address).await;
    server.drain.kill();
    assert!(server.drained().await < Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn a_frozen_peer_without_drain_is_found_by_keepalive() {
    let server = Server::start().await;
    let mut frozen = frozen_peer(server.address).await;
    let start = Instant::now();
    assert!(is_closed(&mut frozen).await);
    assert!((30_000..30_200).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn connections_over_the_cap_are_closed_at_once() {
    let server = Server::start_with_cap(1).await;
    let first = frozen_peer(server.address).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    let start = Instant::now();
    assert!(is_closed(&mut second).await);
    assert!(start.elapsed() < Duration::from_secs(1));
    drop(first);
    server.health.set_ready(true);
    // The place is free again once the server saw the end of the first.
    let connects = async || HealthClient::connect(format!("http://{}", server.address)).await.is_ok();
    assert!(eventually(connects).await);
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_setting() {
    let bound = bind(1).await;
    let error = Bound::bind("TOOLPULSE_LISTEN", bound.address(), 1).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let expected = format!("cannot listen on {} (TOOLPULSE_LISTEN): another process", bound.address());
    assert!(error.to_string().starts_with(&expected), "{error}");
}

/// One HTTP/1.1 request: the status line, the headers and the body.
async fn http1(address: SocketAddr, method: &str, path: &str) -> (String, String, String) {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    tcp.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_ascii_lowercase(), body.to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_admin_port_speaks_http_and_grpc() {
    let (health, metrics) = (HealthState::default(), Metrics::new());
    let (readiness, start) = Readiness::new(health.clone());
    let store = readiness.pending("store");
    let (allowlist, _) = ServerAllowlist::from_environment(&Environment::default()).unwrap();
    let (_publisher, reader) = catalog::channel(Catalog::empty("epoch".into(), 1, false), allowlist);
    let routes = admin::routes(readiness, metrics.clone(), reader, Clock::start());
    let server = Server::run(bind(16).await, Protocols::HttpAndGrpc, routes, health, metrics);
    let at = server.address;
    let mut grpc = server.health().await;

    let (status, _, body) = http1(at, "GET", "/livez").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
    let (status, _, body) = http1(at, "GET", "/readyz").await;
    assert_eq!(
        (status.as_str(), body.as_str()),
        ("HTTP/1.1 503 Service Unavailable", "pending: start, store\n")
    );
    drop((start, store));
    let (status, _, body) = http1(at, "GET", "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
    assert_eq!(grpc.check(asks("")).await.unwrap().into_inner().status(), ServingStatus::Serving);

    let (status, headers, body) = http1(at, "GET", "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(headers.contains("content-type: application/openmetrics-text"), "{headers}");
    assert!(body.contains("toolpulse_build_info{"), "{body}");
    assert!(body.contains("method=\"grpc.health.v1.Health/Check\",code=\"OK\"} 1"), "{body}");

    let (_, _, body) = http1(at, "GET", "/statusz").await;
    assert_eq!(body, "ready: yes\ntools: 0 available, 0 unavailable, 0 pending\nprober: ok\n");

    let (status, _, body) = http1(at, "HEAD", "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", ""));
    let (status, _, body) = http1(at, "GET", "/nope").await;
    assert!(status.starts_with("HTTP/1.1 404") && body.contains("/livez"), "{status} {body}");
    let (status, _, _) = http1(at, "POST", "/livez").await;
    assert!(status.starts_with("HTTP/1.1 405"), "{status}");
    let headers = [("content-type", "application/grpc")];
    let status = status_of(raw_call(&server, "/no.Such/Thing", &headers, framed(0, b"")).await).await;
    assert_eq!(status.code(), Code::Unimplemented);
    assert_eq!(reason(&status.get_error_details()).0, "UNKNOWN_METHOD");

    server.health.drain();
    let (status, _, body) = http1(at, "GET", "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 503 Service Unavailable", "draining\n"));
    assert!(server.drained().await < Duration::from_millis(50));
}
