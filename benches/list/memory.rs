//! What registered tools cost in memory, and the binary on disk.

use std::path::Path;

use tokio::time::Instant;
use toolpulse::proto::v1;

use super::{children, tools};

/// Prints a table: stores by numbers of tools.
pub(crate) async fn report(files: &Path, quick: bool) {
    println!(
        "{:8} {:>7} {:>14} {:>12} {:>11} {:>11} {:>11}",
        "memory", "tools", "definitions", "registered", "empty", "registered", "after one"
    );
    println!(
        "{:8} {:>7} {:>14} {:>12} {:>11} {:>11} {:>11}",
        "", "", "MB", "in s", "MB", "MB", "list of all"
    );
    for store in ["memory", "sqlite"] {
        for count in [1_000, 10_000] {
            if !quick || count == 1_000 {
                row(files, store, count).await;
            }
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_toolpulse"));
    println!("\nbinary: {} MB", mb(usize::try_from(binary.metadata().unwrap().len()).unwrap()));
}

async fn row(files: &Path, store: &str, count: usize) {
    let server = children::toolpulse(store, &files.join(format!("{store}-{count}")), None).await;
    let empty = server.resident();
    let began = Instant::now();
    tools::register(server.address(), count).await;
    let took = began.elapsed();
    let registered = server.resident();
    let all = v1::ListAvailableToolsRequest { max_reply_bytes: 64 << 20, ..Default::default() };
    let listed = tools::list(server.address(), &all).await.tools.len();
    assert!(listed >= count, "{listed} of {count} tools are listed");
    println!(
        "{store:8} {count:>7} {:>14} {:>12.2} {:>11} {:>11} {:>11}",
        mb(tools::bytes_of(count)),
        took.as_secs_f64(),
        mb(empty),
        mb(registered),
        mb(server.resident()),
    );
}

fn mb(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
