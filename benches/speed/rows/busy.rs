//! Reads while something else goes on.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command},
    time::Duration,
};

use prost::Message;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::transport::Endpoint;
use toolpulse::proto::v1::{self, probe_spec::Kind};

use super::Run;
use crate::{
    children::{self, Child, cores, pinned},
    contest::Rounds,
    load::Load,
    raw::{LIST, call_to, client},
    table::{
        Line,
        Target::{AtLeast, AtMost},
    },
    tools,
};

const REPORT: &str = "/toolpulse.v1.ToolRegistryService/ReportProbeResult";
const FLIPS_A_SECOND: u64 = 50;
/// Ports of targets: not more than 16 runs may go to one at once.
const PORTS: usize = 250;

/// A tool whose verdict is what is reported, for a day.
pub(super) fn reported(i: usize) -> v1::ToolSpec {
    let probe = v1::ProbeSpec { kind: Some(Kind::Report(v1::ReportProbe {})), ..Default::default() };
    let ttl = prost_types::Duration { seconds: 86_400, nanos: 0 };
    v1::ToolSpec { probes: vec![probe], ttl: Some(ttl), ..tools::tool(i) }
}

/// Reports about a tool, in turn.
pub(super) struct Flipper {
    client: tonic::client::Grpc<tonic::transport::Channel>,
    name: String,
    count: usize,
}

impl Flipper {
    pub(super) async fn new(address: &str, tool: usize) -> Self {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let mut new = Self { client: client(&channel), name: tools::name(tool), count: 0 };
        new.flip().await;
        new
    }

    pub(super) async fn flip(&mut self) {
        // The first one makes it available.
        let outcome =
            if self.count.is_multiple_of(2) { v1::ProbeOutcome::Pass } else { v1::ProbeOutcome::No };
        self.count += 1;
        let request = v1::ReportProbeResultRequest {
            name: self.name.clone(),
            outcome: outcome.into(),
            ..Default::default()
        };
        call_to(&mut self.client, REPORT, &request.encode_to_vec().into()).await;
    }

    async fn go_on(&mut self) {
        let mut ticks = interval(Duration::from_millis(1_000 / FLIPS_A_SECOND));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.flip().await;
        }
    }
}

pub(super) async fn flips(run: &Run) -> Vec<Line> {
    let server = run.with_tools(1_000).await;
    // One of those that are listed.
    let overwrite =
        v1::RegisterToolRequest { tool: Some(reported(0)), overwrite: true, ..Default::default() };
    tools::ask(server.address(), "/toolpulse.v1.ToolRegistryService/RegisterTool", &overwrite).await;
    let mut flipper = Flipper::new(server.address(), 0).await;
    let load = Load::new(server.address(), LIST, &tools::request_for_twenty(1_000), &run.files);
    let (mut quiet, mut busy) = (Rounds::default(), Rounds::default());
    load.closed(run.effort.slice).await;
    for _ in 0..run.effort.rounds {
        quiet.push(load.closed(run.effort.slice).await);
        tokio::select! {
            outcome = load.closed(run.effort.slice) => busy.push(outcome),
            () = flipper.go_on() => {}
        }
    }
    let what = "20 of 1,000, one flips 50 times a second";
    vec![Line::ratio(what, "calls/s", busy.rate(), ("the same, quiet", quiet.rate()), AtLeast(0.70))]
}

pub(super) async fn probes(run: &Run) -> Vec<Line> {
    let count = if run.effort.quick { 1_000 } else { 10_000 };
    let flags = ["--probe-allow", "127.0.0.0/8"];
    let server = children::toolpulse_with("memory", &run.files.join("unused"), None, &flags).await;
    tools::register(server.address(), 1_000).await;
    let request = tools::request_for_twenty(1_000);
    let reply = tools::ask(server.address(), LIST, &request).await;
    let bare = run.bare(&reply, LIST, &request).await;
    let ours = run.ours(&server, LIST, &request);
    // Idle before and after, so that what drifts is not taken for the probes'.
    let (mut idle, mut busy, mut peak) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..run.effort.rounds {
        peak.push(bare.load.closed(run.effort.slice).await);
    }
    let half = peak.rate() / 2.0;
    for _ in 0..run.effort.rounds {
        idle.push(ours.load.open(run.effort.slice, half).await);
    }
    let mut targets = Targets::start();
    targets.half_die();
    tools::register_all(server.address(), (0..count).map(|i| probed(1_000 + i, &targets))).await;
    until_asked(&server, count).await;
    for _ in 0..2 * run.effort.rounds {
        busy.push(ours.load.open(run.effort.slice, half).await);
    }
    let names = (0..count).map(|i| tools::name(1_000 + i)).collect();
    let all = v1::UnregisterToolsRequest { names, ..Default::default() };
    tools::ask(server.address(), "/toolpulse.v1.ToolRegistryService/UnregisterTools", &all).await;
    sleep(Duration::from_secs(1)).await;
    for _ in 0..run.effort.rounds {
        idle.push(ours.load.open(run.effort.slice, half).await);
    }
    let what = format!("p99, {count} probes each 10 s, half unanswered");
    vec![Line::ratio(what, "us", busy.p99(), ("without probes", idle.p99()), AtMost(1.5))]
}

fn probed(i: usize, targets: &Targets) -> v1::ToolSpec {
    let url = format!("http://{}/tools/{i}", targets.addresses[i % PORTS]);
    let kind = Some(Kind::Http(v1::HttpProbe { url, ..Default::default() }));
    v1::ToolSpec { probes: vec![v1::ProbeSpec { name: "http".into(), kind }], ..tools::tool(i) }
}

/// Waits until half of the probed tools pass, and then for the others to be known as dead.
async fn until_asked(server: &Child, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let all = v1::ListAvailableToolsRequest { max_reply_bytes: 64 << 20, ..Default::default() };
    // Those without a probe are there anyway.
    while tools::list(server.address(), &all).await.tools.len() < 1_000 + count / 2 {
        assert!(Instant::now() < deadline, "half of the targets do not pass");
        sleep(Duration::from_millis(500)).await;
    }
    sleep(Duration::from_secs(10)).await;
}

/// All targets, in one process on the load generator's core. It ends with this.
struct Targets {
    child: std::process::Child,
    orders: ChildStdin,
    addresses: Vec<String>,
}

impl Targets {
    fn start() -> Self {
        let mut command: Command = pinned(cores().1, std::env::current_exe().unwrap());
        command.args(["targets", &PORTS.to_string()]).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addresses = line.split_whitespace().map(str::to_owned).collect();
        let orders = child.stdin.take().unwrap();
        Self { child, orders, addresses }
    }

    /// Every other port accepts and never answers from now on.
    fn half_die(&mut self) {
        self.orders.write_all(b"die\n").unwrap();
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
