//! How fast it is: `cargo bench --bench speed` (some 12 minutes; `-- --quick`: 3, for a first look). Names of rows run these
//! alone: `-- warm cold`. `--rounds N` sets how often servers take turns, `--json` prints JSON in place of the table, and
//! `--binary PATH` measures another build, such as that of an earlier commit.
//!
//! The real binary beside what it is compared with, in the same run:
//! - "bare": a tonic service that hands out one prepared message, the same bytes, through a codec that copies them;
//! - "plain": tonic and prost as most services use them: the same message, cloned and encoded for each call;
//! - SQLite, which takes the same bytes in as many commits.
//!
//! Servers take turns, round by round, since machines drift: medians and ratios count, single figures do not. Each server is
//! a process on one core, the load generator another process on another core. Everything stays on loopback.

// What a benchmark finds is for whoever ran it, and a benchmark that can't go on should say why and stop.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
mod children;
mod contest;
#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../watch/etcd.rs"]
mod etcd;
mod load;
mod raw;
mod rows;
mod servers;
mod table;
#[path = "../probes/targets.rs"]
mod targets;
mod tools;
#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../watch/watchers.rs"]
mod watchers;
#[path = "../watch/wire.rs"]
mod wire;

use std::{os::unix::process::CommandExt, path::Path, process::Command, time::Duration};

use serde_json::json;
use tokio::runtime;

use self::{
    contest::Effort,
    rows::{NAMES, Run},
    table::Table,
};

const ROUNDS: usize = 5;
const QUICK_ROUNDS: usize = 3;
const SLICE: Duration = Duration::from_millis(900);
const QUICK_SLICE: Duration = Duration::from_millis(250);

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
        ["insert", ..] => rows::insert(&words[1..]),
        ["targets", ports] => block_on(targets::serve(ports.parse().unwrap())),
        ["watchers", ..] => block_on(watchers::main(&words[1..])),
        _ if words.contains(&"--bench") => block_on(run(&words)),
        // `cargo test --all-targets` starts benchmarks too.
        _ => println!("nothing to test here; run `cargo bench --bench speed`"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The same runtime as that of the real binary.
fn block_on_threads(future: impl Future<Output = ()>) {
    runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future);
}

async fn run(words: &[&str]) {
    let quick = words.contains(&"--quick");
    let is_json = words.contains(&"--json");
    let after = |flag: &str| words.iter().position(|word| *word == flag).map(|at| words[at + 1]);
    let rounds = after("--rounds").map(|rounds| rounds.parse().unwrap());
    if let Some(path) = after("--binary") {
        children::use_binary(path);
    }
    let effort = match quick {
        true => Effort { rounds: rounds.unwrap_or(QUICK_ROUNDS), slice: QUICK_SLICE, quick },
        false => Effort { rounds: rounds.unwrap_or(ROUNDS), slice: SLICE, quick },
    };
    let named: Vec<&str> = NAMES.into_iter().filter(|name| words.contains(name)).collect();
    let names = if named.is_empty() { NAMES.to_vec() } else { named };
    let (server, load) = children::cores();
    // What this process does itself is load as well.
    children::pin(load);
    let conditions = format!(
        "{} rounds of {:?} per server, {} connections x {} calls in flight; core {server} for the servers, core {load} for the load",
        effort.rounds,
        effort.slice,
        load::CONNECTIONS,
        load::IN_FLIGHT
    );
    if !is_json {
        println!("{conditions}\n");
        Table::header();
    }
    let files = tempfile::tempdir().unwrap();
    let run = Run { files: files.path().to_owned(), effort };
    let mut table = Table::default();
    for name in names {
        table.add(name, run.row(name).await, is_json);
    }
    match is_json {
        true => println!("{:#}", table.json(&json!(conditions))),
        false => println!("\n{}", table.summary()),
    }
}
