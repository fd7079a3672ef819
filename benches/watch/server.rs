//! The server under watch, and what it uses.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tonic::transport::Channel;
use toolpulse::proto::v1::{self, tool_registry_service_client::ToolRegistryServiceClient};

use super::{
    children::{self, Child},
    tools,
    watchers::{ELSEWHERE, FLIPPING, TOOLS, flip},
};

/// The bounds of one address and of all, out of the way.
const ROOM: [&str; 4] = ["--max-watches", "100000", "--max-watches-per-peer", "100000"];
/// Longer than any run, so that nothing but reports flips.
const TTL: Duration = Duration::from_secs(24 * 3_600);

/// A server with 1,000 tools, one of which flips and is available.
pub(crate) struct Server(Child);

/// What it uses at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) files: usize,
    pub(crate) threads: usize,
    pub(crate) resident: usize,
    pub(crate) watchers: usize,
}

impl Server {
    pub(crate) async fn start(data: &Path, flags: &[&str]) -> Self {
        let flags = [&ROOM[..], flags].concat();
        let child = children::toolpulse_with("sqlite", data, None, &flags).await;
        tools::register(child.address(), TOOLS).await;
        let server = Self(child);
        let mut client = server.client().await;
        for which in [FLIPPING, ELSEWHERE] {
            let probe = v1::ProbeSpec {
                kind: Some(v1::probe_spec::Kind::Report(v1::ReportProbe {})),
                ..Default::default()
            };
            let ttl = prost_types::Duration { seconds: TTL.as_secs().cast_signed(), nanos: 0 };
            let tool = v1::ToolSpec { probes: vec![probe], ttl: Some(ttl), ..tools::tool(which) };
            let request = v1::RegisterToolRequest { tool: Some(tool), overwrite: true, ..Default::default() };
            client.register_tool(request).await.unwrap();
            client.report_probe_result(flip(which, v1::ProbeOutcome::Pass)).await.unwrap();
        }
        server
    }

    /// Flips the tool that nobody watches, so often.
    pub(crate) async fn flip_elsewhere(&self, count: usize) {
        let mut client = self.client().await;
        for round in 0..count {
            let to = if round % 2 == 0 { v1::ProbeOutcome::No } else { v1::ProbeOutcome::Pass };
            client.report_probe_result(flip(ELSEWHERE, to)).await.unwrap();
        }
    }

    async fn client(&self) -> ToolRegistryServiceClient<Channel> {
        ToolRegistryServiceClient::connect(format!("http://{}", self.address())).await.unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        self.0.address()
    }

    pub(crate) fn cpu_time(&self) -> Duration {
        self.0.cpu_time()
    }

    pub(crate) fn resident(&self) -> usize {
        self.0.resident()
    }

    /// Messages encoded so far.
    pub(crate) fn encodings(&self) -> usize {
        self.metric("toolpulse_watch_encodings_total")
    }

    pub(crate) fn usage(&self) -> Use {
        let count = |of: &str| std::fs::read_dir(format!("/proc/{}/{of}", self.0.id())).unwrap().count();
        Use {
            watchers: self.metric("toolpulse_watchers"),
            files: count("fd"),
            threads: count("task"),
            resident: self.resident(),
        }
    }

    /// Waits until so many are watched over, and then for what goes after them.
    pub(crate) async fn until_watchers(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.metric("toolpulse_watchers") != count {
            assert!(Instant::now() < deadline, "not {count} watchers: {:?}", self.usage());
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(500)).await;
    }

    fn metric(&self, name: &str) -> usize {
        let mut admin = TcpStream::connect(self.0.admin()).unwrap();
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.0.admin());
        admin.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        admin.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}
