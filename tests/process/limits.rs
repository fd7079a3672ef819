//! How many watches and connections there may be, how old they get, and how peers that are gone are found.

use std::{net::SocketAddr, time::Duration};

use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint},
};
use tonic_types::StatusExt;
use toolpulse::proto::v1::{GoodbyeReason, WatchToolsRequest};

use crate::{
    raw::{DATA, PREFACE, Raw},
    support::{SOON, Server, eventually, inproc::reason},
    watches::{Kind, end},
};

const WATCH_TOOLS: &str = "/toolpulse.v1.ToolRegistryService/WatchTools";

async fn start(args: &[&str]) -> Server {
    Server::start(|config| {
        config.store("memory").args(args);
    })
    .await
}

/// A client at another address than the others.
async fn from_elsewhere(server: &Server) -> Channel {
    let address: SocketAddr = server.address().parse().unwrap();
    let connect = tower::service_fn(move |_| async move {
        let socket = TcpSocket::new_v4()?;
        socket.bind("127.0.0.2:0".parse().unwrap())?;
        socket.connect(address).await.map(TokioIo::new)
    });
    Endpoint::from_static("http://elsewhere").connect_with_connector(connect).await.unwrap()
}

fn is_too_many(error: &Status, whose: &str) {
    assert_eq!((error.code(), reason(error).as_str()), (Code::ResourceExhausted, "TOO_MANY_WATCHES"));
    assert!(error.message().contains(whose), "{error}");
    let wait = error.get_error_details().retry_info().and_then(|info| info.retry_delay).expect("RetryInfo");
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&wait), "{wait:?}");
}

async fn watchers_are(server: &Server, n: usize) {
    let line = format!("toolpulse_watchers {n}\n");
    eventually(&line, SOON, async || {
        server.admin_get("/metrics").await.unwrap().1.contains(&line).then_some(())
    })
    .await;
}

#[tokio::test]
async fn watches_are_limited_by_address_and_in_all() {
    let server = start(&["--max-watches", "6", "--max-watches-per-peer", "4"]).await;
    let elsewhere = from_elsewhere(&server).await;
    // Whatever they watch, and over whatever connections.
    let mut here = Vec::new();
    for kind in [Kind::AvailableTools, Kind::Tools, Kind::GatewayStatus] {
        here.push(kind.synced(server.new_channel()).await);
    }
    let mut vanishing = Raw::connect(server.address(), None).await;
    vanishing.call(1, WATCH_TOOLS, &WatchToolsRequest::default()).await;
    vanishing.until(DATA).await;
    for kind in Kind::ALL {
        let refused = kind.open(server.channel(), None).await.err().expect("a fifth is refused");
        is_too_many(&refused, "watches are open from this address: at most 4");
    }
    let mut others = Vec::new();
    for kind in [Kind::Tools, Kind::GatewayStatus] {
        others.push(kind.synced(elsewhere.clone()).await);
    }
    for kind in Kind::ALL {
        let refused = kind.open(elsewhere.clone(), None).await.err().expect("a seventh is refused");
        is_too_many(&refused, "watches are open: at most 6");
    }
    watchers_are(&server, 6).await;

    // A place is free at once: when a client vanishes, drops its stream, or its connection.
    let began = Instant::now();
    vanishing.vanish();
    watchers_are(&server, 5).await;
    others.push(Kind::AvailableTools.synced(elsewhere.clone()).await);
    drop(here.pop());
    watchers_are(&server, 5).await;
    here.push(Kind::GatewayStatus.synced(server.channel()).await);
    drop((here, others, elsewhere));
    watchers_are(&server, 0).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let mut here_again = Vec::new();
    for _ in 0..4 {
        here_again.push(Kind::Tools.synced(server.channel()).await);
    }
}

#[tokio::test]
async fn an_old_watch_is_ended_with_a_goodbye() {
    let server = start(&["--watch-max-age", "2s"]).await;
    let mut ends = JoinSet::new();
    for n in 0..60 {
        let channel = server.channel();
        ends.spawn(async move {
            let began = Instant::now();
            let watch = Kind::ALL[n % 3].open(channel, None).await.unwrap();
            (end(watch).await, began.elapsed())
        });
    }
    let ends = ends.join_all().await;
    for (end, age) in &ends {
        let goodbye = end.goodbye.as_ref().expect("a goodbye");
        assert_eq!((goodbye.reason(), end.status.code()), (GoodbyeReason::AgeLimit, Code::Ok));
        assert!((100..1_000).contains(&end.retry_after().as_millis()), "{end:?}");
        assert!((1_790..3_500).contains(&age.as_millis()), "{age:?}");
    }
    let ages = || ends.iter().map(|(_, age)| *age);
    let spread = ages().max().unwrap() - ages().min().unwrap();
    assert!(spread > Duration::from_millis(200), "they do not end together: {spread:?}");
}

#[tokio::test]
async fn the_callers_deadline_ends_every_watch() {
    let server = start(&[]).await;
    for kind in Kind::ALL {
        let began = Instant::now();
        let watch = kind.open(server.channel(), Some(Duration::from_secs(1))).await.unwrap();
        let end = timeout(SOON, end(watch)).await.expect("an end");
        // The ErrorInfo is the server's: it was not the client that gave up.
        assert_eq!(
            (end.status.code(), reason(&end.status).as_str()),
            (Code::DeadlineExceeded, "DEADLINE_EXCEEDED")
        );
        assert!(end.goodbye.is_none(), "{end:?}");
        assert!((990..3_000).contains(&began.elapsed().as_millis()), "{kind:?}: {:?}", began.elapsed());
    }
    watchers_are(&server, 0).await;
}

#[tokio::test]
async fn keepalive_finds_a_peer_that_is_frozen() {
    let server = start(&["--keepalive-interval", "1s", "--keepalive-timeout", "1s"]).await;
    let watch = WatchToolsRequest::default();
    let mut frozen = Raw::connect(server.address(), None).await;
    let mut lively = Raw::connect(server.address(), None).await;
    for peer in [&mut frozen, &mut lively] {
        peer.call(1, WATCH_TOOLS, &watch).await;
        peer.until(DATA).await;
    }
    let began = Instant::now();
    let lively = tokio::spawn(lively.stay());
    watchers_are(&server, 1).await;
    let took = began.elapsed();
    assert!((1_900..3_500).contains(&took.as_millis()), "{took:?}");
    sleep(Duration::from_secs(1)).await;
    assert!(!lively.is_finished(), "who answers stays");
    watchers_are(&server, 1).await;
    lively.abort();
}

#[tokio::test]
async fn a_connection_that_does_not_begin_is_closed() {
    let server = start(&[]).await;
    let mut closed = JoinSet::new();
    // The admin port speaks HTTP/1 as well: its shortest request is shorter than the preface.
    for (address, said) in [
        (server.address(), &PREFACE[..0]),
        (server.address(), &PREFACE[..1]),
        (server.address(), &PREFACE[..PREFACE.len() - 1]),
        (server.admin_address(), &PREFACE[..0]),
        (server.admin_address(), &b"GET / HTT"[..]),
    ] {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(said).await.unwrap();
        closed.spawn(async move {
            let began = Instant::now();
            // What the server says by itself may come first.
            while tcp.read(&mut [0; 100]).await.is_ok_and(|n| n > 0) {}
            (said, began.elapsed())
        });
    }
    let all = timeout(SOON, closed.join_all()).await.expect("all are closed");
    for (said, took) in all {
        assert!((9_500..12_000).contains(&took.as_millis()), "{said:?}: {took:?}");
    }
}

#[tokio::test]
async fn connections_are_limited_by_the_files_that_the_process_may_open() {
    let server = Server::start(|config| {
        config.store("memory").max_files(64);
    })
    .await;
    // Half of a limit this small: 32.
    let mut open = Vec::new();
    let refused = loop {
        let mut tcp = TcpStream::connect(server.address()).await.unwrap();
        tcp.write_all(PREFACE).await.unwrap();
        // A connection that is taken is told the server's settings.
        match timeout(SOON, tcp.read(&mut [0; 1])).await.expect("an answer") {
            Ok(1) => open.push(tcp),
            _ => break tcp,
        }
        assert!(open.len() <= 32, "there is a limit");
    };
    drop(refused);
    assert_eq!(open.len(), 32);
    server.logs("too many connections: new ones are closed").await;
    assert_eq!(server.admin_get("/readyz").await.unwrap().0, 200, "the admin port has places of its own");

    open.pop();
    let again = eventually("there is room again", SOON, async || {
        Kind::AvailableTools.open(server.new_channel(), None).await.ok()
    });
    drop(again.await);
    server.logs("there is room for connections again").await;
}
