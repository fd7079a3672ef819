//! What hostile targets cost a prober, all of them at once and many times over: memory, sockets and time. A process of its
//! own, as it is the process that is measured.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test's helpers are tests too, and the targets serve another one"
)]

#[path = "prober/targets.rs"]
mod targets;

use std::{fs, net::SocketAddr, time::Duration};

use tokio::{
    io::AsyncWriteExt,
    task::JoinSet,
    time::{Instant, sleep},
};
use toolpulse::{
    core::probe::{HostPort, HttpProbe, HttpUrl, Outcome, ProbeKind},
    prober::{
        Prober,
        egress::{Mode, Policy},
    },
};

/// Runs against each target; all are in flight together.
const RUNS: usize = 50;
/// The one deadline of a run.
const TIMEOUT: Duration = Duration::from_secs(3);
/// What a run may hold: its caps on head and body, twice, and the machinery.
const PER_RUN: usize = 64 * 1024;

/// Writes `start`, then `piece` until `count` bytes are written or nobody reads any more.
async fn pours(start: &'static str, piece: &'static [u8], count: usize) -> SocketAddr {
    targets::tcp(move |mut stream| async move {
        targets::head(&mut stream).await;
        if stream.write_all(start.as_bytes()).await.is_err() {
            return;
        }
        let mut written = 0;
        while written < count && stream.write_all(piece).await.is_ok() {
            written += piece.len();
        }
    })
    .await
}

/// A number of /proc/self/status, in bytes.
fn memory(key: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn sockets() -> usize {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
}

#[tokio::test]
async fn hostile_targets_cost_little() {
    const OK: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const LONG: &str = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    const PIECE: &[u8] = &[b'x'; 64 * 1024];
    const GIB: usize = 1 << 30;
    let drip = targets::tcp(|mut stream| async move {
        targets::head(&mut stream).await;
        while stream.write_all(b"H").await.is_ok() {
            sleep(Duration::from_secs(2)).await;
        }
    });
    let freeze = targets::tcp(|stream| async move {
        sleep(Duration::from_secs(60)).await;
        drop(stream);
    });
    let reset = targets::tcp(|stream| async move { stream.set_zero_linger().unwrap() });
    let zoo = [
        ("a body of 1 GiB", pours(LONG, PIECE, GIB).await),
        ("an endless body", pours(OK, PIECE, GIB).await),
        ("an endless line of a chunk", pours(CHUNKED, PIECE, GIB).await),
        ("an endless extension of a chunk", pours(CHUNKED, b"1;a=b", GIB).await),
        ("endless chunks", pours(CHUNKED, b"1\r\nx\r\n", GIB).await),
        ("endless headers", pours("HTTP/1.1 200 OK\r\n", b"flood: flood\r\n", GIB).await),
        ("one endless header", pours("HTTP/1.1 200 OK\r\na: ", PIECE, GIB).await),
        ("endless interim answers", pours("", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n", GIB).await),
        ("endless trailers", pours(CHUNKED, b"0\r\na: b\r\nc: d\r\n", GIB).await),
        ("a byte every 2 s", drip.await),
        ("freezes", freeze.await),
        ("resets", reset.await),
    ];
    let prober = Prober::new(Policy::parse(Mode::Strict, &["127.0.0.0/8".to_owned()]).unwrap());
    let (before, open) = (memory("VmRSS"), sockets());
    let start = Instant::now();
    let mut runs = JoinSet::new();
    for _ in 0..RUNS {
        for (what, address) in zoo {
            let endpoint = HostPort { host: address.ip().to_string(), port: address.port() };
            let url = HttpUrl { text: String::new(), https: false, endpoint, path_and_query: "/".to_owned() };
            let prober = prober.clone();
            runs.spawn(
                async move { (what, prober.run(&ProbeKind::Http(HttpProbe::get(url)), TIMEOUT).await) },
            );
        }
    }
    while let Some(run) = runs.join_next().await {
        let (what, run) = run.unwrap();
        assert!(matches!(run.outcome, Outcome::Error(..)), "{what}: {run:?}");
        assert!(run.duration < TIMEOUT * 2, "{what}: {run:?}");
    }
    // Each run has its own deadline; what is over it is this machine's, which targets and prober share.
    assert!(start.elapsed() < TIMEOUT * 4, "{:?}", start.elapsed());
    let grown = memory("VmHWM").saturating_sub(before);
    assert!(grown < RUNS * zoo.len() * PER_RUN, "{} KiB a run", grown / 1024 / RUNS / zoo.len());
    // The targets' ends close once they see that ours are closed; those that sleep still hold theirs.
    let sleeping = 2 * RUNS;
    let end = Instant::now() + Duration::from_secs(20);
    while sockets() > open + sleeping && Instant::now() < end {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(sockets() <= open + sleeping, "{} sockets more", sockets() - open);
}
