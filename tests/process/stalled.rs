//! Readers that take nothing: what they cost, and that nobody else notices.

use std::{fs, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_stream::StreamExt;
use toolpulse::proto::v1::{
    ListAvailableToolsRequest, RegisterToolsRequest, ToolSpec, WatchAvailableToolsRequest, WatchToolsRequest,
};

use crate::{
    raw::{DATA, Raw},
    support::{SOON, Server, eventually},
};

const WATCH_TOOLS: &str = "/toolpulse.v1.ToolRegistryService/WatchTools";
const WATCH_AVAILABLE: &str = "/toolpulse.v1.ToolRegistryService/WatchAvailableTools";

const STALLED: usize = 200;
const LIVE: usize = 10;
const CHANGES: usize = 100;
const TOOLS: usize = 8;
/// Of one definition: a message holds one, and the window (64 KiB) not even that.
const SCHEMA_BYTES: usize = 150 << 10;

/// Most that a stalled reader may cost, its connection and the states that it keeps alive included: two messages of 256 KiB.
const COST: usize = 512 << 10;

/// The tools after so many changes. Each change makes one of them another.
fn tool(changes: usize, n: usize) -> ToolSpec {
    let version = (changes + TOOLS - 1 - n) / TOOLS;
    let description = format!("{version} {}", "x".repeat(SCHEMA_BYTES));
    ToolSpec {
        name: format!("tool_{n}"),
        input_schema_json: serde_json::json!({"type": "object", "description": description}).to_string(),
        ..Default::default()
    }
}

async fn register(server: &Server, tools: Vec<ToolSpec>) {
    let request = RegisterToolsRequest { tools, overwrite: true, ..Default::default() };
    let reply = server.tools().register_tools(request).await.unwrap().into_inner();
    assert!(reply.results.iter().all(|result| result.error.is_none()), "{reply:?}");
}

/// The resident memory of the server, in bytes.
fn rss(server: &Server) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A watch whose reader opens no window, on a connection of its own. It answers pings.
async fn stalled(server: &Server, n: usize) -> Raw {
    let mut raw = Raw::connect(server.address(), None).await;
    match n % 2 {
        0 => raw.call(1, WATCH_TOOLS, &WatchToolsRequest::default()).await,
        _ => raw.call(1, WATCH_AVAILABLE, &WatchAvailableToolsRequest::default()).await,
    }
    raw.until(DATA).await;
    raw
}

/// Follows the agents' list, and tells its etag each time that it is complete.
async fn follow(server: &Server, etags: watch::Sender<String>) {
    let mut client = server.tools();
    let mut watch =
        client.watch_available_tools(WatchAvailableToolsRequest::default()).await.unwrap().into_inner();
    while let Some(Ok(message)) = watch.next().await {
        if !message.etag.is_empty() {
            etags.send_replace(message.etag);
        }
    }
}

async fn etag(server: &Server) -> String {
    server.tools().list_available_tools(ListAvailableToolsRequest::default()).await.unwrap().into_inner().etag
}

/// Makes the changes one by one, each when all live readers have the one before. The longest time that one took.
async fn change(
    server: &Server,
    live: &mut [watch::Receiver<String>],
    changes: std::ops::Range<usize>,
) -> Duration {
    let mut longest = Duration::ZERO;
    for change in changes {
        let began = Instant::now();
        register(server, vec![tool(change + 1, change % TOOLS)]).await;
        let wanted = etag(server).await;
        for reader in &mut *live {
            timeout(SOON, reader.wait_for(|etag| *etag == wanted)).await.expect("in time").unwrap();
        }
        longest = longest.max(began.elapsed());
    }
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_cost_little_and_nobody_notices_them() {
    let server = Server::start(|config| {
        config.store("memory").args(["--watch-stall", "10m"]);
    })
    .await;
    let server = Arc::new(server);
    register(&server, (0..TOOLS).map(|n| tool(0, n)).collect()).await;
    let mut live = Vec::new();
    for _ in 0..LIVE {
        let (sender, receiver) = watch::channel(String::new());
        let server = Arc::clone(&server);
        tokio::spawn(async move { follow(&server, sender).await });
        live.push(receiver);
    }
    let alone = change(&server, &mut live, 0..CHANGES / 4).await;
    let before = rss(&server);

    // Some stall at the beginning, the others while states go by: each keeps another one alive.
    let mut readers = Vec::new();
    let mut longest = Duration::ZERO;
    for step in 0..CHANGES {
        let due = if step == 0 { STALLED / 2 } else { STALLED / 2 + STALLED / 2 * step / (CHANGES - 1) };
        while readers.len() < due {
            let reader = stalled(&server, readers.len()).await;
            readers.push(tokio::spawn(reader.stay()));
        }
        longest = longest.max(change(&server, &mut live, CHANGES + step..CHANGES + step + 1).await);
    }
    let cost = rss(&server).saturating_sub(before) / STALLED;
    assert_eq!(readers.len(), STALLED);
    assert!(readers.iter().all(|reader| !reader.is_finished()), "none was cut");
    assert!(cost <= COST, "{cost} bytes for each");
    assert!(longest < alone * 3 + Duration::from_secs(1), "{longest:?}, without them {alone:?}");
    for reader in readers {
        reader.abort();
    }
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_and_the_reason_is_logged() {
    let server = Server::start(|config| {
        config.store("memory").args(["--watch-stall", "2s", "--watch-heartbeat", "100ms"]);
    })
    .await;
    register(&server, (0..TOOLS).map(|n| tool(0, n)).collect()).await;
    let server = Arc::new(server);
    let (sender, mut live) = watch::channel(String::new());
    tokio::spawn({
        let server = Arc::clone(&server);
        async move { follow(&server, sender).await }
    });
    let began = Instant::now();
    let mut readers = JoinSet::new();
    // Two whose window filled up, and one that never had any.
    for n in 0..2 {
        let reader = stalled(&server, n).await;
        readers.spawn(reader.stay());
    }
    let mut shut = Raw::connect(server.address(), Some(0)).await;
    shut.call(1, WATCH_TOOLS, &WatchToolsRequest::default()).await;
    readers.spawn(shut.stay());

    while let Some(cut) = timeout(SOON, readers.join_next()).await.expect("all are cut") {
        cut.unwrap();
        assert!((1_900..4_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }
    let said = || server.log().matches("closing a connection whose client reads nothing").count();
    eventually("each is said once", SOON, async || (said() == 3).then_some(())).await;
    assert!(server.log().contains("peer=127.0.0.1:"), "{}", server.log());
    change(&server, std::slice::from_mut(&mut live), 0..3).await;
    assert_eq!(said(), 3, "who reads stays");
    let metrics = server.admin_get("/metrics").await.unwrap().1;
    assert!(metrics.contains("toolpulse_watchers 1\n"), "{metrics}");
}
