//! What the integration tests share: the real binary as a child process (here and in `server`), the whole server inside the
//! test (`inproc`), targets for its probes (`targets`, `held`), and what a container runtime does around it (`apart`,
//! `container`, `names`).
//!
//! What has to do with the binary waits in real time. Nothing sleeps and hopes: each wait polls a condition and has a deadline.

// Every test file compiles this module for itself and uses a part of it.
#![allow(dead_code, unused_imports)]
// What a test prints is read by the person whose test failed.
#![allow(clippy::print_stderr)]
// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used)]

pub(crate) mod apart;
pub(crate) mod container;
pub(crate) mod held;
pub(crate) mod inproc;
pub(crate) mod names;
pub(crate) mod server;
pub(crate) mod targets;

use std::{future::Future, io::Write, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

pub(crate) use server::{Server, ServerConfig};

/// How long a test waits for what should take milliseconds, on a machine that is busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A variable of the test's own environment.
#[expect(clippy::disallowed_methods, reason = "tests are told by their runner where things are")]
pub(crate) fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// Notes that a test checked nothing, and why. `tests/run` prints these and judges them; where nobody would, under CI,
/// the test fails instead.
pub(crate) fn skip(id: &str, reason: &str) {
    eprintln!("SKIPPED {id}: {reason}");
    if let Some(file) = env("TOOLPULSE_SKIPS") {
        let line = format!("{id}\t{reason}\n");
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened
            .and_then(|mut f| f.write_all(line.as_bytes()))
            .expect("TOOLPULSE_SKIPS names a file to append to");
    } else {
        let ci = env("CI").map(|v| v.to_lowercase());
        assert!(!matches!(ci.as_deref(), Some("true" | "1" | "yes")), "skipped under CI: {id}: {reason}");
    }
}

/// Polls until `check` gives a value, for at most `within`; `what` is what the failure says did not come.
pub(crate) async fn eventually<T, F>(what: &str, within: Duration, mut check: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(5);
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// One HTTP GET, without a client library in between. The status and the body.
pub(crate) async fn http_get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        // HTTP/1.0: the body ends with the connection, never in chunks.
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").as_bytes()).await?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        let text = String::from_utf8_lossy(&bytes);
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        status.zip(body).ok_or_else(|| std::io::Error::other(format!("not an HTTP answer: {text:?}")))
    };
    timeout(Duration::from_secs(5), answer).await.unwrap_or_else(|late| Err(late.into()))
}
