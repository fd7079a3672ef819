//! What ListAvailableTools costs: `cargo bench --bench list` (under 2 minutes; `-- --quick`: some 15 s, for a first look;
//! `-- --instructions`: counts instructions instead, where valgrind is installed).
//!
//! The real binary beside two servers that could hardly do less:
//! - "bare": a tonic service that hands out one prepared message, the same bytes, through a codec that copies them;
//! - "plain": tonic and prost as most services use them: the same message, cloned and encoded for each call.
//!
//! Servers take turns, round by round, since machines drift: medians and ratios count, single figures do not. Each server is
//! a process on one core, the load generator another process on another core. Everything stays on loopback.

// What a benchmark finds is for whoever ran it, and a benchmark that can't go on should say why and stop.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
mod children;
mod instructions;
mod load;
mod memory;
mod raw;
mod servers;
mod tools;

use std::{os::unix::process::CommandExt, path::Path, process::Command, time::Duration};

use tokio::runtime;
use toolpulse::proto::v1;

use self::{
    children::{Child, own},
    load::{Load, Outcome},
};

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    slice: Duration,
}

impl Effort {
    const FULL: Self = Self { rounds: 5, slice: Duration::from_millis(900) };
    const QUICK: Self = Self { rounds: 3, slice: Duration::from_millis(250) };
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["pinned", core, program, ..] => {
            children::pin(core.parse().unwrap());
            panic!("cannot run {program}: {}", Command::new(program).args(&words[3..]).exec());
        }
        ["serve-bare", reply] => block_on_threads(servers::bare(Path::new(reply))),
        ["serve-plain", reply] => block_on_threads(servers::plain(Path::new(reply))),
        ["load", ..] => block_on(load::generate(&words[1..])),
        _ if words.contains(&"--instructions") => {
            let files = tempfile::tempdir().unwrap();
            block_on(instructions::report(files.path()));
        }
        _ if words.contains(&"--bench") => block_on(run(words.contains(&"--quick"))),
        // `cargo test --all-targets` starts benchmarks too.
        _ => println!("nothing to test here; run `cargo bench --bench list`"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The same runtime as that of the real binary.
fn block_on_threads(future: impl Future<Output = ()>) {
    runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future);
}

/// One kind of call, and the servers that answer it.
struct Work {
    name: &'static str,
    contenders: Vec<Contender>,
    /// Whether to look at latencies as well.
    latencies: bool,
}

struct Contender {
    name: &'static str,
    server: Child,
    load: Load,
}

async fn run(quick: bool) {
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let files = tempfile::tempdir().unwrap();
    println!("cargo bench --bench list{}", if quick { " -- --quick" } else { "" });
    println!(
        "{} rounds of {:?} per server, {} connections x {} calls in flight, 1 core for the server, 1 for the load\n",
        effort.rounds,
        effort.slice,
        load::CONNECTIONS,
        load::IN_FLIGHT
    );

    let store = files.path().join("store");
    let toolpulse = children::toolpulse("memory", &store, None).await;
    tools::register(toolpulse.address(), 1_000).await;

    let twenty = tools::request_for_twenty(1_000);
    let etag = tools::list(toolpulse.address(), &twenty).await.etag;
    let not_modified = v1::ListAvailableToolsRequest { if_etag: etag, ..twenty.clone() };
    let all = v1::ListAvailableToolsRequest::default();

    let setup = Setup { files: files.path(), toolpulse: &toolpulse };
    let work = setup.work("20 of 1,000 tools", &twenty, &["bare", "plain"], true).await;
    measure(work, effort).await;
    let work = setup.work("20 of 1,000, not modified", &not_modified, &["bare 100 B"], false).await;
    measure(work, effort).await;
    let work = setup.work("all of 1,000 tools", &all, &["bare", "plain"], false).await;
    measure(work, effort).await;
    drop(toolpulse);

    memory::report(files.path(), quick).await;
}

struct Setup<'a> {
    files: &'a Path,
    toolpulse: &'a Child,
}

impl Setup<'_> {
    async fn work(
        &self,
        name: &'static str,
        request: &v1::ListAvailableToolsRequest,
        against: &[&'static str],
        latencies: bool,
    ) -> Work {
        let load = |address: &str| Load::new(address, request, self.files);
        let reply = tools::list_raw(self.toolpulse.address(), request).await;
        println!("{name}: a reply has {} bytes", reply.len());
        let file = self.files.join("reply");
        let mut contenders = vec![Contender {
            name: "toolpulse",
            server: self.toolpulse.clone(),
            load: load(self.toolpulse.address()),
        }];
        for &name in against {
            let bytes = if name == "bare 100 B" { &[b'x'; 100][..] } else { &reply };
            std::fs::write(&file, bytes).unwrap();
            let kind = if name == "plain" { "serve-plain" } else { "serve-bare" };
            let server = own(&[kind, file.to_str().unwrap()], None).await;
            contenders.push(Contender { name, load: load(server.address()), server });
        }
        Work { name, contenders, latencies }
    }
}

/// What the rounds of one server gave.
#[derive(Default)]
struct Rounds {
    rate: Vec<f64>,
    cpu_us: Vec<f64>,
    latency: Vec<Outcome>,
}

async fn measure(work: Work, effort: Effort) {
    let Work { name, contenders, latencies } = work;
    let mut all: Vec<Rounds> = contenders.iter().map(|_| Rounds::default()).collect();
    for one in &contenders {
        one.load.closed(effort.slice).await;
    }
    for _ in 0..effort.rounds {
        for (one, rounds) in contenders.iter().zip(&mut all) {
            let before = one.server.cpu_time();
            let outcome = one.load.closed(effort.slice).await;
            let cpu = one.server.cpu_time() - before;
            rounds.rate.push(outcome.rate());
            rounds.cpu_us.push(cpu.as_secs_f64() * 1e6 / outcome.calls as f64);
        }
    }
    if latencies {
        // Half of what the second, the bare one, can do.
        let rate = median(&all[1].rate) / 2.0;
        println!(
            "latencies at {rate:.0} calls/s (half of bare's peak), calls start in batches, each millisecond"
        );
        for _ in 0..effort.rounds {
            for (one, rounds) in contenders.iter().zip(&mut all) {
                rounds.latency.push(one.load.open(effort.slice, rate).await);
            }
        }
    }
    table(name, &contenders, &all);
}

fn table(name: &str, contenders: &[Contender], all: &[Rounds]) {
    println!(
        "{:26} {:>9} {:>10} {:>9} {:>8} {:>8}",
        name, "calls/s", "toolpulse", "CPU us/", "p50 us", "p99 us"
    );
    println!("{:26} {:>9} {:>10} {:>9} {:>8} {:>8}", "", "", "is x of it", "call", "", "");
    let ours = median(&all[0].rate);
    for (one, rounds) in contenders.iter().zip(all) {
        let rate = median(&rounds.rate);
        let latency = |of: fn(&Outcome) -> f64| match rounds.latency[..] {
            [] => "-".to_owned(),
            ref some => format!("{:.0}", median(&some.iter().map(of).collect::<Vec<_>>())),
        };
        println!(
            "  {:24} {rate:>9.0} {:>10.2} {:>9.1} {:>8} {:>8}",
            one.name,
            ours / rate,
            median(&rounds.cpu_us),
            latency(|o| o.p50_us),
            latency(|o| o.p99_us),
        );
    }
    println!();
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
