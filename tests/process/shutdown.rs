//! How the server ends: always, in time, and in order.

use std::{io::Write, sync::mpsc, thread, time::Duration};

use rustix::process::Signal;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tonic::{Code, Streaming, transport::Endpoint};
use tonic_types::StatusExt;
use toolpulse::proto::{
    health::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
        health_client::HealthClient,
    },
    v1::{RegisterToolRequest, Verdict},
};

use crate::support::{
    SOON, Server, eventually,
    held::HeldTarget,
    inproc::{http, probed, seconds, tool},
};

/// The bound that the server promises.
const BOUND: Duration = Duration::from_secs(15);

async fn start() -> Server {
    Server::start(|config| {
        config.store("memory");
    })
    .await
}

/// A watch on a connection of its own, with its first message read.
async fn watch(server: &Server) -> Streaming<HealthCheckResponse> {
    let mut client = HealthClient::new(server.new_channel());
    let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);
    stream
}

/// A client that stopped in the middle: it has an open watch, and neither reads nor answers any more. Ends with the sender.
fn frozen_peer(address: &str) -> mpsc::Sender<()> {
    let (thaw, frozen) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    let address = address.to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let channel =
                Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
            let mut client = HealthClient::new(channel);
            let mut stream = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
            stream.message().await.unwrap().unwrap();
            ready.send(()).unwrap();
            // Blocks the runtime: nothing of the connection goes on.
            let _ = frozen.recv();
        });
    });
    is_ready.recv_timeout(SOON).unwrap();
    thaw
}

/// Connections that nobody will end: silent ones, one that spoke the preface and no more, and a frozen peer.
struct Stuck {
    _silent: Vec<TcpStream>,
    _preface: std::net::TcpStream,
    _frozen: [mpsc::Sender<()>; 2],
}

async fn stuck(server: &Server) -> Stuck {
    let mut silent = Vec::new();
    for address in [server.address(), server.admin_address(), server.address()] {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut preface = std::net::TcpStream::connect(server.address()).unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let frozen = [frozen_peer(server.address()), frozen_peer(server.admin_address())];
    Stuck { _silent: silent, _preface: preface, _frozen: frozen }
}

/// What a watch must see at the end: that it is over, and why.
async fn sees_the_end(mut stream: Streaming<HealthCheckResponse>) {
    let told = timeout(BOUND, stream.message()).await.expect("in time").unwrap().unwrap();
    assert_eq!(told.status(), ServingStatus::NotServing);
    let end = timeout(BOUND, stream.message()).await.expect("in time").unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    let details = end.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "DRAINING");
    assert!(details.retry_info().is_some());
}

async fn ends_in_time(signal: Signal) {
    let mut server = start().await;
    let mut watches = tokio::task::JoinSet::new();
    for _ in 0..5 {
        watches.spawn(sees_the_end(watch(&server).await));
    }
    let stuck = stuck(&server).await;
    let start = Instant::now();
    server.signal(signal);
    watches.join_all().await;
    let status = server.wait_exit(BOUND.saturating_sub(start.elapsed())).await;
    assert_eq!(status.code(), Some(0), "{}", server.log());
    let log = server.log();
    assert!(log.contains("draining") && log.trim_end().ends_with("stopped"), "{log}");
    drop(stuck);
}

#[tokio::test]
async fn sigterm_ends_it_in_time_whatever_is_open() {
    ends_in_time(Signal::TERM).await;
}

#[tokio::test]
async fn sigint_ends_it_in_time_whatever_is_open() {
    ends_in_time(Signal::INT).await;
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    for [first, second] in [[Signal::TERM, Signal::TERM], [Signal::INT, Signal::TERM]] {
        let mut server = start().await;
        let stuck = stuck(&server).await;
        server.signal(first);
        eventually("draining", SOON, async || server.log().contains("draining").then_some(())).await;
        let start = Instant::now();
        server.signal(second);
        let status = server.wait_exit(BOUND).await;
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}: {}", start.elapsed(), server.log());
        assert_eq!(status.code(), Some(0), "{}", server.log());
        drop(stuck);
    }
}

#[tokio::test]
async fn with_nothing_open_it_ends_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = start().await;
        let start = Instant::now();
        server.signal(signal);
        assert_eq!(server.wait_exit(SOON).await.code(), Some(0), "{}", server.log());
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
    // So it does where clients are connected and idle.
    let mut server = start().await;
    let request = RegisterToolRequest { tool: Some(tool("t")), ..Default::default() };
    server.tools().register_tool(request).await.unwrap();
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(SOON).await.code(), Some(0), "{}", server.log());
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_call_in_flight_is_done() {
    let mut server = start().await;
    let mut target = HeldTarget::start().await;
    let mut client = server.tools();
    let request = RegisterToolRequest {
        tool: Some(probed("t", [http(target.url())])),
        wait_for_probe: Some(seconds(15)),
        ..Default::default()
    };
    let call = tokio::spawn(async move { client.register_tool(request).await });
    let held = target.next().await;
    let watched = watch(&server).await;
    server.signal(Signal::TERM);
    // NOT_SERVING is told before anything ends.
    sees_the_end(watched).await;
    assert!(!call.is_finished());
    let (code, body) = server.admin_get("/readyz").await.unwrap();
    assert_eq!((code, body.as_str()), (503, "draining\n"));
    held.answer(200).await;
    let tool = call.await.unwrap().unwrap().into_inner().tool.unwrap();
    assert_eq!(tool.status.unwrap().verdict(), Verdict::Available);
    assert_eq!(server.wait_exit(BOUND).await.code(), Some(0), "{}", server.log());
}
