//! What probing costs: `cargo bench --bench probes` (some 4 minutes; `-- --quick`: a tenth of the targets for a shorter time).
//!
//! The real binary probes 10,000 HTTP targets every 10 s, all of them on loopback in another process, over 250 ports. Then half
//! of the ports accept and never answer again. Looked at three times: while all live, while it is found out who is dead
//! (their last success stands in for 30 s, and they are asked every 2 s), and after that. Lateness is what the server says of
//! itself: from when a probe was due until it started.

// What a benchmark finds is for whoever ran it, and a benchmark that can't go on should say why and stop.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod process;
mod scrape;
mod targets;

use std::time::Duration;

use tokio::{
    runtime,
    time::{Instant, sleep},
};
use toolpulse::proto::v1::{
    HttpProbe, ListAvailableToolsRequest, ProbeSpec, RegisterToolsRequest, ToolSpec, probe_spec::Kind,
    tool_registry_service_client::ToolRegistryServiceClient,
};

use self::{
    process::{Server, Targets},
    scrape::Scrape,
};

/// Ports of targets: not more than 16 runs may go to one at once.
const PORTS: usize = 250;
/// Tools in one call.
const BATCH: usize = 500;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["targets"] => block_on(targets::serve(PORTS)),
        _ if words.contains(&"--bench") => block_on(run(words.contains(&"--quick"))),
        // `cargo test --all-targets` starts benchmarks too.
        _ => println!("nothing to test here; run `cargo bench --bench probes`"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn run(quick: bool) {
    let (count, slice) = if quick { (1_000, 15) } else { (10_000, 60) };
    let slice = Duration::from_secs(slice);
    let mut targets = Targets::start();
    let server = Server::start();
    println!("{count} targets at 10 s; idle: {:.1} MB", server.resident_mb());
    let began = Instant::now();
    register(&server, &targets, count).await;
    while available(&server).await < count {
        assert!(began.elapsed() < Duration::from_secs(120), "not all targets pass");
        sleep(Duration::from_millis(50)).await;
    }
    println!("all are registered and have passed after {:.1} s", began.elapsed().as_secs_f64());
    // The first round lies as it was registered; from the second one on starts lie on their grid.
    sleep(Duration::from_secs(20)).await;
    println!(
        "\n{:28} {:>8} {:>6} {:>8} {:>7} {:>10} {:>10} {:>10} {:>12} {:>10}",
        "",
        "probes/s",
        "CPU %",
        "RSS MB",
        "errors",
        "live p50",
        "live p99",
        "live late",
        "doubtful p99",
        "available"
    );
    look("all live", &server, slice).await;
    targets.half_die();
    look("half die", &server, Duration::from_secs(45)).await;
    sleep(Duration::from_secs(15)).await;
    look("half are dead", &server, slice).await;
}

/// Watches the server for a while and says what it did.
async fn look(what: &str, server: &Server, slice: Duration) {
    let (before, cpu, began) = (Scrape::of(server).await, server.cpu_time(), Instant::now());
    sleep(slice).await;
    let (after, spent, elapsed) = (Scrape::of(server).await, server.cpu_time() - cpu, began.elapsed());
    let runs = after.since(&before);
    println!(
        "{what:28} {:>8.0} {:>6.1} {:>8.1} {:>7.0} {:>10} {:>10} {:>10.0} {:>12} {:>10}",
        runs.started() / elapsed.as_secs_f64(),
        spent.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
        server.resident_mb(),
        runs.errors(),
        runs.lateness(&["live"], 0.5),
        runs.lateness(&["live"], 0.99),
        runs.later_than("live", 0.25),
        runs.lateness(&["suspect", "down"], 0.99),
        available(server).await,
    );
}

async fn register(server: &Server, targets: &Targets, count: usize) {
    let mut client = client(server).await;
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH) {
        let tools = batch.iter().map(|&i| tool(i, targets)).collect();
        let request = RegisterToolsRequest { tools, all_or_nothing: true, ..Default::default() };
        let reply = client.register_tools(request).await.unwrap().into_inner();
        let refused = reply.results.iter().find(|result| result.error.is_some());
        assert!(refused.is_none(), "a tool was refused: {refused:?}");
    }
}

fn tool(i: usize, targets: &Targets) -> ToolSpec {
    let url = format!("http://{}/tools/{i}", targets.addresses()[i % PORTS]);
    let kind = Some(Kind::Http(HttpProbe { url, ..Default::default() }));
    ToolSpec {
        name: format!("tool_{i}"),
        probes: vec![ProbeSpec { name: "http".into(), kind }],
        ..Default::default()
    }
}

async fn available(server: &Server) -> usize {
    let request = ListAvailableToolsRequest { max_reply_bytes: 64 << 20, ..Default::default() };
    client(server).await.list_available_tools(request).await.unwrap().into_inner().tools.len()
}

async fn client(server: &Server) -> ToolRegistryServiceClient<tonic::transport::Channel> {
    let client = ToolRegistryServiceClient::connect(format!("http://{}", server.address())).await.unwrap();
    client.max_decoding_message_size(64 << 20)
}
