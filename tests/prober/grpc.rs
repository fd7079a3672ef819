//! The `grpc` kind.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, body::Body, response::Response};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Status, service::Routes, transport::Server};
use toolpulse::{
    core::probe::{ErrorClass, GrpcProbe, ProbeKind, Tls},
    proto::health::{
        HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
        health_server::{Health, HealthServer},
    },
};

use super::{TIMEOUT, assert_error, endpoint, local, shown, targets};

fn probe(address: SocketAddr, service: &str) -> ProbeKind {
    ProbeKind::Grpc(GrpcProbe {
        target: endpoint(address),
        service: service.to_owned(),
        headers: vec![],
        tls: None,
    })
}

/// Answers by the name of the service that is asked about: a number is a status, `code/N` is a code.
struct Told;

#[tonic::async_trait]
impl Health for Told {
    type WatchStream = tokio_stream::Empty<Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        let agent = request.metadata().get("user-agent").map(|v| v.to_str().unwrap().to_owned());
        assert_eq!(agent.as_deref(), Some(concat!("toolpulse-probe/", env!("CARGO_PKG_VERSION"))));
        let service = request.into_inner().service;
        if let Some(code) = service.strip_prefix("code/") {
            return Err(Status::new(Code::from_i32(code.parse().unwrap()), "told"));
        }
        Ok(tonic::Response::new(HealthCheckResponse { status: service.parse().unwrap() }))
    }

    async fn watch(
        &self,
        _request: Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list(
        &self,
        _request: Request<HealthListRequest>,
    ) -> Result<tonic::Response<HealthListResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

pub(super) async fn serve(routes: Routes) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

#[tokio::test]
async fn what_a_server_says() {
    let target = serve(Routes::new(HealthServer::new(Told))).await;
    let cases = [
        ("1", "PASS"),
        ("0", "NO UNKNOWN: health status UNKNOWN"),
        ("2", "NO NOT_SERVING: health status NOT_SERVING"),
        ("3", "NO SERVICE_UNKNOWN: health status SERVICE_UNKNOWN"),
        ("77", "NO UNKNOWN: health status 77, which is none of the protocol's"),
    ];
    for (service, expect) in cases {
        let run = local().run(&probe(target, service), TIMEOUT).await;
        assert_eq!(shown(&run), expect, "{service}");
        assert_eq!(run.address, Some(target));
    }
    for code in 0..=16 {
        let run = local().run(&probe(target, &format!("code/{code}")), TIMEOUT).await;
        let name = format!("{:?}", Code::from_i32(code));
        // A server that fails with OK has not answered at all, which tonic calls INTERNAL.
        let expect = match Code::from_i32(code) {
            Code::NotFound | Code::Unimplemented | Code::Unauthenticated | Code::PermissionDenied => "NO ",
            _ => "ERROR STATUS: health check answered ",
        };
        assert!(shown(&run).starts_with(expect), "{name}: {}", shown(&run));
        let told = shown(&run).replace('_', "").to_lowercase();
        assert!(code == 0 || told.contains(&format!("answered {}: told", name.to_lowercase())), "{told}");
    }
}

#[tokio::test]
async fn a_common_health_server() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("tool", tonic_health::ServingStatus::NotServing).await;
    let target = serve(Routes::new(health)).await;
    assert_eq!(shown(&local().run(&probe(target, ""), TIMEOUT).await), "PASS");
    let run = local().run(&probe(target, "tool"), TIMEOUT).await;
    assert_eq!(shown(&run), "NO NOT_SERVING: health status NOT_SERVING");
    let run = local().run(&probe(target, "other"), TIMEOUT).await;
    assert!(shown(&run).starts_with("NO NOT_FOUND: "), "{}", shown(&run));
}

#[tokio::test]
async fn a_server_without_health() {
    let target = serve(Routes::default()).await;
    let run = local().run(&probe(target, ""), TIMEOUT).await;
    assert!(shown(&run).starts_with("NO UNIMPLEMENTED: "), "{}", shown(&run));
}

/// An HTTP/2 server that answers everything with this.
async fn page(status: u16, trailers: Option<&'static str>, body: Vec<u8>) -> SocketAddr {
    let answer = move || {
        let body = body.clone();
        async move {
            let trailers = trailers.map(|status| {
                let mut map = HeaderMap::new();
                map.insert("grpc-status", status.parse().unwrap());
                Ok(map)
            });
            let body = Full::from(body).with_trailers(async move { trailers });
            Response::builder()
                .status(status)
                .header("content-type", "application/grpc")
                .body(Body::new(body.boxed_unsync()))
                .unwrap()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

/// Compresses, though nobody asked for it; tonic alone would read this as UNIMPLEMENTED.
async fn encoded() -> SocketAddr {
    let answer = async || {
        let head = [("content-type", "application/grpc"), ("grpc-encoding", "zip"), ("grpc-status", "0")];
        (head, Body::empty())
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    address
}

fn message(length: u32) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend(length.to_be_bytes());
    // All the rest is one field that nobody knows, so the message is well-formed.
    bytes.extend([
        0x7a,
        0x80 | (length - 4) as u8,
        0x80 | ((length - 4) >> 7) as u8,
        ((length - 4) >> 14) as u8,
    ]);
    bytes.resize(length as usize + 5, b'x');
    bytes
}

#[tokio::test]
async fn what_is_not_a_servers_own_answer_is_an_error() {
    let serving = vec![0, 0, 0, 0, 2, 8, 1];
    let run = local().run(&probe(page(200, Some("0"), serving.clone()).await, ""), TIMEOUT).await;
    assert_eq!(shown(&run), "PASS");
    // Pages of proxies; tonic alone would read some of them as UNIMPLEMENTED, PERMISSION_DENIED or UNAUTHENTICATED.
    for status in [401, 403, 404, 429, 500, 502, 503] {
        let run = local().run(&probe(page(status, None, b"<html>".to_vec()).await, ""), TIMEOUT).await;
        assert_error(&run, ErrorClass::Status, &format!("http status {status}"));
    }
    let run = local().run(&probe(page(200, None, serving).await, ""), TIMEOUT).await;
    assert_error(&run, ErrorClass::Status, "UNKNOWN");
    let run = local().run(&probe(page(200, Some("0"), message(10_000)).await, ""), TIMEOUT).await;
    assert!(shown(&run).starts_with("NO UNKNOWN"), "under the cap: {}", shown(&run));
    let run = local().run(&probe(page(200, Some("0"), message(100_000)).await, ""), TIMEOUT).await;
    assert_error(&run, ErrorClass::Oversize, "16384 bytes");
    let run = local().run(&probe(encoded().await, ""), TIMEOUT).await;
    assert_error(&run, ErrorClass::Protocol, "'zip'");
}

#[tokio::test]
async fn what_is_not_grpc_is_an_error() {
    for garbage in ["HTTP/1.1 400 Bad Request\r\n\r\n", "garbage, and more of it than a frame's head", ""] {
        let target = targets::tcp(move |mut stream| async move {
            let _gone = stream.write_all(garbage.as_bytes()).await;
            // What comes is read, so that closing is no reset.
            let _read = stream.read(&mut [0; 4096]).await;
        })
        .await;
        let run = local().run(&probe(target, ""), TIMEOUT).await;
        assert_error(&run, ErrorClass::Protocol, "broken");
    }
    let closed = targets::closed_port().await;
    assert_error(&local().run(&probe(closed, ""), TIMEOUT).await, ErrorClass::Connect, "refused");
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_is_left_at_the_deadline() {
    let (sender, mut closed) = mpsc::unbounded_channel();
    let target = targets::tcp(move |mut stream| {
        let sender = sender.clone();
        async move {
            let mut read = Vec::new();
            let _end = stream.read_to_end(&mut read).await;
            sender.send(read.starts_with(b"PRI * HTTP/2.0")).unwrap();
        }
    })
    .await;
    let run = local().run(&probe(target, ""), Duration::from_secs(3)).await;
    assert_error(&run, ErrorClass::Timeout, "connected, and the answer did not end");
    assert!((3000..3010).contains(&run.duration.as_millis()), "{:?}", run.duration);
    assert_eq!(closed.recv().await, Some(true), "the connection is closed");
}

#[tokio::test]
async fn tls_is_verified() {
    let acceptor = targets::tls(b"h2");
    let plain = serve(Routes::new(HealthServer::new(Told))).await;
    // Ends TLS, and passes the bytes on.
    let target = targets::tcp(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut near) = acceptor.accept(stream).await else { return };
            assert_eq!(near.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            let mut far = tokio::net::TcpStream::connect(plain).await.unwrap();
            let _end = tokio::io::copy_bidirectional(&mut near, &mut far).await;
        }
    })
    .await;
    let tls = |name: Option<&str>| {
        let tls = Some(Tls { server_name: name.map(str::to_owned), ..Tls::default() });
        ProbeKind::Grpc(GrpcProbe { target: endpoint(target), service: "1".to_owned(), headers: vec![], tls })
    };
    assert_eq!(shown(&targets::trusting().run(&tls(None), TIMEOUT).await), "PASS");
    assert_eq!(shown(&targets::trusting().run(&tls(Some("tool.example")), TIMEOUT).await), "PASS");
    let run = targets::trusting().run(&tls(Some("other.example")), TIMEOUT).await;
    assert_error(&run, ErrorClass::Tls, "name");
    assert_error(&local().run(&tls(Some("tool.example")), TIMEOUT).await, ErrorClass::Tls, "UnknownIssuer");
    // Plaintext against TLS, and TLS against plaintext.
    assert_error(&local().run(&probe(target, "1"), TIMEOUT).await, ErrorClass::Protocol, "broken");
}
