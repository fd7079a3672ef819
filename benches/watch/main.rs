//! What watches cost: `cargo bench --bench watch` (some 5 minutes; `-- --quick`: less of everything; or name parts: `crowd`,
//! `cycles`, `single`, `filters`, `stalled`, `etcd`). With `-- --etcd PROGRAM` it takes that etcd instead of the one in PATH, and without one
//! it leaves that part out.
//!
//! The real binary on one core, the watchers as one process on another; everything stays on loopback. A tool with a `report`
//! probe is flipped, and each flip waits until all watchers have the one before.

// What a benchmark finds is for whoever ran it, and a benchmark that can't go on should say why and stop.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../speed/children.rs"]
mod children;
mod etcd;
mod parts;
#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../speed/raw.rs"]
mod raw;
mod server;
#[allow(dead_code, reason = "shared with the other benchmark, which needs more of it")]
#[path = "../speed/tools.rs"]
mod tools;
mod watchers;
mod wire;

use std::{os::unix::process::CommandExt, process::Command};

use tokio::runtime;

const PARTS: [&str; 6] = ["crowd", "cycles", "single", "filters", "stalled", "etcd"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["pinned", core, program, ..] => {
            children::pin(core.parse().unwrap());
            panic!("cannot run {program}: {}", Command::new(program).args(&words[3..]).exec());
        }
        ["watchers", ..] => block_on(watchers::main(&words[1..])),
        _ if words.contains(&"--bench") => block_on(run(&words)),
        // `cargo test --all-targets` starts benchmarks too.
        _ => println!("nothing to test here; run `cargo bench --bench watch`"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn run(words: &[&str]) {
    let files = tempfile::tempdir().unwrap();
    let quick = words.contains(&"--quick");
    let named: Vec<&str> = PARTS.into_iter().filter(|part| words.contains(part)).collect();
    let parts = if named.is_empty() { PARTS.to_vec() } else { named };
    let program = words.iter().position(|&word| word == "--etcd").and_then(|at| words.get(at + 1));
    println!("1 core for the server, 1 for the watchers; 20 tools of 1,000 each, one of them flips\n");
    for part in parts {
        match part {
            "crowd" => parts::crowd(files.path(), quick).await,
            "cycles" => parts::cycles(files.path(), quick).await,
            "single" => parts::single(files.path(), quick).await,
            "filters" => parts::filters(files.path(), quick).await,
            "stalled" => parts::stalled(files.path(), quick).await,
            _ => parts::beside_etcd(files.path(), quick, program.unwrap_or(&"etcd")).await,
        }
    }
}
