//! The drain with what really is open: a thousand watches, and peers that do not cooperate.

use std::{any::Any, collections::BTreeSet, time::Duration};

use rustix::process::Signal;
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tonic::Code;
use tonic_types::StatusExt;
use toolpulse::proto::v1::{GoodbyeReason, ListAvailableToolsRequest, WatchToolsRequest};

use crate::{
    raw::{DATA, GOAWAY, PREFACE, Raw, headers},
    support::{
        SOON, Server, eventually,
        inproc::{reason, tool},
    },
    watches::{End, Kind, end},
};

/// The bound that the server promises.
const BOUND: Duration = Duration::from_secs(15);

/// An exit that waited for nobody but the streams' own spread (3 s).
const PROMPT: Duration = Duration::from_secs(6);

/// What the server says where the grace was not enough.
const CUT: &str = "closing connections that did not end by themselves";

const WATCH_TOOLS: &str = "/toolpulse.v1.ToolRegistryService/WatchTools";

async fn start() -> Server {
    Server::start(|config| {
        config.store("memory");
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_are_told_and_spread() {
    let mut server = start().await;
    let request = toolpulse::proto::v1::RegisterToolRequest { tool: Some(tool("t")), ..Default::default() };
    server.tools().register_tool(request).await.unwrap();
    let mut watches = Vec::new();
    for connection in 0..20 {
        let channel = server.new_channel();
        for n in 0..50 {
            watches.push(Kind::ALL[(connection + n) % 3].synced(channel.clone()).await);
        }
    }
    let mut idle = server.tools();
    idle.list_available_tools(ListAvailableToolsRequest::default()).await.unwrap();

    let start = Instant::now();
    server.signal(Signal::TERM);
    let mut ends = JoinSet::new();
    for watch in watches {
        ends.spawn(async move { (timeout(BOUND, end(watch)).await.expect("in time"), start.elapsed()) });
    }
    eventually("draining", SOON, async || server.log().contains("draining").then_some(())).await;
    // Whoever asks now is sent to somebody else, on an old connection and on a new one. (On an old one tonic's client has
    // another code while GOAWAY is on its way.)
    for client in [idle, server.tools()] {
        let request = ListAvailableToolsRequest::default;
        let refused = async || client.clone().list_available_tools(request()).await.err();
        let unavailable = async || refused().await.filter(|error| error.code() == Code::Unavailable);
        eventually("calls are refused", Duration::from_secs(2), unavailable).await;
    }
    let ends = ends.join_all().await;
    let status = server.wait_exit(BOUND.saturating_sub(start.elapsed())).await;
    let took = start.elapsed();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    assert!(took < PROMPT, "{took:?}: {}", server.log());
    assert!(!server.log().contains(CUT), "{}", server.log());

    assert_eq!(ends.len(), 1_000);
    let waits: BTreeSet<_> = ends.iter().map(|(end, _)| checked(end)).collect();
    assert!(waits.len() > 500, "{} different waits", waits.len());
    let (first, last) = (waits.first().unwrap(), waits.last().unwrap());
    assert!(*first < Duration::from_millis(1_200) && *last > Duration::from_millis(4_800), "{waits:?}");
    // They do not end in one instant either: each third of the spread has its part.
    for third in 0..3 {
        let part = ends.iter().filter(|(_, at)| at.as_secs().min(2) == third).count();
        assert!(part > 200, "{part} in second {third}");
    }
}

/// The wait that a client was told, in all its forms.
fn checked(end: &End) -> Duration {
    let wait = end.retry_after();
    assert_eq!(end.goodbye.as_ref().unwrap().reason(), GoodbyeReason::Drain);
    assert_eq!((end.status.code(), reason(&end.status).as_str()), (Code::Unavailable, "DRAINING"));
    assert_eq!(end.status.get_error_details().retry_info().unwrap().retry_delay, Some(wait));
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&wait), "{wait:?}");
    wait
}

/// A peer that does not cooperate. It stays as it is while the value lives.
type Stuck = Box<dyn Any + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    SilentTcp,
    MiddleOfPreface,
    PrefaceAndNoMore,
    OpenStream,
    FrozenPeer,
    ShutWindow,
    HalfRequest,
    HalfHeaders,
    IgnoresGoaway,
}

impl Case {
    /// All, and whether the end need not wait for the grace.
    const ALL: [(Self, bool); 9] = [
        (Self::SilentTcp, true),
        (Self::MiddleOfPreface, true),
        (Self::PrefaceAndNoMore, false),
        (Self::OpenStream, true),
        (Self::FrozenPeer, false),
        (Self::ShutWindow, false),
        (Self::HalfRequest, false),
        (Self::HalfHeaders, false),
        (Self::IgnoresGoaway, true),
    ];

    async fn begin(self, address: &str) -> Stuck {
        let watch = WatchToolsRequest::default();
        match self {
            Self::SilentTcp => Box::new(TcpStream::connect(address).await.unwrap()),
            Self::MiddleOfPreface => {
                let mut tcp = TcpStream::connect(address).await.unwrap();
                tcp.write_all(&PREFACE[..10]).await.unwrap();
                Box::new(tcp)
            }
            Self::PrefaceAndNoMore => {
                let mut tcp = TcpStream::connect(address).await.unwrap();
                tcp.write_all(PREFACE).await.unwrap();
                Box::new(tcp)
            }
            Self::OpenStream => {
                let mut raw = Raw::connect(address, None).await;
                raw.call(1, WATCH_TOOLS, &watch).await;
                raw.until(DATA).await;
                Box::new(tokio::spawn(raw.stay()))
            }
            Self::FrozenPeer => {
                let mut raw = Raw::connect(address, None).await;
                raw.call(1, WATCH_TOOLS, &watch).await;
                raw.until(DATA).await;
                Box::new(raw)
            }
            Self::ShutWindow => {
                let mut raw = Raw::connect(address, Some(0)).await;
                raw.call(1, WATCH_TOOLS, &watch).await;
                Box::new(tokio::spawn(raw.stay()))
            }
            Self::HalfRequest => {
                let mut raw = Raw::connect(address, None).await;
                raw.send(&headers(1, "/toolpulse.v1.ToolRegistryService/ListTools")).await;
                Box::new(tokio::spawn(raw.stay()))
            }
            Self::HalfHeaders => {
                let mut raw = Raw::connect(address, None).await;
                let request = headers(1, WATCH_TOOLS);
                raw.send(&request[..request.len() / 2]).await;
                Box::new(tokio::spawn(raw.stay()))
            }
            Self::IgnoresGoaway => {
                let mut raw = Raw::connect(address, None).await;
                raw.call(1, WATCH_TOOLS, &watch).await;
                raw.until(DATA).await;
                Box::new(tokio::spawn(asks_on_and_on(raw)))
            }
        }
    }
}

/// Takes no notice of GOAWAY: a new watch for each frame that comes.
async fn asks_on_and_on(mut raw: Raw) {
    raw.until(GOAWAY).await;
    for n in 1.. {
        raw.call(2 * n + 1, WATCH_TOOLS, &WatchToolsRequest::default()).await;
        if raw.next().await.is_none() {
            break;
        }
    }
}

async fn ends_in_time(case: Case, prompt: bool) {
    let mut server = start().await;
    let stuck = case.begin(server.address()).await;
    // The server must have seen what it is to be stuck in.
    sleep(Duration::from_millis(200)).await;
    let start = Instant::now();
    server.signal(Signal::TERM);
    let status = server.wait_exit(BOUND).await;
    let took = start.elapsed();
    assert_eq!(status.code(), Some(0), "{case:?}: {}", server.log());
    let limit = if prompt { PROMPT } else { BOUND };
    assert!(took < limit, "{case:?}: {took:?}: {}", server.log());
    // What was left is said, and only where something was.
    assert_eq!(server.log().contains(CUT), !prompt, "{case:?}: {}", server.log());
    assert!(server.log().trim_end().ends_with("stopped"), "{case:?}: {}", server.log());
    drop(stuck);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_holds_the_exit() {
    let mut cases = JoinSet::new();
    for (case, prompt) in Case::ALL {
        cases.spawn(ends_in_time(case, prompt));
    }
    cases.join_all().await;
}
